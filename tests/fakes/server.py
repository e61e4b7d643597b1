"""A database server that stands still when it is locked: the contracts of `backupd.mysql`, in memory.

One `FakeDatabase` is the world; `FakeServer`, `FakeLock` and `FakeCanary` act on it. Stories make it misbehave by
setting its fields: it can refuse the lock, lose it, be read-only, and fail at the n-th call.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from backupd.mysql import UNLOCKED, UNPROVEN
from backupd.mysql.flushing import FEW_PAGES, LOW_WATER_MARK, MAX_DIRTY, restoration
from backupd.mysql.same_server import (
    AT,
    DATADIR,
    HOSTNAME,
    PORT,
    SERVER_ID,
    UPTIME,
    has_identity,
    is_same,
    on_another,
)
from backupd.policy.bill import Count
from backupd.vocabulary.errors import LockLost, LockNotGranted, ServerError
from backupd.vocabulary.servers import (
    Blocker,
    Channel,
    DataPath,
    Flavour,
    LockReceipt,
    Membership,
    Position,
    Preflush,
    PreflushEnd,
    Replication,
    ServerFacts,
)

log = logging.getLogger(__name__)

FACTS = ServerFacts(
    flavour=Flavour.MARIADB,
    version="10.11.6-MariaDB",
    version_number=(10, 11, 6),
    datadir=Path("/srv/data/mysql"),
    socket=Path("/run/mysqld/mysqld.sock"),
    binlog_basename=Path("/srv/data/mysql/bin"),
    binlog_expire_seconds=864_000,
    read_only=False,
    is_replica=False,
    redo_logging=True,
    page_size=16384,
)

SETTINGS = {
    MAX_DIRTY: "90.000000",
    LOW_WATER_MARK: "10.000000",
    DATADIR: "/srv/data/mysql/",
    HOSTNAME: "db1",
    PORT: "3306",
    SERVER_ID: "1",
    UPTIME: "3600",
    AT: "1000",
}
NO_REPLICA = Replication((), workers=0, logs_updates=True, open_temporary_tables=0)


@dataclass
class FakeDatabase:
    """What is true of the server now."""

    facts: ServerFacts = FACTS
    paths: tuple[DataPath, ...] = (DataPath("datadir", FACTS.datadir, must_share=True),)
    missing: tuple[str, ...] = ()
    lost: dict[str, int] = field(default_factory=dict)  # tablespaces that it has beside those that its datadir shows
    unsafe: tuple[str, ...] = ()  # tables of engines without a log
    running: tuple[Blocker, ...] = ()  # what others do; anything here is waited for by a lock
    lag_seconds: float | None = None
    lsn: int | None = None  # that its redo log has reached
    replication: Replication = NO_REPLICA
    membership: Membership | None = None
    may_ask_membership: bool = True
    refuses_start: bool = False  # of an applier
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))  # that make it write its dirty pages
    refuses_settings: bool = False
    dirty_pages: int = 5000
    refuses_lock: bool = False
    loses_lock: bool = False  # the next block's lock is gone before its end
    fails_at: int | None = None  # this call, counted from 1, fails; so do all after it
    locked: bool = False
    offset: int = 1000
    binlog_number: int = 1
    calls: int = 0
    rows: list[tuple[str, str]] = field(default_factory=list)  # the canary's: run id, moment

    def become_replica(self, appliers: Mapping[str, bool]) -> None:
        """With these channels, and whether the applier of each runs."""
        self.facts = replace(self.facts, is_replica=True)
        self.replication = replace(
            self.replication,
            channels=tuple(
                Channel(name, receiving=True, applying=applies, lag_seconds=0.0, by_gtid=True, until=False)
                for name, applies in appliers.items()
            ),
        )

    def appliers(self) -> dict[str, bool]:
        """Each channel's name, and whether its applier runs."""
        return {one.name: one.applying for one in self.replication.channels}

    def set_appliers(self, names: Sequence[str], *, applying: bool) -> None:
        """START or STOP REPLICA SQL_THREAD for each of these."""
        found = self.replication.channels
        changed = tuple(replace(one, applying=applying) if one.name in names else one for one in found)
        self.replication = replace(self.replication, channels=changed)

    def write(self) -> bool:
        """Commit something. False: it would stall, or the server is read-only."""
        if self.locked or self.facts.read_only:
            return False
        self.offset += 100
        return True

    def end_lock_session(self) -> None:
        """Somebody KILLs the session that holds the lock."""
        self.locked = False
        self.loses_lock = True

    def position(self) -> Position:
        """Where it stands; a binlog that is off has no position."""
        if self.facts.binlog_basename is None:
            return Position()
        return Position(f"{self.facts.binlog_basename.name}.{self.binlog_number:06}", self.offset, f"0-1-{self.offset}")

    def called(self) -> None:
        """Every use of the server counts.

        Raises:
            ServerError: from call `fails_at` on.
        """
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise ServerError("cannot connect to the server at a fake", hint="is the server running?")


class FakeServer:
    """The contract's `Server`."""

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def facts(self) -> ServerFacts:
        self.database.called()
        return self.database.facts

    def data_paths(self, facts: ServerFacts) -> tuple[DataPath, ...]:
        self.database.called()
        return self.database.paths

    def tablespaces(self, facts: ServerFacts) -> Mapping[str, int]:
        self.database.called()
        found = facts.datadir.rglob("*.ibd")
        return {str(file.relative_to(facts.datadir)): file.stat().st_ino for file in found} | self.database.lost

    def unsafe_tables(self, facts: ServerFacts) -> tuple[str, ...]:
        self.database.called()
        return self.database.unsafe

    def missing_grants(self, strategy: str, *, stop_applier: bool = False, preflush: bool = False) -> tuple[str, ...]:
        self.database.called()
        return self.database.missing

    def blockers(self, older_than_seconds: float) -> tuple[Blocker, ...]:
        self.database.called()
        return tuple(one for one in self.database.running if one.seconds > older_than_seconds)

    def replica_lag_seconds(self) -> float | None:
        self.database.called()
        return self.database.lag_seconds

    def replication(self) -> Replication:
        self.database.called()
        return self.database.replication

    def membership(self) -> Membership | None:
        self.database.called()
        if not self.database.may_ask_membership:
            raise ServerError("the account may not ask", hint="GRANT SELECT")
        return self.database.membership


