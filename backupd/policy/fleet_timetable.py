"""When each backup of a night would run, as an engine starts them: one at a time in a cluster, so many on a target.

Knows: list scheduling. Whenever something ends or a window opens, of all that may begin the first by priority does, as
often as that is possible; nothing waits for the sake of something else. And what no schedule could beat.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backupd.policy.fleet_plan import SharedTarget
from backupd.policy.night_times import earliest_beginning
from backupd.vocabulary.fleet import OwedBackup

_Waiting = tuple[int, str, OwedBackup]  # priority, id


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A backup, when it would begin and end, and in which slot of each of its targets, from 0."""

    owed: OwedBackup
    begins_at: datetime
    ends_at: datetime
    slots: tuple[int, ...] = ()  # as its targets are


@dataclass(frozen=True, slots=True)
class FleetTimetable:
    """A night as it would go."""

    runs: tuple[PlannedRun, ...]  # by when they begin
    missed: tuple[OwedBackup, ...]  # that could not begin in time
    bound_seconds: float  # from the first moment at which one may begin; no schedule is shorter

    @property
    def begins_at(self) -> datetime | None:
        """When the first of them may begin."""
        return min((run.owed.not_before for run in self.runs), default=None)

    @property
    def makespan_seconds(self) -> float:
        """From when the first may begin until the last has ended."""
        begin = self.begins_at
        return 0.0 if begin is None else (max(run.ends_at for run in self.runs) - begin).total_seconds()


def timetable_of(owed: Sequence[OwedBackup], targets: Mapping[str, SharedTarget]) -> FleetTimetable:
    """How the night would go if everything took as long as it is expected to. The same values give the same table."""
    scheduling = _Scheduling(targets)
    for one in owed:
        scheduling.arrives(one, one.not_before)
    scheduling.run()
    runs = tuple(sorted(scheduling.runs, key=lambda run: (run.begins_at, run.owed.priority, run.owed.id)))
    missed = tuple(sorted(scheduling.missed, key=lambda one: (one.priority, one.id)))
    return FleetTimetable(runs, missed, lower_bound_seconds([run.owed for run in runs], targets))


def lower_bound_seconds(owed: Sequence[OwedBackup], targets: Mapping[str, SharedTarget]) -> float:
    """What all of these take at least, from the first moment at which one of them may begin.

    A target has its slots, a cluster one: what they have to do, done by all slots from the moment at which the first of
    it may begin; and no backup ends before it could have begun and gone on for its time.
    """
    if not owed:
        return 0.0
    volumes: dict[tuple[str, str], list[OwedBackup]] = defaultdict(list)
    for one in owed:
        volumes["cluster", one.cluster].append(one)
        for target in one.targets:
            volumes["target", target].append(one)
    begin = min(one.not_before for one in owed)
    longest = max((one.not_before - begin).total_seconds() + one.expected_seconds for one in owed)
    return max([longest, *(_least(volume, _width(where, targets), begin) for where, volume in volumes.items())])


def _width(where: tuple[str, str], targets: Mapping[str, SharedTarget]) -> int:
    kind, name = where
    return targets[name].slots if kind == "target" and name in targets else 1


def _least(volume: Sequence[OwedBackup], slots: int, begin: datetime) -> float:
    released = (min(one.not_before for one in volume) - begin).total_seconds()
    return released + sum(one.expected_seconds for one in volume) / slots


class _Scheduling:
    """A night that is played through, from event to event."""

    def __init__(self, targets: Mapping[str, SharedTarget]) -> None:
        self.runs: list[PlannedRun] = []
        self.missed: list[OwedBackup] = []
        self._free = {name: list(range(target.slots)) for name, target in targets.items()}
        self._events: list[tuple[datetime, int, str, OwedBackup, tuple[int, ...] | None]] = []
        self._waiting: dict[tuple[str, ...], list[_Waiting]] = defaultdict(list)  # by their targets
        self._busy: set[str] = set()  # clusters
        self._behind: dict[str, list[OwedBackup]] = defaultdict(list)  # a busy cluster's, which wait for it

    def arrives(self, owed: OwedBackup, at: datetime) -> None:
        """It may begin from then on, as far as it knows."""
        heapq.heappush(self._events, (at, owed.priority, owed.id, owed, None))

    def run(self) -> None:
        """Until nothing waits and nothing goes on."""
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, _, _, owed, slots = heapq.heappop(self._events)
                if slots is None:
                    self._waits(owed)
                else:
                    self._ended(owed, slots)
            self._begin_what_can(now)
        self.missed += [owed for waiting in self._waiting.values() for _, _, owed in waiting]

    def _waits(self, owed: OwedBackup) -> None:
        heapq.heappush(self._waiting[owed.targets], (owed.priority, owed.id, owed))

    def _ended(self, owed: OwedBackup, slots: tuple[int, ...]) -> None:
        for target, slot in zip(owed.targets, slots, strict=True):
            heapq.heappush(self._free[target], slot)
        self._busy.discard(owed.cluster)
        for behind in self._behind.pop(owed.cluster, ()):
            self._waits(behind)

    def _begin_what_can(self, now: datetime) -> None:
        while (key := self._first(now)) is not None:
            _, _, owed = heapq.heappop(self._waiting[key])
            slots = tuple(heapq.heappop(self._free[target]) for target in owed.targets)
            self._busy.add(owed.cluster)
            ends = now + timedelta(seconds=owed.expected_seconds)
            self.runs.append(PlannedRun(owed, now, ends, slots))
            heapq.heappush(self._events, (ends, owed.priority, owed.id, owed, slots))

    def _first(self, now: datetime) -> tuple[str, ...] | None:
        """The targets of the first by priority that may begin now; what cannot for other reasons is put aside."""
        found: tuple[int, str, tuple[str, ...]] | None = None
        for key, waiting in self._waiting.items():
            if not all(self._free[target] for target in key):
                continue
            self._put_aside(waiting, now)
            if waiting and (found is None or waiting[0][:2] < found[:2]):
                found = (*waiting[0][:2], key)
        return None if found is None else found[2]

    def _put_aside(self, waiting: list[_Waiting], now: datetime) -> None:
        """Until its head may begin: a backup whose cluster is busy, whose window is closed, or that comes too late."""
        while waiting:
            owed = waiting[0][2]
            begin = earliest_beginning(owed, now)
            if begin is None:
                self.missed.append(owed)
            elif begin > now:
                self.arrives(owed, begin)
            elif owed.cluster in self._busy:
                self._behind[owed.cluster].append(owed)
            else:
                return
            heapq.heappop(waiting)
