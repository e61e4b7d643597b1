"""Every way in which a lock is not granted or is lost, on real servers: nothing is kept, nothing left, nobody stalled.

A client writes all along; its longest write is measured, and the time for which the host itself stood still taken off.
`none` is missing here: where nothing is locked, nothing can be lost.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from backupd.config import LockConfig
from backupd.mysql.grants import grant_script
from backupd.mysql.locks import ServerLock
from backupd.mysql.session import Login, connector
from backupd.vocabulary.errors import LockLost, LockNotGranted, ServerError
from tests.contract.mariadb import PASSWORD, wait_until
from tests.docker.containers import ServerContainer
from tests.docker.heartbeat import Heartbeat, awaited, beating
from tests.docker.in_the_way import locked_table, long_read, long_write, unfinished_alter
from tests.docker.severing import Proxy, between

LOCKS = [
    ("mariadb-10.11", "ftwrl"),
    ("mariadb-10.11", "backup-stage"),
    ("mariadb-11", "ftwrl"),
    ("mariadb-11", "backup-stage"),
    ("mysql-9", "ftwrl"),
]
pytestmark = pytest.mark.parametrize(("kind", "strategy"), LOCKS, indirect=["kind"], scope="session")

USER = "locker"
LIMITS = LockConfig(wait_timeout_seconds=1, hold_budget_seconds=1, tries=1, pause_seconds=0, blocker_age_seconds=3600)
PATIENT = replace(LIMITS, wait_timeout_seconds=30, hold_budget_seconds=30)  # what happens is not its own doing
AT_ONCE_SECONDS = 5  # a busy host's, and long before PATIENT would do anything
TOLERATED_SECONDS = 0.1
HOLDER = f"""
import os, signal, sys, time
from pathlib import Path
from backupd.vocabulary.errors import LockLost
from backupd.config import LockConfig
from backupd.mysql.locks import ServerLock
from backupd.mysql.session import Login, connector
login = Login("{USER}", socket=Path(sys.argv[1]), password="{PASSWORD}")
try:
    lock = ServerLock(connector(login), LockConfig(hold_budget_seconds=1), strategy=sys.argv[2])
    asked = time.monotonic()
    with lock.held(Path(sys.argv[3])):
        print(time.monotonic() - asked, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
except LockLost as error:
    print(error.message)
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A server that somebody writes to, and what stands between us and it."""

    server: ServerContainer
    strategy: str
    proxy: Proxy
    heartbeat: Heartbeat
    kept: list[str] = field(default_factory=list)  # snapshots

    def run(self, during: Callable[[], object] = lambda: None, limits: LockConfig = LIMITS) -> None:
        """Take a snapshot under the lock, as a run does: it stays only where the lock's end says so."""
        login = Login(USER, socket=self.proxy.path, password=PASSWORD)
        with ExitStack() as owed:
            with ServerLock(connector(login), limits, strategy=self.strategy).held(self.server.datadir):
                self.kept.append("taken")
                owed.callback(self.kept.clear)
                during()
            owed.pop_all()

    def sessions(self) -> list[int]:
        """Ours, as the server lists them."""
        with self.server.session() as root:
            listed = root.query("SELECT ID AS id FROM information_schema.PROCESSLIST WHERE USER = %s", USER)
        return [int(row["id"] or 0) for row in listed]

    def holders(self) -> list[int]:
        """Those of them that hold a server-wide lock."""
        return self.server.holders(USER)

    def require_nothing_left(self, *, budget: float) -> None:
        """No snapshot, no lock, no session of ours; nobody was stalled beyond the budget, and everybody writes."""
        assert self.kept == []
        wait_until(lambda: not self.sessions())
        assert self.holders() == []
        awaited(self.heartbeat, 3)
        longest = self.heartbeat.longest_stall()
        assert longest.seconds <= budget + TOLERATED_SECONDS, longest


@pytest.fixture
def scene(server: ServerContainer, strategy: str) -> Iterator[Scene]:
    """With the documented grants and no other; commits do not wait for the disk, which is not what is measured."""
    server.account(USER, grant_script(USER, flavour=server.flavour, canary=False))
    with server.session() as root:
        root.execute("SET GLOBAL sync_binlog = 0, innodb_flush_log_at_trx_commit = 2")
    with between(server.socket, server.folder / "proxy") as proxy, beating(server) as heartbeat:
        yield Scene(server, strategy, proxy, heartbeat)
    with server.session() as root:
        root.execute("SET GLOBAL sync_binlog = 1, innodb_flush_log_at_trx_commit = 1")


# --- what it may have to wait for ------------------------------------------------------------------------------------


# 11.8.6 lets go of the metadata lock while such an ALTER waits; MySQL alone has its lock wait for reads.
PASSED: dict[str, dict[str, tuple[object, ...]]] = {
    "mariadb-10.11": {"ftwrl": (long_read,), "backup-stage": (long_read,)},
    "mariadb-11": {"ftwrl": (long_read,), "backup-stage": (long_read, unfinished_alter)},
    "mysql-9": {"ftwrl": ()},
}


@pytest.mark.parametrize("in_the_way", [long_read, long_write, unfinished_alter, locked_table])
def test_what_is_in_its_way_makes_it_give_up_within_its_wait_and_what_is_not_is_passed(
    scene: Scene, in_the_way: Callable[[ServerContainer], AbstractContextManager[object]]
) -> None:
    with in_the_way(scene.server):
        if in_the_way in PASSED[scene.server.kind][scene.strategy]:
            scene.run()
            assert scene.kept.pop() == "taken"
        else:
            with pytest.raises(LockNotGranted):
                scene.run()
        scene.require_nothing_left(budget=LIMITS.wait_timeout_seconds)


def test_a_request_behind_what_begins_at_that_moment_is_taken_back_in_time(scene: Scene) -> None:
    """After the look for what is in the way: the server's own time-out ends it."""
    with at_its_request(scene, long_write), pytest.raises(LockNotGranted, match="did not grant it within"):
        scene.run()
    scene.require_nothing_left(budget=LIMITS.wait_timeout_seconds)


@contextmanager
def at_its_request(
    scene: Scene, in_the_way: Callable[[ServerContainer], AbstractContextManager[object]]
) -> Iterator[threading.Event]:
    """What is in the way begins when the lock is asked for, just before. The event: it has."""
    with ExitStack() as lasting:
        begun = threading.Event()

        def begin(said: bytes) -> None:
            if not begun.is_set() and (b"WITH READ LOCK" in said or b"BACKUP STAGE START" in said):
                lasting.enter_context(in_the_way(scene.server))
                begun.set()

        scene.proxy.seen = begin
        yield begun


@pytest.mark.parametrize("fault", ["killed", "cut"])
def test_a_session_that_ends_while_it_waits_is_a_server_error(scene: Scene, fault: str) -> None:
    with at_its_request(scene, long_write) as begun:
        end = threading.Thread(target=waiting_ends, args=(scene, fault, begun))
        end.start()
        with pytest.raises(ServerError) as failed:
            scene.run(limits=PATIENT)
        end.join()
    assert not isinstance(failed.value, LockLost | LockNotGranted)
    scene.require_nothing_left(budget=AT_ONCE_SECONDS)


def waiting_ends(scene: Scene, fault: str, begun: threading.Event) -> None:
    """As soon as the server says that a session of ours waits."""
    assert begun.wait(60)
    waits = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s AND STATE LIKE 'Waiting%%'"
    with scene.server.session() as root:
        wait_until(lambda: root.value(waits, USER) is not None)
        if fault == "killed":
            root.kill(int(root.value(waits, USER) or 0))
        else:
            scene.proxy.links[0].cut()


# --- what may happen while it is held --------------------------------------------------------------------------------


def test_it_is_held_proven_and_given_back_where_nothing_happens(scene: Scene) -> None:
    """Else none of the others would say anything."""
    scene.run(lambda: wait_until(lambda: len(scene.holders()) == 1), PATIENT)
    assert scene.kept.pop() == "taken"
    scene.require_nothing_left(budget=AT_ONCE_SECONDS)


def test_a_killed_session_is_a_lost_lock(scene: Scene) -> None:
    def kill() -> None:
        with scene.server.session() as root:
            for holder in scene.holders():
                root.kill(holder)

    with pytest.raises(LockLost, match="the session that held it has ended"):
        scene.run(kill, PATIENT)
    scene.require_nothing_left(budget=AT_ONCE_SECONDS)


def test_a_dropped_connection_is_a_lost_lock(scene: Scene) -> None:
    """The watchdog's too: nobody is left who could KILL."""

    def drop() -> None:
        for link in scene.proxy.links:
            link.cut()

    with pytest.raises(LockLost, match="the session that held it has ended"):
        scene.run(drop, PATIENT)
    scene.require_nothing_left(budget=AT_ONCE_SECONDS)


@pytest.mark.parametrize("links", [1, 2], ids=["the lock's", "and the watchdog's"])
def test_a_connection_on_which_nothing_arrives_any_more_is_a_lost_lock(scene: Scene, links: int) -> None:
    """Neither end notices. Where the watchdog's KILL does not arrive either, the server ends the silent session."""

    def swallow() -> None:
        for link in scene.proxy.links[:links]:
            link.swallow()

    with pytest.raises(LockLost):
        scene.run(swallow)
    scene.require_nothing_left(budget=LIMITS.hold_budget_seconds)


def test_an_answer_from_another_session_is_a_lost_lock(scene: Scene) -> None:
    """As when something between us and the server has connected anew."""

    def reconnect() -> None:
        scene.proxy.links[0].lead_to(another_session(scene.server))
        wait_until(lambda: not scene.holders())

    with pytest.raises(LockLost):
        scene.run(reconnect, PATIENT)  # else the link may have ended before it is led elsewhere
    scene.require_nothing_left(budget=AT_ONCE_SECONDS)


def another_session(server: ServerContainer) -> socket.socket:
    """A connection of our account on which the login is over."""
    connection: Any = pymysql.connect(
        user=USER, password=PASSWORD, unix_socket=str(server.socket), client_flag=CLIENT.MULTI_STATEMENTS
    )
    taken = socket.socket(fileno=os.dup(connection._sock.fileno()))
    connection._force_close()  # without the word that ends the session
    return taken


def test_beyond_its_budget_it_is_a_lost_lock(scene: Scene) -> None:
    with pytest.raises(LockLost, match="and the watchdog killed it"):
        scene.run(lambda: wait_until(lambda: not scene.holders()))
    scene.require_nothing_left(budget=LIMITS.hold_budget_seconds)


def test_a_server_that_was_killed_and_started_anew_is_a_lost_lock(scene: Scene) -> None:
    with pytest.raises(LockLost):
        scene.run(lambda: scene.server.restart(signal.SIGKILL), replace(LIMITS, hold_budget_seconds=10))
    scene.server.add_tables()  # a MyISAM table may not have survived
    with scene.server.session() as root:
        root.execute("CREATE TABLE t.heartbeat (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    scene.require_nothing_left(budget=10)


def test_a_process_of_ours_that_stands_still_is_a_lost_lock(scene: Scene) -> None:
    """The server ends the silent session, and does not wait for us."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(scene.server.socket), scene.strategy, str(scene.server.datadir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        wait_until(lambda: stands_still(holder.pid))  # as it does under the lock, which is soon lost
        wait_until(lambda: not scene.holders())
        assert holder.poll() is None
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate(timeout=60)
    finally:
        holder.kill()
        holder.wait()
    taking, _, error = said.partition("\n")
    assert "the lock was lost while it was needed" in error
    # HOLDER's. The server counts from our last statement; what the statements before it took comes on top.
    scene.require_nothing_left(budget=1 + float(taking))


def stands_still(pid: int) -> bool:
    """It was stopped (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
