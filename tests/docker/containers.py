"""Real servers in containers: what a test may ask of one, and of a source with its replica.

A container's folder is the same path inside and outside, laid out as docker/server-start says, so that such a server
passes for one of tests/contract: what is promised there can be asked of it here.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import PASSWORD, MariadbServer
from tests.servers.ports import ADDRESS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ("docker-compose",) if shutil.which("docker-compose") else ("docker", "compose")  # Debian 12's, or the plugin
KINDS = ("mariadb-10.11", "mariadb-11", "mysql-9")
START_SECONDS = 120.0
REPLICATION_SECONDS = 60
# A replica that found its source not ready yet tries again after a second, not after a minute.
_FOLLOWING = {
    Flavour.MARIADB: (
        "STOP SLAVE",
        "CHANGE MASTER TO MASTER_HOST = '{address}', MASTER_PORT = {port}, MASTER_USER = 'replication',"
        " MASTER_CONNECT_RETRY = 1, MASTER_PASSWORD = '{password}', MASTER_USE_GTID = slave_pos",
        "START SLAVE",
    ),
    # The server's key: an account's first login over a connection without TLS sends its password encrypted with it.
    Flavour.MYSQL: (
        "STOP REPLICA",
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{address}', SOURCE_PORT = {port}, SOURCE_USER = 'replication',"
        " SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 600, SOURCE_PASSWORD = '{password}', SOURCE_AUTO_POSITION = 1,"
        " GET_SOURCE_PUBLIC_KEY = 1",
        "START REPLICA",
    ),
}
_POSITION = {Flavour.MARIADB: "SELECT @@gtid_binlog_pos", Flavour.MYSQL: "SELECT @@gtid_executed"}
_WAIT = {
    Flavour.MARIADB: "SELECT MASTER_GTID_WAIT(%s, %s)",
    Flavour.MYSQL: "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)",
}


class ServerContainer(MariadbServer):
    """A server that docker/compose.yaml knows under `service`; the options it runs with are said there."""

    def __init__(self, folder: Path, project: str, *, kind: str, service: str, port: int) -> None:
        super().__init__(folder)
        self.kind = kind
        self.flavour = Flavour.MYSQL if kind.startswith("mysql") else Flavour.MARIADB
        self.address = ADDRESS
        self.port = port
        self._labels = (f"label=com.docker.compose.project={project}", f"label=com.docker.compose.service={service}")

    @property
    def container(self) -> str:
        """The id of its container. The two makes of compose name containers differently and label them alike."""
        (found,) = docker("ps", "--all", "--quiet", *(f"--filter={label}" for label in self._labels)).split()
        return found

    def start(self, *more: str) -> None:
        """It answers.

        Raises:
            RuntimeError: it ended, or does not answer in time; with what it said last.
        """
        docker("start", self.container)
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        """As `start`, of a container that somebody has started."""
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            runs = docker("inspect", "--format={{.State.Running}}", self.container).strip() == "true"
            if not runs or time.monotonic() > deadline:
                raise RuntimeError(docker("logs", "--tail=40", self.container))
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Its first process got the signal and has ended: SIGKILL is a power cut for it, if not for the disk."""
        container = self.container
        docker("kill", f"--signal={number.name}", container)
        docker("wait", container)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """It was stopped and answers again."""
        self.stop(number)
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Everything in the container stands still during the block: what is copied meanwhile is an atomic image."""
        container = self.container
        docker("pause", container)
        try:
            yield
        finally:
            docker("unpause", container)

    def add_tables(self) -> None:
        """A database `t` with one table of each engine the server has, named as the engine, and two rows in each."""
        with self.session() as root:
            root.execute("DROP DATABASE IF EXISTS t")
            root.execute("CREATE DATABASE t")
            for engine in self.engines():
                root.execute(f"CREATE TABLE t.{engine} (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE = {engine}")
                root.execute(f"INSERT INTO t.{engine} (v) VALUES ('one'), ('two')")

    def engines(self) -> tuple[str, ...]:
        """Engines that keep rows in files of their own."""
        own = ("aria",) if self.flavour is Flavour.MARIADB else ()
        return ("innodb", "myisam", *own)

    def holders(self, user: str) -> list[int]:
        """This user's sessions that hold a server-wide lock. MariaDB's commits hold one for a moment: not theirs."""
        with self.session() as root:
            listed = root.query(
                "SELECT DISTINCT PROCESSLIST_ID AS id FROM performance_schema.metadata_locks"
                " JOIN performance_schema.threads ON OWNER_THREAD_ID = THREAD_ID"
                " WHERE OBJECT_TYPE IN ('BACKUP', 'GLOBAL', 'COMMIT') AND LOCK_DURATION = 'EXPLICIT'"
                " AND LOCK_STATUS = 'GRANTED' AND PROCESSLIST_USER = %s",
                user,
            )
        return [int(row["id"] or 0) for row in listed]


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and the replica that follows it by GTID; the replica is read-only."""

    source: ServerContainer
    replica: ServerContainer

    def follow(self) -> None:
        """The replica follows the source from the source's first transaction on."""
        with self.source.session() as session:
            session.execute(f"CREATE USER IF NOT EXISTS 'replication'@'{ADDRESS}' IDENTIFIED BY '{PASSWORD}'")
            session.execute(f"GRANT REPLICATION SLAVE ON *.* TO 'replication'@'{ADDRESS}'")
        words = {"address": self.source.address, "port": self.source.port, "password": PASSWORD}
        with self.replica.session() as session:
            for statement in _FOLLOWING[self.replica.flavour]:
                session.execute(statement.format(**words))

    def caught_up(self) -> None:
        """The replica has applied everything that the source had written when this was called.

        Raises:
            AssertionError: not within REPLICATION_SECONDS; with what the replica says about itself.
        """
        with self.source.session() as session:
            position = session.value(_POSITION[self.source.flavour])
        with self.replica.session() as session:
            answer = session.value(_WAIT[self.replica.flavour], position, REPLICATION_SECONDS)
            assert answer == "0", session.query("SHOW REPLICA STATUS")


def docker(*arguments: str) -> str:
    """What docker printed.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def port_variable(service: str) -> str:
    """The variable by which docker/compose.yaml is told a service's port."""
    return service.upper().replace("-", "_").replace(".", "_") + "_PORT"


def port_of(service: str) -> int:
    """The port that this session gave to a service."""
    return int(os.environ[port_variable(service)])


def build(*images: str, alone_in: Path | None = None) -> None:
    """Build images side by side, as docker/build does; each by one only of those who name the same folder.

    Raises:
        pytest.fail.Exception: one could not be built; with what was said.
    """
    with ExitStack() as claimed:
        for lock in [alone_in / f"building-{image}" for image in sorted(images)] if alone_in is not None else ():
            fcntl.flock(claimed.enter_context(lock.open("w")), fcntl.LOCK_EX)
        running = {
            image: subprocess.Popen([ROOT / "docker/build", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for image in images
        }
        said = {image: process.communicate()[0].decode(errors="replace") for image, process in running.items()}
    failed = [image for image, process in running.items() if process.returncode != 0]
    if failed:
        pytest.fail("\n".join(said[image][-2000:] for image in failed), pytrace=False)
