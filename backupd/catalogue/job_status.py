"""How jobs stand by what is recorded of them: one transaction and a fixed number of queries, however many runs.

Knows: which rows tell it. Every question is answered from an index, or by walking back to what is newest of each job.
Only this machine's runs tell how a job stands.

What is newest is that up to an instant, which is now: a machine whose clock was years ahead for an hour leaves rows of
then, and the newest of all would be those, for years.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, func, literal, select, type_coerce

from backupd.catalogue import tables
from backupd.catalogue.archive_records import ArchiveRecord, archive_records
from backupd.catalogue.columns import as_table, from_row
from backupd.catalogue.details import details
from backupd.catalogue.moment_proofs import LastMomentDrill, last_moment_drills
from backupd.catalogue.selection import with_copy
from backupd.vocabulary.records import GOOD, RunDetails, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, Pause, Slot, SlotState
from backupd.vocabulary.storage import Backup


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run that is said to be running, and the process that it should live in."""

    run: RunDetails
    process: tuple[int, int] | None  # pid, and its start in clock ticks since boot; None: unknown


@dataclass(frozen=True, slots=True)
class BrokenBackup:
    """A copy on a target that cannot be restored and was not removed."""

    run_id: str
    backup: Backup


@dataclass(frozen=True, slots=True)
class LastDrill:
    """The newest drill of a job's backups."""

    at: datetime  # when it ended
    ok: bool
    seconds: float
    run_id: str  # of the backup


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the catalogue knew of one job at one instant, of what was started or due up to then."""

    job: str
    first_at: datetime | None = None  # when its first backup was started
    last_run: RunDetails | None = None  # the newest backup that ended, whatever became of it
    last_good: RunDetails | None = None  # the newest that ended well or needs attention, and of which a copy is there
    good_ended_at: datetime | None = None  # when the newest of those ended, whatever has become of its copies
    unfinished: tuple[UnfinishedRun, ...] = ()  # of every kind, newest first
    proven_at: datetime | None = None  # by the newest good drill
    last_drill: LastDrill | None = None
    last_slots: Mapping[Activity, Slot] = field(default_factory=dict)  # the newest of each activity
    ended_slot: Slot | None = None  # the newest backup that was due, was started, and is not tried any more
    ended_run: RunDetails | None = None  # its last try
    missed: Mapping[Activity, int] = field(default_factory=dict)  # since ever
    missed_since_good: int = 0  # backups that were due after the last that ended well began
    broken: tuple[BrokenBackup, ...] = ()
    pause: Pause | None = None
    archive: ArchiveRecord = field(default_factory=ArchiveRecord)  # of its binlog
    last_moment: LastMomentDrill | None = None  # the newest drill of a moment of that


def records(
    connection: Connection, jobs: Sequence[str], *, at: datetime, samples: bool, targets: Collection[str] | None = None
) -> dict[str, JobRecord]:
    """Each of these jobs as it stands at this instant, in their order; runs have their samples only where told so.

    A run counts as good by a copy on one of these targets (that can be read), or on any where none are told.
    """
    ends = {row["job"]: row for row in connection.execute(_ends(jobs, at, targets)).mappings()}
    ended_slots = _ended_slots(connection, jobs, at)
    wanted = {row[name] for row in ends.values() for name in ("last_run", "last_good") if row[name] is not None}
    wanted |= {slot.run_id for slot in ended_slots.values()}
    unfinished = _unfinished(connection)
    ids = [*wanted, *(row["run_id"] for row in unfinished)]
    runs = {run.run_id: run for run in details(connection, _chosen(ids), samples=samples)}
    going: dict[str, list[UnfinishedRun]] = defaultdict(list)
    for row in unfinished:
        known = row["pid"] is not None and row["process_start"] is not None
        process = (row["pid"], row["process_start"]) if known else None
        going[row["job"]].append(UnfinishedRun(runs[row["run_id"]], process))
    began = {job for job in jobs if ends[job]["first_at"] is not None}
    proofs, drills = _drills(connection, began, at)
    broken, slots, missed = (
        _broken(connection),
        _last_slots(connection, jobs, at),
        _missed(connection),
    )
    moments = last_moment_drills(connection, at=at)
    archives = archive_records(connection, as_table("listed", jobs), at=at)
    pauses = {row["job"]: from_row(Pause, row) for row in connection.execute(select(tables.pauses)).mappings()}
    return {
        job: JobRecord(
            job=job,
            first_at=ends[job]["first_at"],
            last_run=runs.get(ends[job]["last_run"]),
            last_good=runs.get(ends[job]["last_good"]),
            good_ended_at=ends[job]["good_ended_at"],
            unfinished=tuple(going[job]),
            proven_at=proofs.get(job),
            last_drill=drills.get(job),
            last_slots=slots[job],
            ended_slot=(ended := ended_slots.get(job)),
            ended_run=None if ended is None else runs.get(ended.run_id),
            missed=missed[job],
            missed_since_good=ends[job]["missed_since_good"],
            broken=tuple(broken[job]),
            pause=pauses.get(job),
            archive=archives[job],
            last_moment=moments.get(job),
        )
        for job in jobs
    }


def run_counts(connection: Connection) -> dict[str, dict[RunStatus, int]]:
    """How many backups this machine tried, by job and by what became of them.

    One whose process died has failed for good, also where its copy was whole and it is a good one by now as well. So
    has one that could not record its copy.
    """
    runs, attentions = tables.runs, tables.attentions
    ours = select(runs.c.job, runs.c.status, func.count().label("count")).group_by(runs.c.job, runs.c.status)
    ours = ours.where(runs.c.kind == RunKind.BACKUP, tables.OURS)
    died = select(attentions.c.run_id).where(tables.TELLS_OF_FINISHING)
    found: dict[str, dict[RunStatus, int]] = defaultdict(lambda: defaultdict(int))
    for row in connection.execute(ours).mappings():
        found[row["job"]][row["status"]] += row["count"]
    for row in connection.execute(ours.where(runs.c.run_id.in_(died), runs.c.status.in_(GOOD))).mappings():
        found[row["job"]][RunStatus.FAILED] += row["count"]
    return found


@dataclass(frozen=True, slots=True)
class StoredOnTarget:
    """What is on a target of a job of this machine's: all that was not removed."""

    target: str
    job: str
    backups: int
    bytes_stored: int
    broken: int  # of these backups
    unread: int  # of these backups: not known to be broken, and never read back whole
    newest_at: datetime | None = None  # when the run of the newest began; None: all are of a time to come
    verified_at: datetime | None = None  # when one of them was last read back whole
    newest_good_at: datetime | None = None  # as `newest_at`, of those that are not known to be broken


