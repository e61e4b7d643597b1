"""What Prometheus is told of each job's binlog archive; of a job whose binlog is not archived, nothing.

Knows: names, units, and where each has its value from, as `job_metrics` does of all else that is a job's.
"""

from collections.abc import Callable, Mapping

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.service.archive_alarms import open_gaps, waiting_seconds
from backupd.service.job_metrics import Family, Told
from backupd.service.job_status import JobStatus


def _of_archive(
    value: Callable[[JobStatus, ArchiveRecord], float | None],
) -> Callable[[Told], Mapping[str, float | None]]:
    def of(told: Told) -> Mapping[str, float | None]:
        archive = told.status.archive
        return {"": None if archive is None else value(told.status, archive)}

    return of


def _gap_at(status: JobStatus, archive: ArchiveRecord) -> float | None:
    gaps = open_gaps(archive, status.last_good)
    return gaps[-1].noticed_at.timestamp() if gaps else None


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
        "When the newest gap of the binlog archive was noticed; absent once a good backup has been started after it.",
        _of_archive(_gap_at),
    ),
)
