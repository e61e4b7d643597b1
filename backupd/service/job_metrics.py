"""What Prometheus is told of each job: the metrics, and where each has its value from.

Knows: names, units and labels. No label tells one run from another, so that series do not grow with the runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from backupd.catalogue.job_status import LastDrill, StoredOnTarget
from backupd.policy.write_penalty import Penalty
from backupd.service.archive_status import ArchiveFigures
from backupd.service.job_status import JobStatus
from backupd.vocabulary.alarms import OF_TARGETS, AlarmKind
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.records import Phase, RunDetails, RunKind, RunStatus

_JOB = "backup_job"
_GOOD = "good"


@dataclass(frozen=True, slots=True)
class JobSeriesSource:
    """What a job's series are made from."""

    status: JobStatus
    counts: Mapping[RunStatus, int]
    penalty: Penalty | None
    stored: Sequence[StoredOnTarget] = ()
    archive: ArchiveFigures | None = None  # None: its binlog is not archived

    @property
    def good(self) -> RunDetails | None:
        return self.status.last_good


_Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of jobs: with a second label where `label` names it, and a value for each of its values."""

    name: str
    help: str
    values: Callable[[JobSeriesSource], _Values]  # what is None is not told
    label: str = ""
    counter: bool = False

    def of(self, sources: Iterable[JobSeriesSource]) -> Metric:
        labels = [_JOB, self.label] if self.label else [_JOB]
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        family = kind(self.name, self.help, labels=labels)
        for one in sources:
            for value_of_label, value in self.values(one).items():
                if value is not None:
                    names = [one.status.job, value_of_label][: len(labels)]
                    family.add_metric(list(map(on_one_line, names)), value)
        return family


def _one(value: Callable[[JobSeriesSource], float | None]) -> Callable[[JobSeriesSource], _Values]:
    """Of a metric without a second label."""
    return lambda source: {"": value(source)}


def _of_good(value: Callable[[RunDetails], float | None]) -> Callable[[JobSeriesSource], _Values]:
    """Of the newest good backup; not told where there is none."""
    return lambda source: {"": None if source.good is None else value(source.good)}


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _running_since(source: JobSeriesSource) -> float | None:
    backups = [one.run for one in source.status.running if one.alive and one.run.kind is RunKind.BACKUP]
    return min((run.started_at.timestamp() for run in backups), default=None)


def _missed(source: JobSeriesSource) -> _Values:
    """A series begins at 0 with its schedule: Prometheus sees no increase in a first value."""
    counts = {activity.value: 0 for activity, _ in source.status.config.schedules.items()}
    return counts | {activity.value: count for activity, count in source.status.missed_total.items()}


def _runs(source: JobSeriesSource) -> _Values:
    """Good whether or not one needs attention: that may come later, and a counter never falls.

    For the same reason one that died stays failed (`run_counts`).
    """
    results = dict.fromkeys((_GOOD, *(status.value for status in _BAD)), 0)
    for status, count in source.counts.items():
        if status is not RunStatus.RUNNING:
            results[status.value if status in _BAD else _GOOD] += count
    return results


def _alarms(source: JobSeriesSource) -> _Values:
    kinds = [alarm.kind for alarm in source.status.alarms]
    return {kind.value: kinds.count(kind) for kind in AlarmKind if kind not in OF_TARGETS}


def _penalties(source: JobSeriesSource) -> _Values:
    penalty = source.penalty
    return {} if penalty is None else {"first": penalty.initial_ratio, "settled": penalty.settled_ratio}


def _phases(source: JobSeriesSource) -> _Values:
    return {} if source.good is None else {phase.value: seconds for phase, seconds in source.good.phases.items()}


def _stored(source: JobSeriesSource) -> _Values:
    good = source.good
    return {} if good is None else {backup.target: backup.bytes_stored for backup in good.backups}


def _newest_copies(source: JobSeriesSource) -> _Values:
    return {one.target: _seconds(one.newest_good_at) for one in source.stored}


def _verifications(source: JobSeriesSource) -> _Values:
    return {one.target: _seconds(one.verified_at) for one in source.stored}


def _of_drill(value: Callable[[LastDrill], float]) -> Callable[[JobSeriesSource], _Values]:
    """Of the newest drill; not told where there is none."""
    return lambda source: {"": None if source.status.last_drill is None else value(source.status.last_drill)}


def _cow_fill(source: JobSeriesSource) -> float | None:
    fills = [one.progress.cow_fill for one in source.status.running if one.alive and one.progress is not None]
    return max((fill for fill in fills if fill is not None), default=None)


def _of_failed(value: Callable[[RunDetails], float | None]) -> Callable[[JobSeriesSource], _Values]:
    """Of the newest run, where it has failed; not told otherwise."""

    def of(source: JobSeriesSource) -> _Values:
        run = source.status.last_run
        return {"": None if run is None or run.status not in _BAD else value(run)}

    return of


def _copy_rate(run: RunDetails) -> float | None:
    seconds = run.phases.get(Phase.COPY)
    return run.backups[0].bytes_read / seconds if run.backups and seconds else None


def _cow_peak(run: RunDetails) -> float | None:
    facts = run.snapshot
    return (
        facts.cow_used_peak / facts.cow_size if facts and facts.cow_used_peak is not None and facts.cow_size else None
    )


_BAD = (RunStatus.FAILED, RunStatus.REFUSED, RunStatus.BUSY, RunStatus.CANCELLED)

FAMILIES = (
    Family(
        "backupd_last_success_timestamp_seconds",
        "When the newest good backup was started: a restore brings back data of about that time.",
        _of_good(lambda run: _seconds(run.started_at)),
    ),
    Family(
        "backupd_overdue_timestamp_seconds",
        "When the newest good backup becomes too old, by the job's `every` and its schedule.",
        _one(lambda source: _seconds(source.status.overdue_at)),
    ),
    Family(
        "backupd_last_run_timestamp_seconds",
        "When the newest finished run was started, whatever its outcome.",
        _one(lambda source: _seconds(source.status.last_run.started_at) if source.status.last_run else None),
    ),
    Family(
        "backupd_running",
        "Whether a backup is running.",
        _one(lambda source: float(_running_since(source) is not None)),
    ),
    Family(
        "backupd_running_since_timestamp_seconds",
        "When the current backup was started; absent while none is running.",
        _one(_running_since),
    ),
    Family(
        "backupd_next_run_timestamp_seconds",
        "When it is next due by schedule; also while the job is paused.",
        lambda source: {activity.value: _seconds(at) for activity, at in source.status.next_due.items()},
        "activity",
    ),
    Family(
        "backupd_schedule_missed",
        "Slots of the schedule that passed without a start.",
        _missed,
        "activity",
        counter=True,
    ),
    Family(
        "backupd_runs",
        "Backups that were tried, by outcome; one whose process died stays failed, and is good too if its copy is.",
        _runs,
        "result",
        counter=True,
    ),
    Family(
        "backupd_alarms",
        "Alarms by kind, as on the daemon's page.",
        _alarms,
        "kind",
    ),
    Family(
        "backupd_paused",
        "Whether the job's schedules are paused.",
        _one(lambda source: float(source.status.pause is not None)),
    ),
    Family(
        "backupd_job_interval_seconds",
        "How often the job needs a backup: its `every`.",
        _one(lambda source: source.status.config.every_seconds),
    ),
    Family(
        "backupd_last_duration_seconds",
        "How long the newest good backup took; absent where that is not known, as of one whose process died.",
        _of_good(lambda run: run.seconds),
    ),
    Family(
        "backupd_phase_seconds",
        "How long each phase of the newest good backup took; `snapshot` lies within `lock_hold`.",
        _phases,
        "phase",
    ),
    Family(
        "backupd_lock_wait_seconds",
        "How long the newest good backup waited for its lock.",
        _of_good(lambda run: run.lock.wait_seconds if run.lock else None),
    ),
    Family(
        "backupd_lock_hold_seconds",
        "How long the newest good backup held its lock.",
        _of_good(lambda run: run.lock.hold_seconds if run.lock else None),
    ),
    Family(
        "backupd_lock_hold_budget_seconds",
        "How long the job's lock may be held; beyond it a run fails.",
        _one(lambda source: source.status.config.lock.hold_budget_seconds),
    ),
    Family(
        "backupd_lock_stalled_statements",
        "Statements that were waiting for the newest good backup's lock when it was released.",
        _of_good(lambda run: run.lock.stalled if run.lock else None),
    ),
    Family(
        "backupd_transactions_lost",
        "Transactions that the newest good backup cost the server, by the server's counters; 0 if within the noise.",
        _of_good(lambda run: run.losses.lost if run.losses else None),
    ),
    Family(
        "backupd_transactions_expected",
        "Transactions that the server would have done in that time, at its rate just before.",
        _of_good(lambda run: run.losses.expected if run.losses else None),
    ),
    Family(
        "backupd_write_penalty_seconds",
        "Seconds of writing that the newest good backup's snapshot cost.",
        _of_good(lambda run: run.bill.penalty_seconds if run.bill else None),
    ),
    Family(
        "backupd_copied_on_write_bytes",
        "Old data that the newest good backup's snapshot kept, which the server's first writes waited for.",
        _of_good(lambda run: run.bill.copied_on_write if run.bill else None),
    ),
    Family(
        "backupd_disk_busy_seconds",
        "How long the volume's disks were busy while the newest good backup's snapshot existed, in total, whoever used"
        " them.",
        _of_good(lambda run: run.bill.disk_seconds if run.bill else None),
    ),
    Family(
        "backupd_disk_read_seconds",
        "How long reads of these disks took meanwhile, summed, whoever read.",
        _of_good(lambda run: run.bill.disk_read_seconds if run.bill else None),
    ),
    Family(
        "backupd_write_penalty_ratio",
        "How many times slower writes were just after the newest good backup's snapshot, and when its copy began.",
        _penalties,
        "when",
    ),
    Family(
        "backupd_settle_seconds",
        "How long the newest good backup waited for the penalty to settle.",
        _of_good(lambda run: run.verdict.waited_seconds if run.verdict else None),
    ),
    Family(
        "backupd_copy_bytes_per_second", "Plain bytes that the newest good backup read a second.", _of_good(_copy_rate)
    ),
    Family(
        "backupd_snapshot_cow_peak_ratio",
        "How full the newest good backup's snapshot became, up to 1; for a thin volume, its pool.",
        _of_good(_cow_peak),
    ),
    Family(
        "backupd_stored_bytes",
        "Size of the newest good backup, as stored, on each target that it was sent to, whatever became of it there.",
        _stored,
        "target",
    ),
    Family(
        "backupd_newest_copy_timestamp_seconds",
        "When the run of the newest backup on each target that is not known to be broken was started.",
        _newest_copies,
        "target",
    ),
    Family(
        "backupd_last_verification_timestamp_seconds",
        "When a backup on each target was last read back whole.",
        _verifications,
        "target",
    ),
    Family(
        "backupd_running_cow_fill_ratio",
        "How full the snapshot of the current backup is, up to 1; for a thin volume, its pool. Absent without one.",
        _one(_cow_fill),
    ),
    Family(
        "backupd_failed_run_seconds",
        "How long the newest run took, where it has failed; absent otherwise, and where its process died.",
        _of_failed(lambda run: run.seconds),
    ),
    Family(
        "backupd_failed_run_transactions_lost",
        "Transactions that the newest run cost the server, where it has failed; absent otherwise.",
        _of_failed(lambda run: run.losses.lost if run.losses else None),
    ),
    Family(
        "backupd_last_drill_seconds",
        "How long the newest drill took, of those that were not undecided.",
        _of_drill(lambda drill: drill.seconds),
    ),
    Family(
        "backupd_last_drill_good",
        "Whether the newest drill that was not undecided proved its backup.",
        _of_drill(lambda drill: float(drill.ok)),
    ),
    Family(
        "backupd_last_proof_timestamp_seconds",
        "When a drill last proved a backup.",
        _one(lambda source: _seconds(source.status.proven_at)),
    ),
    Family(
        "backupd_drill_within_seconds",
        "How old the newest proof may be, where the job says so.",
        _one(lambda source: source.status.config.drill_within_seconds),
    ),
)  # fmt: skip
