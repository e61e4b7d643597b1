"""What Prometheus is told of a fleet, in the text format, whenever it asks: by every control host, leader or standby.

Knows: names, units and labels. No label tells one night or one run from another, so that series do not grow with them.
Nothing is counted here: all comes from the records.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backupd import __version__
from backupd.policy.cluster_status import ClusterStatus, FleetAlarmKind
from backupd.report.fleet_words import took_seconds
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.status import FleetStatus, HostState, fleet_status
from backupd.vocabulary.errors import FleetDatabaseAway, FleetDatabaseError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.fleet import FleetState

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class FleetMetrics(Collector):
    """All that is told of one fleet. Threads may ask at once."""

    def __init__(self, site: FleetSite) -> None:
        self._site = site

    def exposition(self) -> bytes:
        """The whole answer, of `CONTENT_TYPE`. Where the database cannot be read it says so."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client wants them."""
        build = GaugeMetricFamily("backupd_build_info", "The version of backupd that exports this.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        up = ("backupd_fleet_database_up", "Whether the fleet's database answers; without it there is nothing else.")
        try:
            status = fleet_status(self._site)
        except (FleetDatabaseAway, FleetDatabaseError) as error:
            log.warning("metrics: %s", error.message)
            yield GaugeMetricFamily(*up, value=0)
            return
        yield GaugeMetricFamily(*up, value=1)
        yield from _of_control(status)
        yield from _of_night(status)
        yield from _of_clusters(status)
        yield from _of_targets(status)
        yield from _of_hosts(status)


def _of_control(status: FleetStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "backupd_fleet_leader",
        "1 on the active control host, 0 on a standby.",
        value=float(status.leads),
    )
    if status.control is not None:
        yield GaugeMetricFamily(
            "backupd_fleet_control_seen_timestamp_seconds",
            "When any control host was last active.",
            value=status.control.seen_at.timestamp(),
        )
    yield GaugeMetricFamily(
        "backupd_fleet_pauses", "Pauses of the fleet, of clusters and of hosts.", value=len(status.pauses)
    )


def _of_night(status: FleetStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "backupd_fleet_night_planned", "Whether tonight has been planned.", value=float(status.planned)
    )
    backups = GaugeMetricFamily(
        "backupd_fleet_night_backups", "Backups that are due tonight, by state.", labels=["state"]
    )
    for state in FleetState:
        backups.add_metric([state.value], status.counts.get(state, 0))
    yield backups
    going = GaugeMetricFamily(
        "backupd_fleet_backups_going", "Backups of any night that wait or run, by state.", labels=["state"]
    )
    counts = Counter(one.state for one in status.going)
    for state in (FleetState.WAITING, FleetState.RUNNING):
        going.add_metric([state.value], counts[state])
    yield going


_OfCluster = Callable[[ClusterStatus], float | None]


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


_CLUSTERS: tuple[tuple[str, str, _OfCluster], ...] = (
    (
        "backupd_fleet_interval_seconds",
        "How often the cluster is to be backed up.",
        lambda one: one.terms.every_seconds,
    ),
    (
        "backupd_fleet_last_success_timestamp_seconds",
        "When the last good backup of the cluster ended; absent where there is none.",
        lambda one: _seconds(one.summary.last_good_at),
    ),
    (
        "backupd_fleet_overdue_timestamp_seconds",
        "When the last good backup of the cluster becomes too old.",
        lambda one: _seconds(one.overdue_at),
    ),
    (
        "backupd_fleet_last_proof_timestamp_seconds",
        "When a drill of one of the cluster's hosts last proved a backup; absent where none has.",
        lambda one: _seconds(one.summary.last_proven_at),
    ),
    (
        "backupd_fleet_proof_overdue_timestamp_seconds",
        "When the last proof becomes too old; absent where none is asked for or there is none.",
        lambda one: _seconds(one.proof_overdue_at),
    ),
    (
        "backupd_fleet_last_duration_seconds",
        "How long the last good backup of the cluster took.",
        lambda one: took_seconds(one.summary.last_good),
    ),
    (
        "backupd_fleet_last_stored_bytes",
        "What the last good backup of the cluster stores.",
        lambda one: None if one.summary.last_good is None else one.summary.last_good.stored_bytes,
    ),
    (
        "backupd_fleet_last_lost_transactions",
        "Transactions that the server lost by the last good backup, by the run's own estimate.",
        lambda one: None if one.summary.last_good is None else one.summary.last_good.lost_transactions,
    ),
)


def _of_clusters(status: FleetStatus) -> Iterator[Metric]:
    for name, words, value in _CLUSTERS:
        family = GaugeMetricFamily(name, words, labels=["cluster"])
        for one in status.clusters:
            if (found := value(one)) is not None:
                family.add_metric([on_one_line(one.cluster)], found)
        yield family
    alarms = GaugeMetricFamily(
        "backupd_fleet_alarms", "Alarms of a cluster, by kind, as on the pages.", labels=["cluster", "kind"]
    )
    for one in status.clusters:
        standing = {alarm.kind for alarm in one.alarms}
        for kind in FleetAlarmKind:
            alarms.add_metric([on_one_line(one.cluster), kind.value], float(kind in standing))
    yield alarms


def _of_targets(status: FleetStatus) -> Iterator[Metric]:
    used = GaugeMetricFamily("backupd_fleet_slots_used", "Slots of a target that are taken.", labels=["target"])
    limit = GaugeMetricFamily("backupd_fleet_slots_limit", "Slots that a target has.", labels=["target"])
    for one in status.slots:
        used.add_metric([on_one_line(one.target)], one.used)
        if one.limit is not None:
            limit.add_metric([on_one_line(one.target)], one.limit)
    yield from (used, limit)


def _of_hosts(status: FleetStatus) -> Iterator[Metric]:
    hosts = GaugeMetricFamily("backupd_fleet_hosts", "Hosts, by whether they answer.", labels=["state"])
    counts = Counter(one.state for one in status.hosts)
    for state in HostState:
        hosts.add_metric([state.value], counts[state])
    yield hosts
    yield GaugeMetricFamily(
        "backupd_fleet_hosts_clock_off",
        "Hosts whose clock is off by more than a minute.",
        value=sum(one.clock_is_off for one in status.hosts),
    )
