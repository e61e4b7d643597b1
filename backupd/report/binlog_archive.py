"""How a job's binlog archive stands, as values and as JSON: what can be restored, what is stored where, what is behind.

Knows: what is told of an archive. Refuses to know where it comes from: `operations.binlog.archive_status` asks.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Reach
from backupd.report.json_document import Document, iso
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace, LoggedTransaction


@dataclass(frozen=True, slots=True)
class ArchivedOnTarget:
    """What one target has of an archive."""

    target: str
    segments: int
    bytes_stored: int  # without the segments' descriptions
    until: BinlogPlace | None  # the end of the segment that was received last, of those that lie there
    received_at: datetime | None  # when that had been received


@dataclass(frozen=True, slots=True)
class SpooledSegments:
    """What waits in the spool for a target that lacks it."""

    segments: int
    bytes: int  # without the segments' descriptions
    limit: int  # bytes


@dataclass(frozen=True, slots=True)
class ArchiveListing:
    """What can be restored of a job, and what there is for it."""

    job: str
    at: datetime
    reach: Reach
    backups: tuple[PlacedBackup, ...]  # the good ones, the oldest first
    gaps: tuple[ArchiveGap, ...]
    targets: tuple[ArchivedOnTarget, ...]
    spool: SpooledSegments
    left: tuple[str, ...] = ()  # targets with segments that are not configured: these lead to nothing

    @property
    def last_moment(self) -> datetime | None:
        """Of the last transaction that can be restored, or of the last backup; None where there is no backup."""
        return max((stretch.until for stretch in self.reach.stretches), default=None)


@dataclass(frozen=True, slots=True)
class ServerLogEnd:
    """Where the server's log ends now, or why that is not known."""

    end: BinlogPlace | None
    behind_bytes: int | None  # how much of it is not archived; None: not known, or the archived file is gone
    error: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """How the archive of a job stands."""

    job: str
    at: datetime
    receiving: bool  # a process archives it
    archived: BinlogPlace | None  # up to there; None: nothing is
    last_at: datetime | None  # when the last segment's last transaction was committed; None: it has none
    received_at: datetime | None  # when the last byte was received that is archived
    server: ServerLogEnd
    targets: tuple[ArchivedOnTarget, ...]
    spool: SpooledSegments
    gaps: tuple[ArchiveGap, ...]

    @property
    def behind_seconds(self) -> float | None:
        """How old the newest archived transaction is, where the server has written more; it is behind by no more."""
        if self.server.behind_bytes is None:
            return None
        since = self.last_at or self.received_at
        return 0.0 if self.server.behind_bytes == 0 or since is None else (self.at - since).total_seconds()


def listing_document(listing: ArchiveListing) -> Document:
    """What `binlog list --json` prints."""
    return {
        "job": listing.job,
        "at": iso(listing.at),
        "last_moment": iso(listing.last_moment),
        "stretches": [
            {
                "since": iso(stretch.since),
                "until": iso(stretch.until),
                "run_id": stretch.backup.run_id,
                "chain": stretch.chain or None,
            }
            for stretch in listing.reach.stretches
        ],
        "holes": [
            {"since": iso(hole.since), "until": iso(hole.until), "reason": hole.reason} for hole in listing.reach.holes
        ],
        "backups": [_backup(backup) for backup in listing.backups],
        "targets": [_target(target) for target in listing.targets],
        "spool": asdict(listing.spool),
        "gaps": _gaps(listing.gaps),
    }


def archive_report_document(report: ArchiveReport) -> Document:
    """One job of what `binlog status --json` prints."""
    return {
        "job": report.job,
        "at": iso(report.at),
        "receiving": report.receiving,
        "archived": _place(report.archived),
        "last_at": iso(report.last_at),
        "received_at": iso(report.received_at),
        "server": _place(report.server.end),
        "server_error": report.server.error or None,
        "behind_bytes": report.server.behind_bytes,
        "behind_seconds": report.behind_seconds,
        "targets": [_target(target) for target in report.targets],
        "spool": asdict(report.spool),
        "gaps": _gaps(report.gaps),
    }


def transaction_document(transaction: LoggedTransaction) -> Document:
    """One transaction of what `binlog search --json` prints."""
    return {
        "committed_at": iso(transaction.committed_at),
        "gtid": transaction.gtid,
        "start": _place(transaction.start),
        "end": _place(transaction.end),
        "changes": [asdict(change) for change in transaction.changes],
        "statement": transaction.statement,
    }


def _backup(backup: PlacedBackup) -> Document:
    return {
        "run_id": backup.run_id,
        "taken_at": iso(backup.taken_at),
        "place": _place(backup.place),
        "gtid": backup.gtid,
    }


def _target(target: ArchivedOnTarget) -> Document:
    return {
        "target": target.target,
        "segments": target.segments,
        "bytes_stored": target.bytes_stored,
        "until": _place(target.until),
        "received_at": iso(target.received_at),
    }


def _gaps(gaps: Iterable[ArchiveGap]) -> list[Document]:
    return [
        {
            "chain": gap.chain,
            "reason": gap.reason,
            "noticed_at": iso(gap.noticed_at),
            "last_at": iso(gap.last_at),
            "resumed_at": iso(gap.resumed_at),
        }
        for gap in gaps
    ]


def _place(place: BinlogPlace | None) -> Document | None:
    return None if place is None else asdict(place)
