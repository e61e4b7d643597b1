"""The folder of this host that backups lie in, and what is said when something there fails.

Knows: that it must be there and, where a sentinel is named, be mounted; that below it no link is followed, how a name
in it is made durable, how a file is read past the page cache, and what the errors of a full, read-only or vanished file
system mean.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from backupd.host.filesystem import open_if_plain, sync_folder
from backupd.targets.names import is_left_trial, trials
from backupd.vocabulary.errors import NoRoom, TargetAway, TargetError

_READ_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_TRIES = 3  # of what another process may undo at any moment
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_AWAY = (errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN)  # of NFS, or FUSE


class RootFolder:
    """A target's own folder."""

    def __init__(self, name: str, path: Path, sentinel: str | None) -> None:
        self.path = path
        self._name = name
        self._sentinel = sentinel  # a file that is in the folder when its file system is mounted

    @contextmanager
    def present(self, doing: str) -> Iterator[None]:
        """An operation on a folder that shows itself to be the right one."""
        with self.explained(doing):
            self.path.stat()
            if self._sentinel is not None and not (self.path / self._sentinel).exists():
                raise TargetAway(
                    f"the file system of {self.path} is not mounted: there is no {self._sentinel} in it",
                    hint=f"mount it; on a new one, once: touch {self.path / self._sentinel}",
                )
            yield

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """An operating system's error becomes a sentence with a hint."""
        try:
            yield
        except OSError as error:
            where = f"target {self._name} ({self.path})"
            if error.errno in _NO_ROOM:
                quota = " (quota)" if error.errno == errno.EDQUOT else ""
                raise NoRoom(
                    f"no space left on {where}{quota}", hint="free space there, or let retention keep fewer backups"
                ) from error
            kind: type[TargetError] = TargetAway if error.errno in _AWAY else TargetError
            if error.errno == errno.EROFS:
                message, hint = (
                    f"{where} is mounted read-only",
                    ("check the kernel log for the reason (dmesg), then mount it writable"),
                )
            elif wrong := self._what_is_there_instead():
                kind, message = wrong[0], f"{where} {wrong[1]}"
                hint = "mount its file system, or create the folder if no file system belongs there"
            else:
                message, hint = f"could not {doing} {where}: {error.strerror or error}", _hint(error)
            raise kind(message, hint=hint) from error

    def _what_is_there_instead(self) -> tuple[type[TargetError], str] | None:
        """None where it is a folder, or nobody can look: then what failed before says why."""
        try:
            is_folder = stat.S_ISDIR(self.path.stat().st_mode)
        except OSError as error:
            return (TargetAway, "does not exist") if error.errno in _NOT_THERE else None
        return None if is_folder else (TargetError, "is not a folder")

    @contextmanager
    def within(self, *names: str) -> Iterator[tuple[Path, ...]]:
        """Paths to the folders of these names, one in the other, each of which leads there for as long as the block is.

        Whoever serves the storage may put a link in any name's place at any moment, to have files written and removed
        elsewhere: none is followed, and what is open stays what it is (/proc/PID/fd, proc_pid_fd(5)).

        Raises:
            FileNotFoundError, NotADirectoryError: one is not there.
            OSError: one is a link, or cannot be opened.
        """
        with ExitStack() as owed:
            yield self._opened(names, owed)

    @contextmanager
    def made(self, *names: str) -> Iterator[tuple[Path, ...]]:
        """The same; each of them is there, durable in the one above.

        One that was there may be gone a moment later: whoever removes the last thing in it removes it as well.
        """
        with ExitStack() as owed:
            levels = None
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):
                    levels = self._opened(names, owed, making=True)
                    break
            yield levels or self._opened(names, owed, making=True)

    def _opened(self, names: Sequence[str], owed: ExitStack, *, making: bool = False) -> tuple[Path, ...]:
        levels = [self.path]
        for name in names:
            folder = levels[-1] / name
            if making and not os.path.lexists(folder):
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_folder(levels[-1])
            with _told_of_links(folder):
                descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            owed.callback(os.close, descriptor)
            levels.append(Path(f"/proc/self/fd/{descriptor}"))
        return tuple(levels[1:])

    def remove_trial(self, trial: Path) -> None:
        """What the folder was just tried with is gone.

        Raises:
            TargetError: it is left.
        """
        try:
            trial.unlink(missing_ok=True)
        except OSError as error:
            raise TargetError(
                f"clean-up incomplete: test file {trial} on target {self._name} could not be removed:"
                f" {error.strerror or error}",
                hint="repair the file system (dmesg); the next command that uses the target after an hour removes it",
            ) from error

    def remove_trials(self, machine: str, now: float) -> None:
        """What a process of this machine left that tried the folder and was killed is gone, as far as that can be;
        `now` by the storage's clock.
        """
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in (entry for entry in entries if entry.name.startswith(trials(machine))):
                with suppress(OSError):
                    if is_left_trial(entry.name, machine, now - entry.stat(follow_symlinks=False).st_mtime):
                        Path(entry.path).unlink()

    @contextmanager
    def past_cache(
        self, folders: Sequence[str], name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The bytes of a file in these folders, one in the other, as the storage has them.

        They are read with O_DIRECT, which asks the storage whatever is cached. Where the file system has none (tmpfs,
        some FUSE), cached pages are dropped first, which is as much as can be asked there.
        """
        with self.present(f"read {name} from"), self.within(*folders) as (*_, folder):
            file, direct = _open_past_cache(folder / name)
        with ExitStack() as owed:
            owed.callback(os.close, file)
            yield self._chunks(file, name, direct=direct, offset=offset, size=size)

    def _chunks(self, file: int, name: str, *, direct: bool, offset: int, size: int | None) -> Iterator[bytes]:
        """The bytes that were asked for. O_DIRECT wants memory and offsets aligned, hence whole pages and blocks."""
        with self.explained(f"read {name} from"), mmap.mmap(-1, _READ_BYTES) as buffer:
            whole = os.fstat(file).st_size
            end = whole if size is None else offset + size
            at = offset - offset % mmap.PAGESIZE
            while at < end:
                got = os.preadv(file, [buffer], at)
                if direct and at + got < whole:
                    got -= got % mmap.PAGESIZE  # a short read; the next one must begin at a whole page again
                if not got:
                    raise OSError(errno.EIO, f"it ended at byte {at} of {end}")
                yield buffer[max(0, offset - at) : min(got, end - at)]
                at += got


def _open_past_cache(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether its reads go to the storage itself."""
    try:
        file = open_regular(path, os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    else:
        return file, True
    file = open_regular(path)
    os.fsync(file)  # dirty pages cannot be dropped
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return file, False


def open_regular(path: Path, flags: int = 0) -> int:
    """A descriptor of a file. Whoever owns the storage may have put a pipe there, or a device: neither is opened."""
    with _told_of_links(path):
        descriptor = open_if_plain(path, flags)
    if descriptor is None:
        raise OSError(errno.ENOTSUP, f"{path.name} is not a regular file", str(path))
    return descriptor


@contextmanager
def _told_of_links(path: Path) -> Iterator[None]:
    """That this is a link, which is not followed, is said where it cannot be opened for that."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise OSError(errno.ELOOP, f"{path.name} in it is a symbolic link", str(path)) from error
        raise


def remove_quietly(path: Path) -> None:
    """On the way out of a failure, which is told already; `remove` tries again and tells."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _hint(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "backupd must own the folder or be root; NFS servers squash root by default"
    if error.errno == errno.ELOOP:
        return "backupd follows no link below a target's folder: put the folder or file itself there, or mount it there"
    return "check the kernel log on this host and, for NFS, on the server"
