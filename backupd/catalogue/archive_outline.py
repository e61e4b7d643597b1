"""A job's binlog archive in few segments, of a catalogue that may have a million: what can be restored follows from it.

Knows: where rows of segments without a gap begin, which an index tells; of each row only its ends, its last transaction
and what lies around a backup's place are read. A part is what of a row is of one server's log.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from sqlalchemy import ColumnElement, Connection, Exists, Integer, and_, exists, func, select

from backupd.catalogue import binlog_tables, identities
from backupd.catalogue.columns import as_table, from_row
from backupd.catalogue.placed_backups import good_backups
from backupd.policy.binlog_chain import ChainRow, PlacedBackup, leads_on, order
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment

_ours, _stored = binlog_tables.segments.c, binlog_tables.stored.c

Numbered = tuple[str, int]  # a segment by its chain and its number


@dataclass(frozen=True, slots=True)
class ArchiveOutline:
    """What tells which moments of a job can be restored."""

    backups: tuple[PlacedBackup, ...] = ()  # good ones, the oldest first
    rows: tuple[ChainRow, ...] = ()  # each with few of its segments


@dataclass(frozen=True, slots=True)
class ChainPart:
    """Segments of one chain that follow one another, in one server's log."""

    chain: str
    first: int  # their numbers
    last: int


PartWithEnds = tuple[ChainPart, BinlogSegment, BinlogSegment]  # and its first and last segment


def outlines(connection: Connection, jobs: Sequence[str]) -> dict[str, ArchiveOutline]:
    """By job."""
    machine, backups = identities.current(connection).name, good_backups(connection, jobs)
    drawn = {job: drawn_rows(connection, ended(connection, machine, job), backups[job]) for job in jobs}
    return {job: ArchiveOutline(tuple(backups[job]), drawn[job]) for job in jobs}


def drawn_rows(
    connection: Connection, found: Sequence[PartWithEnds], backups: Iterable[PlacedBackup]
) -> tuple[ChainRow, ...]:
    """The rows that these parts are, by chain and number; each with few of its segments, as
    `policy.roll_forward.Archive` wants them for these backups.
    """
    known = {(one.chain, one.number): one for _, *ends in found for one in ends}
    wanted = {last for part, *_ in found if (last := _last_transaction(connection, part)) is not None}
    for place in {backup.place for backup in backups}:
        wanted.update(around(connection, found, place))
    known |= read(connection, wanted - known.keys())
    return tuple(_joined([part for part, *_ in found], known))


# --- where segments follow one another --------------------------------------------------------------------------------


def lies_on(targets: Collection[str]) -> Exists:
    """Of a segment: it lies on one of the targets."""
    return exists().where(_stored.segment_id == _ours.id, _stored.target.in_(targets))


def chain_parts(
    connection: Connection, machine: str, job: str, targets: Collection[str] | None = None
) -> list[ChainPart]:
    """All of the job, or what of them lies on any of the targets, by chain and number."""
    begins = select(_ours.chain, _ours.number).where(
        binlog_tables.BEGINNING, _ours.machine == machine, _ours.job == job
    )
    begun = [(row.chain, row.number) for row in connection.execute(begins.order_by(_ours.chain, _ours.number))]
    found: list[ChainPart] = []
    for (chain, first), following in zip_longest(begun, begun[1:]):
        last = select(func.max(_ours.number)).where(_ours.chain == chain)
        if following is not None and following[0] == chain:
            last = last.where(_ours.number < following[1])
        part = ChainPart(chain, first, connection.execute(last).scalar_one())
        found += [part] if targets is None else _lying(connection, part, targets)
    return found


def _lying(connection: Connection, part: ChainPart, targets: Collection[str]) -> Iterator[ChainPart]:
    """What of it lies on any of the targets; indexes tell that, in a second of a million."""
    first = part.first
    lacking = select(_ours.number).where(_ours.chain == part.chain, _ours.number.between(part.first, part.last))
    for number in connection.execute(lacking.where(~lies_on(targets)).order_by(_ours.number)).scalars():
        if number > first:
            yield ChainPart(part.chain, first, number - 1)
        first = number + 1
    if first <= part.last:
        yield ChainPart(part.chain, first, part.last)


def _last_transaction(connection: Connection, part: ChainPart) -> Numbered | None:
    query = select(_ours.number).where(_ours.chain == part.chain, _ours.number.between(part.first, part.last))
    query = query.where(_ours.last_at.is_not(None))
    number = connection.execute(query.order_by(_ours.number.desc()).limit(1)).scalar()
    return None if number is None else (part.chain, number)


