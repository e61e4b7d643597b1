"""Which segments of a binlog archive follow one another, and which of them a backup can be rolled forward by.

Knows: when a segment continues another, rows without a gap, where in a row a backup stands. Pure values.

A row may lead from one server's log to another's that took its place: there files and offsets start again, and only
GTIDs tell that nothing is missing or twice. Places are compared within one server's part of it.

A row ends where a server of a later series goes on: a copy is rolled forward by a server of the backup's own, which
takes such a log without an error and may do something else. (Seen on MariaDB 10.11.19 with the log of 11.8.9: a table
that was created without a collation got another one, and an UPDATE then changed other rows.)
"""

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from backupd.policy import gtid
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, SegmentOrigin
from backupd.vocabulary.escaping import Prose, on_one_line

_VERSION_AT = slice(21, 71)  # of a format description event: behind its header and the version of the format
_SERIES = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})", re.ASCII)
_WHOLE_SECOND = timedelta(seconds=1)
# A lock lets some events pass while the snapshot is taken, as a FLUSH LOGS of others: they are received before its end.
_SLACK = timedelta(minutes=5)


@dataclass(frozen=True)
class ChainRow:
    """Segments of one chain, each of which leads on from the one before it. There is at least one."""

    segments: tuple[BinlogSegment, ...]
    ended: str  # why the next segment that the chain has does not belong to it; empty: there is no next one

    @property
    def chain(self) -> str:
        """The chain that it is of."""
        return self.segments[0].chain

    @property
    def start(self) -> BinlogPlace:
        """Where it begins in the server's binlogs."""
        return BinlogPlace(self.segments[0].file, self.segments[0].start)

    @property
    def end(self) -> BinlogPlace:
        """And where it ends."""
        return BinlogPlace(self.segments[-1].file, self.segments[-1].end)

    @cached_property
    def parts(self) -> tuple[tuple[BinlogSegment, ...], ...]:
        """Its segments by the server whose log each is of."""
        return tuple(parts(self.segments))

    @property
    def gtid_start(self) -> str:
        """The set of GTIDs at its start."""
        return self.segments[0].gtid_start

    @property
    def gtid_end(self) -> str:
        """And at its end."""
        return self.segments[-1].gtid_end

    @property
    def first_at(self) -> datetime | None:
        """When its first transaction was committed; None where it has none."""
        return next((segment.first_at for segment in self.segments if segment.first_at is not None), None)

    @property
    def last_at(self) -> datetime | None:
        """And its last one."""
        return last_at(self.segments)


@dataclass(frozen=True, slots=True)
class PlacedBackup:
    """A backup of a job, as far as its binlog archive is concerned."""

    run_id: str
    place: BinlogPlace  # where the server's binlog ended in it
    gtid: Prose  # what had been executed in it; empty: nothing, or it is not known
    taken_at: datetime  # when its snapshot had been taken, up to a second later: everything in it was committed by then
    good: bool = True
    live: bool = False  # its run goes on: nobody knows yet whether it will be good

    def has_come(self, now: datetime) -> bool:
        """Its time has. Of one of a later time, taken by a clock that was ahead, nobody knows what came after it."""
        return self.taken_at - now < _WHOLE_SECOND


def last_at(segments: Sequence[BinlogSegment]) -> datetime | None:
    """When the last transaction in them was committed; None where they have none. However a client has dated it by its
    `timestamp`, no later than it was received.
    """
    ends = ((segment.last_at, segment.received_at) for segment in reversed(segments))
    return next((min(told, received) for told, received in ends if told is not None), None)


def file_number(file: str) -> int:
    """The number that a binlog's name ends with. `binlog.1000000` comes after `binlog.999999`."""
    return int(file.rpartition(".")[2])


def order(place: BinlogPlace) -> tuple[int, int]:
    """By which the places of one server's binlogs are in order, as names alone would not put them."""
    return file_number(place.file), place.offset


def is_same_server(one: SegmentOrigin, other: SegmentOrigin) -> bool:
    """Whatever its version is by now: an upgraded server goes on with the same log."""
    return (one.flavour, one.server_id, one.uuid) == (other.flavour, other.server_id, other.uuid)


