"""Reading a file past the page cache, timed: what a read of a snapshot costs, and what a copy of it would see.

 Not by sysbench, which opens its file for writing in
every mode and so cannot read a read-only mount (seen with strace, 1.0.20).
"""

import mmap
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from backupd.load.direct import DirectThreads, opened, scan_offsets
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.penalty import Window


class DirectReader:
    """`SnapshotReader` by preadv(2); one thread of ours for each that is asked for."""

    def __init__(self) -> None:
        self._threads = DirectThreads("reading")

    def random(self, file: Path, seconds: float, *, block_size: int, threads: int) -> Window:
        """Whole blocks anywhere in the file, each as likely, by so many threads, for so long; each reads at least one.

        Raises:
            CommandError: it cannot be read, is smaller than a block, or the reading was interrupted.
        """
        with opened(file, os.O_RDONLY) as (descriptor, size):
            if size < block_size:
                raise CommandError(f"{file} has {size} bytes, which is less than a block of {block_size}")
            offsets = [random_offsets(size, block_size) for _ in range(threads)]
            return self._window(descriptor, seconds, offsets, block_size)

    def scan(self, file: Path, seconds: float, *, block_size: int = 1 << 20) -> Window:
        """The file from its start to its end, and again from its start, for so long; at least one block.

        Raises:
            CommandError: it cannot be read, is empty, or the reading was interrupted.
        """
        with opened(file, os.O_RDONLY) as (descriptor, size):
            if size == 0:
                raise CommandError(f"{file} is empty")
            return self._window(descriptor, seconds, [scan_offsets(size, block_size)], block_size)

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends with CommandError once the reads under way have ended.

        None begins any more: a new reader costs nothing.
        """
        self._threads.interrupt()

    def _window(self, descriptor: int, seconds: float, offsets: Sequence[Iterator[int]], block_size: int) -> Window:
        done = self._threads.window(descriptor, seconds, offsets, block_size, _read)
        return Window(
            seconds=done.seconds,
            iops=done.per_second,
            bytes_written=0,
            latency_avg_ms=done.latency_avg_ms,
            latency_p95_ms=done.latency_p95_ms,
            bytes_read=done.moved,
        )


def random_offsets(size: int, block_size: int) -> Iterator[int]:
    """Starts of the file's whole blocks, each as likely as any other, without end."""
    blocks, dice = size // block_size, random.Random()  # noqa: S311 - offsets are no secret
    while True:
        yield dice.randrange(blocks) * block_size


def _read(descriptor: int, buffer: mmap.mmap, position: int) -> int:
    """How many bytes it got: fewer than a block at the file's end."""
    got = os.preadv(descriptor, [buffer], position)
    if got == 0:
        raise CommandError("the file was truncated while it was read")
    return got
