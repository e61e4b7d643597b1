"""Received events into pieces that become segments: by size, by age, and where a binlog file ends.

Knows: that a piece ends between two transactions, but for one that is larger than two pieces; that it never reaches
over the end of a file. Refuses to know where bytes come from and go to.

Whoever goes on with an archive receives from the last place between two transactions, which may lie before the end of
what is archived: the reader has to see a transaction's beginning. What is archived already is read and left out. So
it is with the log of another server that has taken the first one's place: where the archived history ends in it, is
told by GTIDs.
"""

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from backupd.mysql.binlog.events import EventStream, LogEvent
from backupd.mysql.binlog.layout import FORMAT_DESCRIPTION, GTID_LIST, PREVIOUS_GTIDS
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.policy import gtid
from backupd.policy.failover import ArchivedEnd, History
from backupd.policy.segment_file import FIRST_OFFSET, summed
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction, TableChange
from backupd.vocabulary.servers import Flavour


class OtherHistory(Exception):
    """The server's log is not the one that was archived, or lacks a part of it. The message says why."""


@dataclass(frozen=True, slots=True)
class CutPiece:
    """Events of one file, one behind the other, and what is told of them."""

    file: str
    start: int
    end: int
    file_ended: bool
    format: str
    gtid_start: str
    gtid_end: str
    gtid_state: str
    transactions: int
    within_transaction: bool
    first_at: datetime | None
    last_at: datetime | None
    changes: tuple[TableChange, ...]
    all_changes: bool
    events: tuple[bytes, ...] = field(repr=False)


@dataclass(slots=True)
class _Uncut:
    """Whole transactions and what they came to, since the last cut."""

    start: int
    gtid_start: str
    since: float | None = None  # when its first event came
    events: list[bytes] = field(default_factory=list)
    size: int = 0
    transactions: list[LoggedTransaction] = field(default_factory=list)
    whole: int = 0  # of `events`, those up to the last place between two transactions
    whole_end: int = 0


