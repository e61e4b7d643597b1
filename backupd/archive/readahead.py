"""Items of an iterator, the next of which is made by a thread of its own while one is worked on.

Knows: that two are in memory at most, that an error of the thread is raised where its item was awaited, that the
thread is gone when the block ends.
"""

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Self

from backupd.archive.frames import Block
from backupd.host.daemon_thread import await_end, begin

_TICK_SECONDS = 0.1
_JOIN_SECONDS = 5.0  # a thread inside a read from storage that hangs cannot be ended by anybody


class Left(Exception):
    """Nobody wants the rest: raised in the thread that makes the items."""


class ReadAhead:
    """The items of `make` for the length of a `with`.

    `make` is given a function that it calls now and then, at least once for each piece that it reads: that ends it when
    nobody waits any more. `idle` is called while the next item is awaited.
    """

    def __init__(
        self, make: Callable[[Callable[[], None]], Iterator[Block]], *, name: str, idle: Callable[[], None]
    ) -> None:
        self._make = make
        self._idle = idle
        self._left = threading.Event()
        self._may_go_on = threading.Semaphore(2)
        self._made: SimpleQueue[Block | BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"backupd reads {name}", daemon=True)

    def __enter__(self) -> Self:
        begin(self._thread, undo=self.__exit__)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._left.set()
        self._may_go_on.release()
        await_end(self._thread, within_seconds=_JOIN_SECONDS)

    def __iter__(self) -> Iterator[Block]:
        """Each item, in order; what the thread raised is raised here."""
        while True:
            try:
                item = self._made.get(timeout=_TICK_SECONDS)
            except Empty:
                self._idle()
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
            self._may_go_on.release()

    def _work(self) -> None:
        try:
            items = self._make(self._require_wanted)
            while True:
                self._may_go_on.acquire()
                self._require_wanted()
                item = next(items, None)
                self._made.put(item)
                if item is None:
                    return
        except Left:
            pass
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: whoever waits raises it
            self._made.put(error)

    def _require_wanted(self) -> None:
        if self._left.is_set():
            raise Left
