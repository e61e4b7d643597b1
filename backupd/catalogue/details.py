"""Listing runs and putting together all that the tables say of them.

Knows: the order of runs, one query per table.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Result, RowMapping, Select, Table, bindparam, select

from backupd.catalogue import tables
from backupd.catalogue.columns import AnyFact, from_row
from backupd.vocabulary.penalty import Bill, Losses, PaceChange, Sample, Throughput, Verdict
from backupd.vocabulary.records import Drill, Phase, Pin, RunDetails, RunError, RunKind, RunStatus, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position, Preflush
from backupd.vocabulary.storage import Backup

_FEW = 100  # runs; of so many the ids are handed over, for which a statement that was made once will do
_NEWEST_FIRST = tables.runs.c.started_at.desc(), tables.runs.c.run_id.desc()


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs are wanted; of every job, since ever and whatever became of them where not told otherwise."""

    job: str | None = None
    since: datetime | None = None  # started then or later
    until: datetime | None = None  # begun before then
    statuses: Collection[RunStatus] = ()
    ours: bool = False  # of this machine only


def newest_first(job: str | None = None, *, kind: RunKind | None = RunKind.BACKUP) -> Select[str]:
    """Ids of runs of this kind (None: of all), of one job where it is named."""
    return chosen(Filter(job), kind=kind)


def our_newest(job: str | None = None, *, kind: RunKind = RunKind.BACKUP) -> Select[str]:
    """The same of this machine's own runs: what says how a job stands."""
    return chosen(Filter(job, ours=True), kind=kind)


def chosen(wanted: Filter, *, kind: RunKind | None = RunKind.BACKUP) -> Select[str]:
    """Ids of these runs of this kind (None: of all), newest first."""
    runs = tables.runs.c
    query = select(runs.run_id).order_by(*_NEWEST_FIRST)
    if kind is not None:
        query = query.where(runs.kind == kind)
    if wanted.job is not None:
        query = query.where(runs.job == wanted.job)
    if wanted.ours:
        query = query.where(tables.OURS)
    if wanted.since is not None:
        query = query.where(runs.started_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(runs.started_at < wanted.until)
    return query.where(runs.status.in_(wanted.statuses)) if wanted.statuses else query


def rows_of(connection: Connection, chosen: Select[str], table: Table) -> dict[str, list[RowMapping]]:
    """What a table has of the chosen runs, by run and in the order of its key; nothing of a run without rows."""
    ids = chosen.subquery()
    query = select(table).where(table.c.run_id.in_(select(ids.c.run_id))).order_by(*table.primary_key.columns)
    return _by_run(connection.execute(query))


@cache
def _of_few(table: Table) -> Select[Any]:
    """The same for runs whose ids are the parameter `ids`."""
    of_them = table.c.run_id.in_(bindparam("ids", expanding=True))
    return select(table).where(of_them).order_by(*table.primary_key.columns)


def _by_run(result: Result[Any]) -> dict[str, list[RowMapping]]:
    found: dict[str, list[RowMapping]] = defaultdict(list)
    for row in result.mappings():
        found[row["run_id"]].append(row)
    return found


def run_rows(connection: Connection, chosen: Select[str]) -> list[RowMapping]:
    """The rows of the chosen runs themselves, in the order of `newest_first`."""
    ids = chosen.subquery()
    query = select(tables.runs).where(tables.runs.c.run_id.in_(select(ids.c.run_id)))
    return list(connection.execute(query.order_by(*_NEWEST_FIRST)).mappings())


def details(connection: Connection, chosen: Select[str], *, samples: bool = True) -> list[RunDetails]:
    """The chosen runs, in the order of `newest_first`. One query per table, however many runs."""
    runs = run_rows(connection, chosen)
    if not runs:
        return []
    ids = [run["run_id"] for run in runs]

    def rows(table: Table) -> dict[str, list[RowMapping]]:
        if len(ids) > _FEW:
            return rows_of(connection, chosen, table)
        return _by_run(connection.execute(_of_few(table), {"ids": ids}))

    def one(kind: type[AnyFact], table: Table) -> dict[str, AnyFact]:
        return {run_id: from_row(kind, of_run[0]) for run_id, of_run in rows(table).items()}

    def many(kind: type[AnyFact], table: Table) -> Mapping[str, tuple[AnyFact, ...]]:
        return {run_id: tuple(from_row(kind, row) for row in of_run) for run_id, of_run in rows(table).items()}

    def ordered(kind: type[AnyFact], table: Table) -> Mapping[str, tuple[AnyFact, ...]]:
        found = {run_id: sorted(of_run, key=lambda row: row["ordinal"]) for run_id, of_run in rows(table).items()}
        return {run_id: tuple(from_row(kind, row) for row in of_run) for run_id, of_run in found.items()}

    phases, attentions, placed = rows(tables.phases), rows(tables.attentions), rows(tables.positions)
    verdicts = one(Verdict, tables.verdicts)
    positions = {run_id: from_row(Position, of_run[0]) for run_id, of_run in placed.items()}
    derived = {run_id: bool(of_run[0]["derived"]) for run_id, of_run in placed.items()}
    locks, snapshots = one(LockReceipt, tables.locks), one(SnapshotFacts, tables.snapshots)
    bills, losses = one(Bill, tables.bills), one(Losses, tables.losses)
    preflushes = one(Preflush, tables.preflushes)
    errors, pins = one(RunError, tables.errors), one(Pin, tables.pins)
    backups, throughput = ordered(Backup, tables.backups), ordered(Throughput, tables.throughput)
    paced = many(PaceChange, tables.pace_changes)
    drills, sampled = many(Drill, tables.drills), many(Sample, tables.samples) if samples else {}
    return [
        RunDetails(
            run_id=run_id,
            job=run["job"],
            host=run["host"],
            machine=run["machine"],
            status=run["status"],
            started_at=run["started_at"],
            ended_at=run["ended_at"],
            pid=run["pid"],
            phases=_in_order({row["phase"]: row["seconds"] for row in phases.get(run_id, ())}),
            verdict=verdicts.get(run_id),
            position=positions.get(run_id),
            lock=locks.get(run_id),
            snapshot=snapshots.get(run_id),
            samples=sampled.get(run_id, ()),
            backups=backups.get(run_id, ()),
            error=errors.get(run_id),
            attention=tuple(row["text"] for row in attentions.get(run_id, ())),
            drills=tuple(sorted(drills.get(run_id, ()), key=attrgetter("at"))),  # a proof host's are recorded later
            kind=run["kind"],
            derived=derived.get(run_id, False),
            throughput=throughput.get(run_id, ()),
            pace=paced.get(run_id, ()),
            pin=pins.get(run_id),
            bill=bills.get(run_id),
            losses=losses.get(run_id),
            preflush=preflushes.get(run_id),
            max_rate=run["max_rate"],
        )
        for run in runs
        for run_id in [run["run_id"]]
    ]


def _in_order(seconds: Mapping[Phase, float]) -> dict[Phase, float]:
    return {phase: seconds[phase] for phase in Phase if phase in seconds}
