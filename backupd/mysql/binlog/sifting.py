"""Which transactions of a piece of a binlog may be wanted, at a tenth of what reading all of them takes.

Knows: that every transaction begins with an event of its GTID, or of MySQL's that it has none; what kinds its row
events are of and which tables its table maps name. What else it is made of has to be read: it may be wanted. Refuses to
say that a transaction is wanted, and where it ends: `transactions` does, of what comes through here.

The bytes are those that somebody has vouched for: checksums are not compared again.
"""

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent
from backupd.mysql.binlog.grouping import query_text
from backupd.vocabulary.binlogs import ChangeKind

_KIND_AND_LENGTH: Final = struct.Struct("<4xB4xI")
_NAMES_AT = layout.HEADER_BYTES + 8  # of a table map: behind the number of the table and its flags
_MOST_KNOWN = 10_000  # table maps that are remembered
_PASSED, _BEGINS, _MAPS, _CHANGES, _SAYS, _HIDES = range(6)  # what an event is to a sieve
_HIDING: Final = frozenset(
    (layout.QUERY_COMPRESSED, layout.TRANSACTION_PAYLOAD, layout.INCIDENT, layout.EXECUTE_LOAD_QUERY)
)
_ROWS: Final = {
    ChangeKind.INSERT: layout.WRITE_ROWS,
    ChangeKind.UPDATE: layout.UPDATE_ROWS,
    ChangeKind.DELETE: layout.DELETE_ROWS,
}


@dataclass(frozen=True, slots=True)
class BinlogBytes:
    """A piece of a binlog between two events, as the server has it."""

    data: bytes
    start: int  # offset of its first byte in the server's file
    checksummed: bool

    def events(self, begin: int, end: int) -> Iterator[LogEvent]:
        """The events from one place of the bytes to another, with the places that they have in the server's file.

        Raises:
            ImpossibleEvent: they are none.
        """
        at = begin
        while at < end:
            if at + layout.HEADER_BYTES > end:
                raise _impossible(self.start + at)
            at_seconds, kind, server_id, length, _, flags = layout.HEADER.unpack_from(self.data, at)
            if length < layout.HEADER_BYTES or at + length > end:
                raise _impossible(self.start + at)
            raw, start = self.data[at : at + length], self.start + at
            yield LogEvent(kind, at_seconds, server_id, flags, start, start + length, raw, self.checksummed)
            at += length


class Sieve:
    """Lets through what may change one of these tables in one of these ways. Where nothing is named, all of it."""

    def __init__(self, tables: Collection[tuple[str, str]] = (), kinds: Collection[ChangeKind] = ()) -> None:
        self._all = not tables and not kinds
        self._tables = frozenset((schema.casefold(), table.casefold()) for schema, table in tables)
        rows = frozenset().union(*(_ROWS.get(kind, frozenset()) for kind in kinds or _ROWS))
        meanings = (
            dict.fromkeys(rows, _CHANGES) | dict.fromkeys(layout.BEGINNINGS, _BEGINS) | dict.fromkeys(_HIDING, _HIDES)
        )
        meanings |= {layout.QUERY: _SAYS} | ({layout.TABLE_MAP: _MAPS} if tables else {})
        self._meanings = bytes(meanings.get(kind, _PASSED) for kind in range(256))
        self._known: dict[bytes, bool] = {}  # by the names in a table map as they are stored: whether it is one of them

    def let_through(self, piece: BinlogBytes, *, last: bool) -> Iterator[tuple[int, int]]:
        """From where to where the bytes have what may be wanted: whole transactions, and what stands before the first.

        With `last`, the last one comes through whatever it is: it goes on elsewhere.

        Raises:
            ImpossibleEvent: the bytes are no events.
        """
        data, size = piece.data, len(piece.data)
        if self._all:
            yield 0, size
            return
        meanings, unpack = self._meanings, _KIND_AND_LENGTH.unpack_from
        changed = mapped = True  # of what stands before the first
        begin = at = 0
        latest = size - layout.HEADER_BYTES
        while at < size:
            kind, length = unpack(data, at) if at <= latest else (0, 0)
            behind = at + length
            if length < layout.HEADER_BYTES or behind > size:
                raise _impossible(piece.start + at)
            if meaning := meanings[kind]:
                if meaning == _BEGINS:
                    if changed and mapped:
                        yield begin, at
                    begin, changed, mapped = at, False, not self._tables
                elif meaning == _CHANGES:
                    changed = True
                elif meaning == _MAPS:
                    mapped = mapped or self._is_one(data, at, behind)
                elif meaning == _HIDES or _says_anything(data[at + layout.HEADER_BYTES : behind], piece.checksummed):
                    changed = mapped = True
            at = behind
        if last or (changed and mapped):
            yield begin, size

    def _is_one(self, data: bytes, at: int, behind: int) -> bool:
        """Whether the table map there is of one of the tables; a damaged one may be."""
        names = at + _NAMES_AT
        second = names + data[names] + 2 if names < behind else behind
        if second >= behind:
            return True
        stored = data[names : second + 1 + data[second]]
        known = self._known.get(stored)
        if known is None:
            schema, table = stored[1 : 1 + stored[0]], stored[stored[0] + 3 :]
            named = (schema.decode(errors="replace").casefold(), table.decode(errors="replace").casefold())
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            known = self._known[stored] = named in self._tables
        return known


def _says_anything(body: bytes, checksummed: bool) -> bool:
    """Whether a statement does more than begin or end a transaction."""
    said = query_text(body[: len(body) - layout.CHECKSUM_BYTES * checksummed])
    return said not in (b"BEGIN", b"COMMIT")


def _impossible(at: int) -> ImpossibleEvent:
    return ImpossibleEvent(f"the event at {at} is not whole")
