"""Who may change a file of the configuration: it names programs that backupd runs.

Knows: owners and modes. What lets anybody in is refused. A drop-in, which configuration management writes, is root's or
ours alone; of the main file, which people deploy in many ways, an owner or a group beside us is told, and no more.
Refuses to look further up than the file's own folder.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.faults import Fault

_ACL = "system.posix_acl_access"
_Place = tuple[Path, os.stat_result]


def read_closed(path: Path) -> bytes:
    """What is in a file that is not open to anybody: to be changed, or to have another one put in its place.

    The mode is asked of the file that was opened, not of the name.

    Raises:
        ConfigurationError: it is.
        OSError: it is not there, or cannot be read.
    """
    with path.open("rb") as file:
        for place, status in _places(path, os.fstat(file.fileno())):
            if status.st_mode & stat.S_IWOTH:
                raise ConfigurationError(
                    f"{place} can be changed by anybody, who could make backupd run their programs",
                    hint="chmod o-w it, or move the configuration away from it",
                )
        return file.read()


def shared(path: Path) -> Iterator[Fault]:
    """Who can change this file, or put another one in its place, beside root and whoever runs this."""
    with suppress(OSError):  # it has gone since it was read
        for place, status in _places(path, path.stat()):
            if status.st_uid not in {0, os.geteuid()}:
                whose = _user(status.st_uid)
                yield Fault(str(place), f"belongs to {whose}, who can change which programs backupd runs")
            if status.st_mode & stat.S_IWGRP:
                whose = _group(status.st_gid) + (", or by somebody in its ACL" if _has_acl(place) else "")
                yield Fault(str(place), f"is writable by {whose}: they can change which programs backupd runs")


def require_rereadable(path: Path) -> None:
    """It can be read again: by us at a reload, and by whatever we start with it. A pipe can be read once.

    Raises:
        ConfigurationError: it is no regular file.
    """
    if not path.is_file():
        raise ConfigurationError(
            f"{path} is not a regular file", hint="write the configuration into a file: it is read again at each run"
        )


def require_ours(path: Path) -> None:
    """Only root and whoever runs this can change it. Of a group nobody can tell who is in it.

    Raises:
        ConfigurationError: others can, or nobody can tell.
    """
    try:
        status = path.stat()
    except OSError as error:  # a link that leads nowhere, or a file that an editor is about to replace
        raise ConfigurationError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}", hint="write it again, or remove it"
        ) from error
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            f"{path} can be changed by others, and could make backupd run their programs",
            hint="chown root and chmod go-w it, or move the configuration away from it",
        )


def _places(path: Path, status: os.stat_result) -> Iterator[_Place]:
    """The file, and each folder in which somebody who may write there could put another one in its place."""
    yield path, status
    for folder in dict.fromkeys((path.parent, path.resolve().parent)):
        there = folder.stat()
        # Sticky as /tmp: only owners rename. Read-only as Kubernetes mounts a ConfigMap, with mode 0777: nobody does.
        if not there.st_mode & stat.S_ISVTX and not os.statvfs(folder).f_flag & os.ST_RDONLY:
            yield folder, there


def _user(number: int) -> str:
    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}"
    return f"uid {number}"


def _group(number: int) -> str:
    with suppress(KeyError):
        return f"group {grp.getgrgid(number).gr_name}"
    return f"gid {number}"


def _has_acl(path: Path) -> bool:
    """The bits of its group are a mask then (acl(5))."""
    with suppress(OSError):
        return _ACL in os.listxattr(path)
    return False
