"""Rewriting a file in place past the page cache, timed: each record is read, and written back where it was.

What bonnie++ calls a rewrite, and what a table that is altered in place sees. sysbench has no test for it: its
"sequential rewrite" only writes. The file holds afterwards what it held before, however a window ends.
"""

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from backupd.load.direct import DirectThreads, opened, scan_offsets
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.penalty import Window


class DirectRewriter:
    """Rewrites by preadv(2) and pwritev(2); one thread of ours for each that is asked for."""

    def __init__(self) -> None:
        self._threads = DirectThreads("rewriting")

    def window(self, file: Path, seconds: float, *, size: int, record: int, threads: int) -> Window:
        """The first `size` bytes of the file from their start to their end, over and over, for so long.

        Each thread takes the next record in turn. IOPS are records; the bytes of each were read and written.

        Raises:
            CommandError: it cannot be read and written in records of this size, is smaller, or was interrupted.
        """
        with opened(file, os.O_RDWR) as (descriptor, there):
            if there < size:
                raise CommandError(f"{file} has {there} bytes, which is less than {size}")
            turns = _Turns(scan_offsets(size, record))
            done = self._threads.window(descriptor, seconds, [turns] * threads, record, _rewrite)
        return Window(
            seconds=done.seconds,
            iops=done.per_second,
            bytes_written=done.moved,
            latency_avg_ms=done.latency_avg_ms,
            latency_p95_ms=done.latency_p95_ms,
            bytes_read=done.moved,
        )

    def interrupt(self) -> None:
        """A window that runs now ends with CommandError once the requests under way have ended; none begins."""
        self._threads.interrupt()

    def allow(self) -> None:
        """Windows may begin again."""
        self._threads.allow()


class _Turns:
    """One sequence that several threads take from: a generator refuses a second thread."""

    def __init__(self, positions: Iterator[int]) -> None:
        self._positions = positions
        self._lock = threading.Lock()

    def __iter__(self) -> "_Turns":
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._positions)


def _rewrite(descriptor: int, buffer: mmap.mmap, position: int) -> int:
    """How many bytes were read and written: a whole record."""
    if os.preadv(descriptor, [buffer], position) < len(buffer):
        raise CommandError("the file was truncated while it was rewritten")
    if os.pwritev(descriptor, [buffer], position) < len(buffer):
        raise CommandError("only part of a record was written")
    return len(buffer)