def stored(connection: Connection, *, at: datetime) -> list[StoredOnTarget]:
    """By target and job: all that there is, and what is newest of it up to this instant."""
    backups, runs = tables.backups, tables.runs
    begun, sound = runs.c.started_at <= at, backups.c.broken == ""

    def newest(column: ColumnElement[datetime], *among: ColumnElement[bool]) -> ColumnElement[datetime]:
        return type_coerce(func.max(column).filter(*among), column.type)

    query = (
        select(
            backups.c.target,
            runs.c.job,
            func.count().label("backups"),
            func.sum(backups.c.bytes_stored).label("bytes_stored"),
            func.count().filter(backups.c.broken != "").label("broken"),
            func.count().filter(backups.c.verified_at.is_(None), sound).label("unread"),
            newest(runs.c.started_at, begun).label("newest_at"),
            newest(backups.c.verified_at, backups.c.verified_at <= at).label("verified_at"),
            newest(runs.c.started_at, begun, sound).label("newest_good_at"),
        )
        .join_from(backups, runs, backups.c.run_id == runs.c.run_id)
        .where(tables.THERE, tables.OURS)
        .group_by(backups.c.target, runs.c.job)
    )
    return [from_row(StoredOnTarget, row) for row in connection.execute(query).mappings()]


def _ends(jobs: Sequence[str], at: datetime, targets: Collection[str] | None) -> Select[Any]:
    """For each job its first and last backups, and how many were missed since the last that ended well.

    A backup that somebody has removed, or that was found broken, was made all the same: of what was missed or had
    failed before, nothing has to be told again.
    """
    runs, slots, listed = tables.runs, tables.slots, as_table("listed", jobs)
    ours = and_(runs.c.job == listed.c.value, runs.c.kind == RunKind.BACKUP, tables.OURS, runs.c.started_at <= at)
    newest = (runs.c.started_at.desc(), runs.c.run_id.desc())
    good = ours & runs.c.status.in_(GOOD)
    there = runs.c.run_id.in_(with_copy(targets))
    since = select(runs.c.started_at).where(good).order_by(*newest).limit(1).correlate(listed).scalar_subquery()
    missed = select(func.count()).where(
        slots.c.job == listed.c.value,
        slots.c.activity == Activity.BACKUP,
        slots.c.due_at > func.coalesce(since, ""),
        slots.c.due_at <= at,
        slots.c.state == SlotState.MISSED,
    )

    def one(query: Select[Any]) -> Any:
        return query.limit(1).correlate(listed).scalar_subquery()

    ended = ours & (runs.c.status != RunStatus.RUNNING)
    return select(
        listed.c.value.label("job"),
        one(select(runs.c.started_at).where(ours).order_by(runs.c.started_at)).label("first_at"),
        one(select(runs.c.run_id).where(ended).order_by(*newest)).label("last_run"),
        one(select(runs.c.run_id).where(good, there).order_by(*newest)).label("last_good"),
        one(select(runs.c.ended_at).where(good).order_by(*newest)).label("good_ended_at"),
        missed.correlate(listed).scalar_subquery().label("missed_since_good"),
    )


