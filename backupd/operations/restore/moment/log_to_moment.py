"""The part of a binlog archive that leads from a backup to a moment: where it ends, and its bytes.

Knows: that the end lies between two transactions, and is found by reading the segment that has the moment in it; that
what is applied is cut at exact bytes, so that nothing which the backup holds is in it. A segment that does not have the
end that was planned is a fault: no restore stops short in silence.

Segments may lead from one server's log to another's: places are compared within one part of them alone.
"""

import base64
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from backupd.mysql.binlog.relay_logs import LogPiece
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.policy.binlog_chain import order, parts
from backupd.policy.moments import BeforeGtid, ToGtid, ToPosition, ToTime
from backupd.policy.rising_numbers import doubt
from backupd.policy.roll_forward import RestorePlan, is_in
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, LoggedTransaction
from backupd.vocabulary.errors import UsageError, VerificationError
from backupd.vocabulary.servers import Flavour

Looking = Callable[[BinlogSegment, int, bytes], None]  # at bytes of a segment, from that offset of its file on


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a server stands at the moment."""

    place: BinlogPlace
    gtids: str  # what has been executed there
    committed_at: datetime | None  # the last transaction that is in it; None where the log has none
    before_last_log: bool = False  # the place is in the log of the server before the plan's last one


def planned(plan: Callable[[Collection[str]], RestorePlan], reader: SegmentReader) -> RestorePlan:
    """What `plan` says, which gets the runs that are to be passed over: each that has in it, by the log's own times,
    what is later than the moment. Only where the moment is in the segment that has the backup's place, that is read.

    Raises as `plan` does, and as `log_end`.
    """
    passed: set[str] = set()
    while _has_later(found := plan(passed), reader):
        passed.add(found.backup.run_id)
    return found


def _has_later(plan: RestorePlan, reader: SegmentReader) -> bool:
    moment = plan.end.moment
    if not isinstance(moment, ToTime) or not plan.segments:
        return False
    own = plan.segments[0]
    if plan.start.offset <= own.start or not is_in(moment, own):
        return False
    transactions = TransactionReader(own.origin.flavour, own.file, gtids=own.gtid_start)
    for event in reader.events(own):
        if event.end > plan.start.offset:
            return False
        transaction = transactions.feed(event)
        if transaction is not None and moment.stops_before(transaction):
            return True
    return False


def log_end(plan: RestorePlan, reader: SegmentReader) -> LogEnd:
    """The last place between two transactions that the moment allows.

    Raises:
        UsageError: no transaction has the GTID that is asked for.
        VerificationError: no transaction in the last segment ends what is wanted, although its description says so; or
            a segment is not what was recorded.
        TargetError: no target gives a segment.
        NoKey: a segment is encrypted, and no identity opens it.
    """
    if not plan.segments:
        return LogEnd(plan.start, plan.backup.gtid, None)
    looked_at = _from_where_a_transaction_begins(plan.segments)
    first = looked_at[0]
    earlier = [segment.last_at for segment in plan.segments[: -len(looked_at)] if segment.last_at is not None]
    begun = LogEnd(BinlogPlace(first.file, first.start), first.gtid_start, max(earlier, default=None))
    looking = _Looking(plan, begun)
    for segment in looked_at:
        if looking.found_in(segment, reader):
            return _of_the_log_before(plan, looking.end)
    if plan.end.met_in_last and not looking.at_place:
        _require_by_number_alone(plan)
        raise VerificationError(
            f"{plan.end.moment} is not in segment {plan.segments[-1].name}, although its description says so",
            hint="this is an error in backupd: please report it; another moment can be restored meanwhile",
        )
    return _of_the_log_before(plan, looking.end)


def _require_by_number_alone(plan: RestorePlan) -> None:
    """Of MariaDB's GTIDs, a description tells the numbers alone.

    Raises:
        UsageError: the moment is such a GTID: it never was.
    """
    moment, last = plan.end.moment, plan.segments[-1]
    if isinstance(moment, ToGtid | BeforeGtid) and last.origin.flavour is Flavour.MARIADB:
        raise UsageError(
            f"{moment} cannot be restored: no transaction in the archive has this GTID, although {last.name} has one"
            " with the same sequence number",
            hint=doubt(moment, [last]) or f"`backupd binlog search {last.job}` lists the GTIDs that there are",
        )


def _of_the_log_before(plan: RestorePlan, end: LogEnd) -> LogEnd:
    """Where nothing of another server's log is wanted that goes on there, the end is that of the log before it."""
    *before, last = parts(plan.segments)
    if before and end.place == BinlogPlace(last[0].file, last[0].start):
        return replace(end, place=BinlogPlace(before[-1][-1].file, before[-1][-1].end), before_last_log=True)
    return end


def _from_where_a_transaction_begins(segments: Sequence[BinlogSegment]) -> Sequence[BinlogSegment]:
    """The last segment, and those before it that a transaction reaches over into it."""
    at = len(segments) - 1
    while at > 0 and segments[at - 1].within_transaction:
        at -= 1
    return segments[at:]


