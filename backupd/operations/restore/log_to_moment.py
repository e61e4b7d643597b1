"""The part of a binlog archive that leads from a backup to a moment: where it ends, and its bytes.

Knows: that the end lies between two transactions, and is found by reading the segment that has the moment in it; that
what is applied is cut at exact bytes, so that nothing which the backup holds is in it. A segment that does not have the
end that was planned is a fault: no restore stops short in silence.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from backupd.mysql.binlog.relay_logs import LogPiece
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.reading import SegmentReader
from backupd.policy.binlog_chain import order
from backupd.policy.moments import ToPosition
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, LoggedTransaction
from backupd.vocabulary.errors import VerificationError


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a server stands at the moment."""

    place: BinlogPlace
    gtids: str  # what has been executed there
    committed_at: datetime | None  # the last transaction that is in it; None where the log has none


def log_end(plan: RestorePlan, reader: SegmentReader) -> LogEnd:
    """The last place between two transactions that the moment allows.

    Raises:
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
            return looking.end
    if plan.end.met_in_last and not looking.at_place:
        raise VerificationError(
            f"{plan.end.moment} is not in segment {plan.segments[-1].name}, although its description says so",
            hint="this is an error in backupd: please report it; another moment can be restored meanwhile",
        )
    return looking.end


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
        self.end = LogEnd(plan.start, plan.backup.gtid, None) if order(plan.start) > order(begun.place) else begun

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
            if transaction is not None:
                if self._stops(transaction):
                    return True
            elif not self._reader.within and not event.artificial:
                self._move(BinlogPlace(segment.file, event.end), None)
        return False

    def _stops(self, transaction: LoggedTransaction) -> bool:
        moment = self._plan.end.moment
        if order(transaction.end) <= order(self._plan.start):
            return False
        if moment.stops_before(transaction):
            return True
        self._move(transaction.end, transaction.committed_at)
        return moment.stops_after(transaction)

    def _move(self, place: BinlogPlace, committed_at: datetime | None) -> None:
        if order(place) > order(self.end.place):
            self.end = LogEnd(place, self._reader.gtids, committed_at or self.end.committed_at)


def log_pieces(plan: RestorePlan, end: LogEnd, reader: SegmentReader) -> Iterator[LogPiece]:
    """The bytes from the backup's place to the end, by files; a segment is read when its turn comes.

    Raises as `log_end` does, while it is walked through.
    """
    wanted = [
        segment for segment in plan.segments if order(BinlogPlace(segment.file, segment.start)) < order(end.place)
    ]
    for file, of_file in groupby(wanted, key=lambda segment: segment.file):
        segments = list(of_file)
        start = max(segments[0].start, plan.start.offset if plan.start.file == file else 0)
        stop = end.place.offset if end.place.file == file else segments[-1].end
        if start < stop:
            events = _cut(segments, start, stop, reader)
            described = base64.b64decode(segments[0].format)
            yield LogPiece(file, start, described, events, segments[0].origin.flavour)


def _cut(segments: Sequence[BinlogSegment], start: int, stop: int, reader: SegmentReader) -> Iterator[bytes]:
    for segment in segments:
        content = reader.content(segment)
        yield content[max(0, start - segment.start) : max(0, stop - segment.start)]
