"""The settle gate as a pure function: samples and limits in; wait, start or give up, with a reason, out.

Knows: when waiting still helps, when it gains nothing, when it costs too much. Has no clock, thread or probe:
`observer` asks, and acts on the answer.

Two signals, and a third. The *ratio* of the probe's windows says what a write costs, but a probe that comes back to its
own small file settles its own chunks. The *rate* of first writes that are not the probe's says what the server still
has to pay. The gate opens when both have settled. Where there is no probe the passive meter decides alone: that rate,
and the average *latency* of writes to the origin, where its baseline is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from backupd.policy.trend import Point, expected_after, expected_sum, is_falling, peak, points, recent
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict

BASELINE, SETTLE, COPY = "baseline", "settle", "copy"  # the stages of a sample

_LIMIT_WINDOWS = 2  # in a row above the penalty limit: one may be an accident
_LEAST_RATES = 5  # before the rate alone may open the gate
FORECAST_RATES = 10  # before a forecast may cost a backup
TREND_RATES = 30  # the stretch that a forecast goes by
_LOOK_AHEAD_SECONDS = 60.0  # the wait ends while the COW area would last for another minute and the copy
_MIB = 1 << 20
_FULLEST = 0.95  # of the COW area, that anybody is told to allow
_SHORTEST_SETTLING_SECONDS = 30.0  # no loaded server of the lab's had its hot chunks copied sooner (33 to 40 s)
_TREND_SHARE = 0.3  # of the copy's seconds, a look in each: a fall to half by then shows in so many
_WORTH_WAITING = 2.0  # first writes now ÷ those at the end of a copy that began now
MAX_METADATA_FILL = 0.9  # of a thin pool; once it runs out, every write to the pool fails
OWN_CHUNKS = "the probe's own chunks have settled, but the server's are still being copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleLimits:
    """What the gate waits for, how long, and beyond which point the backup is the thing to lose. None: no limit.

    What a job's configuration says has no default here: it has one there.
    """

    threshold: float  # the ratio that is worth paying
    windows: int  # in a row at or below it
    max_wait_seconds: float
    patience: float | None  # the longest wait that can pay, as a multiple of what the copy is expected to take
    max_penalty: float | None
    max_penalty_seconds: float | None  # judged by who watches, and so has the baseline
    max_replica_lag_seconds: float | None
    max_cow_fill: float  # 0 to 1
    max_metadata_fill: float = MAX_METADATA_FILL
    plateau_windows: int  # over which the ratio has not fallen by a tenth
    plateau_looks: int  # the same for rate and latency, where they decide alone
    quiet_share: float  # of its peak since the snapshot: the server's first writes have died down
    quiet_rate: float = 64 << 10  # bytes a second that count as died down whatever the peak
    enabled: bool


@dataclass(frozen=True, slots=True)
class Area:
    """What fills while there is a snapshot, in words for a person."""

    name: str = "the COW area"
    remedy: str = "raise snapshot.size"
    sooner: str = ""  # what would let the copy end sooner, where the job itself holds it back


COW_AREA = Area()


@dataclass(frozen=True, slots=True)
class CowForecast:
    """The COW area, or the pool of a thin snapshot, and what it has to last for."""

    total: int  # bytes
    copy_seconds: float | None = None  # by the job's last copy; None: unknown, then only the wait is forecast
    area: Area = COW_AREA
    metadata_fill: float = 0.0  # of a pool's metadata, 0 to 1
    growth: int = 0  # bytes by which it can be extended as it fills
    guess_seconds: float | None = None  # what stands for `copy_seconds` where a guess is enough: it can end a wait only

    @property
    def expected_seconds(self) -> float | None:
        """Of the copy, guessed where it is not known."""
        return self.copy_seconds if self.copy_seconds is not None else self.guess_seconds


def decide(
    samples: Sequence[Sample],
    limits: SettleLimits,
    *,
    now_seconds: float,
    forecast: CowForecast | None = None,
    probing: bool = True,
    baseline_latency_ms: float | None = None,
) -> Verdict:
    """Wait, start, or give up. From `max_wait_seconds` on it never says wait.

    `now_seconds` counts from the snapshot, as the samples do. `probing` is False where no (more) windows are to come.
    `baseline_latency_ms` is the average write latency before the snapshot, during the probe's windows if there are any.
    In this order: an exceeded limit aborts; a gate that is off starts; a COW area that is not forecast to last through
    the copy gives up; settled, plateau and max-wait start, the last as no-data where nothing was ever measured (both
    want attention); a COW area that would last through the copy but not through another minute's wait starts at once.

    A wait that can no longer pay is a plateau too. The server pays for the snapshot as long as there is one, so a copy
    that is short had better begin at once: in the lab waiting first lost more transactions than it saved. A second of
    waiting costs what the snapshot will cost at the copy's end, and saves what the copy meets less of: that pays while
    the server's first writes are forecast to fall to less than half by then. And a wait that has outlasted the copy's
    expected time ends, since whether the penalty would settle in the next minute or never cannot be known: to stop
    there costs at most twice what the better choice would have.
    """
    seen = _Seen.of(samples, limits, probing=probing, baseline_latency_ms=baseline_latency_ms)

    def verdict(outcome: GateOutcome, reason: Reason, detail: str = "") -> Verdict:
        return Verdict(outcome, reason, detail, waited_seconds=now_seconds)

    passed = breach(samples, limits, cow=forecast)
    if passed is not None:
        return verdict(GateOutcome.GIVE_UP, Reason.LIMIT, passed)
    if not limits.enabled:
        return verdict(GateOutcome.START, Reason.DISABLED)
    left = max(0.0, limits.max_wait_seconds - now_seconds)
    too_short = seen.shortage(forecast, 0.0)
    if too_short is not None:
        return verdict(GateOutcome.GIVE_UP, Reason.COW_SHORT, too_short)
    if seen.settled():
        return verdict(GateOutcome.START, Reason.SETTLED, seen.words())
    if seen.plateau():
        return verdict(GateOutcome.START, Reason.PLATEAU, f"the penalty is no longer falling; {seen.words()}")
    pointless = None
    if forecast is not None:
        pointless = _pointless(limits, forecast.expected_seconds, now_seconds) or seen.dearer_later(forecast)
    if pointless is not None and (seen.began or not probing):
        return verdict(GateOutcome.START, Reason.PLATEAU, f"{pointless}; {seen.words()}" if seen.began else pointless)
    if left <= 0:
        reason = Reason.MAX_WAIT if seen.ratios or seen.rates or seen.slowdowns else Reason.NO_DATA
        return verdict(GateOutcome.START, reason, seen.words())
    too_short = seen.shortage(forecast, min(left, _LOOK_AHEAD_SECONDS))
    if too_short is not None:
        return verdict(GateOutcome.START, Reason.COW_SHORT, too_short)
    return verdict(GateOutcome.WAIT, Reason.SETTLING, seen.words())


def breach(samples: Sequence[Sample], limits: SettleLimits, *, cow: CowForecast | None) -> str | None:
    """Which limit is passed, in words; None while none is. Holds in every stage after the snapshot."""
    ratios, lag, used = _latest(samples)
    if limits.max_penalty is not None and len(ratios) == _LIMIT_WINDOWS and min(ratios) > limits.max_penalty:
        return f"writes are {min(ratios):.1f}× slower than without the snapshot, the limit is {limits.max_penalty:g}×"
    if limits.max_replica_lag_seconds is not None and lag is not None and lag > limits.max_replica_lag_seconds:
        return f"replica lag is {lag:.0f} s, the limit is {limits.max_replica_lag_seconds:g} s"
    if cow is None:
        return None
    if used is not None and used > limits.max_cow_fill * cow.total:
        return f"{cow.area.name} is {used / cow.total:.0%} full, the limit is {limits.max_cow_fill:.0%}"
    if cow.metadata_fill > limits.max_metadata_fill:
        return (
            f"the metadata of {cow.area.name} is {cow.metadata_fill:.0%} full, the limit is"
            f" {limits.max_metadata_fill:.0%}"
        )
    return None


def last_ratio(samples: Sequence[Sample]) -> float | None:
    """What the newest of the probe's windows since the snapshot said."""
    ratios = _latest(samples)[0]
    return ratios[0] if ratios else None


