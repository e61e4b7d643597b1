"""`backupd status`: how jobs stand, on one screen, or for Nagios."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, tell_findings
from backupd.cli.plugin_line import tell_plugin_line
from backupd.cli.schedule import tell_of_other_schedules

if TYPE_CHECKING:
    from backupd.service.plugin import PluginStatus
    from backupd.service.status_report import StatusReport


def status(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job.")] = None,
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
    """Show how each job and target stands: alarms, the last good backup, copies, proof, what runs, what is next, room.

    The exit status is 0 whatever it shows, except with --nagios.
    """
    if nagios:
        raise typer.Exit(tell_plugin_line(partial(_plugin_answer, ctx, job), json=json))
    from backupd.service.status_report import status_document, status_text

    found = _report(ctx, job)
    if json:
        print_document(status_document(found))
    else:
        print_text(status_text(found))


def _report(ctx: typer.Context, job: str | None) -> "StatusReport":
    from backupd.operations import context
    from backupd.operations.binlog.left_spools import left_in_spools
    from backupd.service.machine_view import own_eyes
    from backupd.service.site import Site
    from backupd.service.status_report import status_report

    configuration = context.configuration(ctx.obj.config)
    if job is not None:
        context.job(configuration, job)
    with context.catalogue(configuration) as catalogue:
        tell_of_other_schedules(configuration, catalogue)
        tell_findings(left_in_spools(configuration, catalogue))
        return status_report(Site(configuration, catalogue), own_eyes(configuration), job=job)


def _plugin_answer(ctx: typer.Context, job: str | None) -> "tuple[PluginStatus, str]":
    from backupd.service.plugin import plugin_answer

    return plugin_answer(_report(ctx, job))
