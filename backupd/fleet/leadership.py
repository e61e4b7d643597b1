"""Which control host acts: the one that holds a lock. Two never do.

PostgreSQL's advisory lock is held by a session of its own, and ends with it: the process was killed, the server was
restarted, or the network between them is gone. A machine that lost its power, and a process that was stopped, close no
connection: the server ends a session that has not confirmed its lock for a while. What happens between that and our
notice is kept harmless three times. The lock is confirmed every second, and whatever acts first asks `require`, which
refuses once the last confirmation is older than `LEASE_SECONDS`. Who takes the lock waits for as long before it acts.
And whatever was decided is in the engine's log before it is done, which one process at a time may write; a host starts
a run once, whoever asks.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from backupd.fleet.database import POSTGRES, explained
from backupd.vocabulary.errors import Busy, FleetDatabaseError

LEASE_SECONDS: Final = 10.0
_PING_SECONDS: Final = 1.0
_LOCK: Final = 0x6261636B75706466  # "backupdf", of PostgreSQL's advisory locks

# Of the lock's session, at the server; its own defaults keep the session of a machine without power for two hours.
_SETTINGS: Final = {
    "statement_timeout": "5s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5s",
}

Lost = Callable[[str], None]


class Leadership:
    """The right to act, for as long as it is confirmed."""

    def __init__(self, lost: Lost, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._lost = lost
        self.lease_seconds = lease_seconds
        self._confirmed_at = _now()
        self._over = threading.Event()

    def confirm(self, at: float) -> None:
        """It was ours then, by `_now`."""
        self._confirmed_at = at

    def require(self) -> None:
        """Return only while it is ours: a thread that finds it lost goes no further."""
        if _now() - self._confirmed_at > self.lease_seconds:
            self.step_down("the lock of the control host was not confirmed in time")

    def step_down(self, reason: str) -> None:
        """It is not ours any more. The first to notice tells; none of them goes on."""
        if not self._over.is_set():
            self._over.set()
            self._lost(reason)
        threading.Event().wait()  # the process is about to be replaced

    def end(self) -> None:
        """Nothing is watched any more."""
        self._over.set()

    @property
    def ended(self) -> threading.Event:
        """Set once it was given up or lost."""
        return self._over


@contextmanager
def leading(url: URL, lost: Lost, *, lease_seconds: float = LEASE_SECONDS) -> Iterator[Leadership]:
    """Within the block this process alone acts.

    Raises:
        Busy: another process does.
        FleetDatabaseAway: the database does not answer.
    """
    leadership = Leadership(lost, lease_seconds=lease_seconds)
    if url.get_backend_name() == "sqlite":
        leadership.lease_seconds = float("inf")
        with _file_lock(Path(f"{url.database}.control"), leadership):
            yield leadership
        return
    with _session_lock(url, leadership):
        time.sleep(lease_seconds)  # who had it before us may not have noticed yet
        leadership.require()
        yield leadership


@contextmanager
def _file_lock(path: Path, leadership: Leadership) -> Iterator[None]:
    """A file's lock ends with the process that has it, and not before."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FleetDatabaseError(
            f"the lock {path} cannot be opened: {error.strerror}",
            hint="run backupd as the user that the file belongs to",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _another() from error
        yield
    finally:
        leadership.end()
        os.close(descriptor)


@contextmanager
def _session_lock(url: URL, leadership: Leadership) -> Iterator[None]:
    settings = {**POSTGRES, "tcp_user_timeout": 5_000, "application_name": "backupd control"}
    engine = create_engine(url, connect_args=settings, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with explained():
        connection = engine.connect()
    try:
        with explained():
            _bound(connection, leadership.lease_seconds)
            if not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _LOCK}).scalar_one():
                raise _another()
        keeper = threading.Thread(
            target=_keep_confirming, args=(leadership, connection), name="leadership", daemon=True
        )
        keeper.start()
        yield
        leadership.end()
        keeper.join(_PING_SECONDS + 6)
    finally:
        leadership.end()
        connection.invalidate()  # it is closed, and what it held is free
        engine.dispose()


def _bound(connection: Connection, lease_seconds: float) -> None:
    """The server ends this session once it has heard nothing of us for a lease, after which we act no more either."""
    for name, value in {**_SETTINGS, "idle_session_timeout": f"{round(lease_seconds * 1000)}ms"}.items():
        # A server that is too old to know one (PostgreSQL 13 is) goes by the others.
        wanted = text("SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name")
        connection.execute(wanted, {"name": name, "value": value})


def _keep_confirming(leadership: Leadership, connection: Connection) -> None:
    while not leadership.ended.wait(min(_PING_SECONDS, leadership.lease_seconds / 4)):
        asked_at = _now()
        try:
            connection.execute(text("SELECT 1"))
        except SQLAlchemyError as error:
            if leadership.ended.is_set():
                return
            leadership.step_down(f"the lock of the control host is lost: {' '.join(str(error.__cause__).split())}")
        leadership.confirm(asked_at)


def _now() -> float:
    """Seconds that also go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _another() -> Busy:
    return Busy(
        "another control host is active on this database",
        hint="this one takes over when that one ends: leave it running as a standby (backupd fleet serve)",
    )
