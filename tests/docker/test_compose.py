"""Both makes of compose read the one file and do the same with it: Debian 12's docker-compose, and docker's plugin."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docker.containers import KINDS, ROOT, ServerContainer, build, docker, port_variable
from tests.servers.ports import free_port

SERVICE = "mariadb-10.11"
DAYS_KEPT = 7
PLUGIN = "./usr/libexec/docker/cli-plugins/docker-compose"


@dataclass(frozen=True, slots=True)
class Compose:
    """One make of compose and what it is told by its surroundings."""

    command: tuple[str, ...]
    project: str
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> str:
        """What it printed; it has succeeded."""
        done = subprocess.run(
            [*self.command, "-f", str(ROOT / "docker/compose.yaml"), "-p", self.project, *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The surroundings in which `docker compose` is a command: Debian 12 has no such package, Debian 13 has."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return {}
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "cli-plugins").mkdir()
    program = folder / "cli-plugins" / "docker-compose"
    shutil.copy(debians_plugin(Path(os.environ.get("BASES_KEPT_IN", folder)), folder), program)
    program.chmod(0o755)
    return {"DOCKER_CONFIG": str(folder)}


def debians_plugin(kept_in: Path, folder: Path) -> Path:
    """The program, as Debian's archive gave it within the last week: as docker/build keeps the bases of images."""
    program = kept_in / "compose-of-trixie"
    if program.exists() and time.time() - program.stat().st_mtime < DAYS_KEPT * 86400:
        return program
    packed, fetched = folder / "trixie.tar", kept_in / f"compose-of-trixie.{os.getpid()}"
    fetch = ["mmdebstrap", "--quiet", "--variant=extract", '--aptopt=Acquire::Check-Valid-Until "false"']
    subprocess.run([*fetch, "--include=docker-compose", "trixie", str(packed)], check=True, timeout=300)
    with fetched.open("wb") as unpacked:
        subprocess.run(["tar", "-xOf", str(packed), PLUGIN], check=True, timeout=60, stdout=unpacked)
    packed.unlink()
    return fetched.rename(program)


@pytest.fixture(params=["docker-compose", "docker compose"])
def compose(request: pytest.FixtureRequest, plugin: dict[str, str], tmp_path: Path) -> Iterator[Compose]:
    """A make of compose, with a folder and a port of its own; its containers are gone afterwards."""
    folder = Path("/tmp") / f"bk-compose-{os.getpid()}"  # short, for the sockets in it
    environment = {**plugin, "SERVERS": str(folder), port_variable(SERVICE): str(free_port())}
    compose = Compose(tuple(str(request.param).split()), f"backupd-{tmp_path.name.strip('_').lower()}", environment)
    yield compose
    compose("down", "--volumes")
    shutil.rmtree(folder, ignore_errors=True)


def test_the_file_names_each_server_and_its_replica(compose: Compose) -> None:
    expected = {f"{kind}{role}" for kind in KINDS for role in ("", "-replica")}
    assert set(compose("config", "--services").split()) == expected


def test_a_server_comes_up_alone_answers_and_leaves_no_container(compose: Compose, shared_folder: Path) -> None:
    build(SERVICE, alone_in=shared_folder)
    compose("up", "-d", SERVICE)
    assert len(compose("ps", "-q").split()) == 1
    folder = Path(compose.environment["SERVERS"]) / SERVICE
    port = int(compose.environment[port_variable(SERVICE)])
    server = ServerContainer(folder, compose.project, kind=SERVICE, service=SERVICE, port=port)
    server.wait_until_it_answers()
    with server.session() as session:
        assert session.value("SELECT @@port") == str(port)
    compose("down", "--volumes")
    assert docker("ps", "--all", "--quiet", f"--filter=label=com.docker.compose.project={compose.project}") == ""