def follows(before: BinlogSegment, after: BinlogSegment) -> str:
    """Empty where `after` continues `before`, to the byte; else why it does not, as a sentence."""
    if (before.machine, before.job, before.chain) != (after.machine, after.job, after.chain):
        return f"{after.name} is of another chain than {before.name}"
    if after.number != before.number + 1:
        return f"after number {before.number} of chain {before.chain} comes number {after.number}"
    if after.previous != before.digest:
        return f"{after.name} was written to follow another segment than the {before.name} that is there"
    if not is_same_server(before.origin, after.origin):
        if not _may_take_over(before, after):
            return f"{after.name} is of another server than {before.name}"
    elif reason := _place_differs(before, after):
        return reason
    if before.gtid_end != after.gtid_start and not gtid.same(before.gtid_end, after.gtid_start):
        return f"{after.name} begins with another set of GTIDs than {before.name} ends with"
    return ""


def _may_take_over(before: BinlogSegment, after: BinlogSegment) -> bool:
    """Whether another server's log may go on here: between two transactions, both of which have GTIDs."""
    same_kind = before.origin.flavour is after.origin.flavour
    return same_kind and bool(before.gtid_end and after.gtid_start) and not before.within_transaction


def leads_on(before: BinlogSegment, after: BinlogSegment) -> str:
    """Empty where what was rolled forward by `before` can be by `after` as well; else why not, as a sentence."""
    return follows(before, after) or is_of_later_series(before, after)


def is_of_later_series(before: BinlogSegment, after: BinlogSegment) -> str:
    """As a sentence, if it is; empty where it is not, or where that is not known."""
    one, other = _version(before), _version(after)
    if not (earlier := _series(one)) or _series(other) <= earlier:
        return ""
    return (
        f"from {after.file} on the binlog was written by {other}, a newer series than {one}: earlier backups cannot be"
        " rolled forward with it"
    )


def _version(segment: BinlogSegment) -> str:
    """Of the server that began its binlog: one that was upgraded begins another."""
    named = base64.b64decode(segment.format)[_VERSION_AT].rstrip(b"\0")
    return on_one_line(named.decode("utf-8", "replace"))


def _series(version: str) -> tuple[int, ...]:
    """As servers and the programs for them are told apart; empty: it is not known."""
    found = _SERIES.match(version)
    return () if found is None else tuple(map(int, found.groups()))


def parts(segments: Iterable[BinlogSegment]) -> Iterator[tuple[BinlogSegment, ...]]:
    """Segments that follow one another, divided where another server's log goes on."""
    part: list[BinlogSegment] = []
    for segment in segments:
        if part and not is_same_server(part[-1].origin, segment.origin):
            yield tuple(part)
            part = []
        part.append(segment)
    if part:
        yield tuple(part)


def _place_differs(before: BinlogSegment, after: BinlogSegment) -> str:
    if not before.file_ended:
        if (after.file, after.start) == (before.file, before.end):
            return ""
        return f"{after.name} begins at {after.file}:{after.start} instead of {before.file}:{before.end}"
    base, following = before.file.rpartition(".")[0], file_number(before.file) + 1
    if (after.file.rpartition(".")[0], file_number(after.file), after.start) == (base, following, FIRST_OFFSET):
        return ""
    return f"{after.name} begins at {after.file}:{after.start} instead of the start of the binlog after {before.file}"


def continuations(backup: PlacedBackup, found: Sequence[ChainRow]) -> list[tuple[BinlogSegment, ...]]:
    """All that follows the backup without a gap, by each row that has its place: a chain may begin within another one.

    Of files of one name, as a RESET makes them, the one counts that began last before the backup was taken. Of the
    first segment the backup may have a part already. Where it is at the end of a row, nothing follows.
    """
    candidates = [(row, _candidates(backup, row)) for row in found]
    placed = (row.segments[at] for row, ats in candidates for at in ats)
    begun = _begun(segment for segment in placed if _may_have_place(backup, segment))
    fitting = [(row, at) for row, ats in candidates if (at := _index_of(backup, row, ats, begun)) is not None]
    newest = max((begun[told_at(row.segments[at])] for row, at in fitting), default=0)  # which was there when it was
    fitting = [(row, at) for row, at in fitting if begun[told_at(row.segments[at])] == newest]
    fitting.sort(key=lambda one: (one[0].segments[one[1]].received_at, one[0].chain))
    return [
        row.segments[_switched_at(backup, row) or at + (row.segments[at].end == backup.place.offset) :]
        for row, at in fitting
    ]


