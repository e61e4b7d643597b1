"""A run that is known from its manifest only, as rows.

Knows: how what a manifest tells of a run becomes what the run itself would have written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, audit_step, carry_out, copies_told, run_ended
from backupd.catalogue.columns import Fact, from_row, spelt, to_row
from backupd.catalogue.drill_steps import Told, is_kept, kept
from backupd.vocabulary.errors import Untrusted
from backupd.vocabulary.records import DEATH, DIED, GOOD, RunDetails, RunStatus
from backupd.vocabulary.storage import Backup

_Row = Mapping[str, Any]
_Wanted = tuple[Table, Sequence[_Row]]


def import_run(connection: Connection, run: RunDetails, *, proofs: Mapping[datetime, Told]) -> bool:
    """The run has its rows. Of one that is known, only backups and drills that it was not known to have are added.

    `proofs` is what else the chain says of those drills: nobody did them here.
    One that is known to have been there, and is so again, is as broken as it was.

    Raises `Untrusted` where another job's or machine's run is known by that id.
    False where nothing was added. A run that is not known as a good one keeps what it has: what is on a target is of
    a run that is still at work, or is what a failed one has left. One that has died is what its manifest says, and
    needs attention: a catalogue that was set back knows nothing of a copy which that run had published.
    """
    table = tables.backups
    columns = tables.runs.c
    row = connection.execute(
        select(columns.status, columns.job, columns.machine).where(columns.run_id == run.run_id)
    ).first()
    if row is not None and (row.job, row.machine) != (run.job, run.machine):
        raise Untrusted(
            f"the catalogue has another run {run.run_id}, of job {row.job} of machine {row.machine}",
            hint="an id is unique; this backup was given another one's id",
        )
    known = None if row is None else row.status
    have = connection.execute(select(table).where(table.c.run_id == run.run_id)).mappings()
    recorded = {backup.target: backup for backup in (from_row(Backup, row) for row in have)}
    there = {target for target, backup in recorded.items() if backup.removed_at is None}
    run = replace(run, backups=tuple(_as_recorded(backup, recorded.get(backup.target)) for backup in run.backups))
    new = tuple(backup for backup in run.backups if backup.target not in there)
    died = known is RunStatus.FAILED and _has_died(connection, run.run_id)
    if known is not None and not (died or known in GOOD):
        return False
    if known is not None and not new:
        return _completed(connection, run, proofs)
    wanted = _rows(run)
    if died:
        wanted = _taken_over(connection, run, wanted)
    elif known is not None:  # one that was said to be removed is there all the same: its row is written anew
        gone = table.c.target.in_([backup.target for backup in new])
        connection.execute(delete(table).where(table.c.run_id == run.run_id, gone))
        first = connection.execute(select(func.max(table.c.ordinal)).where(table.c.run_id == run.run_id)).scalar()
        wanted = [(table, _ordered(new, first=0 if first is None else first + 1))]
    for into, rows in wanted:
        if rows:
            connection.execute(insert(into), [spelt({**row, "run_id": run.run_id}) for row in rows])
    audit_step(
        Event.IMPORTED,
        run.run_id,
        targets=[backup.target for backup in new],
        **(copies_told(new) if new else {}),
    )(connection)
    for backup in new:
        before = recorded.get(backup.target)
        if backup.removed_at is None and backup.broken not in ("", before.broken if before else ""):
            audit_step(Event.FOUND_BROKEN, run.run_id, target=backup.target, reason=backup.broken)(connection)
    if died:
        run_ended(run.run_id)(connection)
    if known is not None:
        _completed(connection, run, proofs)
    return True


def _as_recorded(backup: Backup, before: Backup | None) -> Backup:
    """With what was found out about it before, where it is the one that had been there: that a row was struck, because
    a disk was out for a night, mends nothing. Of an earlier backupd's row the manifest is not known.
    """
    if before is None:
        return backup
    if before.manifest_digest not in ("", backup.manifest_digest) or before.sha256 != backup.sha256:
        return backup
    broken, verified_at = backup.broken or before.broken, before.verified_at or backup.verified_at
    return replace(backup, broken=broken, verified_at=verified_at)


def _completed(connection: Connection, run: RunDetails, proofs: Mapping[datetime, Told]) -> bool:
    """The known run has the drills that it lacked, and what they found; whether there were any. None is changed."""
    drills = [replace(drill, run_id=run.run_id) for drill in run.drills]
    lacking = [drill for drill in drills if not is_kept(connection, drill)]
    for drill in lacking:
        carry_out(connection, kept(drill, proofs.get(drill.at, {})))
    position = tables.positions
    has = connection.execute(select(position.c.run_id).where(position.c.run_id == run.run_id)).first() is not None
    found = run.derived and run.position is not None and not has
    if found:
        connection.execute(insert(position).values(spelt({**_position(run)[0], "run_id": run.run_id})))
    return bool(lacking) or found


def _has_died(connection: Connection, run_id: str) -> bool:
    errors = tables.errors.c
    died = select(errors.run_id).where(errors.run_id == run_id, errors.code == DIED)
    return connection.execute(died).first() is not None


def _taken_over(connection: Connection, run: RunDetails, wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """What is to be written of a run that has died, which has failed no longer; what it had told of that is gone."""
    wanted = [(table, rows) for table, rows in wanted if rows and table not in (tables.runs, tables.drills)]
    for table in (tables.errors, *(table for table, _ in wanted)):
        connection.execute(delete(table).where(table.c.run_id == run.run_id))
    ours = update(tables.runs).where(tables.runs.c.run_id == run.run_id)
    connection.execute(ours.values(status=RunStatus.ATTENTION, ended_at=run.ended_at))
    where = ", ".join(backup.target for backup in run.backups)
    state = "broken" if any(backup.broken for backup in run.backups) else "complete"
    text = f"{DEATH}; the copy on {where} is {state}, and `backupd catalogue rebuild` added it"
    return [*wanted, (tables.attentions, [{"text": text}])]


def _rows(run: RunDetails) -> list[_Wanted]:
    """Of every table that a run writes; samples, pre-flush and the process that it ran in are in no manifest."""
    columns = ("run_id", "kind", "job", "host", "machine", "status", "started_at", "ended_at")
    phases = [{"phase": phase, "seconds": seconds} for phase, seconds in run.phases.items()]
    return [
        (tables.runs, [{name: getattr(run, name) for name in columns}]),
        (tables.phases, phases),
        (tables.verdicts, _one(run.verdict)),
        (tables.positions, _position(run)),
        (tables.locks, _one(run.lock)),
        (tables.snapshots, _one(run.snapshot)),
        (tables.bills, _one(run.bill)),
        (tables.losses, _one(run.losses)),
        (tables.backups, _ordered(run.backups)),
        (tables.throughput, _ordered(run.throughput)),
        (tables.attentions, [{"text": text} for text in run.attention]),
        (tables.pins, _one(run.pin)),
        (tables.drills, [to_row(replace(drill, run_id=run.run_id)) for drill in run.drills]),
    ]


def _position(run: RunDetails) -> list[_Row]:
    return [] if run.position is None else [{**to_row(run.position), "derived": run.derived}]


def _one(fact: Fact | None) -> list[_Row]:
    return [] if fact is None else [to_row(fact)]


def _ordered(facts: Sequence[Fact], *, first: int = 0) -> list[_Row]:
    return [{**to_row(fact), "ordinal": ordinal} for ordinal, fact in enumerate(facts, first)]
