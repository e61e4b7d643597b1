"""What a route of the fleet's pages is given, and how parameters of its forms and links read."""

import re
from datetime import date
from typing import Annotated

from fastapi import Depends
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request

from backupd.service.fleet.metrics import FleetMetrics
from backupd.service.fleet.site import FleetSite
from backupd.service.web.refusals import BadQuestion, NotFound
from backupd.vocabulary.fleet import FleetBackup, FleetState


def _site(request: Request) -> FleetSite:
    site: FleetSite = request.app.state.site
    return site


def _metrics(request: Request) -> FleetMetrics:
    metrics: FleetMetrics = request.app.state.metrics
    return metrics


AskedFleet = Annotated[FleetSite, Depends(_site)]
AskedFleetMetrics = Annotated[FleetMetrics, Depends(_metrics)]


_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _day(text: object) -> date:
    """As RFC 3339 has it; numbers and weeks are none.

    Raises:
        ValueError: it is no date.
    """
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        raise ValueError("a night is written as 2026-03-29")
    return date.fromisoformat(text)


Night = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]


def night_asked(text: str) -> date:
    """A night, as links carry it.

    Raises:
        BadQuestion: it is not a date.
    """
    try:
        return _day(text)
    except ValueError as error:
        raise BadQuestion("that is not a night", hint="write its date as 2026-03-29") from error


def state_asked(text: str) -> FleetState | None:
    """An outcome, as the form has it; None where the field was left empty.

    Raises:
        BadQuestion: it is none.
    """
    try:
        return FleetState(text) if text else None
    except ValueError as error:
        raise BadQuestion('"outcome" is not a known outcome', hint="use one of: " + ", ".join(FleetState)) from error


def backup_named(site: FleetSite, backup_id: str) -> FleetBackup:
    """The one with this id.

    Raises:
        NotFound: there is none.
        FleetDatabaseAway, FleetDatabaseError: the records cannot be read.
    """
    found = site.records.backup(backup_id)
    if found is None:
        raise NotFound(f"there is no backup {backup_id}", hint="look for it in the history")
    return found
