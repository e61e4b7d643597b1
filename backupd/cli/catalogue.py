"""`backupd catalogue`: the record of all runs itself."""

from typing import Annotated

import typer

from backupd.cli.output import print_document, say

app = typer.Typer(no_args_is_help=True, help="The record of all runs.")


def register(tree: typer.Typer) -> None:
    """Add this group of commands to the tree."""
    tree.add_typer(app, name="catalogue")


@app.callback()
def commands() -> None:
    """The record of all runs."""


@app.command()
def rebuild(
    ctx: typer.Context,
    *,
    target: Annotated[str, typer.Option(help="The target whose backups are read.")],
    machine: Annotated[
        str | None,
        typer.Option("--from", metavar="MACHINE", help="Another machine's backups, to restore from; kept for ever."),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only backups of this job.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Enter every finished backup of a target that the catalogue does not have, by its manifest; rows there stay."""
    from backupd import wiring
    from backupd.cli.documents import rebuild_document
    from backupd.rebuild import rebuild as read_manifests

    configuration = wiring.configuration(ctx.obj.config)
    with wiring.own_catalogue(configuration) as catalogue:
        place = wiring.target(configuration, target, machine or catalogue.identity().name)
        rebuilding = read_manifests(place, catalogue, job=job)
    if json:
        print_document(rebuild_document(place.name, rebuilding))
    else:
        for run_id in rebuilding.imported:
            say(f"run {run_id}: in the catalogue now")
        for run_id in rebuilding.unfinished:
            say(f"run {run_id}: unfinished, left out")
        say(f"{len(rebuilding.imported)} new, {len(rebuilding.known)} known before")
    rebuilding.require_complete()
