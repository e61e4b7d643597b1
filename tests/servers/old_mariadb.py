"""MariaDB 10.5 of Debian 11 in place of the installed one: a command's server, client and installation program are its.

Knows: how programs of before Debian 12 are started here, whose C library is not in /usr: by this host's loader, with
their other libraries. Refuses to install anything.

    python -m tests.servers.old_mariadb -- COMMAND...

runs the command with the programs first on its PATH. They are fetched once, as the lab's servers are.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.lab import roots
from backupd.lab.images import cache_folder, kept
from backupd.lab.servers import Distribution
from backupd.vocabulary.errors import LabError

_ORIGIN = Distribution("bullseye", ("mariadb-server-10.5",))
_KEY = "root-mariadb-10.5-1"
_LOADER = "/lib64/ld-linux-x86-64.so.2"
_PROGRAMS = {  # as they are called: what is started, and which options it gets behind its first
    "mariadbd": ("{usr}/sbin/mariadbd", "--basedir={base}"),
    "mysqld": ("{usr}/sbin/mariadbd", "--basedir={base}"),
    "mariadb-binlog": ("{usr}/bin/mariadb-binlog", ""),
    "my_print_defaults": ("{usr}/bin/my_print_defaults", ""),
    "resolveip": ("{usr}/bin/resolveip", ""),
}


@contextmanager
def programs() -> Iterator[Path]:
    """The folder that has them, by their names.

    Raises:
        LabError: they cannot be fetched.
    """
    with (
        kept(cache_folder(), _KEY, lambda part: roots.fetch(_ORIGIN, roots.machines_archive(), part)) as root,
        tempfile.TemporaryDirectory(prefix="bk-") as folder,
    ):
        base = Path(folder)
        base.chmod(0o755)  # a drill's server, which is nobody's, may enter it, and not root's cache
        usr = shutil.copytree(root / "usr", base / "usr", symlinks=True)
        (base / "bin").mkdir()
        for name in ("lib", "share"):
            (base / name).symlink_to(usr / name)
        for name, (program, option) in _PROGRAMS.items():
            started = f"{_LOADER} --library-path {usr}/lib/x86_64-linux-gnu {program.format(usr=usr)}"
            _write(base / "bin" / name, f'first=$1; shift\nexec {started} "$first" {option.format(base=base)} "$@"')
        # A shell script, which looks for the others in the folder that it is told.
        script = f"{usr}/bin/mariadb-install-db"
        _write(base / "bin" / "mariadb-install-db", f'first=$1; shift\nexec {script} "$first" --basedir={base} "$@"')
        yield base / "bin"


def _write(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def main(command: list[str]) -> int:
    """The command's status."""
    try:
        with programs() as folder:
            path = f"{folder}:{os.environ['PATH']}"
            return subprocess.run(command, env={**os.environ, "PATH": path}, check=False).returncode
    except LabError as error:
        sys.exit(f"{error.message}\nhint: {error.hint}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))  # behind --
