"""What only a real server can show: every way in which a lock ends, is lost, or is not granted."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import LockConfig
from backupd.host.signals import cancellable
from backupd.mysql.activity import blockers
from backupd.mysql.locks import STRATEGIES, ServerLock
from backupd.mysql.locksession import LockSession, NotGranted, Strategy
from backupd.mysql.session import Session
from backupd.mysql.unlocked import NoLock
from backupd.vocabulary.errors import Cancelled, LockLost, LockNotGranted, ServerError
from backupd.vocabulary.servers import Flavour, Position
from tests.contract.mariadb import MariadbServer, lock_sessions, mysql_server, running, wait_until

__all__ = ["mysql_server"]

LIMITS = LockConfig(wait_timeout_seconds=1, hold_budget_seconds=20, tries=1, pause_seconds=0, blocker_age_seconds=3600)
BUDGET = 1.2  # of a lock that is to last too long: a busy disk's flush fits in, and 2 s are the server's own time-out

WAITING = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for%lock'"

HOLDER = """
import os, signal, sys
from pathlib import Path
from backupd.vocabulary.errors import LockLost
from backupd.config import LockConfig
from backupd.mysql.locks import ServerLock
from backupd.mysql.session import Login, connector
try:
    lock = ServerLock(connector(Login("root", socket=Path(sys.argv[1]))), LockConfig(hold_budget_seconds=1))
    with lock.held(Path(sys.argv[2])):
        os.kill(os.getpid(), signal.SIGSTOP)
except LockLost as error:
    print(error.message)
"""


@pytest.fixture
def observer(mysql_server: MariadbServer) -> Iterator[Session]:
    with mysql_server.session() as session:
        yield session


@pytest.fixture(params=sorted(STRATEGIES))
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def hold(lock: ServerLock, mariadb: MariadbServer, during: Callable[[], object]) -> None:
    with lock.held(mariadb.datadir):
        during()


def sessions(observer: Session) -> set[int]:
    """All but the observer's own. One that was closed may be there for a moment still: the server ends it by itself."""
    rows = observer.query("SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()")
    return {int(row["ID"] or 0) for row in rows}


