"""Objects' plain bytes that wait on another disk until the snapshot is gone.

Knows: a quota, the files of one run's folder, that what is read back must be what was written.

Everything passes the page cache by where the file system lets it: the server's pages stay where they are, and no dirty
ones pile up. Where it does not, each piece is written out and dropped before the next one.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backupd.archive.packing import CopyManner
from backupd.archive.pipeline import BLOCK_BYTES, Pipeline
from backupd.archive.stations import Digest
from backupd.archive.stopwatch import Stopwatch, Timed
from backupd.host.daemon_thread import answered
from backupd.vocabulary.errors import SpoolError, VerificationError
from backupd.vocabulary.penalty import SPOOL_STAGE

_PIECE_BYTES = 4 << 20  # of a write: a whole stripe of most arrays
_LOOK_BYTES = 64 << 20  # between two looks at what is left to others
_PATIENCE_SECONDS = 5.0  # for a file system that is asked for its room: a disk that hangs answers nobody
_ALIGNED = 4096  # bytes: what direct I/O asks for on any disk of today
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ANOTHER = "give the spool a larger file system, or a separate one"
_LOOK = "check the kernel log and the disk under copy.spool"
_NOT_THE_SAME = "the data read back from the spool differs from what was written"
_UNSOUND = f"{_LOOK}; remove copy.spool until it is fixed, and start the job again"
_NO_ROOM_AHEAD = (errno.EOPNOTSUPP, errno.ENOSYS)  # a file system that cannot allocate: NFS before 4.2, some FUSE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Spooled:
    """One object's plain bytes, as they were read from the snapshot."""

    name: str  # of the object, whoever can read it
    path: Path
    size: int
    sha256: str
    files: int | None  # None: nobody counted
    watches: tuple[Stopwatch, ...]


class Spool:
    """The folder of one run. `room` tells what its file system lets us take now, less than nothing where others need
    what we have taken; `size` is the quota, None for none.

    What goes wrong while it is written loses nothing: the object is read anew and streamed, no other one is spooled,
    and `trouble` says why. The disk is written by threads of its own: one that hangs keeps no limit from being watched.
    """

    def __init__(self, folder: Path, *, size: int | None, room: Callable[[], int]) -> None:
        self.folder = folder
        self.trouble: list[str] = []
        self._size = size
        self._room = room
        self._taken = 0
        self._closed = False
        self._open: list[SpoolFile] = []

    @property
    def room(self) -> int:
        """Bytes that may still be taken; none from the moment on that the file system does not report."""
        if self._closed:
            return 0
        try:
            told = answered(self._room, within_seconds=_PATIENCE_SECONDS, name="backupd spool's room")
            left = told - sum(file.owing for file in self._open)
        except OSError as error:
            self.close(spool_error(error, "asked for its room"))
            return 0
        return max(0, left if self._size is None else min(left, self._size - self._taken))

    def spooling(
        self,
        name: str,
        *,
        at_most: int,
        manner: CopyManner,
        files: int | None = None,
        on_room: Callable[[], None] = lambda: None,
    ) -> "Spooling | None":
        """A file for an object that takes no more than `at_most` bytes, all of which are its own from now on.

        None where there is no room for it.
        """
        if at_most > self.room:
            return None
        file = SpoolFile(self.folder / name, at_most, left=self._room)
        self._open.append(file)
        self._taken += at_most
        return Spooling(self, file, name, manner, files=files, on_room=on_room)

    def close(self, why: SpoolError) -> None:
        """No other object is spooled."""
        self._closed = True
        self.trouble.append(why.message)

    def settled(self, file: "SpoolFile", *, used: int) -> None:
        """An object has taken so much, and nothing else of what was reserved for it."""
        self._open.remove(file)
        self._taken -= file.at_most - used


