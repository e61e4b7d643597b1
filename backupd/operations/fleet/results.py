"""What a host's catalogue has of a run that the fleet asked for, fetched into the fleet's records.

Knows: that a backup which is done may need attention, and says why; and that a host which was away when its run ended
is asked again once it answers.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import date
from typing import Final

from backupd.fleet import Agents, HostAway, HostRefuses
from backupd.fleet.records import Records
from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import FleetState, FleetTry, OwedBackup
from backupd.vocabulary.records import RunDetails

log = logging.getLogger(__name__)

_SAID_SENTENCES: Final = 3  # of what needs attention
_SAID_CHARACTERS: Final = 500
_MOST_AT_ONCE: Final = 200  # runs that are asked for again in a row


def keep_result(records: Records, owed: OwedBackup, last: FleetTry, details: RunDetails) -> None:
    """It is in the records, and what needs attention is said of the backup.

    Raises:
        FleetDatabaseAway: the database does not answer; done again, it comes to the same.
    """
    records.keep_result(owed.cluster, last.host, details)
    backup = records.backup(owed.id)
    if details.attention and backup is not None and backup.state is FleetState.DONE and not backup.said:
        records.keep(replace(backup, said=some(details.attention, _SAID_SENTENCES, "; ")[:_SAID_CHARACTERS]))


def fetch_missing(records: Records, agents: Agents, hosts: Collection[str], *, since: date) -> None:
    """The results of these nights' runs that could not be had when they ended, of these hosts, as far as they tell.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    missing = [(one.owed, one.tries[-1]) for one in records.without_result(since=since)]
    for owed, last in [pair for pair in missing if pair[1].host in hosts][:_MOST_AT_ONCE]:
        try:
            details = agents.agent(last.host).result(last.run_id)
        except (HostAway, HostRefuses) as error:
            log.debug("no result of run %s: %s", last.run_id, error.message)
        else:
            keep_result(records, owed, last, details)
