"""SQLite as the catalogue needs it: durable, patient with other processes, and in plain words when it fails.

Knows: the settings of a connection, how a transaction begins, what SQLite's error codes mean to a person.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Executable, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from backupd.host.filesystem import room
from backupd.vocabulary.errors import CatalogueError, CatalogueUnavailable

# Another process holds the write lock for the milliseconds of a transaction. But a dozen runs that a schedule starts at
# one minute write side by side, and SQLite's turns are no queue: a verified backup is worth the wait (seen: over 5 s).
BUSY_TIMEOUT_SECONDS = 30.0

Write = tuple[Executable, Sequence[Mapping[str, Any]]]  # a statement, and its rows where it is one for many

OWNER = "run backupd as root or as the user that the catalogue belongs to"
ITS_DISK = "check its disk: df, dmesg"
READ_ONLY = (
    "look why (dmesg: its disk may have failed), then mount it for writing again; a service needs `ReadWritePaths=` for"
    " a catalogue outside its own folders"
)
MAKE_ROOM = "free space on its file system"
DAMAGED = (
    "move the file away with its -wal and -shm, once nothing has it open; then `backupd identity adopt MACHINE`, which"
    " targets have a folder of, and `backupd catalogue rebuild --target T` for each target"
)
_UNDECODABLE = "Could not decode to UTF-8"  # which the driver says without a code
_FAULTS = {  # sqlite.org/rescode.html, primary codes
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", OWNER),
    sqlite3.SQLITE_PERM: ("cannot be opened", OWNER),
    sqlite3.SQLITE_AUTH: ("cannot be opened", OWNER),
    sqlite3.SQLITE_READONLY: ("cannot be written", OWNER),
    sqlite3.SQLITE_NOTADB: (
        "is not a catalogue",
        f"set another file as the catalogue in the configuration; if it was one, {DAMAGED}",
    ),
    sqlite3.SQLITE_CORRUPT: ("is damaged", DAMAGED),
    sqlite3.SQLITE_FULL: ("cannot be written: no space left", MAKE_ROOM),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk failed or is full", ITS_DISK),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "check which one has it open: fuser -v FILE"),
    sqlite3.SQLITE_LOCKED: ("is locked by another process", "check which one has it open: fuser -v FILE"),
}
_REFUSED = (
    "`backupd catalogue check` says whether the file is damaged; if it is not, this is a bug in backupd: report it"
)
_UNWRITABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}  # WAL needs files of its own even to read
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def engine_for(path: Path, *, busy_timeout_seconds: float, foreign_keys: bool = True) -> Engine:
    """A way to the file; nothing is opened yet. Every transaction takes the write lock at once; see `reading`."""
    engine = create_engine(
        URL.create("sqlite", database=str(path.absolute())),
        connect_args={
            "timeout": busy_timeout_seconds,
            "isolation_level": None,  # the driver must not begin transactions of its own
            "check_same_thread": False,
        },
    )

    @event.listens_for(engine, "connect")
    def _settle(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA synchronous=FULL")  # NORMAL loses the last commits at a power cut
        connection.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A plain BEGIN that writes later is refused at once when another process wrote meanwhile: the timeout that
        # would wait for it counts only for the first statement.
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))

    return engine


def engine_for_looking(path: Path, *, connections: int, busy_timeout_seconds: float) -> Engine:
    """A way to the file for a process that may open nothing later: so many connections are open now, and stay.

    Somebody else must have the file open, too, as the daemon has: without the right to write, SQLite cannot make the
    `-shm` file that WAL needs, nor remove it, which therefore stay the same files for as long as we look.

    Raises:
        DBAPIError: it cannot be opened, or nobody else has it open.
    """

    def connect() -> sqlite3.Connection:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=connections, max_overflow=0)

    @event.listens_for(engine, "connect")
    def _settle(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA temp_store=MEMORY")  # a sort must need no file either

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with ExitStack() as opened:
        for _ in range(connections):
            opened.enter_context(engine.begin()).exec_driver_sql("SELECT count(*) FROM sqlite_schema")
    return engine


def reading(engine: Engine) -> Engine:
    """The same way for transactions that only read: they see one instant, wait for nobody and hold up nobody."""
    return engine.execution_options(begin="BEGIN")


def use_wal(path: Path, *, busy_timeout_seconds: float) -> None:
    """The file is in WAL mode: readers and the writer don't wait for each other. It stays so for every process.

    Raises:
        CatalogueError: its file system cannot do that (WAL needs shared memory), or SQLite failed.
    """
    with explained(path), direct(path, busy_timeout_seconds=busy_timeout_seconds) as connection:
        mode = _switch_to_wal(connection, deadline=time.monotonic() + busy_timeout_seconds)
    if mode != "wal":
        raise CatalogueError(
            f"the catalogue {path} is on a file system that cannot hold it safely (journal mode {mode})",
            hint="put it on a local file system",
        )


def _switch_to_wal(connection: sqlite3.Connection, *, deadline: float) -> str:
    """The journal mode afterwards. SQLite doesn't wait here for others that switch at the same time, so we do."""
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@contextmanager
def direct(path: Path, *, busy_timeout_seconds: float) -> Iterator[sqlite3.Connection]:
    """A bare connection for the few statements that SQLite refuses within a transaction; closed at the end."""
    connection = sqlite3.connect(path.absolute(), timeout=busy_timeout_seconds, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Whatever SQLite says within the block is said again as a CatalogueError about this file, with a hint.

    Raises:
        CatalogueError: in place of every error of SQLite.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise fault(path, error) from error


def fault(path: Path, error: DBAPIError | sqlite3.Error) -> CatalogueError:
    """The sentence and the hint for an error of SQLite."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code is the primary one
    if _UNDECODABLE in str(cause):
        code = sqlite3.SQLITE_CORRUPT
    fact, hint = _FAULTS.get(code, ("refused a statement", _REFUSED))
    passing = code in _PASSING
    if code in _UNWRITABLE and _is_read_only(path):
        fact, hint, passing = f"{fact}: its file system is read-only", READ_ONLY, True
    kind = CatalogueUnavailable if passing else CatalogueError
    return kind(f"the catalogue {path} {fact} ({cause})", hint=hint.replace("FILE", str(path)))


def _is_read_only(path: Path) -> bool:
    """The file system of the file itself, where a link leads to it; not where nobody can tell."""
    try:
        return room(Path(os.path.realpath(path)).parent)[2]
    except OSError:
        return False
