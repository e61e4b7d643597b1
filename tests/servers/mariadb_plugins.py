"""The installed MariaDB with the plugins that Debian has in `mariadb-server` only, which is not installed here.

Knows: that a server looks for them in one folder, and where that can be named for whoever starts `mariadbd`.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.lab import roots
from backupd.lab.images import cache_folder, kept
from backupd.lab.servers import Distribution

_ORIGIN = Distribution("bookworm", ("mariadb-server",))
_KEY = "root-mariadb-server-bookworm-1"


@contextmanager
def with_plugins() -> Iterator[Path]:
    """A folder with a `mariadbd` that has them. They are fetched once, as the lab's servers are.

    Raises:
        LabError: they cannot be fetched.
        FileNotFoundError: no server is installed.
    """
    installed = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
    with (
        kept(cache_folder(), _KEY, _fetch) as plugins,
        tempfile.TemporaryDirectory(prefix="bk-") as folder,
    ):
        base = Path(folder)
        base.chmod(0o755)  # a drill's server, which is nobody's, may enter it, and not root's cache
        shutil.copytree(plugins / "plugin", base / "plugin")
        program = base / "mariadbd"
        program.write_text(f'#!/bin/sh\nfirst=$1; shift\nexec {installed} "$first" --plugin-dir={base}/plugin "$@"\n')
        program.chmod(0o755)
        yield base


def _fetch(part: Path) -> None:
    """Only they are kept, of 300 MB."""
    roots.fetch(_ORIGIN, roots.machines_archive(), part)
    (part / "usr" / "lib" / "mysql" / "plugin").rename(part / "plugin")
    shutil.rmtree(part / "usr")
