"""The archive of a job's binlog while it is at work: received from the server, cut, sealed, kept, stored on targets.

Read `archive` aloud. Row first, effect second: a segment is in the spool before it is in the catalogue, and in the
catalogue before any target has it. Whatever dies, the archive goes on behind the last segment that the catalogue has;
what was received and not recorded is received again. Knows: when a chain goes on and when another one has to begin.
"""

import base64
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig
from backupd.host.claims import Claims
from backupd.mysql.binlog.promoted import PromotedServer
from backupd.mysql.binlog.receiver import Receiver
from backupd.mysql.binlog.sameness import file_birth, same_file
from backupd.mysql.binlog.source import BinlogSource, ServerBinlog, bytes_behind
from backupd.operations.binlog.beginnings import Beginning, behind, following_place, new_beginning, taken_over
from backupd.operations.binlog.cutting import CutPiece, OtherHistory, SegmentCutter
from backupd.operations.binlog.describing import SegmentAuthor, new_chain
from backupd.operations.binlog.storing import SegmentStore, Senders
from backupd.policy.binlog_chain import PlacedBackup, is_same_server, order
from backupd.vocabulary.binlogs import CATALOGUE_LOST, ArchiveGap, BinlogPlace, BinlogSegment, SegmentOrigin
from backupd.vocabulary.errors import ServerError

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_LOOK_SECONDS = 1.0
_LITTLE_BYTES, _PAUSE_SECONDS = 1 << 20, 0.1  # a busy server sends without end: what comes meanwhile is taken at once
_MINUTE_SECONDS = 60.0
_ASK_SECONDS = 10.0  # a server whose log is reset tells a receiver nothing until the new one is longer than the old one


@dataclass(frozen=True, slots=True)
class ArchiveTools:
    """What an archive works with."""

    claims: Claims
    catalogue: Catalogue
    store: SegmentStore
    source: Callable[[], BinlogSource]  # asks the server now; raises ServerError
    end_of_log: Callable[[SegmentOrigin], BinlogPlace]  # the same, if it is this server that answers
    sizes_of_log: Callable[[], Sequence[ServerBinlog]]  # the same
    promoted: Callable[[BinlogSource, str], PromotedServer]  # asks another one, which has executed these GTIDs
    receiving: Callable[[BinlogPlace], AbstractContextManager[Receiver]]
    backups: Callable[[], Sequence[PlacedBackup]]  # good ones of the job, the newest first
    author: Callable[[SegmentOrigin], SegmentAuthor]
    minute: Callable[[], None]  # a canary row, where the job wants them; raises ServerError


def archive(job: str, config: BinlogConfig, tools: ArchiveTools) -> None:
    """The job's binlog is archived until somebody cancels it. What is received then and not recorded comes again.

    Raises:
        Busy: another process archives it.
        UsageError: the spool cannot be used.
        CatalogueError: the catalogue cannot.
        Cancelled: by a signal.
    """
    with tools.claims.archiving(job):
        tools.store.spool.open()
        _settle(job, tools)
        with tools.store.storing() as senders:
            _Archive(job, config, tools, senders).go_on()


def _settle(job: str, tools: ArchiveTools) -> None:
    """What a process that died had done by half. What it had put into the spool and not yet into the catalogue is
    received again; what every target has leaves the spool; what waited and is not in the spool is lost.
    """
    store, catalogue = tools.store, tools.catalogue
    recorded = catalogue.spooled_segments(job)
    there = store.spool.sizes()
    for name in there.keys() - {segment.name for segment in recorded}:
        store.spool.forget(name)
    ended = {gap.chain for gap in catalogue.archive_gaps(job)}
    for segment in recorded:
        if store.released(segment) or segment.name in there:
            continue
        log.error("job %s: %s is not in the spool any more, and a target lacks it", job, segment.name)
        if segment.chain not in ended:
            reason = "segments that waited for a target were lost with the binlog spool"
            catalogue.archive_gap(job, ArchiveGap(segment.chain, reason, datetime.now(UTC), segment.last_at))
        store.dropped(segment)


