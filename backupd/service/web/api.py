"""The same as JSON, for programs: `/api/…`, told by `/openapi.json`. Sizes are bytes, times seconds, instants UTC.

Knows: the shapes. What is told here only ever gets more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from backupd.catalogue.details import Filter
from backupd.host.live_progress import Progress
from backupd.report.costs import RunFigures
from backupd.service.archive_status import ArchiveFigures, ArchiveStatus, archive_statuses
from backupd.service.job_status import JobStatus, Running, job_statuses, remaining_seconds
from backupd.service.storage import StorageStatus, storage_statuses
from backupd.service.web.asked import AskedLive, AskedRooms, AskedSite, Instant
from backupd.service.web.guard import LONGEST_QUERY
from backupd.service.web.history import run_named
from backupd.service.web.refusals import Refusal
from backupd.service.web.schedules import ScheduleLine, schedule_lines
from backupd.service.web.targets import PAGE_SECONDS
from backupd.vocabulary.alarms import Alarm
from backupd.vocabulary.records import GOOD, RunDetails, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity

Answers = dict[int | str, dict[str, Any]]  # what FastAPI is told of a status, by the status

REFUSALS: Answers = {  # of whatever is asked
    status: {"model": Refusal, "description": words}
    for status, words in (
        (401, "The token is missing or wrong."),
        (414, f"The URL is too long: its query has more than {LONGEST_QUERY} bytes."),
        (421, "This machine does not serve the name in the Host header."),
        (422, "A parameter is invalid."),
        (503, "The catalogue cannot be read."),
    )
}
NOT_FOUND: Answers = {404: {"model": Refusal, "description": "Not found."}}
NAME = "^[^\\x00-\\x1f/\\\\]{1,100}$"
Job = Annotated[str | None, Query(min_length=1, max_length=100, description="Only of this job.")]
Since = Annotated[Instant | None, Query(description="Only runs started at this time or later.")]
Until = Annotated[Instant | None, Query(description="Only runs started before this time.")]

router = APIRouter(prefix="/api", responses=REFUSALS)


@dataclass(frozen=True)
class RunningNow:
    """A run that has not ended."""

    run_id: str
    kind: RunKind
    started_at: datetime
    alive: bool  # false: its process is gone
    progress: Progress | None
    remaining_seconds: float | None  # about


@dataclass(frozen=True)
class JobNow:
    """How a job stands."""

    job: str
    last_good_run: str | None
    last_good_at: datetime | None
    last_run: str | None
    last_run_status: RunStatus | None
    overdue_at: datetime | None  # when the last good backup becomes too old
    running: Sequence[RunningNow]
    next_due: Mapping[Activity, datetime]
    missed_total: Mapping[Activity, int]
    proven_at: datetime | None
    paused: bool
    pause_note: str | None
    alarms: Sequence[Alarm]
    archive: ArchiveFigures | None  # null: its binlog is not archived


@dataclass(frozen=True)
class RunsPage:
    """One page of runs, newest first."""

    runs: Sequence[RunFigures]
    before: str | None  # ask for the next page with it; null on the last one


@dataclass(frozen=True)
class ImpactDocument:
    """What backups cost, oldest first: all, or so many spread over the time."""

    runs: Sequence[RunFigures]


@dataclass(frozen=True)
class Jobs:
    """Every configured job."""

    now: datetime
    jobs: Sequence[JobNow]


@dataclass(frozen=True)
class TargetNow:
    """How a target stands; what is not known is null."""

    target: str
    up: bool | None  # only folders are looked at
    free: int | None
    size: int | None
    full_in_seconds: float | None
    jobs: Sequence[str]  # that write there
    alarms: Sequence[Alarm]


@dataclass(frozen=True)
class Targets:
    """Every configured target."""

    now: datetime
    targets: Sequence[TargetNow]


@dataclass(frozen=True)
class Schedule:
    """All that is due."""

    now: datetime
    lines: Sequence[ScheduleLine]


@router.get("/jobs")
def jobs(site: AskedSite, live: AskedLive) -> Jobs:
    """How every configured job stands."""
    found = job_statuses(site, live)
    archives = archive_statuses(site, found)
    return Jobs(site.now(), [_job_now(status, archives.get(status.job)) for status in found])


@router.get("/targets")
def targets(site: AskedSite, rooms: AskedRooms) -> Targets:
    """How every configured target stands."""
    found = storage_statuses(site, rooms.seen(within_seconds=PAGE_SECONDS))
    return Targets(site.now(), [_target_now(one) for one in found])


@router.get("/schedule")
def schedule(site: AskedSite, live: AskedLive) -> Schedule:
    """What is due when."""
    return Schedule(site.now(), schedule_lines(site, live))


@router.get("/runs", responses=NOT_FOUND)
def runs(
    site: AskedSite,
    *,
    job: Job = None,
    since: Since = None,
    until: Until = None,
    status: Annotated[list[RunStatus], Query(description=("Only these outcomes; may be given more than once."))] = [],  # noqa: B006
    before: Annotated[str | None, Query(pattern=NAME, description="Continue after this run.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RunsPage:
    """Runs of every kind, newest first."""
    wanted = Filter(job, since, until, tuple(status))
    found = site.catalogue.costs_page(wanted, before=before, limit=limit + 1)
    shown = [RunFigures.of(run) for run in found[:limit]]
    return RunsPage(shown, shown[-1].run_id if len(found) > limit else None)


@router.get("/impact")
def impact(
    site: AskedSite,
    *,
    job: Job = None,
    since: Since = None,
    until: Until = None,
    points: Annotated[int, Query(ge=2, le=500)] = 300,
) -> ImpactDocument:
    """What good backups of this machine cost over time, for plots."""
    found = site.catalogue.costs_over_time(Filter(job, since, until, GOOD, ours=True), points=points)
    return ImpactDocument([RunFigures.of(run) for run in reversed(found)])


@router.get("/runs/{run_id}", responses=NOT_FOUND)
def run(site: AskedSite, run_id: Annotated[str, Path(pattern=NAME)]) -> RunDetails:
    """All that the catalogue knows of one run."""
    return run_named(site, run_id)


def _job_now(status: JobStatus, archive: ArchiveStatus | None) -> JobNow:
    good, last = status.last_good, status.last_run
    return JobNow(
        job=status.job,
        last_good_run=None if good is None else good.run_id,
        last_good_at=None if good is None else good.started_at,
        last_run=None if last is None else last.run_id,
        last_run_status=None if last is None else last.status,
        overdue_at=status.overdue_at,
        running=[_running_now(one, status) for one in status.running],
        next_due=status.next_due,
        missed_total=status.missed_total,
        proven_at=status.proven_at,
        paused=status.pause is not None,
        pause_note=None if status.pause is None else status.pause.note,
        alarms=status.alarms,
        archive=None if archive is None else archive.figures,
    )


def _target_now(one: StorageStatus) -> TargetNow:
    seen = one.seen
    up, free, size = (None, None, None) if seen is None else (seen.up, seen.free, seen.size)
    return TargetNow(one.config.name, up, free, size, one.full_in_seconds, one.jobs, one.alarms)


def _running_now(one: Running, status: JobStatus) -> RunningNow:
    remaining = remaining_seconds(one, status.last_good, now=status.now)
    return RunningNow(one.run.run_id, one.run.kind, one.run.started_at, one.alive, one.progress, remaining)
