"""`backupd recover`: give back what dead runs left."""

import typer

from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import say


def register(app: typer.Typer) -> None:
    """Add this command to the tree."""
    app.command()(recover)


def recover(ctx: typer.Context) -> None:
    """Remove what dead runs left: snapshots, mounts, probe files, partial objects. Live runs are left alone."""
    from backupd import wiring
    from backupd.notices import tell_of_the_dead
    from backupd.recover import dead_runs

    configuration = wiring.configuration_or_defaults(ctx.obj.config)
    with wiring.catalogue(configuration) as catalogue, left_for_node_exporter(configuration, catalogue):
        recovery = dead_runs(catalogue, wiring.host_tools(configuration))
        tell_of_the_dead(wiring.notifier(configuration), catalogue, recovery.runs)
    for run_id in recovery.runs:
        say(f"run {run_id}: dead, cleaned up after")
    for holding in recovery.given_back:
        say(f"gave back {holding.kind} {holding.name}")
    if not recovery.runs:
        say("nothing to recover")
    recovery.require_complete()
