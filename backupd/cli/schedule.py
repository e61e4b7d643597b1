"""`backupd schedule`: what is due when, and a person's word that nothing of a job is to be started."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say, tell
from backupd.cli.timers import has_timer, timer_of
from backupd.report.json_document import iso
from backupd.vocabulary.errors import ExitStatus, UsageError
from backupd.vocabulary.schedule import Activity, Pause, Slot, SlotState

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration, JobConfig, ScheduleConfig
    from backupd.policy.timetable import Timetable

app = typer.Typer(help="Show what is due when; pause and resume jobs.", no_args_is_help=True)

_MOST = 1_000_000  # times that are told at once
_NO_TABLE_HINT = "add a table such as [jobs.{}.schedules.{}] with a cron to the configuration"

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job that has a schedule.")]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One activity of a job: when it is due, and what became of it last."""

    job: str
    activity: Activity
    schedule: "ScheduleConfig"
    timetable: "Timetable"
    next_due: datetime | None
    last: Slot | None
    error: str  # of the run that it was last; empty: it had none
    pause: Pause | None


@app.command("list")
def list_schedules(ctx: typer.Context, *, json: JsonOption = False) -> None:
    """List every schedule: when it is next due, in its own time zone and in UTC, and its last outcome."""
    from backupd.operations import context

    configuration = context.configuration(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        entries = _entries(configuration, catalogue)
        tell_of_other_schedules(configuration, catalogue)
    if json:
        print_document({"schedules": [_document(entry) for entry in entries]})
    else:
        print_text(_table(entries) if entries else "no job has a schedule")


@app.command("next")
def next_times(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="A job that has a schedule.")] = None,
    *,
    activity: Annotated[
        Activity | None, typer.Option(help="Which of the job's schedules; default: backup.", show_default=False)
    ] = None,
    cron: Annotated[str | None, typer.Option(metavar="EXPR", help="Five cron fields, instead of a job.")] = None,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Time zone of --cron; default: the service's.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Show times after this one instead of now; without an offset, in the schedule's zone.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=_MOST, help="How many to show.")] = 5,
    json: JsonOption = False,
) -> None:
    """Show the next times at which JOB, or a cron expression, is due; clock changes neither skip nor double one."""
    if (job is None) == (cron is None):
        raise UsageError("give either a job or --cron", hint='backupd schedule next --cron "30 2 * * *"')
    if job is not None and tz is not None:
        raise UsageError("--tz is for --cron: a job's schedule has its own zone", hint="omit --tz")
    if cron is not None and activity is not None:
        raise UsageError("--activity is for a job: --cron is the schedule itself", hint="omit --activity")
    timetable = _of_expression(ctx, cron, tz) if cron is not None else _of_job(ctx, job or "", activity)
    begin = datetime.now(UTC) if since is None else _instant(since, timetable.zone)
    times = list(islice(timetable.following(begin), count))
    if not times:
        raise UsageError(f"it is never due between {begin.isoformat()} and the end of the year 9999", hint="see --from")
    if json:
        print_document({"times": [due.isoformat() for due in times]})
    else:
        print_text(_times(times, timetable.zone))


@app.command()
def pause(
    ctx: typer.Context,
    job: JobArgument,
    *,
    note: Annotated[str, typer.Option(help="Reason, shown with the run or job from now on.")] = "",
) -> None:
    """Stop starting JOB by schedule until `schedule resume`. A run in progress continues."""
    from backupd.operations import context

    configuration = context.configuration(ctx.obj.config)
    name = _scheduled(configuration, job).name
    with context.catalogue(configuration) as catalogue:
        catalogue.pause(name, note)
    say(f"job {name} is paused" + (f": {note}" if note else ""))
    if has_timer(name):
        tell(f"attention: {timer_of(name)} is enabled and starts it all the same: systemctl stop {timer_of(name)}")