@dataclass
class FakeWorkCounters:
    """The contract's `WorkCounters`: a clock of its own, by which a second passes between two looks.

    Looks come from a thread of the run, whenever it gets to it: they are no calls of the database.
    """

    looks: int = 0
    done: Callable[[int], int] = lambda look: 100 * look  # transactions by this look, counted from 1
    is_gone: bool = False
    is_open: bool = False

    def look(self) -> Count:
        self.looks += 1
        if self.is_gone:
            self.close()
            raise ServerError("cannot connect to the server at a fake", hint="is the server running?")
        self.is_open = True
        return Count(time.monotonic(), 3600 + int(time.monotonic()), self.done(self.looks), 0, 0)

    def close(self) -> None:
        self.is_open = False


class FakeApplier:
    """The contract's `Applier`."""

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def running(self) -> tuple[str, ...]:
        self.database.called()
        return tuple(name for name, applies in self.database.appliers().items() if applies)

    def server(self) -> Mapping[str, str]:
        self.database.called()
        return {name: self.database.settings[name] for name in (DATADIR, HOSTNAME, PORT, SERVER_ID, UPTIME, AT)}

    def stop(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        assert is_same(of, self.server())
        if self.database.replication.open_temporary_tables:
            raise ServerError("the replica's applier had temporary tables open", hint="wait")
        self.database.set_appliers(channels, applying=False)

    def start(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        now = self.server()
        if has_identity(of) and (words := on_another(of, now, changed="the applier was stopped", remedy="START it")):
            log.warning("%s", words)
            return
        self.database.called()
        if self.database.refuses_start:
            raise ServerError("the replica's applier could not be restarted", hint="START REPLICA")
        self.database.set_appliers(channels, applying=True)


class FakeFlusher:
    """The contract's `Flusher`: one setting follows the other, as on a real server, and no page is left behind."""

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def settings(self) -> Mapping[str, str]:
        self.database.called()
        return dict(self.database.settings)

    def flush(self) -> Preflush:
        self.set_setting(MAX_DIRTY, 0.0)
        before, self.database.dirty_pages = self.database.dirty_pages, FEW_PAGES
        return Preflush(before, FEW_PAGES, 4.0, PreflushEnd.FEW)

    def put_back(self, saved: Mapping[str, str]) -> None:
        for name, value in restoration(saved, self.settings()).values:
            self.set_setting(name, value)

    def set_setting(self, name: str, value: float) -> None:
        self.database.called()
        if self.database.refuses_settings:
            raise ServerError("the server refused: SET GLOBAL", hint="grant it")
        settings = self.database.settings
        settings[name] = f"{value:f}"
        settings[LOW_WATER_MARK] = f"{min(float(settings[name]) for name in (MAX_DIRTY, LOW_WATER_MARK)):f}"


class FakeHeldLock:
    """The contract's `HeldLock`."""

    def __init__(self, position: Position, receipt: LockReceipt) -> None:
        self.position = position
        self.receipt = receipt
        self.reached_lsn: int | None = None


class FakeLock:
    """The contract's `Lock`. `clock` tells how long it was held, for stories that look at the receipt."""

    def __init__(
        self, database: FakeDatabase, *, strategy: str = "ftwrl", tries: int = 3, clock: Callable[[], float] = float
    ) -> None:
        self.database = database
        self.strategy = strategy
        self._tries = tries
        self._clock = clock

    @contextmanager
    def held(self, of: Path) -> Iterator[FakeHeldLock]:
        self.database.called()
        if of != self.database.facts.datadir:
            raise ServerError(f"the server that answers is not that of {of}", hint="set the host's socket")
        if self.strategy == UNLOCKED:
            yield FakeHeldLock(Position(), LockReceipt(UNLOCKED, 0, 0.0, 0.0, UNPROVEN, 4711))
            return
        if self.database.refuses_lock or self.database.running:
            raise LockNotGranted(f"{self.strategy} was not granted in {self._tries} tries", hint="wait")
        self.database.locked, self.database.loses_lock = True, self.database.loses_lock
        began, before = self._clock(), self.database.position()
        held = FakeHeldLock(before, LockReceipt(self.strategy, 1, 0.001, 0.0, "session and position", 4711))
        proven = False
        try:
            yield held
            proven = not (self.database.loses_lock or self.database.position() != before)
        finally:
            self.database.locked = False
            held.reached_lsn = self.database.lsn
            proof = held.receipt.proof if proven else UNPROVEN
            held.receipt = replace(held.receipt, hold_seconds=self._clock() - began, proof=proof)
        if not proven:
            raise LockLost("the lock was lost while it was needed: the session that held it has ended")


class FakeCanary:
    """The contract's `Canary`."""

    table = "backupd_canary.canary"

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def before(self, run_id: str) -> None:
        self._insert(run_id, "before")

    def after(self, run_id: str) -> None:
        self._insert(run_id, "after")

    def _insert(self, run_id: str, moment: str) -> None:
        self.database.called()
        if not self.database.write():
            raise ServerError("the server is read-only", hint="set canary = false for this host")
        self.database.rows.append((run_id, moment))
