"""`backupd report`: what backups cost over months, with trends and what stood out; or evidence for an auditor."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from backupd.cli.instants import UntilOption, span
from backupd.cli.output import print_document, print_text, write_report
from backupd.vocabulary.errors import UsageError


def report(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job.")] = None,
    *,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help=("Runs started at this time or later: 2026-09-01, or 90d for that long ago."),
        ),
    ] = "90d",
    until: UntilOption = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help=("Also write a page that can be mailed to FILE."))
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help=(
                "For an auditor instead: each backup, verification, drill, restore and clone, and whether the audit"
                " chain is sound. Each file that is written is signed as FILE.sig, where a key is configured."
            ),
        ),
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --evidence, also write its rows to FILE.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --evidence, write to FILE instead of stdout."),
    ] = None,
) -> None:
    """Show what backups cost over months: locks, penalties, settling, copy rate, COW area; trends and outliers.

    With --evidence: what was backed up, checked and restored, by whom, and what followed each failure.
    """
    from backupd.operations import context

    if evidence:
        from backupd.cli.evidence import EvidenceRequest, report_evidence

        report_evidence(ctx.obj.config, EvidenceRequest(job, since, until, html, csv, output, json))
        return
    if other := next((name for name, path in (("--csv", csv), ("--output", output)) if path is not None), None):
        raise UsageError(f"{other} needs --evidence", hint="without it, the report is printed, or --html FILE")
    from backupd.report.impact import impacts
    from backupd.report.impact_text import impact_text, impacts_document

    now = datetime.now(UTC)
    configuration = context.configuration_or_defaults(ctx.obj.config)
    begin, end = span(since, until, now=now)
    with context.catalogue(configuration) as catalogue:
        context.require_known_job(lambda: configuration, catalogue, job)
        costs = catalogue.costs(job=job, since=begin, until=end, ours=True)
        beside = catalogue.besides(job=job, since=begin, until=end)
    found = impacts(costs, beside, since=begin, now=end or now)
    if html is not None:
        from backupd.report.impact_html import impact_page

        write_report(html, impact_page(found, now=now), hint="run `backupd report` again")
    if json:
        print_document(impacts_document(found))
    else:
        print_text("\n\n".join(map(impact_text, found)) if found else f"no run since {since}")
