"""How the binlog archive of each job stands: what its receiver does, how far it is behind, what can be restored.

The one projection that pages, `/api/jobs`, metrics, `status` and Nagios show. By the catalogue alone: no server and no
target is asked. `binlog status` asks the server too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from backupd.catalogue.archive_outline import ArchiveOutline
from backupd.catalogue.archive_records import ArchiveRecord
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Reach, reach
from backupd.report.json_document import iso
from backupd.report.words import age, instant, many, size
from backupd.service.archive_alarms import silent_seconds
from backupd.service.job_status import JobStatus
from backupd.service.site import Site

ASKED_SECONDS = 180.0  # a receiver that is at work has asked its server within this time; it does so every minute


class ReceiverState(StrEnum):
    """What is known of the process that archives a job's binlog."""

    NEVER = "never"  # it has told nothing yet
    WORKING = "working"
    REFUSED = "refused"  # it is at work, and the server's log is not received
    SILENT = "silent"  # it has told nothing for minutes


@dataclass(frozen=True)
class ArchiveFigures:
    """How an archive stands. Sizes are bytes; what is not known is null."""

    receiver: ReceiverState
    refused: str | None  # why the server's log is not received
    behind_seconds: float | None  # by no more: since it had all that the server had written
    behind_bytes: int | None  # of the server's log, when a receiver that is at work asked the server last
    last_moment: datetime | None  # the last that can be restored
    reachable_from: datetime | None  # from then on to the last one every moment can be restored
    oldest_moment: datetime | None  # the first that can be restored; there may be holes behind it
    gaps: int  # that the archive has ever had
    waiting_segments: int  # in the spool, for a target that lacks them
    waiting_bytes: int
    spool_limit: int


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """One job's archive at one instant."""

    at: datetime
    record: ArchiveRecord
    spool_limit: int
    reach: Reach
    backups: tuple[PlacedBackup, ...]  # the good ones, the oldest first

    @property
    def asked_seconds(self) -> float | None:
        """For how long its receiver has not asked the server, or, by a clock that was set back since, by how much that
        is ahead: no running receiver would leave it so. None: it never has.
        """
        asked = self.record.asked_at
        return None if asked is None else abs((self.at - asked).total_seconds())

    @property
    def receiver(self) -> ReceiverState:
        """By what it told last."""
        if self.asked_seconds is None:
            return ReceiverState.NEVER
        if self.asked_seconds > ASKED_SECONDS:
            return ReceiverState.SILENT
        return ReceiverState.REFUSED if self.record.refused else ReceiverState.WORKING

    @property
    def figures(self) -> ArchiveFigures:
        """All that fits in a line."""
        record, reach, receiver = self.record, self.reach, self.receiver
        last = max((stretch.until for stretch in reach.stretches), default=None)
        oldest = reach.stretches[0].since if reach.stretches else None
        return ArchiveFigures(
            receiver=receiver,
            refused=record.refused or None,
            behind_seconds=None if record.reached_at is None else silent_seconds(record, now=self.at),
            behind_bytes=None if receiver is ReceiverState.SILENT else record.behind_bytes,  # the server writes on
            last_moment=last,
            reachable_from=reach.holes[-1].until if reach.holes else oldest,
            oldest_moment=oldest,
            gaps=len(record.gaps),
            waiting_segments=record.waiting,
            waiting_bytes=record.waiting_bytes,
            spool_limit=self.spool_limit,
        )


def archive_statuses(site: Site, jobs: Sequence[JobStatus]) -> dict[str, ArchiveStatus]:
    """By job, of those whose binlog is archived.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    archived = [one for one in jobs if one.archive is not None]
    if not archived:
        return {}
    drawn = site.catalogue.archive_outlines([one.job for one in archived])
    found = {}
    for one in archived:
        outline, record = drawn.get(one.job, ArchiveOutline()), one.archive or ArchiveRecord()
        limit = 0 if one.config.binlog is None else one.config.binlog.spool_limit
        within = reach(outline.backups, outline.rows, record.gaps, now=one.now)
        found[one.job] = ArchiveStatus(one.now, record, limit, within, outline.backups)
    return found


# --- in words --------------------------------------------------------------------------------------------------------


def receiver_words(status: ArchiveStatus) -> str:
    """What the receiver does, or why it does not."""
    told = age(status.asked_seconds)
    match status.receiver:
        case ReceiverState.NEVER:
            return "it has not reported yet"
        case ReceiverState.WORKING:
            return f"running, asked the server {told} ago"
        case ReceiverState.REFUSED:
            return f"the server's log is not received: {status.record.refused}"
        case ReceiverState.SILENT:
            why = f"; then: {status.record.refused}" if status.record.refused else ""
            return f"no report for {told}{why}"


def behind_words(figures: ArchiveFigures) -> str:
    """By how much the archive is behind the server, at the most."""
    if figures.behind_seconds is None:
        return "not known yet"
    missing = "" if figures.behind_bytes is None else f", {size(figures.behind_bytes)} when the server was asked last"
    return f"{age(figures.behind_seconds)} or less{missing}"


def reach_words(figures: ArchiveFigures) -> str:
    """Which moments can be restored."""
    if figures.last_moment is None or figures.reachable_from is None:
        return "no moment can be restored yet"
    return f"every moment from {instant(figures.reachable_from)} to {instant(figures.last_moment)}"


def spool_words(figures: ArchiveFigures) -> str:
    """What waits for a target."""
    if not figures.waiting_segments:
        return "nothing waits"
    waits = many(figures.waiting_segments, "segment")
    return f"{waits}, {size(figures.waiting_bytes)} of {size(figures.spool_limit)}"


def archive_document(figures: ArchiveFigures) -> Mapping[str, Any]:
    """As `status --json` has it, under the names that `/api/jobs` has."""
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in asdict(figures).items()}