def state_of(process: "subprocess.Popen[str]") -> str:
    """Of a child that nobody has waited for: `T` is stopped, `Z` has ended; see proc(5)."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def inserted_at_once(mariadb: MariadbServer, *tables: str) -> bool:
    with mariadb.session() as session:
        session.execute("SET SESSION lock_wait_timeout = 1")
        for table in tables:
            session.execute(f"INSERT INTO t.{table} (v) VALUES ('w')")
    return True


@pytest.mark.thorough
def test_past_its_budget_the_watchdog_ends_it_though_the_block_goes_on(
    mysql_server: MariadbServer, strategy: str
) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, hold_budget_seconds=BUDGET), strategy=strategy)
    asked = time.monotonic()

    def outlast() -> None:
        wait_until(lambda: not lock_sessions(mysql_server))
        assert BUDGET <= time.monotonic() - asked < 20
        assert inserted_at_once(mysql_server, "innodb", "myisam", "aria")

    with pytest.raises(LockLost, match=rf"longer than {BUDGET} s, and the watchdog killed it"):
        hold(lock, mysql_server, outlast)


def test_what_the_watchdog_ended_was_held_no_longer_though_the_block_went_on(
    mysql_server: MariadbServer, caplog: pytest.LogCaptureFixture
) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, hold_budget_seconds=BUDGET))
    began = time.monotonic()
    with caplog.at_level(logging.INFO), pytest.raises(LockLost), lock.held(mysql_server.datadir) as held:
        wait_until(lambda: not lock_sessions(mysql_server))
        ended = time.monotonic() - began
        wait_until(lambda: time.monotonic() - began > 3 * ended)
    assert (BUDGET <= held.receipt.hold_seconds < 2 * ended, held.receipt.proof) == (True, "none")
    assert f"held for {held.receipt.hold_seconds:.3f} s; not confirmed" in caplog.text


def test_the_watchdog_ends_it_even_when_its_own_session_is_gone(
    mysql_server: MariadbServer, observer: Session, strategy: str
) -> None:
    before = sessions(observer)
    budget = 1.0 + BUDGET  # a second more, in which the watchdog's session is found and killed
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, hold_budget_seconds=budget), strategy=strategy)

    def outlast_without_watchdog() -> None:
        (holder,) = lock_sessions(mysql_server)
        wait_until(lambda: len(sessions(observer) - before) == len(("holder", "watchdog")))
        (watchdog,) = sessions(observer) - before - {holder}
        with mysql_server.session() as session:
            session.kill(watchdog)
        wait_until(lambda: not lock_sessions(mysql_server))

    with pytest.raises(LockLost, match="watchdog killed it"):
        hold(lock, mysql_server, outlast_without_watchdog)


def test_an_error_in_a_block_that_had_lost_its_lock_says_so(mysql_server: MariadbServer) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, hold_budget_seconds=BUDGET))

    def outlast_and_fail() -> None:
        wait_until(lambda: not lock_sessions(mysql_server))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failed:
        hold(lock, mysql_server, outlast_and_fail)
    assert "the lock had already been lost" in failed.value.__notes__[0]


def test_when_the_whole_process_is_stopped_the_server_ends_it(mysql_server: MariadbServer) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(mysql_server.socket), str(mysql_server.datadir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: state_of(holder) in "TZ")  # it stops itself once it has the lock
        wait_until(lambda: not lock_sessions(mysql_server))
        assert state_of(holder) == "T"
        os.kill(holder.pid, signal.SIGCONT)
        said, _ = holder.communicate(timeout=20)
    finally:
        holder.kill()
        holder.wait()
    assert "the lock was lost while it was needed" in said


def test_a_cancellation_while_it_waits_leaves_no_session(
    mysql_server: MariadbServer, observer: Session, strategy: str
) -> None:
    """MySQL's books, which MariaDB has too, call its thread another name, and what it does no command of a client's."""
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, wait_timeout_seconds=30), strategy=strategy)
    with running(mysql_server, "UPDATE t.myisam SET v = SLEEP(50) WHERE id = 1"):
        before = sessions(observer)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        with cancellable(), pytest.raises(Cancelled):
            timer.start()  # where the signal comes before it would end the tests
            with lock.held(mysql_server.datadir):
                raise AssertionError("granted")
        timer.join()
        wait_until(lambda: not sessions(observer) - before)
        assert inserted_at_once(mysql_server, "innodb", "aria")


def test_it_is_not_granted_while_an_alter_waits_for_its_table(mysql_server: MariadbServer, strategy: str) -> None:
    lock = ServerLock(mysql_server.connect(), LIMITS, strategy=strategy)
    with (
        altering(mysql_server),
        pytest.raises(LockNotGranted, match="did not grant it within"),
        lock.held(mysql_server.datadir),
    ):
        raise AssertionError("granted")
    assert inserted_at_once(mysql_server, "innodb", "myisam", "aria")


@contextmanager
def altering(mariadb: MariadbServer) -> Iterator[None]:
    """An ALTER TABLE that waits for its last step, because a reader has not ended its transaction."""
    with mariadb.session() as reader:
        reader.execute("START TRANSACTION")
        reader.query("SELECT * FROM t.innodb LIMIT 1")
        with running(mariadb, "ALTER TABLE t.innodb ADD COLUMN n INT, ALGORITHM = COPY"), mariadb.session() as observer:
            waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%%metadata lock'"
            wait_until(lambda: observer.value(waiting) == "1")
            yield


def test_it_is_not_granted_while_somebody_holds_a_table_and_others_can_write_meanwhile(
    mysql_server: MariadbServer, strategy: str
) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, tries=2), strategy=strategy)
    with mysql_server.session() as other:
        other.execute("LOCK TABLES t.myisam WRITE")
        with pytest.raises(LockNotGranted, match="in 2 tries"), lock.held(mysql_server.datadir):
            raise AssertionError("granted")
        assert lock_sessions(mysql_server) == []
        assert inserted_at_once(mysql_server, "innodb", "aria")


def test_a_wait_beyond_the_servers_own_time_out_is_ended_by_the_watchdog(mysql_server: MariadbServer) -> None:
    endless = Strategy("endless", ("DO SLEEP(50)",), "DO 1")
    with LockSession.opened(mysql_server.connect(), endless, LIMITS, of=mysql_server.datadir) as session:
        answer = session.ask()
    assert isinstance(answer, NotGranted)
    assert LIMITS.wait_timeout_seconds < answer.waited_seconds < 25  # of 50


def test_a_long_read_delays_neither_lock_of_mariadb(mysql_server: MariadbServer, strategy: str) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, blocker_age_seconds=0.05), strategy=strategy)
    with (
        running(mysql_server, "SELECT SLEEP(50) FROM t.innodb"),
        running(mysql_server, "SELECT SLEEP(50) FROM t.myisam"),
        lock.held(mysql_server.datadir) as held,
    ):
        assert held.receipt.tries == 1


def test_no_lock_is_asked_for_behind_the_statement_of_a_scheduled_event(
    mysql_server: MariadbServer, observer: Session, strategy: str
) -> None:
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, blocker_age_seconds=0.05), strategy=strategy)
    work = "UPDATE t.myisam SET v = SLEEP(50) WHERE id = 1"
    at_work = f"SELECT ID AS id FROM information_schema.PROCESSLIST WHERE INFO = '{work}' AND TIME_MS > 100"
    told_of = "UPDATE performance_schema.setup_consumers SET ENABLED = '{}' WHERE NAME = 'events_statements_current'"
    observer.execute(told_of.format("YES"))
    observer.execute("SET GLOBAL event_scheduler = ON")
    observer.execute(f"CREATE EVENT t.nightly ON SCHEDULE AT NOW() DO {work}")
    try:
        wait_until(lambda: observer.one(at_work) is not None)
        with pytest.raises(LockNotGranted, match=r"UPDATE t\.myisam"), lock.held(mysql_server.datadir):
            raise AssertionError("granted")
        (found,) = blockers(observer, Flavour.MYSQL, older_than_seconds=0.05)
        assert found.statement == work
    finally:
        for row in observer.query(at_work):
            observer.kill(int(row["id"] or 0))
        observer.execute(told_of.format("NO"))
        observer.execute("SET GLOBAL event_scheduler = OFF")
        observer.execute("DROP EVENT IF EXISTS t.nightly")


def test_each_try_is_a_session_of_its_own_after_a_pause(
    mysql_server: MariadbServer, observer: Session, strategy: str
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        wait_until(lambda: not sessions(observer) - before)
        pauses.append(seconds)

    limits = LockConfig(tries=3, pause_seconds=7, blocker_age_seconds=0.05)
    with running(mysql_server, "UPDATE t.aria SET v = SLEEP(50) WHERE id = 1"):
        before = sessions(observer)
        lock = ServerLock(mysql_server.connect(), limits, strategy=strategy, pause=pause)
        with (
            pytest.raises(LockNotGranted, match=r"would be blocked by .*: UPDATE t\.aria"),
            lock.held(mysql_server.datadir),
        ):
            raise AssertionError("granted")
    assert pauses == [7, 7]


def test_a_limit_of_time_for_clients_ends_no_try_for_a_lock(
    mysql_server: MariadbServer, observer: Session, strategy: str
) -> None:
    """The request of MariaDB's lock is a statement like any other, and was ended by the server long before its wait."""
    pauses: list[float] = []
    lock = ServerLock(mysql_server.connect(), replace(LIMITS, tries=2), strategy=strategy, pause=pauses.append)
    with running(mysql_server, "UPDATE t.myisam SET v = SLEEP(50) WHERE id = 1"):
        observer.execute("SET GLOBAL max_statement_time = 0.2")
        try:
            with pytest.raises(LockNotGranted), lock.held(mysql_server.datadir):
                raise AssertionError("granted")
        finally:
            observer.execute("SET GLOBAL max_statement_time = DEFAULT")
    assert len(pauses) == 1


