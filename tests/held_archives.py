"""A binlog archive whose every segment is held: what is decided by few of them is the same as by all."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from backupd.policy import reach as by_rows
from backupd.policy import roll_forward
from backupd.policy.binlog_chain import ChainRow, PlacedBackup
from backupd.policy.moments import BeforeGtid, Moment, ToGtid, ToPosition, ToTime
from backupd.policy.reach import Reach
from backupd.policy.roll_forward import RestorePlan, is_in
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment
from tests.fakes.chain_rows import rows


class HeldArchive:
    """An archive of these segments; their order means nothing."""

    def __init__(self, segments: Sequence[BinlogSegment]) -> None:
        self.rows: Sequence[ChainRow] = rows(segments)

    def having(self, moment: ToGtid | BeforeGtid | ToPosition) -> Sequence[BinlogSegment]:
        return [segment for row in self.rows for segment in row.segments if is_in(moment, segment)]

    def first_at(self, first: BinlogSegment, last: BinlogSegment, at: datetime) -> BinlogSegment | None:
        return next((segment for segment in self.between(first, last) if is_in(ToTime(at), segment)), None)

    def last_before(self, segment: BinlogSegment | None) -> BinlogSegment | None:
        known = [one for row in self.rows for one in row.segments if one.last_at is not None]
        before = [one for one in known if segment is None or _place(one) < _place(segment)]
        return max(before, key=_place, default=None)

    def between(self, first: BinlogSegment, last: BinlogSegment) -> Sequence[BinlogSegment]:
        (row,) = (row for row in self.rows if first in row.segments)
        return row.segments[row.segments.index(first) : row.segments.index(last) + 1]


def _place(segment: BinlogSegment) -> tuple[str, int]:
    return segment.chain, segment.number


def plan(
    backups: Sequence[PlacedBackup], segments: Sequence[BinlogSegment], moment: Moment, *, now: datetime, **known: Any
) -> RestorePlan:
    """How the moment is restored by these segments."""
    return roll_forward.plan(backups, HeldArchive(segments), moment, now=now, **known)


def reach(
    backups: Sequence[PlacedBackup],
    segments: Sequence[BinlogSegment],
    gaps: Sequence[ArchiveGap] = (),
    *,
    now: datetime | None = None,
) -> Reach:
    """What can be restored by them."""
    return by_rows.reach(backups, rows(segments), gaps, now=now)
