"""The image has no second list of anything and nothing of the machine that built it: docker/, read as text."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from backupd.config import CatalogueConfig
from backupd.config.schema import PathsConfig

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
IMAGES = ("backupd", "fleet", "lab", "prometheus", "server")
FILES = tuple(sorted(path.name for path in DOCKER.iterdir()))


def text(name: str) -> str:
    """A file of docker/, without its comments."""
    lines = (DOCKER / name).read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def listed_groups() -> set[str]:
    """The groups of the one list of Debian packages."""
    lines = [line.split() for line in (ROOT / ".ci/packages.txt").read_text().splitlines()]
    return {words[0] for words in lines if words and words[0] != "#"}


def sent_to_the_daemon(image: str) -> set[str]:
    """What the ignore file lets into the build."""
    return {line[1:] for line in text(f"{image}.Dockerfile.dockerignore").splitlines() if line.startswith("!")}


def installed_groups(image: str) -> list[set[str]]:
    """The groups of packages that each stage of an image has."""
    called = re.findall(r"^RUN \.ci/packages ([a-z ]+?)(?: &&|$)", text(f"{image}.Dockerfile"), re.MULTILINE)
    return [set(words.split()) for words in called]


def build(folder: Path, *arguments: str, **variables: str) -> tuple[int, list[str]]:
    """Run docker/build beside a docker that has every image, or none, and a mmdebstrap that fails; status and calls."""
    docker = 'printf "%s\\n" "$*" >>"$CALLS"; [[ "$1" != image || -z "${without_images:-}" ]]'
    for name, body in {"docker": docker, "mmdebstrap": "exit 9"}.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
    done = subprocess.run([str(DOCKER / "build"), *arguments], env=environment, timeout=30, check=False)
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_every_image_has_a_file_and_says_what_of_the_checkout_it_wants() -> None:
    assert {name for name in FILES if "Dockerfile" in name} == {
        f"{image}.Dockerfile{ending}" for image in IMAGES for ending in ("", ".dockerignore")
    }


def test_the_images_have_the_packages_of_the_one_list_and_name_none_themselves() -> None:
    assert installed_groups("lab") == [{"python", "check", "lab"}]
    assert installed_groups("backupd") == [{"python"}, {"host"}]
    assert installed_groups("prometheus") == [{"monitoring"}]
    assert installed_groups("fleet") == [{"python", "fleet", "demo"}]
    assert {"python", "check", "lab", "host", "monitoring", "fleet", "demo"} <= listed_groups()
    named = [
        re.findall(r"apt(?:-get)? (?:-\S+ )*install|pip install [^-]", text(f"{image}.Dockerfile")) for image in IMAGES
    ]
    assert named == [[]] * len(IMAGES)


@pytest.mark.parametrize(
    ("image", "pins"),
    [
        ("lab", {"requirements-dev.txt"}),
        ("fleet", {"requirements-dev.txt"}),
        ("backupd", {"requirements-dev.txt", "requirements.txt"}),
    ],
)
def test_the_images_have_the_pinned_python_packages(image: str, pins: set[str]) -> None:
    assert re.search(r"^    \.ci/setup-python\b", text(f"{image}.Dockerfile"), re.MULTILINE)
    assert pins | {".ci/setup-python", "pyproject.toml"} <= sent_to_the_daemon(image)


def test_what_a_developer_needs_stays_in_the_stage_that_makes_the_wheel() -> None:
    last = text("backupd.Dockerfile").rpartition("\nFROM ")[2]
    assert re.findall(r"^COPY (?!--from=wheel /srv/venv /srv/venv$|\.ci/packages ).*", last, re.MULTILINE) == []
    assert re.findall(r"\.ci/(?!packages\b)\S+", last) == []


@pytest.mark.parametrize("image", IMAGES)
def test_only_files_of_the_project_reach_the_build(image: str) -> None:
    sent = sorted(sent_to_the_daemon(image))
    assert text(f"{image}.Dockerfile.dockerignore").splitlines()[0] == "*"
    assert sent
    assert [name for name in sent if not (ROOT / name).exists()] == []
    assert [name for name in sent if name.startswith((".venv", ".git", ".cache"))] == []


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_a_host_or_a_folder_of_one_machine(name: str) -> None:
    elsewhere = r"\w+://(?!127\.0\.0\.1:|backupd@/)\S+|/(?:home|opt|work|mnt)/\S+|\b[\w-]+\.(?:com|org|net|io)\b"
    assert re.findall(elsewhere, (DOCKER / name).read_text()) == []


@pytest.mark.parametrize("name", FILES)
def test_each_file_begins_by_saying_what_it_is(name: str) -> None:
    lines = [line for line in (DOCKER / name).read_text().splitlines() if not line.startswith("#!")]
    assert re.match(r"# \w", lines[0])


@pytest.mark.parametrize("image", ["backupd", "fleet", "lab"])
def test_certificates_come_as_a_secret_and_stay_in_no_layer(image: str) -> None:
    written = text(f"{image}.Dockerfile")
    assert re.search(r"--mount=type=secret,id=authorities", written)
    assert re.findall(r"^(?:COPY|ADD|ENV|ARG).*(?:cert|\.crt|\.pem|authorit).*$", written, re.M | re.I) == []


@pytest.mark.parametrize("image", ["backupd", "lab"])
def test_an_entrypoint_that_is_backupd_itself(image: str) -> None:
    assert 'ENTRYPOINT ["backupd"]' in text(f"{image}.Dockerfile").splitlines()


def test_what_the_daemon_keeps_outlives_its_container() -> None:
    """An upgrade of the image makes the container anew; `backupd log` is asked for a year afterwards."""
    volumes = yaml.safe_load((DOCKER / "monitoring.compose.yaml").read_text())["services"]["backupd"]["volumes"]
    inside = [Path(found[1]) for volume in volumes if (found := re.search(r":(/[^:}]+)(:ro)?$", volume))]
    paths = PathsConfig()
    for kept in (CatalogueConfig().path, paths.log, paths.staging, paths.run):
        assert any(kept.is_relative_to(folder) for folder in inside), kept


def test_a_base_that_is_named_is_taken_and_none_is_made(tmp_path: Path) -> None:
    status, calls = build(tmp_path, "lab", BASE="debian:12")
    assert status == 0
    assert "--file docker/lab.Dockerfile --build-arg BASE=debian:12 --tag backupd-lab" in calls[-1]
    assert [call for call in calls if call.startswith(("import", "image"))] == []


def test_a_base_that_was_made_once_is_not_made_again(tmp_path: Path) -> None:
    status, calls = build(tmp_path)
    assert status == 0
    assert "--file docker/backupd.Dockerfile --build-arg BASE=backupd-base:bookworm --tag backupd" in calls[-1]


def test_a_server_has_a_base_of_its_own_whatever_the_others_are_based_on(tmp_path: Path) -> None:
    status, calls = build(tmp_path, "mysql-9", "mariadb-11", BASE="debian:12")
    assert status == 0
    built = [call for call in calls if call.startswith("build")]
    assert ["BASE=backupd-base:mysql-9 --tag backupd-server:mysql-9" in call for call in built] == [True, False]
    assert ["BASE=backupd-base:mariadb-11 --tag backupd-server:mariadb-11" in call for call in built] == [False, True]


def test_a_release_that_cannot_be_reached_is_one_sentence_and_no_image(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, calls = build(tmp_path, "mysql-9", without_images="yes")
    assert status == 1
    assert "Debian sid could not be fetched for the base of mysql-9\nhint: " in capfd.readouterr().err
    assert [call for call in calls if call.startswith(("import", "build"))] == []


def test_a_name_that_is_no_image_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    assert build(tmp_path, "lab", "mysql-10") == (2, [])


def test_a_proxy_is_passed_by_name_only(tmp_path: Path) -> None:
    _, calls = build(tmp_path, https_proxy="http://user:secret@proxy.example:3128")
    assert "--build-arg https_proxy" in calls[-1]
    assert "secret@" not in calls[-1]


@pytest.mark.parametrize(("name", "shell"), [("build", "bash"), ("server-start", "sh")])
def test_a_script_stops_at_its_first_error(name: str, shell: str) -> None:
    path = DOCKER / name
    assert os.access(path, os.X_OK)
    assert re.search(r"^set -eu(o pipefail)?$", path.read_text(), re.MULTILINE)
    subprocess.run([shell, "-n", str(path)], check=True, timeout=30)


def test_an_engine_that_somebody_named_is_not_replaced_by_another(tmp_path: Path) -> None:
    nobody = f"unix://{tmp_path}/nobody"
    done = subprocess.run(
        [str(ROOT / ".ci/with-docker"), "touch", str(tmp_path / "ran")],
        env={"PATH": os.environ["PATH"], "DOCKER_HOST": nobody},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"the docker engine at {nobody} does not answer"
    assert not (tmp_path / "ran").exists()
