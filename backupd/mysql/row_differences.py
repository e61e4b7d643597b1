"""How a table that was loaded from a backup differs from the live one, by key, and what a person types with that.

Knows: three counts that the server works out itself, each within its time, and that nothing is changed. A row is the
same where each of its columns is, byte by byte in texts; what the key's collation takes for one value is one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted
from backupd.mysql.statement_limit import TIMED_OUT, limit_statements
from backupd.mysql.table_shape import TableColumn, TableShape, columns_of, key_of_table, names_of
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.servers import Flavour

COMPARE_SECONDS = 60.0  # of each of three statements: a change of the live table's definition waits for them

_LONGEST_NAME = 64
_AS_ROWS = "SET SESSION binlog_format = ROW;"
_RENAME_UNSEEN = "-- (only without replicas, after SET SESSION sql_log_bin = 0) RENAME TABLE"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """What was found; None for what was not counted, and why in `untold`."""

    live: bool = True  # there is a live table that we may read
    only_in_backup: int | None = None
    only_live: int | None = None
    changed: int | None = None
    untold: str = ""
    columns_apart: tuple[str, ...] = ()  # that only one of them has, or each has in another way: they were not compared
    shared: tuple[str, ...] = ()  # columns that both have alike and that take a value


def difference(session: Session, shape: TableShape, schema: str, flavour: Flavour) -> TableDifference:
    """Of the loaded table in this schema from the live one of the backup's name.

    Raises:
        ServerError: the session is over.
    """
    live = columns_of(session, shape.table)
    if not live:
        return TableDifference(live=False, untold=f"there is no live {shape.table}, or the account may not read it")
    loaded = columns_of(session, Table(schema, shape.table.name))  # as this server calls their types
    both = _alike(loaded, live)
    apart = tuple(dict.fromkeys(column.name for column in (*loaded, *live) if column not in both))
    shared = tuple(column.name for column in both if not column.generated)
    if not shape.key or key_of_table(session, shape.table) != shape.key or not set(shape.key) <= set(shared):
        told = "they have no primary key in common"
        return TableDifference(untold=told, columns_apart=apart, shared=shared)
    limit_statements(session, flavour, COMPARE_SECONDS)
    found: dict[str, int] = {}
    untold = ""
    compared = [column for column in both if not column.generated]
    for name, statement in _counts(shape, schema, compared).items():
        try:
            found[name] = int(session.value(statement) or 0)
        except StatementError as error:
            if not error.number:
                raise
            late = error.number in TIMED_OUT
            untold = f"it took more than {COMPARE_SECONDS:.0f} s" if late else error.said
    return TableDifference(
        only_in_backup=found.get("only_in_backup"),
        only_live=found.get("only_live"),
        changed=found.get("changed"),
        untold=untold,
        columns_apart=apart,
        shared=shared,
    )


def statements_for(shape: TableShape, schema: str, found: TableDifference, *, logged: bool = True) -> tuple[str, ...]:
    """What a person may type now, comments and statements in turn. Nothing of it was carried out.

    Of a schema that is not `logged` replicas know nothing: rows reach them as rows alone, and a RENAME stops them.
    """
    live, loaded = _named(shape.table), _named(Table(schema, shape.table.name))
    columns = [column for column in shape.carried if column.name in found.shared]
    said: list[str] = []
    rename = "RENAME TABLE" if logged else _RENAME_UNSEEN
    if not found.live:
        said += ["-- to put it into place, if there is no such table:", f"{rename} {loaded} TO {live};"]
    elif columns:
        missing = ""
        if shape.key and set(shape.key) <= set(found.shared):
            same = _same_key(shape, "b", "l")
            missing = f" AS b WHERE NOT EXISTS (SELECT 1 FROM {live} AS l WHERE {same})"  # noqa: S608 - quoted names
        if not logged:
            said += [f"-- the binary log lacks schema {quoted(schema)}: replicas must be sent rows", _AS_ROWS]
        said += [
            "-- to put back the rows that the live table lacks:"
            if missing
            else "-- to put the rows back beside the live ones:",
            f"INSERT INTO {live} ({names_of(columns)}) SELECT {names_of(columns)} FROM {loaded}{missing};",  # noqa: S608
        ]
    if found.live:
        aside = _named(Table(shape.table.schema, f"{shape.table.name[: _LONGEST_NAME - 9]}_replaced"))
        said += [
            "-- or to have all of it as it was, the live table moved aside with its triggers and the foreign keys that"
            " point to it:",
            f"{rename} {live} TO {aside}, {loaded} TO {live};",
        ]
    then = "and then, once the table moved aside has no constraint of that name" if found.live else "and then"
    said += [f"-- {then}: ALTER TABLE {live} ADD {foreign_key};" for foreign_key in shape.foreign_keys]
    if shape.triggers:
        said.append(f"-- and then create its triggers there again: {', '.join(map(quoted, shape.triggers))}")
    return tuple(said)


def _alike(backed_up: Sequence[TableColumn], live: Sequence[TableColumn]) -> list[TableColumn]:
    there = set(live)
    return [column for column in backed_up if column in there]


def _counts(shape: TableShape, schema: str, compared: Sequence[TableColumn]) -> dict[str, str]:
    live, loaded = _named(shape.table), _named(Table(schema, shape.table.name))
    key, first = _same_key(shape, "b", "l"), quoted(shape.key[0])
    same = " AND ".join(f"{column.compared.format('b')} <=> {column.compared.format('l')}" for column in compared)
    return {
        "only_in_backup": f"SELECT COUNT(*) FROM {loaded} AS b LEFT JOIN {live} AS l ON {key} WHERE l.{first} IS NULL",  # noqa: S608
        "only_live": f"SELECT COUNT(*) FROM {live} AS l LEFT JOIN {loaded} AS b ON {key} WHERE b.{first} IS NULL",  # noqa: S608
        "changed": f"SELECT COUNT(*) FROM {loaded} AS b JOIN {live} AS l ON {key} WHERE NOT ({same})",  # noqa: S608
    }


def _same_key(shape: TableShape, one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in shape.key)


def _named(table: Table) -> str:
    return f"{quoted(table.schema)}.{quoted(table.name)}"
