"""Holding reads back for the server's sake: looks at the origin ten times a second, asks the law, and waits.

Knows: when a read is under way, when to look, which changes are worth telling.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from backupd.policy.pace_trial import PaceLook
from backupd.policy.pacing import LOOK_SECONDS, OFF_SECONDS, Pace
from backupd.vocabulary.errors import AbortedImpact, CommandError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters, InFlight
from backupd.vocabulary.penalty import PaceChange

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.005  # between two questions whether anything is in flight
_STUCK_SECONDS = 10.0  # with writes in flight of which none ends: no disk does that
_LONGEST_WRITE_SECONDS = 60.0  # on average: a counter has jumped
_MOST_DIFFERENT = 2.0  # times as fast or as slow: worth telling
_GAP_GROWS = 1.1  # between two that are told, from one second on: a long copy's record stays short


@dataclass(frozen=True, slots=True)
class SnapshotOutlook:
    """What whoever watches the snapshot knows; None: unknown."""

    lag_seconds: float | None = None  # of a replica
    cow_seconds: float | None = None  # until the COW area is forecast to reach its limit
    disturbed: bool = False  # a probe of ours writes: what the counters say now is not the server's


class Restraint:
    """Paces the reads of one copy. Where the counters cannot be read, or make no sense, it holds nothing back.

    `told` hears of each change of speed that is worth telling; `since_snapshot` says when that is.
    """

    def __init__(
        self,
        pace: Pace,
        *,
        counters: Callable[[], DiskCounters],
        in_flight: Callable[[], InFlight],
        outlook: Callable[[], SnapshotOutlook] = SnapshotOutlook,
        told: Callable[[PaceChange], None] = lambda _change: None,
        since_snapshot: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace = pace
        self._counters, self._in_flight, self._outlook = counters, in_flight, outlook
        self._told, self._since_snapshot = told, since_snapshot
        self._clock, self._wait = clock, wait
        self._looked_at: float | None = None  # when the counters below were read; None: not yet
        self._before = DiskCounters()
        self._read_since: float | None = None  # a read is under way
        self._read_size = 0
        self._held_since: float | None = None  # one is held back, as far as it is not yet counted
        self._waits_since = 0.0  # it is
        self._reads, self._read_bytes, self._read_seconds, self._held_seconds = 0, 0, 0.0, 0.0
        self._stuck_seconds = 0.0
        self._changes = 0
        self._last: PaceChange | None = None  # that was told
        self._last_at = 0.0
        self.trouble: str | None = None  # why nothing is held back any more, in words for a person

    def look(self, *, bytes_left: int | None, deadline_seconds: float | None, later_bytes: int = 0) -> None:
        """Ask the law again, where a tenth of a second has passed.

        `later_bytes` of those left are sent after the snapshot is gone.

        Raises:
            AbortedImpact: the copy cannot go on within the job's budgets.
        """
        now = self._clock()
        if self.trouble is not None or (self._looked_at is not None and now < self._looked_at + LOOK_SECONDS):
            return
        outlook = self._outlook()
        delta, in_flight = self._delta(), self._now_in_flight()
        if delta is None or in_flight is None:
            return
        began, self._looked_at = self._looked_at, now
        if self._held_since is not None:
            self._held_seconds += now - self._held_since
            self._held_since = now
        if began is None or outlook.disturbed or (self._pace.off and self._read_since is not None):
            self._forget()
            return
        if (odd := self._odd(delta, in_flight, now - began)) is not None:
            self._stop(odd)
            return
        look = PaceLook(
            seconds=now - began,
            writes=delta.writes,
            write_seconds=delta.write_seconds,
            in_flight=in_flight.writes,
            reads=self._reads,
            read_bytes=self._read_bytes,
            reading_seconds=self._read_seconds,
            held_seconds=self._held_seconds,
            bytes_left=bytes_left,
            later_bytes=later_bytes,
            deadline_seconds=deadline_seconds,
            cow_seconds=outlook.cow_seconds,
            lag_seconds=outlook.lag_seconds,
        )
        self._forget()
        self._pace = self._pace.after(look)
        if self._pace.abort is not None:
            raise AbortedImpact(
                f"backup aborted: {self._pace.abort}",
                hint=(
                    "choose a quieter hour, raise the job's limits.max_latency or limits.max_penalty_seconds, or"
                    " allow the copy more time"
                ),
            )
        self._tell(now)

    def held_back(self) -> None:
        """The read before, if any, has ended, and the next waits from now on, for whatever it is."""
        if self._held_since is None:
            now = self._clock()
            self._has_ended(now)
            self._held_since = self._waits_since = now

    def hold(self, size: int, meanwhile: Callable[[], None]) -> None:
        """Return when `size` bytes may be read. `meanwhile` looks, as all do."""
        self.held_back()
        while (seconds := self._seconds_to_wait(self._waits_since)) > 0:
            self._wait(seconds)
            meanwhile()
        now = self._clock()
        self._held_seconds += now - (self._held_since or now)
        self._held_since = None
        self._read_since, self._read_size = now, size

    def _has_ended(self, now: float) -> None:
        if self._read_since is None:
            return
        self._reads += 1
        self._read_bytes += self._read_size
        self._read_seconds += now - self._read_since
        self._read_since = None
        if self._pace.off and self._delta() is not None:  # what is seen without a read begins here
            self._looked_at = now
            self._forget()

    def _seconds_to_wait(self, began: float) -> float:
        """Until the next question; 0 where the read may begin."""
        if self.trouble is not None:
            return 0.0
        decision, passed = self._pace.decision, self._clock() - began
        if decision.off:
            return OFF_SECONDS if passed < 2 * OFF_SECONDS else 0.0
        if passed < decision.pause_seconds:
            return min(LOOK_SECONDS, max(_POLL_SECONDS, decision.pause_seconds - passed))
        if passed < decision.pause_seconds + decision.hold_seconds:
            in_flight = self._now_in_flight()
            return _POLL_SECONDS if in_flight is not None and in_flight.reads + in_flight.writes else 0.0
        return 0.0

    def _delta(self) -> DiskCounters | None:
        """What was counted since the last time; None where that cannot be read any more."""
        try:
            now = self._counters()
        except (CommandError, UnexpectedOutput) as error:
            self._stop(error.message)
            return None
        delta, self._before = now.since(self._before), now
        return delta

    def _now_in_flight(self) -> InFlight | None:
        try:
            return self._in_flight()
        except (CommandError, UnexpectedOutput) as error:
            self._stop(error.message)
            return None

    def _odd(self, delta: DiskCounters, in_flight: InFlight, seconds: float) -> str | None:
        """Why these counters cannot be believed, in words; None where they can."""
        self._stuck_seconds = self._stuck_seconds + seconds if in_flight.writes and not delta.writes else 0.0
        if delta.writes < 0 or delta.write_seconds < 0:
            return "the kernel's counters of the volume went backwards"
        if delta.write_seconds > _LONGEST_WRITE_SECONDS * max(1, delta.writes):
            return "the kernel's counters of the volume jumped"
        if self._stuck_seconds >= _STUCK_SECONDS:
            return f"the kernel counted no finished write for {self._stuck_seconds:.0f} s, with some in flight"
        return None

    def _stop(self, why: str) -> None:
        self.trouble = f"the copy ran at full speed without throttling: {why}"
        log.warning("%s", self.trouble)

    def _forget(self) -> None:
        self._reads, self._read_bytes, self._read_seconds, self._held_seconds = 0, 0, 0.0, 0.0

    def _tell(self, now: float) -> None:
        decision = self._pace.decision
        rate = round(self._pace.full_rate * decision.share) or None
        change = PaceChange(self._since_snapshot(), decision.share, rate, decision.reason)
        if self._last is not None:
            times = max(change.share / self._last.share, self._last.share / change.share)
            same = change.reason == self._last.reason and times < _MOST_DIFFERENT
            if same or now < self._last_at + _GAP_GROWS**self._changes:
                return
        self._last, self._last_at = change, now
        self._changes += 1
        log.info("reading at %.0f%% of full speed: %s", 100 * change.share, change.reason)
        self._told(change)
