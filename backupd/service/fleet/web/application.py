"""The web application of a fleet: its routes put together, behind the guard of a host's pages."""

from functools import cache
from pathlib import Path

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backupd.report.fleet_calendar import calendar_style
from backupd.report.fleet_words import ago, cost_words, next_words
from backupd.report.words import count
from backupd.service.fleet.metrics import FleetMetrics
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web import api, backup_page, pages
from backupd.service.fleet.web.links import backup_path, cluster_path, night_path
from backupd.service.web.application import Application, guarded
from backupd.service.web.rendering import environment_of

_PLACES = (
    ("/", "Overview"),
    ("/calendar", "Calendar"),
    ("/nights", "Tonight"),
    ("/history", "History"),
    ("/hosts", "Hosts"),
)


def fleet_application(site: FleetSite, *, address: str = "127.0.0.1", token: str | None = None) -> Application:
    """All pages, `/api`, `/metrics` and `/healthz` over this fleet; `address` is the one that is listened at.

    Without a token nobody sees a page; see `service.web.application`.

    Raises:
        ValueError: the token is empty.
    """
    made = guarded(
        token,
        address=address,
        table="control",
        templates=templates(),
        title="backupd fleet",
        description="What the control host knows of a fleet's clusters, nights, backups and hosts. Read-only.",
    )
    made.router.routes.insert(0, Route("/static/calendar.css", _calendar_style))  # before the folder of `/static`
    made.state.site, made.state.metrics = site, FleetMetrics(site)
    made.include_router(pages.router)
    made.include_router(backup_page.router)
    made.include_router(api.router)
    return made


async def _calendar_style(_request: Request) -> Response:
    return Response(calendar_style(), media_type="text/css")


@cache
def templates() -> Environment:
    """Those of the fleet, and the frame and the parts of a host's pages."""
    made = environment_of(Path(__file__).parent / "templates", name="backupd fleet", places=_PLACES)
    made.filters |= {"backup_path": backup_path, "cluster_path": cluster_path, "night_path": night_path}
    made.filters |= {"ago": ago, "cost": cost_words, "next": next_words, "whole": count}
    return made
