"""What a route is given: the site, its runs' progress, and parameters as a browser's form or a program sends them.

Knows: how a parameter reads.
"""

import re
from datetime import UTC, date, datetime, time
from typing import Annotated

from fastapi import Depends
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request

from backupd.service.machine_view import Live, MachineView, Rooms
from backupd.service.metrics import Metrics
from backupd.service.site import Site
from backupd.service.web.refusals import BadQuestion


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def _outlook(request: Request) -> MachineView:
    outlook: MachineView = request.app.state.outlook
    return outlook


def _live(outlook: Annotated[MachineView, Depends(_outlook)]) -> Live:
    return outlook.live


def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


def _rooms(outlook: Annotated[MachineView, Depends(_outlook)]) -> Rooms:
    return outlook.rooms


AskedSite = Annotated[Site, Depends(_site)]
AskedOutlook = Annotated[MachineView, Depends(_outlook)]
AskedLive = Annotated[Live, Depends(_live)]
AskedMetrics = Annotated[Metrics, Depends(_metrics)]
AskedRooms = Annotated[Rooms, Depends(_rooms)]


# --- of programs -----------------------------------------------------------------------------------------------------

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _instant(text: object) -> datetime:
    """In UTC; years that Python does not have are the first or the last instant.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text):
        raise ValueError("an instant is written as 2026-03-29T01:00:00Z")
    at = datetime.fromisoformat(text.upper())
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return (datetime.min if at.year == 1 else datetime.max).replace(tzinfo=UTC)


Instant = Annotated[datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]


# --- of forms --------------------------------------------------------------------------------------------------------


def day(name: str, text: str, *, end: bool = False) -> datetime | None:
    """The first or the last instant of a day in UTC; None where the field was left empty.

    Raises:
        BadQuestion: it is not a date.
    """
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time.max if end else time.min, UTC)
    except ValueError as error:
        raise BadQuestion(f'"{name}" is not a date', hint="write it as 2026-03-29") from error
