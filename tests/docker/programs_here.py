"""A server's programs out of its image, at work on this machine: each keeps its process id, every user can start it."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.lab.roots import loader_and_libraries
from backupd.vocabulary.servers import Flavour
from tests.archive_site import serving
from tests.contract.mariadb import MariadbServer
from tests.docker.containers import ServerContainer, docker

SERVER = {Flavour.MARIADB: "mariadbd", Flavour.MYSQL: "mysqld"}
BINLOG = {Flavour.MARIADB: "mariadb-binlog", Flavour.MYSQL: "mysqlbinlog"}
_OPTIONS = {
    Flavour.MARIADB: ("--skip-slave-start",),
    Flavour.MYSQL: (
        *("--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-replica-start"),
        *("--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
    ),
}


class ServerHere(MariadbServer):
    """One of that flavour, by its program in a folder."""

    def __init__(self, folder: Path, programs: Path, flavour: Flavour, *options: str) -> None:
        super().__init__(folder, *_OPTIONS[flavour], *options, program=str(programs / SERVER[flavour]))
        if flavour is Flavour.MYSQL:
            self._redo = "--innodb-redo-log-capacity=16M"


@contextmanager
def copied(container: ServerContainer) -> Iterator[Path]:
    """A folder with the programs of the container's image; gone at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="bk-programs-") as folder:
        base = Path(folder)
        base.chmod(0o755)
        docker("cp", f"{container.container}:/usr", str(base / "usr"))
        make_startable(base, container.flavour)
        yield base


def make_startable(base: Path, flavour: Flavour) -> None:
    """Server and binlog program of `base/usr` are in `base` by their names: with the loader and libraries there."""
    loader, libraries = loader_and_libraries(base / "usr")
    for name, place, own in ((SERVER[flavour], "sbin", f"--basedir={base}/usr"), (BINLOG[flavour], "bin", "")):
        start = f"exec {loader} --library-path {libraries} {base}/usr/{place}/{name}"
        (base / name).write_text(f'#!/bin/sh\nfirst=$1; shift\n{start} "$first" {own} "$@"\n')
        (base / name).chmod(0o755)


@contextmanager
def fresh(programs: Path, *options: str) -> Iterator[MariadbServer]:
    """A new MySQL server here, with a schema `t`; gone at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="bk-") as folder:
        server = ServerHere(Path(folder), programs, Flavour.MYSQL, *options)
        subprocess.run([*server.argv_of_datadir(), "--initialize-insecure"], check=True, capture_output=True)
        server.start()
        try:
            with server.session() as root:
                root.execute("CREATE DATABASE t")
            yield server
        finally:
            server.stop()


@contextmanager
def started_on(datadir: Path, programs: Path, flavour: Flavour, *options: str) -> Iterator[MariadbServer]:
    """A server on restored files, as a person would start one; its socket has a short path."""
    with serving(datadir, lambda folder: ServerHere(folder, programs, flavour, *options)) as server:
        yield server
