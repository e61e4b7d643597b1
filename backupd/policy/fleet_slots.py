"""Which slot of which target each try of a night took, and for how long.

Knows: that a try takes a slot of each target of its backup from its beginning to its end. Records do not say which of
several slots it was: whoever begins takes the lowest that is free, so that the slots drawn are no more than were taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.vocabulary.fleet import OVER, FleetBackup, FleetState, FleetTry


@dataclass(frozen=True, slots=True)
class SlotUse:
    """One try in one slot of one target."""

    target: str
    slot: int  # from 0
    begin: datetime
    end: datetime
    backup: FleetBackup
    tried: FleetTry


def slot_uses(backups: Iterable[FleetBackup], *, now: datetime) -> dict[str, list[SlotUse]]:
    """By target, in the order in which they began. What goes on goes on until `now`."""
    spans = sorted(
        (
            (target, tried.began_at, _end(backup, tried, now), backup, tried)
            for backup in backups
            for tried in backup.tries
            for target in backup.owed.targets
        ),
        key=lambda span: (span[1], span[4].run_id),
    )
    found: dict[str, list[SlotUse]] = {}
    taken_until: dict[str, list[datetime]] = {}
    for target, begin, end, backup, tried in spans:
        slots = taken_until.setdefault(target, [])
        slot = next((number for number, until in enumerate(slots) if until <= begin), len(slots))
        slots[slot:] = [end, *slots[slot + 1 :]]
        found.setdefault(target, []).append(SlotUse(target, slot, begin, end, backup, tried))
    return found


def holding(backups: Iterable[FleetBackup], target: str) -> list[FleetBackup]:
    """Those that have a slot of this target now."""
    return [one for one in backups if one.state is FleetState.RUNNING and target in one.owed.targets]


def most_at_once(uses: Sequence[SlotUse]) -> int:
    """The most slots of one target that were taken at one time."""
    return max((use.slot + 1 for use in uses), default=0)


def busy_seconds(uses: Iterable[SlotUse]) -> float:
    """How long its slots were taken, summed."""
    return sum((use.end - use.begin).total_seconds() for use in uses)


def _end(backup: FleetBackup, tried: FleetTry, now: datetime) -> datetime:
    """Of a try whose end nobody saw: when its backup was over."""
    if tried.ended_at is not None:
        return max(tried.began_at, tried.ended_at)
    until = backup.changed_at if backup.state in OVER and backup.changed_at is not None else now
    return max(tried.began_at, until)
