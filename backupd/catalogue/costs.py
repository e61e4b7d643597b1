"""Each of many runs in a few figures, what it cost and what is there now: for lists, and for months of them at once.

Knows: which columns tell it, two queries however many runs.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, case, exists, func, or_, select

from backupd.catalogue import tables
from backupd.catalogue.columns import from_row
from backupd.catalogue.details import Filter
from backupd.vocabulary.penalty import Reason, Sample
from backupd.vocabulary.records import DIED, DrilledMoment, Phase, RunKind, RunStatus, lasted
from backupd.vocabulary.schedule import SlotState

_STAGES = ("baseline", "settle")  # of a sample: what was measured during the copy is no part of a penalty


@dataclass(frozen=True, slots=True)
class RunCost:
    """One backup. What it did not come to, and what was not measured, is None."""

    run_id: str
    job: str
    host: str
    machine: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    kind: RunKind = RunKind.BACKUP
    died: bool = False  # when, nobody knows: another process has ended it
    error: str | None = None  # its code
    message: str | None = None  # the error's sentence
    lock_strategy: str | None = None
    lock_wait_seconds: float | None = None
    lock_hold_seconds: float | None = None
    gate: Reason | None = None
    settle_seconds: float | None = None
    copy_seconds: float | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None  # of one copy
    copies: int = 0  # that are still there
    copies_broken: int = 0  # that are there, and cannot be restored
    verified_at: datetime | None = None  # when the copy that was read back last was
    drills: int = 0
    drill_ok: bool | None = None  # what the last drill with an answer found
    drill_moment: DrilledMoment | None = None  # of which moment; None: of the backup's own
    pinned: str | None = None  # a person's note; "" where there is none
    cow_size: int | None = None  # as what was used of it, None where there was a thin pool: that is everybody's
    cow_used_peak: int | None = None
    stalled: int | None = None  # statements that waited behind the lock
    penalty_seconds: float | None = None
    copied_on_write: int | None = None  # bytes
    disk_seconds: float | None = None  # that the origin's disks were busy, summed, whoever used them
    disk_read_seconds: float | None = None  # that reads of them took, summed, whoever read
    transactions_expected: float | None = None  # by the server's own counters; so is what was lost
    transactions_lost: float | None = None  # 0.0 where it cannot be told from the noise
    windows: tuple[Sample, ...] = ()  # of the probe, before the copy; of each its stage and IOPS only

    @property
    def seconds(self) -> float | None:
        """From its begin to its end; see `lasted`."""
        return None if self.died else lasted(self.started_at, self.ended_at)


@dataclass(frozen=True, slots=True)
class Beside:
    """What happened beside the runs of a job."""

    missed: int = 0  # slots of its schedules
    drills: int = 0
    drills_failed: int = 0


def besides(connection: Connection, wanted: Filter) -> dict[str, Beside]:
    """By job, where there is anything; a filter's statuses mean nothing here."""
    slots, drills, runs = tables.slots.c, tables.drills.c, tables.runs.c
    missed = select(slots.job, func.count()).where(slots.state == SlotState.MISSED).group_by(slots.job)
    failed = func.count().filter(~drills.ok, drills.undecided == "")
    proven = select(runs.job, func.count(), failed).join_from(tables.drills, tables.runs).group_by(runs.job)
    missed = missed.where(*_within(wanted, slots.job, slots.due_at))
    proven = proven.where(tables.OURS, *_within(wanted, runs.job, drills.at))
    found: dict[str, Beside] = {job: Beside(missed=count) for job, count in connection.execute(missed)}
    for job, count, bad in connection.execute(proven):
        found[job] = Beside(found.get(job, Beside()).missed, count, bad)
    return found


def _within(wanted: Filter, job: ColumnElement[str], at: ColumnElement[datetime]) -> list[ColumnElement[bool]]:
    return [
        *([job == wanted.job] if wanted.job is not None else ()),
        *([at >= wanted.since] if wanted.since is not None else ()),
        *([at < wanted.until] if wanted.until is not None else ()),
    ]


def costs(connection: Connection, chosen: Select[str]) -> list[RunCost]:
    """The chosen runs, newest first."""
    windows = _windows(connection, chosen)
    rows = connection.execute(_figures(chosen)).mappings()
    return [from_row(RunCost, {**row, "windows": tuple(windows.get(row["run_id"], ()))}) for row in rows]


