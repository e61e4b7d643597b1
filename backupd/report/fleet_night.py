"""What became of a fleet's nights, in figures: one night, or the nights of a month.

Knows: how they are counted. What is drawn and printed of them is elsewhere.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from backupd.policy.fleet_slots import busy_seconds, most_at_once, slot_uses
from backupd.report.fleet_words import good_try, took_seconds
from backupd.vocabulary.fleet import OVER, FleetBackup, FleetState
from backupd.vocabulary.records import lasted


@dataclass(frozen=True, slots=True)
class TargetNight:
    """How much of a target a night took."""

    target: str
    slots: int | None  # its limit; None: the configuration does not have it any more
    most: int  # slots that were taken at one time
    busy_seconds: float  # of its slots, summed
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class NightReport:
    """One night."""

    night: date
    backups: tuple[FleetBackup, ...]
    counts: Mapping[FleetState, int]
    began_at: datetime | None  # its first try
    ended_at: datetime | None  # its last; None while one goes on
    stored_bytes: int
    lost_transactions: int
    tried_again: int  # backups that took more than one try
    targets: tuple[TargetNight, ...]

    @property
    def seconds(self) -> float | None:
        """From the first beginning to the last end."""
        return None if self.began_at is None else lasted(self.began_at, self.ended_at)

    @property
    def amiss(self) -> tuple[FleetBackup, ...]:
        """What did not become a backup, and is over."""
        bad = (FleetState.FAILED, FleetState.MISSED, FleetState.CANCELLED)
        return tuple(one for one in self.backups if one.state in bad)


def night_report(
    night: date, backups: Sequence[FleetBackup], slots: Mapping[str, int], *, now: datetime
) -> NightReport:
    """Of all that the night owed."""
    tries = [one for backup in backups for one in backup.tries]
    ends = [one.ended_at for one in tries]
    uses = slot_uses(backups, now=now)
    stored: Counter[str] = Counter()
    for backup in backups:
        if backup.state is FleetState.DONE:
            for target in backup.owed.targets:
                stored[target] += backup.stored_bytes or 0
    return NightReport(
        night,
        tuple(backups),
        counts=Counter(one.state for one in backups),
        began_at=min((one.began_at for one in tries), default=None),
        ended_at=max((end for end in ends if end is not None), default=None) if None not in ends else None,
        stored_bytes=sum(one.stored_bytes or 0 for one in backups if one.state is FleetState.DONE),
        lost_transactions=sum(one.lost_transactions or 0 for one in backups),
        tried_again=sum(len(one.tries) > 1 for one in backups),
        targets=tuple(
            TargetNight(
                target, slots.get(target), most_at_once(uses[target]), busy_seconds(uses[target]), stored[target]
            )
            for target in sorted(uses)
        ),
    )


@dataclass(frozen=True, slots=True)
class ClusterMonth:
    """What became of a cluster's backups in a month."""

    cluster: str
    counts: Mapping[FleetState, int]
    stored_bytes: int
    lost_transactions: int
    median_seconds: float | None  # that a good one took
    longest_gap_nights: int  # nights one after the other without a good one, of those that have passed

    @property
    def owed(self) -> int:
        """How many there were to be."""
        return sum(self.counts.values())

    @property
    def good_share(self) -> float | None:
        """Of those that are over; None where none is."""
        over = sum(self.counts.get(state, 0) for state in OVER)
        return self.counts.get(FleetState.DONE, 0) / over if over else None


@dataclass(frozen=True, slots=True)
class MonthReport:
    """The nights of a month."""

    first: date
    last: date  # of those that have begun
    clusters: tuple[ClusterMonth, ...]  # the worst first
    counts: Mapping[FleetState, int]
    outcomes: tuple[tuple[date, str, str, FleetState], ...]
    stored_bytes: int
    lost_transactions: int

    @property
    def nights(self) -> list[date]:
        """Each of them."""
        return [self.first + timedelta(days=day) for day in range((self.last - self.first).days + 1)]


def month_report(first: date, last: date, backups: Sequence[FleetBackup], *, passed: date) -> MonthReport:
    """Of all that these nights owed; of those up to `passed` nothing more is to come."""
    by_cluster: dict[str, list[FleetBackup]] = defaultdict(list)
    for backup in backups:
        by_cluster[backup.owed.cluster].append(backup)
    over = min(last, passed)
    clusters = [_month_of(cluster, first, over, found) for cluster, found in by_cluster.items()]
    return MonthReport(
        first,
        last,
        tuple(sorted(clusters, key=lambda one: (-one.longest_gap_nights, -_bad(one.counts), one.cluster))),
        Counter(one.state for one in backups),
        tuple((one.owed.night, one.owed.cluster, one.owed.id, one.state) for one in backups),
        stored_bytes=sum(one.stored_bytes for one in clusters),
        lost_transactions=sum(one.lost_transactions for one in clusters),
    )


def _month_of(cluster: str, first: date, over: date, backups: Sequence[FleetBackup]) -> ClusterMonth:
    good = [one for one in backups if one.state is FleetState.DONE]
    took = sorted(seconds for one in good if (seconds := took_seconds(one)) is not None)
    return ClusterMonth(
        cluster,
        Counter(one.state for one in backups),
        stored_bytes=sum(one.stored_bytes or 0 for one in good),
        lost_transactions=sum(one.lost_transactions or 0 for one in backups),
        median_seconds=took[len(took) // 2] if took else None,
        longest_gap_nights=_longest_gap(first, over, (one.owed.night for one in good if good_try(one) is not None)),
    )


def _longest_gap(first: date, over: date, good: Iterable[date]) -> int:
    edges = [first - timedelta(days=1), *sorted(set(good)), over + timedelta(days=1)]
    return max((later - earlier).days - 1 for earlier, later in pairwise(edges))


def _bad(counts: Mapping[FleetState, int]) -> int:
    return counts.get(FleetState.FAILED, 0) + counts.get(FleetState.MISSED, 0)
