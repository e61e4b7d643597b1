"""MEMORY tables while a log is applied: every copy has them empty, and the log changes rows that they had.

Knows: when the appliers may leave a table alone. That is a filter on the table's name, which passes by statements that
name it as well; so only where the log has nothing but rows of it, and no statement may read or define it. What is left
out is nothing that the shutdown in the end would keep. MariaDB's filter was tried on 10.11.19, MySQL's was not.
"""

import re
from collections.abc import Sequence

from backupd.mysql.seeding import Words, words_of
from backupd.mysql.session import Session
from backupd.mysql.sqltext import literal
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, TableChange
from backupd.vocabulary.errors import VerificationError

NO_SUCH_ROW = 1032  # ER_KEY_NOT_FOUND

_THERE = (
    "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t FROM information_schema.TABLES WHERE ENGINE = 'MEMORY'"
    " AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys', 'mysql')"
)
_ROWS = (ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE)
_CHANGED = (ChangeKind.UPDATE, ChangeKind.DELETE)
_PLAIN = re.compile(r"[\w$-]+\.[\w$-]+")  # the filter is a list of names between commas
_NAMED = re.compile(r" on table (\S+)\.(\S+);")


def leave_alone(session: Session, segments: Sequence[BinlogSegment]) -> tuple[Table, ...]:
    """The appliers, which are not started yet, pass by rows of these MEMORY tables of the copy. They are told.

    Raises:
        ServerError: the server refuses.
    """
    if not any(change.kind in _CHANGED for segment in segments for change in segment.changes):
        return ()
    there = {Table(row["s"] or "", row["t"] or "") for row in session.query(_THERE)}
    tables = left_alone(segments, there)
    if tables:
        session.execute(_filter(words_of(session), tables))
    return tables


def left_alone(segments: Sequence[BinlogSegment], there: set[Table]) -> tuple[Table, ...]:
    """Those of the MEMORY tables that are there of which the log changes rows, and tells nothing else."""
    changes = [change for segment in segments for change in segment.changes]
    if not all(segment.all_changes for segment in segments) or any(_may_name(change, there) for change in changes):
        return ()
    changed = {_table(change) for change in changes if change.kind in _CHANGED}
    defined = {_table(change) for change in changes if change.kind not in (*_ROWS, ChangeKind.TRUNCATE)}
    return tuple(
        sorted(
            table
            for table in changed & there
            if table not in defined and Table(table.schema, "") not in defined and _PLAIN.fullmatch(str(table))
        )
    )


def require_rows(session: Session, said: str, where: str) -> None:
    """The row that an applier misses, by what it said, is none that a MEMORY table had at the backup.

    Raises:
        VerificationError: it is.
    """
    found = _NAMED.search(said)
    if found is None or {"s": found[1], "t": found[2]} not in session.query(_THERE):
        return
    table = f"{found[1]}.{found[2]}"
    raise VerificationError(
        f"the log after {where} changes rows of {table} that no copy has: a MEMORY table is empty after a restart",
        hint="restore to a moment before it; such moments are reached where the log has nothing but rows of the table"
        f" (binlog_format = ROW, no DDL), or after `ALTER TABLE {table} ENGINE = InnoDB` and a new backup",
    )


def _may_name(change: TableChange, there: set[Table]) -> bool:
    """It is a statement of which nothing is known, or that changes rows: by what it reads, maybe of these tables."""
    by_statement = change.kind in _ROWS and not change.rows and _table(change) not in there
    return by_statement or change.kind is ChangeKind.OTHER


def _table(change: TableChange) -> Table:
    return Table(change.schema, change.table)


def _filter(words: Words, tables: Sequence[Table]) -> str:
    if words is Words.MARIADB:
        return f"SET GLOBAL replicate_ignore_table = {literal(','.join(map(str, tables)))}"
    return f"CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({', '.join(table.in_sql for table in tables)})"
