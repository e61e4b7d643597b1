"""What InnoDB has committed and not yet written to its log: an image of the disk would lack it.

Knows: which servers leave something there, and when it is gone; and whether there is a log at all. Refuses to know
locks: the caller has to prevent commits after the reading.

With innodb_flush_log_at_trx_commit = 0 a commit leaves its redo in memory, and InnoDB writes it by itself, every
innodb_flush_log_at_timeout seconds (default: 1). FLUSH ENGINE LOGS writes it at once on MySQL 9.7.4 and on
MariaDB 11.8.6, and does nothing on MariaDB 10.11.19: of 20 rows committed just before FLUSH TABLES WITH READ LOCK and
FLUSH ENGINE LOGS, an image taken then had none, while the binlog, and so the position, had all. With 2 all three had
every row: there the log is in the file, if not on the disk, and a snapshot freezes the file system first.
"""

import time
from collections.abc import Sequence

from backupd.mysql.session import Row, Session
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour

_SETTING = "SELECT @@global.innodb_flush_log_at_trx_commit"
_CURRENT, _FLUSHED = "Innodb_lsn_current", "Innodb_lsn_flushed"  # MariaDB's counters
_LOOK_SECONDS = 0.01

#: Whether it is written: one row of MySQL's from 8.0.21 on. Where there is none it cannot be disabled.
ENABLED = "SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'"
DISABLED = "redo logging is disabled: a snapshot of this server cannot be recovered"
ENABLE = "ALTER INSTANCE ENABLE INNODB REDO_LOG"
REACHED = f"SHOW GLOBAL STATUS LIKE '{_CURRENT}'"  # the LSN in memory, which the log never passes


def is_disabled(answer: Sequence[Row]) -> bool:
    """By the answer to `ENABLED`."""
    return any(row["Value"] == "OFF" for row in answer)


def disabled() -> ServerError:
    """The log is disabled, as an error."""
    return ServerError(DISABLED, hint=ENABLE)


def require_enabled(session: Session) -> None:
    """Raise where it is disabled.

    Raises:
        ServerError: it is, or the session is over.
    """
    if is_disabled(session.query(ENABLED)):
        raise disabled()


def lags(session: Session, flavour: Flavour) -> bool:
    """Whether commits may be missing in the log even after FLUSH ENGINE LOGS.

    Which of MariaDB's releases write is not asked: those that do have nothing to be waited for.

    Raises:
        ServerError: the session is over.
    """
    return flavour is Flavour.MARIADB and session.value(_SETTING) == "0"


def written(session: Session) -> int:
    """Wait until the log has everything that was committed before the call; the LSN up to which it is on disk.

    It waits for as long as the session lives: whoever calls it under a lock ends the session when that takes too long.

    Raises:
        ServerError: the session is over, or the server has no such counters.
    """
    needed = _counter(session, _CURRENT)
    while (flushed := _counter(session, _FLUSHED)) < needed:
        time.sleep(_LOOK_SECONDS)
    return flushed


def _counter(session: Session, name: str) -> int:
    told = session.status(name)
    if told is None:
        raise ServerError(
            f"the server does not report {name}, and its redo log lags behind its commits",
            hint="SET GLOBAL innodb_flush_log_at_trx_commit = 1, or 2",
        )
    return int(told)
