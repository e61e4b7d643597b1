"""What months of backups cost their server: medians, trends, and which runs stood out.

Pure: from slim rows to figures. Knows: which figures count, when one has grown, and when one stands out. Medians
throughout: one bad night must not be a trend.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, isfinite
from statistics import median

from backupd.catalogue.costs import Beside, RunCost
from backupd.report.costs import copy_rate, hold_seconds, penalties
from backupd.report.words import count, duration, ratio, size, speed
from backupd.vocabulary.records import GOOD, RunStatus

RECENT = timedelta(days=30)
_OUTLIER = 3.0  # times the median, or a third of it where less is worse
_FEWEST = 5  # values that a median needs before anything can stand out from it, or on each side of a trend
_TREND = 1.25  # what changes by less is called steady: nights differ by as much


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run: its key in documents, its name in words, and how it is said."""

    key: str
    name: str
    of: Callable[[RunCost], float | None]
    say: Callable[[float | None], str]
    more_is_worse: bool = True
    floor: float = 0.0  # a value below it is harmless whatever the median


MEASURES = (
    Measure("lock_hold_seconds", "lock held", hold_seconds, duration, floor=0.05),
    Measure("lock_wait_seconds", "lock waited for", lambda cost: cost.lock_wait_seconds, duration, floor=1.0),
    Measure("transactions_lost", "transactions lost", lambda cost: cost.transactions_lost, count, floor=100.0),
    Measure("penalty_seconds", "writes delayed by", lambda cost: cost.penalty_seconds, duration, floor=10.0),
    Measure("stalled_statements", "statements stalled", lambda cost: cost.stalled, count, floor=10.0),
    Measure("copied_on_write_bytes", "copied on write", lambda cost: cost.copied_on_write, size, floor=float(64 << 20)),
    Measure("disk_seconds", "disks busy for", lambda cost: cost.disk_seconds, duration, floor=60.0),
    Measure("penalty_initial_ratio", "penalty at first", lambda cost: penalties(cost)[0], ratio, floor=1.5),
    Measure("penalty_settled_ratio", "penalty when copying", lambda cost: penalties(cost)[1], ratio, floor=1.5),
    Measure("settle_seconds", "settle wait", lambda cost: cost.settle_seconds, duration, floor=10.0),
    Measure("copy_seconds", "copied in", lambda cost: cost.copy_seconds, duration, floor=10.0),
    Measure("copy_bytes_per_second", "copy rate", copy_rate, speed, more_is_worse=False),
    Measure("cow_used_peak_bytes", "COW area used", lambda cost: cost.cow_used_peak, size, floor=float(64 << 20)),
    Measure("stored_bytes", "stored", lambda cost: cost.bytes_stored, size, floor=float(1 << 20)),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """The newest values beside those before them, by their medians."""

    before: float
    recent: float
    since: datetime  # what is recent began then

    @property
    def factor(self) -> float | None:
        """Recent ÷ before; None where that means nothing."""
        return self.recent / self.before if self.before > 0 and isfinite(self.recent / self.before) else None

    @property
    def direction(self) -> str:
        """`grown`, `shrunk` or `steady`."""
        if self.factor is None:
            return "grown" if self.recent > self.before else "steady"
        return "grown" if self.factor >= _TREND else "shrunk" if self.factor <= 1 / _TREND else "steady"


@dataclass(frozen=True, slots=True)
class Outlier:
    """A value that is far worse than the job's median."""

    run_id: str
    at: datetime
    measure: Measure
    value: float
    times: float  # the median, or below it where less is worse

    @property
    def words(self) -> str:
        """`lock held 180 ms, 6x the median`."""
        than = f"{self.times:.0f}x the median" if self.measure.more_is_worse else f"1/{self.times:.0f} of the median"
        return f"{self.measure.name} {self.measure.say(self.value)}, {than}"


@dataclass(frozen=True, slots=True)
class Summary:
    """One figure over all good runs of a job."""

    measure: Measure
    points: tuple[tuple[datetime, float], ...]  # the oldest first
    median: float
    p95: float  # of a hundred runs five were worse
    worst: float
    trend: Trend | None  # None: there are too few on one side
    outliers: tuple[Outlier, ...]  # the worst first


@dataclass(frozen=True, slots=True)
class Impact:
    """What the backups of one job cost in a time."""

    job: str
    since: datetime | None
    until: datetime
    outcomes: Mapping[RunStatus, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)  # by the error's code
    gates: Mapping[str, int] = field(default_factory=dict)  # why the copy was started
    missed: int = 0  # slots
    drills: int = 0
    drills_failed: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    last_good_at: datetime | None = None
    summaries: tuple[Summary, ...] = ()

    @property
    def runs(self) -> int:
        """Whatever became of them."""
        return sum(self.outcomes.values())

    @property
    def outliers(self) -> tuple[Outlier, ...]:
        """Of every figure, those that stand out most first."""
        found = [outlier for summary in self.summaries for outlier in summary.outliers]
        return tuple(sorted(found, key=lambda outlier: -outlier.times))


def impacts(
    costs: Sequence[RunCost], beside: Mapping[str, Beside], *, since: datetime | None, now: datetime
) -> tuple[Impact, ...]:
    """Each job that has runs, or that something happened beside, by name."""
    jobs = sorted({cost.job for cost in costs} | set(beside))
    of_jobs: dict[str, list[RunCost]] = {job: [] for job in jobs}
    for cost in costs:
        of_jobs[cost.job].append(cost)
    return tuple(_impact(job, of_jobs[job], beside.get(job, Beside()), since=since, now=now) for job in jobs)


def _impact(job: str, costs: Sequence[RunCost], beside: Beside, *, since: datetime | None, now: datetime) -> Impact:
    ordered = sorted(costs, key=lambda cost: (cost.started_at, cost.run_id))
    good = [cost for cost in ordered if cost.status in GOOD]
    known = ((measure, _values(good, measure)) for measure in MEASURES)
    return Impact(
        job=job,
        since=since,
        until=now,
        outcomes=Counter(cost.status for cost in ordered),
        failures=Counter(cost.error for cost in ordered if cost.error is not None),
        gates=Counter(cost.gate.value for cost in good if cost.gate is not None),
        missed=beside.missed,
        drills=beside.drills,
        drills_failed=beside.drills_failed,
        first_at=ordered[0].started_at if ordered else None,
        last_at=ordered[-1].started_at if ordered else None,
        last_good_at=good[-1].started_at if good else None,
        summaries=tuple(_summary(measure, values) for measure, values in known if values),
    )


_Value = tuple[RunCost, float]


def _values(costs: Sequence[RunCost], measure: Measure) -> list[_Value]:
    found = ((cost, measure.of(cost)) for cost in costs)
    return [(cost, value) for cost, value in found if value is not None and isfinite(value)]


def _summary(measure: Measure, values: Sequence[_Value]) -> Summary:
    ascending = sorted((value for _, value in values), reverse=not measure.more_is_worse)
    middle = median(ascending)
    return Summary(
        measure=measure,
        points=tuple((cost.started_at, value) for cost, value in values),
        median=middle,
        p95=ascending[ceil(0.95 * len(ascending)) - 1],
        worst=ascending[-1],
        trend=_trend(values),
        outliers=_outliers(measure, values, middle),
    )


def _trend(values: Sequence[_Value]) -> Trend | None:
    """The last 30 days, or the last third of what there is where that is shorter, against all before."""
    first, last = values[0][0].started_at, values[-1][0].started_at
    since = last - min(RECENT, (last - first) / 3)
    before = [value for cost, value in values if cost.started_at < since]
    recent = [value for cost, value in values if cost.started_at >= since]
    if min(len(before), len(recent)) < _FEWEST:
        return None
    return Trend(median(before), median(recent), since)


def _outliers(measure: Measure, values: Sequence[_Value], middle: float) -> tuple[Outlier, ...]:
    if len(values) < _FEWEST or middle <= 0:
        return ()
    found = []
    for cost, value in values:
        times = value / middle if measure.more_is_worse else middle / value if value > 0 else 0.0
        if times >= _OUTLIER and value >= measure.floor:
            found.append(Outlier(cost.run_id, cost.started_at, measure, value, times))
    return tuple(sorted(found, key=lambda outlier: -outlier.times))