def _figures(chosen: Select[str]) -> Select[tuple[object, ...]]:
    runs, locks, snapshots = tables.runs, tables.locks, tables.snapshots
    verdicts, errors, backups = tables.verdicts, tables.errors, tables.backups
    bills, losses, drills, pins = tables.bills, tables.losses, tables.drills, tables.pins
    attentions = tables.attentions
    expected = losses.c.rate_before * losses.c.seconds
    lost = expected - losses.c.done
    settle, copy = tables.phases.alias("settle"), tables.phases.alias("copy")
    ours = backups.c.run_id == runs.c.run_id
    there, broken = (backups.c.removed_at.is_(None), backups.c.broken == ""), backups.c.broken != ""
    drilled = drills.c.run_id == runs.c.run_id
    finished_later = exists().where(attentions.c.run_id == runs.c.run_id, tables.TELLS_OF_FINISHING)
    own_area = snapshots.c.pool.is_(None)

    def answered(column: ColumnElement[Any]) -> ScalarSelect[Any]:
        query = select(column).where(drilled, drills.c.undecided == "")
        return query.order_by(drills.c.at.desc(), drills.c.id.desc()).limit(1).scalar_subquery()

    joined = (
        runs.outerjoin(errors, errors.c.run_id == runs.c.run_id)
        .outerjoin(locks, locks.c.run_id == runs.c.run_id)
        .outerjoin(verdicts, verdicts.c.run_id == runs.c.run_id)
        .outerjoin(snapshots, snapshots.c.run_id == runs.c.run_id)
        .outerjoin(bills, bills.c.run_id == runs.c.run_id)
        .outerjoin(losses, losses.c.run_id == runs.c.run_id)
        .outerjoin(pins, pins.c.run_id == runs.c.run_id)
        .outerjoin(settle, (settle.c.run_id == runs.c.run_id) & (settle.c.phase == Phase.SETTLE))
        .outerjoin(copy, (copy.c.run_id == runs.c.run_id) & (copy.c.phase == Phase.COPY))
    )
    ids = chosen.subquery()
    query = select(
        *(runs.c[name] for name in ("run_id", "job", "host", "machine", "status", "started_at", "ended_at", "kind")),
        or_(func.coalesce(errors.c.code, "") == DIED, finished_later).label("died"),
        errors.c.code.label("error"),
        errors.c.message,
        locks.c.strategy.label("lock_strategy"),
        locks.c.wait_seconds.label("lock_wait_seconds"),
        locks.c.hold_seconds.label("lock_hold_seconds"),
        verdicts.c.reason.label("gate"),
        settle.c.seconds.label("settle_seconds"),
        copy.c.seconds.label("copy_seconds"),
        select(func.max(backups.c.bytes_read)).where(ours).scalar_subquery().label("bytes_read"),
        select(func.max(backups.c.bytes_stored)).where(ours).scalar_subquery().label("bytes_stored"),
        select(func.count()).where(ours, *there).scalar_subquery().label("copies"),
        select(func.count()).where(ours, there[0], broken).scalar_subquery().label("copies_broken"),
        select(func.max(backups.c.verified_at)).where(ours, *there).scalar_subquery().label("verified_at"),
        select(func.count()).where(drilled).scalar_subquery().label("drills"),
        answered(drills.c.ok).label("drill_ok"),
        answered(drills.c.moment).label("drill_moment"),
        pins.c.note.label("pinned"),
        case((own_area, snapshots.c.cow_size)).label("cow_size"),
        case((own_area, snapshots.c.cow_used_peak)).label("cow_used_peak"),
        locks.c.stalled,
        bills.c.penalty_seconds,
        bills.c.copied_on_write,
        bills.c.disk_seconds,
        bills.c.disk_read_seconds,
        expected.label("transactions_expected"),
        case((lost > losses.c.noise, lost), (losses.c.done.is_not(None), 0.0)).label("transactions_lost"),
    )
    return (
        query.select_from(joined)
        .where(runs.c.run_id.in_(select(ids.c.run_id)))
        .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
    )


def _windows(connection: Connection, chosen: Select[str]) -> dict[str, list[Sample]]:
    table, ids = tables.samples.c, chosen.subquery()
    query = select(table.run_id, table.at_seconds, table.stage, table.iops).where(
        table.run_id.in_(select(ids.c.run_id)), table.stage.in_(_STAGES), table.iops.is_not(None)
    )
    found: dict[str, list[Sample]] = defaultdict(list)
    for run_id, at_seconds, stage, iops in connection.execute(query.order_by(table.run_id, table.id)):
        found[run_id].append(Sample(at_seconds, stage, iops=iops))
    return found
