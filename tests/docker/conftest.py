"""One engine, and for each worker its own servers: of each kind when its first test asks for it.

Tests of one kind of server stay together on a worker.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.docker.containers import COMPOSE, KINDS, ROOT, Pair, ServerContainer, build, port_of, port_variable
from tests.servers.ports import free_ports


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Groups go to workers as scopes do."""

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid)

    return Together(config, log)


@pytest.fixture(scope="session", autouse=True)
def _a_busy_engine_is_waited_for() -> Iterator[None]:
    """docker-compose 1.29 gives each request 60 s, in which an engine that starts several servers may not answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPOSE_HTTP_TIMEOUT", "300")
        yield


def _group_of(test: str) -> str:
    """The kind of server that a test of this name is about; or its module, where that starts servers of its own."""
    if "test_compose.py" in test:
        return KINDS[0]  # its own: two must not build one image at once
    return next((kind for kind in KINDS if kind in test), test.partition("::")[0])


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A server that people run."""
    return str(request.param)


@pytest.fixture(scope="session")
def start(
    docker_services: object,
    docker_compose_command: str,
    docker_compose_file: str,
    docker_compose_project_name: str,
    shared_folder: Path,
) -> Callable[..., None]:
    """Have the images of these kinds, and their servers started: with their replicas where that is said."""

    def started(*kinds: str, followed: bool = False) -> None:
        build(*kinds, alone_in=shared_folder)
        services = [f"{kind}{role}" for kind in kinds for role in (("", "-replica") if followed else ("",))]
        place = ["--file", docker_compose_file, "--project-name", docker_compose_project_name]
        subprocess.run([*docker_compose_command.split(), *place, "up", "-d", *services], check=True)

    return started


@pytest.fixture(scope="session")
def server(
    kind: str,
    start: Callable[..., None],
    request: pytest.FixtureRequest,
    docker_compose_project_name: str,
    servers: Path,
) -> ServerContainer:
    """A server that logs its binlog and follows nobody, with tables of every engine in database `t`."""
    start(kind, followed=any("pair" in getattr(item, "fixturenames", ()) for item in request.session.items))
    found = answering(kind, kind, docker_compose_project_name, servers)
    found.add_tables()
    return found


@pytest.fixture(scope="session")
def mysql_server(server: ServerContainer) -> ServerContainer:
    """The name by which the promises in tests/contract know their server."""
    return server


@pytest.fixture(scope="session")
def pair(kind: str, server: ServerContainer, docker_compose_project_name: str, servers: Path) -> Pair:
    """The same server and a replica that follows it and has caught up."""
    pair = Pair(server, answering(kind, f"{kind}-replica", docker_compose_project_name, servers))
    pair.follow()
    pair.caught_up()
    return pair


def answering(kind: str, service: str, project: str, servers: Path) -> ServerContainer:
    """The server of a service, once it answers."""
    found = ServerContainer(servers / service, project, kind=kind, service=service, port=port_of(service))
    found.wait_until_it_answers()
    return found


@pytest.fixture(scope="session")
def servers() -> Iterator[Path]:
    """The folder of every server's files; it and the ports are what docker/compose.yaml is told about this session."""
    folder = Path(tempfile.mkdtemp(prefix="bk-"))  # short: a socket's path has no room for more than 107 characters
    services = [f"{kind}{role}" for kind in KINDS for role in ("", "-replica")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVERS", str(folder))
        for service, port in zip(services, free_ports(len(services)), strict=True):
            patch.setenv(port_variable(service), str(port))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def docker_compose_command() -> str:
    """What this machine has."""
    return " ".join(COMPOSE)


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    """The one that people use, too."""
    return str(ROOT / "docker/compose.yaml")


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    """No other session's containers, and no test's."""
    return f"backupd-tests-{os.getpid()}"


@pytest.fixture(scope="session")
def docker_setup() -> list[str]:
    """Nothing: `start` does it."""
    return []


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    """Killed rather than asked: nobody reads the files afterwards."""
    return ["kill", "down --volumes"]
