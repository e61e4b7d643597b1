"""Segments that leave the spool although a target lacks them: whose gap that is.

Knows: that what another target has is no gap of the chain, but one of the target that lacks it, and is told as such;
that what nobody has ends its chain, from there on, and in one that had ended before is a gap of its own.
"""

from dataclasses import replace
from datetime import datetime

from backupd.operations.binlog.storing import SegmentStore
from backupd.vocabulary.binlogs import CATALOGUE_LOST, ArchiveGap, BinlogSegment, lost_from


def drop(store: SegmentStore, segment: BinlogSegment, *, because: str, at: datetime) -> bool:
    """It no longer waits, and what lacks it is recorded; whether no target has it."""
    there = store.catalogue.segment_targets(segment.name)
    if there:
        lacking = [target.name for target in store.targets if target.name not in there]
        gaps = [_lacked(store, target, segment, because, at) for target in lacking]
    else:
        gaps = _lost(store, segment, because, at)
    store.dropped(segment, gaps)
    return not there


def _lost(store: SegmentStore, segment: BinlogSegment, because: str, at: datetime) -> list[ArchiveGap]:
    """One gap tells all that a chain loses for one reason, from the first on: the oldest are dropped first."""
    gaps = [gap for gap in store.catalogue.archive_gaps(store.job) if gap.reason != CATALOGUE_LOST]
    known = {gap.chain: gap.reason for gap in gaps if f"{gap.chain}-".startswith(f"{segment.chain}-")}
    if because in known.values():
        return []
    name = lost_from(segment.chain, segment.number) if segment.chain in known else segment.chain
    return [ArchiveGap(name, because, at, segment.first_at or segment.received_at)]


def _lacked(store: SegmentStore, target: str, segment: BinlogSegment, because: str, at: datetime) -> ArchiveGap:
    """One of each target and chain: it is as new as the last segment that was dropped."""
    name = f"{segment.chain} on {target}"
    known = next((gap for gap in store.catalogue.archive_gaps(store.job) if gap.chain == name), None)
    if known is None:
        reason = f"target {target} lacks segments from {segment.name} on, which others have: {because}"
        known = ArchiveGap(name, reason, at, segment.first_at)
    return replace(known, noticed_at=at, resumed_at=segment.last_at)
