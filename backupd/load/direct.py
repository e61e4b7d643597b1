"""Requests of ours past the page cache, by several threads, timed.

Knows: O_DIRECT, the aligned buffers that it asks for, threads that end with their window.
"""

import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from backupd.host.signals import shielded
from backupd.vocabulary.errors import CommandError

_HINTS = {
    errno.EINVAL: "this file system does not support direct I/O, or not in blocks of this size",
    errno.EIO: (
        "check the kernel log (dmesg): a snapshot whose COW area is full and a failing disk answer like this too"
    ),
}

_Request = Callable[[int, mmap.mmap, int], int]  # descriptor, buffer, position in the file -> bytes that were moved


@dataclass(frozen=True, slots=True)
class Requests:
    """What the threads of one window did; at least one request each."""

    seconds: float  # of the window, to the end of the last request
    times: Sequence[float]  # seconds that each request took, in ascending order
    moved: int  # bytes

    @property
    def per_second(self) -> float:
        """Requests a second, of all threads together."""
        return len(self.times) / self.seconds

    @property
    def latency_avg_ms(self) -> float:
        """The mean that one took."""
        return 1000 * sum(self.times) / len(self.times)

    @property
    def latency_p95_ms(self) -> float:
        """What 95 of 100 took at most."""
        return 1000 * self.times[ceil(0.95 * len(self.times)) - 1]


class DirectThreads:
    """Threads of ours for the length of a window. `activity` is what an interruption of it is told by."""

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._interrupted = threading.Event()

    def window(
        self, descriptor: int, seconds: float, places: Sequence[Iterator[int]], block_size: int, request: _Request
    ) -> Requests:
        """Make requests for so long, by a thread for each of these sequences of positions.

        Threads also where there is but one: a signal must find the main thread waiting, not in a stalled request.

        Raises:
            CommandError: it was interrupted.
            OSError: the kernel refused.
        """
        self._require_uninterrupted()
        stop = threading.Event()
        with ExitStack() as mapped:
            buffers = [mapped.enter_context(_buffer(block_size)) for _ in places]
            began = time.monotonic()

            def work(positions: Iterator[int], buffer: mmap.mmap) -> tuple[list[float], int]:
                return self._work(descriptor, positions, buffer, request, ends=began + seconds, stop=stop)

            executor = ThreadPoolExecutor(len(places), thread_name_prefix="direct")
            try:
                begun = [executor.submit(work, *each) for each in zip(places, buffers, strict=True)]
                done = [future.result() for future in begun]
            finally:
                stop.set()
                with shielded():
                    executor.shutdown(wait=True)
            elapsed = time.monotonic() - began
        self._require_uninterrupted()
        return Requests(elapsed, sorted(one for times, _ in done for one in times), sum(moved for _, moved in done))

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends with CommandError once the requests under way have ended.

        None begins until `allow`.
        """
        self._interrupted.set()

    def allow(self) -> None:
        """Windows may begin again."""
        self._interrupted.clear()

    def _work(
        self,
        descriptor: int,
        positions: Iterator[int],
        buffer: mmap.mmap,
        request: _Request,
        *,
        ends: float,
        stop: threading.Event,
    ) -> tuple[list[float], int]:
        """How long each request took, in seconds, and the bytes of all."""
        times: list[float] = []
        moved = 0
        for position in positions:
            began = time.monotonic()
            moved += request(descriptor, buffer, position)
            ended = time.monotonic()
            times.append(ended - began)
            if ended >= ends or stop.is_set() or self._interrupted.is_set():
                break
        return times, moved

    def _require_uninterrupted(self) -> None:
        if self._interrupted.is_set():
            raise CommandError(f"the {self._activity} was interrupted")


@contextmanager
def opened(file: Path, access: int) -> Iterator[tuple[int, int]]:
    """A descriptor that bypasses the page cache, and the file's size. What the system refuses within is told.

    `access` is os.O_RDONLY or os.O_RDWR.
    """
    try:
        descriptor = os.open(file, access | os.O_DIRECT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield descriptor, os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        verb = "read" if access == os.O_RDONLY else "rewrite"
        raise CommandError(
            f"cannot {verb} {file} directly: {error.strerror}", hint=_HINTS.get(error.errno or 0, "")
        ) from error


def _buffer(size: int) -> mmap.mmap:
    """An anonymous map is aligned to a page. Its pages are there before the clock runs: large records have many."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


def scan_offsets(size: int, block_size: int) -> Iterator[int]:
    """Starts of the file's blocks in their order, the last perhaps a part of one, again and again."""
    while True:
        yield from range(0, size, block_size)