class SegmentCutter:
    """What comes of the files of one server, from `begin` on; `archived` is the end of what others have cut before."""

    def __init__(
        self,
        flavour: Flavour,
        *,
        size: int,
        age_seconds: float,
        begin: BinlogPlace,
        gtids: str,
        state: str = "",
        archived: BinlogPlace | None = None,
        other: ArchivedEnd | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gtids` is what had been executed at `begin`, which lies between two transactions, and `state` the last of
        each server of MariaDB's. With `other`, the archive is another server's, and `begin` the first event of a file.
        """
        self._flavour = flavour
        self._size, self._age_seconds, self._clock = size, age_seconds, clock
        self._archived = archived or begin
        self._other = other  # until the end of its history is found
        self.format = ""  # base64 of the newest format description event
        self._open(begin, gtids, state)

    def _open(self, begin: BinlogPlace, gtids: str, state: str) -> None:
        self._file = begin.file
        self._stream = EventStream(begin.file, start=begin.offset)
        self._reader = TransactionReader(self._flavour, begin.file, gtids=gtids, state=state)
        self._end = self._archived.offset if begin.file == self._archived.file else FIRST_OFFSET
        self._uncut = _Uncut(self._end, gtids, whole_end=self._end)

    def feed(self, file: str, data: bytes, *, file_ended: bool) -> Iterator[CutPiece]:
        """What is complete now. To be walked to its end; `file` is the last one, or what follows it.

        Raises:
            ServerError: it is no binlog, or is damaged.
            OtherHistory: it does not go on with what was archived.
        """
        if file != self._file:
            self._open(BinlogPlace(file, FIRST_OFFSET), self._reader.gtids, self._reader.state)
        for event in self._stream.feed(data):
            self._take(event)
            if self._uncut.size >= self._size and not self._reader.within:
                yield self._cut()
            elif self._uncut.size >= 2 * self._size:
                yield self._cut(all_of_it=True)
        if file_ended and self._other is None:
            yield self._cut(all_of_it=True, file_ended=True)

    def due(self) -> CutPiece | None:
        """What is old enough, up to the last place between two transactions."""
        uncut = self._uncut
        if uncut.since is None or not uncut.whole or self._clock() - uncut.since < self._age_seconds:
            return None
        return self._cut()

    @property
    def received(self) -> BinlogPlace:
        """Behind the last event."""
        return BinlogPlace(self._file, self._end)

    @property
    def until_due(self) -> float:
        """Seconds until there may be something due."""
        since = self._uncut.since
        return self._age_seconds if since is None else max(0.0, since + self._age_seconds - self._clock())

    def _take(self, event: LogEvent) -> None:
        if event.kind == FORMAT_DESCRIPTION:
            self.format = base64.b64encode(event.raw).decode()
        transaction = self._followed(event)
        if self._other is not None:
            self._look_for_the_end(self._other, event, transaction)
            return
        if event.artificial or event.end <= self._end:
            return
        uncut, self._end = self._uncut, event.end
        if uncut.since is None:
            uncut.since = self._clock()
        uncut.events.append(event.raw)
        uncut.size += len(event.raw)
        if transaction is not None:
            uncut.transactions.append(transaction)
        if not self._reader.within:
            uncut.whole, uncut.whole_end = len(uncut.events), event.end

    def _look_for_the_end(self, archived: ArchivedEnd, event: LogEvent, transaction: LoggedTransaction | None) -> None:
        """What is archived of the other server's is left out; behind it pieces begin.

        Raises:
            OtherHistory: before its end something else was executed, or it has no end here.
        """
        one = None if transaction is None else transaction.gtid
        if transaction is not None and (one is None or not archived.has(one)):
            raise OtherHistory(
                f"another server answers, whose {self._file} has {one or 'a transaction without GTID'} before all that"
                " is archived"
            )
        told = event.kind in (GTID_LIST, PREVIOUS_GTIDS) or (one is not None and archived.may_end_with(one))
        if event.artificial or not told:
            return
        here = History(self._reader.gtids, self._reader.state)
        if not archived.is_here(here):
            return
        if stranger := archived.stranger(here):
            raise OtherHistory(f"another server answers, which has executed {stranger} before all that is archived")
        self._other, self._end = None, event.end
        self._uncut = _Uncut(event.end, here.gtids, whole_end=event.end)

    def _followed(self, event: LogEvent) -> LoggedTransaction | None:
        """The transaction that ends with the event. What a file says of those before it is what they had.

        Raises:
            OtherHistory: it is not.
        """
        if event.kind not in (GTID_LIST, PREVIOUS_GTIDS) or event.artificial or self._other is not None:
            return self._reader.feed(event)
        executed = self._reader.gtids  # a set may be long: it is asked for at a file's beginning and at a cut
        transaction = self._reader.feed(event)
        if not gtid.same(executed, self._reader.gtids):
            raise OtherHistory(
                f"{self._file} follows {self._reader.gtids or 'nothing'}, and {executed or 'nothing'} was archived"
            )
        return transaction

    def _cut(self, *, all_of_it: bool = False, file_ended: bool = False) -> CutPiece:
        uncut, within = self._uncut, self._reader.within
        count = len(uncut.events) if all_of_it else uncut.whole
        end = self._end if all_of_it else uncut.whole_end
        gtids = self._reader.gtids  # behind the last whole transaction, whether one is open or not
        times = [transaction.committed_at for transaction in uncut.transactions]
        changes, everything = summed(change for one in uncut.transactions for change in one.changes)
        piece = CutPiece(
            file=self._file,
            start=uncut.start,
            end=end,
            file_ended=file_ended,
            format=self.format,
            gtid_start=uncut.gtid_start,
            gtid_end=gtids,
            gtid_state=self._reader.state,
            transactions=len(times),
            within_transaction=within and all_of_it and not file_ended,
            first_at=min(times, default=None),
            last_at=max(times, default=None),
            changes=changes,
            all_changes=everything,
            events=tuple(uncut.events[:count]),
        )
        left = uncut.events[count:]
        self._uncut = _Uncut(
            end,
            gtids,
            since=self._clock() if left else None,
            events=left,
            size=sum(map(len, left)),
            whole_end=end,
        )
        return piece
