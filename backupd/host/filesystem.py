"""File systems as a story meets them: room, that the page cache is on disk, a tree removed, a person's file written."""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from backupd.host import process
from backupd.vocabulary.errors import CleanupIncomplete, CommandError, UsageError, VerificationError
from backupd.vocabulary.volumes import FileIdentity

OWN_TO_A_FILE_SYSTEM = frozenset({"lost+found"})  # what an empty mount point may hold
MORE_ROOM = "choose a folder with more space"  # a hint
_STAYS_FREE, _STAYS_FREE_BYTES = 0.05, 10 << 30  # the less of the two

_REMOVAL_SECONDS = 3600.0
_OPENED = Path("/proc/self/fd")  # what this process has open, by number (proc(5))
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


def sync_folder(folder: Path) -> None:
    """The names in it are durable.

    Raises:
        OSError: it is not there, or cannot be synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity(path: Path) -> FileIdentity:
    """By what its file system knows what a path leads to, links followed. Only a file or a folder is opened for it.

    Raises:
        OSError: it is not there, or nobody may look at it.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        may_open = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
        return FileIdentity(found.st_ino, _generation(place, path) if may_open else None)
    finally:
        os.close(place)


def _generation(place: int, path: Path) -> int | None:
    descriptor = _opened(place, path)
    try:
        told = bytearray(struct.calcsize("l"))
        with suppress(OSError):
            fcntl.ioctl(descriptor, _GENERATION, told)
            return int.from_bytes(told[:4], "little")
        return None
    finally:
        os.close(descriptor)


def write_words(path: Path, text: str, *, hint: str) -> None:
    """The file, which a person asked for, has this text; `hint` tells what is not lost where that fails.

    Raises:
        UsageError: it could not be written.
    """
    with explained_write(path, hint=hint):
        path.write_text(text, encoding="utf-8")


@contextmanager
def explained_write(path: Path, *, hint: str) -> Iterator[None]:
    """An OSError in the block becomes the sentence that this file could not be written.

    Raises:
        UsageError: that; `hint` tells what is not lost.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} could not be written: {error.strerror}", hint=hint) from error


def make_folders(parts: Sequence[str], *, beneath: Path) -> None:
    """The folders of these names, one in the other, are in a folder that others write into: beneath it, by no link.

    Raises:
        OSError: something else is in the way, or there is no room.
    """
    with _within(parts, beneath=beneath, making=True):
        pass


@contextmanager
def _within(folders: Sequence[str], *, beneath: Path, making: bool = False) -> Iterator[int]:
    """A descriptor of the innermost of these folders, one in the other, by no link; with `making` each is there."""
    if ".." in folders:
        raise OSError(errno.EXDEV, "it leads out of its folder", str(Path(*folders)))
    descriptor = os.open(beneath, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in folders:
            if making:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_plain(path: Path, *, beneath: Path, owners: Collection[int] = ()) -> Iterator[BinaryIO]:
    """A file below a folder that others may write into, to be read: a plain file, and by no link.

    `owners` are the users one of whom it has to belong to; anybody where none is named. So a link to a stranger's
    file, hard or soft, is no way to have us read that.

    Raises:
        OSError: it is not there, is no such file, or is behind a link.
    """
    *folders, name = path.relative_to(beneath).parts or ("..",)
    if name == "..":
        raise OSError(errno.EXDEV, "it leads out of its folder", str(path))
    with _named_whole(path), _within(folders, beneath=beneath) as descriptor:
        file = open(name, "rb", opener=partial(_open_plain, owners=owners, dir_fd=descriptor))  # noqa: SIM115
    with file:
        yield file


@contextmanager
def _named_whole(path: Path) -> Iterator[None]:
    """An error in the block is of this path, whatever part of it was asked for."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def read_plain(path: Path, *, beneath: Path, at_most: int, owners: Collection[int] = ()) -> bytes:
    """What is in such a file, which is not without end.

    Raises:
        OSError: as of `opened_plain`, or it has more than `at_most` bytes.
    """
    with opened_plain(path, beneath=beneath, owners=owners) as file:
        found = file.read(at_most + 1)
    if len(found) > at_most:
        raise OSError(errno.EFBIG, f"it has more than {at_most} bytes", str(path))
    return found


def read_plain_or_linked(path: Path, *, at_most: int) -> bytes:
    """The same, but by a link of the file's own name too. What is behind that belongs to the owner of the folder that
    the link is in: it is no way either to have us read a stranger's file.

    Raises:
        OSError: as of `read_plain`, or it is another's, or behind one more link.
    """
    owners: Collection[int] = ()
    if path.is_symlink():
        owners, path = (path.parent.stat().st_uid,), path.parent / path.readlink()
    return read_plain(path, beneath=path.parent, at_most=at_most, owners=owners)


def _open_plain(name: str, _flags: int, *, owners: Collection[int], dir_fd: int) -> int:
    descriptor = open_if_plain(name, owners=owners, dir_fd=dir_fd)
    if descriptor is None:
        raise OSError(errno.EPERM, "it is not the file that should be there", name)
    return descriptor


def open_if_plain(
    name: str | Path, flags: int = 0, *, owners: Collection[int] = (), dir_fd: int | None = None
) -> int | None:
    """A descriptor to read the plain file of this name itself; None where that is something else, or another's.

    What is something else is not opened: a FIFO's other end may never come, and of some devices it is an act already.
    So it is looked at first, and what was looked at is opened (O_PATH, open(2)): others may put anything in its place.

    Raises:
        OSError: it is not there, is a link, or cannot be opened.
    """
    look = partial(_opened_as_seen, name, flags, owners, dir_fd)
    try:
        return look()
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return look()  # NFS: another file has got its name, and the server was asked only as it was opened


