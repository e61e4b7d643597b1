"""A fleet's night, or the nights of a month, as one HTML file that can be mailed; in the frame of every report.

Knows: what is on the page, and in which words; the templates know where.
"""

from collections.abc import Mapping
from datetime import datetime

from backupd.policy.fleet_slots import slot_uses
from backupd.report.fleet_calendar import LEGEND, calendar_table
from backupd.report.fleet_night import MonthReport, NightReport
from backupd.report.fleet_night_text import as_of, counts_words, month_rows
from backupd.report.fleet_slots_svg import slots_svg
from backupd.report.fleet_words import cost_words
from backupd.report.probe_table import Grid
from backupd.report.templating import report
from backupd.report.words import count, duration, many, size
from backupd.vocabulary.fleet import FleetBackup, FleetState

_AMISS = ("Cluster", "Outcome", "Host", "Tries", "Why")
_ALL = ("Cluster", "Job", "Outcome", "Host", "Began (UTC)", "Cost")


def night_page(found: NightReport, slots: Mapping[str, int], *, zone: str, now: datetime) -> str:
    """The whole page: the answer first, slots of each target, what became no backup, all backups."""
    return report(
        "fleet_night.html",
        title=f"The night of {found.night}",
        subtitle=as_of(now),
        cards=[
            ("Backups", counts_words(found.counts), ""),
            ("Took", duration(found.seconds), "from the first beginning to the last end"),
            ("Stored", size(found.stored_bytes), f"{count(found.lost_transactions)} transactions lost, as estimated"),
            ("Tried again", many(found.tried_again, "backup"), "took more than one try"),
        ],
        picture=slots_svg(slot_uses(found.backups, now=now), slots, zone=zone),
        zone=zone,
        amiss=Grid((), _AMISS, tuple(map(_amiss_row, found.amiss)), right=frozenset({3})),
        every=Grid((), _ALL, tuple(map(_row, found.backups)), right=frozenset()),
    )


def month_page(found: MonthReport, *, now: datetime) -> str:
    """The whole page: the sum, the calendar, a row for each cluster, the worst first."""
    head, *rows = month_rows(found)
    return report(
        "fleet_month.html",
        title=f"The nights from {found.first} to {found.last}",
        subtitle=as_of(now),
        cards=[
            ("Backups", counts_words(found.counts), ""),
            ("Stored", size(found.stored_bytes), f"{count(found.lost_transactions)} transactions lost, as estimated"),
        ],
        calendar=calendar_table(found.outcomes, found.nights, sorted(one.cluster for one in found.clusters)),
        legend=LEGEND,
        clusters=Grid((), tuple(word.capitalize() for word in head), tuple(rows), right=frozenset(range(1, len(head)))),
    )


def _amiss_row(one: FleetBackup) -> tuple[str, ...]:
    host = one.tries[-1].host if one.tries else "-"
    return one.owed.cluster, one.state.value, host, str(len(one.tries)), one.said


def _row(one: FleetBackup) -> tuple[str, ...]:
    host = one.tries[-1].host if one.tries else "-"
    began = f"{one.tries[0].began_at:%Y-%m-%d %H:%M}" if one.tries else "-"
    cost = cost_words(one if one.state is FleetState.DONE else None)
    return one.owed.cluster, one.owed.job, one.state.value, host, began, cost
