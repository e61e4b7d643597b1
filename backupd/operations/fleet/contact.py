"""Contact with all hosts: each is asked often enough that it does not take its control host for gone.

Knows: how often, and which jobs of a host this fleet makes the backups of: those of its cluster, unless people have
paused all that could, or the host is another's machine, so that none of its backups begins. Whoever only looks, as
`fleet check` does, makes no such claim; nor does a control host before it has planned the night: hosts would leave
their backups to one that makes none.
"""

import logging
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from backupd.config.fleet import ClusterConfig, FleetConfiguration, MemberChoice
from backupd.fleet import Agents
from backupd.fleet.records import Records
from backupd.operations.fleet.host_survey import SeenTo, ask_hosts
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.results import fetch_missing
from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.fleet import ASKED_EVERY_SECONDS, SeenHost

log = logging.getLogger(__name__)

_RESULTS_FOR: Final = timedelta(days=7)  # so long after a night those are asked for that are missing
_AGAIN_SECONDS: Final = 300.0  # where the database was away


def seen_to(
    configuration: FleetConfiguration, wishes: Wishes, is_planned: Callable[[], bool], apart: Collection[str] = ()
) -> SeenTo:
    """By which a host is told what this fleet does for it, as people want it now.

    Nothing for those `apart`, and nothing in a night without a plan.
    """

    def jobs_of(host: str) -> tuple[str, ...]:
        if not is_planned():
            return ()
        known = configuration.hosts.get(host)
        cluster = configuration.clusters.get(known.cluster or host) if known is not None else None
        if cluster is None or host in apart or wishes.keep_from(cluster.name, _makers(configuration, cluster, host)):
            return ()
        return cluster.jobs

    return jobs_of


def _makers(configuration: FleetConfiguration, cluster: ClusterConfig, host: str) -> tuple[str, ...]:
    """The members that may make the backups which this host would have to make without the fleet."""
    member = configuration.policies[cluster.policy].member
    if member is MemberChoice.ALL:
        return (host,)
    return tuple(one for one in cluster.members if isinstance(member, MemberChoice) or one in member)


class HostContact:
    """All hosts of a fleet, asked by its control host."""

    def __init__(
        self,
        configuration: FleetConfiguration,
        records: Records,
        agents: Agents,
        seen_to: SeenTo,
        is_planned: Callable[[], bool],
        *,
        heard: Callable[[Collection[SeenHost]], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._configuration = configuration
        self._records = records
        self._agents = agents
        self._seen_to = seen_to
        self._is_planned = is_planned
        self._heard = heard
        self._clock = clock
        self._due_at = clock()
        self._told = False  # what this fleet does for them, when they were asked last
        self._asking: threading.Thread | None = None

    def ask(self) -> None:
        """Every host was asked, and what all told is in the records and was `heard`; so are results that they could not
        be asked for.

        Raises:
            FleetDatabaseAway: the database does not answer.
        """
        self._due_at, self._told = self._clock() + ASKED_EVERY_SECONDS, self._is_planned()
        at_once = self._configuration.control.ask_at_once
        told = ask_hosts(self._configuration.hosts, self._agents, at_once=at_once, seen_to=self._seen_to)
        for one in told.values():
            self._records.saw(one.seen)
        self._heard([one.seen for one in told.values()])
        answered = [host for host, one in told.items() if one.seen.described is not None]
        since = (datetime.now(UTC) - _RESULTS_FOR).date()
        fetch_missing(self._records, self._agents, answered, since=since)

    def keep(self) -> None:
        """All are asked again, beside whoever calls, where it is long since, or where the night has got its plan since
        then; at once for him.
        """
        at_work = self._asking is not None and self._asking.is_alive()
        if not at_work and (self._clock() >= self._due_at or (self._is_planned() and not self._told)):
            self._asking = threading.Thread(target=self._ask_beside, name="contact", daemon=True)
            self._asking.start()

    def _ask_beside(self) -> None:
        try:
            self.ask()
        except FleetDatabaseError as error:
            log.warning("hosts are asked again in %d s: %s", _AGAIN_SECONDS, error)
            self._due_at = self._clock() + _AGAIN_SECONDS
