"""What can be restored of a job's binlog archive: from when to when, and why not in between.

Knows: that moments from a good backup's own up to the last transaction that follows it without a gap can be restored.
Pure values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from backupd.policy.binlog_chain import ChainRow, PlacedBackup, continuations, last_at
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment, lost_from


@dataclass(frozen=True, slots=True)
class RestorableStretch:
    """Moments that can be restored: from that of a backup up to the last transaction that follows it without a gap."""

    backup: PlacedBackup  # the oldest good one
    chain: str  # empty where no segment follows the backup
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Hole:
    """Moments between two stretches that cannot be restored."""

    since: datetime
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What can be restored, in the order of time."""

    stretches: tuple[RestorableStretch, ...]
    holes: tuple[Hole, ...]


def newest_first(backups: Sequence[PlacedBackup]) -> list[PlacedBackup]:
    """The good ones."""
    good = (backup for backup in backups if backup.good)
    return sorted(good, key=lambda backup: (backup.taken_at, backup.run_id), reverse=True)


def reach(
    backups: Sequence[PlacedBackup],
    found: Sequence[ChainRow],
    gaps: Sequence[ArchiveGap] = (),
    *,
    now: datetime | None = None,
) -> Reach:
    """Which moments can be restored; the gaps that are known tell why others cannot.

    Of a row those segments are enough that an `Archive` has of it. A backup that was taken later than now, by a clock
    that was ahead, is of no moment that can be told.
    """
    stretches: list[RestorableStretch] = []
    for backup in reversed(newest_first(backups)):
        if now is not None and not backup.has_come(now):
            continue
        until, following = followed_until(backup, found)
        if not stretches or until > stretches[-1].until:
            stretches.append(RestorableStretch(backup, following[0].chain if following else "", backup.taken_at, until))
    holes = [
        Hole(before.until, after.since, _why(before, after, found, gaps))
        for before, after in pairwise(stretches)
        if before.until < after.since
    ]
    return Reach(tuple(stretches), tuple(holes))


def followed_until(backup: PlacedBackup, found: Sequence[ChainRow]) -> tuple[datetime, tuple[BinlogSegment, ...]]:
    """Up to when the backup can be rolled forward, and by which segments; its own moment where none follows it."""
    found_ends = ((last_at(following), following) for following in continuations(backup, found))
    ends = [(max(backup.taken_at, at or backup.taken_at), following) for at, following in found_ends]
    return max(ends, key=lambda end: end[0], default=(backup.taken_at, ()))


def _why(
    before: RestorableStretch, after: RestorableStretch, found: Sequence[ChainRow], gaps: Sequence[ArchiveGap]
) -> str:
    if not before.chain:
        return f"no segment follows backup {before.backup.run_id}"
    row = next((row for row in found if (row.chain, row.last_at) == (before.chain, before.until)), None)
    names = [] if row is None else [lost_from(row.chain, row.segments[-1].number + 1)]
    told = [gap.reason for name in (*names, before.chain) for gap in gaps if gap.chain == name]
    ended = "" if row is None else row.ended
    following = f"chain {after.chain}" if after.chain else "none"
    return next(iter(told), ended) or f"chain {before.chain} ended, and {following} follows"
