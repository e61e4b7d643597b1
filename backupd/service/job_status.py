"""How each job stands: its last backups, what is going on, what is due next, and what is an alarm.

Knows: what deserves an alarm, and how long a run may still take. `job_statuses` reads; all else here is pure. Who shows
alarms asks `site_status`, which has those of targets as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.catalogue.job_status import JobRecord, LastDrill
from backupd.catalogue.moment_proofs import LastMomentDrill
from backupd.config import JobConfig
from backupd.host.live_progress import Progress
from backupd.host.process import is_alive
from backupd.policy.failed_slots import is_failed
from backupd.policy.fallback import FallbackRule
from backupd.policy.timetable import Timetable
from backupd.report.words import instant
from backupd.service.archive_alarms import archive_alarms
from backupd.service.fallback import fallback_rule
from backupd.service.machine_view import Live
from backupd.service.site import Site
from backupd.service.timetables import timetables
from backupd.vocabulary.alarms import Alarm, AlarmKind, Severity, gravest
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import Phase, RunDetails, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, Pause, Slot, SlotState

_PATIENCE = 1.5  # a backup may be this many times older than the job wants one
HARMLESS = (ExitStatus.OK, ExitStatus.ATTENTION, ExitStatus.BUSY, ExitStatus.CANCELLED)  # but for a backup


@dataclass(frozen=True, slots=True)
class Running:
    """A run that has not ended."""

    run: RunDetails
    alive: bool  # False: its process is gone
    progress: Progress | None  # None: it has told nothing

    @classmethod
    def of(cls, run: RunDetails, process: tuple[int, int] | None, live: Live) -> Self:
        """By the process that the catalogue has of it."""
        alive = is_alive(process, live.born)
        return cls(run, alive, live.of(run.run_id) if alive else None)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job at one instant."""

    job: str
    now: datetime
    config: JobConfig
    last_run: RunDetails | None = None  # the newest backup that ended, whatever became of it
    last_good: RunDetails | None = None  # the newest that ended well or needs attention, and can be restored
    running: tuple[Running, ...] = ()  # backups and probes, newest first
    overdue_at: datetime | None = None  # when the last good backup becomes too old
    next_due: Mapping[Activity, datetime] = field(default_factory=dict)  # of what has a schedule; also while paused
    last_slots: Mapping[Activity, Slot] = field(default_factory=dict)
    missed_total: Mapping[Activity, int] = field(default_factory=dict)  # since ever
    proven_at: datetime | None = None  # when a drill last proved a backup of this job
    last_drill: LastDrill | None = None  # the newest that found out anything
    pause: Pause | None = None
    archive: ArchiveRecord | None = None  # None: its binlog is not archived
    last_moment: LastMomentDrill | None = None  # the newest drill of a moment of that
    alarms: tuple[Alarm, ...] = ()  # the gravest first
    fallback: FallbackRule | None = None  # None: its backups are never left to a fleet

    @property
    def severity(self) -> Severity:
        """Of its gravest alarm."""
        return gravest(alarm.severity for alarm in self.alarms)

    @property
    def allowed_seconds(self) -> float | None:
        """How old the newest good backup may become; None where there is none."""
        if self.last_good is None or self.overdue_at is None:
            return None
        return (self.overdue_at - self.last_good.started_at).total_seconds()


def job_statuses(site: Site, live: Live) -> tuple[JobStatus, ...]:
    """Every configured job, by name, at one instant of the catalogue. Runs are without their samples.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    now = site.now()
    jobs = dict(sorted(site.configuration.jobs.items()))
    found = site.catalogue.records(list(jobs), at=now, targets=site.configuration.targets)
    due: dict[str, dict[Activity, Timetable]] = {job: {} for job in jobs}
    for (job, activity), timetable in timetables(site.configuration).items():
        due[job][activity] = timetable
    return tuple(
        replace(
            _job_status(config, found[job], due[job], live, now=now),
            fallback=fallback_rule(config.name, config.schedules.backup, site.catalogue),
        )
        for job, config in jobs.items()
    )


def running_besides(site: Site, live: Live) -> tuple[Running, ...]:
    """What has not ended and is no job's, newest first: benches, and probes of volumes that were named.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    besides = site.catalogue.records([""], at=site.now())[""]
    return tuple(Running.of(unfinished.run, unfinished.process, live) for unfinished in besides.unfinished)


