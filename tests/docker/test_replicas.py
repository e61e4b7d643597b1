"""Real replication pairs: what a replica says of itself, its applier stopped and started, and its coordinates.

Every test leaves the replica's applier running. `pair` is a source and its replica, of each server in turn.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backupd.config import Configuration, HostConfig, JobConfig, LockConfig
from backupd.mysql.grants import grant_script
from backupd.mysql.locks import ServerLock
from backupd.mysql.replication import ReplicaApplier
from backupd.mysql.role import role_of
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Connect, Session
from backupd.operations.backup.replicas import of_replica
from backupd.operations.server_holdings import applier_holding
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.fleet import Role
from backupd.vocabulary.records import HoldingKind, Level
from backupd.vocabulary.servers import Flavour, Replication
from backupd.wiring import host_tools
from tests.fakes.target import MACHINE

SOON_SECONDS = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def following(pair: Any) -> Iterator[MysqlServer]:
    """The replica, caught up, with a table `r.t` that came from its source."""
    with pair.source.session() as session:
        session.execute("CREATE DATABASE IF NOT EXISTS r")
        session.execute("CREATE TABLE IF NOT EXISTS r.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    pair.caught_up()
    yield MysqlServer(pair.replica.connect())
    applier_of(pair.replica.connect()).start(names(MysqlServer(pair.replica.connect()).replication()))


def applier_of(connect: Connect) -> ReplicaApplier:
    """One that waits for no temporary table."""
    return ReplicaApplier(connect, temporary_tables_wait_seconds=0)


def names(found: Replication) -> tuple[str, ...]:
    return tuple(channel.name for channel in found.channels)


def write(pair: Any) -> None:
    with pair.source.session() as session:
        session.execute("INSERT INTO r.t (v) VALUES (1)")


def rows(pair: Any) -> int:
    with pair.replica.session() as session:
        return int(session.value("SELECT COUNT(*) FROM r.t") or 0)


def test_a_replica_says_that_it_is_one_and_a_source_does_not(pair: Any, following: MysqlServer) -> None:
    source = MysqlServer(pair.source.connect())
    assert (source.facts().is_replica, source.replication().channels) == (False, ())
    assert (following.facts().is_replica, following.facts().cluster, following.membership()) == (True, None, None)
    found = following.replication()
    assert all(channel.receiving and channel.applying and not channel.until for channel in found.channels)
    assert found.open_temporary_tables == 0


def test_a_server_is_told_with_its_role_whom_it_follows_and_how_far_it_is_behind(
    pair: Any, following: MysqlServer
) -> None:
    with pair.source.session() as session:
        source = role_of(session)
    with pair.replica.session() as session:
        replica = role_of(session)
    assert (source.role, source.follows, source.lag_seconds) == (Role.SOURCE, "", None)
    assert (replica.role, replica.flavour) == (Role.REPLICA, source.flavour)
    assert replica.lag_seconds is not None
    assert replica.follows.startswith("127.0.0.1:")
    assert source.server != replica.server
    applier = applier_of(pair.replica.connect())
    applier.stop(applier.running())
    with pair.replica.session() as session:
        assert (role_of(session).role, role_of(session).lag_seconds) == (Role.REPLICA, None)


def test_a_stopped_applier_applies_nothing_and_a_started_one_catches_up(pair: Any, following: MysqlServer) -> None:
    applier = applier_of(pair.replica.connect())
    running, before = applier.running(), rows(pair)
    assert running == names(following.replication())
    applier.stop(running)
    write(pair)
    assert applier.running() == ()
    assert all(channel.receiving for channel in following.replication().channels)
    assert following.replica_lag_seconds() is None
    assert rows(pair) == before
    applier.stop(running)
    applier.start(running)
    applier.start(running)
    pair.caught_up()
    assert (applier.running(), rows(pair)) == (running, before + 1)


def test_a_channel_that_is_no_more_keeps_no_other_from_being_started(pair: Any, following: MysqlServer) -> None:
    applier = applier_of(pair.replica.connect())
    running = applier.running()
    applier.stop(running)
    applier.start(("gone", *running))
    assert applier.running() == running


def test_what_a_dead_run_left_stopped_is_started_by_its_row_alone(pair: Any, following: MysqlServer) -> None:
    """As `backupd recover` does: by the configuration's login, whatever the dead process knew."""
    applier = applier_of(pair.replica.connect())
    running = applier.running()
    applier.stop(running)
    host = HostConfig(name="db1", socket=pair.replica.socket, user="root")
    release = host_tools(Configuration(hosts={"db1": host}), MACHINE).releases[HoldingKind.APPLIER]
    for _ in range(2):
        release(applier_holding("db1", running, applier.server()))
        assert applier.running() == running


