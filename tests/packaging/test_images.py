"""The images that docker/build makes of backupd: one for a host, one with a lab in it."""

import subprocess

import pytest

from tests.docker.containers import build


def in_container(image: str, *arguments: str, entrypoint: str = "") -> subprocess.CompletedProcess[str]:
    """What a command in an ordinary container said: no privilege, no capability more, no device."""
    options = (f"--entrypoint={entrypoint}",) if entrypoint else ()
    return subprocess.run(
        ["docker", "run", "--rm", "--network=host", *options, image, *arguments],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )


@pytest.fixture(scope="module")
def host_image() -> str:
    build("backupd")
    return "backupd"


def test_the_lab_proves_a_backup_in_a_container_without_privileges() -> None:
    build("lab")
    demo = in_container("backupd-lab", "demo")
    assert demo.returncode == 0, f"{demo.stdout}\n{demo.stderr}"
    assert "proven" in demo.stdout
    assert "B/A" in demo.stdout  # beside the old defaults


def test_the_image_for_a_host_writes_and_checks_a_configuration(host_image: str) -> None:
    done = in_container(host_image, "-c", "backupd config init && backupd config show", entrypoint="sh")
    assert done.returncode == 0, done.stderr
    assert "/etc/backupd/backupd.toml" in done.stdout


@pytest.mark.parametrize("program", ["lvcreate", "dmsetup", "thin_check", "sysbench", "mount", "tar", "nice"])
def test_the_image_for_a_host_has_what_a_run_calls(host_image: str, program: str) -> None:
    assert in_container(host_image, "-c", f"command -v {program}", entrypoint="sh").returncode == 0


@pytest.mark.parametrize("program", ["cc", "gcc", "make", "git", "pip", "pytest", "mypy", "uv"])
def test_the_image_for_a_host_has_no_tool_of_a_developer(host_image: str, program: str) -> None:
    assert in_container(host_image, "-c", f"command -v {program}", entrypoint="sh").returncode == 127
    assert in_container(host_image, "-c", f"import {program}", entrypoint="python3").returncode == 1
