"""Whose a file of the configuration may be: it names programs that backupd runs, so nobody else may change it.

Knows: owners, modes, and that a group can be one person's alone. Refuses to look further up than the file's own folder.
"""

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from backupd.vocabulary.errors import ConfigurationError


def read_ours(path: Path) -> bytes:
    """What is in a file that only root and whoever runs this can change, replace or put another one in the place of.

    The owner and the mode are asked of the file that was opened, not of the name.

    Raises:
        ConfigurationError: others could.
        OSError: it is not there, or cannot be read.
    """
    with path.open("rb") as file:
        _require(path, os.fstat(file.fileno()))
        for folder in dict.fromkeys((path.parent, path.resolve().parent)):
            require_ours(folder)
        return file.read()


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
    """Only root and whoever runs this can change it; of a folder such as /tmp, remove or replace what is ours in it.

    Raises:
        ConfigurationError: others can, or nobody can tell.
    """
    try:
        status = path.stat()
    except OSError as error:  # a link that leads nowhere, or a file that an editor is about to replace
        raise ConfigurationError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}", hint="write it again, or remove it"
        ) from error
    _require(path, status)


def _require(path: Path, status: os.stat_result) -> None:
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_of_one(status))
    if status.st_uid not in {0, os.geteuid()} or (others and not sticky):
        raise ConfigurationError(
            f"{path} can be changed by others, and could make backupd run their programs",
            hint="chown root and chmod go-w it, or move the configuration away from it",
        )


def _is_of_one(status: os.stat_result) -> bool:
    """Its group is the owner's own, in which nobody else is: so distributions have it, and files are written g+w."""
    with suppress(KeyError):
        owner, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid)
        return group.gr_name == owner and {*group.gr_mem} <= {owner}
    return False
