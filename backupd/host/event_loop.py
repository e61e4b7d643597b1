"""An event loop on a thread of its own, for what speaks asyncio beside threads that wait for it.

Knows: that it begins when it is first needed, and that it leaves no task and no socket. Whose work it does is not its
matter: any thread may begin some, and waits for it as it likes.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from backupd.host.daemon_thread import begin

T = TypeVar("T")


class LoopThread:
    """The loop, and its thread. `at_end` is called on that thread once the loop was told to end, before tasks are."""

    def __init__(self, name: str, *, at_end: Callable[[], None] = lambda: None) -> None:
        self._name, self._at_end = name, at_end
        self._start = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start this on the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def soon(self, act: Callable[[], None]) -> None:
        """Do this on the thread; nobody waits for it."""
        self._running().call_soon_threadsafe(act)

    def close(self, *, within_seconds: float | None = None) -> None:
        """Whatever goes on is given up, and no thread runs any more; at most so long it is waited for."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(within_seconds)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._start:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True)
                begin(self._thread)
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            self._at_end()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_default_executor())  # it looks names up
            loop.close()
