"""Watching what a snapshot costs, from the moment it exists to the last byte of the copy.

Knows: when to look at the COW area, at the replica's lag, at what the origin's writes take and, by a probe window, at
what a write of ours costs; one background thread does it, and the main thread asks for a verdict or whether to go on.
How each of these is read is handed in as a callable; how they are judged is in `settle_gate`.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from backupd.host.scoped_thread import ScopedThread
from backupd.load import WriteProbe
from backupd.load.baseline import Baseline, PassiveMeter, window_sample
from backupd.load.cow_extension import CowExtension
from backupd.policy.bill import penalty_seconds
from backupd.policy.cow_growth import LOOK_BACK, wanted_total
from backupd.policy.settle_gate import (
    COW_AREA,
    SETTLE,
    Area,
    CowForecast,
    SettleLimits,
    breach,
    decide,
    last_lag,
    last_ratio,
    seconds_to_limit,
    way_out,
)
from backupd.vocabulary.errors import CommandError, GaveUp, ServerError, SnapshotError, SnapshotVoid, UnexpectedOutput
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict, Window
from backupd.vocabulary.volumes import CowUsage

log = logging.getLogger(__name__)

_LAG_SECONDS, _LONGEST_LAG_SECONDS = 5.0, 60.0  # between two questions to the server; where it does not answer
_GRACE_SECONDS = 15.0  # that a COW area may be beyond its limit while it is being extended
_PROMPT_SECONDS = 0.5  # how soon a waiting main thread notices a signal at the latest


class Observer(ScopedThread):
    """Looks every tick from entering the block to leaving it; instants count from entering, just after the snapshot.

    What fails while it watches does not end the run: a probe that fails is not asked again (the passive meter decides
    alone), a server that does not answer leaves its lag unknown; each is `trouble`. `stage` is what new samples are
    labelled with; the story sets it to "copy" when the copy starts.
    """

    def __init__(
        self,
        *,
        probe: WriteProbe | None,
        folder: Path,
        baseline: Baseline | None,
        read_usage: Callable[[], CowUsage],
        read_lag: Callable[[], float | None],
        extend: Callable[[int, int], int] | None = None,
        growth: int = 0,
        limits: SettleLimits,
        area: Area = COW_AREA,
        meter: PassiveMeter | None = None,
        copy_seconds: float | None = None,
        guess_seconds: float | None = None,
        window_seconds: float,
        duty: float,
        tick_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`duty` is the share of time that the probe may write, 0 to 1; `copy_seconds` what the copy is expected to
        take by what is known, `guess_seconds` by nothing but its size; `area` what fills while the snapshot exists.

        `extend` is told how large the COW area is and how large it should be, and returns how many bytes it has added;
        `growth` is how many that can be in all.
        Without a probe `baseline` is one that was watched; with one it was measured by it, or the probe stays unused.
        """
        self.stage = SETTLE
        self._probe, self._folder, self._baseline = probe, folder, baseline
        self._meter = meter or PassiveMeter(None)
        self._read_usage, self._read_lag = read_usage, read_lag
        self._limits, self._area = limits, area
        self._copy_seconds, self._guess_seconds = copy_seconds, guess_seconds
        self._window_seconds, self._duty, self._tick_seconds = window_seconds, duty, tick_seconds
        self._clock = clock
        self._probing = probe is not None and baseline is not None and bool(baseline.iops)
        self._lag_pause = _LAG_SECONDS
        self._extension = CowExtension(extend, growth, clock)
        self._began = self._next_window = self._next_lag = clock()
        self._graced_until: float | None = None  # the COW area is beyond its limit, and being extended
        self._last_fill: tuple[float, int] | None = None  # when it was read, and bytes; None: the last try failed
        self._cow: CowForecast | None = None  # as it was last read
        self._samples: list[Sample] = []
        self._cow_peak: int | None = None
        self._trouble: dict[str, str] = {}
        self._breach: str | None = None
        self._void: str | None = None
        self._measuring = False
        self._changed = threading.Condition()
        self._stop = threading.Event()
        super().__init__("observer", self._watch, stop=self._end)

    def __enter__(self) -> Self:
        self._began = self._next_window = self._next_lag = self._clock()
        return super().__enter__()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Everything seen since the snapshot, in order; without the baseline."""
        with self._changed:
            return tuple(self._samples)

    @property
    def cow_peak(self) -> int | None:
        """The most bytes of the COW area that were in use; None where it could not be read."""
        return self._cow_peak

    @property
    def cow_added(self) -> int:
        """Bytes by which the COW area was extended."""
        return self._extension.added

    @property
    def way_out(self) -> str:
        """What would let a backup through that is given up now, in words for a person."""
        return way_out(self.samples, self._limits, self._cow, area=self._area)

    @property
    def trouble(self) -> tuple[str, ...]:
        """What went wrong in watching: each thing once, in words for a person."""
        with self._changed:
            return tuple(self._trouble.values())

    @property
    def usual_seconds(self) -> float | None:
        """Average write latency before the snapshot, while no probe of ours wrote; None where unknown."""
        if self._baseline is None or self._baseline.iops or self._baseline.write_latency_ms is None:
            return None
        return self._baseline.write_latency_ms / 1000

    @property
    def slowdown(self) -> float | None:
        """How many times slower than before the snapshot the probe's last window was; None without one."""
        with self._changed:
            return last_ratio(self._samples)

    @property
    def measuring(self) -> bool:
        """A window of the probe is under way: what the origin's counters say meanwhile is not the server's doing."""
        return self._measuring

    @property
    def seconds(self) -> float:
        """Since the snapshot."""
        return self._clock() - self._began

    @property
    def penalty_seconds(self) -> float:
        """Of the server's writing, what the snapshot has cost so far; 0 where nothing tells."""
        before = () if self._baseline is None else self._baseline.samples
        return penalty_seconds((*before, *self.samples), self.seconds) or 0.0

    @property
    def lag_seconds(self) -> float | None:
        """The replica's, as it was last told."""
        with self._changed:
            return last_lag(self._samples)

    @property
    def cow_seconds(self) -> float | None:
        """Until the COW area reaches its limit, if it goes on filling as it has lately; None where that is unknown."""
        with self._changed:
            return seconds_to_limit(self._samples, self._limits, self._cow)

    def wait_for_verdict(self) -> Verdict:
        """Wait until the gate says start or give-up. A signal handler that raises ends the wait within half a second.

        Raises:
            SnapshotVoid: the COW area overflowed or failed meanwhile.
        """
        with self._changed:
            while True:
                self._require_watched()
                verdict = self._verdict()
                if verdict.outcome is not GateOutcome.WAIT:
                    return verdict
                self._changed.wait(_PROMPT_SECONDS)

    @property
    def passed(self) -> str | None:
        """Which limit of the job was passed, in words; one that was passed once stays passed."""
        with self._changed:
            self._end_grace(at=self._clock())
            return self._breach

    def require_within_limits(self) -> None:
        """The copy may go on.

        Raises:
            GaveUp, SnapshotVoid: a limit of the job was passed; the COW area overflowed or failed.
        """
        with self._changed:
            self._require_watched()
            if self.passed is not None:
                raise GaveUp(f"backup aborted: {self.passed}", hint=self.way_out)

    def observe(self) -> None:
        """Look once: a probe window if one is due, the COW area, the lag if it is due; one sample more."""
        window = None
        disturbed = self._probing and self._clock() >= self._next_window
        if disturbed:
            self._meter.look()  # so that what is said of a window is of the window alone, as it was in the baseline
            window = self._measure()
        latency = self._look_at_counters()
        rate = self._look_at_cow_area(disturbed=disturbed)
        lag = self._lag_if_due()
        used = self._last_fill[1] if self._last_fill is not None else None
        at = self._clock() - self._began
        sample = Sample(at, self.stage, write_latency_ms=latency)
        if window is not None:
            sample = window_sample(window, at, self.stage, ratio=self._ratio(window), latency=latency)
        sample = replace(sample, cow_used=used, cow_rate=rate, replica_lag_seconds=lag)
        with self._changed:
            self._samples.append(sample)
            wanted = self._wanted_extension()
            if wanted is not None and breach(self._samples, self._limits, cow=self._cow) is not None:
                self._graced_until = self._clock() + _GRACE_SECONDS
            else:
                self._judge()
            self._changed.notify_all()
        if wanted is not None:
            self._extend_to(wanted)
            with self._changed:
                self._end_grace()
                self._changed.notify_all()

    def _end(self) -> None:
        self._stop.set()
        if self._probe is not None:
            self._probe.interrupt()

    def _watch(self) -> None:
        while not self._stop.is_set() and self._void is None:
            self.observe()
            self._stop.wait(self._tick_seconds)

    def _measure(self) -> Window | None:
        """One window of the probe; the next is due when this one's time has become its share of all time."""
        assert self._probe is not None
        began = self._clock()
        self._measuring = True
        try:
            return self._probe.window(self._folder, self._window_seconds)
        except (CommandError, UnexpectedOutput) as error:
            if not self._stop.is_set():
                self._probing = False
                so = "so the passive meter decided alone from then on"
                self._note("probe", f"the probe failed, {so}: {error.message}")
            return None
        finally:
            self._measuring = False
            self._next_window = began + (self._clock() - began) / self._duty

    def _look_at_counters(self) -> float | None:
        """Milliseconds that a write to the origin took since the last look; None where that is unknown."""
        latency = self._meter.look()
        if self._meter.trouble is not None:
            self._note("counters", f"the origin's write latency could not be read: {self._meter.trouble}")
        return latency

    def _look_at_cow_area(self, *, disturbed: bool) -> float | None:
        """Read the COW area's fill, and return the rate of first writes since the last time.

        None where the probe has written meanwhile (a window is never the server's doing) or nothing could be read.
        """
        before, self._last_fill = self._last_fill, None
        try:
            usage = self._read_usage()
        except SnapshotVoid as error:
            self._void = error.message
            return None
        except (SnapshotError, CommandError, UnexpectedOutput) as error:
            self._note("usage", f"how full {self._area.name} is could not be read for a while: {error.message}")
            return None
        at = self._clock()
        if not usage.intact:
            self._void = f"the snapshot is no longer intact, device-mapper reports {usage.state!r}"
            return None
        self._last_fill = (at, usage.used)
        seen = CowForecast(
            usage.total,
            self._copy_seconds,
            self._area,
            usage.metadata_fill,
            growth=self._extension.growth,
            guess_seconds=self._guess_seconds,
        )
        self._cow = seen if usage.total else None
        self._cow_peak = max(self._cow_peak or 0, usage.used)
        if before is None or disturbed or at <= before[0]:
            return None
        return max(0, usage.used - before[1]) / (at - before[0])

    def _judge(self) -> None:
        self._breach = self._breach or breach(self._samples, self._limits, cow=self._cow)

    def _end_grace(self, *, at: float | None = None) -> None:
        """What was not judged because of an extension is; with an instant given only if the grace is over by then."""
        if self._graced_until is None or (at is not None and at < self._graced_until):
            return
        self._graced_until = None
        self._judge()

    def _wanted_extension(self) -> int | None:
        """How large the COW area is to be, where it is about to be too small; None also where nothing can be done.

        For a run that is over nothing is extended, and neither is where another limit was passed.
        """
        if self._cow is None or not self._extension.is_due:
            return None
        if self._stop.is_set() or self._void or self._breach or breach(self._samples, self._limits, cow=None):
            return None
        return wanted_total(self._samples[-LOOK_BACK:], self._cow, max_fill=self._limits.max_cow_fill)

    def _extend_to(self, wanted: int) -> None:
        """Give the COW area more room."""
        if self._cow is None or self._stop.is_set():
            return
        try:
            added = self._extension.extend(self._cow.total, wanted)
        except (SnapshotError, CommandError, UnexpectedOutput) as error:
            self._note("extension", f"{self._area.name} was filling up and could not be extended: {error.message}")
            return
        with self._changed:
            self._trouble.pop("extension", None)
            self._cow = replace(self._cow, total=self._cow.total + added, growth=self._extension.growth)

    def _lag_if_due(self) -> float | None:
        if self._clock() < self._next_lag:
            return None
        lag = None
        try:
            lag = self._read_lag()
            self._lag_pause = _LAG_SECONDS
        except ServerError as error:  # nothing else is watched while it is asked
            self._lag_pause = min(_LONGEST_LAG_SECONDS, 2 * self._lag_pause)
            self._note("server", f"the server did not answer while the snapshot existed: {error.message}")
        self._next_lag = self._clock() + self._lag_pause
        return lag

    def _ratio(self, window: Window) -> float | None:
        """Baseline ÷ window. Where not one write ended, it is at least as bad as one write in that time would be."""
        if self._baseline is None or not self._baseline.iops:
            return None
        return self._baseline.iops / (window.iops or 1 / window.seconds)

    def _verdict(self) -> Verdict:
        now = self._clock() - self._began
        if (passed := self.passed) is not None:
            return Verdict(GateOutcome.GIVE_UP, Reason.LIMIT, passed, waited_seconds=now)
        most = self._limits.max_penalty_seconds
        if most is not None and (cost := self.penalty_seconds) > most:
            said = f"the server has lost {cost:.0f} s of writing, the limit is {most:g} s"
            return Verdict(GateOutcome.GIVE_UP, Reason.LIMIT, said, waited_seconds=now)
        if self._graced_until is not None:
            return Verdict(
                GateOutcome.WAIT, Reason.SETTLING, f"{self._area.name} is being extended", waited_seconds=now
            )
        return decide(
            self._samples,
            self._limits,
            now_seconds=now,
            forecast=self._cow,
            probing=self._probing,
            baseline_latency_ms=self._usual_latency(),
        )

    def _usual_latency(self) -> float | None:
        """What a write took before; None where that was taken with a probe and is now without: they do not compare."""
        if self._baseline is None or self._probing != bool(self._baseline.iops):
            return None
        return self._baseline.write_latency_ms

    def _require_watched(self) -> None:
        """There is a snapshot to judge, and a thread that watches it; limits that nobody watches hold nothing."""
        if self._void is not None:
            raise SnapshotVoid(
                self._void,
                hint=f"{self._area.name} was probably too small for the writes during the backup: {self._area.remedy}",
            )
        self.require_working()

    def _note(self, kind: str, text: str) -> None:
        if kind not in self._trouble:
            log.warning("%s", text)
        with self._changed:
            self._trouble.setdefault(kind, text)
