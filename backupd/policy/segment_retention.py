"""Which segments of a binlog archive stay on a target: all that a backup which is kept there may be rolled forward by.

Knows: why each stays or goes. Refuses to know where they lie and how they are removed.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.policy.binlog_chain import PlacedBackup, covering
from backupd.vocabulary.binlogs import BinlogSegment


@dataclass(frozen=True, slots=True)
class SegmentDecision:
    """What retention says of one segment on one target, and why."""

    name: str
    keep: bool
    reason: str


def wanted(
    segments: Sequence[BinlogSegment],
    kept: Sequence[PlacedBackup],
    now: datetime,
    *,
    elsewhere: Sequence[BinlogSegment] = (),
) -> tuple[SegmentDecision, ...]:
    """A decision for each segment of a target, in their order; whether the kept backups are good means nothing.

    What follows a kept backup in its chain stays, beyond a gap too: another target may have what is missing. So does
    what was received since the newest kept backup was taken: one that is under way may need it. `elsewhere` are
    segments of other targets, by which it is known where a backup stands although this target lacks its segment.
    """
    first: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for backup in kept:
        for chain, number in covering(backup, [*segments, *elsewhere]).items():
            first[chain].append((number, backup.run_id))
    newest = max(kept, key=lambda backup: backup.taken_at, default=None)
    oldest = {chain: min(numbers) for chain, numbers in first.items()}
    ordered = sorted(segments, key=lambda segment: (segment.chain, segment.number))
    return tuple(_decision(segment, oldest.get(segment.chain), newest, now) for segment in ordered)


def _decision(
    segment: BinlogSegment, oldest: tuple[int, str] | None, newest: PlacedBackup | None, now: datetime
) -> SegmentDecision:
    if newest is None:
        return SegmentDecision(segment.name, keep=True, reason="there is no backup that tells what is needed")
    if oldest is not None and segment.number >= oldest[0]:
        return SegmentDecision(segment.name, keep=True, reason=f"backup {oldest[1]} is rolled forward by it")
    if segment.received_at > now:
        return SegmentDecision(segment.name, keep=True, reason="dated in the future: a clock is or was wrong")
    if segment.received_at >= newest.taken_at:
        return SegmentDecision(segment.name, keep=True, reason=f"received since the last backup, {newest.run_id}")
    if oldest is not None:
        return SegmentDecision(segment.name, keep=False, reason=f"expired: before the oldest backup, {oldest[1]}")
    return SegmentDecision(segment.name, keep=False, reason="expired: no backup can be rolled forward by its chain")
