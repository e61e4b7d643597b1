"""Transactions that were open when the files were copied, and when a table is without their changes.

Knows: crash recovery rolls them back in the background, after the server answers. A SELECT never shows their changes,
but a tablespace that is exported meanwhile has them, and the server that imports it takes all that it finds for
committed. MariaDB 10.11.19 lets it be exported all the same: of 100,000 rows, half of them deleted in a transaction
that was open, 50,000 were gone from the imported table, 29,652 that were never committed were in it, and CHECK TABLE
said OK. Until a transaction is rolled back it keeps its lock on the table; one that is prepared (XA) keeps it for good.
"""

import time
from collections.abc import Callable

from pymysql.constants import ER

from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.mysql.tablefiles import Table

_LOOK_SECONDS = 5
_POLL_SECONDS = 0.2
_OPEN = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0"


def await_rollback(session: Session, table: Table, telling: Callable[[str], None] = lambda _step: None) -> None:
    """Nothing in this table, which is InnoDB's, is of a transaction that has not been committed.

    `session` is of a server on restored files, of which nobody but us has need. It is told if that takes long.

    Raises:
        StatementError: a prepared transaction has changes in it; or the session is over.
    """
    session.execute(
        "SET SESSION autocommit = 0, innodb_table_locks = 1,"
        f" innodb_lock_wait_timeout = {_LOOK_SECONDS}, lock_wait_timeout = {_LOOK_SECONDS}"
    )
    alone = _lockable(session, table)
    if not alone:
        telling(f"waiting until what was not committed in {table} is rolled back")
        while not alone and _recovering(session):
            alone = _lockable(session, table)
        alone = alone or _lockable(session, table)
    session.execute("SET SESSION autocommit = 1, innodb_lock_wait_timeout = DEFAULT, lock_wait_timeout = DEFAULT")
    if not alone:
        raise StatementError(
            f"{table} has changes of a prepared XA transaction, which an import would treat as committed",
            hint="load the rows that are committed into a running server: `backupd restore` with --into, --by rows",
            number=ER.LOCK_WAIT_TIMEOUT,
            said="it has changes of a prepared XA transaction",
        )


def await_recovery(
    session: Session, *, within_seconds: float, telling: Callable[[str], None] = lambda _step: None
) -> None:
    """Nothing is being rolled back any more, whose locks a statement would wait for; or the time is over.

    Raises:
        StatementError: the session is over.
    """
    deadline = time.monotonic() + within_seconds
    if _recovering(session):
        telling("waiting until what was not committed is rolled back")
    while _recovering(session) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _lockable(session: Session, table: Table) -> bool:
    """Whether the table could be locked, for a moment, against all who change it."""
    try:
        session.execute(f"LOCK TABLES {table.in_sql} READ")
    except StatementError as error:
        if error.number == ER.LOCK_WAIT_TIMEOUT:
            return False
        raise
    session.execute("UNLOCK TABLES")
    return True


def _recovering(session: Session) -> bool:
    """Whether a transaction of another server's client is open still, beside those that are prepared."""
    prepared = len(session.query("XA RECOVER"))
    return int(session.value(_OPEN) or 0) > prepared
