"""What a transaction does to which tables, event by event: rows from table maps and rows events, DDL from its text.

Knows: what of an event is needed for it. Refuses to know where a transaction begins and ends: `transactions` does. An
event of which no sense can be made changes something that is not known: `ChangeKind.OTHER`, of no table.
"""

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent
from backupd.mysql.binlog.expanding import mariadb_part, mysql_events
from backupd.mysql.binlog.grouping import query_text_offset
from backupd.mysql.binlog.row_images import (
    MappedTable,
    count_rows,
    mapped_table,
    table_number,
)
from backupd.mysql.binlog.statement_changes import MOST_READ, changes_of, without_passwords
from backupd.vocabulary.binlogs import ChangeKind, TableChange, Where

MOST_STATEMENT = 500  # characters of a statement that are kept
MOST_TABLES = 10_000  # of one transaction that are told apart

_SCHEMA_LENGTH_AT = layout.HEADER_BYTES + 8
_ROW_KINDS = (
    *((kind, ChangeKind.INSERT) for kind in layout.WRITE_ROWS),
    *((kind, ChangeKind.UPDATE) for kind in layout.UPDATE_ROWS),
    *((kind, ChangeKind.DELETE) for kind in layout.DELETE_ROWS),
)
_KIND_OF_ROWS = dict(_ROW_KINDS)
_UNKNOWN = ("", "", ChangeKind.OTHER)
_OF_ITSELF = (b"BEGIN", b"COMMIT")

#: What changes anything, or is needed to tell what does.
COUNTED = frozenset(
    (
        *(layout.TABLE_MAP, *layout.ROWS, layout.QUERY, layout.QUERY_COMPRESSED, layout.EXECUTE_LOAD_QUERY),
        *(layout.TRANSACTION_PAYLOAD, layout.INCIDENT),
    )
)


class ChangeTally:
    """Of one transaction."""

    def __init__(self) -> None:
        self.rows: dict[Where, int | None] = {}  # in the order in which they began; None: some could not be counted
        self._tables: dict[bytes, MappedTable] = {}
        self._statement = b""  # the first that is not of the transaction itself, or that was not understood
        self.unclear = False  # something was not understood of which `statement` does not tell all

    @property
    def changes(self) -> tuple[TableChange, ...]:
        """What it has done so far, in the order in which it began to; no rows where not all of them were counted."""
        return tuple(TableChange(*where, rows or 0) for where, rows in self.rows.items())

    @property
    def statement(self) -> str:
        """The beginning of the first that is not of the transaction itself; where one was not understood, of that."""
        return without_passwords(_text(self._statement))[:MOST_STATEMENT]

    def add(self, kind: int, event: bytes, end: int) -> None:
        """What this event of the transaction's does is counted; its body ends there."""
        try:
            if kind == layout.TABLE_MAP:
                self._tables[table_number(event)] = mapped_table(event, end)
            elif kind in _KIND_OF_ROWS:
                self._add_rows(kind, event, end)
            elif kind in (layout.QUERY, layout.QUERY_COMPRESSED):
                self._add_statement(kind, event, end)
            elif kind == layout.TRANSACTION_PAYLOAD:
                for packed in mysql_events(memoryview(event)[layout.HEADER_BYTES : end]):
                    self.add(packed[4], packed, len(packed))
            elif kind in (layout.INCIDENT, layout.EXECUTE_LOAD_QUERY):
                self._count_unknown(0)
        except (ImpossibleEvent, IndexError):
            self._count_unknown(0)

    def _count_unknown(self, rows: int | None) -> None:
        self.unclear = True
        self._count(_UNKNOWN, rows)

    def _add_rows(self, kind: int, event: bytes, end: int) -> None:
        table = self._tables.get(table_number(event))
        if table is None:
            self._count_unknown(None)
        else:
            self._count((table.schema, table.table, _KIND_OF_ROWS[kind]), count_rows(kind, event, end, table))

    def _add_statement(self, kind: int, event: bytes, end: int) -> None:
        said, schema = _said(kind, event, end)
        if said in _OF_ITSELF:
            return
        found = changes_of(_text(said), schema, cut=len(said) > MOST_READ)
        unknown = any(change.kind is ChangeKind.OTHER for change in found)
        first_unknown = unknown and not any(kind is ChangeKind.OTHER for *_, kind in self.rows)
        told = first_unknown or said == self._statement
        self.unclear = self.unclear or (unknown and (not told or len(said) > MOST_STATEMENT))
        for change in found:
            self._count((change.schema, change.table, change.kind), 0)
        if found and (first_unknown or not self._statement):
            self._statement = said

    def _count(self, where: Where, rows: int | None) -> None:
        if where not in self.rows and len(self.rows) >= MOST_TABLES:
            where, rows, self.unclear = _UNKNOWN, None, True
        before = self.rows.get(where, 0)
        self.rows[where] = None if rows is None or before is None else before + rows


def statement_of(event: LogEvent) -> tuple[str, str]:
    """The first 64 KiB of what a Query event says, and its current schema; both empty where it makes no sense."""
    end = len(event.raw) - layout.CHECKSUM_BYTES * event.checksummed
    try:
        said, schema = _said(event.kind, event.raw, end)
    except (ImpossibleEvent, IndexError):
        return "", ""
    return _text(said), schema


def _said(kind: int, event: bytes, end: int) -> tuple[bytes, str]:
    """What a Query event says, as far as it is read and a byte more, and its current schema."""
    at = layout.HEADER_BYTES + query_text_offset(memoryview(event)[layout.HEADER_BYTES : end])
    said: bytes | None = event[at : min(end, at + MOST_READ + 1)]
    if kind == layout.QUERY_COMPRESSED:
        said = mariadb_part(memoryview(event)[at:end], MOST_READ + 1, cut=True)
    if said is None:
        raise IndexError
    return said, event[at - 1 - event[_SCHEMA_LENGTH_AT] : at - 1].decode(errors="replace")


def _text(said: bytes) -> str:
    return said[:MOST_READ].decode(errors="replace")
