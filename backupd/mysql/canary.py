"""Rows that a restored server can be asked for: the simplest proof of what a backup, or a moment of the log, shows.

Knows: two rows around the lock, one a minute while the binlog is archived, in one schema of our own. Refuses to touch
any other, and is not used on replicas or read-only servers, whose data is not ours to add to.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from backupd.mysql.grants import CANARY_SCHEMA
from backupd.mysql.session import Connect, Session, StatementError
from backupd.policy.canary_minutes import KEPT_SECONDS
from backupd.vocabulary.records import Check

_TABLE = f"{CANARY_SCHEMA}.canary"
_OLD = f"at < FROM_UNIXTIME(UNIX_TIMESTAMP() - {KEPT_SECONDS})"  # a zone's days have 23 and 25 hours, too
_PATIENCE = "SET SESSION lock_wait_timeout = 10, innodb_lock_wait_timeout = 10"  # seconds; the run waits for it
_NO_SUCH = (1049, 1146)  # ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE

_SCHEMA = f"CREATE DATABASE IF NOT EXISTS {CANARY_SCHEMA}"
_CREATE = f"""
    CREATE TABLE IF NOT EXISTS {_TABLE} (
        run_id VARCHAR(64) NOT NULL, moment ENUM('before', 'after') NOT NULL,
        at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
        PRIMARY KEY (run_id, moment), KEY (at)
    ) ENGINE = InnoDB
"""
_INSERT = f"INSERT INTO {_TABLE} (run_id, moment) VALUES (%s, %s)"  # noqa: S608  the table's name is a constant
_PURGE = f"DELETE FROM {_TABLE} WHERE {_OLD}"  # noqa: S608
MINUTES = "minutes"  # the table's name in that schema
_MINUTES = f"{CANARY_SCHEMA}.{MINUTES}"
_CREATE_MINUTES = f"""
    CREATE TABLE IF NOT EXISTS {_MINUTES} (at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), PRIMARY KEY (at))
    ENGINE = InnoDB
"""
_INSERT_MINUTE = f"INSERT INTO {_MINUTES} VALUES ()"  # noqa: S608
_PURGE_MINUTES = f"DELETE FROM {_MINUTES} WHERE {_OLD}"  # noqa: S608
_WRITTEN = f"SELECT FLOOR(UNIX_TIMESTAMP(at)) AS second FROM {_MINUTES}"  # noqa: S608
_MOMENTS = f"SELECT moment FROM {_TABLE} WHERE run_id = %s ORDER BY moment"  # noqa: S608


class MysqlCanary:
    """The contract's `Canary` on a real server."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    @property
    def table(self) -> str:
        """`schema.table`."""
        return _TABLE

    def before(self, run_id: str) -> None:
        """Commit the row that must be in the backup, making schema and table at the first use.

        Raises:
            ServerError: it could not be written.
        """
        with self._connect() as session:
            session.execute(_PATIENCE)
            if not _exists(session):
                session.execute(_SCHEMA)
                session.execute(_CREATE)
            session.execute(_INSERT, run_id, "before")

    def after(self, run_id: str) -> None:
        """Commit the row that must not be in it; and forget the rows of runs more than 30 days past.

        Raises:
            ServerError: it could not be written.
        """
        with self._connect() as session:
            session.execute(_PATIENCE)
            session.execute(_INSERT, run_id, "after")
            session.execute(_PURGE)

    def minute(self) -> None:
        """Commit a row with the server's time, making schema and table at the first use; rows of 30 days past go.

        So the log of a quiet server moves, and a moment of it can be proven.

        Raises:
            ServerError: it could not be written.
        """
        with self._connect() as session:
            session.execute(_PATIENCE)
            try:
                session.execute(_INSERT_MINUTE)
            except StatementError as error:
                if error.number not in _NO_SUCH:
                    raise
                session.execute(_SCHEMA)
                session.execute(_CREATE_MINUTES)
                session.execute(_INSERT_MINUTE)
            session.execute(_PURGE_MINUTES)


def moments(session: Session, run_id: str) -> tuple[str, ...]:
    """Which of this run's rows a server has: `before`, `after`, both or none.

    Raises:
        ServerError: the session is over.
    """
    try:
        return tuple(row["moment"] or "" for row in session.query(_MOMENTS, run_id))
    except StatementError as error:
        if error.number in _NO_SUCH:
            return ()
        raise


def minutes_there(session: Session) -> Mapping[int, int]:
    """How many of a minute's rows a server has, by the second, since 1970, in which each was written.

    Raises:
        ServerError: the session is over.
    """
    try:
        told = [row["second"] or "" for row in session.query(_WRITTEN)]
    except StatementError as error:
        if error.number in _NO_SUCH:
            return {}
        raise
    return Counter(int(second) for second in told if second.isdecimal())


def canary_check(found: Sequence[str]) -> Check:
    """The restored server has the row from before the lock, and not the one from after the unlock."""
    expected = "before"
    return Check("canary", ok=list(found) == [expected], expected=expected, found=", ".join(found) or "no row")


def _exists(session: Session) -> bool:
    """Asked first, so that an account without CREATE can use a table that an administrator made."""
    try:
        session.query(_MOMENTS, "")
    except StatementError as error:
        if error.number in _NO_SUCH or error.denied:
            return False
        raise
    return True
