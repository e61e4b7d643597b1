"""A MySQL server whose programs lie in a folder: the `/usr` of an image's or a distribution's root, with its C library.

Knows: how such programs are started here, and made to be found first; and which options MySQL needs beside MariaDB's.
"""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.lab.roots import loader_and_libraries
from tests.contract.mariadb import MariadbServer

_OPTIONS = ("--mysqlx=OFF", "--secure-file-priv=NULL")  # the default folder is one that only a package's scripts make


class UnpackedMysql(MariadbServer):
    """One server process on one folder, of the programs in `programs`."""

    _redo = "--innodb-redo-log-capacity=32M"

    def __init__(self, folder: Path, programs: Path, *options: str) -> None:
        super().__init__(folder, *_OPTIONS, *options)
        self._program = str(programs / "mysqld")

    def install(self) -> None:
        argv = [*self.argv_of_datadir(), "--initialize-insecure", *_OPTIONS]
        subprocess.run(argv, check=True, capture_output=True, env=self._environment())

    def argv_of_datadir(self) -> tuple[str, ...]:
        return (self._program, "--no-defaults", f"--datadir={self.datadir}", *self._user())


def programs_of(usr: Path, folder: Path) -> Path:
    """A folder of scripts that become the server and the program that receives; each keeps its process id."""
    loader, libraries = loader_and_libraries(usr)
    folder.mkdir()
    for name, place, own in (("mysqld", "sbin", f"--basedir={usr}"), ("mysqlbinlog", "bin", "")):
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nfirst=$1; shift\nexec {loader} --library-path {libraries} {usr}/{place}/{name} "$first" {own} "$@"\n'
        )
        script.chmod(0o755)
    return folder


@contextmanager
def mysql(usr: Path, *options: str) -> Iterator[UnpackedMysql]:
    """A new server with two tables, `t.innodb` and `t.myisam`; gone at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="bk-"))  # short: a socket's path has no room for more than 107 characters
    folder.chmod(0o755)
    server = UnpackedMysql(folder, programs_of(usr, folder / "programs"), *options)
    try:
        server.install()
        server.start()
        server.make_tables("innodb", "myisam")
        yield server
    finally:
        server.stop(signal.SIGKILL)
        shutil.rmtree(folder)
