"""The pages of a fleet: overview, calendar, nights, history, hosts. Each asks the records a few times.

Knows: what belongs on which page.
"""

from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from backupd.policy.fleet_slots import slot_uses
from backupd.report.fleet_calendar import LEGEND, calendar_table, nights_to
from backupd.report.fleet_night import night_report
from backupd.report.fleet_slots_svg import slots_svg
from backupd.service.fleet.metrics import CONTENT_TYPE
from backupd.service.fleet.status import fleet_status, host_statuses
from backupd.service.fleet.web.asked import AskedFleet, AskedFleetMetrics, night_asked, state_asked
from backupd.service.fleet.web.links import CALENDAR, night_path, path_of
from backupd.service.web.pages import questions
from backupd.service.web.refusals import NotFound
from backupd.service.web.rendering import page
from backupd.vocabulary.fleet import FleetState

PAGE = 50  # backups
CALENDAR_NIGHTS, CALENDAR_CLUSTERS = 31, 200  # on one page
MOST_CLUSTERS = 100  # that are well, on the overview
_FAR = date(9000, 1, 1)  # calendars end

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
def healthz(site: AskedFleet) -> Response:
    """That the records can be read, and nothing else."""
    site.records.control()
    return PlainTextResponse("ok\n")


@router.get("/metrics")
def metrics(metrics: AskedFleetMetrics) -> Response:
    """What Prometheus is told."""
    return Response(metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/")
def overview(request: Request, site: AskedFleet, *, every: str = "") -> Response:
    """Every cluster, what is overdue first; tonight, slots, what is paused, who is at work."""
    status = fleet_status(site)
    well = [one for one in status.clusters if not one.alarms]
    shown = [*status.alarmed, *(well if every else well[:MOST_CLUSTERS])]
    return page(request, "fleet_overview.html", status=200, fleet=status, clusters=shown, now=status.now)


@router.get("/calendar")
def calendar(request: Request, site: AskedFleet, *, to: str = "", after: str = "") -> Response:
    """Cluster × night, coloured by outcome; 31 nights and 200 clusters at a time."""
    last = min(night_asked(to), _FAR) if to else site.tonight()
    nights = _nights(last)
    outcomes = site.records.outcomes(nights[0], nights[-1])
    names = sorted({*site.shape.members, *(cluster for _, cluster, _, _ in outcomes)})
    names = [name for name in names if name > after]
    shown = names[:CALENDAR_CLUSTERS]
    drawn = calendar_table(outcomes, nights, shown, links=CALENDAR)
    return page(
        request,
        "fleet_calendar.html",
        table=Markup(drawn),  # noqa: S704  # it escapes what it shows
        legend=LEGEND,
        nights=nights,
        clusters=shown,
        earlier=_link(to=nights[0] - timedelta(days=1), after=after),
        later=_link(to=nights[-1] + timedelta(days=CALENDAR_NIGHTS), after=after) if to else "",
        more=_link(to=to, after=shown[-1]) if len(names) > len(shown) else "",
        first=_link(to=to) if after else "",
    )


@router.get("/nights")
def tonight(site: AskedFleet) -> Response:
    """Tonight; where nothing is owed yet, the last that was planned."""
    night = site.tonight()
    planned = site.records.planned_nights(since=night - timedelta(days=7))
    return RedirectResponse(night_path(next((one for one in reversed(planned) if one <= night), night)), 303)


@router.get("/nights/{night}")
def night(request: Request, site: AskedFleet, night: str) -> Response:
    """What became of a night: counts, slots of each target over its hours, every backup."""
    wanted = night_asked(night)
    backups = site.records.night(wanted)
    if not backups and wanted != site.tonight():
        raise NotFound(f"no backup was due in the night of {wanted}", hint="choose a night in the calendar")
    now = site.now()
    drawn = slots_svg(slot_uses(backups, now=now), site.shape.slots, zone=site.shape.zone, link=path_of)
    return page(
        request,
        "fleet_night.html",
        report=night_report(wanted, backups, site.shape.slots, now=now),
        picture=Markup(drawn),  # noqa: S704  # it escapes what it shows
        zone=site.shape.zone,
        states=list(FleetState),
        before=night_path(wanted - timedelta(days=1)) if wanted > date(2000, 1, 1) else "",
        after=night_path(wanted + timedelta(days=1)) if wanted < site.tonight() else "",
    )


@router.get("/history")
def history(
    request: Request, site: AskedFleet, *, cluster: str = "", host: str = "", outcome: str = "", before: str = ""
) -> Response:
    """Backups, newest first, of a cluster, a host, an outcome, or all."""
    asked = {"cluster": cluster.strip(), "host": host.strip(), "outcome": outcome}
    found = site.records.history(
        cluster=asked["cluster"] or None,
        host=asked["host"] or None,
        state=state_asked(outcome),
        before=before or None,
        limit=PAGE + 1,
    )
    shown = found[:PAGE]
    return page(
        request,
        "fleet_history.html",
        asked=asked,
        states=list(FleetState),
        backups=shown,
        older=_link(**asked, before=shown[-1].owed.id) if len(found) > PAGE else "",
        newest=_link(**asked) if before else None,
    )


@router.get("/hosts")
def hosts(request: Request, site: AskedFleet) -> Response:
    """When each host was last seen, its version, its clock, what is wrong."""
    return page(request, "fleet_hosts.html", hosts=host_statuses(site), now=site.now())


@router.get("/api")
def api(request: Request) -> Response:
    """What programs may ask."""
    return page(request, "api.html", questions=questions(request.app.openapi()))


def _nights(last: date) -> list[date]:
    return nights_to(max(last, date.min + timedelta(days=2 * CALENDAR_NIGHTS)), CALENDAR_NIGHTS)


def _link(**fields: Any) -> str:
    """A query of what is not empty."""
    return "?" + urlencode({name: str(value) for name, value in fields.items() if value})
