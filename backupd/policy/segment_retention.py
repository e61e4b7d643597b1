"""Which segments of a binlog archive stay on a target: all that a backup which is kept there may be rolled forward by.

Knows: why each stays or goes. Refuses to know where they lie and how they are removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backupd.policy.binlog_chain import PlacedBackup, covering
from backupd.vocabulary.binlogs import BinlogSegment


@dataclass(frozen=True, slots=True)
class SegmentDecision:
    """What retention says of one segment on one target, and why."""

    name: str
    keep: bool
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentNeeds:
    """What the backups that are kept on one target need of the job's archive."""

    newest: PlacedBackup | None = None  # of those backups
    first: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # by chain: from which segment on, and by which

    @property
    def from_number(self) -> dict[str, int]:
        """By chain, the number of the first segment that one of them may be rolled forward by."""
        return {chain: number for chain, (number, _) in self.first.items()}


def needed(segments: Iterable[BinlogSegment], kept: Sequence[PlacedBackup]) -> SegmentNeeds:
    """What these backups need, good or not; `segments` are those of all targets that may have a backup's place."""
    known = list(segments)
    first: dict[str, tuple[int, str]] = {}
    for backup in kept:
        for chain, number in covering(backup, known).items():
            first[chain] = min((number, backup.run_id), first.get(chain, (number, backup.run_id)))
    return SegmentNeeds(max(kept, key=lambda backup: backup.taken_at, default=None), first)


def decision(segment: BinlogSegment, needs: SegmentNeeds, now: datetime) -> SegmentDecision:
    """Whether the segment stays on the target whose backups need that.

    What follows a kept backup in its chain stays, beyond a gap too: another target may have what is missing. So does
    what was received since the newest kept backup was taken: one that is under way may need it.
    """
    if needs.newest is None:
        return SegmentDecision(segment.name, keep=True, reason="there is no backup that tells what is needed")
    oldest = needs.first.get(segment.chain)
    if oldest is not None and segment.number >= oldest[0]:
        return SegmentDecision(segment.name, keep=True, reason=f"backup {oldest[1]} is rolled forward by it")
    if segment.received_at > now:
        return SegmentDecision(segment.name, keep=True, reason="dated in the future: a clock is or was wrong")
    if segment.received_at >= needs.newest.taken_at:
        return SegmentDecision(segment.name, keep=True, reason=f"received since the last backup, {needs.newest.run_id}")
    if oldest is not None:
        return SegmentDecision(segment.name, keep=False, reason=f"expired: before the oldest backup, {oldest[1]}")
    return SegmentDecision(segment.name, keep=False, reason="expired: no backup can be rolled forward by its chain")
