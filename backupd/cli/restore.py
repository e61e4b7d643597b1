"""`backupd restore` and `backupd drill`: from the target back, and the proof."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import print_document, say, tell
from backupd.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.model import Backup, RunDetails

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="An id, its beginning, or `latest`: the newest good one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the tree."""
    app.command()(restore)
    app.command()(drill)


def restore(
    ctx: typer.Context, run_id: RunArgument, *, to: Annotated[Path, typer.Option(help="An empty folder.")]
) -> None:
    """Restore a backup into an empty folder; digests are checked while unpacking."""
    from backupd import wiring
    from backupd.interruption import cancellable
    from backupd.restore import restore as restore_backup

    configuration = wiring.configuration(ctx.obj.config)
    with wiring.catalogue(configuration) as catalogue:
        run, backup = backup_of(catalogue, run_id)
    with cancellable():
        manifest = restore_backup(run.job, run.run_id, wiring.target(configuration, backup.target), to=to)
    say(f"restored run {run.run_id} to {to}: datadir {to / manifest.datadir}")


def drill(ctx: typer.Context, run_id: RunArgument, *, json: JsonOption = False) -> None:
    """Prove a backup: restore it, start a server on it, compare; the result goes into the catalogue."""
    from backupd import wiring
    from backupd.cli.documents import drill_document
    from backupd.cli.tables import drill_table
    from backupd.drill import drill as drill_backup
    from backupd.interruption import cancellable
    from backupd.report.words import duration

    configuration = wiring.configuration(ctx.obj.config)
    with wiring.catalogue(configuration) as catalogue:
        run, backup = backup_of(catalogue, run_id)
        target = wiring.target(configuration, backup.target)
        with cancellable():
            result = drill_backup(run.job, run.run_id, target, wiring.host_tools(configuration), telling=tell)
        catalogue.record_drill(result)
    if json:
        print_document(drill_document(result))
    else:
        say(drill_table(result.checks))
        say(f"{'proven' if result.ok else 'NOT proven'} in {duration(result.seconds)}")
    if not result.ok:
        failed = ", ".join(check.name for check in result.checks if not check.ok)
        raise VerificationError(
            f"the drill of run {result.run_id} failed: {failed}", hint="do not rely on this backup; take another"
        )


def backup_of(catalogue: "Catalogue", wanted: str) -> "tuple[RunDetails, Backup]":
    """The run that is meant, and its backup. `latest` looks past runs that left none."""
    if wanted == "latest":
        good = next((run for run in catalogue.runs(limit=None) if run.backup is not None), None)
        if good is None:
            raise UsageError("there is no backup yet", hint="see `backupd history`")
        run = good
    else:
        run = catalogue.run(wanted)
    if run.backup is None:
        raise UsageError(f"run {run.run_id} has no backup (status {run.status})", hint="see `backupd history`")
    return run, run.backup