def _chosen(ids: Sequence[str]) -> Select[str]:
    """These runs; the order is that of `details`."""
    listed = as_table("wanted", ids)
    return select(tables.runs.c.run_id).join(listed, listed.c.value == tables.runs.c.run_id)


def _unfinished(connection: Connection) -> Sequence[Mapping[str, Any]]:
    runs = tables.runs
    columns = select(runs.c.run_id, runs.c.job, runs.c.pid, runs.c.process_start)
    query = columns.where(runs.c.status == RunStatus.RUNNING).order_by(runs.c.started_at.desc())
    return [dict(row) for row in connection.execute(query).mappings()]


def _drills(
    connection: Connection, jobs: Set[str], at: datetime
) -> tuple[Mapping[str, datetime], Mapping[str, LastDrill]]:
    """Each job's newest proof, and its newest drill that found out anything.

    Those of a proof host are recorded later than they happened: their time counts.
    """
    drills, runs = tables.drills, tables.runs
    query = select(runs.c.job, drills.c.at, drills.c.ok, drills.c.seconds, drills.c.run_id)
    query = query.join_from(drills, runs, drills.c.run_id == runs.c.run_id)
    proofs: dict[str, datetime] = {}
    last: dict[str, LastDrill] = {}
    if not jobs:
        return proofs, last
    with connection.execute(
        query.where(drills.c.at <= at, drills.c.undecided == "", tables.OURS).order_by(
            drills.c.at.desc(), drills.c.id.desc()
        )
    ) as rows:
        for job, *drill in rows:
            one = LastDrill(*drill)
            last.setdefault(job, one)
            if one.ok:
                proofs.setdefault(job, one.at)
                if proofs.keys() >= jobs:
                    break
    return proofs, last


def _broken(connection: Connection) -> Mapping[str, list[BrokenBackup]]:
    backups, runs = tables.backups, tables.runs
    query = select(backups, runs.c.job, runs.c.started_at)
    query = query.join_from(backups, runs, backups.c.run_id == runs.c.run_id)
    query = query.where(tables.THERE, tables.OURS, backups.c.broken != "")
    found: dict[str, list[BrokenBackup]] = defaultdict(list)
    # Put in order here: asked for the order of the runs, SQLite walks them all.
    rows = sorted(connection.execute(query).mappings(), key=lambda row: (row["started_at"], row["run_id"]))
    for row in reversed(rows):
        found[row["job"]].append(BrokenBackup(row["run_id"], from_row(Backup, row)))
    return found


def _last_slots(connection: Connection, jobs: Sequence[str], at: datetime) -> Mapping[str, dict[Activity, Slot]]:
    slots, listed = tables.slots, as_table("listed", jobs)
    found: dict[str, dict[Activity, Slot]] = {job: {} for job in jobs}
    for activity in Activity:
        ours = tables.slots.alias("ours")
        newest = select(func.max(ours.c.due_at)).where(
            ours.c.job == listed.c.value, ours.c.activity == literal(activity.value, Text), ours.c.due_at <= at
        )
        query = select(slots).join_from(
            listed, slots, and_(slots.c.job == listed.c.value, slots.c.activity == activity)
        )
        query = query.where(slots.c.due_at == newest.correlate(listed).scalar_subquery())
        for row in connection.execute(query).mappings():
            found[row["job"]][activity] = from_row(Slot, row)
    return found


def _ended_slots(connection: Connection, jobs: Sequence[str], at: datetime) -> Mapping[str, Slot]:
    slots, listed = tables.slots, as_table("listed", jobs)
    ours = slots.alias("ours")
    newest = (
        select(ours.c.due_at)
        .where(
            ours.c.job == listed.c.value,
            ours.c.activity == literal(Activity.BACKUP.value, Text),
            ours.c.state == SlotState.ENDED,
            ours.c.due_at <= at,
        )
        .order_by(ours.c.due_at.desc())
        .limit(1)
    )
    query = select(slots).join_from(
        listed, slots, and_(slots.c.job == listed.c.value, slots.c.activity == Activity.BACKUP)
    )
    query = query.where(slots.c.due_at == newest.correlate(listed).scalar_subquery())
    return {row["job"]: from_row(Slot, row) for row in connection.execute(query).mappings()}


def _missed(connection: Connection) -> Mapping[str, dict[Activity, int]]:
    slots = tables.slots
    query = select(slots.c.job, slots.c.activity, func.count().label("count"))
    query = query.where(slots.c.state == SlotState.MISSED).group_by(slots.c.job, slots.c.activity)
    found: dict[str, dict[Activity, int]] = defaultdict(dict)
    for row in connection.execute(query).mappings():
        found[row["job"]][row["activity"]] = row["count"]
    return found
