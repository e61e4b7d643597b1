"""Watching disks and processors while a bench loads them: second by second, and around one window.

Knows: when to look, what a second of the counters is in rates, what a disk's share of a window is.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from backupd.host.scoped_thread import ScopedThread
from backupd.load import Counters
from backupd.vocabulary.benches import DiskSample
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.gauges import DiskCounters, ProcessorTimes
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.volumes import DeviceNumber

_SHORTEST_SECONDS = 0.1  # of a sample: the processors' time is counted in hundredths


@dataclass(frozen=True, slots=True)
class BenchLook:
    """The counters at one instant."""

    at: float  # seconds
    disks: Mapping[str, DiskCounters]
    processors: ProcessorTimes


@dataclass(frozen=True, slots=True)
class Usage:
    """What one window's load took of disks and processors."""

    shares: Mapping[str, float]  # disk -> bytes that it moved ÷ bytes of the load; 0 for one that it does not lie on
    system: float | None  # share of the processors' time, 0 to 1; None where the window was too short to tell
    iowait: float | None


class DiskWatch(ScopedThread):
    """Looks every second while its block lasts, and at each change of what is done; the thread has ended with it.

    A look that raises ends the window that is measured (`interrupt`); what it raised is raised by `require_fine`, and
    at the block's end. Enter it within a shield.
    """

    def __init__(
        self,
        counters: Counters,
        disks: Mapping[str, DeviceNumber],
        *,
        interrupt: Callable[[], None],
        tell: Callable[[DiskSample], None] = lambda _sample: None,
        clock: Callable[[], float] = time.monotonic,
        tick_seconds: float = 1.0,
    ) -> None:
        """`tell` gets each sample at once, from the thread of the watch or of `label`, never two at a time."""
        self._counters, self._disks = counters, disks
        self._interrupt, self._tell, self._clock, self._tick_seconds = interrupt, tell, clock, tick_seconds
        self._layout, self._step = "", ""
        self._samples: list[DiskSample] = []
        self._began = 0.0
        self._before: BenchLook | None = None
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._trouble: BackupdError | None = None
        super().__init__("disk-watch", self._watch, stop=self._stop.set)

    def __enter__(self) -> Self:
        self._before = self.look()
        self._began = self._before.at
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            self.require_fine()
            self._sample()

    def label(self, layout: str, step: str) -> None:
        """From now on this is what is done. What was sampled before bears the words from before.

        Raises:
            CommandError, UnexpectedOutput: the counters could not be read.
        """
        self._sample()
        with self._turn:
            self._layout, self._step = layout, step

    def look(self) -> BenchLook:
        """The counters now, for `usage`.

        Raises:
            CommandError, UnexpectedOutput: they could not be read.
        """
        disks = {name: self._counters.disk(number) for name, number in self._disks.items()}
        return BenchLook(self._clock(), disks, self._counters.processors())

    def require_fine(self) -> None:
        """The bench may go on.

        Raises:
            Whatever a look raised: a disk is gone, the kernel's counters cannot be read.
        """
        if self._trouble is not None:
            raise self._trouble
        self.require_working()

    @property
    def samples(self) -> tuple[DiskSample, ...]:
        """All so far, in their order."""
        with self._turn:
            return tuple(self._samples)

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds_to_next()):
            try:
                self._sample()
            except BackupdError as error:
                self._trouble = error
                self._interrupt()
                return

    def _seconds_to_next(self) -> float:
        """A tick after the last sample, also where a change of what is done brought that about."""
        with self._turn:
            last = self._before.at if self._before is not None else 0.0
        return max(0.0, last + self._tick_seconds - self._clock())

    def _sample(self) -> None:
        """What was done since the last sample is one more; too little of it is left to the next."""
        with self._turn:
            now = self.look()
            if self._before is None or now.at - self._before.at < _SHORTEST_SECONDS:
                return
            sample = rates(self._before, now, at_seconds=now.at - self._began, layout=self._layout, step=self._step)
            self._samples.append(sample)
            self._before = now
            self._tell(sample)


def rates(before: BenchLook, after: BenchLook, *, at_seconds: float, layout: str, step: str) -> DiskSample:
    """What disks and processors did between two looks, a second."""
    seconds = after.at - before.at
    deltas = {name: counters.since(before.disks[name]) for name, counters in after.disks.items()}
    system, iowait = _processor_shares(before, after)
    return DiskSample(
        at_seconds=at_seconds,
        layout=layout,
        step=step,
        read={name: delta.read_bytes / seconds for name, delta in deltas.items()},
        written={name: delta.write_bytes / seconds for name, delta in deltas.items()},
        system=system or 0.0,
        iowait=iowait or 0.0,
    )


def usage(before: BenchLook, after: BenchLook, window: Window) -> Usage:
    """What the load of this window, which lies between two looks, took. Everybody's requests are among the disks'."""
    load = window.bytes_read + window.bytes_written
    deltas = {name: counters.since(before.disks[name]) for name, counters in after.disks.items()}
    system, iowait = _processor_shares(before, after)
    return Usage(
        shares={name: (delta.read_bytes + delta.write_bytes) / load for name, delta in deltas.items()} if load else {},
        system=system,
        iowait=iowait,
    )


def _processor_shares(before: BenchLook, after: BenchLook) -> tuple[float | None, float | None]:
    """Of the time of all processors."""
    spent = after.processors.since(before.processors)
    if spent.total <= 0:
        return None, None
    return spent.system / spent.total, spent.iowait / spent.total
