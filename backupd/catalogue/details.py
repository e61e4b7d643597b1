"""Finding runs and putting together all that the tables say of them.

Knows: the order of runs, what a person may call a run, one query per table. Refuses to know transactions and files.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, func, select

from backupd.catalogue import tables
from backupd.errors import UsageError
from backupd.model import (
    Backup,
    Drill,
    LockReceipt,
    Phase,
    Position,
    RunDetails,
    RunError,
    Sample,
    SnapshotFacts,
    Verdict,
)

Fact = TypeVar("Fact", bound=tables.Fact)

_NEWEST_FIRST = tables.runs.c.started_at.desc(), tables.runs.c.run_id.desc()


def newest_first(job: str | None = None) -> Select[str]:
    """Ids of runs, of one job where it is named."""
    query = select(tables.runs.c.run_id).order_by(*_NEWEST_FIRST)
    return query if job is None else query.where(tables.runs.c.job == job)


def resolve(connection: Connection, wanted: str) -> str:
    """The id of the one run that is meant: see `Catalogue.run`.

    Raises:
        UsageError: there is none, or more than one.
    """
    word, _, job = wanted.partition(":")
    if word == "latest":
        newest = connection.execute(newest_first(job or None).limit(1)).scalar()
        if newest is None:
            raise UsageError(f"no run of job {job} yet" if job else "no run yet", hint="backupd history")
        return newest
    column = tables.runs.c.run_id
    alike = select(column).where(func.substr(column, 1, len(wanted)) == wanted).order_by(column).limit(4)
    found = list(connection.execute(alike).scalars()) if wanted else []
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        raise UsageError(f"more than one run begins with {wanted}: {', '.join(found)}", hint="backupd history")
    raise UsageError(f"no run {wanted}", hint="backupd history")


def details(connection: Connection, chosen: Select[str], *, samples: bool = True) -> list[RunDetails]:
    """The chosen runs, in the order of `newest_first`. One query per table, however many runs."""
    ids = chosen.subquery()

    def rows(table: Table) -> dict[str, list[RowMapping]]:
        query = select(table).where(table.c.run_id.in_(select(ids.c.run_id)))
        found: dict[str, list[RowMapping]] = defaultdict(list)
        for row in connection.execute(query.order_by(*table.primary_key.columns)).mappings():
            found[row["run_id"]].append(row)
        return found

    def one(kind: type[Fact], table: Table) -> dict[str, Fact]:
        return {run_id: tables.from_row(kind, of_run[0]) for run_id, of_run in rows(table).items()}

    def many(kind: type[Fact], table: Table) -> Mapping[str, tuple[Fact, ...]]:
        return {run_id: tuple(tables.from_row(kind, row) for row in of_run) for run_id, of_run in rows(table).items()}

    of_these = tables.runs.c.run_id.in_(select(ids.c.run_id))
    runs = connection.execute(select(tables.runs).where(of_these).order_by(*_NEWEST_FIRST)).mappings()
    phases, attentions = rows(tables.phases), rows(tables.attentions)
    verdicts, positions = one(Verdict, tables.verdicts), one(Position, tables.positions)
    locks, snapshots = one(LockReceipt, tables.locks), one(SnapshotFacts, tables.snapshots)
    backups, errors = one(Backup, tables.backups), one(RunError, tables.errors)
    drills, sampled = many(Drill, tables.drills), many(Sample, tables.samples) if samples else {}
    return [
        RunDetails(
            run_id=run_id,
            job=run["job"],
            host=run["host"],
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
            backup=backups.get(run_id),
            error=errors.get(run_id),
            attention=tuple(row["text"] for row in attentions.get(run_id, ())),
            drills=drills.get(run_id, ()),
        )
        for run in runs
        for run_id in [run["run_id"]]
    ]


def _in_order(seconds: Mapping[Phase, float]) -> dict[Phase, float]:
    return {phase: seconds[phase] for phase in Phase if phase in seconds}
