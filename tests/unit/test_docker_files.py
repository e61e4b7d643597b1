"""The image has no second list of anything and nothing of the machine that built it: docker/, read as text."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
FILES = ("Dockerfile", "Dockerfile.dockerignore", "build")


def text(name: str) -> str:
    """A file of docker/, without its comments."""
    lines = (DOCKER / name).read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def listed_groups() -> set[str]:
    """The groups of the one list of Debian packages."""
    lines = [line.split() for line in (ROOT / ".ci/packages.txt").read_text().splitlines()]
    return {words[0] for words in lines if words and words[0] != "#"}


def sent_to_the_daemon() -> set[str]:
    """What the ignore file lets into the build."""
    return {line[1:] for line in text("Dockerfile.dockerignore").splitlines() if line.startswith("!")}


def build(folder: Path, *arguments: str, **variables: str) -> tuple[int, list[str]]:
    """Run docker/build beside a docker that has every image and a mmdebstrap that fails; status and docker's calls."""
    for name, body in {"docker": 'printf "%s\\n" "$*" >>"$CALLS"', "mmdebstrap": "exit 9"}.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
    done = subprocess.run([str(DOCKER / "build"), *arguments], env=environment, timeout=30, check=False)
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_the_image_has_exactly_the_packages_of_the_one_list() -> None:
    called = re.search(r"^RUN \.ci/packages ([a-z ]+?) &&", text("Dockerfile"), re.MULTILINE)
    assert called is not None
    assert set(called[1].split()) == listed_groups()
    assert re.findall(r"apt(?:-get)? (?:-\S+ )*install|--include|pip install", text("Dockerfile")) == []


def test_the_image_has_the_pinned_python_packages() -> None:
    assert re.search(r"^    \.ci/setup-python$", text("Dockerfile"), re.MULTILINE)
    assert {"requirements-dev.txt", ".ci/setup-python", "pyproject.toml"} <= sent_to_the_daemon()


def test_only_files_of_the_project_reach_the_build() -> None:
    assert text("Dockerfile.dockerignore").splitlines()[0] == "*"
    assert [name for name in sorted(sent_to_the_daemon()) if not (ROOT / name).exists()] == []
    assert [name for name in sorted(sent_to_the_daemon()) if name.startswith((".venv", ".git", ".cache"))] == []


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_a_host_or_a_folder_of_one_machine(name: str) -> None:
    found = re.findall(
        r"\w+://\S+|/(?:home|opt|work|mnt)/\S+|\b[\w-]+\.(?:com|org|net|io)\b", (DOCKER / name).read_text()
    )
    assert found == []


@pytest.mark.parametrize("name", FILES)
def test_each_file_begins_by_saying_what_it_is(name: str) -> None:
    lines = (DOCKER / name).read_text().removeprefix("#!/usr/bin/env bash\n").splitlines()
    assert re.match(r"# \w", lines[0])


def test_certificates_come_as_a_secret_and_stay_in_no_layer() -> None:
    assert re.search(r"--mount=type=secret,id=authorities", text("Dockerfile"))
    assert re.findall(r"^(?:COPY|ADD|ENV|ARG).*(?:cert|\.crt|\.pem|authorit).*$", text("Dockerfile"), re.M | re.I) == []


def test_an_entrypoint_that_is_backupd_itself() -> None:
    assert 'ENTRYPOINT ["backupd"]' in text("Dockerfile").splitlines()


def test_a_base_that_is_named_is_taken_and_none_is_made(tmp_path: Path) -> None:
    status, calls = build(tmp_path, "mine", BASE="debian:12")
    assert status == 0
    assert "--build-arg BASE=debian:12 --tag mine" in calls[-1]
    assert [call for call in calls if call.startswith(("import", "image"))] == []


def test_a_base_that_was_made_once_is_not_made_again(tmp_path: Path) -> None:
    status, calls = build(tmp_path)
    assert status == 0
    assert "--build-arg BASE=backupd-base:bookworm --tag backupd" in calls[-1]


def test_a_proxy_is_passed_by_name_only(tmp_path: Path) -> None:
    _, calls = build(tmp_path, https_proxy="http://user:secret@proxy.example:3128")
    assert "--build-arg https_proxy" in calls[-1]
    assert "secret@" not in calls[-1]


def test_the_script_stops_at_its_first_error() -> None:
    path = DOCKER / "build"
    assert os.access(path, os.X_OK)
    assert "\nset -euo pipefail\n" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)
