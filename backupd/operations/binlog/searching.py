"""Transactions are found in the archive of a job's binlog: only segments that may have them are read, one at a time.

Knows: that a transaction may begin in one segment and end in a later one, and is read from where it began; what becomes
of a segment that cannot be read. Nothing is written to disk.
"""

import base64
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from backupd.catalogue.store import Catalogue
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent, has_checksums
from backupd.mysql.binlog.layout import BEGINNINGS
from backupd.mysql.binlog.sifting import BinlogBytes, Sieve
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.policy.binlog_chain import follows, is_same_server
from backupd.policy.log_search import LogSearch
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, LoggedTransaction
from backupd.vocabulary.errors import BackupdError, ServerError, TargetError, VerificationError

log = logging.getLogger(__name__)

_MOST_HELD = 200_000  # changes of all that was found: a transaction may have thousands
_SKEW = timedelta(hours=1)  # that the server's clock may be ahead of ours: what it commits is received later
_NOTHING = Sieve(kinds=(ChangeKind.DROP,))  # lets nothing through but statements, and what is open at the end
_HINT = "compare it with the server's own file"


@dataclass(frozen=True, slots=True)
class LogFindings:
    """What a search came to."""

    transactions: tuple[LoggedTransaction, ...]  # as they are in the log, the oldest first
    more: bool  # there are others behind them
    segments: int  # that were looked at
    read: int  # of these, that had to be fetched; a segment with a transaction's beginning counts once for each
    unread: tuple[BackupdError, ...]  # why others could not be


def search(wanted: LogSearch, catalogue: Catalogue, reader: SegmentReader, *, at_most: int) -> LogFindings:
    """The first transactions that are wanted. What cannot be read is told, and the search goes on behind it.

    Raises:
        NoKey: a segment is encrypted, and no identity opens it.
        CatalogueError: the catalogue cannot be read.
    """
    found: dict[LoggedTransaction, None] = {}  # a chain may begin within another one, and has the same again
    course = _Course(wanted, catalogue, reader)
    looked_at = held = 0
    received_since = None if wanted.since is None else wanted.since - _SKEW
    for segment in catalogue.segments(reader.job, since=received_since):
        looked_at += 1
        for transaction in course.ended_in(segment) if wanted.may_be_in(segment) else ():
            if wanted.matches(transaction) and transaction not in found:
                found[transaction] = None
                held += len(transaction.changes)
            if len(found) > at_most or held > _MOST_HELD:
                return LogFindings(tuple(found)[:at_most], True, looked_at, course.read, tuple(course.errors))
        course.pass_by(segment)
    return LogFindings(tuple(found), False, looked_at, course.read, tuple(course.errors))


class _Course:
    """The way through a job's segments, in their order."""

    def __init__(self, wanted: LogSearch, catalogue: Catalogue, reader: SegmentReader) -> None:
        self._sieve = Sieve(wanted.tables, wanted.kinds)
        self.errors: list[BackupdError] = []
        self.read = 0
        self._catalogue, self._reader = catalogue, reader
        self._before: BinlogSegment | None = None  # the last one that was passed
        self._open: list[BinlogSegment] = []  # those with what is open behind it, from where that began
        self._behind: tuple[BinlogSegment, _Follower] | None = None  # the last one that was read, and what read it

    def ended_in(self, segment: BinlogSegment) -> Iterator[LoggedTransaction]:
        """The transactions that end in the segment. Of one whose beginning is not to be had nothing is told."""
        follower = self._brought_to(segment)
        try:
            yield from self._followed(segment, follower, self._sieve)
        except (TargetError, VerificationError, ServerError) as error:
            self._failed(segment, error)
        else:
            self._behind = segment, follower

    def pass_by(self, segment: BinlogSegment) -> None:
        """The segment is behind us, whether it was read or not."""
        goes_on = self._before is not None and not follows(self._before, segment)
        if not segment.within_transaction:
            self._open = []
        elif segment.transactions == 0 and self._open and goes_on:
            self._open.append(segment)
        else:
            self._open = [segment]
        self._before = segment

    def _brought_to(self, segment: BinlogSegment) -> "_Follower":
        """What has followed the log to the segment's start, from where the transaction began that is open there."""
        before, behind = self._before, self._behind
        self._behind = None
        if segment.start == FIRST_OFFSET or before is None or follows(before, segment):
            return _Follower(segment, between=segment.start == FIRST_OFFSET)
        if not is_same_server(before.origin, segment.origin):
            return _Follower(segment, between=True)  # another's log goes on only between two transactions
        if behind is not None and behind[0] is before:
            return behind[1]
        follower = _Follower(segment, between=not before.within_transaction)
        for piece in self._open:
            try:
                for _ in self._followed(piece, follower, _NOTHING):
                    pass
            except (TargetError, VerificationError, ServerError) as error:
                self._failed(piece, error)
                return _Follower(segment, between=False)
        return follower

    def _followed(self, segment: BinlogSegment, follower: "_Follower", sieve: Sieve) -> Iterator[LoggedTransaction]:
        reader = self._reader_of(segment)
        reader.require_key([segment])
        self.read += 1
        try:
            checksummed = has_checksums(base64.b64decode(segment.format))
            piece = BinlogBytes(reader.content(segment), segment.start, checksummed)
            for begin, end in sieve.let_through(piece, last=segment.within_transaction):
                yield from filter(None, map(follower.feed, piece.events(begin, end)))
        except ImpossibleEvent as error:
            raise VerificationError(f"segment {segment.name} has no events: {error}", hint=_HINT) from error

    def _reader_of(self, segment: BinlogSegment) -> SegmentReader:
        """From the targets that have it.

        Raises:
            TargetError: none of those that may be read has.
        """
        there = self._catalogue.segment_targets(segment.name)
        targets = [target for target in self._reader.targets if target.name in there]
        if not targets:
            elsewhere = ", ".join(sorted(there))
            asked = ", ".join(target.name for target in self._reader.targets)
            raise TargetError(
                f"segment {segment.name} is not on target {asked}",
                hint=f"it is on {elsewhere}" if elsewhere else "it waits in the spool, if it was not dropped",
            )
        return replace(self._reader, targets=targets)

    def _failed(self, segment: BinlogSegment, error: BackupdError) -> None:
        log.warning("segment %s could not be read: %s", segment.name, error.message)
        self.errors.append(error)


class _Follower:
    """Reads the transactions of one binlog, from the first that begins where it can be seen."""

    def __init__(self, segment: BinlogSegment, *, between: bool) -> None:
        self._transactions = TransactionReader(segment.origin.flavour, segment.file)
        self._between = between  # what comes first is the beginning of one

    def feed(self, event: LogEvent) -> LoggedTransaction | None:
        """The transaction that ends with this event, where it was read from its beginning.

        Raises:
            ServerError: the event makes no sense.
        """
        self._between = self._between or event.kind in BEGINNINGS
        return self._transactions.feed(event) if self._between else None