class _Looking:
    """Through transactions, for the first that is not wanted, or the last that is."""

    def __init__(self, plan: RestorePlan, begun: LogEnd) -> None:
        self._plan = plan
        self._file = ""
        self._reader = TransactionReader(plan.segments[-1].origin.flavour, begun.place.file, gtids=begun.gtids)
        *before, _ = parts(plan.segments)
        self._start = begun.place if before else plan.start  # of this server's log
        self._of_backup = "" if before else plan.backup.gtid  # what has been executed there, where it is the backup's
        self.end = LogEnd(plan.start, plan.backup.gtid, None) if order(self._start) > order(begun.place) else begun

    @property
    def at_place(self) -> bool:
        """The moment is a place that no transaction ends at, and we have come to it: where a binlog begins or ends, or
        in a transaction that goes on behind the last segment.
        """
        moment = self._plan.end.moment
        if not isinstance(moment, ToPosition):
            return False
        return self._reader.within or order(self.end.place) >= order(moment.place)

    def found_in(self, segment: BinlogSegment, reader: SegmentReader) -> bool:
        """Whether the end is in this segment; it goes on from the one before."""
        if segment.file != self._file:
            self._reader = TransactionReader(segment.origin.flavour, segment.file, gtids=self._reader.gtids)
            self._file = segment.file
        for event in reader.events(segment):
            transaction = self._reader.feed(event)
            if not event.artificial and BinlogPlace(segment.file, event.end) == self._start:
                self._reader = self._reader.behind_backup(self._of_backup)
            elif transaction is not None:
                if self._stops(transaction):
                    return True
            elif not self._reader.within and not event.artificial:
                self._move(BinlogPlace(segment.file, event.end), None)
        return False

    def _stops(self, transaction: LoggedTransaction) -> bool:
        moment = self._plan.end.moment
        if order(transaction.end) <= order(self._start):
            return False
        if moment.stops_before(transaction):
            return True
        self._move(transaction.end, transaction.committed_at)
        return moment.stops_after(transaction)

    def _move(self, place: BinlogPlace, committed_at: datetime | None) -> None:
        if order(place) > order(self.end.place):
            self.end = LogEnd(place, self._reader.gtids, committed_at or self.end.committed_at)


def tells_places(plan: RestorePlan) -> bool:
    """Whether a place tells by itself where a copy stands: only where all of the log is of the backup's own server."""
    return not plan.segments or (len(list(parts(plan.segments))) == 1 and plan.start == plan.backup.place)


def first_place(plan: RestorePlan, reached: BinlogPlace) -> BinlogPlace:
    """Where what follows this place in the first server's log begins: behind a file's end, in the next file."""
    segments = next(parts(plan.segments), ())
    last = max((segment.end for segment in segments if segment.file == reached.file), default=0)
    behind = (segment for segment in segments if order(BinlogPlace(segment.file, segment.start)) > order(reached))
    following = next(behind, None) if reached.offset >= last else None
    return reached if following is None else BinlogPlace(following.file, following.start)


def log_pieces(
    plan: RestorePlan, start: BinlogPlace, end: LogEnd, reader: SegmentReader, looking: Looking
) -> Iterator[LogPiece]:
    """The bytes from one place to the end, by files; a segment is read when its turn comes, and what is taken of it is
    looked at.

    Raises as `log_end` does, while it is walked through.
    """
    logs = list(parts(plan.segments))
    logs = logs[:-1] if end.before_last_log else logs
    for log in logs:
        begin, stop = start if log is logs[0] else None, end.place if log is logs[-1] else None
        for number, piece in enumerate(_pieces_of(log, begin, stop, reader, looking)):
            yield replace(piece, begins_log=number == 0)


def _pieces_of(
    part: Sequence[BinlogSegment],
    begin: BinlogPlace | None,
    end: BinlogPlace | None,
    reader: SegmentReader,
    looking: Looking,
) -> Iterator[LogPiece]:
    """Of one server's log, from `begin` to `end`, or from where it begins to where it ends."""
    wanted = [
        one
        for one in part
        if (end is None or order(BinlogPlace(one.file, one.start)) < order(end))
        and (begin is None or order(BinlogPlace(one.file, one.end)) > order(begin))
    ]
    for file, of_file in groupby(wanted, key=lambda segment: segment.file):
        segments = list(of_file)
        first = max(segments[0].start, begin.offset if begin is not None and begin.file == file else 0)
        stop = end.offset if end is not None and end.file == file else segments[-1].end
        if first < stop:
            events = _cut(segments, first, stop, reader, looking)
            described = base64.b64decode(segments[0].format)
            yield LogPiece(file, first, described, events, segments[0].origin.flavour)


def _cut(
    segments: Sequence[BinlogSegment], start: int, stop: int, reader: SegmentReader, looking: Looking
) -> Iterator[bytes]:
    for segment in segments:
        content = reader.content(segment)[max(0, start - segment.start) : max(0, stop - segment.start)]
        looking(segment, max(start, segment.start), content)
        yield content
