"""What a table is made of: its columns, its key, its definition; and how a value goes from one server to another whole.

Knows: what a value must be asked for so that nothing of it is lost, and as what it is written. Refuses to carry what
points out of the table: foreign keys, triggers, folders.

A value is asked for as it is stored (`character_set_results = NULL`), but for three kinds. FLOAT is printed with six
digits, and with all of them once it has been made a DOUBLE. Of ENUM and SET the number is taken: an ENUM has a value of
number 0 which as text is that of a member ''. Texts and bytes are written as `_binary'…'`, which no character set
changes; but JSON of MySQL takes no binary string.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted, require_definition
from backupd.mysql.table_attachments import TableTrigger, triggers_of
from backupd.mysql.table_sequences import SEQUENCE
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.servers import Flavour

# Those that keep their rows themselves. Others (FEDERATED, CONNECT, MERGE) write to other tables, or other servers.
ENGINES = frozenset({"InnoDB", "MyISAM", "Aria", "ARCHIVE", "CSV", "ROCKSDB"})

_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "vector"})
_SHAPES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    }
)
_NUMBERED = frozenset({"enum", "set"})
_CREATE = re.compile(r"CREATE TABLE (?=`)")
_FOREIGN_KEY = re.compile(r",\n +(CONSTRAINT `(?:[^`]|``)*` FOREIGN KEY \([^\n]*?)(?=,?\n)")

_TABLE = """
    SELECT engine AS engine, table_type AS kind FROM information_schema.tables
    WHERE table_schema = %s AND table_name = %s
"""
_COLUMNS = """
    SELECT column_name AS name, data_type AS kind, column_type AS full_type, extra AS extra
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
    SELECT column_name AS name FROM information_schema.key_column_usage
    WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position
"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column by its name, its type's name in small letters, and its type in full."""

    name: str
    kind: str
    full_type: str
    generated: bool = False  # the server works it out, and takes no value for it

    @property
    def read(self) -> str:
        """What it is asked for."""
        name = quoted(self.name)
        if self.kind == "float":
            return f"{name} * 1e0"
        return f"CAST({name} AS UNSIGNED)" if self.kind in _NUMBERED else name

    @property
    def compared(self) -> str:
        """What tells whether two values are the same, with `{}` for the table's alias."""
        name = quoted(self.name).replace("{", "{{").replace("}", "}}")
        return f"CAST({{}}.{name} AS BINARY)" if self.kind in _TEXTS else f"{{}}.{name}"

    def writer(self, flavour: Flavour) -> Callable[[bytes | None], bytes]:
        """What makes literals of its values, for a server of this flavour, in a session whose mode gives the backslash
        its meaning. It is called for every value of a table, and does no more than it must.
        """
        if self.kind in _NUMBERED:
            return lambda value: b"NULL" if value is None else b"%d" % int(value)
        opening = b"'"
        if self.kind == "json" and flavour is Flavour.MYSQL:
            opening = b"_utf8mb4'"
        elif self.kind in _TEXTS | _BYTES | _SHAPES or self.kind == "json":
            opening = b"_binary'"

        def written(value: bytes | None) -> bytes:
            if value is None:
                return b"NULL"
            if b"\\" in value:
                value = value.replace(b"\\", b"\\\\")
            if b"'" in value:
                value = value.replace(b"'", b"\\'")
            return opening + value + b"'"

        return written


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as a server with its files knows it."""

    table: Table
    engine: str
    definition: str  # CREATE TABLE without a schema and without foreign keys
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]  # of the primary one; empty: it has none
    foreign_keys: tuple[str, ...]  # what of the definition was left out
    triggers: tuple[TableTrigger, ...]

    @property
    def carried(self) -> tuple[TableColumn, ...]:
        """The columns that take a value."""
        return tuple(column for column in self.columns if not column.generated)

    def created_in(self, schema: str) -> str:
        """The statement that makes it in a schema."""
        return in_schema(schema, self.table, self.definition)


def shape_of(session: Session, table: Table) -> TableShape:
    """What this server knows of the table.

    Raises:
        UsageError: there is no such table, or it is none whose rows can be loaded.
        ServerError: the session is over, or the definition cannot be run safely.
    """
    names = (table.schema, table.name)
    found = session.one(_TABLE, *names) or {}
    _require_rows(table, found.get("kind"), found.get("engine"))
    row = session.one(f"SHOW CREATE TABLE {table.in_sql}") or {}
    whole = row.get("Create Table") or ""
    require_definition(whole)
    definition, foreign_keys = without_foreign_keys(whole)
    return TableShape(
        table,
        engine=str(found["engine"]),
        definition=definition,
        columns=columns_of(session, table),
        key=key_of_table(session, table),
        foreign_keys=foreign_keys,
        triggers=triggers_of(session, table),
    )


def columns_of(session: Session, table: Table) -> tuple[TableColumn, ...]:
    """Every column in order, those that `SELECT *` passes over included; none where there is no such table.

    Raises:
        ServerError: the session is over.
    """
    return tuple(
        TableColumn(
            str(row["name"]),
            str(row["kind"]).lower(),
            str(row["full_type"]),
            generated=re.search(r"\b(VIRTUAL|STORED|PERSISTENT)\b", row["extra"] or "") is not None,
        )
        for row in session.query(_COLUMNS, table.schema, table.name)
    )


def key_of_table(session: Session, table: Table) -> tuple[str, ...]:
    """The columns of its primary key; none where it has none, or where there is no such table.

    Raises:
        ServerError: the session is over.
    """
    return tuple(str(row["name"]) for row in session.query(_KEY, table.schema, table.name))


def in_schema(schema: str, table: Table, definition: str) -> str:
    """A definition as SHOW CREATE TABLE tells it, which names no schema, for this one instead of the session's.

    Raises:
        ServerError: it is not a table's.
    """
    found = _CREATE.match(definition)
    if found is None:
        raise ServerError(
            f"{table} has the definition {definition[:80]!r}", hint="it is not a table: remove it from --tables"
        )
    return f"CREATE TABLE {quoted(schema)}.{definition[found.end() :]}"


def without_foreign_keys(definition: str) -> tuple[str, tuple[str, ...]]:
    """A definition as SHOW CREATE TABLE tells it without its foreign keys, and these. Each stands on a line."""
    return _FOREIGN_KEY.sub("", definition), tuple(_FOREIGN_KEY.findall(definition))


def names_of(columns: Sequence[TableColumn]) -> str:
    """The columns as a list for a statement."""
    return ", ".join(quoted(column.name) for column in columns)


def _require_rows(table: Table, kind: str | None, engine: str | None) -> None:
    whole = "restore it into a folder instead: --to DIR"
    if kind is None or (kind != "VIEW" and engine is None):
        raise UsageError(
            f"the server on the restored files cannot open {table}",
            hint=(
                "was it created in the minutes before the backup? only the whole backup has it then: restore without"
                " --tables"
            ),
        )
    if kind == "SYSTEM VERSIONED":
        raise UsageError(f"{table} keeps its history (SYSTEM VERSIONING), which cannot be loaded as rows", hint=whole)
    if kind == SEQUENCE:
        raise UsageError(
            f"{table} is a sequence, which has no rows",
            hint=f"{whole}, where DIR/tables has the statements that make it",
        )
    if kind != "BASE TABLE":
        raise UsageError(f"{table} is a {kind.lower()}, which has no rows of its own", hint="load the tables under it")
    if engine not in ENGINES:
        raise UsageError(f"{table} is of the engine {engine}, which cannot be loaded as rows", hint=whole)
