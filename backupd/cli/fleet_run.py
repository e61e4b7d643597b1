"""`backupd fleet run` and `fleet cancel`: a backup that a person asks for, or wants to end."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import say, tell
from backupd.vocabulary.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.fleet.records import Records
    from backupd.vocabulary.fleet import OwedBackup

_LOOK_SECONDS = 2.0


def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CLUSTER|HOST", help="A cluster, or the one host that is to do it.")],
    *,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="One of the cluster's jobs; default: all.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; exit status 3 unless every backup is done.")
    ] = False,
) -> None:
    """Ask the control host for a backup now: outside of windows, before all that is planned, within slots.

    The member is chosen as in the night, unless a host is named. Whoever serves carries it out; this command only asks.
    """
    from backupd import wiring
    from backupd.fleet.records import Records
    from backupd.operations.fleet.fleet_context import database_url, fleet
    from backupd.operations.fleet.on_demand import by_hand, owe_by_hand

    configuration = fleet(ctx.obj.config).configuration
    if name not in configuration.clusters and name not in configuration.hosts:
        raise UsageError(f"the fleet has no cluster and no host {name!r}", hint="see `backupd fleet check`")
    records = Records.open(database_url(configuration.control))
    with wiring.fleet_agents(configuration) as agents:
        asked = by_hand(configuration, records, agents, name, job)
    if not asked:
        raise UsageError(f"{name} has no job {job!r}", hint="see `jobs` of its cluster in fleet.toml")
    owed = owe_by_hand(records, asked)
    for one in owed:
        say(f"asked for backup {one.id}")
    _tell_whether_paused(records, owed)
    _tell_whether_served(records)
    if wait and not _all_good(records, owed):
        raise typer.Exit(ExitStatus.ATTENTION)


def cancel(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="BACKUP|CLUSTER", help="A backup, or all of a cluster.")],
    *,
    note: Annotated[str, typer.Option(help="Reason, shown with it from now on.")] = "cancelled by a person",
) -> None:
    """End a backup that waits or runs: its host is asked to end the run, and its slot is free once it has."""
    from backupd.fleet.records import Records
    from backupd.operations.fleet.fleet_context import database_url, fleet

    configuration = fleet(ctx.obj.config).configuration
    records = Records.open(database_url(configuration.control))
    found = [one.owed for one in records.going() if name in (one.owed.id, one.owed.cluster)]
    if not found:
        raise UsageError(f"no waiting or running backup or cluster is named {name!r}", hint="backupd fleet status")
    for one in found:
        records.ask_to_cancel(one.id, note)
        say(f"cancellation of backup {one.id} requested")
    _tell_whether_served(records)


def _tell_whether_paused(records: "Records", owed: "Sequence[OwedBackup]") -> None:
    from backupd.operations.fleet.operator_requests import Wishes

    wishes = Wishes(records)
    wishes.read()
    for one in owed:
        said = wishes.paused(one)
        if said is None and wishes.keep_from(one.cluster, one.members):
            hosts = wishes.paused_hosts(one.members)
            said = "; ".join(f"{host}: {why}" for host, why in hosts.items())
        if said is not None:
            tell(f"{said}; backup {one.id} waits for `backupd fleet resume`")


def _tell_whether_served(records: "Records") -> None:
    from datetime import UTC, datetime

    from backupd.policy.cluster_status import is_at_work

    if not is_at_work(records.control(), datetime.now(UTC)):
        tell("no control host is running: start one with `backupd fleet serve`")


def _all_good(records: "Records", owed: "Sequence[OwedBackup]") -> bool:
    """Once all have ended; each is told."""
    import time

    from backupd.vocabulary.fleet import OVER, FleetState

    waiting, good = {one.id for one in owed}, True
    while True:
        for backup in [found for one in waiting if (found := records.backup(one)) and found.state in OVER]:
            waiting.discard(backup.owed.id)
            good = good and backup.state is FleetState.DONE
            say(f"backup {backup.owed.id} is {backup.state}" + (f": {backup.said}" if backup.said else ""))
        if not waiting:
            return good
        time.sleep(_LOOK_SECONDS)
