"""File systems as a story meets them: room, that the page cache is on disk, a tree removed, a person's file written."""

import ctypes
import fcntl
import os
import shutil
import struct
from pathlib import Path

from backupd.errors import CleanupIncomplete, UsageError
from backupd.model import FileIdentity

MORE_ROOM = "choose a folder with more room"  # a hint

_GENERATION = 0x80087601  # FS_IOC_GETVERSION (linux/fs.h): ext4 and XFS tell an inode's generation; others refuse
_libc = ctypes.CDLL(None, use_errno=True)


def sync_filesystem(path: Path) -> None:
    """Everything that was written to the file system of `path` is on its disk: syncfs(2).

    Done just before the lock, because whatever is still dirty then is written while the server stands still.

    Raises:
        OSError: a write-back failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def identity(path: Path) -> FileIdentity:
    """By what its file system knows what a path leads to, links followed.

    Raises:
        OSError: it is not there, or nobody may look at it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        told = bytearray(struct.calcsize("l"))
        try:
            fcntl.ioctl(descriptor, _GENERATION, told)
        except OSError:
            return FileIdentity(os.fstat(descriptor).st_ino, None)
        return FileIdentity(os.fstat(descriptor).st_ino, int.from_bytes(told[:4], "little"))
    finally:
        os.close(descriptor)


def write_words(path: Path, text: str, *, hint: str) -> None:
    """The file, which a person asked for, has this text; `hint` tells what is not lost where that fails.

    Raises:
        UsageError: it could not be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} could not be written: {error.strerror}", hint=hint) from error


def remove_tree(folder: Path) -> None:
    """The folder is gone with all that is in it; nothing happens when it was.

    Raises:
        CleanupIncomplete: something in it could not be removed.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CleanupIncomplete(f"{folder} could not be removed: {error}", hint=f"rm -r {folder}") from error


def used_bytes(path: Path) -> int:
    """How much of the file system of `path` is in use: the upper bound of what a copy of it reads."""
    return shutil.disk_usage(path).used


def room(path: Path) -> tuple[int, int, bool]:
    """What the file system of `path` has left for us, its size, both in bytes, and whether it is read-only."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, bool(found.f_flag & os.ST_RDONLY)
