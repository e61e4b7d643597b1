"""What every engine of a fleet must do, asked of each on the databases that it can have: killed at any moment, too."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from backupd.fleet import Engine
from backupd.fleet.database import address
from backupd.vocabulary.fleet import OwedBackup
from tests.fleet import engine_program
from tests.fleet.postgres import PostgresServer, postgres

_PATIENCE = 120.0


class World:
    """The processes that serve, and what their stories did."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.kind = kind
        self.url = url
        self.folder = folder
        self.slots: tuple[str, ...] = ("nas=2", "s3=1")
        self._processes: list[subprocess.Popen[str]] = []

    def engine(self) -> Engine:
        """One that serves nothing."""
        return engine_program._engine(self.kind, self.url, {})

    def serve(self) -> "subprocess.Popen[str]":
        """A process that serves; what it said first can be read from it."""
        argv = [sys.executable, "-m", "tests.fleet.engine_program", self.kind, self.url, str(self.folder), *self.slots]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        return process

    def end(self) -> None:
        """None of them is left."""
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def log(self) -> list[tuple[Any, ...]]:
        """What happened, in order."""
        log = self.folder / "log"
        return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []

    def until(self, *what: str, times: int = 1) -> None:
        """So many events of this kind have happened."""
        deadline = time.monotonic() + _PATIENCE
        while sum(event[: len(what)] == what for event in self.log()) < times:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def runs(self) -> list[dict[str, Any]]:
        """All that were started."""
        return [json.loads(run.read_text()) for run in self.folder.glob("*.run")]

    def most_at_once(self, of: Callable[[dict[str, Any]], bool]) -> int:
        """How many of these runs went on at the same time."""
        runs = [run for run in self.runs() if of(run)]
        return max((sum(b["begun"] <= a["begun"] < b["ends"] for b in runs) for a in runs), default=0)