def test_a_server_that_moved_although_it_was_locked_is_a_lost_lock(mysql_server: MariadbServer, strategy: str) -> None:
    with (
        pytest.raises(LockLost, match="moved from"),
        ServerLock(mysql_server.connect(), LIMITS, strategy=strategy).held(mysql_server.datadir),
        mysql_server.session() as session,
    ):
        session.execute("FLUSH BINARY LOGS")


def test_the_servers_own_books_are_the_proof_where_we_may_read_them(mysql_server: MariadbServer, strategy: str) -> None:
    with ServerLock(mysql_server.connect(), LIMITS, strategy=strategy).held(mysql_server.datadir) as held:
        pass
    assert held.receipt.proof == "metadata-locks"


def test_the_receipt_tells_what_the_hold_was_for(mysql_server: MariadbServer, strategy: str) -> None:
    lock = ServerLock(mysql_server.connect(), LIMITS, strategy=strategy)
    with lock.held(mysql_server.datadir) as held:
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 1.0)  # all that is not told takes less, on a busy machine, too
        block_seconds = time.monotonic() - began
    receipt = held.receipt
    parts = (receipt.position_seconds, receipt.flush_seconds, receipt.proof_seconds, receipt.unlock_seconds)
    assert all(seconds > 0 for seconds in parts)
    assert receipt.hold_seconds / 2 < sum(parts) + block_seconds <= receipt.hold_seconds
    assert receipt.stalled == 0