def _opened_as_seen(name: str | Path, flags: int, owners: Collection[int], dir_fd: int | None) -> int | None:
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        found = os.fstat(place)
        is_plain = stat.S_ISREG(found.st_mode) and (not owners or found.st_uid in owners)
        if not is_plain and not stat.S_ISLNK(found.st_mode):
            return None
        return _opened(place, name, flags)  # of a link the kernel says ELOOP here (may_open of fs/namei.c)
    finally:
        os.close(place)


def _opened(place: int, name: str | Path, flags: int = 0) -> int:
    """What was looked at (O_PATH), to be read."""
    try:
        return os.open(_OPENED / str(place), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except OSError as error:
        if error.errno == errno.ENOENT and is_absent(_OPENED):  # it is there: nobody may take it for one that is not
            raise OSError(errno.ENOSYS, "/proc is not mounted", str(name)) from error
        raise OSError(error.errno, error.strerror, str(name)) from error


def write_among_others(folder: Path, name: str, text: str) -> None:
    """The file `name` in the folder has this text, durably, whatever stood or led there: others wrote there too.

    Raises:
        OSError: it could not be written. Something else of that name may be gone.
    """
    within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=within)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o644, dir_fd=within), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(within)


def write_beside(path: Path, text: str, *, hint: str) -> None:
    """A restored copy has this file with these words for a person; `hint` tells what is not lost where that fails.

    Raises:
        UsageError: it could not be written.
    """
    with explained_write(path, hint=hint):
        write_among_others(path.parent, path.name, text)


def walked(top: Path) -> Iterator[tuple[Path, list[str], int]]:
    """Each folder, relative to `top`, with what is in it and its descriptor; only `top` itself may be a link.

    `os.fwalk` finds nothing in a `top` that is one.

    Raises:
        OSError: it, or a folder in it, cannot be opened.
    """
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for within, folders, files, there in os.fwalk(".", dir_fd=descriptor, onerror=_raised):
            yield Path(within), folders + files, there
    finally:
        os.close(descriptor)


def _raised(error: OSError) -> None:
    raise error


def require_no_way_out(folder: Path) -> None:
    """Each symbolic link in the folder leads to something in it, and all else is a file or a folder.

    Judged as they stand, by where each lies: a link may climb at its beginning alone (`../../x`), and no higher than
    the folder; as that holds for every one of them, what it leads through does not matter. Nobody else may write in it
    meanwhile.

    Raises:
        VerificationError: naming the first that is otherwise.
        OSError: it cannot be read.
    """
    waiting = [("", 0)]
    while waiting:
        within, depth = waiting.pop()
        with os.scandir(folder / within) as entries:
            for entry in entries:
                name = os.path.join(within, entry.name)  # noqa: PTH118 - there may be a million
                if entry.is_dir(follow_symlinks=False):
                    if name in OWN_TO_A_FILE_SYSTEM and not os.access(entry.path, os.R_OK | os.X_OK):
                        continue  # who is not root: nothing was unpacked there
                    waiting.append((name, depth + 1))
                elif entry.is_symlink():
                    if _climbs_out(os.readlink(entry.path), depth):  # noqa: PTH115
                        raise _way_out(folder, name, "leads out of it")
                elif not entry.is_file(follow_symlinks=False):
                    raise _way_out(folder, name, "is neither a file, a folder nor a link")


def _climbs_out(link: str, depth: int) -> bool:
    parts = [part for part in link.split("/") if part not in ("", ".")]
    climbs = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    return link.startswith("/") or climbs > depth or ".." in parts[climbs:]


def _way_out(folder: Path, name: str, why: str) -> VerificationError:
    return VerificationError(
        f"the files unpacked into {folder} are not what backupd wrote: {name!r} {why}",
        hint="the backup was changed on its target; restore another one",
    )


def remove_tree(folder: Path) -> None:
    """The folder is gone with all that is in it, however deep; nothing happens when it was. No link is followed.

    Raises:
        CleanupIncomplete: something in it could not be removed.
    """
    try:
        _remove_tree(folder)
    except FileNotFoundError:
        return
    except (OSError, CommandError) as error:
        raise CleanupIncomplete(f"{folder} could not be removed: {error}", hint=f"rm -r {folder}") from error


def _remove_tree(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except (RecursionError, OSError) as error:
        if not _is_of_depth(error):
            raise
        process.run(["rm", "-rf", "--", str(folder.absolute())], timeout_seconds=_REMOVAL_SECONDS)


def _is_of_depth(error: Exception) -> bool:
    """Of a thousand folders in one another each takes a frame, a descriptor and a part of a name."""
    too_many = (errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG)
    return isinstance(error, RecursionError) or (isinstance(error, OSError) and error.errno in too_many)


def existing(path: Path) -> Path:
    """The path itself or its nearest ancestor that is there."""
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def is_absent(path: Path) -> bool:
    """Nothing is there. Of what this user may not look at, that is not known: whoever opens it is told why."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def used_bytes(path: Path) -> int:
    """How much of the file system of `path` is in use: the upper bound of what a copy of it reads."""
    return shutil.disk_usage(path).used


def room(path: Path) -> tuple[int, int, bool]:
    """What the file system of `path` has left for us, its size, both in bytes, and whether it is read-only."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, bool(found.f_flag & os.ST_RDONLY)


def share_that_stays_free(total: int) -> int:
    """Bytes of a file system of that size that others write to: what we put there leaves them so much."""
    return min(round(total * _STAYS_FREE), _STAYS_FREE_BYTES)
