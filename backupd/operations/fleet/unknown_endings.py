"""Tries that were given up though nobody knows how they ended: their runs may go on.

Knows: that only their hosts can tell, and that what they tell is remembered. As long as one of a cluster may go on, no
other run begins in it. A host that is gone for good is taken out of the fleet, and its tries count no more.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backupd.fleet import Agents, HostAway, HostRefuses
from backupd.fleet.records import Records
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry, RunState
from backupd.vocabulary.records import GOOD, RunStatus

_LOOK_BACK: Final = timedelta(days=30)  # no run goes on for so long
_MOST: Final = 100  # backups that failed


def may_go_on(records: Records, agents: Agents, cluster: str, hosts: Collection[str]) -> dict[str, str]:
    """Of these hosts, those at which a run that was given up may go on, each with the sentence that says so.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    found = {}
    since = (datetime.now(UTC) - _LOOK_BACK).date()
    for backup in records.history(cluster=cluster, state=FleetState.FAILED, since=since, limit=_MOST):
        last = backup.tries[-1] if backup.tries else None
        if last is not None and last.status is None and last.host in hosts:
            try:
                state = agents.agent(last.host).status(last.run_id)
            except (HostAway, HostRefuses) as error:
                gone = "a host that is gone for good is taken out of the fleet's configuration"
                found[last.host] = f"run {last.run_id} may still be running there: {error.message} ({gone})"
                continue
            if state.status is RunStatus.RUNNING:
                found[last.host] = f"run {last.run_id} is still running there"
            else:
                records.keep(_ended(backup, last, state))
    return found


def _ended(backup: FleetBackup, last: FleetTry, state: RunState) -> FleetBackup:
    """Its end is known at last; a run that its host knows nothing of does not go on there."""
    now = datetime.now(UTC)
    ended = replace(last, status=state.status or RunStatus.FAILED, ended_at=state.ended_at or now)
    known = replace(backup, tries=(*backup.tries[:-1], ended), changed_at=now)
    if state.status not in GOOD:
        return known
    return replace(known, state=FleetState.DONE, said="", stored_bytes=state.stored_bytes)
