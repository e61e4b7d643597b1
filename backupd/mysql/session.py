"""One connection to the database server: what it may be asked, and how it ends.

Knows: statements, rows, one packet for several statements. Refuses to know what they mean, and never reconnects: a
session that ended stays ended, because the lock it held ended with it.

Values arrive as text or None: what a number means is for the module that asked for it.
"""

import contextlib
import math
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import islice
from types import TracebackType
from typing import Any, Protocol, Self

import pymysql
from pymysql.cursors import SSCursor

from backupd.mysql.login import Login, connection_options
from backupd.mysql.refusals import CONNECTING, StatementError, statement_error
from backupd.vocabulary.errors import ServerError

__all__ = ["ANSWER_SECONDS", "Connect", "Login", "Row", "Session", "StatementError", "connector", "whole_seconds"]

ANSWER_SECONDS = 60.0

_NO_SUCH_THREAD = 1094
_LIMITS = ("max_statement_time", "max_execution_time")  # of a statement's time: MariaDB's, MySQL's
_CREDENTIALS = struct.Struct("iII")  # of a process: its number, its user, its group

Row = Mapping[str, str | None]


class Connect(Protocol):
    """Opens a session; what the modules of this package are given instead of a connection."""

    def __call__(self, *, answer_seconds: float = ANSWER_SECONDS) -> "Session":
        """A new session. No statement of it waits longer than `answer_seconds` for its answer.

        Raises:
            ServerError: the server cannot be reached, or does not let us in.
        """


def connector(login: Login) -> Connect:
    """What opens sessions for this login."""

    def connect(*, answer_seconds: float = ANSWER_SECONDS) -> Session:
        return Session.open(login, answer_seconds=answer_seconds)

    return connect


