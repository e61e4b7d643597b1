"""Blocks of bytes passing through stations, each in a thread of its own, so that reading, hashing, compressing and
writing overlap.

Knows: bounded queues (what is in flight is a few blocks, whatever the size), how a failure of any station reaches the
main thread and ends the others, that the threads give way to everybody else.

The main thread never waits for longer than a tenth of a second at a time, so that a signal's `Cancelled` is raised
promptly, and calls `idle` in between, so that the limits of a job are watched although nothing moves.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Protocol, Self

from backupd.host.daemon_thread import await_end, begin
from backupd.host.priority import give_way_copying
from backupd.host.signals import shielded

BLOCK_BYTES = 1 << 20
BLOCKS_PER_QUEUE = 4
_TICK_SECONDS = 0.1
_JOIN_SECONDS = 5.0  # a thread inside a write to storage that hangs cannot be ended by anybody


class Station(Protocol):
    """One step of the work. It runs in one thread only."""

    def take(self, block: bytes) -> Iterable[bytes]:
        """What this block makes for the next station; may be a generator, which is then not hurried."""

    def end(self) -> Iterable[bytes]:
        """What is left for the next station once no block comes any more."""


class StationChain:
    """Several stations as one. They share a thread: where that is worth more than their working at the same time."""

    def __init__(self, *stations: Station) -> None:
        self._stations = stations

    def take(self, block: bytes) -> Iterator[bytes]:
        """What the block makes when it has passed all of them."""
        return self._onward(0, (block,))

    def end(self) -> Iterator[bytes]:
        """What is left in each of them, passed on to those behind it."""
        for number, station in enumerate(self._stations, 1):
            yield from self._onward(number, station.end())

    def _onward(self, number: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        if number == len(self._stations):
            yield from pieces
            return
        for piece in pieces:
            yield from self._onward(number + 1, self._stations[number].take(piece))


class _Stopped(Exception):
    """The pipeline ends; somebody else has the error."""


class Pipeline:
    """Threads for the length of a `with`; when it ends none of them is left.

    `gently` gives the threads, and what they start, the priority of a copy. `on_news` is called by a thread
    when there is room for another block, and when a station has failed: for whoever feeds several pipelines. `on_end`
    is called by the last station's thread when it ends, whatever has ended it: what it has open is closed there, where
    a disk that hangs keeps nobody else waiting.
    """

    def __init__(
        self,
        stations: Sequence[Station],
        *,
        idle: Callable[[], None] = lambda: None,
        gently: bool = True,
        on_news: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._idle = idle
        self._on_end = on_end
        self._on_news = on_news
        self._gently = gently
        self._stop = threading.Event()
        self._settled = threading.Event()  # the last station is done, or one has failed
        self._errors: list[BaseException] = []
        self._queues: list[Queue[bytes | None]] = [Queue(BLOCKS_PER_QUEUE) for _ in stations]
        onward: list[Queue[bytes | None] | None] = [*self._queues[1:], None]
        self._threads = [
            threading.Thread(
                target=self._work, args=(station, inbox, outbox), name=f"backupd {type(station).__name__}", daemon=True
            )
            for station, inbox, outbox in zip(stations, self._queues, onward, strict=True)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            begin(thread, undo=self.__exit__)
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @property
    def room(self) -> int:
        """How many times `put` does not wait. Raises what a station raised."""
        self._raise_failure()
        return BLOCKS_PER_QUEUE - self._queues[0].qsize()

    def put(self, block: bytes) -> None:
        """Hand a block to the first station; waits while the stations are behind. Raises what a station raised."""
        self._put(block)

    def finish(self) -> None:
        """Return when every station has done its last piece. Raises what a station raised."""
        self._put(None)
        while not self._settled.wait(_TICK_SECONDS):
            self._idle()
        self._raise_failure()

    def close(self) -> None:
        """End the threads, whatever they are at; nothing happens when they have ended."""
        self._stop.set()
        for queue in self._queues:
            with suppress(Full):
                queue.put_nowait(None)  # wakes whoever waits for a block
        with shielded():
            deadline = time.monotonic() + _JOIN_SECONDS
            for thread in self._threads:
                await_end(thread, within_seconds=max(0.0, deadline - time.monotonic()))

    def _put(self, block: bytes | None) -> None:
        while True:
            self._raise_failure()
            try:
                self._queues[0].put(block, timeout=_TICK_SECONDS)
            except Full:
                self._idle()
            else:
                return

    def _raise_failure(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _work(self, station: Station, inbox: Queue[bytes | None], outbox: Queue[bytes | None] | None) -> None:
        try:
            if self._gently:
                give_way_copying()
            while (block := self._next(inbox)) is not None:
                if inbox is self._queues[0]:
                    self._on_news()
                self._pass_on(station.take(block), outbox)
            self._pass_on(station.end(), outbox)
            if outbox is not None:
                self._send(None, outbox)
            else:
                self._settled.set()
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: the main thread raises it
            self._errors.append(error)
            self._stop.set()
            self._settled.set()
            self._on_news()
        finally:
            if outbox is None:
                self._on_end()

    def _next(self, inbox: Queue[bytes | None]) -> bytes | None:
        while not self._stop.is_set():
            try:
                block = inbox.get(timeout=_TICK_SECONDS)
            except Empty:
                continue
            if not self._stop.is_set():
                return block
        raise _Stopped

    def _pass_on(self, pieces: Iterable[bytes], outbox: Queue[bytes | None] | None) -> None:
        for piece in pieces:
            if outbox is not None:
                self._send(piece, outbox)
            elif self._stop.is_set():
                raise _Stopped

    def _send(self, piece: bytes | None, outbox: Queue[bytes | None]) -> None:
        while not self._stop.is_set():
            try:
                return outbox.put(piece, timeout=_TICK_SECONDS)
            except Full:
                continue
        raise _Stopped
