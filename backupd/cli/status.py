"""`backupd status`: how jobs stand, on one screen, or for Nagios."""

import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say, tell
from backupd.vocabulary.errors import BackupdError, UsageError

if TYPE_CHECKING:
    from backupd.service.job_report import JobReport


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
    """Show how each job stands: alarms, the last good backup and its age, copies, proof, what runs and what is next.

    The exit status is 0 whatever it shows, except with --nagios.
    """
    if nagios:
        raise typer.Exit(_tell_nagios(ctx, job, json=json))
    found = _reports(ctx, job)
    if json:
        from backupd.service.job_report import job_reports_document

        print_document(job_reports_document(found))
    else:
        from backupd.service.job_report import job_report_text

        print_text("\n\n".join(map(job_report_text, found)))


def _reports(ctx: typer.Context, job: str | None) -> "tuple[JobReport, ...]":
    from backupd.operations import opening
    from backupd.service.job_report import job_reports
    from backupd.service.outlook import own_eyes
    from backupd.service.site import Site

    configuration = opening.configuration(ctx.obj.config)
    if job is not None:
        opening.job(configuration, job)
    with opening.catalogue(configuration) as catalogue:
        return job_reports(Site(configuration, catalogue), own_eyes(configuration).live, job=job)


def _tell_nagios(ctx: typer.Context, job: str | None, *, json: bool) -> int:
    """The line is on stdout. Whatever prevents an answer is UNKNOWN: our own statuses would be read as theirs."""
    from backupd.service.plugin import PluginStatus, plugin_answer, unknown

    try:
        if json:
            raise UsageError("--nagios and --json cannot be combined", hint="use one of them")  # noqa: TRY301
        answer, line = plugin_answer(_reports(ctx, job))
    except BackupdError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        answer, line = PluginStatus.UNKNOWN, unknown(f"{error.message}{hint}")
    except Exception as bug:  # noqa: BLE001 - it is told in full on stderr
        tell("".join(traceback.format_exception(bug)).rstrip())
        answer, line = PluginStatus.UNKNOWN, unknown(f"internal error: {type(bug).__name__}")
    say(line)
    return int(answer)
