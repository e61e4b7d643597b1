"""`backupd recover`: give back what dead runs left, and finish what they had copied whole."""

import os

import typer

from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import say


def recover(ctx: typer.Context) -> None:
    """Clean up after dead runs: snapshots, mounts, probe files, partial objects. Live runs are not touched.

    A copy that was already complete is read back and becomes a backup.
    """
    from backupd import wiring
    from backupd.cli.failure_answers import failure_answers
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.upkeep.notices import tell_of_the_dead
    from backupd.operations.upkeep.recover import clean_up_dead_runs
    from backupd.service.systemd import Notify

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with (
        cancellable(),
        context.catalogue(configuration) as catalogue,
        left_for_node_exporter(configuration, catalogue),
    ):
        tools = wiring.host_tools(configuration, catalogue.identity().name)
        finishing, released = wiring.finishing(configuration), Notify(os.environ).ready
        recovery = clean_up_dead_runs(catalogue, tools, finishing=finishing, released=released)
        notifier, answers = wiring.notifier(configuration), failure_answers(configuration)
        tell_of_the_dead(notifier, catalogue, recovery.runs, answers=answers)
    for run_id in recovery.runs:
        say(f"run {run_id}: dead, cleaned up")
    for holding in recovery.finished:
        say(f"finished {holding.name}: it is now a complete backup")
    for holding in recovery.given_back:
        say(f"released {holding.kind} {holding.name}")
    for holding, why in recovery.kept:
        say(f"kept for now: {holding.kind} {holding.name}: {why}")
    if not (recovery.runs or recovery.given_back or recovery.unseen):
        say("nothing to recover")
    recovery.require_complete()