def last_lag(samples: Sequence[Sample]) -> float | None:
    """A replica's lag as it was last told since the snapshot."""
    return _latest(samples)[1]


def seconds_to_limit(samples: Sequence[Sample], limits: SettleLimits, cow: CowForecast | None) -> float | None:
    """Until the COW area has filled to its limit, if it goes on as it has lately; None: never, or unknown.

    What it can still be extended by counts: until then nothing forces the copy, and no backup is aborted.
    """
    lately = [sample for sample in samples[-TREND_RATES:] if sample.stage != BASELINE]
    rates = points((sample.at_seconds, sample.cow_rate) for sample in lately)
    rate, used = recent(rates), _latest(lately)[2]
    if cow is None or used is None or rate <= 0 or len(rates) < FORECAST_RATES:
        return None
    return max(0.0, limits.max_cow_fill * (cow.total + cow.growth) - used) / rate


def waiting_may_pay(limits: SettleLimits, copy_seconds: float | None) -> bool:
    """Whether the gate may wait at all before a copy that takes so long; None: unknown.

    Where it may not, a probe measures what changes nothing, and the server pays for that: in the lab 600 of the 3000
    transactions that a whole run of 40 s cost it.
    """
    return limits.enabled and _pointless(limits, copy_seconds, 0.0) is None


