"""Reading a file past the page cache, timed: what a read of a snapshot costs, and what a copy of it would see.

Knows: O_DIRECT and the aligned buffers that it asks for. Refuses to know whether the file is the origin's or a
snapshot's. Not by sysbench, which opens its file for writing in every mode and so cannot read a read-only mount (seen
with strace, 1.0.20).
"""

import errno
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from pathlib import Path

from backupd.errors import CommandError
from backupd.interruption import shielded
from backupd.model import Window

_HINTS = {
    errno.EINVAL: "this file system takes no direct I/O, or none in blocks of this size",
    errno.EIO: "look at the kernel's log: so does a snapshot answer whose COW area is full, and a disk that fails",
}


class DirectReader:
    """`SnapshotReader` by preadv(2); one thread of ours for each that is asked for."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    def random(self, file: Path, seconds: float, *, block_size: int, threads: int) -> Window:
        """Whole blocks anywhere in the file, each as likely, by so many threads, for so long; each reads at least one.

        Raises:
            CommandError: it cannot be read, is smaller than a block, or the reading was interrupted.
        """
        with _opened(file) as (descriptor, size):
            if size < block_size:
                raise CommandError(f"{file} has {size} bytes, which is less than a block of {block_size}")
            offsets = [random_offsets(size, block_size) for _ in range(threads)]
            return self._window(descriptor, seconds, offsets, block_size)

    def scan(self, file: Path, seconds: float, *, block_size: int = 1 << 20) -> Window:
        """The file from its start to its end, and again from its start, for so long; at least one block.

        Raises:
            CommandError: it cannot be read, is empty, or the reading was interrupted.
        """
        with _opened(file) as (descriptor, size):
            if size == 0:
                raise CommandError(f"{file} is empty")
            return self._window(descriptor, seconds, [scan_offsets(size, block_size)], block_size)

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends with CommandError once the reads under way have ended.

        None begins any more: a new reader costs nothing.
        """
        self._interrupted.set()

    def _window(self, descriptor: int, seconds: float, offsets: Sequence[Iterator[int]], block_size: int) -> Window:
        """Threads also where there is but one: a signal must find the main thread waiting, not in a stalled read."""
        self._require_uninterrupted()
        stop = threading.Event()
        began = time.monotonic()

        def read(positions: Iterator[int]) -> tuple[list[float], int]:
            return self._read(descriptor, positions, block_size, began + seconds, stop)

        executor = ThreadPoolExecutor(len(offsets), thread_name_prefix="reader")
        try:
            done = [future.result() for future in [executor.submit(read, each) for each in offsets]]
        finally:
            stop.set()
            with shielded():
                executor.shutdown(wait=True)
        elapsed = time.monotonic() - began
        self._require_uninterrupted()
        return _summary(elapsed, sorted(one for times, _ in done for one in times), sum(count for _, count in done))

    def _read(
        self, descriptor: int, positions: Iterator[int], block_size: int, ends: float, stop: threading.Event
    ) -> tuple[list[float], int]:
        """How long each read took, in seconds, and the bytes of all. An anonymous map is aligned to a page."""
        times: list[float] = []
        count = 0
        with mmap.mmap(-1, block_size) as buffer:
            for position in positions:
                began = time.monotonic()
                got = os.preadv(descriptor, [buffer], position)
                ended = time.monotonic()
                if got == 0:
                    raise CommandError("the file became shorter while it was read")
                times.append(ended - began)
                count += got
                if ended >= ends or stop.is_set() or self._interrupted.is_set():
                    break
        return times, count

    def _require_uninterrupted(self) -> None:
        if self._interrupted.is_set():
            raise CommandError("the reading was interrupted")


def random_offsets(size: int, block_size: int) -> Iterator[int]:
    """Starts of the file's whole blocks, each as likely as any other, without end."""
    blocks, dice = size // block_size, random.Random()  # noqa: S311 - offsets are no secret
    while True:
        yield dice.randrange(blocks) * block_size


def scan_offsets(size: int, block_size: int) -> Iterator[int]:
    """Starts of the file's blocks in their order, the last perhaps a part of one, again and again."""
    while True:
        yield from range(0, size, block_size)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[int, int]]:
    """A descriptor that bypasses the page cache, and the file's size. What the system refuses within is told."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            yield descriptor, os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CommandError(
            f"cannot read {file} directly: {error.strerror}", hint=_HINTS.get(error.errno or 0, "")
        ) from error


def _summary(elapsed: float, times: Sequence[float], count: int) -> Window:
    """The window of these reads, whose times are in ascending order."""
    return Window(
        seconds=elapsed,
        iops=len(times) / elapsed,
        bytes_written=0,
        latency_avg_ms=1000 * sum(times) / len(times),
        latency_p95_ms=1000 * times[ceil(0.95 * len(times)) - 1],
        bytes_read=count,
    )
