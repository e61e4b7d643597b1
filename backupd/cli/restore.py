"""`backupd restore` and `backupd drill`: from the target back, and the proof."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.chosen import (
    JsonOption,
    RunArgument,
    TargetOption,
    backup_of,
    copies_of,
    identities_in,
    run_of,
    sources_of,
)
from backupd.cli.invocation import IdentityOption
from backupd.cli.output import print_document, say, tell
from backupd.errors import ExitStatus, ServerError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.model import Manifest
    from backupd.mysql.tablefiles import Table


def register(app: typer.Typer) -> None:
    """Add these commands to the tree."""
    app.command()(restore)
    app.command()(drill)


def restore(
    ctx: typer.Context,
    run_id: RunArgument,
    *,
    to: Annotated[Path, typer.Option(help="An empty folder, or one in which this restore was interrupted.")],
    target: TargetOption = None,
    tables: Annotated[
        str | None,
        typer.Option(metavar="DB.T,…", help="These tables only, and what a server needs.", show_default=False),
    ] = None,
    identity: IdentityOption = None,
) -> None:
    """Restore a backup into an empty folder; what was interrupted goes on. Every byte is compared before it is used."""
    from backupd import wiring
    from backupd.cli.progress import share_done
    from backupd.interruption import cancellable
    from backupd.mysql.tablefiles import tables_in
    from backupd.restore import restore as restore_backup

    configuration = wiring.configuration(ctx.obj.config)
    identities = identities_in(identity)
    chosen = () if tables is None else tables_in(tables)
    with wiring.catalogue(configuration) as catalogue:
        run = run_of(catalogue, run_id, target=target)
    sources = sources_of(configuration, run, copies_of(run, target=target))
    with cancellable(), share_done("restored") as copied:
        manifest = restore_backup(sources, to=to, identities=identities, tables=chosen, copied=copied)
    if chosen:
        with cancellable():
            _export(to.absolute(), manifest, chosen)
    else:
        say(f"restored run {run.run_id} to {to}: datadir {to / manifest.datadir}")


def _export(to: Path, manifest: "Manifest", tables: "Sequence[Table]") -> None:
    """Say where the tables are, and what is left to do: with a server here, to import them."""
    from backupd.exporting import by_hand, export

    named = ", ".join(map(str, tables))
    try:
        exported = export(to, manifest, tables, telling=tell)
    except ServerError as error:
        tell(f"attention: {named} could not be recovered here: {error.message}")
        say(f"restored the files of {named} of run {manifest.run_id} to {to}, NOT recovered")
        say(by_hand(to, manifest, tables))
        raise typer.Exit(ExitStatus.ATTENTION) from error
    say(f"restored {named} of run {manifest.run_id} to {to}, recovered")
    for each in exported:
        say(f"to import {each.table}: {each.statements} says how")


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