class Session:
    """One connection, autocommit, never reopened; a context manager that closes it."""

    def __init__(self, connection: Any, login: Login) -> None:
        self._connection = connection
        self._login = login
        self._closed = False

    @classmethod
    def open(
        cls,
        login: Login,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        one_statement: bool = False,
        as_stored: bool = False,
    ) -> Self:
        """A new session of this login; with `one_statement` its server refuses several that are sent as one.

        However short the time that the server lets statements of clients take, those of this one may take any.
        With `as_stored` values arrive in the bytes of their columns: for `byte_rows` alone.

        Raises:
            ServerError: the server cannot be reached, or does not let us in.
        """
        try:
            flags: dict[str, Any] = {"client_flag": 0} if one_statement else {}
            if as_stored:
                flags |= {"use_unicode": False, "init_command": "SET SESSION character_set_results = NULL"}
            session = cls(pymysql.connect(**connection_options(login, answer_seconds) | flags), login)
        except pymysql.MySQLError as error:
            raise statement_error(error, login, CONNECTING) from error
        except (OSError, ValueError) as error:  # before the driver begins: a certificate, a name
            raise ServerError(
                f"cannot connect to the server at {login.where}: {error}",
                hint="check the address and tls_ca" if login.tls_ca is not None else "check the address",
            ) from error
        with contextlib.ExitStack() as owed:
            owed.callback(session.close)
            session._lift_limit()
            owed.pop_all()
        return session

    @property
    def connection_id(self) -> int:
        """The number by which the server knows this session and others can KILL it."""
        return int(self._connection.thread_id())

    @property
    def peer(self) -> int | None:
        """The process that listens at the socket's other end, by the kernel (unix(7)); None where it is TCP."""
        if self._login.socket is None:
            return None
        sock: socket.socket = self._connection._sock  # pymysql offers no public way
        return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0])

    @property
    def far_address(self) -> str | None:
        """The address that answers, where it may be another machine's; None of a socket, and of an address of ours.

        The kernel connects to an address of ours from the same one. To a second one of the same network it does so from
        the first, so that an address may be ours all the same.
        """
        if self._login.socket is not None:
            return None
        sock: socket.socket = self._connection._sock  # as above
        ours, theirs = (str(name[0]) for name in (sock.getsockname(), sock.getpeername()))
        return None if ours == theirs or ip_address(theirs.partition("%")[0]).is_loopback else theirs

    def execute(self, statement: str, *values: object) -> None:
        """Run a statement whose answer does not matter.

        Raises:
            StatementError: it was refused, or the session is over.
        """
        self.query(statement, *values)

    def query(self, statement: str, *values: object) -> list[Row]:
        """All rows of one statement; `%s` stands for each of `values`.

        Raises:
            StatementError: it was refused, or the session is over.
        """
        with self._explaining(statement):
            cursor = self._connection.cursor()
            cursor.execute(statement, values or None)
            return _rows(cursor)

    def rows(self, statement: str) -> Iterator[tuple[str | None, ...]]:
        """The rows of a statement one at a time, for an answer that may be too large to hold.

        Raises:
            StatementError: while iterating: it was refused, or the session is over.
        """
        with self._explaining(statement), self._connection.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            for row in cursor:
                yield tuple(map(_text, row))

    def byte_rows(self, statement: str) -> Iterator[tuple[bytes | None, ...]]:
        """The rows of a statement one at a time, each value as the server has it; of a session that is `as_stored`.

        Who ends early ends the session: no answer can be cut short.

        Raises:
            StatementError: while iterating: it was refused, or the session is over.
        """
        with self._explaining(statement):
            cursor, whole = self._connection.cursor(SSCursor), False
            try:
                cursor.execute(statement)
                yield from iter(cursor.fetchone, None)
                whole = True
            finally:
                if not whole:
                    self._abandon(cursor)

    def change(self, statement: bytes, *, doing: str) -> int:
        """Run a statement that has values in it, which no error and no log repeats: they have `doing`. Rows affected.

        Raises:
            StatementError: it was refused, or the session is over.
        """
        with self._explaining(doing):
            return int(self._connection.cursor().execute(statement))

    def affected_rows(self, statement: str) -> int:
        """Run a statement to its end and pass over what it answers: how many rows it affected, as the server counts.

        Raises:
            StatementError: it was refused, or the session was over. The session is over.
        """
        with self._explaining(statement):
            cursor, rows, whole = self._connection.cursor(SSCursor), 0, False
            try:
                cursor.execute(statement)
                more: bool | None = True
                while more:  # a CALL has several answers
                    if cursor.description is None:
                        rows += cursor.rowcount
                    else:
                        deque(iter(cursor.fetchone, None), maxlen=0)
                    more = cursor.nextset()
                whole = True
                return rows
            finally:
                if not whole:
                    self._abandon(cursor)

    def last(self, statement: str, *, most: int) -> list[tuple[str | None, ...]]:
        """The first rows of one last statement, `most` of them: the session is over, for no answer can be cut short.

        Raises:
            StatementError: it was refused, or the session was over.
        """
        with self._explaining(statement):
            cursor = self._connection.cursor(SSCursor)
            try:
                cursor.execute(statement)
                return [tuple(map(_text, row)) for row in islice(iter(cursor.fetchone, None), most)]
            finally:
                self._abandon(cursor)

    def one(self, statement: str, *values: object) -> Row | None:
        """The first row, None when there is none.

        Raises:
            StatementError: it was refused, or the session is over.
        """
        return next(iter(self.query(statement, *values)), None)

    def value(self, statement: str, *values: object) -> str | None:
        """The first column of the first row.

        Raises:
            StatementError: it was refused, or the session is over.
        """
        row = self.one(statement, *values)
        return next(iter(row.values()), None) if row else None

    def stream(self, statements: Sequence[str]) -> Iterator[list[Row]]:
        """Send fixed statements in one packet and yield each one's rows as soon as they arrive.

        One trip to the server instead of one for each; after the first that fails the server runs none of the rest.

        Raises:
            StatementError: while iterating: that statement was refused, or the session is over.
        """
        remaining = iter(statements)
        with self._explaining(next(remaining)):
            cursor = self._connection.cursor()
            cursor.execute("; ".join(statements))
            rows = _rows(cursor)
        yield rows
        for statement in remaining:
            with self._explaining(statement):
                cursor.nextset()
                rows = _rows(cursor)
            yield rows

    def variables(self) -> Mapping[str, str]:
        """Every global variable of the server.

        Raises:
            StatementError: the session is over.
        """
        return {str(row["Variable_name"]): row["Value"] or "" for row in self.query("SHOW GLOBAL VARIABLES")}

    def status(self, name: str) -> str | None:
        """One of the server's status counters, None when it has no such one.

        Raises:
            StatementError: the session is over.
        """
        row = self.one("SHOW GLOBAL STATUS LIKE %s", name)
        return row["Value"] if row else None

    def kill(self, connection_id: int) -> None:
        """End another session of our own user. That it is over already is no error.

        Raises:
            StatementError: the server refused, or this session is over itself.
        """
        try:
            self.execute(f"KILL CONNECTION {connection_id:d}")
        except StatementError as error:
            if error.number != _NO_SUCH_THREAD:
                raise

    def sever(self) -> None:
        """Break the connection from another thread: a call that waits in it fails at once, and so does any later."""
        sock: socket.socket | None = getattr(self._connection, "_sock", None)  # pymysql offers no public way
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """The session is over, politely where that still works; the server gives back whatever it held."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _lift_limit(self) -> None:
        for variable in _LIMITS:
            try:
                self.execute(f"SET SESSION {variable} = 0")
            except StatementError as error:
                if not error.unknown_here:
                    raise
            else:
                return

    def _abandon(self, cursor: Any) -> None:
        """The session is over, whatever of an answer is still to come."""
        self._closed = True
        if self._connection._result is not None:
            self._connection._result.unbuffered_active = False  # else the driver would read all the rest
        cursor.connection = None
        self._connection._force_close()

    @contextlib.contextmanager
    def _explaining(self, statement: str) -> Iterator[None]:
        try:
            yield
        except pymysql.MySQLError as error:
            raise statement_error(error, self._login, statement) from error


def _rows(cursor: Any) -> list[Row]:
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, map(_text, row), strict=True)) for row in cursor.fetchall()]


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def whole_seconds(seconds: float) -> int:
    """Rounded up: the server counts whole seconds, and 0 would mean "do not wait at all"."""
    return max(1, math.ceil(seconds))
