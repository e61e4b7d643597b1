"""A thread of ours for the length of a block: it has ended when the block has, however that ends, unless it may hang.

Knows: how a worker is started, asked to stop and waited for, and what becomes of an error of its own.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from backupd.host.daemon_thread import await_end, begin
from backupd.host.signals import shielded


class ScopedThread:
    """Runs `work` beside the block; whoever works so derives from it. `stop` asks `work` to return, at the block's end.

    It is waited for at most `end_seconds`, where these are given: what stands in a call then ends with the process.

    An error of its own is raised at the block's end, unless the block itself raised, and by `require_working`. Enter
    it within a shield: a signal between the thread's start and the block would leave the thread behind.
    """

    def __init__(
        self, name: str, work: Callable[[], None], *, stop: Callable[[], None], end_seconds: float | None = None
    ) -> None:
        self._work_beside, self._ask_to_stop, self._end_seconds = work, stop, end_seconds
        self._thread = threading.Thread(target=self._work_to_its_end, name=name, daemon=True)
        self._result: Future[None] = Future()

    def __enter__(self) -> Self:
        begin(self._thread, undo=self.__exit__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shielded():
            self._ask_to_stop()
            await_end(self._thread, within_seconds=self._end_seconds)
        if error is None:
            self.require_working()

    @property
    def has_ended(self) -> bool:
        """It does nothing any more: it was asked to stop, came to its end, or failed."""
        return self._result.done()

    def require_working(self) -> None:
        """Raise what ended it, if an error did."""
        if self._result.done():
            self._result.result()

    def _work_to_its_end(self) -> None:
        try:
            self._work_beside()
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: whoever asks is told, and the block's end
            self._result.set_exception(error)
        else:
            self._result.set_result(None)
