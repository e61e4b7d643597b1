"""What Prometheus is told of each job's binlog archive; of a job whose binlog is not archived, nothing.

Knows: names, units, and where each has its value from, as `job_metrics` does of all else that is a job's.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.catalogue.moment_proofs import LastMomentDrill
from backupd.service.archive_alarms import open_gaps, waiting_seconds
from backupd.service.archive_status import ArchiveFigures
from backupd.service.job_metrics import Family, JobSeriesSource
from backupd.service.job_status import JobStatus


def _of_archive(
    value: Callable[[JobStatus, ArchiveRecord], float | None],
) -> Callable[[JobSeriesSource], Mapping[str, float | None]]:
    def of(source: JobSeriesSource) -> Mapping[str, float | None]:
        archive = source.status.archive
        return {"": None if archive is None else value(source.status, archive)}

    return of


def _figure(value: Callable[[ArchiveFigures], float | None]) -> Callable[[JobSeriesSource], Mapping[str, float | None]]:
    return lambda source: {"": None if source.archive is None else value(source.archive)}


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _gap_at(archive: ArchiveRecord) -> float | None:
    gaps = open_gaps(archive)
    return gaps[-1].noticed_at.timestamp() if gaps else None


def _of_moment(status: JobStatus, at: Callable[[LastMomentDrill], datetime | None]) -> float | None:
    """An instant of the newest drill of a moment; not told where there is none."""
    return None if status.last_moment is None else _seconds(at(status.last_moment))


ARCHIVE_FAMILIES = (
    Family(
        "backupd_binlog_waiting_seconds",
        "How long the oldest segment of the binlog archive has been waiting that a target lacks; 0 if none waits.",
        _of_archive(lambda status, archive: waiting_seconds(archive, now=status.now)),
    ),
    Family(
        "backupd_binlog_reached_timestamp_seconds",
        "When the binlog archive last had all that the server had written, as its receiver finds every minute.",
        _of_archive(lambda _, archive: archive.reached_at.timestamp() if archive.reached_at else None),
    ),
    Family(
        "backupd_binlog_received_timestamp_seconds",
        "When the newest segment of the binlog archive was received; a quiet server writes none.",
        _of_archive(lambda _, archive: archive.received_at.timestamp() if archive.received_at else None),
    ),
    Family(
        "backupd_binlog_last_transaction_timestamp_seconds",
        "When the last transaction in the binlog archive was committed, by the server's clock.",
        _of_archive(lambda _, archive: archive.last_at.timestamp() if archive.last_at else None),
    ),
    Family(
        "backupd_binlog_gap_timestamp_seconds",
        "When the newest gap of the binlog archive was noticed; absent once a good backup with a place followed it.",
        _of_archive(lambda _, archive: _gap_at(archive)),
    ),
    Family(
        "backupd_binlog_behind_seconds",
        "For how long the binlog archive has not had all that the server had written; looked at every minute.",
        _figure(lambda figures: figures.behind_seconds),
    ),
    Family(
        "backupd_binlog_behind_bytes",
        "How much of the server's log was not archived when it was asked last; absent if nobody asks or it is silent.",
        _figure(lambda figures: figures.behind_bytes),
    ),
    Family(
        "backupd_binlog_last_recoverable_timestamp_seconds",
        "The last moment that can be restored: that of the last transaction that follows a good backup without a gap.",
        _figure(lambda figures: _seconds(figures.last_moment)),
    ),
    Family(
        "backupd_binlog_reachable_from_timestamp_seconds",
        "From when on to the last recoverable moment every moment can be restored.",
        _figure(lambda figures: _seconds(figures.reachable_from)),
    ),
    Family(
        "backupd_binlog_gaps",
        "Gaps that the binlog archive has had.",
        _figure(lambda figures: figures.gaps),
    ),
    Family(
        "backupd_binlog_spool_bytes",
        "Size of the segments that wait in the spool for a target that lacks them.",
        _figure(lambda figures: figures.waiting_bytes),
    ),
    Family(
        "backupd_binlog_spool_limit_bytes",
        "How much may wait in the spool; beyond it the oldest segments are dropped: a gap.",
        _figure(lambda figures: figures.spool_limit),
    ),
    Family(
        "backupd_moment_proof_timestamp_seconds",
        "When a drill last proved a moment of the binlog archive; absent where none has.",
        _of_archive(lambda status, _: _of_moment(status, lambda last: last.proven_at)),
    ),
    Family(
        "backupd_last_moment_drill_good",
        "Whether the newest drill of a moment of the binlog archive that was not undecided proved it.",
        _of_archive(lambda status, _: None if status.last_moment is None else float(status.last_moment.ok)),
    ),
    Family(
        "backupd_last_proven_moment_timestamp_seconds",
        "The moment that the newest drill of one proved, by the server's clock; absent where that drill failed.",
        _of_archive(lambda status, _: _of_moment(status, lambda last: last.moment.at if last.ok else None)),
    ),
)