KINDS = ["dbos", pytest.param("local", marks=pytest.mark.matrix)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(
    params=[
        "dbos-postgresql",
        "local-sqlite",
        *(pytest.param(one, marks=pytest.mark.matrix) for one in ("dbos-sqlite", "local-postgresql")),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    kind, _, database = request.param.partition("-")
    sqlite = f"sqlite:///{tmp_path}/fleet.db"
    world = World(kind, sqlite if database == "sqlite" else request.getfixturevalue("server").fresh_url(), tmp_path)
    yield world
    world.end()


def owed(
    cluster: str, job: str = "main", *, targets: Sequence[str] = ("nas",), priority: int = 5, seconds: float = 0.2
) -> OwedBackup:
    now = datetime.now(UTC)
    return OwedBackup(
        *(date(2026, 11, 26), cluster, job, (f"{cluster}-1",), tuple(targets), now, now + timedelta(hours=1), priority),
        expected_seconds=seconds,
        expected_bytes=1,
    )


def test_each_backup_is_carried_out_once_however_often_it_is_submitted(world: World) -> None:
    several = [owed(f"c{number}") for number in range(4)] + [owed("c9", "again", targets=("s3", "nas"))]
    engine = world.engine()
    engine.submit(several)
    engine.submit(several[:2])
    assert sorted(engine.going()) == sorted(one.id for one in several)
    world.serve()
    world.until("recorded", times=5)
    engine.submit(several)
    world.until("recorded", times=5)
    counted = Counter(event[0] for event in world.log())
    assert counted == {"chosen": 5, "started": 6, "recorded": 5}
    assert ("started", "20261126-c9-again.2", "c9") in world.log()
    _until(lambda: not engine.going())
    assert engine.broken() == {}


def test_a_cluster_has_one_at_a_time_and_a_target_no_more_than_its_slots(world: World) -> None:
    engine = world.engine()
    engine.submit([owed(f"c{number % 4}", f"job{number}", targets=("nas",)) for number in range(8)])
    engine.submit([owed(f"d{number}", targets=("s3", "nas")) for number in range(3)])
    world.serve()
    world.until("recorded", times=11)
    for cluster in {run["cluster"] for run in world.runs()}:
        assert world.most_at_once(lambda run, cluster=cluster: run["cluster"] == cluster) == 1  # type: ignore[misc]
    assert world.most_at_once(lambda run: "nas" in run["targets"]) == 2
    assert world.most_at_once(lambda run: "s3" in run["targets"]) == 1


def test_the_most_urgent_goes_first(world: World) -> None:
    world.slots = ("nas=1",)
    engine = world.engine()
    engine.submit([owed(f"c{priority}", priority=priority) for priority in (5, 1, 4, 2, 3)])
    world.serve()
    world.until("recorded", times=5)
    started = [event[2] for event in world.log() if event[0] == "started"]
    assert started[1:] == [one for one in ("c1", "c2", "c3", "c4", "c5") if one != started[0]]


def test_what_was_done_before_a_kill_is_not_done_again(world: World) -> None:
    engine = world.engine()
    engine.submit([owed("c1", seconds=2.0), owed("c2", "again", targets=("nas", "s3"), seconds=0.5)])
    for _ in range(4):
        process = world.serve()
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        world.until("chosen", times=2)
        process.kill()
        process.wait()
    world.serve()
    world.until("recorded", times=2)
    recorded = [event for event in world.log() if event[0] == "recorded"]
    assert (len(world.runs()), len(recorded)) == (3, 2)  # a kill may come between a run's start and its line in the log


def test_what_ran_when_it_was_killed_keeps_its_cluster(world: World) -> None:
    engine = world.engine()
    engine.submit([owed("c1", priority=9, seconds=10.0)])
    first = world.serve()
    world.until("started")
    first.kill()
    first.wait()
    engine.submit([owed("c1", "urgent", priority=1)])
    world.serve()
    world.until("recorded", times=2)
    assert world.most_at_once(lambda _: True) == 1


def test_what_ran_when_it_was_killed_keeps_its_slot(world: World) -> None:
    world.slots = ("nas=1",)
    engine = world.engine()
    engine.submit([owed("c1", priority=9, seconds=10.0)])
    first = world.serve()
    world.until("started")
    engine.submit([owed("c2", priority=1)])
    world.until("chosen", times=2)
    time.sleep(0.5)  # it waits for its slot; too early a kill would only prove less
    first.kill()
    first.wait()
    world.serve()
    world.until("recorded", times=2)
    assert world.most_at_once(lambda _: True) == 1


def test_one_that_has_to_wait_lets_its_cluster_go_on_and_is_gone_on_with_once_wherever_it_was_killed(
    world: World,
) -> None:
    engine = world.engine()
    engine.submit([owed("c1", "later", priority=1, seconds=2.0), owed("c1", "other", priority=9, seconds=2.5)])
    for times in (1, 2):
        process = world.serve()
        world.until("put off", times=times)
        world.until("started")  # the other one, whose turn it would not be
        assert "20261126-c1-later" in engine.going()
        process.kill()
        process.wait()
    world.serve()
    world.until("recorded", times=2)
    log = world.log()
    assert [event[1] for event in log if event[0] == "recorded"] == ["20261126-c1-other", "20261126-c1-later"]
    assert {event[2] for event in log if event[0] == "put off"} == {0, 1}  # again where it was killed within it
    assert Counter(event[0] for event in log)["started"] == 2
    assert world.most_at_once(lambda _: True) == 1
    _until(lambda: not engine.going())
    assert engine.broken() == {}


def test_what_waits_is_left_alone_by_an_older_control_host_that_takes_over(tmp_path: Path) -> None:
    world = World("dbos", f"sqlite:///{tmp_path}/fleet.db", tmp_path)
    database = create_engine(world.url)
    live = text("SELECT status FROM workflow_status WHERE workflow_uuid LIKE '%#%' AND status <> 'SUCCESS'")

    def rest_is(status: str) -> bool:
        with database.connect() as connection:
            return connection.execute(live).scalars().all() == [status]

    try:
        engine = world.engine()
        engine.submit([owed("c1", "later", seconds=2.0)])
        first = world.serve()
        world.until("put off", times=2)
        _until(lambda: rest_is("DELAYED"))  # and not in the midst of being put off
        first.kill()
        first.wait()
        world.kind = "dbos-before"
        older = world.serve()
        _until(lambda: rest_is("PENDING"))
        engine.submit([owed("c2")])
        world.until("recorded")
        _until(lambda: engine.going() == ["20261126-c1-later"])
        assert engine.broken() == {}
        older.kill()
        older.wait()
        world.kind = "dbos"
        world.serve()
        world.until("recorded", times=2)
        assert [event[1] for event in world.log() if event[0] == "recorded"] == [
            "20261126-c2-main",
            "20261126-c1-later",
        ]
    finally:
        world.end()
        database.dispose()


def test_two_never_serve_and_the_second_takes_over(world: World) -> None:
    first = world.serve()
    assert first.stdout is not None
    assert first.stdout.readline() == "serving\n"
    second = world.serve()
    assert second.stdout is not None
    assert second.stdout.readline() == "busy\n"
    world.engine().submit([owed("c1", seconds=1.0)])
    world.until("started")
    first.terminate()
    assert first.wait(_PATIENCE) == 0
    world.serve()
    world.until("recorded")
    assert Counter(event[0] for event in world.log())["started"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_host_whose_database_is_away_makes_way_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    with postgres() as server:
        world = World(kind, server.url, tmp_path)
        try:
            world.engine().submit([owed("c1", seconds=3.0), owed("c2", "again", seconds=1.0)])
            first = world.serve()
            world.until("started", times=2)
            server.stop()
            assert first.wait(_PATIENCE) == 75
            server.start()
            world.serve()
            world.until("recorded", times=2)
            assert Counter(event[0] for event in world.log())["started"] == 3
        finally:
            world.end()


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_was_stopped_while_another_took_over_does_nothing_when_it_goes_on(
    kind: str, server: PostgresServer, tmp_path: Path
) -> None:
    world = World(kind, server.fresh_url(), tmp_path)
    try:
        world.engine().submit([owed("c1", seconds=3.0), owed("c2", "again", seconds=2.0)])
        first = world.serve()
        world.until("started", times=2)
        first.send_signal(signal.SIGSTOP)
        with create_engine(address(world.url)).begin() as connection:
            ours = "application_name = 'backupd control' AND datname = current_database()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"))
        second = world.serve()
        assert second.stdout is not None
        assert second.stdout.readline() == "serving\n"
        world.until("recorded")
        first.send_signal(signal.SIGCONT)
        assert first.wait(_PATIENCE) == 75
        world.until("recorded", times=2)
        counted = Counter(event[0] for event in world.log())
        assert (counted["started"], counted["recorded"]) == (3, 2)
    finally:
        world.end()


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_says_nothing_any_more_loses_its_place_though_its_connection_stays(
    kind: str, server: PostgresServer, tmp_path: Path
) -> None:
    """As after a power cut of its machine, or while that is frozen: nobody tells the server."""
    world = World(kind, server.fresh_url(), tmp_path)
    try:
        world.engine().submit([owed("c1", seconds=3.0), owed("c2", "again", seconds=2.0)])
        first = world.serve()
        world.until("started", times=2)
        first.send_signal(signal.SIGSTOP)
        # A lease of 2 s, the same again before it acts, and starts of a program; the server alone would take two hours.
        _until(lambda: (said := world.serve().stdout) is not None and said.readline() == "serving\n")
        world.until("recorded")
        first.send_signal(signal.SIGCONT)
        assert first.wait(_PATIENCE) == 75
        world.until("recorded", times=2)
        counted = Counter(event[0] for event in world.log())
        assert (counted["started"], counted["recorded"]) == (3, 2)
    finally:
        world.end()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
