"""Which segments of a binlog archive stay on a target: all that a backup which is kept there may be rolled forward by.

Knows: why each stays or goes. Refuses to know where they lie and how they are removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

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
    unread: Mapping[str, int] = field(
        default_factory=dict
    )  # by chain: one that could not be read, and one may stand in

    @property
    def from_number(self) -> dict[str, int]:
        """By chain, the number of the first segment that one of them may be rolled forward by."""
        placed = {chain: number for chain, (number, _) in self.first.items()}
        return placed | {chain: min(number, placed.get(chain, number)) for chain, number in self.unread.items()}


def needed(
    segments: Iterable[BinlogSegment], kept: Sequence[PlacedBackup], unread: Mapping[str, int] = MappingProxyType({})
) -> SegmentNeeds:
    """What these backups need, good or not; `segments` are those of all targets that may have a backup's place.

    `unread` has by chain the first segment that could not be read: a backup may stand there that stands in none of the
    chain that could be.
    """
    known = list(segments)
    first: dict[str, tuple[int, str]] = {}
    places = [covering(backup, known) for backup in kept]
    for backup, place in zip(kept, places, strict=True):
        for chain, number in place.items():
            first[chain] = min((number, backup.run_id), first.get(chain, (number, backup.run_id)))
    doubtful = {chain: number for chain, number in unread.items() if any(chain not in place for place in places)}
    return SegmentNeeds(max(kept, key=lambda backup: backup.taken_at, default=None), first, doubtful)


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
    unread = needs.unread.get(segment.chain)
    if unread is not None and segment.number >= unread:
        return SegmentDecision(
            segment.name, keep=True, reason=f"a backup may begin in segment {unread}, which could not be read"
        )
    if segment.received_at > now:
        return SegmentDecision(segment.name, keep=True, reason="dated in the future: a clock is or was wrong")
    if segment.received_at >= needs.newest.taken_at:
        return SegmentDecision(segment.name, keep=True, reason=f"received since the last backup, {needs.newest.run_id}")
    if oldest is not None:
        return SegmentDecision(segment.name, keep=False, reason=f"expired: before the oldest backup, {oldest[1]}")
    return SegmentDecision(segment.name, keep=False, reason="expired: no backup can be rolled forward by its chain")
