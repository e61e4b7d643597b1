"""`backupd fleet plan`: who would run where and when."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import draws_dots_here, print_document, print_text, tell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from backupd.config.fleet import FleetConfiguration
    from backupd.vocabulary.fleet import SeenHost

_WIDTH, _WIDEST = 100, 160


def plan(
    ctx: typer.Context,
    *,
    night: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="The night that begins on this day: 2026-11-26; default: tonight."),
    ] = None,
    no_ask: Annotated[bool, typer.Option("--no-ask", help="Contact no host; plan from the fleet's records.")] = False,
    json: JsonOption = False,
) -> None:
    """Show who would run where and when in a night, by what each host tells of its earlier backups. Starts nothing.

    Backups that nobody can tell the duration of are marked with `?`. The night is planned as the fleet would begin it:
    one at a time in a cluster, as many on a target as it has slots, the most overdue first.
    """
    from backupd.operations.fleet.fleet_context import fleet
    from backupd.operations.fleet.terms import cluster_terms, night_clock, shared_targets
    from backupd.policy.fleet_plan import plan_night
    from backupd.policy.fleet_timetable import timetable_of
    from backupd.policy.one_machine import counted_as, set_apart
    from backupd.report.fleet_plan_text import fleet_plan_document, fleet_plan_text

    file = fleet(ctx.obj.config)
    configuration = file.configuration
    day = _night(configuration, night)
    seen = _recorded(configuration) if no_ask else _asked(configuration)
    for problem in file.problems:
        tell(f"warning: {problem}")
    targets, zone = shared_targets(configuration), configuration.control.zone
    clusters = cluster_terms(configuration)
    made = plan_night(day, clusters, set_apart(seen, counted_as(clusters)), targets, night_clock(configuration))
    table = timetable_of(made.owed, targets)
    if json:
        print_document(fleet_plan_document(made, table, targets, zone=zone, problems=file.problems))
        return
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDEST)
    print_text(fleet_plan_text(made, table, targets, zone=zone, width=width, ascii_only=not draws_dots_here()))


def _night(configuration: "FleetConfiguration", text: str | None) -> "date":
    """The night that is meant.

    Raises:
        UsageError: it is no date.
    """
    from datetime import UTC, date, datetime

    from backupd.policy.night_times import night_of
    from backupd.vocabulary.errors import UsageError

    control = configuration.control
    if text is None:
        return night_of(datetime.now(UTC), begins=control.night_begins, zone=control.zone)
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not 2000 <= found.year < 3000:
        raise UsageError(f"--date: {text!r} is not a date", hint="write the day on which the night begins: 2026-11-26")
    return found


def _asked(configuration: "FleetConfiguration") -> "Mapping[str, SeenHost]":
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations.fleet.host_survey import ask_hosts
    from backupd.report.words import many

    with cancellable(), wiring.fleet_agents(configuration) as agents:
        asked = ask_hosts(configuration.hosts, agents, at_once=configuration.control.ask_at_once)
    silent = [host for host, one in asked.items() if one.seen.described is None]
    for host in silent[:5]:
        tell(f"warning: {host}: {asked[host].seen.problem}")
    if silent:
        tell(f"{many(len(silent), 'host')} of {len(asked)} did not answer; type `backupd fleet check` for all of them")
    return {host: one.seen for host, one in asked.items()}


def _recorded(configuration: "FleetConfiguration") -> "Mapping[str, SeenHost]":
    from backupd.operations.fleet.fleet_context import recorded_hosts

    seen = recorded_hosts(configuration.control)
    if not seen:
        tell("the fleet's records contain no host yet: all durations are assumed")
    return {one.host: one for one in seen}
