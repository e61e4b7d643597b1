"""The page of one backup of a fleet: its tries, the hosts that made them, and each run's result as it was pulled."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backupd.report.timeline import spans
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.asked import AskedFleet, backup_named
from backupd.service.web.rendering import page
from backupd.service.web.run_view import Bar, Copy, copies, facts, phase_bars
from backupd.vocabulary.fleet import FleetBackup, FleetTry
from backupd.vocabulary.records import RunDetails, lasted

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class PulledRun:
    """What a host's catalogue has of a run, as a page shows it."""

    bars: tuple[Bar, ...]
    facts: tuple[tuple[str, str], ...]
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class TryView:
    """One try."""

    number: int
    tried: FleetTry
    seconds: float | None
    run: RunDetails | None  # None: its result was not pulled
    view: PulledRun | None


@router.get("/backups/{backup_id}")
def backup(request: Request, site: AskedFleet, backup_id: str) -> Response:
    """One backup that was owed: what became of it, try by try."""
    found = backup_named(site, backup_id)
    return page(request, "fleet_backup.html", backup=found, tries=_tries(site, found), now=site.now())


def _tries(site: FleetSite, backup: FleetBackup) -> list[TryView]:
    views = []
    for number, tried in enumerate(backup.tries, 1):
        run = site.records.result(tried.run_id)
        view = None if run is None else PulledRun(phase_bars(spans(run.phases)), facts(run), copies(run))
        views.append(TryView(number, tried, lasted(tried.began_at, tried.ended_at), run, view))
    return views
