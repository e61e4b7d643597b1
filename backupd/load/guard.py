"""Watching over a probe's windows: what the disks do, that the server's writes stay bearable, that a snapshot lives.

Knows: when to look, and that a window that must not go on is ended at once.
"""

import threading
from collections.abc import Callable, Mapping

from backupd.host.scoped_thread import ScopedThread
from backupd.load.tally import CounterLook
from backupd.vocabulary.errors import BackupdError, GaveUp

_TellDisks = Callable[[Mapping[str, float], float], None]


class ProbeGuard(ScopedThread):
    """Looks every second while its block lasts; the thread has ended when the block has.

    `look` may raise: what it raises ends the window, and is raised by `require_fine`. `tell` gets each PV's requests a
    second and the mean milliseconds that a write to the origin took since the last look (0 without one).
    """

    def __init__(
        self,
        look: Callable[[], CounterLook],
        *,
        max_write_latency_ms: float | None,
        interrupt: Callable[[], None],
        tell: _TellDisks = lambda _rates, _latency: None,
        tick_seconds: float = 1.0,
    ) -> None:
        self._look = look
        self._max_write_latency_ms = max_write_latency_ms
        self._interrupt = interrupt
        self._tell = tell
        self._tick_seconds = tick_seconds
        self._stop = threading.Event()
        self._trouble: BackupdError | None = None
        super().__init__("guard", self._watch, stop=self._stop.set)

    def require_fine(self) -> None:
        """The probe may go on.

        Raises:
            GaveUp: the origin's writes took longer than the limit.
            Whatever the look raised: the snapshot is void, the kernel's counters cannot be read.
        """
        if self._trouble is not None:
            raise self._trouble
        self.require_working()

    def _watch(self) -> None:
        before: CounterLook | None = None
        while not self._stop.wait(self._tick_seconds):
            try:
                now = self._look()
                if before is not None:
                    self._judge(before, now)
            except BackupdError as error:
                self._trouble = error
                self._interrupt()
                return
            before = now

    def _judge(self, before: CounterLook, now: CounterLook) -> None:
        """Raises GaveUp beyond the limit."""
        seconds = max(now.at - before.at, 0.001)
        latency = now.origin.since(before.origin).write_latency_ms or 0.0
        deltas = {pv: now.pvs[pv].since(before.pvs[pv]) for pv in now.pvs}
        self._tell({pv: (delta.reads + delta.writes) / seconds for pv, delta in deltas.items()}, latency)
        if self._max_write_latency_ms is not None and latency > self._max_write_latency_ms:
            raise GaveUp(
                f"a write to the volume took {latency:.0f} ms on average, the limit is {self._max_write_latency_ms:g}"
                f" ms: the probe has stopped",
                hint="choose a quieter hour, fewer threads, or raise --max-write-latency",
            )
