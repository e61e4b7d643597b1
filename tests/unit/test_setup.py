"""The set-up keeps its promises: pins with hashes and no address, one list of packages that starts no server."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ("run", "packages", "setup-python", "setup-s3", "setup-clouds", "fresh-root", "with-docker")
PINS = ("requirements.txt", "requirements-dev.txt")


def entries(name: str) -> list[str]:
    """Each pinned package with its hashes, as one line."""
    text = re.sub(r"\s*\\\n\s*", " ", (ROOT / name).read_text())
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def pins(name: str) -> dict[str, str]:
    """Package to version, for those that this Python and this system want."""
    wanted = [Requirement(entry.split(" --hash=")[0]) for entry in entries(name)]
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate()
    }


def declared(*groups: str) -> list[Requirement]:
    """What pyproject.toml asks for, with the clouds' packages, which installed packages carry, and these groups."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = document["project"]["optional-dependencies"]
    texts = [*document["project"]["dependencies"], *extras["azure"], *extras["gcs"]]
    for group in groups:
        texts += document["dependency-groups"][group]
    return [Requirement(text) for text in texts]


def packages(*groups: str) -> list[str]:
    """The Debian packages of these groups."""
    lines = [line.split() for line in (ROOT / ".ci/packages.txt").read_text().splitlines()]
    return [words[1] for words in lines if words and words[0] in groups]


def install(folder: Path, *groups: str, installed: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `.ci/packages` as somebody without root or sudo, where these are installed; apt-get leaves a trace."""
    programs = {
        "dpkg-query": f'[[ " {" ".join(installed)} " == *" ${{@: -1}} "* ]] && printf installed',
        "apt-get": f'echo "$@" >>{folder}/apt-get.calls',
        "id": "echo 1000",
        "sudo": "exit 1",
    }
    for name, body in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    argv = [str(ROOT / ".ci/packages"), *groups]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("name", PINS)
def test_every_pin_is_one_version_with_a_hash(name: str) -> None:
    found = entries(name)
    assert found
    assert [e for e in found if not re.match(r"[a-z0-9._-]+==[^ ]+( ;[^-]+)?( --hash=sha256:[0-9a-f]{64})+$", e)] == []


@pytest.mark.parametrize(
    "name",
    [
        *PINS,
        "Makefile",
        *(f".ci/{name}" for name in ("setup-python", "setup-s3", "setup-clouds", "packages", "fresh-root")),
    ],
)
def test_no_file_of_the_set_up_names_an_index_or_a_folder_of_one_machine(name: str) -> None:
    text = (ROOT / name).read_text()
    assert re.findall(r"\w+://\S+|--(?:extra-)?index-url|(?<!no-emit-)find-links|/(?:root|home|opt)/\S+", text) == []


@pytest.mark.parametrize(("name", "groups"), [("requirements.txt", ()), ("requirements-dev.txt", ("dev",))])
def test_every_declared_dependency_is_pinned_within_its_range(name: str, groups: tuple[str, ...]) -> None:
    pinned = pins(name)
    wanted = [r for r in declared(*groups) if r.marker is None or r.marker.evaluate()]
    assert [str(r) for r in wanted if not r.specifier.contains(pinned.get(canonicalize_name(r.name), "0"))] == []


def test_developers_run_the_versions_that_users_run() -> None:
    assert pins("requirements.txt").items() <= pins("requirements-dev.txt").items()


def test_these_tests_run_on_the_pinned_versions() -> None:
    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "missing"

    pinned = pins("requirements-dev.txt")
    assert {name: installed(name) for name in pinned} == pinned


def test_the_lab_brings_programs_and_no_package_that_runs_a_server() -> None:
    listed = packages("python", "check", "lab", "host", "docker", "engine")
    assert {"user-mode-linux", "lvm2", "mariadb-server-core", "sysbench"} <= set(listed)
    assert [n for n in listed if re.fullmatch(r"(mariadb|mysql|default-mysql)-server(-[\d.]+)?|nbd-server", n)] == []


def test_each_package_says_why_it_is_there() -> None:
    lines = [line for line in (ROOT / ".ci/packages.txt").read_text().splitlines() if line and line[0] != "#"]
    assert [line for line in lines if len(line.split(maxsplit=2)) < 3] == []
    assert len(lines) == len({tuple(line.split()[:2]) for line in lines})


def test_nothing_is_asked_of_apt_when_nothing_is_missing(tmp_path: Path) -> None:
    done = install(tmp_path, "check", "lab", installed=packages("check", "lab"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "apt-get.calls").exists()


def test_without_root_the_missing_packages_are_named_and_only_they(tmp_path: Path) -> None:
    have = [name for name in packages("check", "lab") if name not in {"lvm2", "sysbench"}]
    done = install(tmp_path, "check", "lab", installed=have)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "these Debian packages are missing: sysbench lvm2",
        "hint: as root: apt-get update && apt-get install --no-install-recommends sysbench lvm2",
    ]
    assert not (tmp_path / "apt-get.calls").exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_can_be_started_and_stops_at_its_first_error(name: str) -> None:
    path = ROOT / ".ci" / name
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)


def test_ci_fails_when_make_test_fails_or_runs_no_test(tmp_path: Path) -> None:
    (tmp_path / "make").write_text('#!/bin/bash\n[[ "$*" == test ]] && exit 5\n')
    (tmp_path / "make").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(ROOT / ".ci/run")], env=environment, timeout=30, check=False)
    assert done.returncode == 5


def test_every_row_of_the_threat_model_names_tests_that_there_are() -> None:
    table = (ROOT / "docs" / "pages" / "security.md").read_text().partition("| who | may |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(tests/[^`]*)`", line) for line in table.splitlines()[2:]]
    assert len(rows) >= 5
    assert all(rows)
    assert [path for row in rows for path in row if not (ROOT / path).is_file()] == []
