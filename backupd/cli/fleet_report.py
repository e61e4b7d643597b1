"""`backupd fleet report`: what became of a night, or of the nights of a month."""

import calendar
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, write_report
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.service.fleet.site import FleetSite

_AGAIN = "run `backupd fleet report` again"


def report(
    ctx: typer.Context,
    *,
    night: Annotated[
        str | None,
        typer.Option("--night", metavar="DATE", help="The night that begins on this day; default: the last one."),
    ] = None,
    month: Annotated[
        str | None, typer.Option("--month", metavar="YYYY-MM", help="The nights that begin in this month instead.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page that can be mailed to FILE.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what became of a fleet's night: outcomes, slots of each target, what became no backup and why.

    With --month: each cluster's nights, the worst first, and a calendar in the page.
    """
    from backupd.service.fleet.read_only_site import looked_at

    if night is not None and month is not None:
        raise UsageError("--night and --month cannot be combined", hint="use one of them")
    with looked_at(ctx.obj.config) as site:
        if month is not None:
            _month(site, month, html=html, json=json)
        else:
            _night(site, _last(site) if night is None else _day(night), html=html, json=json)


def _night(site: "FleetSite", night: date, *, html: Path | None, json: bool) -> None:
    from backupd.report.fleet_night import night_report
    from backupd.report.fleet_night_text import night_document, night_text

    now = site.now()
    found = night_report(night, site.records.night(night), site.shape.slots, now=now)
    if html is not None:
        from backupd.report.fleet_night_html import night_page

        page = night_page(found, site.shape.slots, zone=site.shape.zone, now=now)
        write_report(html, page, hint=_AGAIN)
    if json:
        print_document(night_document(found))
    else:
        print_text(night_text(found))


def _month(site: "FleetSite", text: str, *, html: Path | None, json: bool) -> None:
    from backupd.report.fleet_night import month_report
    from backupd.report.fleet_night_text import month_document, month_text

    tonight = site.tonight()
    first, last = _nights_of(text, tonight=tonight)
    found = month_report(first, last, site.records.calendar(first, last), passed=tonight - timedelta(days=1))
    if html is not None:
        from backupd.report.fleet_night_html import month_page

        write_report(html, month_page(found, now=site.now()), hint=_AGAIN)
    if json:
        print_document(month_document(found))
    else:
        print_text(month_text(found))


def _last(site: "FleetSite") -> date:
    """The newest night in which something was tried, of the last week; the one that it is where nothing was."""
    tonight = site.tonight()
    nights = (tonight - timedelta(days=ago) for ago in range(7))
    return next((night for night in nights if any(one.tries for one in site.records.night(night))), tonight)


def _day(text: str) -> date:
    """The night that is meant.

    Raises:
        UsageError: it is no date.
    """
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not 2000 <= found.year < 3000:
        raise UsageError(f"--night: {text!r} is not a date", hint="write the day on which the night begins: 2026-11-26")
    return found


def _nights_of(text: str, *, tonight: date) -> tuple[date, date]:
    """The first and the last night of a month, of those that have begun.

    Raises:
        UsageError: it is no month, or one of which no night began yet.
    """
    year, _, month = text.partition("-")
    if not (text.isascii() and len(year) == 4 and len(month) == 2 and (year + month).isdecimal()):
        raise UsageError(f"--month: {text!r} is not a month", hint="write it as 2026-11")
    try:
        first = date(int(year), int(month), 1)
    except ValueError as error:
        raise UsageError(f"--month: {text!r} is not a month", hint="write it as 2026-11") from error
    if first > tonight:
        raise UsageError(f"--month {text} is in the future", hint=f"this night began on {tonight}")
    days = calendar.monthrange(first.year, first.month)[1]
    return first, min(first + timedelta(days=days - 1), tonight)
