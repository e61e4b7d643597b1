"""The pages: overview, schedule, targets. Each asks the catalogue once or twice and fills one template.

Knows: what belongs on which page.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from backupd.operations.binlog.rolling import rolled_forward
from backupd.report.history_columns import page_columns
from backupd.service.archive_status import archive_statuses, behind_words
from backupd.service.job_status import running_besides
from backupd.service.metrics import CONTENT_TYPE
from backupd.service.site_status import site_status
from backupd.service.web.asked import AskedLive, AskedMetrics, AskedRooms, AskedSite
from backupd.service.web.history import Asked, RunFilter, history_page
from backupd.service.web.rendering import page
from backupd.service.web.run_view import getting_on
from backupd.service.web.schedules import schedule_lines
from backupd.service.web.targets import PAGE_SECONDS, target_statuses

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
def healthz(site: AskedSite) -> Response:
    """That the catalogue can be read, and nothing else."""
    site.catalogue.unfinished()
    return PlainTextResponse("ok\n")


@router.get("/metrics")
def metrics(metrics: AskedMetrics) -> Response:
    """What Prometheus is told."""
    return Response(metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/")
def overview(request: Request, site: AskedSite, live: AskedLive, rooms: AskedRooms) -> Response:
    """Each job: last good, next, what runs now; alarms first, those of targets too."""
    status = site_status(site, live, rooms.seen(within_seconds=PAGE_SECONDS))
    archives = archive_statuses(site, status.jobs)
    live_runs = [(one, job.last_good) for job in status.jobs for one in job.running if one.alive]
    return page(
        request,
        "overview.html",
        now=status.now,
        alarms=status.alarms,
        alarmed_targets=[one for one in status.storage if one.alarms],
        jobs=sorted(status.jobs, key=lambda job: (not job.alarms, job.job)),
        archives={job: (one.figures, behind_words(one.figures)) for job, one in archives.items()},
        besides=running_besides(site, live),
        going_on={one.run.run_id: getting_on(one, good, now=site.now()) for one, good in live_runs},
    )


@router.get("/schedule")
def schedule(request: Request, site: AskedSite, live: AskedLive) -> Response:
    """What is due when, and what became of what was due last."""
    now = site.now()
    lines, recent = schedule_lines(site, live), site.catalogue.slots(until=now, limit=50)
    return page(request, "schedule.html", now=now, lines=lines, recent=recent)


@router.get("/history")
def history(
    request: Request,
    site: AskedSite,
    *,
    job: str = "",
    since: Annotated[str, Query(alias="from")] = "",
    until: Annotated[str, Query(alias="to")] = "",
    outcome: str = "",
    before: str = "",
) -> Response:
    """What became of runs, and what they cost."""
    asked = Asked(job.strip(), since.strip(), until.strip(), outcome)
    shown = history_page(site, asked, before=before)
    return page(
        request,
        "history.html",
        asked=asked,
        outcomes=list(RunFilter),
        jobs=sorted({*site.configuration.jobs, *filter(None, [asked.job])}),
        runs=shown.runs,
        columns=page_columns(rolled_forward(site.catalogue, {run.job for run in shown.runs})),
        machine=site.catalogue.identity().name,
        older=asked.query(before=shown.older) if shown.older else "",
        newest=asked.query() if before else None,
    )


@router.get("/api")
def api(request: Request) -> Response:
    """What programs may ask."""
    return page(request, "api.html", questions=questions(request.app.openapi()))


@router.get("/targets")
def targets(request: Request, site: AskedSite, rooms: AskedRooms) -> Response:
    """Where backups live, and what is there."""
    return page(request, "targets.html", now=site.now(), targets=target_statuses(site, rooms))


def questions(document: dict[str, Any]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Each path with its summary and its parameters."""
    asked = ((path, methods["get"]) for path, methods in document["paths"].items())
    return [(path, get.get("description", ""), get.get("parameters", [])) for path, get in asked]
