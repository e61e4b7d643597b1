"""`backupd fleet status`: how clusters and hosts stand, on one screen, or for Nagios."""

import traceback
from typing import Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say, tell
from backupd.vocabulary.errors import BackupdError, UsageError


def status(
    ctx: typer.Context,
    *,
    nagios: Annotated[
        bool,
        typer.Option(
            "--nagios",
            help="One line for Nagios or Icinga; exit status 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show how each cluster stands, the overdue first: last good, proven, next, cost; tonight, slots, hosts away.

    No host is asked: it is what the control host knows. The exit status is 0 whatever it shows, except with --nagios.
    """
    if nagios:
        raise typer.Exit(_tell_nagios(ctx, json=json))
    from backupd.service.fleet.read_only_site import looked_at
    from backupd.service.fleet.status import fleet_status
    from backupd.service.fleet.status_text import fleet_status_document, fleet_status_text

    with looked_at(ctx.obj.config) as site:
        found = fleet_status(site)
    if json:
        print_document(fleet_status_document(found))
    else:
        print_text(fleet_status_text(found))


def _tell_nagios(ctx: typer.Context, *, json: bool) -> int:
    """The line is on stdout. Whatever prevents an answer is UNKNOWN: our own statuses would be read as theirs."""
    from backupd.service.plugin import PluginStatus, unknown

    try:
        if json:
            raise UsageError("--nagios and --json cannot be combined", hint="use one of them")  # noqa: TRY301
        answer, line = _plugin_line(ctx)
    except BackupdError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        answer, line = int(PluginStatus.UNKNOWN), unknown(f"{error.message}{hint}")
    except Exception as bug:  # noqa: BLE001 - it is told in full on stderr
        tell("".join(traceback.format_exception(bug)).rstrip())
        answer, line = int(PluginStatus.UNKNOWN), unknown(f"internal error: {type(bug).__name__}")
    say(line)
    return answer


def _plugin_line(ctx: typer.Context) -> tuple[int, str]:
    from backupd.service.fleet.read_only_site import looked_at
    from backupd.service.fleet.status import fleet_status
    from backupd.service.fleet.status_text import fleet_plugin_answer

    with looked_at(ctx.obj.config) as site:
        answer, line = fleet_plugin_answer(fleet_status(site))
    return int(answer), line
