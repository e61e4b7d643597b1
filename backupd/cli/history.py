"""`backupd history` and `backupd show`: what backups cost, and what became of them."""

from typing import Annotated

import typer

from backupd.cli.output import print_document, say

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the tree."""
    app.command()(history)
    app.command()(show)


def history(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(help="Only runs of this job.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    json: JsonOption = False,
) -> None:
    """Runs, newest first, failed ones included."""
    from backupd import wiring
    from backupd.cli.documents import history_document
    from backupd.cli.tables import history_table

    configuration = wiring.configuration(ctx.obj.config)
    if job is not None:
        wiring.job(configuration, job)
    with wiring.catalogue(configuration) as catalogue:
        runs = catalogue.runs(job=job, limit=limit)
    if json:
        print_document(history_document(runs))
    else:
        say(history_table(runs) if runs else "no run yet")


def show(
    ctx: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="An id, its beginning, or `latest`.")],
    *,
    json: JsonOption = False,
) -> None:
    """Everything that the catalogue knows of one run."""
    from backupd import wiring
    from backupd.cli.documents import run_document
    from backupd.cli.tables import drill_table, phase_table, run_summary

    with wiring.catalogue(wiring.configuration(ctx.obj.config)) as catalogue:
        run = catalogue.run(run_id)
    if json:
        print_document(run_document(run))
        return
    say(run_summary(run))
    if run.phases:
        say("\nphases")
        say(phase_table(run))
    for drill in run.drills:
        say("\ndrill")
        say(drill_table(drill.checks))
