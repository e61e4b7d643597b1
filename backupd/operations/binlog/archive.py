"""The archive of a job's binlog while it is at work: received from the server, cut, sealed, kept, stored on targets.

Read `archive` aloud. Row first, effect second: a segment is in the spool before it is in the catalogue, and in the
catalogue before any target has it. Whatever dies, the archive goes on behind the last segment that the catalogue has;
what was received and not recorded is received again. Knows: when a chain goes on and when another one has to begin;
that nothing is kept under a name that the machine has given up: it would be in the way of its archive's next start.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig
from backupd.host.claims import Claims
from backupd.host.priority import give_way_archiving
from backupd.mysql.binlog.promoted import PromotedServer
from backupd.mysql.binlog.receiver import Receiver
from backupd.mysql.binlog.source import BinlogSource, LogState, ServerBinlog
from backupd.operations.binlog.cutting import CutPiece, LackingLog, OtherHistory
from backupd.operations.binlog.dropping import drop
from backupd.operations.binlog.log_gaps import lacked_meanwhile, record_lacking, whole_since
from backupd.operations.binlog.receiving import Receiving
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.start_points import Beginning, behind, following_place, new_beginning, taken_over
from backupd.operations.binlog.storing import SegmentStore, Senders
from backupd.policy.binlog_chain import PlacedBackup, is_of_later_series, is_same_server, made_at
from backupd.vocabulary.binlogs import CATALOGUE_LOST, ArchiveGap, BinlogPlace, BinlogSegment, SegmentOrigin, lost_from
from backupd.vocabulary.errors import BackupdError, Cancelled, CatalogueError, ConfigurationError, ServerError

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_LOOK_SECONDS = 1.0
_LAST_SECONDS = 300.0  # for what waits for a target, before whoever cannot receive makes room for the next process
_LITTLE_BYTES, _PAUSE_SECONDS = 1 << 20, 0.1  # a busy server sends without end: what comes meanwhile is taken at once
_MINUTE_SECONDS = 60.0
_JUST_BEFORE = timedelta(microseconds=1)
_OFF = "the server's binlog is off"
_SPOOL_FULL = "the binlog spool was full, and a target had been away for too long"
_LOST = "segments that waited for a target were lost with the binlog spool"
_TAKEN = "a target has other segments with these names, from a clone or from before this machine was rolled back"
_ASK_SECONDS = 10.0  # a server whose log is reset tells a receiver nothing until the new one is longer than the old one
_SILENT_SECONDS = 600.0  # a dead connection brings nothing, as does an event until it is whole: 1 GiB at the most


@dataclass(frozen=True, slots=True)
class ArchiveTools:
    """What an archive works with."""

    claims: Claims
    catalogue: Catalogue
    store: SegmentStore
    source: Callable[[], BinlogSource]  # asks the server now; raises ServerError
    end_of_log: Callable[[BinlogSource], LogState]  # the same, if it is this server that answers
    sizes_of_log: Callable[[], Sequence[ServerBinlog]]  # the same
    promoted: Callable[[BinlogSource, str], PromotedServer]  # asks another one, which has executed these GTIDs
    receiving: Callable[[BinlogPlace], AbstractContextManager[Receiver]]  # raises ServerError
    backups: Callable[[], Sequence[PlacedBackup]]  # of the job, the newest first
    author: Callable[[SegmentOrigin], SegmentAuthor]
    minute: Callable[[], None]  # a canary row, where the job wants them; raises ServerError


def archive(job: str, config: BinlogConfig, tools: ArchiveTools) -> None:
    """The job's binlog is archived until somebody cancels it. What is received then and not recorded comes again.

    What ends it otherwise is recorded: whoever starts it again does not know why the log is not received.

    Raises:
        Busy: another process archives it.
        UsageError: the spool cannot be used, or the machine has another identity by now.
        ConfigurationError: the server's password cannot be had any more.
        CatalogueError: the catalogue cannot be used.
        Cancelled: by a signal.
    """
    with tools.claims.archiving(job):
        give_way_archiving()
        with _told(job, tools):
            tools.store.spool.open()
            _settle(job, tools)
        with tools.store.storing() as senders, _told(job, tools):  # before the senders are waited for
            _Archive(job, config, tools, senders).go_on()


@contextmanager
def _told(job: str, tools: ArchiveTools) -> Iterator[None]:
    """What ends the block is recorded."""
    try:
        yield
    except (Cancelled, CatalogueError):
        raise
    except BackupdError as error:
        tools.catalogue.archive_contact(job, at=datetime.now(UTC), refused=error.message)
        raise


def _settle(job: str, tools: ArchiveTools) -> None:
    """What a process that died had done by half. What waits in the spool and is not in the catalogue enters that: its
    process died in between, or the catalogue was lost or set back, and the server may have that binlog no more. What
    every target has leaves the spool; what waited and is not in the spool is lost.

    Raises:
        UsageError: what waits is another machine's, or in another spool.
    """
    store, catalogue = tools.store, tools.catalogue
    there = store.spool.sizes()
    for name in sorted(there.keys() - {segment.name for segment in catalogue.spooled_segments(job)}):
        store.take_up(name)
    recorded = catalogue.spooled_segments(job)
    for name in there.keys() - {segment.name for segment in recorded}:
        store.spool.forget(name)
    recorded = [segment for segment in recorded if not store.released(segment)]
    if not there:
        store.require_spool_of(recorded)
    taken = store.taken(there.keys())
    for segment in recorded:
        if segment.name in there and segment.name not in taken:
            continue
        reason, now = _TAKEN if segment.name in taken else _LOST, datetime.now(UTC)
        log.error("job %s: %s was dropped before every target had it: %s", job, segment.name, reason)
        drop(store, segment, because=reason, at=now)


class _Archive:
    """One job's. Only the main thread calls it."""

    def __init__(self, job: str, config: BinlogConfig, tools: ArchiveTools, senders: Senders) -> None:
        self._job, self._config, self._tools, self._senders = job, config, tools, senders
        self._met: datetime | None = None  # when the server had been asked of which was recorded how far the archive is
        self._passed: PlacedBackup | None = None  # a new chain begins with a later one, or where the server is now
        self._anew = False  # or behind what was archived: the chain before ended at a place that is met again

    def go_on(self) -> None:
        """For ever; where the server's password is refused for good, what waits is stored before that is raised."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            began, hint = time.monotonic(), ""
            try:
                said = self._receive()
            except ServerError as error:
                said, hint = error.message, error.hint
            except ConfigurationError as error:  # the next process may have another password, or none that is accepted
                log.error("job %s: the binlog is not received: %s; storing what waits", self._job, error.message)
                self._tools.catalogue.archive_contact(self._job, at=datetime.now(UTC), refused=error.message)
                self._senders.rest(within_seconds=_LAST_SECONDS)
                raise
            if time.monotonic() - began > _LONGEST_WAIT_SECONDS:
                wait = _FIRST_WAIT_SECONDS
            told = f"{said}; hint: {hint}" if hint and wait == _FIRST_WAIT_SECONDS else said
            log.warning("job %s: the binlog is not received: %s; trying again in %g s", self._job, told, wait)
            self._tools.catalogue.archive_contact(self._job, at=datetime.now(UTC), refused=said)
            self._sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    def _sleep(self, seconds: float) -> None:
        """What waits in the spool is stored meanwhile."""
        over = time.monotonic() + seconds
        while (left := over - time.monotonic()) > 0:
            self._senders.require_working()
            time.sleep(min(left, _LOOK_SECONDS))

    def _receive(self) -> str:
        """Why it ended, once it has.

        Raises:
            ServerError: the server cannot be asked or sends what is no binlog.
        """
        source, end = self._whole(self._tools.source())
        beginning = self._beginning(source, end)
        author = self._tools.author(source.origin)
        with self._tools.receiving(beginning.begin) as receiver:
            receiving = Receiving(self, beginning, author, self._config, source)
            log.info("job %s: receiving from %s:%d", self._job, beginning.begin.file, beginning.begin.offset)
            try:
                return self._received(receiver, receiving, source)
            except OtherHistory as other:
                return self._broken(receiving, other, beginning)

    def _received(self, receiver: Receiver, receiving: Receiving, source: BinlogSource) -> str:
        asked = minute = arrived = time.monotonic()
        while True:
            if time.monotonic() - asked > _ASK_SECONDS:
                asked = time.monotonic()
                self._record_lag(receiving)
                receiving.expect(self._tools.end_of_log(source), at=datetime.now(UTC))
            end, pieces = receiver.ended, receiver.poll()  # in this order: what it wrote before its end is read
            for piece in pieces:
                receiving.take(piece.file, piece.data, file_ended=piece.file_ended)
            if pieces or receiving.complete_at is not None:
                arrived = time.monotonic()
            elif time.monotonic() - arrived > _SILENT_SECONDS:
                return f"nothing has arrived for {_SILENT_SECONDS / 60:g} min, and the server has written more"
            receiving.take_due()
            self._senders.require_working()
            self._record_contact(receiving)
            if time.monotonic() - minute > _MINUTE_SECONDS:
                minute = time.monotonic()
                self._write_minute()
            if end is None and not pieces:
                receiver.wait(min(receiving.until_due, _LOOK_SECONDS))
            elif end is None and sum(len(piece.data) for piece in pieces) < _LITTLE_BYTES:
                time.sleep(_PAUSE_SECONDS)
            elif end is not None and not pieces:
                if end.ends_chain:
                    raise OtherHistory(end.said)
                return end.said

    def _record_contact(self, receiving: Receiving) -> None:
        """That all had been received which the server had written by then, and is kept: once a minute is enough."""
        at = receiving.complete_at
        if at is not None and self._is_due(at):
            self._record(receiving, at, complete=receiving.keeps)

    def _record_lag(self, receiving: Receiving) -> None:
        """That the server had written more when it was asked before than has been received by now; as often."""
        at = receiving.expected_at
        if at is not None and receiving.complete_at is None and self._is_due(at):
            self._record(receiving, at, complete=False)

    def _is_due(self, at: datetime) -> bool:
        return self._met is None or abs((at - self._met).total_seconds()) > _MINUTE_SECONDS

    def _record(self, receiving: Receiving, at: datetime, *, complete: bool) -> None:
        behind = receiving.behind_bytes(self._tools.sizes_of_log)
        self._tools.catalogue.archive_contact(self._job, at=at, behind_bytes=behind, complete=complete)
        self._met = at

    def _write_minute(self) -> None:
        """Where that fails, the archive goes on all the same."""
        try:
            self._tools.minute()
        except ServerError as error:
            log.warning("job %s: the canary row of this minute was not written: %s", self._job, error.message)

    def _broken(self, receiving: Receiving, other: OtherHistory, beginning: Beginning) -> str:
        """The chain ends; where it never began with a backup's place, the next one begins with no earlier one's."""
        reason = str(other)
        if isinstance(other, LackingLog):
            self._lacks(reason)
        elif receiving.before is None:
            self._passed = beginning.backup or self._passed
        else:
            self._anew = True
            self.gap(receiving.before, reason)
        return reason

    def gap(self, last: BinlogSegment, reason: str) -> None:
        """This segment is the last of its chain, for this reason."""
        log.error("job %s: the binlog archive has a gap after %s: %s", self._job, last.name, reason)
        self._tools.catalogue.archive_gap(self._job, ArchiveGap(last.chain, reason, datetime.now(UTC), last.last_at))

    def _parted(self, last: BinlogSegment, first: BinlogSegment, reason: str) -> None:
        """The chain goes on behind this segment, and no backup from before is rolled forward by that. One is that was
        started once the upgraded server had begun its log, however late that is received.
        """
        log.error("job %s: take a backup: %s", self._job, reason)
        name, at = lost_from(first.chain, first.number), datetime.now(UTC)
        if is_same_server(last.origin, first.origin):
            at = min(at, datetime.fromtimestamp(max(made_at(first), last.received_at.timestamp()), UTC))
        self._tools.catalogue.archive_gap(self._job, ArchiveGap(name, reason, at, last.last_at))

    def _lacks(self, why: str) -> None:
        """The server's log lacks changes: the chain ends, whatever comes next."""
        gap = record_lacking(self._tools.catalogue, self._job, why, at=datetime.now(UTC))
        if gap is not None:
            log.error("job %s: the binlog archive has a gap: %s", self._job, gap.reason)

    def _whole(self, source: BinlogSource) -> tuple[BinlogSource, BinlogPlace]:
        """The same, with from when on its log has all changes; and its end.

        Raises:
            ServerError: the server has no binlog, or one that lacks changes.
        """
        if source.end is None:
            self._lacks(_OFF)
            raise ServerError(_OFF, hint="set log_bin on the server, and start it again")
        if source.left_out:
            self._lacks(source.left_out)
            raise ServerError(
                source.left_out, hint="an incomplete binlog cannot be used to roll forward: change that on the server"
            )
        catalogue = self._tools.catalogue
        if lacked := lacked_meanwhile(catalogue, self._job, source):
            self._lacks(lacked)
        since = whole_since(catalogue, self._job, at=datetime.now(UTC))
        return replace(source, origin=replace(source.origin, whole_since=since)), source.end

    def _beginning(self, source: BinlogSource, end: BinlogPlace) -> Beginning:
        """Behind the last segment where the server still has that; else a new chain."""
        last = self._tools.catalogue.latest_segment(self._job)
        ended = {gap.chain: gap.reason for gap in self._tools.catalogue.archive_gaps(self._job)}
        if last is not None and ended.get(last.chain) == CATALOGUE_LOST and self._tools.store.is_last(last):
            log.info("job %s: no target has more of chain %s: continuing it", self._job, last.chain)
            self._tools.catalogue.archive_goes_on(self._job, last.chain)
            del ended[last.chain]
        if last is not None and last.chain not in ended:
            following = following_place(last)
            if not is_same_server(last.origin, source.origin):
                found = taken_over(last, source, self._tools.promoted)
                if isinstance(found, Beginning):
                    log.warning("job %s: another server answers: continuing there if the GTIDs match", self._job)
                    return found
                self.gap(last, found)
            elif (length := source.length(last.file)) is not None and last.file_ended and length != last.end:
                self.gap(last, f"{last.file} now has {length} bytes, and {last.end} were archived: the log was reset")
            elif not source.has(following):
                self.gap(last, f"the server no longer has {following.file} up to byte {following.offset}")
            else:
                return behind(last, following, self._tools.catalogue.segments(self._job, chain=last.chain))
        passed = self._passed
        backups = [each for each in self._tools.backups() if passed is None or each.taken_at > passed.taken_at]
        beginning = new_beginning(source, end, last, backups, anew=self._anew)
        if beginning.backup is None or beginning.backup.live:
            self._begins_behind(last, beginning.backup)
        return beginning

    def _begins_behind(self, last: BinlogSegment | None, live: PlacedBackup | None) -> None:
        """The next chain begins at the end of the log, or with a backup that may fail: from no earlier one it leads on,
        and none closes a gap.
        """
        catalogue = self._tools.catalogue
        at = datetime.now(UTC) if live is None else catalogue.run(live.run_id).started_at - _JUST_BEFORE
        for gap in self._gaps_behind(last):
            catalogue.archive_gap(self._job, replace(gap, noticed_at=at))

    def _gaps_behind(self, last: BinlogSegment | None) -> list[ArchiveGap]:
        """The one that ended this segment's chain, and those of later chains, but none within it: behind those it went
        on. Where nothing is archived, those that no backup has closed.
        """
        gaps = self._tools.catalogue.archive_gaps(self._job)
        if last is None:
            record = self._tools.catalogue.records([self._job], at=datetime.now(UTC))[self._job].archive
            return [gap for gap in gaps if not gap.is_closed_by(record.placed_at)]
        return [
            gap
            for gap in gaps
            if gap.chain == last.chain or (gap.chain > last.chain and not gap.chain.startswith(last.chain))
        ]

    def keep(self, piece: CutPiece, author: SegmentAuthor, chain: str, before: BinlogSegment | None) -> BinlogSegment:
        """The piece is the chain's next segment, durable in the spool and in the catalogue.

        Raises:
            UsageError: the spool has no room on its disk, or the machine has another identity by now.
            CatalogueError: it could not be recorded.
        """
        self._tools.store.require_same_machine()
        sealed = author.segment(piece, chain=chain, before=before, at=datetime.now(UTC))
        self._tools.store.spool.keep(sealed.segment.name, sealed.line, sealed.content)
        if before is not None and (reason := is_of_later_series(before, sealed.segment)):
            self._parted(before, sealed.segment, reason)
        self._tools.catalogue.add_segment(sealed.segment)
        self._passed, self._anew = None, False
        self._senders.ring()
        return sealed.segment

    def make_room(self, chain: str) -> bool:
        """The oldest go where the spool is over its limit: the server's disk is never filled. Whether the chain has
        lost a segment by that, which no target has: it has ended then.
        """
        waiting = self._tools.store.spool.sizes()
        over, lost = sum(waiting.values()) - self._config.spool_limit, False
        for segment in self._tools.catalogue.spooled_segments(self._job) if over > 0 else ():
            if over <= 0:
                break
            over -= waiting.get(segment.name, 0)
            if self._tools.store.released(segment):  # its last target has it since a moment ago
                continue
            nobody_has_it = drop(self._tools.store, segment, because=_SPOOL_FULL, at=datetime.now(UTC))
            lost = lost or (segment.chain == chain and nobody_has_it)
            log.error("job %s: %s was dropped before every target had it: the spool is full", self._job, segment.name)
        return lost