def _job_status(
    config: JobConfig, record: JobRecord, tables: Mapping[Activity, Timetable], live: Live, *, now: datetime
) -> JobStatus:
    due_still = tables.keys() | {Activity.BACKUP}  # what has no schedule any more is never made good
    record = replace(record, last_slots={one: slot for one, slot in record.last_slots.items() if one in due_still})
    running = tuple(Running.of(unfinished.run, unfinished.process, live) for unfinished in record.unfinished)
    due = {activity: table.after(now) for activity, table in tables.items()}
    good = record.last_good
    overdue = overdue_at(config, good, tables.get(Activity.BACKUP)) if good is not None else None
    return JobStatus(
        job=record.job,
        now=now,
        config=config,
        last_run=record.last_run,
        last_good=record.last_good,
        running=running,
        overdue_at=overdue,
        next_due={activity: at for activity, at in due.items() if at is not None},
        last_slots=record.last_slots,
        missed_total=record.missed,
        proven_at=record.proven_at,
        last_drill=record.last_drill,
        pause=record.pause,
        archive=None if config.binlog is None else record.archive,
        last_moment=record.last_moment,
        alarms=alarms(config, record, running, overdue_at=overdue, now=now),
    )


# --- what is an alarm ------------------------------------------------------------------------------------------------


def alarms(
    config: JobConfig,
    record: JobRecord,
    running: tuple[Running, ...],
    *,
    overdue_at: datetime | None,
    now: datetime,
) -> tuple[Alarm, ...]:
    """What somebody should look at, the gravest first. Being paused is none, nor what is missed of it: it was wanted.

    A run that a person cancelled, or that found another at work, is no failure: the job is overdue soon enough; neither
    is one that its schedule tries again. What was due, and whose last try failed in whatever way, is one until a backup
    is good.
    """
    return (
        *_failed(config, record, now),
        *_died(running),
        *_broken(record),
        *_overdue(record, overdue_at, now),
        *(_missed(record) if record.pause is None else ()),
        *_drill_overdue(config, record, now),
        *_of_archive(config, record, now),
        *_attention(record),
    )


def _failed(config: JobConfig, record: JobRecord, now: datetime) -> list[Alarm]:
    found = [*_failed_backup(config, record, now), *(drill := _failed_drill(config, record))]
    for activity, slot in record.last_slots.items():
        status = slot.exit_status
        if activity is Activity.BACKUP or slot.state is not SlotState.ENDED or status in HARMLESS:
            continue
        if activity is Activity.DRILL and (drill or drilled_well_since(slot.decided_at, config, record)):
            continue
        text = f"the {activity} of {instant(slot.due_at)} {_ended_badly(status)}"
        found.append(Alarm(AlarmKind.FAILED, text, slot.run_id, about=activity))
    return found


def _failed_drill(config: JobConfig, record: JobRecord) -> list[Alarm]:
    """Of the newest drill that had an answer, whoever did it, of whichever backup. Where drills are of moments, a good
    plain one does not end that of a moment: it proves none.
    """
    moment = record.last_moment if config.drill.moment is not None else None
    for one, what in ((moment, "moment"), (record.last_drill, "backup")):
        if one is not None and not one.ok:
            text = f"the drill of {instant(one.at)} failed, and none has proven a {what} since"
            return [Alarm(AlarmKind.FAILED, text, one.run_id, about=Activity.DRILL)]
    return []


def drilled_well_since(at: datetime, config: JobConfig, job: JobRecord | JobStatus) -> bool:
    """Whether a drill was good after this, whoever did it; one of a moment, where the job's are."""
    last = job.last_drill if config.drill.moment is None else job.last_moment
    return last is not None and last.ok and last.at > at


def _ended_badly(status: int | None) -> str:
    if status is None:
        return "ended, result unknown"
    undecided = "was undecided: it ran into a limit of its own"
    return undecided if status == ExitStatus.UNDECIDED else f"failed ({_meaning(status)})"


