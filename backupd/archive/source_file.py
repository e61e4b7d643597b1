"""Reading files past the page cache, in large requests, one at a time.

Knows: that what is read here evicts nobody's pages (O_DIRECT; where a file system refuses that, pages are released
as soon as they were read), that a file which is not what it was when its header was made is a fault, that a disk may
never answer.

A file to which a server appends meanwhile is read through its pages, in small pieces: a direct read holds the file's
lock until the disk has answered, and a commit waits for that (seen on ext4 and XFS: 7 ms rather than 0.05 ms at p99).

A read that waits in a disk's queue makes every first write of the server wait for it (dm-snap.c, `pending_complete`):
so there is one thread for all reads, and who asks it has had the governor's leave before.
"""

import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Self, TypeVar

from backupd.archive.pipeline import BLOCK_BYTES, BLOCKS_PER_QUEUE
from backupd.archive.readahead import Left
from backupd.host.daemon_thread import await_end, begin
from backupd.host.priority import give_way_copying
from backupd.vocabulary.errors import SnapshotError

log = logging.getLogger(__name__)

REQUEST_BYTES = 4 * BLOCK_BYTES  # of 1, 4 and 16 MiB, disks need 50 % more time for the first, and as much for the last

_ALIGNMENT = 4096  # of what O_DIRECT reads, on every device that there is
_SMALL_BYTES = 64 << 10  # what may come before a large request without being a batch of its own
_LIVE_BYTES = 256 << 10  # of a server's open file: a read holds its lock, direct ones until the disk has answered
_TICK_SECONDS = 0.1
_JOIN_SECONDS = 5.0  # a thread inside a read that hangs cannot be ended by anybody
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when its header was made."""

    path: bytes
    name: bytes  # as people know it
    facts: os.stat_result
    live: bool = False  # the server's own, held open: it grows meanwhile, and only its beginning is wanted

    def require_same(self, found: os.stat_result) -> None:
        """It is the file that it was.

        Raises:
            SnapshotError: it is not.
        """
        was = self.facts
        if (found.st_dev, found.st_ino) != (was.st_dev, was.st_ino):
            raise self.fault("it was replaced by another file")
        if found.st_size < was.st_size:
            raise self.fault("it was truncated while it was read")
        if not self.live and (found.st_size, found.st_mtime_ns) != (was.st_size, was.st_mtime_ns):
            raise self.fault("it was changed while it was read")

    def fault(self, why: str | None) -> SnapshotError:
        """What to raise when it cannot be read as it was."""
        if self.live:
            return SnapshotError(f"{readable_name(self.name)} could not be read: {why}")
        return unreadable(self.name, why)


def unreadable(name: bytes, why: str | None) -> SnapshotError:
    """What to raise for something in a snapshot."""
    return SnapshotError(
        f"{readable_name(name)} could not be read from the snapshot: {why}",
        hint="check that the snapshot is intact (lvs) and that the kernel log has no I/O errors",
    )


def readable_name(name: bytes) -> str:
    """A name for people."""
    return name.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """Up to `REQUEST_BYTES` of a file, which are read with one request. `pieces` are what is wanted of them."""

    source: SourceFile
    pieces: Sequence[tuple[int, int]]  # offset and size; not empty

    @property
    def size(self) -> int:
        """Bytes that are wanted."""
        return sum(size for _, size in self.pieces)

    @property
    def stretch(self) -> tuple[int, int]:
        """Where it begins and ends in its file."""
        (begin, _), (offset, size) = self.pieces[0], self.pieces[-1]
        return begin, offset + size


Part = bytes | ReadSpan  # of a stream


def size_of(part: Part) -> int:
    """Its bytes in the stream."""
    return part.size if isinstance(part, ReadSpan) else len(part)


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read at once: one large span, or many small ones and what is between them."""

    parts: Sequence[Part]
    size: int

    @property
    def blocks(self) -> int:
        """How many blocks become of it: no more than a queue has room for."""
        return min(BLOCKS_PER_QUEUE, -(-self.size // (BLOCK_BYTES + _SMALL_BYTES)))


def batches(stream: Iterator[Part]) -> Iterator[Batch]:
    """The parts of a stream in batches, so that a small file does not cost what a large request does."""
    parts: list[Part] = []
    held = 0
    for part in stream:
        size = size_of(part)
        if parts and held + size > (BLOCK_BYTES if held > _SMALL_BYTES else REQUEST_BYTES + _SMALL_BYTES):
            yield Batch(parts, held)
            parts, held = [], 0
        parts.append(part)
        held += size
    if parts:
        yield Batch(parts, held)


class ReadingThread:
    """The thread that reads, for the length of a `with`; nothing else asks the disks for content meanwhile.

    `gently` gives it the priority of a copy. `idle` is called while it is waited for. `buffered` are the devices that
    were found to refuse O_DIRECT: what is met here is added, and said once.
    """

    def __init__(self, *, gently: bool, idle: Callable[[], None], buffered: set[int] | None = None) -> None:
        self._gently = gently
        self._idle = idle
        self._left = threading.Event()
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._content = Content(self._require_wanted, buffered)
        self._thread = threading.Thread(target=self._work, name="backupd reads the snapshot", daemon=True)

    def __enter__(self) -> Self:
        begin(self._thread, undo=self.__exit__)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._left.set()
        self._asked.put(None)
        await_end(self._thread, within_seconds=_JOIN_SECONDS)

    def do(self, work: Callable[["Content"], _Result]) -> _Result:
        """What the thread makes of it: all that may have to wait for a disk is done there. Raises what it raises."""
        done: SimpleQueue[tuple[_Result | None, BaseException | None]] = SimpleQueue()

        def answer() -> None:
            try:
                done.put((work(self._content), None))
            except BaseException as error:  # noqa: BLE001 - nothing is swallowed: whoever waits raises it
                done.put((None, error))

        self._asked.put(answer)
        while True:
            try:
                result, error = done.get(timeout=_TICK_SECONDS)
            except Empty:
                self._idle()
                continue
            if error is not None:
                raise error
            return result  # type: ignore[return-value]

    def _work(self) -> None:
        if self._gently:
            give_way_copying()
        while (answer := self._asked.get()) is not None:
            answer()

    def _require_wanted(self) -> None:
        if self._left.is_set():
            raise Left


class Content:
    """What is in files. For the thread that reads them."""

    def __init__(self, require_wanted: Callable[[], None], buffered: set[int] | None = None) -> None:
        self._require_wanted = require_wanted
        self._buffer = memoryview(mmap.mmap(-1, REQUEST_BYTES + 2 * _ALIGNMENT))  # aligned to a page
        self._buffered = set[int]() if buffered is None else buffered  # devices whose file systems refuse O_DIRECT

    def blocks(self, batch: Batch) -> list[bytes]:
        """The bytes of a batch, in as many blocks as it says.

        Raises:
            SnapshotError: a file of it could not be read, or is not what it was.
        """
        size = -(-batch.size // max(1, batch.blocks))
        blocks: list[bytes] = []
        block: list[memoryview] = []
        room = size
        for piece in self._pieces(batch):
            view = piece
            while view:
                block.append(view[:room])
                room -= len(block[-1])
                view = view[len(block[-1]) :]
                if not room:
                    blocks.append(b"".join(block))
                    block, room = [], size
        return [*blocks, b"".join(block)] if block else blocks

    def _pieces(self, batch: Batch) -> Iterator[memoryview]:
        for part in batch.parts:
            if isinstance(part, bytes):
                yield memoryview(part)
                continue
            view, begin = self._stretch(part)
            kept = part.size > BLOCK_BYTES  # until the batch ends: nothing that is read follows
            for offset, size in part.pieces:
                piece = view[offset - begin : offset - begin + size]
                yield piece if kept else memoryview(bytes(piece))

    def _stretch(self, span: ReadSpan) -> tuple[memoryview, int]:
        """Its bytes, and where in the file they begin."""
        self._require_wanted()
        source = span.source
        try:
            if not source.live and source.facts.st_dev not in self._buffered:
                try:
                    return self._read(span, os.O_DIRECT)
                except OSError as error:
                    if error.errno not in _REFUSED:
                        raise
                    self._buffered.add(source.facts.st_dev)
                    log.info(
                        "the file system of %s takes no direct reads (%s): its files are read through the page cache,"
                        " and their pages are dropped as soon as they were read",
                        readable_name(source.name),
                        error.strerror,
                    )
            return self._read(span, 0)
        except OSError as error:
            raise source.fault(error.strerror) from error

    def _read(self, span: ReadSpan, direct: int) -> tuple[memoryview, int]:
        begin, end = span.stretch
        first = begin - begin % _ALIGNMENT
        wanted = self._buffer[: end - first + -end % _ALIGNMENT]
        # Not a pipe that took the file's place, which would wait for a writer; nor a link, but for /proc/self/fd.
        follow = 0 if span.source.live else os.O_NOFOLLOW
        file = os.open(span.source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow | direct)
        try:
            if not direct:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            filled = 0
            most = _LIVE_BYTES if span.source.live else len(wanted)
            while filled < end - first and (count := os.preadv(file, [wanted[filled : filled + most]], first + filled)):
                filled += count
            if not direct and not span.source.live:  # whose pages are the server's
                os.posix_fadvise(file, first, len(wanted), os.POSIX_FADV_DONTNEED)
            span.source.require_same(os.fstat(file))
        finally:
            os.close(file)
        if filled < end - first:
            raise span.source.fault("it was truncated while it was read")
        return wanted[begin - first : end - first], begin