def _joined(found: Sequence[ChainPart], known: Mapping[Numbered, BinlogSegment]) -> Iterator[ChainRow]:
    """Parts that follow one another are one row."""
    of_part = dict[ChainPart, list[BinlogSegment]]((part, []) for part in found)
    for (chain, number), segment in sorted(known.items()):
        at = bisect_right(found, (chain, number), key=lambda part: (part.chain, part.first))
        of_part[found[at - 1]].append(segment)
    row: list[BinlogSegment] = []
    for part, following in zip_longest(found, found[1:]):
        row += of_part[part]
        goes_on = following is not None and following.chain == part.chain
        reason = leads_on(row[-1], of_part[following][0]) if goes_on else ""
        if reason or not goes_on:
            yield ChainRow(tuple(row), reason)
            row = []


def followed_on(connection: Connection, first: BinlogSegment, last: BinlogSegment, target: str) -> datetime | None:
    """The last transaction of those of this row that lie on the target, from the first on and without a gap there; no
    later than it was received, see `policy.binlog_chain.last_at`.

    None where there is none. The row is read up to where the target lacks a segment.
    """
    of_row = select(_ours.number).where(_ours.chain == first.chain, _ours.number.between(first.number, last.number))
    lacking = connection.execute(of_row.where(~lies_on((target,))).order_by(_ours.number).limit(1)).scalar()
    until = last.number if lacking is None else lacking - 1
    at = select(func.min(_ours.last_at, _ours.received_at)).where(
        _ours.chain == first.chain, _ours.number.between(first.number, until)
    )
    return connection.execute(at.where(_ours.last_at.is_not(None)).order_by(_ours.number.desc()).limit(1)).scalar()


# --- where a place is -------------------------------------------------------------------------------------------------


def ended(connection: Connection, machine: str, job: str, targets: Collection[str] | None = None) -> list[PartWithEnds]:
    """The chain_parts of the job, or of what lies on any of the targets, by chain and number."""
    found = chain_parts(connection, machine, job, targets)
    known = read(connection, {(part.chain, number) for part in found for number in (part.first, part.last)})
    return [(part, known[part.chain, part.first], known[part.chain, part.last]) for part in found]


def around(connection: Connection, found: Iterable[PartWithEnds], place: BinlogPlace) -> Iterator[Numbered]:
    """Of each part the first segment that ends at this place or behind it, and the one after that: if any has the
    place in it or at one of its ends, it is one of these.
    """
    for part, first, last in found:
        if order(BinlogPlace(first.file, first.start)) <= order(place) <= order(BinlogPlace(last.file, last.end)):
            of_file = (_ours.machine == first.machine, _ours.job == first.job, _ours.file == place.file)
            behind = select(_ours.number).where(*of_file, _ours.end >= place.offset, within(part))
            number = connection.execute(behind.order_by(_ours.end).limit(1)).scalar()
            if number is not None:
                yield from ((part.chain, one) for one in (number, number + 1) if one <= part.last)


def at_places(connection: Connection, machine: str, job: str, places: Iterable[BinlogPlace]) -> list[BinlogSegment]:
    """The segments that have one of these places in them or at one of their ends, by chain and number."""
    found = ended(connection, machine, job)
    known: dict[Numbered, BinlogSegment] = {}
    for place in places:
        near = read(connection, around(connection, found, place))
        known |= {
            key: one for key, one in near.items() if one.file == place.file and one.start <= place.offset <= one.end
        }
    return [segment for _, segment in sorted(known.items())]


def within(part: ChainPart) -> ColumnElement[bool]:
    """The index of places is the one to use, whatever SQLite knows of how many segments a chain has."""
    return and_(_ours.chain == part.chain, (_ours.number + 0).between(part.first, part.last))


def read(connection: Connection, wanted: Iterable[Numbered]) -> dict[Numbered, BinlogSegment]:
    """These of the segments, if they are there."""
    numbers: dict[str, list[int]] = {}
    for chain, number in wanted:
        numbers.setdefault(chain, []).append(number)
    found: dict[Numbered, BinlogSegment] = {}
    for chain, of_chain in numbers.items():
        table = as_table("wanted", of_chain, Integer())
        query = select(binlog_tables.segments).where(_ours.chain == chain, _ours.number.in_(select(table.c.value)))
        segments = (from_row(BinlogSegment, row) for row in connection.execute(query).mappings())
        found |= {(chain, segment.number): segment for segment in segments}
    return found
