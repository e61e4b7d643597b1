"""The pages: overview, schedule, targets. Each asks the catalogue once or twice and fills one template.

Knows: what belongs on which page. Refuses to know HTML, and what an alarm is.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from backupd.service.standing import JobStanding, Running, remaining_seconds, standings
from backupd.service.web.asked import AskedLive, AskedSite
from backupd.service.web.looks import page
from backupd.service.web.targets import target_standings

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
def healthz(site: AskedSite) -> Response:
    """That the catalogue can be read, and nothing else."""
    site.catalogue.unfinished()
    return PlainTextResponse("ok\n")


@router.get("/")
def overview(request: Request, site: AskedSite, live: AskedLive) -> Response:
    """Each job: last good, next, what runs now; alarms first."""
    jobs = standings(site, live)
    remaining = {one.run.run_id: remaining_seconds(one, job.last_good, now=job.now) for job in jobs for one in job.running}
    return page(
        request,
        "overview.html",
        now=site.now(),
        jobs=sorted(jobs, key=lambda job: (not job.alarms, job.job)),
        remaining=remaining,
    )


@router.get("/schedule")
def schedule(request: Request, site: AskedSite, live: AskedLive) -> Response:
    """What is due when, and what became of what was due last."""
    jobs = standings(site, live)
    return page(request, "schedule.html", now=site.now(), jobs=jobs, recent=site.catalogue.slots(limit=50))


@router.get("/targets")
def targets(request: Request, site: AskedSite) -> Response:
    """Where backups live, and what is there."""
    return page(request, "targets.html", now=site.now(), targets=target_standings(site))
