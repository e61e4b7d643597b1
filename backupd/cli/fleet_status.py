"""`backupd fleet status`: how clusters and hosts stand, on one screen, or for Nagios."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text
from backupd.cli.plugin_line import tell_plugin_line

if TYPE_CHECKING:
    from backupd.service.plugin import PluginStatus


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
        raise typer.Exit(tell_plugin_line(partial(_plugin_answer, ctx), json=json))
    from backupd.service.fleet.read_only_site import looked_at
    from backupd.service.fleet.status import fleet_status
    from backupd.service.fleet.status_text import fleet_status_document, fleet_status_text

    with looked_at(ctx.obj.config) as site:
        found = fleet_status(site)
    if json:
        print_document(fleet_status_document(found))
    else:
        print_text(fleet_status_text(found))


def _plugin_answer(ctx: typer.Context) -> "tuple[PluginStatus, str]":
    from backupd.service.fleet.read_only_site import looked_at
    from backupd.service.fleet.status import fleet_status
    from backupd.service.fleet.status_text import fleet_plugin_answer

    with looked_at(ctx.obj.config) as site:
        return fleet_plugin_answer(fleet_status(site))
