"""Where in a job's binlog archive a moment is, of a catalogue that may have a million segments.

Knows: that numbers are in order within a row, and sets of GTIDs only grow there: a GTID is found by halves, a place by
an index. For a time what follows one backup is looked through, as far as that time, and only there; the segments that
are applied are read as a whole.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection, Select, and_, or_, select

from backupd.catalogue import binlog_tables
from backupd.catalogue.archive_outline import PartWithEnds, around, drawn_rows, ended, read
from backupd.catalogue.columns import from_row
from backupd.policy import gtid
from backupd.policy.binlog_chain import ChainRow, PlacedBackup
from backupd.policy.moments import BeforeGtid, ToGtid, ToPosition
from backupd.policy.roll_forward import is_in
from backupd.vocabulary.binlogs import BinlogSegment

_ours = binlog_tables.segments.c


class ArchiveSearch:
    """The archive of one job, or what of it lies on any of some targets, as `policy.roll_forward` asks of it, at one
    instant.
    """

    def __init__(
        self,
        connection: Connection,
        machine: str,
        job: str,
        backups: Sequence[PlacedBackup],
        targets: Collection[str] | None = None,
    ) -> None:
        self._connection, self._whose, self._backups = connection, (machine, job, targets), backups
        self._earlier: dict[tuple[str, int, datetime], int] = {}  # from this number on there is no such time

    @cached_property
    def rows(self) -> Sequence[ChainRow]:
        """Each with few of its segments: of them those of which these backups tell."""
        return drawn_rows(self._connection, self._parts, self._backups)

    @cached_property
    def _parts(self) -> Sequence[PartWithEnds]:
        return ended(self._connection, *self._whose)

    def having(self, moment: ToGtid | BeforeGtid | ToPosition) -> Sequence[BinlogSegment]:
        """Those of the rows that have the moment in them, by chain and number."""
        if isinstance(moment, ToPosition):
            known = read(self._connection, around(self._connection, self._parts, moment.place))
            return [segment for _, segment in sorted(known.items()) if is_in(moment, segment)]
        return [
            segment for row in self.rows for segment in self._first_behind(row, moment.gtid) if is_in(moment, segment)
        ]

    def first_at(self, first: BinlogSegment, last: BinlogSegment, at: datetime) -> BinlogSegment | None:
        """The first between these two of a row, both included, that has what was committed at that time or later."""
        looked_at = (last.chain, last.number, at)
        before = self._earlier.get(looked_at, last.number + 1)  # what follows a newer backup was looked through already
        late = _between(first, last).where(_ours.number < before, or_(_ours.first_at >= at, _ours.last_at >= at))
        found = next(self._segments(late.limit(1)), None)
        if found is None:
            self._earlier[looked_at] = min(first.number, before)
        return found

    def last_before(self, segment: BinlogSegment | None) -> BinlogSegment | None:
        """The last that has a transaction, of all before this one by chain and number; None: of all."""
        machine, job, _ = self._whose
        chains = select(_ours.chain).distinct().order_by(_ours.chain.desc())
        chains = chains.where(binlog_tables.BEGINNING, _ours.machine == machine, _ours.job == job)
        chains = chains if segment is None else chains.where(_ours.chain <= segment.chain)
        has_any = select(binlog_tables.segments).where(_ours.last_at.is_not(None)).order_by(_ours.number.desc())
        for chain in self._connection.execute(chains).scalars().all():
            of_chain = has_any.where(_ours.chain == chain).limit(1)
            if segment is not None and chain == segment.chain:
                of_chain = of_chain.where(_ours.number < segment.number)
            if (found := next(self._segments(of_chain), None)) is not None:
                return found
        return None

    def between(self, first: BinlogSegment, last: BinlogSegment) -> Sequence[BinlogSegment]:
        """All between these two of a row, both included."""
        return list(self._segments(_between(first, last)))

    def _first_behind(self, row: ChainRow, one: str) -> Iterator[BinlogSegment]:
        """The first of a row at whose end this transaction was executed; nothing where it was before the row."""
        if not gtid.holds(row.gtid_end, one) or gtid.holds(row.gtid_start, one):
            return
        before = row.segments[0]
        for segment in row.segments:
            if gtid.holds(segment.gtid_end, one):
                yield self._halved(before, segment, one)
                return
            before = segment

    def _halved(self, before: BinlogSegment, behind: BinlogSegment, one: str) -> BinlogSegment:
        while behind.number - before.number > 1:
            number = (before.number + behind.number) // 2
            middle = read(self._connection, [(behind.chain, number)])[behind.chain, number]
            before, behind = (before, middle) if gtid.holds(middle.gtid_end, one) else (middle, behind)
        return behind

    def _segments(self, query: Select[tuple[object]]) -> Iterator[BinlogSegment]:
        for row in self._connection.execute(query).mappings():
            yield from_row(BinlogSegment, row)


def _between(first: BinlogSegment, last: BinlogSegment) -> Select[tuple[object]]:
    within = and_(_ours.chain == first.chain, _ours.number.between(first.number, last.number))
    return select(binlog_tables.segments).where(within).order_by(_ours.number)