def test_one_privilege_more_than_the_documented_ones_stops_the_applier(pair: Any, following: MysqlServer) -> None:
    """And its lack is found before a run tries."""
    flavour = pair.replica.flavour
    script = grant_script("stops", pair_host(pair), flavour=flavour, canary=False, stop_applier=True)
    extra = "REPLICATION SLAVE ADMIN" if flavour is Flavour.MARIADB else "REPLICATION_SLAVE_ADMIN"
    lacking = MysqlServer(pair.replica.account("lacks", script.replace(f", {extra}", "").replace("stops", "lacks")))
    assert lacking.missing_grants("ftwrl", stop_applier=True) == (extra,)
    assert lacking.missing_grants("ftwrl") == ()
    account = pair.replica.account("stops", script)
    assert MysqlServer(account).missing_grants("ftwrl", stop_applier=True) == ()
    applier = applier_of(account)
    running = applier.running()
    applier.stop(running)
    assert applier.running() == ()
    applier.start(running)
    assert applier.running() == running


def test_the_coordinates_under_the_lock_are_those_of_what_was_applied(pair: Any, following: MysqlServer) -> None:
    """With the applier stopped first, so that parallel workers leave no gap; the source goes on writing meanwhile."""
    write(pair)
    pair.caught_up()
    with pair.source.session() as session:
        applied = binlog_position(session)
    applier = applier_of(pair.replica.connect())
    running = applier.running()
    applier.stop(running)
    write(pair)
    with ServerLock(pair.replica.connect(), LockConfig()).held(pair.replica.datadir) as held:
        (position,) = held.position.replicas
    applier.start(running)
    assert (position.channel, position.source_log_file, position.source_log_offset) == (running[0], *applied)


def test_an_open_temporary_table_of_the_applier_is_waited_for(pair: Any, following: MysqlServer) -> None:
    """The applier runs meanwhile: only it can close the table."""
    applier = ReplicaApplier(pair.replica.connect(), temporary_tables_wait_seconds=SOON_SECONDS, pause=lambda _: end())
    running, looks = applier.running(), []
    with pair.source.session() as client, contextlib.ExitStack() as unfinished:

        def end() -> None:
            looks.append(applier.running())
            client.execute("DROP TEMPORARY TABLE IF EXISTS r.passing")
            pair.caught_up()

        open_temporary_table(pair, following, client)
        unfinished.callback(applier.start, running)
        applier.stop(running)
        assert (looks[0], applier.running()) == (running, ())
    assert following.replication().open_temporary_tables == 0


def test_one_that_stays_open_for_too_long_is_refused_with_the_applier_running(
    pair: Any, following: MysqlServer
) -> None:
    applier = applier_of(pair.replica.connect())
    running = applier.running()
    with pair.source.session() as client:
        open_temporary_table(pair, following, client)
        told = of_replica(job(), pair.replica.flavour, following.replication(), binlog_shares=True)
        assert {one.name: one.level for one in told}["temporary tables"] is Level.WARNING
        with pytest.raises(ServerError, match="temporary tables open"):
            applier.stop(running)
        assert applier.running() == running
    wait_until(lambda: following.replication().open_temporary_tables == 0)  # the client's end closes it everywhere


def job() -> JobConfig:
    return JobConfig(name="nightly", host="db1", targets=("vault",))


def open_temporary_table(pair: Any, following: MysqlServer, client: Session) -> None:
    """Logged as a statement, as by every source before MySQL 5.7.7 and MariaDB 10.2.4 and by those set so since."""
    client.execute("SET SESSION binlog_format = STATEMENT")
    client.execute("CREATE TEMPORARY TABLE r.passing (id INT)")
    client.execute("INSERT INTO r.passing VALUES (1)")
    pair.caught_up()
    wait_until(lambda: following.replication().open_temporary_tables == 1)


def binlog_position(session: Session) -> tuple[str, int]:
    with contextlib.suppress(ServerError):
        return told_position(session, "SHOW BINARY LOG STATUS")
    return told_position(session, "SHOW MASTER STATUS")


def told_position(session: Session, statement: str) -> tuple[str, int]:
    row = session.one(statement)
    assert row is not None
    return row["File"] or "", int(row["Position"] or 0)


def pair_host(pair: Any) -> str:
    """The host part of the accounts that `account` makes."""
    with pair.replica.session() as session:
        pair.replica.account("asks", "")
        return session.value("SELECT Host FROM mysql.user WHERE User = 'asks'") or "localhost"