class _Archive:
    """One job's. Only the main thread calls it."""

    def __init__(self, job: str, config: BinlogConfig, tools: ArchiveTools, senders: Senders) -> None:
        self._job, self._config, self._tools, self._senders = job, config, tools, senders
        self._met: datetime | None = None  # when the server had been asked of which was recorded how far the archive is
        self._at_end = False  # a new chain begins where the server is now, whatever backup there is

    def go_on(self) -> None:
        """For ever."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            began = time.monotonic()
            try:
                said = self._receive()
            except ServerError as error:
                said = error.message
            if time.monotonic() - began > _LONGEST_WAIT_SECONDS:
                wait = _FIRST_WAIT_SECONDS
            log.warning("job %s: the binlog is not received: %s; trying again in %g s", self._job, said, wait)
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
        source = self._tools.source()
        beginning = self._beginning(source)
        author = self._tools.author(source.origin)
        with self._tools.receiving(beginning.begin) as receiver:
            receiving = _Receiving(self, beginning, author, self._config, source)
            log.info("job %s: receiving from %s:%d", self._job, beginning.begin.file, beginning.begin.offset)
            try:
                return self._received(receiver, receiving, source.origin)
            except OtherHistory as other:
                return self._broken(receiving, str(other), beginning)

    def _received(self, receiver: Receiver, receiving: "_Receiving", origin: SegmentOrigin) -> str:
        asked = minute = time.monotonic()
        while True:
            if time.monotonic() - asked > _ASK_SECONDS:
                asked = time.monotonic()
                self._record_lag(receiving)
                receiving.expect(self._tools.end_of_log(origin), at=datetime.now(UTC))
            end, pieces = receiver.ended, receiver.poll()  # in this order: what it wrote before its end is read
            for piece in pieces:
                receiving.take(piece.file, piece.data, file_ended=piece.file_ended)
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

    def _record_contact(self, receiving: "_Receiving") -> None:
        """That all had been received which the server had written by then: once a minute is enough."""
        at = receiving.complete_at
        if at is not None and self._is_due(at):
            self._record(receiving, at, complete=True)

    def _record_lag(self, receiving: "_Receiving") -> None:
        """That the server had written more when it was asked before than has been received by now; as often."""
        at = receiving.expected_at
        if at is not None and receiving.complete_at is None and self._is_due(at):
            self._record(receiving, at, complete=False)

    def _is_due(self, at: datetime) -> bool:
        return self._met is None or abs((at - self._met).total_seconds()) > _MINUTE_SECONDS

    def _record(self, receiving: "_Receiving", at: datetime, *, complete: bool) -> None:
        behind = receiving.behind_bytes(self._tools.sizes_of_log)
        self._tools.catalogue.archive_contact(self._job, at=at, behind_bytes=behind, complete=complete)
        self._met = at

    def _write_minute(self) -> None:
        """Where that fails, the archive goes on all the same."""
        try:
            self._tools.minute()
        except ServerError as error:
            log.warning("job %s: the canary row of this minute was not written: %s", self._job, error.message)

    def _broken(self, receiving: "_Receiving", reason: str, beginning: Beginning) -> str:
        """The chain ends; where it never began, the next one begins where the server is."""
        if receiving.before is None:
            self._at_end = beginning.backup is not None
        else:
            self.gap(receiving.before, reason)
        return reason

    def gap(self, last: BinlogSegment, reason: str) -> None:
        """This segment is the last of its chain, for this reason."""
        log.error("job %s: the binlog archive has a gap after %s: %s", self._job, last.name, reason)
        gap = ArchiveGap(last.chain, reason, datetime.now(UTC), last.last_at)
        self._tools.catalogue.archive_gap(self._job, gap)

    def _beginning(self, source: BinlogSource) -> Beginning:
        """Behind the last segment where the server still has that; else a new chain.

        Raises:
            ServerError: the server has no binlog.
        """
        if source.end is None:
            raise ServerError("the server's binlog is off", hint="set log_bin on the server, and start it again")
        if source.left_out:
            raise ServerError(
                source.left_out, hint="a log that lacks changes cannot be rolled forward by: change that on the server"
            )
        last = self._tools.catalogue.latest_segment(self._job)
        ended = {gap.chain: gap.reason for gap in self._tools.catalogue.archive_gaps(self._job)}
        if last is not None and ended.get(last.chain) == CATALOGUE_LOST and self._tools.store.is_last(last):
            log.info("job %s: no target has more of chain %s: it goes on", self._job, last.chain)
            self._tools.catalogue.archive_goes_on(self._job, last.chain)
            del ended[last.chain]
        if last is not None and last.chain not in ended:
            following = following_place(last)
            if not is_same_server(last.origin, source.origin):
                found = taken_over(last, source, self._tools.promoted)
                if isinstance(found, Beginning):
                    log.warning("job %s: another server answers: the archive goes on there if GTIDs agree", self._job)
                    return found
                self.gap(last, found)
            elif (length := source.length(last.file)) is not None and last.file_ended and length != last.end:
                self.gap(last, f"{last.file} has {length} bytes and not {last.end} any more: the log was reset")
            elif not source.has(following):
                self.gap(last, f"the server has no binlog {following.file} with {following.offset} bytes any more")
            else:
                return behind(last, following, self._tools.catalogue.segments(self._job, chain=last.chain))
        return new_beginning(source, source.end, last, () if self._at_end else self._tools.backups())

    def keep(self, piece: CutPiece, author: SegmentAuthor, chain: str, before: BinlogSegment | None) -> BinlogSegment:
        """The piece is the chain's next segment, durable in the spool and in the catalogue.

        Raises:
            UsageError: the spool has no room on its disk.
            CatalogueError: it could not be recorded.
        """
        sealed = author.segment(piece, chain=chain, before=before, at=datetime.now(UTC))
        self._tools.store.spool.keep(sealed.segment.name, sealed.line, sealed.content)
        self._tools.catalogue.add_segment(sealed.segment)
        self._at_end = False
        self._senders.ring()
        return sealed.segment

    def make_room(self, chain: str) -> bool:
        """The oldest go where the spool is over its limit: the server's disk is never filled. Whether the chain has
        lost a segment by that.
        """
        waiting = self._tools.store.spool.sizes()
        over = sum(waiting.values()) - self._config.spool_limit
        lost = False
        for segment in self._tools.catalogue.spooled_segments(self._job) if over > 0 else ():
            if over <= 0:
                break
            over -= waiting.get(segment.name, 0)
            lost = lost or segment.chain == chain
            self._tools.store.dropped(segment)
            log.error("job %s: %s was dropped: the spool is full, and a target lacks it", self._job, segment.name)
        return lost


class _Receiving:
    """One connection's bytes on their way to segments."""

    def __init__(
        self,
        archive: _Archive,
        beginning: Beginning,
        author: SegmentAuthor,
        config: BinlogConfig,
        source: BinlogSource,
    ) -> None:
        self._archive, self._beginning, self._author = archive, beginning, author
        self.before, self._chain = beginning.before, beginning.chain
        self._expected: tuple[BinlogPlace, datetime] | None = None  # how far the server's log reached, and when
        self._within = False  # a chain ended within a transaction, and the next one has not begun yet
        self._known = beginning.other is not None  # the file that arrives first is the one that it should be
        self._cutter = SegmentCutter(
            source.origin.flavour,
            size=config.segment_size,
            age_seconds=config.segment_age_seconds,
            begin=beginning.begin,
            gtids=beginning.gtids,
            state=beginning.state,
            archived=beginning.archived,
            other=beginning.other,
        )

    @property
    def until_due(self) -> float:
        """Seconds until there may be something due."""
        return self._cutter.until_due

    def expect(self, end: BinlogPlace, *, at: datetime) -> None:
        """The server's log reached so far then.

        Raises:
            OtherHistory: that is less than was received: its log was reset.
        """
        if order(self._cutter.received) > order(end):
            raise OtherHistory(
                f"the server's log ends at {end.file}:{end.offset}, before what was received: it was reset"
            )
        self._expected = (end, at)

    @property
    def complete_at(self) -> datetime | None:
        """When the server had written no more than has been received by now; None where nobody has found that yet."""
        if self._expected is None or order(self._cutter.received) < order(self._expected[0]):
            return None
        return self._expected[1]

    @property
    def expected_at(self) -> datetime | None:
        """When the server was asked last how far its log reaches."""
        return None if self._expected is None else self._expected[1]

    def behind_bytes(self, sizes: Callable[[], Sequence[ServerBinlog]]) -> int | None:
        """How much of what the server had written then is in no segment; `sizes` asks it where that is in other files.

        Raises:
            ServerError: it cannot be asked.
        """
        if self._expected is None:
            return None
        end = self._expected[0]
        nothing_kept = self.before is None or self.before is self._beginning.before
        archived = self._beginning.archived if nothing_kept or self.before is None else following_place(self.before)
        if order(archived) >= order(end):
            return 0
        return bytes_behind(() if archived.file == end.file else sizes(), archived, end)

    def take(self, file: str, data: bytes, *, file_ended: bool) -> None:
        """Bytes of this file; what is complete by them is kept."""
        try:
            for piece in self._cutter.feed(file, data, file_ended=file_ended):
                self._keep(piece)
        except ServerError:
            self._require_known(self._cutter.format)  # of another file one begins to receive anywhere
            raise

    def take_due(self) -> None:
        """What is old enough is kept."""
        if (piece := self._cutter.due()) is not None:
            self._keep(piece)

    def _keep(self, piece: CutPiece) -> None:
        self._require_known(piece.format)
        if self._within:  # no chain begins within a transaction: it is in the gap, whole
            self._within = piece.within_transaction
            return
        self.before = self._archive.keep(piece, self._author, self._chain, self.before)
        if self._archive.make_room(self._chain):
            self._archive.gap(self.before, "the binlog spool was full, and a target had been away for too long")
            self._chain, self.before = new_chain(datetime.now(UTC), after=self._chain), None
            self._within = piece.within_transaction

    def _require_known(self, format_event: str) -> None:
        """The file that arrives first may be another one of its name: after RESET, or of another server.

        Raises:
            OtherHistory: it is.
        """
        beginning, first = self._beginning, self._beginning.begin.file
        if self._known or not format_event:
            return
        received = base64.b64decode(format_event)
        if beginning.before is not None and beginning.before.file == first:
            if not same_file(base64.b64decode(beginning.before.format), received):
                raise OtherHistory(f"{first} is another file than before: the server's binlogs were reset")
        elif beginning.backup is not None and file_birth(received).created_at > beginning.backup.taken_at.timestamp():
            raise OtherHistory(f"{first} is newer than backup {beginning.backup.run_id}")
        self._known = True
