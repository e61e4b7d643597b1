"""What the lock, the server's answers and the canary promise: the fake of the story tests, and a real MariaDB."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from backupd.config import LockConfig
from backupd.mysql import Canary, Lock, Server
from backupd.mysql.canary import MysqlCanary, moments
from backupd.mysql.grants import grant_script
from backupd.mysql.locks import ServerLock
from backupd.mysql.replication import ReplicaApplier
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Session, StatementError
from backupd.vocabulary.errors import LockLost, LockNotGranted, ServerError
from backupd.vocabulary.servers import Blocker
from tests.contract.mariadb import MariadbServer, lock_sessions, mysql_server, running
from tests.fakes.server import FakeCanary, FakeDatabase, FakeLock, FakeServer

__all__ = ["mysql_server"]

LIMITS = LockConfig(wait_timeout_seconds=1, hold_budget_seconds=5, tries=2, pause_seconds=0, blocker_age_seconds=0.05)
STALLED_SECONDS = 1.0  # a write that waits for a lock for so long is stalled; one to a slow disk is not
WAITS_FOR_LOCK = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s AND STATE LIKE 'Waiting for%%lock'"


class World(Protocol):
    """A server, and what a test can do to it."""

    server: Server
    lock: Lock
    canary: Canary
    datadir: Path

    def write(self) -> bool:
        """Whether a write comes through now."""

    def blocked(self) -> AbstractContextManager[None]:
        """Somebody runs a statement that a lock waits for."""

    def end_lock_session(self) -> None:
        """Somebody KILLs the session that holds the lock."""

    def without_canary(self) -> Canary:
        """A canary that the server does not let us write."""

    def canary_rows(self, run_id: str) -> tuple[str, ...]:
        """The moments that the canary's table has for a run."""


class FakeWorld:
    def __init__(self) -> None:
        self.database = FakeDatabase()
        self.server: Server = FakeServer(self.database)
        self.lock: Lock = FakeLock(self.database)
        self.canary: Canary = FakeCanary(self.database)
        self.datadir = self.database.facts.datadir
        self.write = self.database.write
        self.end_lock_session = self.database.end_lock_session

    @contextmanager
    def blocked(self) -> Iterator[None]:
        self.database.running = (Blocker(9, "app", 60.0, "UPDATE t SET v = 1"),)
        yield
        self.database.running = ()

    def without_canary(self) -> Canary:
        self.database.facts = replace(self.database.facts, read_only=True)
        return self.canary

    def canary_rows(self, run_id: str) -> tuple[str, ...]:
        return tuple(moment for run, moment in sorted(self.database.rows, reverse=True) if run == run_id)


class RealWorld:
    def __init__(self, mariadb: MariadbServer, strategy: str) -> None:
        self.mariadb = mariadb
        self.server: Server = MysqlServer(mariadb.connect())
        self.lock: Lock = ServerLock(mariadb.connect(), LIMITS, strategy=strategy)
        self.canary: Canary = MysqlCanary(mariadb.connect())
        self.datadir = mariadb.datadir

    def write(self) -> bool:
        return all(self._comes_through(table) for table in ("innodb", "myisam", "aria"))

    def _comes_through(self, table: str) -> bool:
        """One that the server lets wait for a lock is given up."""
        with self.mariadb.session() as writer, self.mariadb.session() as observer, ThreadPoolExecutor(1) as beside:
            written = beside.submit(writer.execute, f"INSERT INTO t.{table} (v) VALUES ('w')")
            goes_on = time.monotonic()
            while not written.done() and time.monotonic() - goes_on < STALLED_SECONDS:
                if observer.value(WAITS_FOR_LOCK, writer.connection_id) == "0":
                    goes_on = time.monotonic()
                time.sleep(0.01)
            is_stalled = not written.done()
            if is_stalled:
                observer.kill(writer.connection_id)
            try:
                written.result()
            except StatementError:
                if is_stalled:
                    return False
                raise
        return True

    @contextmanager
    def blocked(self) -> Iterator[None]:
        with running(self.mariadb, "UPDATE t.myisam SET v = SLEEP(50) WHERE id = 1"):
            yield

    def end_lock_session(self) -> None:
        with self.mariadb.session() as session:
            session.kill(lock_sessions(self.mariadb)[0])

    def without_canary(self) -> Canary:
        return MysqlCanary(self.mariadb.account("nocanary", grant_script("nocanary", canary=False)))

    def canary_rows(self, run_id: str) -> tuple[str, ...]:
        with self.mariadb.session() as session:
            return moments(session, run_id)


