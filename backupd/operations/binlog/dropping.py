"""Segments that leave the spool although a target lacks them: whose gap that is.

Knows: that what another target has is no gap of the chain, but one of the target that lacks it, and is told as such.
"""

from dataclasses import replace
from datetime import datetime

from backupd.operations.binlog.storing import SegmentStore
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment


def drop(store: SegmentStore, segment: BinlogSegment, *, because: str, at: datetime) -> bool:
    """The segment no longer waits; whether no target has it. Of a target that lacks what others have that is a gap."""
    there = store.catalogue.segment_targets(segment.name)
    store.dropped(segment)
    for target in store.targets if there else ():
        if target.name not in there:
            _record_gap(store, target.name, segment, because, at)
    return not there


def _record_gap(store: SegmentStore, target: str, segment: BinlogSegment, because: str, at: datetime) -> None:
    """One of each target and chain: it is as new as the last segment that was dropped."""
    name = f"{segment.chain} on {target}"
    known = next((gap for gap in store.catalogue.archive_gaps(store.job) if gap.chain == name), None)
    if known is None:
        reason = f"target {target} lacks segments from {segment.name} on, which others have: {because}"
        known = ArchiveGap(name, reason, at, segment.first_at)
    store.catalogue.archive_gap(store.job, replace(known, noticed_at=at, resumed_at=segment.last_at))
