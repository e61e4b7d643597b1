"""The database of a fleet: PostgreSQL, or a file of SQLite for a try. How it is reached, and what its faults mean.

Knows: addresses, drivers, settings of connections, how either adds a row that may be there, which faults pass by
themselves. Refuses to know which tables there are.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, NullPool, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from backupd.vocabulary.errors import FleetDatabaseAway, FleetDatabaseError, UsageError, missing_package

_EXAMPLES: Final = "postgresql://backupd@localhost/backupd, or sqlite:////var/lib/backupd/fleet.db for a try"

# A connection whose other end has vanished is given up within half a minute: 10 s of silence, then 3 probes each 5 s;
# what was sent and is not confirmed counts as lost after 20 s. libpq's defaults are two hours and a quarter of one.
POSTGRES: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "backupd",
}
# What a machine that lost its power had locked is free again soon, and not after the server's own two hours.
_ABANDONED: Final = "-c idle_in_transaction_session_timeout=20s"
_BUSY_SECONDS: Final = 30.0  # another process writes to the file of SQLite
# PostgreSQL's SQLSTATE classes of what passes: connection, out of resources, operator intervention, system; and
# "read-only transaction", which a server answers that is not the primary any more.
_PASSING: Final = ("08", "53", "57", "58", "25006", "40")


def address(text: str) -> URL:
    """Of the database, with its driver.

    Raises:
        UsageError: it is none that backupd can reach, or the driver is not installed.
    """
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise UsageError("the address of the fleet's database is not a URL", hint=f"write {_EXAMPLES}") from error
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        if find_spec("psycopg") is None:
            raise UsageError(
                "psycopg, by which PostgreSQL is reached, is not installed",
                hint=missing_package("fleet"),
            )
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database:
        return url.set(drivername="sqlite")
    if kind == "sqlite":
        raise UsageError("the fleet's SQLite database must be a file", hint=f"write {_EXAMPLES}")
    raise UsageError(f"a fleet's database cannot be {kind}: use PostgreSQL or SQLite", hint=f"write {_EXAMPLES}")


def engine_for(url: URL, *, connections: int = 5, read_only: bool = False) -> Engine:
    """A way to the database with at most so many connections; nothing is opened yet."""
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, read_only=read_only)
    only = " -c default_transaction_read_only=on" if read_only else ""
    return create_engine(
        url,
        connect_args=dict(POSTGRES) | {"options": f"{_ABANDONED}{only}"},
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        pool_recycle=1800,
    )


def _sqlite(url: URL, *, read_only: bool) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None}, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _settle(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")  # NORMAL loses the last commits at a power cut
        if read_only:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # What begins by reading and then writes is refused at once when another process wrote meanwhile.
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))

    return engine


def reading(engine: Engine) -> Engine:
    """The same way for transactions that only read: they see one instant, and wait for nobody."""
    return engine.execution_options(begin="BEGIN")


def insert_into(connection: Connection, table: Table) -> "postgresql.Insert | sqlite.Insert":
    """The statement of this database that can say what becomes of a row that is there."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def added(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """The row is there; False where one of its key was."""
    add = insert_into(connection, table).values(dict(row)).on_conflict_do_nothing()
    return connection.execute(add.returning(*table.primary_key)).first() is not None


@contextmanager
def explained() -> Iterator[None]:
    """Whatever the database or its driver raises within the block is said again, with a hint.

    Raises:
        FleetDatabaseAway: it may come back by itself.
        FleetDatabaseError: it refused a statement.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        said = " ".join(str(cause).split())
        if passes(error):
            raise FleetDatabaseAway(
                f"the fleet's database does not answer: {said}",
                hint="see that PostgreSQL runs and that the control host reaches it; backupd tries again",
            ) from error
        raise FleetDatabaseError(
            f"the fleet's database refused a statement: {said}",
            hint="see that its user owns the database, and that no newer backupd has upgraded it",
        ) from error


def passes(error: SQLAlchemyError | sqlite3.Error) -> bool:
    """Whether the same may go well a little later."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return isinstance(error, sqlite3.OperationalError)
    code = getattr(error.orig, "sqlstate", None)
    if code:
        return str(code).startswith(_PASSING)
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _SQLITE_PASSING
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)


_SQLITE_PASSING: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
)