def _switched_at(backup: PlacedBackup, row: ChainRow) -> int:
    """Where another server's log goes on with exactly what the backup has, whosever place it was taken at; else 0."""
    first = 0
    for before, part in pairwise(row.parts):
        first += len(before)
        if backup.gtid and gtid.same(part[0].gtid_start, backup.gtid):
            return first
    return 0


def _candidates(backup: PlacedBackup, row: ChainRow) -> list[int]:
    """Which of a row's segments may have the backup's place, by that alone: one of each server's."""
    first, found = 0, list[int]()
    for part in row.parts:
        found.append(first + min(bisect_left(part, order(backup.place), key=_end), len(part) - 1))
        first += len(part)
    return found


def _begun(segments: Iterable[BinlogSegment]) -> dict[int, float]:
    """By when each of their binlogs began as it tells, by when it did at the latest: earlier, where one of the segments
    was received before that time had come.
    """
    found: dict[int, float] = {}
    for segment in segments:
        told = told_at(segment)
        found[told] = min(found.get(told, told), segment.received_at.timestamp())
    return found


def _index_of(backup: PlacedBackup, row: ChainRow, candidates: Iterable[int], begun: Mapping[int, float]) -> int | None:
    """Which of a row's segments has the backup's place; None where none has, or it is another history's.

    Two servers have the same places: without GTIDs nobody knows whose it is.
    """
    found = [at for at in candidates if _stands_at(backup, row, at, begun)]
    return found[0] if found and (backup.gtid or len(found) == 1) else None


def _stands_at(backup: PlacedBackup, row: ChainRow, at: int, begun: Mapping[int, float]) -> bool:
    segment = row.segments[at]
    if not _has_place(backup, segment, begun):
        return False
    if segment.end == backup.place.offset and any(
        _is_too_old(backup, after) for after in row.segments[at + 1 : at + 2]
    ):
        return False
    return not (backup.gtid and gtid.has_any_between(backup.gtid, segment.gtid_end, row.gtid_end))


def _has_place(backup: PlacedBackup, segment: BinlogSegment, begun: Mapping[int, float]) -> bool:
    """Whether the segment has the backup's place in it or at one of its ends, by all that it tells.

    A RESET begins the same names anew: then the binlog was made after the backup, or its GTIDs are others.
    """
    if segment.end > backup.place.offset and _is_too_old(backup, segment):
        return False
    if segment.origin.whole_since is not None and backup.taken_at < segment.origin.whole_since:
        return False
    told = told_at(segment)
    is_true = begun.get(told) == told
    return not (is_true and told > backup.taken_at.timestamp()) and _may_have_place(backup, segment)


def _may_have_place(backup: PlacedBackup, segment: BinlogSegment) -> bool:
    """The same by what no clock has told: one that was set is no reason to remove what is needed."""
    if segment.file != backup.place.file or not segment.start <= backup.place.offset <= segment.end:
        return False
    return not backup.gtid or gtid.is_within(segment.gtid_start, backup.gtid)


def _is_too_old(backup: PlacedBackup, segment: BinlogSegment) -> bool:
    """What lies behind a backup's place was written when it had been taken."""
    return segment.received_at < backup.taken_at - _SLACK


def told_at(segment: BinlogSegment) -> int:
    """When the server began its binlog, in seconds since 1970, by the header of the first event: of one file always the
    same. A client whose commit fills the file before may have set that: the header has its `timestamp` (seen on MariaDB
    10.11.19).
    """
    return int.from_bytes(base64.b64decode(segment.format)[:4], "little")


def made_at(segment: BinlogSegment) -> int:
    """The same; 0 where it is later than the segment's receipt, and so was set."""
    told = told_at(segment)
    return told if told <= segment.received_at.timestamp() else 0


def _end(segment: BinlogSegment) -> tuple[int, int]:
    return order(BinlogPlace(segment.file, segment.end))


def covering(backup: PlacedBackup, segments: Iterable[BinlogSegment]) -> dict[str, int]:
    """By chain, the number of its first segment that may have the backup's place."""
    found: dict[str, int] = {}
    for segment in segments:
        if _may_have_place(backup, segment):
            found[segment.chain] = min(segment.number, found.get(segment.chain, segment.number))
    return found
