"""Servers at work on this host, by what the kernel tells of their processes (proc(5): `comm`, `cwd` and `fd`).

Knows: that a server enters its datadir as it starts, and stays there; and that one whose datadir was emptied
(MariaDB 10.11.19, tried) still answers a SELECT from a table that it has open, while `mariadb-dump` finds no schema.
Of a datadir that was removed only its name is left, which is a container's own where the server is in one.
Refuses to ask a server.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from backupd.host.mountinfo import mounts, place, shown_at
from backupd.mysql.aria_control import CONTROL_FILE
from backupd.vocabulary.errors import Refused

# What a server keeps locked for as long as it has it open (fcntl(2)): MariaDB Aria's control file (ma_control_file.c),
# MySQL each data file (os0file.cc). One of them is enough: MySQL loses the lock of a file that CLONE has read.
KEPT_LOCKED = (CONTROL_FILE, "ibdata1", "ibtmp1", "mysql.ibd")

_SERVERS = ("mariadbd", "mysqld")
_MOUNTS = "ns/mnt"  # proc(5): those who share it share all names
_DELETED = " (deleted)"  # proc(5), /proc/PID/exe, cwd and fd


def require_no_server_in(folder: Path) -> None:
    """Raise where a server works in this folder, a container's too, or did in it or beneath it until somebody removed
    its datadir: the folder may be empty by accident, and the server go on with the files that it has open.

    Raises:
        Refused: naming the process.
    """
    here = os.path.realpath(folder)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if not is_server(int(process.name)):  # first: who stands in a folder that hangs keeps nobody waiting
                continue
            cwd = process / "cwd"
            removed = next((at for at in _removed(cwd.readlink(), process) if at.is_relative_to(here)), None)
            if removed is not None or cwd.samefile(folder):
                raise Refused(
                    f"a running server has {removed or folder} as its datadir:"
                    f" {_name(process)}, process {process.name}",
                    hint="do not empty it: the server may still have deleted files open. SELECT the data you need first"
                    " (a dump no longer finds those tables), then stop the server; or restore into another folder",
                )


def is_server(process: int) -> bool:
    """Whether this process is a database server, by its name or, whatever that is, by the files that it has open.

    One that has ended, or is hidden from us, is none.
    """
    with contextlib.suppress(OSError):
        at = Path(f"/proc/{process}")
        return _name(at) in _SERVERS or any(name in KEPT_LOCKED for name in _open_files(at))
    return False


def _name(process: Path) -> str:
    return (process / "comm").read_text(errors="replace").strip()


def _open_files(process: Path) -> Iterator[str]:
    """The names, without their folders, of what it has open, also of what was removed since."""
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield descriptor.readlink().name.removesuffix(_DELETED)


def _removed(cwd: Path, process: Path) -> Iterator[Path]:
    """Where the folder was, by our names; none where it is still there: beneath another one that tells by itself."""
    path = str(cwd)
    if not path.endswith(_DELETED):
        return
    was = Path(path.removesuffix(_DELETED))
    if (process / _MOUNTS).samefile(f"/proc/self/{_MOUNTS}"):
        yield was
        return
    theirs = [replace(one, root=one.root.parent) if one.removed else one for one in mounts(int(process.name))]
    if (there := place(was, theirs)) is not None:
        yield from shown_at(there, mounts())
