"""Watching what a run costs its server, from its first moment on, and writing the bill.

Knows: when to look at the server's own counters and at those of the origin's disks, and when not to: under the lock
nobody looks. What the figures amount to is decided in `bill`. It never fails a run: what cannot be read is missing from
the bill.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backupd.catalogue import RunJournal
from backupd.host.scoped_thread import ScopedThread
from backupd.mysql import WorkCounters
from backupd.policy.bill import Count, copied_on_write, losses, penalty_seconds
from backupd.vocabulary.errors import CatalogueError, CommandError, ServerError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.penalty import Bill, Losses, Sample
from backupd.vocabulary.volumes import Volume

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0  # between two tries to ask a server that does not answer
_UNDER_WAY_SECONDS = 0.2  # that a look may still take when the lock is about to be asked for
_UNREADABLE = (ServerError, OSError, ValueError)  # what a look may fail with; it never fails a run
_AFTER_SECONDS = 10.0  # of what follows the release, this much is told


class CostMeter(ScopedThread):
    """Looks at the server's counters once a second for the length of its block."""

    def __init__(
        self,
        run: RunJournal,
        counters: WorkCounters,
        *,
        read_disk: Callable[[Path], DiskCounters],
        undisturbed_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`undisturbed_seconds` is for how long the server is watched before anything of ours disturbs it."""
        self._run, self._counters, self._read_disk = run, counters, read_disk
        self._undisturbed_seconds, self._clock, self._pause = undisturbed_seconds, clock, pause
        self._silence = threading.Event()
        self._looking = threading.Lock()
        self._failed, self._next_try = 0, clock()
        self._ended = threading.Event()
        self._began = clock()
        self._counts: list[Count] = []
        self._undisturbed_until = self._began
        self._locked_at: float | None = None  # from then on it costs
        self._released_at: float | None = None
        self._samples: Sequence[Sample] = ()
        self._disks: tuple[Path, ...] = ()
        self._disks_before: DiskCounters | None = None
        super().__init__("backupd cost meter", self._watch, stop=self._ended.set)

    def wait_undisturbed(self) -> None:
        """The server's usual rate is known as far as it can be; whatever disturbs it may begin."""
        while (left := self._began + self._undisturbed_seconds - self._clock()) > 0:
            self._pause(left)
        self.look()
        self._undisturbed_until = self._clock()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The lock's block: what follows its beginning is on the bill, and nobody begins a look before its end.

        The appliers of a replica stand still already: a look that is under way is waited for for 0.2 s, and if the
        server does not answer it the lock is asked for beside it. What counts as the lock's own is the last look before
        it, at most a second old.
        """
        self._disks_before = self._disks_by_now()
        self._silence.set()
        try:
            if self._looking.acquire(timeout=_UNDER_WAY_SECONDS):
                self._looking.release()
            self._locked_at = self._clock()
            yield
        finally:
            self._silence.clear()

    @contextmanager
    def settled(self, volume: Volume) -> Iterator[None]:
        """At the block's end, however that comes, the snapshot is gone and the bill is in the record."""
        self._disks = tuple(map(Path, volume.devices))
        try:
            yield
        except BaseException as error:
            try:
                self._settle(volume)
            except CatalogueError as second:
                error.add_note(f"the bill could not be recorded: {second.message}")
            raise
        self._settle(volume)

    def sampled(self, samples: Sequence[Sample]) -> None:
        """What was seen from the baseline on; the bill is reckoned with it."""
        self._samples = (*self._samples, *samples)

    def look(self) -> None:
        """Once. A server that does not answer leaves a gap, and is asked again after 1, 2, 4 … 60 s."""
        with self._looking:
            if self._silence.is_set() or self._clock() < self._next_try:
                return
            try:
                self._counts.append(self._counters.look())
            except _UNREADABLE as error:
                log.debug("the server's counters: %s", error)
                self._next_try = self._clock() + min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(self._failed, 6))
                self._failed += 1
            else:
                self._failed = 0

    def told_after(self) -> None:
        """How the server went on when the snapshot was gone is in the record too."""
        found = self._losses()
        if found is not None:
            self._run.losses(found)

    def _watch(self) -> None:
        try:
            while not self._ended.is_set():
                self.look()
                self._ended.wait(_TICK_SECONDS)
        finally:
            self._counters.close()

    def _settle(self, volume: Volume) -> None:
        if self._locked_at is None:
            return
        self.look()
        disks = _between(self._disks_before, self._disks_by_now())
        self._released_at = self._clock()
        seconds = self._released_at - self._locked_at
        bill = Bill(
            seconds=seconds,
            penalty_seconds=penalty_seconds(self._samples, seconds),
            copied_on_write=copied_on_write(self._samples, pooled=volume.pool is not None),
            disks=len(volume.devices),
            disk_seconds=None if disks is None else disks.busy_seconds,
            disk_read_seconds=None if disks is None else disks.read_seconds,
        )
        self._run.bill(bill)
        self.told_after()

    def _losses(self) -> Losses | None:
        start, end = self._locked_at, self._released_at
        if start is None or end is None:
            return None
        counts = tuple(self._counts)
        before = [count for count in counts if count.at <= self._undisturbed_until]
        after = [count for count in counts if end < count.at <= end + _AFTER_SECONDS]
        first = [count for count in counts if count.at <= start][-1:]  # the lock's own, just before it
        during = [*first, *(count for count in counts if start < count.at <= end)]
        return losses(before, during, (*during[-1:], *after))

    def _disks_by_now(self) -> DiskCounters | None:
        """The sum of all; None where one cannot be read."""
        total = DiskCounters()
        try:
            for path in self._disks:
                total = total.plus(self._read_disk(path))
        except (CommandError, UnexpectedOutput, OSError, ValueError) as error:
            log.debug("the counters of the origin's disks: %s", error)
            return None
        return total


def _between(before: DiskCounters | None, after: DiskCounters | None) -> DiskCounters | None:
    return None if before is None or after is None else after.since(before)
