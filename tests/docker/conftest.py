"""One engine, and for each worker its own servers: pytest-docker starts the services that its tests ask for.

Tests of one kind of server stay together on a worker.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.docker.containers import KINDS, ROOT, Pair, ServerContainer, build, free_ports, port_of, port_variable


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Groups go to workers as scopes do."""

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid)

    return Together(config, log)


def _group_of(test: str) -> str:
    """The kind of server that a test of this name is about, if it is about one."""
    if "test_compose.py" in test:
        return KINDS[0]  # its own: two must not build one image at once
    return next((kind for kind in KINDS if kind in test), "others")


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A server that people run."""
    return str(request.param)


@pytest.fixture(scope="session")
def server(kind: str, docker_services: object, docker_compose_project_name: str, servers: Path) -> ServerContainer:
    """A server that logs its binlog and follows nobody, with tables of every engine in database `t`."""
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
    """What this machine has: Debian 12's docker-compose, else the plugin."""
    return "docker-compose" if shutil.which("docker-compose") else "docker compose"


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    """The one that people use, too."""
    return str(ROOT / "docker/compose.yaml")


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    """No other session's containers, and no test's."""
    return f"backupd-tests-{os.getpid()}"


@pytest.fixture(scope="session")
def docker_setup(request: pytest.FixtureRequest, servers: Path, shared_folder: Path) -> list[str]:
    """Have the images and start the services, of what the chosen tests need and nothing else."""
    asked = (item.get_closest_marker("kinds") for item in request.session.items)
    asked_kinds = [kind for marker in asked if marker is not None for kind in marker.args]
    items: list[Any] = [item for item in request.session.items if hasattr(item, "callspec")]
    needed = dict.fromkeys(asked_kinds, False) | {
        str(item.callspec.params["kind"]): False for item in items if "kind" in item.callspec.params
    }
    for item in items:
        if "pair" in item.fixturenames:
            needed[str(item.callspec.params["kind"])] = True
    build(*needed, alone_in=shared_folder)
    services = [*needed, *(f"{kind}-replica" for kind, is_followed in needed.items() if is_followed)]
    return [f"up -d {' '.join(services)}"]


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    """Killed rather than asked: nobody reads the files afterwards."""
    return ["kill", "down --volumes"]
