"""MySQL's histograms: values of columns, kept apart from the rows, that whoever may read the column can read.

No UPDATE of the rows changes them.
"""

from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted

COLUMN_STATISTICS = "information_schema.COLUMN_STATISTICS"

_ALL = f"SELECT SCHEMA_NAME AS its_schema, TABLE_NAME AS its_table, COLUMN_NAME AS name FROM {COLUMN_STATISTICS}"  # noqa: S608


def drop_histograms(session: Session) -> int:
    """How many are left, which should be none: the server tells errors of this statement as rows.

    Raises:
        StatementError: the session is over.
    """
    for row in session.query(_ALL):
        table = f"{quoted(row['its_schema'] or '')}.{quoted(row['its_table'] or '')}"
        session.query(f"ANALYZE NO_WRITE_TO_BINLOG TABLE {table} DROP HISTOGRAM ON {quoted(row['name'] or '')}")
    return len(session.query(_ALL))
