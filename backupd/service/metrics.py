"""What Prometheus is told: how each job stands by the catalogue, in the text format, whenever it asks.

Knows: what is asked for an answer; `job_metrics` and `archive_metrics` have the metrics of jobs. Nothing is counted
here, so that nothing is lost with the process.

A job's label is `backup_job`, because Prometheus gives a label `job` of its own to whatever it scrapes, and renames
one that it meets to `exported_job` (2.42, unless `honor_labels`; node_exporter's scrapes seldom have that): one set of
rules then fits a daemon and a text file.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backupd import __version__
from backupd.policy.write_penalty import Penalty, penalty_of
from backupd.service.archive_metrics import ARCHIVE_FAMILIES
from backupd.service.archive_status import archive_statuses
from backupd.service.job_metrics import FAMILIES, JobSeriesSource
from backupd.service.job_status import JobStatus
from backupd.service.machine_view import Live, Rooms
from backupd.service.site import Site
from backupd.service.site_status import site_status
from backupd.service.storage import StorageStatus
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.escaping import on_one_line

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SCRAPE_SECONDS = 0.05  # that an answer waits for looks at targets; a folder on a disk takes microseconds


class Metrics(Collector):
    """All that is told of one site. Threads may ask at once."""

    def __init__(self, site: Site, *, live: Live, rooms: Rooms, patience_seconds: float = _SCRAPE_SECONDS) -> None:
        self._site = site
        self._live = live
        self._rooms = rooms
        self._patience = patience_seconds
        self._penalties: Mapping[str, Penalty] = {}  # by run: of one that has ended it does not change

    def exposition(self) -> bytes:
        """The whole answer, of `CONTENT_TYPE`. Where the catalogue cannot be read it says so, and what else is known.

        Never waits for a target that hangs.
        """
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client wants them."""
        build = GaugeMetricFamily("backupd_build_info", "The version of backupd that exports this.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        seen = self._rooms.seen(within_seconds=self._patience)
        try:
            status = site_status(self._site, self._live, seen)
            told = self._told(status.jobs, status.now)
        except CatalogueError as error:
            log.warning("metrics: %s", error.message)
            yield _gauge(_UP, 0)
        else:
            yield _gauge(_UP, 1)
            yield from (family.of(told) for family in (*FAMILIES, *ARCHIVE_FAMILIES))
            yield from _of_storage(status.storage)
        yield from _of_targets(seen)

    def _told(self, found: Sequence[JobStatus], now: datetime) -> "list[JobSeriesSource]":
        counts, penalties = self._site.catalogue.run_counts(), self._penalties_of(found)
        archives = archive_statuses(self._site, found)
        stored = defaultdict(list)
        for on_target in self._site.catalogue.stored(at=now):
            stored[on_target.job].append(on_target)
        return [
            JobSeriesSource(
                one,
                counts=counts.get(one.job, {}),
                penalty=penalties.get(one.last_good.run_id) if one.last_good else None,
                stored=stored[one.job],
                archive=None if one.job not in archives else archives[one.job].figures,
            )
            for one in found
        ]

    def _penalties_of(self, found: Sequence[JobStatus]) -> Mapping[str, Penalty]:
        """Of each newest good run. Samples are read once: a run may have thousands."""
        known = {one.last_good.run_id: self._penalties.get(one.last_good.run_id) for one in found if one.last_good}
        unknown = [one.job for one in found if one.last_good and known[one.last_good.run_id] is None]
        penalties = {run_id: penalty for run_id, penalty in known.items() if penalty is not None}
        if unknown:
            targets = self._site.configuration.targets
            for record in self._site.catalogue.records(
                unknown, at=found[0].now, samples=True, targets=targets
            ).values():
                if record.last_good is not None:
                    penalties[record.last_good.run_id] = penalty_of(record.last_good.samples)
        self._penalties = penalties
        return penalties


_UP = ("backupd_catalogue_up", "Whether the catalogue can be read; without it there are no metrics of jobs.")


def _of_targets(seen: Mapping[str, SeenTarget]) -> Iterator[Metric]:
    """Of folders only. Room is not told of a folder that is not there: it would be that of what lies below."""
    up = GaugeMetricFamily("backupd_target_up", "Whether a target that is a folder is available.", labels=["target"])
    free = GaugeMetricFamily("backupd_target_free_bytes", "Free space of a target that is a folder.", labels=["target"])
    size = GaugeMetricFamily(
        "backupd_target_size_bytes", ("Size of the file system of a target that is a folder."), labels=["target"]
    )
    for name, target in seen.items():
        label = [on_one_line(name)]
        up.add_metric(label, target.up)
        for family, value in ((free, target.free), (size, target.size)):
            if value is not None:
                family.add_metric(label, value)
    yield from (up, free, size)


def _of_storage(found: Sequence[StorageStatus]) -> Iterator[Metric]:
    """What follows from earlier looks, too. Nothing is told of what is not known."""
    full = GaugeMetricFamily(
        "backupd_target_full_in_seconds",
        "When a target that is a folder will be full, by its free space of the last 30 days; absent if not filling.",
        labels=["target"],
    )
    alarms = GaugeMetricFamily(
        "backupd_target_alarms",
        "Alarms of a target that is a folder, by kind, as on the daemon's page.",
        labels=["target", "kind"],
    )
    for one in found:
        label = on_one_line(one.config.name)
        if one.full_in_seconds is not None:
            full.add_metric([label], one.full_in_seconds)
        for kind, stands in one.known.items():
            alarms.add_metric([label, kind.value], float(stands))
    yield from (full, alarms)


def _gauge(named: tuple[str, str], value: float) -> Metric:
    return GaugeMetricFamily(*named, value=value)
