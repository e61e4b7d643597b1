"""A server that has mounts of its own, in a mount namespace as a container or a unit with BindPaths= has one.

That no mount namespace can be had is an error, not a skip.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backupd.config import LockConfig
from backupd.mysql.layout import data_paths, require_server_of, tablespaces
from backupd.mysql.locks import ServerLock
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError
from tests.contract.mariadb import MariadbServer
from tests.fakes.server import FACTS

_SERVER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(path_in_memory: Path) -> Path:
    """A datadir, a redo log beside it, and what only the server will see."""
    for folder in ("data/redo", "data/shop", "log", "elsewhere", "container"):
        (path_in_memory / folder).mkdir(parents=True)
    (path_in_memory / "data" / "ibdata1").touch()
    return path_in_memory


def alone() -> list[str]:
    """The beginning of a command that gets mounts of its own."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--propagation", "private"]


@contextmanager
def server(place: Path, mounting: str, file: str = "data/ibdata1") -> Iterator[Session]:
    """What a process says that has mounted this for itself and then opened its files."""
    argv = [*alone(), "sh", "-c", f'set -e; {mounting}; exec "$@"', "sh", sys.executable, "-c", _SERVER, file]
    with subprocess.Popen(argv, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        variables = {"datadir": str(place / "data"), "innodb_log_group_home_dir": str(place / "log")}
        told = SimpleNamespace(variables=lambda: variables, far_address=None, peer=None, query=lambda _statement: [])
        yield cast("Session", told)


@pytest.mark.parametrize(
    ("mounting", "file", "other"),
    [
        ("mount --bind elsewhere data/redo", "data/ibdata1", "data/redo"),
        ("mount -t tmpfs tmpfs data/shop", "data/ibdata1", "data/shop"),
        ("mount --bind elsewhere log", "data/ibdata1", "log"),
        # under another name in a container, whose own folder of this name is another one
        (
            "mount --bind data container; mount --bind elsewhere container/redo; mount -t tmpfs tmpfs data",
            "container/ibdata1",
            "data/redo",
        ),
    ],
)
def test_a_server_that_has_other_files_mounted_than_are_seen_here_is_refused(
    place: Path, mounting: str, file: str, other: str
) -> None:
    with (
        server(place, mounting, file) as session,
        pytest.raises(ServerError, match=rf"has other files at {place / other} than are seen here") as caught,
    ):
        require_server_of(session, place / "data")
    assert "BindPaths=" in caught.value.hint


@pytest.mark.parametrize(
    "mounting",
    [
        "true",
        "mount --bind data data; mount --bind data/shop data/shop",  # as ReadWritePaths= does
        "mount --bind data container; mount --bind elsewhere data",  # under another name in a container
        "mount -t tmpfs tmpfs elsewhere",
        "mkdir elsewhere/same; mount --bind data elsewhere/same; mount -t tmpfs tmpfs elsewhere/same/shop",
    ],
)
def test_mounts_of_a_server_that_change_nothing_in_its_folders_are_its_own_affair(place: Path, mounting: str) -> None:
    file = "container/ibdata1" if "container" in mounting else "data/ibdata1"
    with server(place, mounting, file) as session:
        require_server_of(session, place / "data")


def test_a_schema_behind_a_link_that_leads_elsewhere_for_the_server_is_refused(place: Path) -> None:
    (place / "data" / "sales").symlink_to("../elsewhere")
    with (
        server(place, "mount -t tmpfs tmpfs elsewhere") as session,
        pytest.raises(ServerError, match=f"has other files at {place}/elsewhere than are seen here"),
    ):
        data_paths(session, replace(FACTS, datadir=place / "data"))


def test_a_file_that_is_missing_here_tells_nothing_once_the_server_has_a_mount_of_its_own(place: Path) -> None:
    """Else a table would be taken for one that was dropped."""
    with (
        server(place, "mount --bind elsewhere data/shop") as session,
        pytest.raises(ServerError, match=f"has other files at {place}/data/shop than are seen here"),
    ):
        tablespaces(session, replace(FACTS, datadir=place / "data"))


class Contained(MariadbServer):
    """A server that has another folder mounted where the host's has its datadir, and a host name of its own."""

    def __init__(self, folder: Path, *, at: Path) -> None:
        super().__init__(folder)
        self.own, self.datadir = folder / "own", at

    def argv_of_datadir(self) -> tuple[str, ...]:
        into = f'hostname 3f2a90c1b7de; mount --bind {self.own} {self.datadir}; exec "$@"'
        return (*alone(), "--uts", "sh", "-ec", into, "sh", *super().argv_of_datadir(), "--user=root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path has no room for more than 107 characters."""
    with tempfile.TemporaryDirectory(prefix="bk-") as made:
        yield Path(made)


def test_a_real_server_in_a_container_is_not_locked_for_the_one_that_has_its_files_here(folder: Path) -> None:
    host = MariadbServer(folder / "host")
    container = Contained(folder / "container", at=host.datadir)
    for one in (host, container):
        one.folder.mkdir()
    host.install()
    shutil.copytree(host.datadir, container.own)
    try:
        host.start()
        container.start()
        with host.session() as session:
            require_server_of(session, host.datadir)
        with (
            pytest.raises(ServerError, match=r"process \d+ answers, and another one, process \d+, has the files"),
            ServerLock(container.connect(), LockConfig()).held(host.datadir),
        ):
            raise AssertionError("granted")
    finally:
        host.stop(signal.SIGKILL)
        container.stop(signal.SIGKILL)
