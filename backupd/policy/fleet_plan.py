"""What a night owes: of each cluster and job which backup, by which member, from when to when, and in which order.

Knows: what is due, who is most overdue, and what each backup is expected to take, from what hosts have told last. When
each would run is in `fleet_timetable`.

A backup is owed in a night where the last good one would be older than the policy allows before the next night's
windows open: so it does not slip by a little from night to night, and a night that failed is made good in the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from statistics import median
from typing import Final

from backupd.policy.member_choice import MemberRule, choose_member, described_job, owing
from backupd.policy.night_times import closed_between, night_span, openings
from backupd.policy.timetable import stable_offset
from backupd.vocabulary.fleet import DescribedJob, OwedBackup, SeenHost, Span
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.schedule import Blackout

ASSUMED_SECONDS: Final = 3600.0  # of a backup of which nobody knows anything yet, in a fleet without any
_NEVER: Final = 1_000_000  # periods overdue
_LONGEST_SECONDS: Final = 1e9  # thirty years: instants can be reckoned with it
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NightClock:
    """When nights are."""

    zone: str
    begins: time


@dataclass(frozen=True, slots=True)
class ClusterTerms:
    """What the policy of a cluster says of it."""

    cluster: str
    jobs: tuple[str, ...]
    members: tuple[str, ...]
    windows: tuple[Blackout, ...]
    rule: MemberRule
    every_seconds: float  # 0: it is owed, however new the last good one is
    spread_seconds: float
    every_member: bool = False
    blackout: tuple[Blackout, ...] = ()
    start_within_seconds: float | None = None  # of the opening of its window


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """What a target takes: so many backups at a time, and so many bytes a second of all of them."""

    name: str
    slots: int
    max_rate: int | None = None

    @property
    def rate_of_one(self) -> int | None:
        """Bytes a second of each backup, so that all slots together stay within the target's."""
        return None if self.max_rate is None else max(self.max_rate // self.slots, 1)


@dataclass(frozen=True, slots=True)
class NotOwed:
    """A backup that this night does not owe, and why."""

    cluster: str
    job: str
    only: str
    said: str


@dataclass(frozen=True, slots=True)
class BrokenPlan:
    """A backup that could not be planned, by a fault of backupd; nobody knows whether this night owes it."""

    owed: OwedBackup  # as far as it is known without what hosts told
    error: Exception

    @property
    def said(self) -> str:
        """The fault, in a sentence."""
        return f"backupd could not plan it, which is a bug in it: {type(self.error).__name__}: {self.error}"


@dataclass(frozen=True, slots=True)
class NightPlan:
    """What a night owes, by priority, and what it does not."""

    night: date
    owed: tuple[OwedBackup, ...]
    not_owed: tuple[NotOwed, ...]
    assumed: tuple[str, ...]  # ids of those of which no duration is known
    broken: tuple[BrokenPlan, ...] = ()  # they are among `not_owed` as well


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A backup before it has its place among the others."""

    owed: OwedBackup
    overdue: int  # whole periods that have passed since the last good one
    known: bool  # its duration


def plan_night(
    night: date,
    clusters: Sequence[ClusterTerms],
    seen: Mapping[str, SeenHost],
    targets: Mapping[str, SharedTarget],
    clock: NightClock,
) -> NightPlan:
    """All backups that this night owes. The same values give the same plan, in whichever order the clusters are.

    Each is planned apart: what a host told, and nobody foresaw, costs its own cluster the night and no other.
    """
    found: list[_Candidate] = []
    not_owed: list[NotOwed] = []
    broken: list[BrokenPlan] = []
    known = _Openings(clock)
    for terms in sorted(clusters, key=lambda one: one.cluster):
        for job in terms.jobs:
            for only in owing(terms.members, every_member=terms.every_member):
                try:
                    made = _candidate(night, terms, job, only, seen, targets, known)
                except Exception as error:  # noqa: BLE001 - any fault at all: the other clusters have their night
                    broken.append(BrokenPlan(_unplanned(night, terms, job, only, clock), error))
                    not_owed.append(NotOwed(terms.cluster, job, only, broken[-1].said))
                    continue
                if isinstance(made, NotOwed):
                    not_owed.append(made)
                else:
                    found.append(made)
    return replace(_ordered(night, found, tuple(not_owed), targets), broken=tuple(broken))


def _unplanned(night: date, terms: ClusterTerms, job: str, only: str, clock: NightClock) -> OwedBackup:
    """What is known of a backup without its hosts."""
    whole = night_span(night, begins=clock.begins, zone=clock.zone)
    members = (only,) if only else terms.members
    return OwedBackup(night, terms.cluster, job, members, (), whole.begin, whole.end, 0, 0.0, 0, only)


class _Openings:
    """When in a night a backup may begin; many clusters have few policies."""

    def __init__(self, clock: NightClock) -> None:
        self._clock = clock
        self._known: dict[tuple[date, tuple[Blackout, ...], tuple[Blackout, ...]], tuple[Span, ...]] = {}

    def of(self, night: date, terms: ClusterTerms) -> tuple[Span, ...]:
        """Of this cluster."""
        key = (night, terms.windows, terms.blackout)
        if key not in self._known:
            self._known[key] = openings(
                night, terms.windows, terms.blackout, begins=self._clock.begins, zone=self._clock.zone
            )
        return self._known[key]

    def next_after(self, night: date, terms: ClusterTerms) -> datetime | None:
        """When the windows of the first night after this one open that has any; None: of no night within two weeks."""
        for days in range(1, 15):
            if opened := self.of(night + days * _DAY, terms):
                return opened[0].begin
        return None


def _candidate(
    night: date,
    terms: ClusterTerms,
    job: str,
    only: str,
    seen: Mapping[str, SeenHost],
    targets: Mapping[str, SharedTarget],
    known: _Openings,
) -> _Candidate | NotOwed:
    opened = known.of(night, terms)
    if not opened:
        return NotOwed(terms.cluster, job, only, "no window of its policy is in this night")
    members = (only,) if only else terms.members
    told = {host: found for host in members if (found := described_job(seen.get(host), job)) is not None}
    last_good = max((one.last_good_at for one in told.values() if one.last_good_at is not None), default=None)
    following = known.next_after(night, terms)
    due = None if last_good is None else last_good + timedelta(seconds=terms.every_seconds)
    if terms.every_seconds and last_good and due and following and due >= following:
        return NotOwed(terms.cluster, job, only, f"the last good one, of {to_the_minute(last_good)}, is new enough")
    begin, end = _span(opened, terms, job, only)
    ordered = _by_preference(members, job, seen, terms.rule)
    first = next((told[host] for host in ordered if host in told), None)
    expected = _expected(first, told)
    owed = OwedBackup(
        night=night,
        cluster=terms.cluster,
        job=job,
        members=ordered,
        targets=tuple(
            sorted({name for host in ordered if host in told for name in told[host].targets} & targets.keys())
        ),
        not_before=begin,
        not_after=end,
        priority=0,
        expected_seconds=expected[0] if expected else 0.0,
        expected_bytes=expected[1] if expected else 0,
        only=only,
        closed=closed_between(opened),
    )
    return _Candidate(owed, _overdue(opened[0].begin, last_good, terms.every_seconds), expected is not None)


def _overdue(begin: datetime, last_good: datetime | None, every_seconds: float) -> int:
    """Whole periods that have passed by then."""
    if last_good is None or not every_seconds:
        return _NEVER
    return max(int((begin - last_good).total_seconds() // every_seconds), 0)


def _span(opened: Sequence[Span], terms: ClusterTerms, job: str, only: str) -> tuple[datetime, datetime]:
    """From when, by its share of the spread, to when at the latest it may begin; to the second, as clocks are read.

    Half of that time is left to whoever has the largest share: a blackout, or a window of some days, may be short.
    """
    first = opened[0]
    latest = opened[-1].end - timedelta(seconds=1)
    if terms.start_within_seconds is not None:
        latest = min(latest, first.begin + timedelta(seconds=terms.start_within_seconds))
    spread = min(terms.spread_seconds, (latest - first.begin).total_seconds() / 2)
    offset = stable_offset(spread, terms.cluster, job, only)
    return first.begin + timedelta(seconds=offset), latest


def _by_preference(members: Sequence[str], job: str, seen: Mapping[str, SeenHost], rule: MemberRule) -> tuple[str, ...]:
    """The fit ones, the best first, and behind them the others, which may have become fit by then."""
    chosen = choose_member(members, job, seen, rule)
    return tuple(one.host for one in (*chosen.fit, *chosen.unfit))


def _expected(first: DescribedJob | None, told: Mapping[str, DescribedJob]) -> tuple[float, int] | None:
    """Seconds and bytes: of the preferred member, else the most of another's; None where no member knows."""
    knows = [one for one in (first, *told.values()) if one is not None and one.expected_seconds is not None]
    if not knows:
        return None
    one = knows[0] if knows[0] is first else max(knows, key=lambda each: each.expected_seconds or 0.0)
    return one.expected_seconds or 0.0, one.expected_bytes or 0


def _ordered(
    night: date, found: Sequence[_Candidate], not_owed: tuple[NotOwed, ...], targets: Mapping[str, SharedTarget]
) -> NightPlan:
    """Who is most overdue goes first, and of these the longest: they would end last if they began late."""
    usual = median([one.owed.expected_seconds for one in found if one.known] or [ASSUMED_SECONDS])
    filled = [
        replace(one, owed=_within_rate(one.owed if one.known else replace(one.owed, expected_seconds=usual), targets))
        for one in found
    ]
    filled.sort(key=lambda one: (-one.overdue, -one.owed.expected_seconds, one.owed.id))
    owed = tuple(replace(one.owed, priority=at) for at, one in enumerate(filled, 1))
    return NightPlan(night, owed, not_owed, tuple(_assumed(filled)))


def _assumed(filled: Sequence[_Candidate]) -> Iterator[str]:
    return (one.owed.id for one in filled if not one.known)


def _within_rate(owed: OwedBackup, targets: Mapping[str, SharedTarget]) -> OwedBackup:
    """With the ceiling that its targets set, and no sooner done than that allows."""
    rates = [rate for name in owed.targets if (rate := targets[name].rate_of_one) is not None]
    if not rates:
        return owed
    rate = min(rates)
    seconds = min(owed.expected_bytes / rate, _LONGEST_SECONDS)  # a host may tell any size
    return replace(owed, max_rate=rate, expected_seconds=max(owed.expected_seconds, seconds))
