"""Another distribution's server in this machine: the same tree with another `/usr`, and its programs first on PATH.

Knows: bind mounts, `chroot`, how a program is found.

Only `/usr` is exchanged (Debian 12 and later have no program and no library elsewhere), so that the datadir, sockets,
staging folders and accounts have the same paths inside and outside, and mounts within them are seen on both sides.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.host.process import run
from backupd.lab.options import ServerKind
from backupd.lab.roots import loader_and_libraries
from backupd.lab.servers import SOFTWARE
from backupd.lab.site import LabSite

_QUICK_SECONDS = 60.0


def wrapper(root: Path, usr: Path, program: str) -> str:
    """A script that becomes the program in that root: its process id, signals and open files are the caller's.

    Only root may change its root. For anybody else, a drill's server above all, it becomes the program where it lies,
    with the loader and the libraries that came with it; `--basedir` has a server look for its own there, too. A server
    takes an option about option files only as its first.
    """
    loader, libraries = loader_and_libraries(usr)
    path = usr / Path(program).relative_to("/usr")
    return f"""#!/bin/sh
[ "$(id -u)" -ne 0 ] || exec chroot {root} {program} "$@"
case $1 in
    --no-defaults | --defaults-file=*) first=$1; shift ;;
esac
exec {loader} --library-path {libraries} {path} ${{first:+"$first"}} --basedir={usr} "$@"
"""


@contextmanager
def found_first(site: LabSite, kind: ServerKind) -> Iterator[None]:
    """Within the block the server's names on PATH are that kind's programs; nothing changes for this root's own.

    What is mounted when the block begins, the volume above all, is what the server sees; it is let go at its end.

    Raises:
        CommandError: a mount was refused.
    """
    software = SOFTWARE[kind]
    if software.origin is None:
        yield
        return
    site.server_root.mkdir(parents=True, exist_ok=True)
    run(["mount", "--rbind", "/", str(site.server_root)], timeout_seconds=_QUICK_SECONDS)
    try:
        usr = ["mount", "--bind", str(site.server_usr), str(site.server_root / "usr")]
        run(usr, timeout_seconds=_QUICK_SECONDS)
        _write_wrappers(site, software.programs)
        os.environ["PATH"] = f"{site.programs}:{os.environ['PATH']}"
        yield
    finally:
        run(["umount", "--recursive", str(site.server_root)], timeout_seconds=_QUICK_SECONDS, must_finish=True)


def _write_wrappers(site: LabSite, programs: tuple[str, ...]) -> None:
    site.programs.mkdir(parents=True, exist_ok=True)
    for program in programs:
        script = site.programs / Path(program).name
        script.write_text(wrapper(site.server_root, site.server_usr, program), encoding="utf-8")
        script.chmod(0o755)
