"""What Prometheus is told: how each job stands by the catalogue, in the text format, whenever it asks.

Knows: names, units and labels. Nothing is counted here, so that nothing is lost with the process; no label tells one
run from another, so that series do not grow with the runs.

A job's label is `backup_job`, because Prometheus gives a label `job` of its own to whatever it scrapes, and renames
one that it meets to `exported_job` (2.42, unless `honor_labels`; node_exporter's scrapes seldom have that): one set of
rules then fits a daemon and a text file.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backupd import __version__
from backupd.policy.write_penalty import Penalty, penalty_of
from backupd.service.job_status import JobStatus, job_statuses
from backupd.service.outlook import Live, Rooms
from backupd.service.site import Site
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.records import Phase, RunDetails, RunKind, RunStatus

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_JOB = "backup_job"
_GOOD = "good"
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
        try:
            told = self._told()
        except CatalogueError as error:
            log.warning("metrics: %s", error.message)
            yield _gauge(_UP, 0)
        else:
            yield _gauge(_UP, 1)
            yield from (family.of(told) for family in _FAMILIES)
        yield from _of_targets(self._rooms.seen(within_seconds=self._patience))

    def _told(self) -> "list[_Told]":
        found = job_statuses(self._site, self._live)
        counts, penalties = self._site.catalogue.run_counts(), self._penalties_of(found)
        return [
            _Told(
                one,
                counts=counts.get(one.job, {}),
                penalty=penalties.get(one.last_good.run_id) if one.last_good else None,
            )
            for one in found
        ]

    def _penalties_of(self, found: Sequence[JobStatus]) -> Mapping[str, Penalty]:
        """Of each newest good run. Samples are read once: a run may have thousands."""
        known = {one.last_good.run_id: self._penalties.get(one.last_good.run_id) for one in found if one.last_good}
        unknown = [one.job for one in found if one.last_good and known[one.last_good.run_id] is None]
        penalties = {run_id: penalty for run_id, penalty in known.items() if penalty is not None}
        if unknown:
            for record in self._site.catalogue.records(unknown, at=found[0].now, samples=True).values():
                if record.last_good is not None:
                    penalties[record.last_good.run_id] = penalty_of(record.last_good.samples)
        self._penalties = penalties
        return penalties


@dataclass(frozen=True, slots=True)
class _Told:
    """What a job's series are made from."""

    status: JobStatus
    counts: Mapping[RunStatus, int]
    penalty: Penalty | None

    @property
    def good(self) -> RunDetails | None:
        return self.status.last_good


_Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric of jobs: with a second label where `label` names it, and a value for each of its values."""

    name: str
    help: str
    values: Callable[[_Told], _Values]  # what is None is not told
    label: str = ""
    counter: bool = False

    def of(self, told: Iterable[_Told]) -> Metric:
        labels = [_JOB, self.label] if self.label else [_JOB]
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        family = kind(self.name, self.help, labels=labels)
        for one in told:
            for value_of_label, value in self.values(one).items():
                if value is not None:
                    names = [one.status.job, value_of_label][: len(labels)]
                    family.add_metric(list(map(on_one_line, names)), value)
        return family


def _one(value: Callable[[_Told], float | None]) -> Callable[[_Told], _Values]:
    """Of a metric without a second label."""
    return lambda told: {"": value(told)}


def _of_good(value: Callable[[RunDetails], float | None]) -> Callable[[_Told], _Values]:
    """Of the newest good backup; not told where there is none."""
    return lambda told: {"": None if told.good is None else value(told.good)}


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _running_since(told: _Told) -> float | None:
    backups = [one.run for one in told.status.running if one.alive and one.run.kind is RunKind.BACKUP]
    return min((run.started_at.timestamp() for run in backups), default=None)


def _missed(told: _Told) -> _Values:
    """A series begins at 0 with its schedule: Prometheus sees no increase in a first value."""
    counts = {activity.value: 0 for activity, _ in told.status.config.schedules.items()}
    return counts | {activity.value: count for activity, count in told.status.missed_total.items()}


def _runs(told: _Told) -> _Values:
    """Good whether or not one needs attention: that may come later, and a counter never falls."""
    results = dict.fromkeys((_GOOD, *(status.value for status in _BAD)), 0)
    for status, count in told.counts.items():
        if status is not RunStatus.RUNNING:
            results[status.value if status in _BAD else _GOOD] += count
    return results


def _alarms(told: _Told) -> _Values:
    kinds = [alarm.kind for alarm in told.status.alarms]
    return {kind.value: kinds.count(kind) for kind in AlarmKind}


def _penalties(told: _Told) -> _Values:
    penalty = told.penalty
    return {} if penalty is None else {"first": penalty.initial_ratio, "settled": penalty.settled_ratio}


def _phases(told: _Told) -> _Values:
    return {} if told.good is None else {phase.value: seconds for phase, seconds in told.good.phases.items()}


def _stored(told: _Told) -> _Values:
    good = told.good
    return {} if good is None else {backup.target: backup.bytes_stored for backup in good.backups}


def _copy_rate(run: RunDetails) -> float | None:
    seconds = run.phases.get(Phase.COPY)
    return run.backups[0].bytes_read / seconds if run.backups and seconds else None


def _cow_peak(run: RunDetails) -> float | None:
    facts = run.snapshot
    return (
        facts.cow_used_peak / facts.cow_size if facts and facts.cow_used_peak is not None and facts.cow_size else None
    )


def _duration(run: RunDetails) -> float | None:
    return None if run.ended_at is None else (run.ended_at - run.started_at).total_seconds()


_BAD = (RunStatus.FAILED, RunStatus.REFUSED, RunStatus.BUSY, RunStatus.CANCELLED)
_UP = ("backupd_catalogue_up", "Whether the catalogue can be read; without it there are no metrics of jobs.")

_FAMILIES = (
    _Family(
        "backupd_last_success_timestamp_seconds",
        "When the newest good backup was started: a restore brings back data of about that time.",
        _of_good(lambda run: _seconds(run.started_at)),
    ),
    _Family(
        "backupd_overdue_timestamp_seconds",
        "When the newest good backup becomes too old, by the job's `every` and its schedule.",
        _one(lambda told: _seconds(told.status.overdue_at)),
    ),
    _Family(
        "backupd_last_run_timestamp_seconds",
        "When the newest finished run was started, whatever its outcome.",
        _one(lambda told: _seconds(told.status.last_run.started_at) if told.status.last_run else None),
    ),
    _Family(
        "backupd_running",
        "Whether a backup is running.",
        _one(lambda told: float(_running_since(told) is not None)),
    ),
    _Family(
        "backupd_running_since_timestamp_seconds",
        "When the current backup was started; absent while none is running.",
        _one(_running_since),
    ),
    _Family(
        "backupd_next_run_timestamp_seconds",
        "When it is next due by schedule; also while the job is paused.",
        lambda told: {activity.value: _seconds(at) for activity, at in told.status.next_due.items()},
        "activity",
    ),
    _Family(
        "backupd_schedule_missed",
        "Slots of the schedule that passed without a start.",
        _missed,
        "activity",
        counter=True,
    ),
    _Family(
        "backupd_runs", "Backups that were tried, by outcome.", _runs, "result", counter=True
    ),
    _Family(
        "backupd_alarms",
        "Alarms by kind, as on the daemon's page.",
        _alarms,
        "kind",
    ),
    _Family(
        "backupd_paused",
        "Whether the job's schedules are paused.",
        _one(lambda told: float(told.status.pause is not None)),
    ),
    _Family(
        "backupd_job_interval_seconds",
        "How often the job needs a backup: its `every`.",
        _one(lambda told: told.status.config.every_seconds),
    ),
    _Family(
        "backupd_last_duration_seconds", "How long the newest good backup took.", _of_good(_duration)
    ),
    _Family(
        "backupd_phase_seconds",
        "How long each phase of the newest good backup took; `snapshot` lies within `lock_hold`.",
        _phases,
        "phase",
    ),
    _Family(
        "backupd_lock_wait_seconds",
        "How long the newest good backup waited for its lock.",
        _of_good(lambda run: run.lock.wait_seconds if run.lock else None),
    ),
    _Family(
        "backupd_lock_hold_seconds",
        "How long the newest good backup held its lock.",
        _of_good(lambda run: run.lock.hold_seconds if run.lock else None),
    ),
    _Family(
        "backupd_lock_hold_budget_seconds",
        "How long the job's lock may be held; beyond it a run fails.",
        _one(lambda told: told.status.config.lock.hold_budget_seconds),
    ),
    _Family(
        "backupd_lock_stalled_statements",
        "Statements that were waiting for the newest good backup's lock when it was released.",
        _of_good(lambda run: run.lock.stalled if run.lock else None),
    ),
    _Family(
        "backupd_transactions_lost",
        "Transactions that the newest good backup cost the server, by the server's counters; 0 if within the noise.",
        _of_good(lambda run: run.losses.lost if run.losses else None),
    ),
    _Family(
        "backupd_transactions_expected",
        "Transactions that the server would have done in that time, at its rate just before.",
        _of_good(lambda run: run.losses.expected if run.losses else None),
    ),
    _Family(
        "backupd_write_penalty_seconds",
        "Seconds of writing that the newest good backup's snapshot cost.",
        _of_good(lambda run: run.bill.penalty_seconds if run.bill else None),
    ),
    _Family(
        "backupd_write_penalty_ratio",
        "How many times slower writes were just after the newest good backup's snapshot, and when its copy began.",
        _penalties,
        "when",
    ),
    _Family(
        "backupd_settle_seconds",
        "How long the newest good backup waited for the penalty to settle.",
        _of_good(lambda run: run.verdict.waited_seconds if run.verdict else None),
    ),
    _Family(
        "backupd_copy_bytes_per_second", "Plain bytes that the newest good backup read a second.", _of_good(_copy_rate)
    ),
    _Family(
        "backupd_snapshot_cow_peak_ratio",
        "How full the newest good backup's snapshot became, up to 1; for a thin volume, its pool.",
        _of_good(_cow_peak),
    ),
    _Family(
        "backupd_stored_bytes", "Size of the newest good backup on each target, as stored.", _stored, "target"
    ),
    _Family(
        "backupd_last_proof_timestamp_seconds",
        "When a drill last proved a backup.",
        _one(lambda told: _seconds(told.status.proven_at)),
    ),
    _Family(
        "backupd_drill_within_seconds",
        "How old the newest proof may be, where the job says so.",
        _one(lambda told: told.status.config.drill_within_seconds),
    ),
)  # fmt: skip


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


def _gauge(named: tuple[str, str], value: float) -> Metric:
    return GaugeMetricFamily(*named, value=value)
