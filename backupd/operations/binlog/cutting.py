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
from backupd.mysql.binlog.layout import BETWEEN_TRANSACTIONS, FORMAT_DESCRIPTION, GTID_LIST, INCIDENT, PREVIOUS_GTIDS
from backupd.mysql.binlog.transactions import TransactionReader, moment
from backupd.policy import gtid
from backupd.policy.failover import ArchivedEnd, History
from backupd.policy.segment_file import FIRST_OFFSET, ChangeSum
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction, TableChange
from backupd.vocabulary.servers import Flavour


class OtherHistory(Exception):
    """The server's log is not the one that was archived, or lacks a part of it. The message says why."""


class LackingLog(OtherHistory):
    """The server's log lacks changes of its data, or did: no chain leads over that."""


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
    transactions: int = 0
    first_at: int | None = None  # when the first of these was committed, and the last, in microseconds since 1970
    last_at: int | None = None
    changes: ChangeSum = field(default_factory=ChangeSum)
    whole: int = 0  # of `events`, those up to the last place between two transactions
    whole_end: int = 0

    def count(self, reader: TransactionReader, event: LogEvent) -> None:
        """The transaction that ended with this event, which the reader has just followed."""
        at = reader.committed_at(event)
        self.transactions += 1
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        if self.last_at is None or at > self.last_at:
            self.last_at = at
        for where, rows in reader.rows.items():
            self.changes.add(where, rows or 0)


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
        purged: str = "",
        state: str = "",
        archived: BinlogPlace | None = None,
        other: ArchivedEnd | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gtids` is what had been executed at `begin`, which lies between two transactions, and `state` the last of
        each server of MariaDB's; `purged` is MySQL's set of those that are in none of its files. With `other`, the
        archive is another server's, and `begin` the first event of a file.
        """
        self._flavour = flavour
        self._size, self.age_seconds, self._clock = size, age_seconds, clock
        self._purged = purged
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
            LackingLog: the server notes that it lost events; what lies before that is complete.
            OtherHistory: it does not go on with what was archived.
        """
        if file != self._file:
            self._open(BinlogPlace(file, FIRST_OFFSET), self._reader.gtids, self._reader.state)
        reader, size = self._reader, self._size
        for event in self._stream.feed(data):
            if event.kind in BETWEEN_TRANSACTIONS or self._other is not None:
                if not self._takes(event):
                    continue
                ended = False
            elif event.kind == INCIDENT and event.end > self._end:
                if self._uncut.whole:
                    yield self._cut()
                raise LackingLog(f"the server lost events, as it noted at {file}:{event.start}")
            else:
                ended = reader.ends(event)
            uncut = self._uncut
            if event.end <= self._end:
                continue
            self._end = event.end
            if uncut.since is None:
                uncut.since = self._clock()
            uncut.events.append(event.raw)
            uncut.size += len(event.raw)
            if ended:
                uncut.count(reader, event)
            if not reader.within:
                uncut.whole, uncut.whole_end = len(uncut.events), event.end
                if uncut.size >= size:
                    yield self._cut()
            elif uncut.size >= 2 * size:
                yield self._cut(all_of_it=True)
        if file_ended and self._other is None:
            yield self._cut(all_of_it=True, file_ended=True)

    def due(self) -> CutPiece | None:
        """What is old enough, up to the last place between two transactions."""
        uncut = self._uncut
        if uncut.since is None or not uncut.whole or self._clock() - uncut.since < self.age_seconds:
            return None
        return self._cut()

    @property
    def received(self) -> BinlogPlace:
        """Behind the last event."""
        return BinlogPlace(self._file, self._end)

    @property
    def holds(self) -> bool:
        """There are events that are in no piece yet."""
        return bool(self._uncut.events)

    @property
    def until_due(self) -> float:
        """Seconds until there may be something due."""
        since = self._uncut.since
        return self.age_seconds if since is None else max(0.0, since + self.age_seconds - self._clock())

    def _takes(self, event: LogEvent) -> bool:
        """Whether this event is one to be archived, which is of no transaction, or may be archived already."""
        if event.kind == FORMAT_DESCRIPTION:
            self.format = base64.b64encode(event.raw).decode()
        if self._other is not None:
            self._look_for_the_end(self._other, event, self._reader.feed(event))
            return False
        self._follow(event)
        return not event.artificial

    def _look_for_the_end(self, archived: ArchivedEnd, event: LogEvent, transaction: LoggedTransaction | None) -> None:
        """What is archived of the other server's is left out; behind it pieces begin.

        Raises:
            OtherHistory: before its end something else was executed, or it has no end here.
        """
        one = None if transaction is None else transaction.gtid
        if transaction is not None and (one is None or not archived.has(one)):
            raise OtherHistory(
                f"another server answers: its {self._file} has {one or 'a transaction without GTID'} before the end of"
                " what is archived"
            )
        told = event.kind in (GTID_LIST, PREVIOUS_GTIDS) or (one is not None and archived.may_end_with(one))
        if event.artificial or not told:
            return
        here = History(self._reader.gtids, self._reader.state)
        if not archived.is_here(here):
            return
        if stranger := archived.stranger(here):
            raise OtherHistory(f"another server answers: it executed {stranger} before the end of what is archived")
        self._other, self._end = None, event.end
        self._uncut = _Uncut(event.end, here.gtids, whole_end=event.end)

    def _follow(self, event: LogEvent) -> None:
        """What a file says of those before it is what they had, with what was purged or never was in one.

        Raises:
            OtherHistory: it is not.
        """
        tells = event.kind in (GTID_LIST, PREVIOUS_GTIDS) and not event.artificial
        executed = self._reader.gtids if tells else ""  # a set may be long: it is asked for only here and at a cut
        self._reader.ends(event)
        if tells and not gtid.same(executed, told := self._executed_before_the_file()):
            raise OtherHistory(f"{self._file} follows {told or 'nothing'}, and {executed or 'nothing'} was archived")

    def _executed_before_the_file(self) -> str:
        if not self._purged:
            return self._reader.told
        executed = gtid.ExecutedGtids(self._reader.told)
        executed.include(self._purged)
        return str(executed)

    def _cut(self, *, all_of_it: bool = False, file_ended: bool = False) -> CutPiece:
        uncut, within = self._uncut, self._reader.within
        count = len(uncut.events) if all_of_it else uncut.whole
        end = self._end if all_of_it else uncut.whole_end
        gtids = self._reader.gtids  # behind the last whole transaction, whether one is open or not
        piece = CutPiece(
            file=self._file,
            start=uncut.start,
            end=end,
            file_ended=file_ended,
            format=self.format,
            gtid_start=uncut.gtid_start,
            gtid_end=gtids,
            gtid_state=self._reader.state,
            transactions=uncut.transactions,
            within_transaction=within and all_of_it and not file_ended,
            first_at=None if uncut.first_at is None else moment(uncut.first_at),
            last_at=None if uncut.last_at is None else moment(uncut.last_at),
            changes=uncut.changes.changes,
            all_changes=uncut.changes.everything,
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
