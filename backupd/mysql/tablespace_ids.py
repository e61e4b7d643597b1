"""The numbers of tablespaces, of which no server may have one twice.

Knows: what a server that dies is told by them when it starts again. While a file with the number of another tablespace
lies in its datadir, it may not start: MariaDB 10.11.19 says "Attempted to open a previously opened tablespace", MySQL
9.7.4 "Multiple files found for the same tablespace ID". An import gives the file a number of its own, but it lies there
before; and the table of yesterday has the number of today's. So it first gets another one, beyond all that the running
server has, from the server on the restored files. MySQL does not rebuild tables while it passes over missing ones.
"""

import os
import secrets
from pathlib import Path

from backupd.host.filesystem import opened_plain
from backupd.mysql.session import Session, StatementError
from backupd.mysql.sqltext import quoted
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import ServerError

MOST = 20_000  # numbers that are passed over, one table each; a minute or so

_AHEAD = 100  # tables that clients may create meanwhile
_RESERVED = 0xFFFF0000  # from here on they are not given to tables
_BOOKS = ("INNODB_SYS_TABLESPACES", "INNODB_TABLESPACES")  # MariaDB's, MySQL's
_AT = 34  # FIL_PAGE_SPACE_ID, of the first page, in both


def highest(session: Session) -> int | None:
    """The highest number of a table's tablespace that the server has now; None where the account may not know.

    Raises:
        ServerError: the session is over.
    """
    return _asked(session, "SELECT MAX(SPACE) FROM information_schema.{} WHERE SPACE < %s", _RESERVED)


def number_of(tablespace: Path, beneath: Path) -> int:
    """Of a file that somebody else can write to, below a folder; 0 where its first page is not there yet.

    Raises:
        ServerError: it cannot be read.
    """
    try:
        with opened_plain(tablespace, beneath=beneath) as file:
            return int.from_bytes(os.pread(file.fileno(), 4, _AT))
    except OSError as error:
        raise ServerError(f"{tablespace} cannot be read: {error.strerror}") from error


def is_free(session: Session, number: int) -> bool:
    """The server has no such tablespace and will not have one soon: it gives no number twice, and counts upwards.

    Raises:
        ServerError: the session is over.
    """
    taken = _asked(session, "SELECT COUNT(*) FROM information_schema.{} WHERE SPACE = %s", number)
    top = highest(session)
    return number != 0 and taken == 0 and top is not None and not top < number < top + _AHEAD // 2


def _asked(session: Session, question: str, value: int) -> int | None:
    for book in _BOOKS:
        try:
            return int(session.value(question.format(book), value) or 0)
        except StatementError as error:
            if error.denied:
                return None
            if not error.unknown_here:
                raise
    return None


def renumber(session: Session, table: Table, beyond: int) -> None:
    """The table has a tablespace of a higher number than this, in a server of which nobody but us has need.

    Raises:
        ServerError: the server refused.
    """
    passed_over = f"{quoted(table.schema)}.{quoted(f'backupd_{secrets.token_hex(8)}')}"
    reached = 0
    while reached < beyond + _AHEAD:
        session.execute(f"CREATE TABLE {passed_over} (id INT) ENGINE = InnoDB")
        reached = highest(session) or beyond + _AHEAD
        session.execute(f"DROP TABLE {passed_over}")
    session.execute("SET SESSION sql_mode = ''")  # rows are as they are
    session.execute(f"ALTER TABLE {table.in_sql} FORCE, ALGORITHM = INPLACE")