class SpoolFile:
    """A file that is written from its start to its end, by one thread. Only we can read it."""

    def __init__(self, path: Path, at_most: int, *, left: Callable[[], int]) -> None:
        """Nothing is made yet. `left`: what its file system has beyond that which others need."""
        self.path = path
        self.at_most = at_most
        self.size = 0
        self._left = left
        self._looked_at = 0  # the size at the last look at what is left
        self._filled = 0  # bytes of the buffer
        self._buffer = mmap.mmap(-1, _PIECE_BYTES)
        self._file, self._direct = -1, False
        self._allocated = False
        self._whole = False

    @property
    def owing(self) -> int:
        """Bytes that it may take yet, and that its file system counts as free."""
        return 0 if self._allocated else self.at_most - self.size

    def append(self, block: bytes) -> None:
        """At its end, once a whole piece is there.

        Raises:
            SpoolError: more comes than was reserved, others need the room, the disk is full, or it failed.
        """
        self._require_open()
        if self.size + self._filled + len(block) > self.at_most:
            raise SpoolError(f"the spool: an object is larger than the {self.at_most} bytes that were reserved for it")
        view = memoryview(block)
        while view:
            taken = min(len(view), _PIECE_BYTES - self._filled)
            self._buffer[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            if self._filled == _PIECE_BYTES:
                self._write(_PIECE_BYTES)

    def end(self) -> None:
        """It has all of its bytes, and no room beyond them.

        Raises:
            SpoolError: the disk is full, or it failed.
        """
        self._require_open()
        if self._filled:
            padded = -(-self._filled // _ALIGNED) * _ALIGNED
            self._buffer[self._filled : padded] = bytes(padded - self._filled)
            self._write(padded)
        try:
            os.ftruncate(self._file, self.size)
        except OSError as error:
            raise spool_error(error, "written") from error
        self._whole = True

    def close(self) -> None:
        """Nothing is written any more. One that is not whole is gone, or goes with its folder."""
        if self._file < 0:
            return
        with suppress(OSError):  # what is read back is held against what was to be written
            os.close(self._file)
        self._file = -1
        if not self._whole:
            with suppress(OSError):
                self.path.unlink()

    def _require_open(self) -> None:
        """It is made, with room for all of it where the file system can do that at once."""
        if self._file >= 0:
            return
        try:
            self._file, self._direct = _opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            self._allocated = _allocate(self._file, self.at_most)
        except OSError as error:
            raise spool_error(error, "written") from error

    def _require_left(self) -> None:
        """Others still have what is left to them."""
        if self.size - self._looked_at < _LOOK_BYTES:
            return
        self._looked_at = self.size
        if self._left() < 0:
            raise SpoolError("the spool's file system has run out of free space", hint=_ANOTHER)

    def _write(self, size: int) -> None:
        """The buffer's first bytes: what is beyond `_filled` is padding, and cut off at the end."""
        try:
            written = 0
            with memoryview(self._buffer) as view:
                while written < size:
                    written += os.pwrite(self._file, view[written:size], self.size + written)
            if not self._direct:
                os.fdatasync(self._file)
                os.posix_fadvise(self._file, self.size, size, os.POSIX_FADV_DONTNEED)
            self._require_left()
        except OSError as error:
            raise spool_error(error, "written") from error
        self.size += self._filled
        self._filled = 0


class Spooling:
    """One object on its way into the spool, for the length of a `with`. To whoever reads it is as a `Packing`."""

    def __init__(
        self,
        spool: Spool,
        file: SpoolFile,
        name: str,
        manner: CopyManner,
        *,
        files: int | None,
        on_room: Callable[[], None],
    ) -> None:
        self._spool = spool
        self._file = file
        self._name = name
        self._files = files
        self._plain = Digest()
        self._digesting, self._writing = Timed("digest-spool", self._plain), Timed(SPOOL_STAGE, _Writing(file))
        stations = [self._digesting, self._writing]
        self._pipeline = Pipeline(
            stations,
            idle=lambda: manner.governor.pace(0),
            gently=manner.gently,
            on_news=on_room,
            on_end=file.close,
        )
        self._whole = False

    def __enter__(self) -> Self:
        self._pipeline.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._pipeline.close()
        self._spool.settled(self._file, used=self._file.size if self._whole else 0)

    @property
    def room(self) -> int:
        """How many blocks are taken without waiting. Raises what a stage raised."""
        return self._pipeline.room

    def write(self, block: bytes) -> None:
        """Append what the governor has let pass."""
        self._pipeline.put(block)

    def finish(self) -> Spooled:
        """All of it is in its file. Raises what a stage raised."""
        self._pipeline.finish()
        self._whole = True
        watches = (self._digesting.watch, self._writing.watch)
        return Spooled(self._name, self._file.path, self._plain.size, self._plain.sha256, self._files, watches)


class _Writing:
    """The station that fills the file."""

    def __init__(self, file: SpoolFile) -> None:
        self._file = file

    def take(self, block: bytes) -> tuple[()]:
        """Nothing: it is written."""
        self._file.append(block)
        return ()

    def end(self) -> tuple[()]:
        """Nothing: the file is whole."""
        self._file.end()
        return ()


def read_back(spooled: Spooled) -> Generator[bytes]:
    """What the spool's disk has of an object, in blocks. `require_same` then says whether it is what was written.

    Raises:
        SpoolError: the disk failed.
    """
    try:
        file, direct = _opened(spooled.path, os.O_RDONLY)
        try:
            with mmap.mmap(-1, BLOCK_BYTES) as buffer:
                at = 0
                while got := os.preadv(file, [buffer], at):
                    yield buffer[:got]
                    if not direct:
                        os.posix_fadvise(file, at, got, os.POSIX_FADV_DONTNEED)
                    at += got
        finally:
            os.close(file)
    except OSError as error:
        raise spool_error(error, "read back") from error


def require_same(spooled: Spooled, *, size: int, sha256: str) -> None:
    """What was read back from the spool is what was read from the snapshot.

    Raises:
        VerificationError: it is not; the snapshot is gone, so that there is no backup.
    """
    if (size, sha256) != (spooled.size, spooled.sha256):
        raise VerificationError(
            f"{_NOT_THE_SAME}: {spooled.size} bytes of {spooled.name} with SHA-256 {spooled.sha256}"
            f" became {size} bytes with {sha256}",
            hint=_UNSOUND,
        )


@contextmanager
def no_archive_any_more(spooled: Spooled) -> Iterator[None]:
    """What was read back is so damaged that the block finds no archive in it: the spool's fault, and told as such."""
    try:
        yield
    except VerificationError as error:
        raise VerificationError(f"{_NOT_THE_SAME}: {spooled.name}: {error.message}", hint=_UNSOUND) from error


def spool_error(error: OSError, verb: str) -> SpoolError:
    """What its disk did wrong, as the spool's trouble."""
    full = f"; {_ANOTHER}" if error.errno in _FULL else ""
    return SpoolError(f"the spool could not be {verb}: {error.strerror}", hint=_LOOK + full)


def _opened(path: Path, flags: int) -> tuple[int, bool]:
    """A descriptor, and whether it passes the page cache by."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    if flags & os.O_CREAT:
        path.unlink(missing_ok=True)  # the kernel made it before it refused
    return os.open(path, flags, 0o600), False


def _allocate(file: int, size: int) -> bool:
    """False where the file system cannot. Not posix_fallocate(3): that writes to every block then."""
    if not size or _libc.fallocate(file, 0, 0, size) == 0:
        return True
    if (number := ctypes.get_errno()) not in _NO_ROOM_AHEAD:
        raise OSError(number, os.strerror(number))
    return False
