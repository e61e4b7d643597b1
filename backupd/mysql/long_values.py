"""Whether the values can be read that InnoDB keeps outside of their rows, in pages of their own.

CHECK TABLE does not follow them. MySQL's manual says so ("CHECK TABLE Usage Notes for InnoDB Tables"), and so it is: a
table is "OK" one of whose LONGTEXTs has a damaged page. Worse, MariaDB 10.11.19 gives such a value short or empty,
without an error or a warning: only its error log tells. (MySQL 9.7.0 dies.) So they are read, and the log with them.
Knows: which columns may have such values, and how a server tells that a page was none. Of one that is all zeros MariaDB
tells nothing.
"""

import re

from backupd.mysql.own_limits import LONGEST_LINE, ran_out
from backupd.mysql.refusals import StatementError
from backupd.mysql.scratch import RunningServer
from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import Undecided, VerificationError

ANOTHER = "take it from another backup; `backupd drill` checks all tables of one"

# Each column's most bytes in a row; where the server does not say, as of JSON, GEOMETRY and VECTOR, more than a page.
_COLUMNS = """
    SELECT COLUMN_NAME AS name, CASE
        WHEN DATA_TYPE IN ('json', 'geometry', 'point', 'linestring', 'polygon', 'multipoint', 'multilinestring',
            'multipolygon', 'geometrycollection', 'geomcollection', 'vector') THEN 1000000
        ELSE COALESCE(CHARACTER_OCTET_LENGTH, 32) END AS bytes
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND EXTRA NOT LIKE '%%VIRTUAL%%'
"""
_KIND = """
    SELECT TABLE_TYPE AS type, ROW_FORMAT AS format FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_IN_ROW = 40  # bytes: a shorter value stays in its row
_LONGEST_ROW = 16384  # bytes in a page, however large that is (REC_MAX_DATA_SIZE)
_BESIDES = 300  # bytes of a page, and of a row in it, that are not its columns
_TOLD = re.compile(r"^.*\[ERROR\].*InnoDB.*$", re.MULTILINE)  # nothing else is done there that could have an error


def require_long_values(server: RunningServer, table: Table, called: str) -> None:
    """They can be read.

    Raises:
        VerificationError: one cannot.
        Undecided: the server had no memory or no room for it.
        StatementError: the session is over.
    """
    if said := unreadable(server, table, page_size=page_size_of(server)):
        raise VerificationError(f"{called} is damaged: {said}", hint=ANOTHER)


def page_size_of(server: RunningServer) -> int:
    """Bytes of each of InnoDB's pages."""
    return int(server.session.value("SELECT @@innodb_page_size") or 0)


def unreadable(server: RunningServer, table: Table, *, page_size: int) -> str:
    """What the server said when it read the table's long values; empty where it could read them all, or has none.

    All of the table is read where it may have some: one pass over its primary key.

    Raises:
        Undecided: the server had no memory or no room for it.
        StatementError: the session is over.
    """
    kind = server.session.one(_KIND, table.schema, table.name) or {}
    compressed = (kind.get("format") or "").lower() == "compressed"  # into pages of a size of its own
    columns = _long_columns(server.session, table, 0 if compressed else min(page_size // 2, _LONGEST_ROW))
    if not columns:
        return ""
    rows = " FOR SYSTEM_TIME ALL" if kind.get("type") == "SYSTEM VERSIONED" else ""
    lengths, before = ", ".join(f"SUM(LENGTH({quoted(name)}))" for name in columns), len(server.error_log)
    try:
        # No index: one that has all of these columns has their values in itself.
        server.session.query(f"SELECT {lengths} FROM {table.in_sql}{rows} USE INDEX ()")  # noqa: S608 - quoted
    except StatementError as error:
        if not error.number:
            raise
        if limit := ran_out(error.said):
            raise Undecided(
                f"the server ran out of resources while it read {table}: {limit}",
                hint="nothing was learned about the table: try again with more memory or disk space",
            ) from error
        return f"reading its long values: {error.said}"
    told = _TOLD.search(server.error_log, before)
    return f"reading its long values: {told[0].strip()[:LONGEST_LINE]}" if told else ""


def _long_columns(session: Session, table: Table, room: int) -> list[str]:
    """Those that may lie outside of a row: none where the longest row fits into so many bytes."""
    found = [(row["name"] or "", int(row["bytes"] or 0)) for row in session.query(_COLUMNS, table.schema, table.name)]
    if sum(most for _, most in found) < room - _BESIDES:
        return []
    return [name for name, most in found if most > _IN_ROW]