def _failed_backup(config: JobConfig, record: JobRecord, now: datetime) -> Iterator[Alarm]:
    last, slot = record.last_run, record.ended_slot
    bad = last is not None and last.status in (RunStatus.FAILED, RunStatus.REFUSED)
    if last is not None and bad and not _tried_again(config, record, last.run_id, now):
        yield _of_failed(last)
    elif slot is not None and is_failed(slot, good_at=record.good_ended_at):
        tried = record.ended_run
        if tried is not None and tried.error is not None:
            yield _of_failed(tried)
        elif tried is None:  # a run that has died has an alarm of its own
            became = "failed" if slot.exit_status is None else f"failed ({_meaning(slot.exit_status)})"
            text = f"the backup of {instant(slot.due_at)} {became}"
            yield Alarm(AlarmKind.FAILED, text, slot.run_id, about=Activity.BACKUP)


def _of_failed(run: RunDetails) -> Alarm:
    said = f": {run.error.first_line}" if run.error is not None and run.error.message else ""
    text = f"the last backup {_became(run.status)}{said}"
    return Alarm(AlarmKind.FAILED, text, run.run_id, about=Activity.BACKUP)


def _tried_again(config: JobConfig, record: JobRecord, run_id: str, now: datetime) -> bool:
    """A next try of this run is planned, and can still start, or is running: the alarm comes after the last one."""
    slot, schedule = record.last_slots.get(Activity.BACKUP), config.schedules.backup
    if slot is None or schedule is None:
        return False
    if slot.retry_at is not None:
        return slot.run_id == run_id and now <= slot.due_at + timedelta(seconds=schedule.start_within_seconds)
    return slot.state is SlotState.STARTED and run_id in slot.tried


def _died(running: tuple[Running, ...]) -> list[Alarm]:
    return [
        Alarm(
            AlarmKind.DIED,
            f"the process of a {one.run.kind} has died; `backupd recover` cleans up",
            one.run.run_id,
            about=one.run.run_id,
        )
        for one in running
        if not one.alive
    ]


def _became(status: RunStatus) -> str:
    return "was refused" if status is RunStatus.REFUSED else "failed"


def _meaning(status: int | None) -> str:
    known = {int(one): one.meaning for one in ExitStatus}
    return known.get(status or 0, f"exit status {status}")


def _broken(record: JobRecord) -> list[Alarm]:
    return [
        Alarm(
            AlarmKind.BROKEN,
            f"the copy on {one.backup.target} cannot be restored: {one.backup.broken}",
            one.run_id,
            about=f"{one.run_id} on {one.backup.target}",
        )
        for one in record.broken
    ]


def overdue_at(config: JobConfig, last_good: RunDetails, backups: Timetable | None) -> datetime:
    """When the job's newest good backup becomes too old.

    By the schedule a backup may be rarer than `every` says; then its next slot counts, with as much patience.
    """
    began, schedule = last_good.started_at, config.schedules.backup
    latest = began + timedelta(seconds=config.every_seconds * _PATIENCE)
    expected = backups.after(began) if backups is not None else None
    if expected is None or schedule is None:
        return latest
    late = schedule.start_within_seconds + config.every_seconds * (_PATIENCE - 1)
    return max(latest, expected + timedelta(seconds=late))


def _overdue(record: JobRecord, overdue_at: datetime | None, now: datetime) -> list[Alarm]:
    if record.last_good is None or overdue_at is None:
        return [Alarm(AlarmKind.OVERDUE, "there is no good backup")]
    if now <= overdue_at:
        return []
    hours = (now - record.last_good.started_at).total_seconds() / 3600
    return [Alarm(AlarmKind.OVERDUE, f"the last good backup is {hours:.0f} hours old", record.last_good.run_id)]