@pytest.fixture(params=["fake", "ftwrl", "backup-stage"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        return FakeWorld()
    return RealWorld(request.getfixturevalue("mysql_server"), request.param)


def test_writes_stall_while_it_is_held_and_go_on_after(world: World) -> None:
    with world.lock.held(world.datadir):
        assert not world.write()
    assert world.write()


def test_the_server_of_another_datadir_is_not_locked(world: World) -> None:
    with pytest.raises(ServerError) as caught, world.lock.held(Path("/srv/another")):
        raise AssertionError("granted")
    assert "server that answers" in caught.value.message
    assert caught.value.hint
    assert world.write()


def test_no_server_is_locked_by_whoever_does_not_say_whose_it_is(world: World) -> None:
    with pytest.raises(TypeError):
        world.lock.held()  # type: ignore[call-arg]
    assert world.write()


def test_the_server_of_the_datadir_that_it_named_is_locked(world: World) -> None:
    with world.lock.held(world.server.facts().datadir):
        assert not world.write()


def test_its_position_is_where_the_server_stood(world: World) -> None:
    with world.lock.held(world.datadir) as first:
        pass
    with world.lock.held(world.datadir) as second:
        assert second.position == first.position
    assert world.write()
    with world.lock.held(world.datadir) as third:
        assert third.position != first.position


def test_its_receipt_tells_what_it_cost_when_the_block_failed_too(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.lock.held(world.datadir) as held:
        raise ZeroDivisionError
    assert (held.receipt.strategy, held.receipt.tries, held.receipt.proof) == (world.lock.strategy, 1, "none")
    assert 0 <= held.receipt.hold_seconds < LIMITS.hold_budget_seconds


def test_its_receipt_tells_what_it_cost(world: World) -> None:
    with world.lock.held(world.datadir) as held:
        pass
    assert held.receipt.strategy == world.lock.strategy
    assert held.receipt.tries == 1
    assert 0 <= held.receipt.hold_seconds < LIMITS.hold_budget_seconds
    assert held.receipt.lsn is not None


def test_it_is_not_granted_behind_a_long_write_and_nothing_stays_locked(world: World) -> None:
    with world.blocked(), pytest.raises(LockNotGranted, match="not granted"), world.lock.held(world.datadir):
        raise AssertionError("granted")
    assert world.write()


def test_what_it_would_wait_behind_is_told(world: World) -> None:
    assert world.server.blockers(0.05) == ()
    with world.blocked():
        (blocker,) = world.server.blockers(0.05)
        assert blocker.statement.startswith("UPDATE")
        assert world.server.blockers(3600) == ()


def test_a_lock_whose_session_was_killed_is_lost(world: World) -> None:
    with pytest.raises(LockLost), world.lock.held(world.datadir):
        world.end_lock_session()
    assert world.write()


def test_an_error_in_the_block_gives_it_back_and_goes_on(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.lock.held(world.datadir):
        raise ZeroDivisionError
    assert world.write()


def test_the_facts_are_those_of_a_server(world: World) -> None:
    facts = world.server.facts()
    assert str(facts.version_number[0]) in facts.version
    assert facts.datadir in {path.path for path in world.server.data_paths(facts)}
    assert world.server.missing_grants(world.lock.strategy) == ()
    assert world.server.replica_lag_seconds() is None
    assert world.server.replication().channels == ()
    assert (facts.cluster, world.server.membership()) == (None, None)


def test_the_canary_leaves_one_row_before_and_one_after(world: World, request: pytest.FixtureRequest) -> None:
    run_id = request.node.name[-64:]
    world.canary.before(run_id)
    assert world.canary_rows(run_id) == ("before",)
    world.canary.after(run_id)
    assert world.canary_rows(run_id) == ("before", "after")


def test_a_canary_that_cannot_be_written_is_a_server_error(world: World) -> None:
    with pytest.raises(ServerError):
        world.without_canary().before("run-d")


def test_no_question_of_ours_and_no_applier_is_under_the_limit_of_time_for_clients(
    mysql_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To list a million tablespaces, or to wait for a replica's applier, takes longer than any client may."""
    limits: list[str | None] = []
    asked = Session.variables

    def seen(session: Session) -> Mapping[str, str]:
        limits.append(session.value("SELECT @@SESSION.max_statement_time"))
        return asked(session)

    monkeypatch.setattr(Session, "variables", seen)
    with mysql_server.session() as root:
        root.execute("SET GLOBAL max_statement_time = 30")
        try:
            server = MysqlServer(mysql_server.connect())
            facts = server.facts()
            server.data_paths(facts)
            server.tablespaces(facts)
            applier = ReplicaApplier(mysql_server.connect(), temporary_tables_wait_seconds=0)
            identity = applier.server()
            applier.stop((), of=identity)
            applier.start((), of=identity)
        finally:
            root.execute("SET GLOBAL max_statement_time = DEFAULT")
    assert len(limits) >= 6
    assert set(limits) == {"0.000000"}


def test_the_server_names_each_tablespace_it_has_a_moment_after_it_was_started(mysql_server: MariadbServer) -> None:
    """By its file, opened yet or not; a table in the system tablespace, and one of another engine, has none."""
    with mysql_server.session() as root:
        root.execute("CREATE DATABASE named")
        root.execute("CREATE TABLE named.`odd name` (id INT PRIMARY KEY)")
        root.execute(
            "CREATE TABLE named.parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
            " (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"
        )
        root.execute("CREATE TABLE named.words (v TEXT, FULLTEXT (v))")
        root.execute("SET GLOBAL innodb_file_per_table = OFF")
        root.execute("CREATE TABLE named.inside (id INT PRIMARY KEY)")
        root.execute("SET GLOBAL innodb_file_per_table = ON")
        root.execute("CREATE TEMPORARY TABLE named.passing (id INT PRIMARY KEY)")
        before = MysqlServer(mysql_server.connect()).tablespaces(MysqlServer(mysql_server.connect()).facts())
        root.execute("TRUNCATE named.parts")
        root.execute("DROP TABLE named.words")
    try:
        mysql_server.stop()
        mysql_server.start()
        server = MysqlServer(mysql_server.connect())
        after = server.tablespaces(server.facts())
        files = {str(file.relative_to(mysql_server.datadir)) for file in mysql_server.datadir.rglob("*.ibd")}
        assert set(after) == files
        assert {"named/odd@0020name.ibd", "named/parts#P#p0.ibd", "t/innodb.ibd"} <= files
        assert before["named/parts#P#p0.ibd"] != after["named/parts#P#p0.ibd"], "it was made anew"
        assert before["t/innodb.ibd"] == after["t/innodb.ibd"]
        assert "named/words.ibd" in before
    finally:
        with mysql_server.session() as root:
            root.execute("DROP DATABASE named")
