"""What on this host is ours and nobody else's: a folder of ours, a file under a temporary name, a process.

Knows: how each is made sure of, where any local user may have been there first.
"""

import errno
import os
import re
from pathlib import Path

_RUN_FOLDERS = frozenset({"lock", "live", "mnt"})  # all that is ours in `paths.run`


def run_folder(run: Path, name: str) -> Path:
    """The folder of this name in `paths.run` is there, a folder of our own, and nobody else may enter it.

    So is `paths.run` itself, where nothing but ours is in it: an administrator may have named one that others use.
    One that an older version has left open is closed.

    Raises:
        OSError: it cannot be made, is a link or somebody else's.
    """
    folder = run / name
    private_folder(folder)
    if _RUN_FOLDERS.issuperset(os.listdir(run)):  # noqa: PTH208 - names are enough
        _close_to_others(run)
    return folder


def private_folder(folder: Path) -> None:
    """It is there, a folder of our own, and nobody else may enter it; one that was left open is closed.

    Raises:
        OSError: it cannot be made, is a link or somebody else's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close_to_others(folder)


def is_our_process(pid: int) -> bool:
    """Whether a process was started by the user that we are, and acts as that; False when there is no such process.

    Not by the owner of its files in /proc, which is root where it may not be looked into; and not by whom it acts as
    alone, for that is root in a `passwd` that anybody has started. proc(5), `Uid` of `status`: real, effective.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    real, effective, *_ = re.findall(r"\d+", status.partition("\nUid:")[2].partition("\n")[0])
    return int(real) == int(effective) == os.geteuid()


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """The file has this content and mode, whatever the umask; a reader sees the old or the new, whole. Not synced.

    Its temporary name, NAME.PID without the old suffix, is recreated: what somebody has planted there is removed, not
    written through.

    Raises:
        OSError: it could not be written; what was there is as before.
    """
    partial = path.with_suffix(f".{os.getpid()}")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, mode)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _close_to_others(folder: Path) -> None:
    """By descriptor: what was looked at is what is changed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid():
            raise PermissionError(errno.EPERM, f"the folder belongs to the user of id {owner}", str(folder))
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def is_there(path: Path, descriptor: int) -> bool:
    """Whether the path leads to this open file or folder, and by no link."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