def test_whoever_waits_behind_the_lock_is_counted(mysql_server: MariadbServer, strategy: str) -> None:
    with ExitStack() as writing:

        def write() -> None:
            for _ in range(3):
                (thread := threading.Thread(target=inserted_at_once, args=(mysql_server, "innodb"))).start()
                writing.callback(thread.join)
            with mysql_server.session() as session:
                wait_until(lambda: session.value(WAITING) == "3")

        lock = ServerLock(mysql_server.connect(), LIMITS, strategy=strategy)
        with lock.held(mysql_server.datadir) as held:
            write()
    assert held.receipt.stalled == 3


def test_a_server_that_does_not_tell_who_waits_takes_nothing_from_the_lock(
    mysql_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.locksession._UNDER_WAY", "SELECT COUNT(*) FROM nowhere.nothing")
    with ServerLock(mysql_server.connect(), LIMITS).held(mysql_server.datadir) as held:
        pass
    assert (held.receipt.proof, held.receipt.stalled) == ("metadata-locks", None)


def test_auto_is_the_strategy_that_waits_for_less(mysql_server: MariadbServer) -> None:
    assert ServerLock(mysql_server.connect(), LIMITS).strategy == "backup-stage"


def test_without_a_lock_nobody_waits_and_nothing_is_said_of_where_the_server_stands(
    mysql_server: MariadbServer, observer: Session
) -> None:
    before = sessions(observer)
    with NoLock(mysql_server.connect()).held(mysql_server.datadir) as held:
        wait_until(lambda: sessions(observer) <= before)  # no session of ours is left that could hold anything
        assert inserted_at_once(mysql_server, "innodb", "myisam", "aria")
    assert held.position == Position()
    assert (held.receipt.strategy, held.receipt.wait_seconds, held.receipt.hold_seconds) == ("none", 0.0, 0.0)
    assert held.receipt.lsn is not None


def test_without_a_lock_the_server_of_another_datadir_is_refused_too(mysql_server: MariadbServer) -> None:
    another = pytest.raises(ServerError, match=r"has its data in .*, not in /srv/another")
    with another, NoLock(mysql_server.connect()).held(Path("/srv/another")):
        raise AssertionError("held")


def test_nothing_is_logged_before_the_unlock(mysql_server: MariadbServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ServerLock(mysql_server.connect(), LIMITS).held(mysql_server.datadir):
        assert caplog.records == []
    assert "held for" in caplog.text


def test_no_child_inherits_the_session_that_holds_it(mysql_server: MariadbServer) -> None:
    with ServerLock(mysql_server.connect(), LIMITS).held(mysql_server.datadir):
        child = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
    assert "socket:" not in child.stdout


def test_a_server_that_is_gone_is_a_server_error(mysql_server: MariadbServer) -> None:
    gone = MariadbServer(mysql_server.folder / "gone")
    with pytest.raises(ServerError, match="cannot connect"), ServerLock(gone.connect(), LIMITS).held(gone.datadir):
        raise AssertionError("granted")
