"""What is remembered of a server's log that lacked changes, so that no chain leads over that, whoever looks next.

Knows: that one look is enough; that a chain which begins afterwards takes up no backup from before the log was whole
again, and tells so in its segments.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from backupd.catalogue.store import Catalogue
from backupd.mysql import UNLOCKED
from backupd.mysql.binlog.source import BinlogSource
from backupd.operations.binlog.segment_author import new_chain
from backupd.policy.binlog_chain import is_same_server
from backupd.policy.gtid import is_within, state_of
from backupd.vocabulary.binlogs import CATALOGUE_LOST, NOT_LOGGED, ArchiveGap, BinlogSegment

_BEFORE_ITS_SNAPSHOT = timedelta(days=1)  # at the most, its run began: its hooks, the wait for its lock


def record_lacking(catalogue: Catalogue, job: str, why: str, *, at: datetime) -> ArchiveGap | None:
    """The job's server did not log all changes then: the gap that this is. None where that is known.

    Where no chain goes on that it could end, the gap has a name of its own.
    """
    last, gaps = catalogue.latest_segment(job), catalogue.archive_gaps(job)
    ended = {gap.chain: gap.reason for gap in gaps}
    gap = ArchiveGap("", f"{NOT_LOGGED}{why}", at, None)
    if last is not None and ended.get(last.chain, CATALOGUE_LOST) == CATALOGUE_LOST:
        gap = replace(gap, chain=last.chain, last_at=last.last_at)
    elif (before := _behind(last, gaps)) is None:
        gap = replace(gap, chain=new_chain(at, after="" if last is None else last.chain))
    elif before.resumed_at is None:
        return None
    else:
        gap = replace(before, resumed_at=None)
    catalogue.archive_gap(job, gap)
    return gap


def _behind(last: BinlogSegment | None, gaps: Sequence[ArchiveGap]) -> ArchiveGap | None:
    """The newest gap of this kind behind which nothing has been archived yet."""
    return next((gap for gap in reversed(gaps) if gap.not_logged and (last is None or gap.chain >= last.chain)), None)


def whole_since(catalogue: Catalogue, job: str, *, at: datetime) -> datetime | None:
    """From when on the log of the job's server has had all changes, as it has them now; None: it never lacked any."""
    last = catalogue.latest_segment(job)
    known = [last.origin.whole_since] if last is not None and last.origin.whole_since is not None else []
    for gap in catalogue.archive_gaps(job):
        if gap.not_logged:
            known.append(gap.resumed_at or at)
            if gap.resumed_at is None:
                catalogue.archive_gap(job, replace(gap, resumed_at=at))
    return max(known, default=None)


def lacked_meanwhile(catalogue: Catalogue, job: str, source: BinlogSource) -> str:
    """What tells that the log lacked changes since it was archived last, and is whole again. Empty where nothing does,
    or that is recorded.
    """
    last, gaps = catalogue.latest_segment(job), catalogue.archive_gaps(job)
    if last is None:
        return ""
    before = _behind(last, gaps)
    if before is None:
        for told in (_sent(last, source), _lost(last, source)):
            if told and all(gap.reason != f"{NOT_LOGGED}{told}" for gap in gaps):
                return told
    since = last.received_at if before is None else before.resumed_at
    return "" if since is None else _off_when_backed_up(catalogue, job, since)


def _off_when_backed_up(catalogue: Catalogue, job: str, since: datetime) -> str:
    for run in catalogue.runs(job=job, ours=True, since=since - _BEFORE_ITS_SNAPSHOT, limit=None):
        at, position = run.snapshot_by or run.started_at, run.position
        if run.lock is not None and run.lock.strategy == UNLOCKED:  # its place is not known before a drill finds it
            continue
        if at > since and position is not None and position.binlog_file is None:
            return f"the server's binlog was off when run {run.run_id} looked"
    return ""


def _sent(last: BinlogSegment, source: BinlogSource) -> str:
    """What a server was sent and did not log, by its GTIDs: once it is a replica no more, nothing else tells that."""
    if source.own_writes or not last.gtid_end or not is_same_server(last.origin, source.origin):
        return ""
    if not is_within(source.purged, last.gtid_end):
        return f"log_replica_updates is off, and none of the server's files had {source.purged:.200}"
    if not source.applied:
        return ""
    archived = {domain: number for (domain, _), number in state_of(last.gtid_end).items()}
    for (domain, server), number in state_of(source.applied).items():
        if server != source.origin.server_id and number > archived.get(domain, number):
            return f"log_slave_updates is off, and the server was sent transactions up to {domain}-{server}-{number}"
    return ""


def _lost(last: BinlogSegment, source: BinlogSource) -> str:
    """A server that crashed, whose log was not synced, may have lost its end and kept in its data what stood there: it
    goes on in another file then.
    """
    length = source.length(last.file)
    if length is None or length >= last.end or source.end is None or source.end.file == last.file:
        return ""
    if not is_same_server(last.origin, source.origin):
        return ""
    return f"{last.file} has {length} bytes, and {last.end} were archived: the end of the log was lost"