@app.command()
def resume(ctx: typer.Context, job: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
    """Start JOB by schedule again."""
    from backupd.operations import context

    configuration = context.configuration(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        paused = job in catalogue.pauses()
        if not paused:  # one that was paused may have left the configuration since
            context.job(configuration, job)
        catalogue.resume(job)
    say(f"job {job} runs on schedule again" if paused else f"job {job} was not paused")


def tell_of_other_schedules(configuration: "Configuration", catalogue: "Catalogue") -> None:
    """A daemon starts by the configuration that it has read, which may be an earlier one."""
    from backupd.host.claims import Claims
    from backupd.service.timetables import timetables

    is_served = Claims(configuration.paths.run).daemon_pid() is not None
    gone_by = {key: one.timetable for key, one in catalogue.gone_by().items()}
    if is_served and gone_by != timetables(configuration):
        tell("attention: the daemon's schedules differ from the configuration's: systemctl reload backupd")


def _scheduled(configuration: "Configuration", name: str) -> "JobConfig":
    from backupd.operations import context

    job = context.job(configuration, name)
    if not job.schedules.items():
        raise UsageError(f"job {name} has no schedule", hint=_NO_TABLE_HINT.format(name, Activity.BACKUP))
    return job


def _of_job(ctx: typer.Context, job: str, activity: Activity | None) -> "Timetable":
    from backupd.operations import context
    from backupd.service.timetables import timetables

    configuration = context.configuration(ctx.obj.config)
    scheduled, wanted = _scheduled(configuration, job), activity or Activity.BACKUP
    found = timetables(configuration).get((job, wanted))
    if found is None:
        others = ", ".join(other for other, _ in scheduled.schedules.items())
        raise UsageError(f"job {job} has no schedule for {wanted}", hint=f"--activity; it has: {others}")
    return found


def _of_expression(ctx: typer.Context, expression: str, zone: str | None) -> "Timetable":
    from backupd.operations import context
    from backupd.policy.timetable import Timetable, require_cron, require_zone
    from backupd.service.timetables import zone_of

    require_cron(expression)
    if zone is not None:
        return Timetable(expression, require_zone(zone))
    return Timetable(expression, zone_of(context.configuration_or_defaults(ctx.obj.config)))


def _instant(text: str, zone: str) -> datetime:
    from backupd.policy.timetable import first_showing

    try:
        read = datetime.fromisoformat(text)
        return first_showing(read, zone) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text[:60]!r} is not a time", hint='such as "2026-03-29T00:00:00+01:00"') from error


def _entries(configuration: "Configuration", catalogue: "Catalogue") -> list[_Entry]:
    from backupd.service.slot_errors import error_of_slot
    from backupd.service.timetables import timetables

    now, pauses, times = datetime.now(UTC), catalogue.pauses(), timetables(configuration)
    entries = []
    for job in configuration.jobs.values():
        for activity, schedule in job.schedules.items():
            timetable = times[job.name, activity]
            last = next(iter(catalogue.slots(job=job.name, activity=activity, until=now, limit=1)), None)
            due, error = timetable.after(now), error_of_slot(catalogue, last)
            entries.append(_Entry(job.name, activity, schedule, timetable, due, last, error, pauses.get(job.name)))
    return entries


def _document(entry: _Entry) -> dict[str, Any]:
    due, last, pause = entry.next_due, entry.last, entry.pause
    return {
        "job": entry.job,
        "activity": entry.activity,
        "cron": entry.timetable.cron,
        "zone": entry.timetable.zone,
        "offset_seconds": entry.timetable.offset_seconds,
        "start_within_seconds": entry.schedule.start_within_seconds,
        "next_due": iso(due),
        "next_due_local": None if due is None else due.astimezone(ZoneInfo(entry.timetable.zone)).isoformat(),
        "paused": None if pause is None else {"note": pause.note, "at": pause.at.isoformat()},
        "last": None if last is None else {**_slot(last), "error": entry.error or None},
    }


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "due_at": slot.due_at.isoformat(),
        "state": slot.state,
        "decided_at": slot.decided_at.isoformat(),
        "ended_at": iso(slot.ended_at),
        "run_id": slot.run_id or None,
        "try": slot.number,
        "retry_at": iso(slot.retry_at),
        "exit_status": slot.exit_status,
        "reason": slot.reason,
    }


def _table(entries: list[_Entry]) -> str:
    from backupd.report.words import columns
    from backupd.vocabulary.units import format_duration

    rows = [("JOB", "ACTIVITY", "CRON", "ZONE", "NEXT (ITS CLOCK)", "NEXT (UTC)", "START WITHIN", "LAST")]
    rows += [
        (
            entry.job,
            entry.activity.value,
            entry.timetable.cron,
            entry.timetable.zone,
            _next(entry, entry.timetable.zone),
            _next(entry, "UTC"),
            format_duration(entry.schedule.start_within_seconds),
            _became(entry.last, entry.schedule) + (f": {entry.error}" if entry.error else ""),
        )
        for entry in entries
    ]
    return columns(rows)


def _next(entry: _Entry, zone: str) -> str:
    if entry.pause is not None:
        return "paused"
    return "-" if entry.next_due is None else f"{entry.next_due.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S}"


def _became(slot: Slot | None, schedule: "ScheduleConfig") -> str:
    if slot is None:
        return "-"
    from backupd.config import BackupScheduleConfig

    tries = schedule.retries + 1 if isinstance(schedule, BackupScheduleConfig) else 1
    due = f"{slot.due_at:%Y-%m-%d %H:%M}" + (f" try {slot.number} of {tries}" if slot.tried else "")
    if slot.state is SlotState.RETRYING and slot.retry_at is not None:
        return f"{due} failed, next try {slot.retry_at:%H:%M} UTC"
    if slot.state is SlotState.MISSED:
        return f"{due} missed: {slot.reason}"
    if slot.state is SlotState.LEFT:
        return f"{due} {slot.reason}"
    if slot.state is SlotState.STARTED:
        return f"{due} started"
    if slot.exit_status is None:
        return f"{due} ended, exit status unknown"
    known = {status.value: status.meaning for status in ExitStatus}
    return f"{due} {known.get(slot.exit_status, f'ended with status {slot.exit_status}')}"


def _times(times: list[datetime], zone: str) -> str:
    from backupd.report.words import columns

    clock = ZoneInfo(zone)
    rows = [(f"{due.astimezone(clock):%a %Y-%m-%d %H:%M:%S %z}", f"{due:%Y-%m-%d %H:%M:%S}") for due in times]
    return columns([(zone.upper(), "UTC"), *rows])
