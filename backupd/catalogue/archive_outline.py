"""A job's binlog archive in few segments, of a catalogue that may have a million: what can be restored follows from it.

Knows: where rows of segments without a gap begin, which an index tells; of each row only its ends, its last transaction
and what lies around a backup's place are read.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, Integer, TableValuedAlias, Text, exists, func, select
from sqlalchemy import column as sql_column

from backupd.catalogue import binlog_tables, identities, tables
from backupd.catalogue.columns import from_row
from backupd.policy.binlog_chain import ChainRow, PlacedBackup, follows
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.records import GOOD, RunKind, snapshot_by

_ours, _stored = binlog_tables.segments.c, binlog_tables.stored.c

_Numbered = tuple[str, int]  # a segment by its chain and its number
_Row = tuple[str, int, int]  # a chain, and the first and the last number of a row without a gap


@dataclass(frozen=True, slots=True)
class ArchiveOutline:
    """What tells which moments of a job can be restored."""

    backups: tuple[PlacedBackup, ...] = ()  # good ones, the oldest first
    rows: tuple[ChainRow, ...] = ()  # each with few of its segments


def outlines(connection: Connection, jobs: Sequence[str]) -> dict[str, ArchiveOutline]:
    """By job."""
    machine, backups = identities.current(connection).name, _backups(connection, jobs)
    return {job: _outline(connection, machine, job, backups[job]) for job in jobs}


def _outline(connection: Connection, machine: str, job: str, backups: Sequence[PlacedBackup]) -> ArchiveOutline:
    rows = _rows(connection, machine, job)
    around = _around(connection, machine, job, [backup.place for backup in backups])
    wanted = around | {(chain, end) for chain, *ends in rows for end in ends}
    wanted |= {(chain, number + 1) for chain, number in around}
    wanted |= {last for row in rows if (last := _last_transaction(connection, row)) is not None}
    return ArchiveOutline(tuple(backups), tuple(_drawn(rows, _read(connection, wanted))))


# --- where segments follow one another --------------------------------------------------------------------------------


def _rows(connection: Connection, machine: str, job: str) -> list[_Row]:
    """By chain and number."""
    query = select(_ours.chain, _ours.number).where(binlog_tables.BEGINNING, _ours.machine == machine, _ours.job == job)
    begins = [(row.chain, row.number) for row in connection.execute(query.order_by(_ours.chain, _ours.number))]
    found = []
    for (chain, first), following in zip_longest(begins, begins[1:]):
        last = select(func.max(_ours.number)).where(_ours.chain == chain)
        if following is not None and following[0] == chain:
            last = last.where(_ours.number < following[1])
        found.append((chain, first, connection.execute(last).scalar_one()))
    return found


def _last_transaction(connection: Connection, row: _Row) -> _Numbered | None:
    chain, first, last = row
    query = select(_ours.number).where(_ours.chain == chain, _ours.number.between(first, last))
    query = query.where(_ours.last_at.is_not(None)).order_by(_ours.number.desc()).limit(1)
    number = connection.execute(query).scalar()
    return None if number is None else (chain, number)


def followed_on(connection: Connection, first: BinlogSegment, last: BinlogSegment, target: str) -> datetime | None:
    """The last transaction of those of this row that lie on the target, from the first on and without a gap there.

    None where there is none. The row is read up to where the target lacks a segment.
    """
    there = exists().where(_stored.segment_id == _ours.id, _stored.target == target)
    of_row = select(_ours.number).where(_ours.chain == first.chain, _ours.number.between(first.number, last.number))
    lacking = connection.execute(of_row.where(~there).order_by(_ours.number).limit(1)).scalar()
    until = last.number if lacking is None else lacking - 1
    at = select(_ours.last_at).where(_ours.chain == first.chain, _ours.number.between(first.number, until))
    return connection.execute(at.where(_ours.last_at.is_not(None)).order_by(_ours.number.desc()).limit(1)).scalar()


def _around(connection: Connection, machine: str, job: str, places: Sequence[BinlogPlace]) -> set[_Numbered]:
    """The segments that have one of these places in them or at one of their ends."""
    found: set[_Numbered] = set()
    for place in places:
        has_it = (_ours.file == place.file, _ours.end >= place.offset, _ours.start <= place.offset)
        query = select(_ours.chain, _ours.number).where(_ours.machine == machine, _ours.job == job, *has_it)
        found |= {(chain, number) for chain, number in connection.execute(query)}
    return found


def _read(connection: Connection, wanted: Collection[_Numbered]) -> list[BinlogSegment]:
    numbers: dict[str, list[int]] = {}
    for chain, number in wanted:
        numbers.setdefault(chain, []).append(number)
    found: list[BinlogSegment] = []
    for chain, of_chain in numbers.items():
        listed = _listed("wanted", of_chain, Integer())
        query = select(binlog_tables.segments).where(_ours.chain == chain, _ours.number.in_(select(listed.c.value)))
        found += [from_row(BinlogSegment, row) for row in connection.execute(query).mappings()]
    return found


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
    # As `RunDetails.doubted`: what a drill of a moment found missing may be the log's.
    of_backup = (drills.run_id == runs.c.run_id, drills.undecided == "", drills.moment.is_(None))
    answered = select(drills.ok).where(*of_backup).order_by(drills.at.desc(), drills.id.desc())
    answer = answered.limit(1).scalar_subquery()
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


def _listed(name: str, values: Sequence[object], kind: Any = None) -> TableValuedAlias:
    """As a table of one column: SQLite reads it from one parameter, however many they are."""
    column = sql_column("value", kind or Text())
    return func.json_each(json.dumps(list(values))).table_valued(column, name=name)
