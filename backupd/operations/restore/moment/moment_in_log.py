"""What the log itself says of a moment: what has been executed by then, and which canary rows were written.

Knows: nothing of how a moment is restored, for what was restored is held against it. So it asks the moment of each
transaction that it reads. Of the segments between backup and moment it reads those that have canary rows, and the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.mysql.binlog.transactions import TransactionReader
from backupd.mysql.canary import MINUTES
from backupd.mysql.grants import CANARY_SCHEMA
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.policy.binlog_chain import order, parts
from backupd.policy.canary_minutes import LoggedMinutes
from backupd.policy.log_search import LogSearch
from backupd.policy.moments import ToPosition
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, ChangeKind, LoggedTransaction, TableChange

_CANARY = LogSearch(tables=((CANARY_SCHEMA, MINUTES),))
_EMPTYING = frozenset((ChangeKind.DROP, ChangeKind.TRUNCATE))
_KEEPING = frozenset((ChangeKind.CREATE, ChangeKind.ALTER))  # the rows that there are; nothing is created twice


@dataclass(frozen=True, slots=True)
class MomentInLog:
    """By the log between a backup and a moment."""

    gtids: str  # executed at the moment, as the server writes sets; empty where it gives none
    minutes: LoggedMinutes
    has_minutes: bool  # the log speaks of the canary rows at all


def moment_in_log(plan: RestorePlan, reader: SegmentReader) -> MomentInLog:
    """What the archived log says of the plan's moment.

    Raises:
        TargetError: no target gives a segment.
        VerificationError, ServerError: a segment is not what was recorded, or has no events.
        NoKey: a segment is encrypted, and no identity opens it.
    """
    course = _Course(plan)
    logs = {segment.name: number for number, log in enumerate(parts(plan.segments)) for segment in log}
    for segments in _rows_to_read(plan.segments):
        course.begin(segments[0], logs[segments[0].name])
        for segment in segments:
            course.read(segment, reader, logs[segment.name])
    return MomentInLog(course.gtids, course.minutes, course.has_minutes)


def _rows_to_read(segments: Sequence[BinlogSegment]) -> list[list[BinlogSegment]]:
    """Segments that follow one another, each row from where a transaction begins."""
    wanted = {at for at, segment in enumerate(segments) if _CANARY.may_be_in(segment)} | {len(segments) - 1}
    found: list[list[BinlogSegment]] = []
    for at, segment in enumerate(segments):
        if not _is_read(segments, at, wanted):
            continue
        if found and found[-1][-1] is segments[at - 1]:
            found[-1].append(segment)
        else:
            found.append([segment])
    return found


def _is_read(segments: Sequence[BinlogSegment], at: int, wanted: set[int]) -> bool:
    """It has what is wanted, or the beginning of a transaction that ends in one that has."""
    while at not in wanted:
        if at + 1 >= len(segments) or not segments[at].within_transaction:
            return False
        at += 1
    return True


class _Course:
    """Through the transactions behind the backup, in their order."""

    def __init__(self, plan: RestorePlan) -> None:
        self._plan = plan
        self._reader: TransactionReader | None = None
        self._file = ""
        self._last_log = len(list(parts(plan.segments))) - 1
        self._over = False  # the moment is behind us
        self.gtids = plan.backup.gtid
        self.minutes = LoggedMinutes(since=int(plan.backup.taken_at.timestamp()))
        self.has_minutes = False

    def begin(self, first: BinlogSegment, log: int) -> None:
        """What is read next, of the so-manieth server's log, does not follow what was read before."""
        if not self._over and self._is_behind_start(BinlogPlace(first.file, first.start), log):
            self.gtids = first.gtid_start
        self._file = first.file
        self._reader = TransactionReader(first.origin.flavour, first.file, gtids=first.gtid_start)

    def _is_behind_start(self, place: BinlogPlace, log: int) -> bool:
        """The backup's place is one of the first server's log: others' are not compared with it."""
        return log > 0 or order(place) > order(self._plan.start)

    def read(self, segment: BinlogSegment, reader: SegmentReader, log: int) -> None:
        """The transactions that end in it."""
        if self._reader is None or segment.file != self._file:
            gtids = segment.gtid_start if self._reader is None else self._reader.gtids
            self._file, self._reader = (
                segment.file,
                TransactionReader(segment.origin.flavour, segment.file, gtids=gtids),
            )
        for event in reader.events(segment):
            transaction = self._reader.feed(event)
            if not event.artificial and log == 0 and BinlogPlace(segment.file, event.end) == self._plan.start:
                self._reader = self._reader.behind_backup(self._plan.backup.gtid)
            if transaction is not None and self._is_behind_start(transaction.end, log):
                self._pass(transaction, event.at_seconds, self._reader.gtids, log)

    def _pass(self, transaction: LoggedTransaction, at: int, gtids: str, log: int) -> None:
        moment = self._plan.end.moment
        may_end = log == self._last_log or not isinstance(moment, ToPosition)  # a place is one of the last server's log
        self._over = self._over or (may_end and moment.stops_before(transaction))
        if not self._over:
            self.gtids = gtids
        if _CANARY.matches(transaction):
            self.has_minutes = True
            for change in transaction.changes:
                self._note(change, at)
        self._over = self._over or (may_end and moment.stops_after(transaction))

    def _note(self, change: TableChange, at: int) -> None:
        """A transaction of the receiver's is one statement: its last event has the time of its beginning."""
        of_minutes = (change.schema.casefold(), change.table.casefold()) == (CANARY_SCHEMA, MINUTES)
        of_schema = (change.schema.casefold(), change.table) == (CANARY_SCHEMA, "")
        if not of_minutes and not (of_schema and change.kind is ChangeKind.DROP):
            return
        if change.kind is ChangeKind.INSERT:
            rows = max(1, change.rows)  # a statement that was logged as such has none counted
            (self.minutes.wrote_later if self._over else self.minutes.wrote)(at, rows)
        elif self._over or change.kind in _KEEPING:
            return
        elif change.kind is ChangeKind.DELETE:
            self.minutes.purged(at)
        elif change.kind in _EMPTYING:
            self.minutes.emptied()
        else:
            self.minutes.changed(at)