def _pointless(limits: SettleLimits, copy_seconds: float | None, now_seconds: float) -> str | None:
    """Why a longer wait would cost more than it saves, in words; None while it may pay, or where that is unknown."""
    if limits.patience is None or copy_seconds is None:
        return None
    longest = limits.patience * copy_seconds
    if longest < _SHORTEST_SETTLING_SECONDS:
        return f"the copy takes about {copy_seconds:.0f} s, waiting would not pay off"
    if now_seconds >= longest:
        return f"the copy takes about {copy_seconds:.0f} s, waiting longer would not pay off"
    return None


def way_out(samples: Sequence[Sample], limits: SettleLimits, forecast: CowForecast | None, *, area: Area) -> str:
    """What would have let the backup through: with figures where it was the COW area that is too small."""
    sooner = f", {area.sooner}" if area.sooner else ""
    in_general = f"{area.remedy}{sooner}, raise the job's limits, or choose a quieter hour"
    if forecast is None:
        return in_general
    seen = _Seen.of(samples, limits, probing=True, baseline_latency_ms=None)
    need = max(seen.need(forecast), seen.used)
    if need <= limits.max_cow_fill * (forecast.total + forecast.growth):
        return in_general
    if forecast.copy_seconds is None:
        return (
            f"{area.remedy}: try {_gib(2 * forecast.total)} for {area.name} (now {_gib(forecast.total)}; how long the"
            f" copy takes is not known yet){sooner}, raise limits.max_cow_fill (now {limits.max_cow_fill:.0%}), or"
            " choose a quieter hour"
        )
    less = (
        f", raise limits.max_cow_fill to {ceil(100 * need / forecast.total)}% (now {limits.max_cow_fill:.0%})"
        if need <= _FULLEST * forecast.total
        else ""
    )
    return (
        f"{area.remedy} so that {area.name} has {_gib(need / limits.max_cow_fill)} (now"
        f" {_gib(forecast.total)}){sooner}{less}, or choose a quieter hour"
    )


