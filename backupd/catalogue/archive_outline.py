"""A job's binlog archive in few segments, of a catalogue that may have a million: what can be restored follows from it.

Knows: where a chain's numbers run on without a gap, which an index alone tells; of each such row only its ends, its
last transaction and what lies around a backup's place are read. That each segment in between continues the one before
it was made sure of when it was written; `binlog list`, `binlog verify` and every restore look again, this does not.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Integer, TableValuedAlias, Text, and_, exists, func, select
from sqlalchemy import column as sql_column

from backupd.catalogue import binlog_tables, identities, tables
from backupd.catalogue.binlog_segments import chains_of
from backupd.catalogue.columns import from_row
from backupd.policy.binlog_chain import ChainRow, PlacedBackup, follows
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.records import GOOD, RunKind, snapshot_by

_ours = binlog_tables.segments.c

_Numbered = tuple[str, int]  # a segment by its chain and its number
_Row = tuple[str, int, int]  # a chain, and the first and the last number of a row without a gap


@dataclass(frozen=True, slots=True)
class ArchiveOutline:
    """What tells which moments of a job can be restored."""

    backups: tuple[PlacedBackup, ...] = ()  # good ones, the oldest first
    rows: tuple[ChainRow, ...] = ()  # each with few of its segments


def outlines(connection: Connection, jobs: Collection[str]) -> dict[str, ArchiveOutline]:
    """By job, of those of which there are segments."""
    machine = identities.current(connection).name
    listed = _listed("listed", list(jobs))
    any_segment = exists().where(_ours.machine == machine, _ours.job == listed.c.value)
    archived = connection.execute(select(listed.c.value).where(any_segment)).scalars().all()
    if not archived:
        return {}
    backups = _backups(connection, archived)
    return {job: _outline(connection, machine, job, backups[job]) for job in archived}


def _outline(connection: Connection, machine: str, job: str, backups: Sequence[PlacedBackup]) -> ArchiveOutline:
    rows = [row for chain in chains_of(connection, machine, job) for row in _rows_of(connection, chain)]
    around = _around(connection, machine, job, [backup.place for backup in backups])
    wanted = around | {(chain, end) for chain, *ends in rows for end in ends}
    wanted |= {(chain, number + 1) for chain, number in around}
    wanted |= {last for row in rows if (last := _last_transaction(connection, row)) is not None}
    return ArchiveOutline(tuple(backups), tuple(_drawn(rows, _read(connection, wanted))))


# --- where numbers run on ---------------------------------------------------------------------------------------------


def _rows_of(connection: Connection, chain: str) -> Iterator[_Row]:
    """Those of a chain. Of one that lacks none of its numbers they need not be looked at one by one."""
    of_chain = _ours.chain == chain
    bounds = select(func.min(_ours.number), func.max(_ours.number), func.count()).where(of_chain)
    first, last, count = connection.execute(bounds).one()
    if count and last - first + 1 == count:
        yield chain, first, last
        return
    after = func.lead(_ours.number).over(order_by=_ours.number).label("after")
    numbers = select(_ours.number, after).where(of_chain).subquery()
    ends = select(numbers.c.number, numbers.c.after)
    ends = ends.where((numbers.c.after != numbers.c.number + 1) | numbers.c.after.is_(None))
    for end, following in connection.execute(ends.order_by(numbers.c.number)):
        yield chain, first, end
        first = following


def _last_transaction(connection: Connection, row: _Row) -> _Numbered | None:
    chain, first, last = row
    query = select(_ours.number).where(_ours.chain == chain, _ours.number.between(first, last))
    query = query.where(_ours.last_at.is_not(None)).order_by(_ours.number.desc()).limit(1)
    number = connection.execute(query).scalar()
    return None if number is None else (chain, number)


def _around(connection: Connection, machine: str, job: str, places: Sequence[BinlogPlace]) -> set[_Numbered]:
    """The segments that have one of these places in them or at one of their ends."""
    listed = _listed("places", [[place.file, place.offset] for place in places])
    file, offset = _field(listed, 0, Text()), _field(listed, 1, Integer())
    has_it = and_(_ours.file == file, _ours.end >= offset, _ours.start <= offset)
    query = select(_ours.chain, _ours.number).select_from(listed)
    query = query.join(binlog_tables.segments, and_(_ours.machine == machine, _ours.job == job, has_it))
    return {(chain, number) for chain, number in connection.execute(query)}


def _read(connection: Connection, wanted: Collection[_Numbered]) -> Sequence[BinlogSegment]:
    listed = _listed("wanted", [list(one) for one in wanted])
    called = and_(_ours.chain == _field(listed, 0, Text()), _ours.number == _field(listed, 1, Integer()))
    query = select(binlog_tables.segments).select_from(listed).join(binlog_tables.segments, called)
    return [from_row(BinlogSegment, row) for row in connection.execute(query).mappings()]


def _drawn(rows: Sequence[_Row], segments: Sequence[BinlogSegment]) -> Iterator[ChainRow]:
    of_chain: dict[str, list[BinlogSegment]] = {}
    for segment in sorted(segments, key=lambda segment: segment.number):
        of_chain.setdefault(segment.chain, []).append(segment)
    for chain, first, last in rows:
        found = of_chain.get(chain, [])
        row = [segment for segment in found if first <= segment.number <= last]
        following = next((segment for segment in found if segment.number > last), None)
        if row:
            yield ChainRow(tuple(row), "" if following is None else follows(row[-1], following))


# --- backups ----------------------------------------------------------------------------------------------------------


def _backups(connection: Connection, jobs: Sequence[str]) -> Mapping[str, list[PlacedBackup]]:
    """By job the good ones whose place in the binlog is known, as `placed_backups` tells them, the oldest first."""
    runs, positions, backups, drills = tables.runs, tables.positions.c, tables.backups.c, tables.drills.c
    listed, phases = _listed("jobs", jobs), tables.phases.c
    there = exists().where(backups.run_id == runs.c.run_id, tables.THERE, backups.broken == "")
    answered = select(drills.ok).where(drills.run_id == runs.c.run_id, drills.undecided == "")
    answer = answered.order_by(drills.id.desc()).limit(1).scalar_subquery()
    query = select(
        runs.c.run_id, runs.c.job, runs.c.ended_at, positions.binlog_file, positions.binlog_offset, positions.gtid
    )
    query = query.select_from(listed).join(runs, runs.c.job == listed.c.value)
    query = query.join(tables.positions, positions.run_id == runs.c.run_id)
    query = query.where(runs.c.kind == RunKind.BACKUP, runs.c.status.in_(GOOD), tables.OURS, there)
    query = query.where(positions.binlog_file.is_not(None), positions.binlog_offset.is_not(None))
    query = query.where(func.coalesce(answer, True)).order_by(runs.c.started_at, runs.c.run_id)
    found = connection.execute(query).all()
    took: dict[str, dict[str, float]] = {run.run_id: {} for run in found}
    of_runs = _listed("runs", list(took))
    spent = select(phases.run_id, phases.phase, phases.seconds).join(of_runs, of_runs.c.value == phases.run_id)
    for run_id, phase, seconds in connection.execute(spent):
        took[run_id][phase] = seconds
    placed: dict[str, list[PlacedBackup]] = {job: [] for job in jobs}
    for run in found:
        if run.ended_at is not None:
            place = BinlogPlace(run.binlog_file, run.binlog_offset)
            taken_at = snapshot_by(run.ended_at, took[run.run_id])
            placed[run.job].append(PlacedBackup(run.run_id, place, run.gtid or "", taken_at))
    return placed


def _listed(name: str, values: Sequence[object]) -> TableValuedAlias:
    """As a table of one column: SQLite reads it from one parameter, however many they are."""
    return func.json_each(json.dumps(list(values))).table_valued(sql_column("value", Text), name=name)


def _field(listed: TableValuedAlias, at: int, kind: Any) -> Any:
    return func.json_extract(listed.c.value, f"$[{at}]", type_=kind)
