"""What is an alarm of the archive of a job's binlog.

Knows: that a gap is one until a good backup follows it whose place in the log is known, so that every later moment can
be restored: one that was made without a lock has none until a drill has found it, and one that was started before the
archive went on at the end of the log may lie before that. And that a quiet server writes
nothing, so that the archive is behind where something waits for a target, or where nobody has found for long that all
of the server's log is archived. Pure.
"""

from collections.abc import Iterator
from datetime import datetime

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.report.words import age, instant, size
from backupd.vocabulary.alarms import Alarm, AlarmKind
from backupd.vocabulary.binlogs import ArchiveGap

SPOOL_SHARE = 0.75  # of its limit that the spool may fill: beyond it the oldest segments are soon dropped
_AT_WORK_SECONDS = 300.0  # within which a receiver that is at work has asked the server: it does so every minute
BEHIND_SECONDS = 900.0  # that a segment may wait for a target: a target that is back by then was no alarm


def open_gaps(archive: ArchiveRecord) -> list[ArchiveGap]:
    """The gaps behind which no good backup with a place was started, as they were noticed."""
    return [gap for gap in archive.gaps if not gap.is_closed_by(archive.placed_at)]


def waiting_seconds(archive: ArchiveRecord, *, now: datetime) -> float:
    """For how long the oldest segment has been waiting that a target lacks; 0 where none waits."""
    return 0.0 if archive.waiting_since is None else max(0.0, (now - archive.waiting_since).total_seconds())


def silent_seconds(archive: ArchiveRecord, *, now: datetime) -> float:
    """For how long nobody has found that all of the server's log is archived; 0 where it never began.

    By a clock that was set back since, it is as long as that is ahead: no running receiver would leave it so.
    """
    return 0.0 if archive.reached_at is None else abs((now - archive.reached_at).total_seconds())


def archive_alarms(archive: ArchiveRecord, *, spool_limit: int, now: datetime) -> Iterator[Alarm]:
    """What somebody should look at. Each gap is an alarm of its own."""
    for gap in open_gaps(archive):
        since = instant(gap.last_at or gap.noticed_at)
        yield Alarm(AlarmKind.BINLOG_GAP, f"the binlog archive has a gap since {since}: {gap.reason}", about=gap.chain)
    waited = waiting_seconds(archive, now=now)
    if waited > BEHIND_SECONDS:
        text = f"the binlog archive is behind: a target has lacked segments for {age(waited)}"
        yield Alarm(AlarmKind.BINLOG_BEHIND, text)
    if archive.waiting_bytes > spool_limit * SPOOL_SHARE:
        filled = f"{size(archive.waiting_bytes)} of {size(spool_limit)}"
        text = f"the binlog spool fills: {filled} wait for a target; when it is full, the oldest segments are dropped"
        yield Alarm(AlarmKind.BINLOG_SPOOL, text)
    silent = silent_seconds(archive, now=now)
    if silent > BEHIND_SECONDS:
        why = _why(archive, now=now)
        text = f"the binlog archive is behind: the server's log has not been received for {age(silent)}: {why}"
        yield Alarm(AlarmKind.BINLOG_BEHIND, text, about="receiver")


def _why(archive: ArchiveRecord, *, now: datetime) -> str:
    """What keeps it from being received, as far as its receiver has told."""
    if archive.refused:
        return archive.refused
    if archive.asked_at is None or abs((now - archive.asked_at).total_seconds()) > _AT_WORK_SECONDS:
        return "no receiver is running"
    behind = "" if archive.behind_bytes is None else f", {size(archive.behind_bytes)} behind"
    return f"a receiver is running{behind}"