def _gib(size: float) -> str:
    """Rounded up to a tenth, as LVM and `snapshot.size` take it."""
    return f"{ceil(10 * size / (1 << 30)) / 10:g} GiB"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the samples since the snapshot amount to."""

    limits: SettleLimits
    ratios: list[Point]
    rates: list[Point]
    slowdowns: list[Point]  # latency ÷ baseline, of the looks that compare with it
    used: int
    began: bool  # there is something to tell of the shock: a window, or two looks
    probing: bool

    @classmethod
    def of(
        cls, samples: Sequence[Sample], limits: SettleLimits, *, probing: bool, baseline_latency_ms: float | None
    ) -> "_Seen":
        since = [sample for sample in samples if sample.stage != BASELINE]
        used = [sample.cow_used for sample in since if sample.cow_used is not None]
        alike = [sample for sample in since if (sample.iops is not None) == probing]
        return cls(
            limits,
            points((sample.at_seconds, sample.ratio) for sample in since),
            points((sample.at_seconds, sample.cow_rate) for sample in since),
            points((sample.at_seconds, _slowdown(sample.write_latency_ms, baseline_latency_ms)) for sample in alike),
            used[-1] if used else 0,
            len(since) > 1 or any(sample.ratio is not None for sample in since),
            probing,
        )

    def settled(self) -> bool:
        """Writes are cheap enough, and the server's own first writes have died down as far as that can be seen."""
        if not self.probing:
            return len(self.rates) >= _LEAST_RATES and self._is_quiet() and self._is_fast()
        return self._is_cheap() and self._is_quiet()

    def plateau(self) -> bool:
        """No signal that counts has fallen lately: what it costs now, it will cost later."""
        if not self.probing:
            lately = self.rates[-self.limits.plateau_looks :]
            if len(lately) < self.limits.plateau_looks or is_falling(lately):
                return False
            return not is_falling([slowdown for slowdown in self.slowdowns if slowdown.at >= lately[0].at])
        windows = self.ratios[-self.limits.plateau_windows :]
        if len(windows) < self.limits.plateau_windows or is_falling(windows):
            return False
        meanwhile = [rate for rate in self.rates if rate.at >= windows[0].at]
        return self._is_quiet() or not is_falling(meanwhile)

    def need(self, forecast: CowForecast, wait_seconds: float = 0.0) -> float:
        """Bytes of the COW area that this wait and the copy are forecast to fill, with those by now."""
        return self.used + expected_sum(self.rates[-TREND_RATES:], wait_seconds + (forecast.copy_seconds or 0.0))

    def shortage(self, forecast: CowForecast | None, wait_seconds: float) -> str | None:
        """Why the COW area would not last through this wait and the copy, in words; None where it would."""
        if forecast is None or len(self.rates) < FORECAST_RATES:
            return None
        seconds = wait_seconds + (forecast.copy_seconds or 0.0)
        need, total = self.need(forecast, wait_seconds), forecast.total + forecast.growth
        if need <= self.limits.max_cow_fill * total:
            return None
        what = " and ".join(
            [*(["waiting a little longer"] if wait_seconds else []), *(["the copy"] if forecast.copy_seconds else [])]
        )
        return (
            f"{forecast.area.name} is forecast to be {need / total:.0%} full after {what} ({seconds:.0f} s),"
            f" the limit is {self.limits.max_cow_fill:.0%}"
        )

    def dearer_later(self, forecast: CowForecast) -> str | None:
        """Why another second of waiting costs more than it saves, in words; None where it does not, or is not known.

        Both prices go with the rate of first writes. The snapshot lives for a second longer, at the rate at which the
        copy then ends; and the copy meets the rate of that second instead of the one of now, where a first write is
        taken to cost as much again as it does alone; `patience` is how many times more the copy's share counts. What a
        probe's windows say is heard too: while they fall it waits.
        """
        seconds, patience = forecast.expected_seconds, self.limits.patience
        if seconds is None or patience is None or is_falling(self.ratios[-self.limits.plateau_windows :]):
            return None
        looks = max(TREND_RATES, ceil(seconds * _TREND_SHARE))
        lately = self.rates[-looks:]
        now = recent(lately)
        if len(lately) < looks or not now or patience * now > _WORTH_WAITING * expected_after(lately, seconds):
            return None
        return f"first writes will hardly drop during the copy (about {seconds:.0f} s), waiting would not pay off"

    def words(self) -> str:
        """Where both signals stand, and which of them keeps the gate shut when the other would open it."""
        parts = []
        if self.ratios:
            parts.append(f"penalty {self.ratios[-1].value:.2f} (threshold {self.limits.threshold:g})")
        if self.rates:
            share = f", {recent(self.rates) / highest:.0%} of their peak" if (highest := peak(self.rates)) else ""
            parts.append(f"the server's first writes are at {recent(self.rates) / _MIB:.2f} MiB/s{share}")
        if self.slowdowns:
            parts.append(f"average write latency is {recent(self.slowdowns):.2f}× the baseline")
        if self.probing and self._is_cheap() and not self._is_quiet():
            parts.append(OWN_CHUNKS)
        return "; ".join(parts) or "nothing could be measured"

    def _is_cheap(self) -> bool:
        return self._are_low(self.ratios)

    def _is_fast(self) -> bool:
        """Nobody writes, or it is not known what writes took before, or they take no longer than is worth paying."""
        return not self.slowdowns or self._are_low(self.slowdowns)

    def _are_low(self, series: Sequence[Point]) -> bool:
        lately = series[-self.limits.windows :]
        return len(lately) >= self.limits.windows and all(point.value <= self.limits.threshold for point in lately)

    def _is_quiet(self) -> bool:
        """Nothing that was measured says that the server still has first writes to pay for."""
        return recent(self.rates) <= max(self.limits.quiet_share * peak(self.rates), self.limits.quiet_rate)


def _latest(samples: Sequence[Sample]) -> tuple[list[float], float | None, int | None]:
    """The last ratios, lag and fill that were measured; looks back only as far as it must."""
    ratios: list[float] = []
    lag: float | None = None
    used: int | None = None
    for sample in reversed(samples):
        if sample.stage == BASELINE:
            break
        if sample.ratio is not None and isfinite(sample.ratio) and len(ratios) < _LIMIT_WINDOWS:
            ratios.append(sample.ratio)
        if lag is None:
            lag = sample.replica_lag_seconds
        if used is None:
            used = sample.cow_used
        if len(ratios) == _LIMIT_WINDOWS and lag is not None and used is not None:
            break
    return ratios, lag, used


def _slowdown(latency_ms: float | None, baseline_ms: float | None) -> float | None:
    if latency_ms is None or baseline_ms is None or baseline_ms <= 0:
        return None
    return latency_ms / baseline_ms
