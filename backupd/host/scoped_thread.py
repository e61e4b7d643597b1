"""A thread of ours for the length of a block: it has ended when the block has, however that ends.

Knows: how a worker is started, asked to stop and waited for, and what becomes of an error of its own.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from backupd.host.signals import shielded


class ScopedThread:
    """Runs `work` beside the block; whoever works so derives from it. `stop` asks `work` to return, at the block's end.

    An error of its own is raised at the block's end, unless the block itself raised, and by `require_working`. Enter
    it within a shield: a signal between the thread's start and the block would leave the thread behind.
    """

    def __init__(self, name: str, work: Callable[[], None], *, stop: Callable[[], None]) -> None:
        self._work_beside, self._ask_to_stop = work, stop
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._worker: Future[None] | None = None

    def __enter__(self) -> Self:
        self._worker = self._executor.submit(self._work_beside)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shielded():
            self._ask_to_stop()
            self._executor.shutdown(wait=True)
        if error is None:
            self.require_working()

    @property
    def has_ended(self) -> bool:
        """It does nothing any more: it was asked to stop, came to its end, or failed."""
        return self._worker is not None and self._worker.done()

    def require_working(self) -> None:
        """Raise what ended it, if an error did."""
        if self._worker is not None and self._worker.done():
            self._worker.result()