def _missed(record: JobRecord) -> list[Alarm]:
    found = []
    if record.missed_since_good:
        last = record.last_slots.get(Activity.BACKUP)
        why = f": {last.reason}" if last is not None and last.state is SlotState.MISSED and last.reason else ""
        count = record.missed_since_good
        times = "a backup was" if count == 1 else f"{count} backups were"
        text = f"{times} missed since the last good one{why}"
        found.append(Alarm(AlarmKind.MISSED, text, about=Activity.BACKUP))
    for activity, slot in record.last_slots.items():
        if activity is not Activity.BACKUP and slot.state is SlotState.MISSED:
            text = f"the {activity} of {instant(slot.due_at)} was missed" + (f": {slot.reason}" if slot.reason else "")
            found.append(Alarm(AlarmKind.MISSED, text, about=activity))
    return found


def _drill_overdue(config: JobConfig, record: JobRecord, now: datetime) -> Iterator[Alarm]:
    """Counted from the job's first backup where nothing was ever proven. Where drills are of moments, these count too:
    a restore to one proves its backup, and a plain drill proves no moment.
    """
    yield from _overdue_proof(config, record, "a backup", record.proven_at, now)
    last = record.last_moment
    if config.drill.moment is not None:
        proven_at = None if last is None else last.proven_at
        yield from _overdue_proof(config, record, "a moment", proven_at, now, about="moment")


def _overdue_proof(
    config: JobConfig, record: JobRecord, what: str, proven_at: datetime | None, now: datetime, *, about: str = ""
) -> Iterator[Alarm]:
    within, since = config.drill_within_seconds, proven_at or record.first_at
    if within is None or since is None or (now - since).total_seconds() <= within:
        return
    days = (now - since).total_seconds() / 86400
    never = f"no drill has ever proven {what}"
    text = never if proven_at is None else f"the last drill that proved {what} is {days:.0f} days old"
    yield Alarm(AlarmKind.DRILL_OVERDUE, text, about=about)


def _of_archive(config: JobConfig, record: JobRecord, now: datetime) -> Iterator[Alarm]:
    if config.binlog is not None:
        limit = config.binlog.spool_limit
        yield from archive_alarms(record.archive, spool_limit=limit, now=now)


def _attention(record: JobRecord) -> list[Alarm]:
    good, check, found = record.last_good, record.last_slots.get(Activity.CHECK), []
    if good is not None and good.status is RunStatus.ATTENTION:
        said = "; ".join(good.attention) or "the last good backup needs attention"
        found.append(Alarm(AlarmKind.ATTENTION, said, good.run_id))
    if check is not None and check.state is SlotState.ENDED and check.exit_status == ExitStatus.ATTENTION:
        text = f"the next backup would need attention, as the check of {instant(check.due_at)} found"
        found.append(Alarm(AlarmKind.ATTENTION, text, about=Activity.CHECK))
    return found


# --- how long it may still take --------------------------------------------------------------------------------------

_AFTER = {Phase.COPY: (Phase.RELEASE, Phase.SEND, Phase.VERIFY), Phase.SEND: (Phase.VERIFY,)}
_WHOLE = tuple(phase for phase in Phase if phase is not Phase.SNAPSHOT)  # that one lies inside `lock_hold`


def remaining_seconds(running: Running, last_good: RunDetails | None, *, now: datetime) -> float | None:
    """About how long the run will still take, in seconds; None where nothing tells.

    From its rate so far, where it is copying or sending and its whole is known; what comes after that, and a run that
    does neither, is taken to last as long as the job's last good run.
    """
    if not running.alive or running.run.kind is not RunKind.BACKUP:
        return None
    past, told = dict(last_good.phases) if last_good is not None else {}, running.progress
    if told is not None and told.phase in _AFTER and told.total and told.done and told.at > told.since:
        after = sum(past.get(phase, 0.0) for phase in _AFTER[told.phase])
        rate = told.done / (told.at - told.since)
        return max(0.0, (told.total - told.done) / rate - _age(told.at, now)) + after
    whole = sum(past.get(phase, 0.0) for phase in _WHOLE)
    elapsed = (now - running.run.started_at).total_seconds()
    return whole - elapsed if whole > elapsed else None


def _age(told_at: float, now: datetime) -> float:
    return max(0.0, (now - datetime.fromtimestamp(told_at, UTC)).total_seconds())
