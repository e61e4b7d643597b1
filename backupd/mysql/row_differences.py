"""How a table that was loaded from a backup differs from the live one, by key.

Knows: three counts that the server works out itself, each within its time, and that nothing is changed, nor anybody
kept from changing the live table. A row is the
same where each of its columns is, byte by byte in texts; what the key's collation takes for one value is one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted
from backupd.mysql.statement_limit import TIMED_OUT, limit_statements
from backupd.mysql.table_attachments import Attachments, attachments_of
from backupd.mysql.table_shape import TableColumn, TableShape, columns_of, key_of_table
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.servers import Flavour

COMPARE_SECONDS = 60.0  # of each of three statements: a change of the live table's definition waits for them

_READ_WITHOUT_LOCK = ("InnoDB", "ROCKSDB")  # by the others who changes a row waits for who reads one
_ENGINE = "SELECT engine AS engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


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
    attached: Attachments = field(default_factory=Attachments)  # of the live table


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
    attached = attachments_of(session, shape.table)
    if not shape.key or key_of_table(session, shape.table) != shape.key or not set(shape.key) <= set(shared):
        told = "they have no primary key in common"
        return TableDifference(untold=told, columns_apart=apart, shared=shared, attached=attached)
    engine = session.value(_ENGINE, shape.table.schema, shape.table.name)
    if engine not in _READ_WITHOUT_LOCK:
        told = f"clients that write to the live table ({engine}) would have to wait for it"
        return TableDifference(untold=told, columns_apart=apart, shared=shared, attached=attached)
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
        attached=attached,
    )


def _alike(backed_up: Sequence[TableColumn], live: Sequence[TableColumn]) -> list[TableColumn]:
    there = set(live)
    return [column for column in backed_up if column in there]


def _counts(shape: TableShape, schema: str, compared: Sequence[TableColumn]) -> dict[str, str]:
    live, loaded = shape.table.in_sql, Table(schema, shape.table.name).in_sql
    key, first = same_key(shape, "b", "l"), quoted(shape.key[0])
    same = " AND ".join(f"{column.compared.format('b')} <=> {column.compared.format('l')}" for column in compared)
    return {
        "only_in_backup": f"SELECT COUNT(*) FROM {loaded} AS b LEFT JOIN {live} AS l ON {key} WHERE l.{first} IS NULL",  # noqa: S608
        "only_live": f"SELECT COUNT(*) FROM {live} AS l LEFT JOIN {loaded} AS b ON {key} WHERE b.{first} IS NULL",  # noqa: S608
        "changed": f"SELECT COUNT(*) FROM {loaded} AS b JOIN {live} AS l ON {key} WHERE NOT ({same})",  # noqa: S608
    }


def same_key(shape: TableShape, one: str, other: str) -> str:
    """The condition under which rows of these two aliases are one row."""
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in shape.key)
