"""What others do on the server: statements that a lock would wait behind.

Knows: the process list, and which statements which lock waits for. Refuses to end any of them: that is for a person.

Tried on MariaDB 10.11.19: neither lock waits for reads, however long (SELECT); FLUSH TABLES WITH READ
LOCK waits for every statement that writes and for ALTER TABLE; BACKUP STAGE for writes to MyISAM tables, CREATE …
SELECT, and the last step of an ALTER TABLE. The same on MariaDB 11.8.6.

Tried on MySQL 9.7.4: FLUSH TABLES WITH READ LOCK waits for reads too, for ALTER TABLE, and for an ALTER TABLE that
itself waits for another's LOCK INSTANCE FOR BACKUP; all of them are in the list. Uncommitted transactions between two
statements are not waited for; a client that has LOCK TABLES and does nothing is, and only metadata locks tell of it.
Its information_schema.PROCESSLIST counts whole seconds and is deprecated; the performance schema counts picoseconds.
"""

import re
from collections.abc import Sequence

from backupd.mysql.binlog.statement_words import StatementOfAnotherForm, StatementWords
from backupd.mysql.session import Row, Session, StatementError
from backupd.vocabulary.servers import Blocker, Flavour

_STATEMENT_LENGTH = 100

# Only sessions that run something: sleepers, daemons and replication threads have other commands. But for MySQL's
# applier, which is a `Query` of the system's own user that has run since it was started, whatever it waits for. A
# scheduled event at work is a `Connect`, as is who has not logged in yet, and MySQL's receiver, of the system's user.
# The outermost statement of an event is the event as a whole, and what matters is the one that it is at.
_SYSTEM_USER = "system user"
_RUNNING = """
    SELECT ID AS id, USER AS user, TIME_MS AS milliseconds, TIME AS seconds, INFO AS statement
    FROM information_schema.PROCESSLIST
    WHERE (COMMAND IN ('Query', 'Execute', 'Killed') OR (COMMAND = 'Connect' AND INFO IS NOT NULL))
    AND ID <> CONNECTION_ID()
"""
_RUNNING_WITHOUT_MILLISECONDS = _RUNNING.replace("TIME_MS", "NULL")
_PERFORMANCE_SCHEMA = """
    SELECT thread.PROCESSLIST_ID AS id, thread.PROCESSLIST_USER AS user, statement.TIMER_WAIT / 1e9 AS milliseconds,
        GREATEST(thread.PROCESSLIST_TIME, 1) AS seconds, COALESCE(thread.PROCESSLIST_INFO, 'LOCK TABLES') AS statement
    FROM performance_schema.threads AS thread LEFT JOIN performance_schema.events_statements_current AS statement
        ON statement.THREAD_ID = thread.THREAD_ID AND statement.END_EVENT_ID IS NULL
        AND statement.NESTING_EVENT_LEVEL = IF(thread.NAME = 'thread/sql/event_worker', (
            SELECT MAX(NESTING_EVENT_LEVEL) FROM performance_schema.events_statements_current AS inner_statement
            WHERE inner_statement.THREAD_ID = thread.THREAD_ID AND inner_statement.END_EVENT_ID IS NULL), 0)
    WHERE thread.NAME IN ('thread/sql/one_connection', 'thread/mysqlx/worker', 'thread/sql/event_worker')
    AND thread.PROCESSLIST_ID <> CONNECTION_ID()
    AND (thread.PROCESSLIST_COMMAND IN ('Query', 'Execute', 'Killed')
    OR (thread.NAME = 'thread/sql/event_worker' AND statement.NESTING_EVENT_LEVEL > 0) OR thread.THREAD_ID IN (
        SELECT OWNER_THREAD_ID FROM performance_schema.metadata_locks WHERE OBJECT_TYPE = 'TABLE'
        AND LOCK_STATUS = 'GRANTED' AND LOCK_TYPE IN ('SHARED_READ_ONLY', 'SHARED_NO_READ_WRITE')))
"""

_READS = ("SELECT", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "CHECKSUM", "DO", "SET", "USE", "KILL", "HELP")
_OPENING = frozenset("(")
_CHANGES = re.compile(r"\b(UPDATE|DELETE)\b", re.IGNORECASE)  # of a WITH: its own verb, or SELECT … FOR UPDATE


def blockers(session: Session, flavour: Flavour, *, older_than_seconds: float) -> tuple[Blocker, ...]:
    """Statements of others that a lock would wait behind, and that have run for longer than this; longest first.

    Raises:
        ServerError: the session is over.
    """
    rows = session.query(_RUNNING) if flavour is Flavour.MARIADB else _running_on_mysql(session)
    return blocking(rows, flavour, older_than_seconds=older_than_seconds)


def _running_on_mysql(session: Session) -> list[Row]:
    """From the performance schema where it is on and we may read it."""
    try:
        if session.value("SELECT @@performance_schema") == "1":
            return session.query(_PERFORMANCE_SCHEMA)
    except StatementError as error:
        if not error.denied:
            raise
    return session.query(_RUNNING_WITHOUT_MILLISECONDS)


def blocking(rows: Sequence[Row], flavour: Flavour, *, older_than_seconds: float) -> tuple[Blocker, ...]:
    """The rows of the process list that matter, longest first."""
    clients = (row for row in rows if row["user"] != _SYSTEM_USER)
    found = (_blocker(row) for row in clients if flavour is Flavour.MYSQL or not is_read(row["statement"] or ""))
    return tuple(sorted((one for one in found if one.seconds > older_than_seconds), key=lambda one: -one.seconds))


def is_read(statement: str) -> bool:
    """Whether a statement only reads. What it cannot tell (CALL, nothing at all) counts as a write."""
    words = StatementWords(statement, "", cut=False)
    try:
        words.pass_variables()
    except StatementOfAnotherForm:
        return False
    words.pass_any(_OPENING)
    if words.next_is("WITH"):
        return _CHANGES.search(statement[words.read_to :]) is None
    return words.next_is(*_READS)


def _blocker(row: Row) -> Blocker:
    milliseconds = row["milliseconds"]
    return Blocker(
        connection_id=int(row["id"] or 0),
        user=row["user"] or "",
        seconds=float(milliseconds) / 1000 if milliseconds is not None else float(row["seconds"] or 0),
        statement=" ".join((row["statement"] or "").split())[:_STATEMENT_LENGTH],
    )
