"""The page of one run, and how a live one gets on for the script of that page.

Knows: their addresses.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from backupd.service.web.api import NAME, NOT_FOUND, REFUSALS
from backupd.service.web.asked import AskedLive, AskedOutlook, AskedSite
from backupd.service.web.history import run_named
from backupd.service.web.rendering import page
from backupd.service.web.run_view import getting_on, last_good, run_view, running_now
from backupd.vocabulary.records import Phase, RunStatus

router = APIRouter()


@dataclass(frozen=True)
class LiveRun:
    """How a run gets on. Once `status` is not `running`, or `alive` is false, nothing more will come."""

    run_id: str
    status: RunStatus
    alive: bool
    phase: Phase | None = None
    words: str = ""  # what it is doing
    detail: str = ""  # how far it is, how fast, and how long it may still take
    share: float | None = None  # of the copy, 0 to 1; null while it is unknown, and where there is no copy


@router.get("/runs/{run_id}", include_in_schema=False)
def run_page(request: Request, site: AskedSite, seen: AskedOutlook, run_id: str) -> Response:
    """Timeline, penalty, the gate's decision, copies, drills and log of one run; live while it goes on."""
    return page(request, "run.html", now=site.now(), view=run_view(site, seen, run_named(site, run_id)))


@router.get("/api/runs/{run_id}/live", responses=REFUSALS | NOT_FOUND)
def live(site: AskedSite, live: AskedLive, run_id: Annotated[str, Path(pattern=NAME)]) -> LiveRun:
    """How a run gets on: its phase, and the share of its copy that is done."""
    run = run_named(site, run_id)
    running = running_now(site, live, run)
    if running is None or not running.alive:
        return LiveRun(run.run_id, run.status, alive=False)
    getting = getting_on(running, last_good(site, run), now=site.now())
    return LiveRun(run.run_id, run.status, True, getting.phase, getting.words, getting.detail, getting.share)
