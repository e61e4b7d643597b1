"""`backupd binlog …`: the continuous archive of a job's binlog."""

from typing import Annotated

import typer

from backupd.cli.binlog_verify import verify
from backupd.cli.output import tell

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="The continuous archive of a job's binlog.")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job with a table [jobs.JOB.binlog].")]


@app.command()
def receive(ctx: typer.Context, job: JobArgument) -> None:
    """Archive a job's binlog until this is stopped; `backupd serve` does it for every job by itself.

    What the server writes is on every target some seconds later. Stopped or killed, nothing is lost: the archive
    continues where it was, for as long as the server still has that binlog.
    """
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations.binlog.archive import archive
    from backupd.operations.binlog.tools import archive_tools, binlog_of

    configuration = wiring.configuration(ctx.obj.config)
    chosen = wiring.job(configuration, job)
    config = binlog_of(chosen)
    with wiring.catalogue(configuration) as catalogue, cancellable():
        machine = catalogue.identity().name
        targets = [wiring.target(configuration, name, machine) for name in chosen.targets]
        tools = archive_tools(configuration, chosen, wiring.host_tools(configuration, machine), targets, catalogue)
        tell(f"archiving the binlog of job {job} to {', '.join(chosen.targets)}")
        archive(job, config, tools)


app.command()(verify)
