"""What a transaction does to which tables, event by event: rows from table maps and rows events, DDL from its text.

Knows: what of an event is needed for it. Refuses to know where a transaction begins and ends: `transactions` does. An
event of which no sense can be made changes something that is not known: `ChangeKind.OTHER`, of no table.
"""

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.events import ImpossibleEvent
from backupd.mysql.binlog.expanding import mariadb_part, mysql_events
from backupd.mysql.binlog.grouping import query_text_offset
from backupd.mysql.binlog.row_images import (
    MappedTable,
    count_rows,
    mapped_table,
    rows_table_number,
    table_number,
)
from backupd.mysql.binlog.statement_changes import MOST_READ, changes_of, without_passwords
from backupd.vocabulary.binlogs import ChangeKind, TableChange

MOST_STATEMENT = 500  # characters of a statement that are kept
MOST_TABLES = 10_000  # of one transaction that are told apart

_SCHEMA_LENGTH_AT, _STATUS_LENGTH_AT = 8, 11
_ROW_KINDS = (
    *((kind, ChangeKind.INSERT) for kind in layout.WRITE_ROWS),
    *((kind, ChangeKind.UPDATE) for kind in layout.UPDATE_ROWS),
    *((kind, ChangeKind.DELETE) for kind in layout.DELETE_ROWS),
)
_KIND_OF_ROWS = dict(_ROW_KINDS)
_UNKNOWN = ("", "", ChangeKind.OTHER)


class ChangeTally:
    """Of one transaction."""

    def __init__(self) -> None:
        self.statement = ""  # the beginning of the first that is not of the transaction itself
        self._rows: dict[tuple[str, str, ChangeKind], int | None] = {}  # None: some could not be counted
        self._tables: dict[int, MappedTable] = {}

    @property
    def changes(self) -> tuple[TableChange, ...]:
        """What it has done so far, in the order in which it began to; no rows where not all of them were counted."""
        return tuple(TableChange(*where, rows or 0) for where, rows in self._rows.items())

    def add(self, kind: int, body: memoryview) -> None:
        """What this event of the transaction's does is counted."""
        try:
            if kind == layout.TABLE_MAP:
                self._tables[table_number(body)] = mapped_table(body)
            elif kind in layout.ROWS:
                self._add_rows(kind, body)
            elif kind in (layout.QUERY, layout.QUERY_COMPRESSED):
                self._add_statement(kind, body)
            elif kind == layout.TRANSACTION_PAYLOAD:
                for raw in mysql_events(body):
                    self.add(raw[4], memoryview(raw)[layout.HEADER_BYTES :])
            elif kind == layout.INCIDENT:
                self._count(_UNKNOWN, 0)
        except (ImpossibleEvent, IndexError):
            self._count(_UNKNOWN, 0)

    def _add_rows(self, kind: int, body: memoryview) -> None:
        table = self._tables.get(rows_table_number(body))
        if table is None:
            self._count(_UNKNOWN, None)
        else:
            self._count((table.schema, table.table, _KIND_OF_ROWS[kind]), count_rows(kind, body, table))

    def _add_statement(self, kind: int, body: memoryview) -> None:
        at = query_text_offset(body)
        schema_at = at - 1 - body[_SCHEMA_LENGTH_AT]
        schema = bytes(body[schema_at : at - 1]).decode(errors="replace")
        said: bytes | None = bytes(body[at : at + MOST_READ + 1])
        if kind == layout.QUERY_COMPRESSED:
            said = mariadb_part(body[at:], MOST_READ + 1, cut=True)
        if said is None:
            raise IndexError
        text = said[:MOST_READ].decode(errors="replace")
        found = changes_of(text, schema, cut=len(said) > MOST_READ)
        for change in found:
            self._count((change.schema, change.table, change.kind), 0)
        if found and not self.statement:
            self.statement = without_passwords(text)[:MOST_STATEMENT]

    def _count(self, where: tuple[str, str, ChangeKind], rows: int | None) -> None:
        if where not in self._rows and len(self._rows) >= MOST_TABLES:
            where, rows = _UNKNOWN, None
        before = self._rows.get(where, 0)
        self._rows[where] = None if rows is None or before is None else before + rows
