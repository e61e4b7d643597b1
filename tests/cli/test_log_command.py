"""`backupd log`, and what a run leaves for it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from backupd.cli import log
from backupd.host.live_progress import LiveRuns
from backupd.operations.liveness import run_is_alive
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import Phase
from tests.cli.terminal import Terminal
from tests.story.world import World


@contextmanager
def living_run(world: World, run_id: str) -> Iterator[None]:
    """A process has this run's row for the length of the block, and is gone afterwards."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go[1])
        with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id=run_id):
            os.write(ready[1], b".")
            os.read(go[0], 1)  # ends with the last writer
            os._exit(0)
    os.read(ready[0], 1)
    try:
        yield
    finally:
        os.close(go[1])
        os.waitpid(child, 0)


@pytest.mark.parametrize("run_id", ["nothing", "../../etc/passwd", "/etc/passwd", "..", ""])
def test_what_is_no_run_is_status_2_and_no_file_of_others(terminal: Terminal, run_id: str) -> None:
    ended = terminal.run("log", "--", run_id)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")


def test_nobody_is_followed_for_a_reader_that_has_gone(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = world.base / "log"
    logs.mkdir()
    (logs / "r1.log").write_text("a line\n")
    reading, writing = os.pipe()
    os.close(reading)
    with living_run(world, "r1"), os.fdopen(writing, "w") as stdout, monkeypatch.context() as here:
        here.setattr(sys, "stdout", stdout)
        ended = terminal.run("log", "r1", "--follow")  # while the run goes on
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")


def test_a_run_without_a_log_is_told_where_it_should_be(terminal: Terminal, world: World) -> None:
    world.back_up("r1")
    ended = terminal.run("log", "r1")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert f"{world.base}/log/r1.log" in ended.stderr


@pytest.mark.parametrize("wanted", ["r1", "r", "latest", "latest:nightly"])
def test_what_a_run_did_is_there_afterwards(terminal: Terminal, wanted: str) -> None:
    assert terminal.run("--quiet", "run", "nightly", "--run-id", "r1").status == ExitStatus.OK
    ended = terminal.run("log", wanted)
    assert ended.status == ExitStatus.OK
    phases = [phase for phase in Phase if f"[r1] {phase}: started" in ended.stdout]
    assert phases == [Phase.PREFLIGHT, Phase.BASELINE, Phase.SETTLE, Phase.COPY, Phase.RELEASE, Phase.VERIFY]


def test_a_run_that_another_keeps_from_beginning_has_a_log_of_why(terminal: Terminal, world: World) -> None:
    with world.tools.claims.job("nightly", "other"):
        assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.BUSY
    assert "is held by run other" in terminal.run("log", "r1").stdout


def test_a_run_goes_well_where_its_log_cannot_be_written(terminal: Terminal, world: World) -> None:
    (world.base / "log").write_text("in the folder's place")
    ended = terminal.run("run", "nightly", "--run-id", "r1")
    assert ended.status == ExitStatus.OK
    assert ended.stderr.count("has no log") == 1


def test_a_live_run_is_seen_and_an_ended_one_is_not(terminal: Terminal, world: World) -> None:
    live, seen = LiveRuns(world.places.run), []
    world.at["target.publish"] = lambda: seen.append(live.of("r1"))
    terminal.run("run", "nightly", "--run-id", "r1")
    assert [progress.phase for progress in seen if progress is not None] == [Phase.VERIFY]
    assert live.told() == ()


def test_following_goes_on_until_the_run_has_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = world.base / "r1.log", ["first\n", "second\n", "last\n"]
    monkeypatch.setattr(log, "_LOOK_SECONDS", 0.0)

    def is_alive() -> bool:  # says its next line just before it is looked for
        with path.open("a") as file:
            file.write(said.pop(0))
        return bool(said)

    path.touch()
    assert "".join(log._lines(path, "r1", is_alive)) == "first\nsecond\nlast\n"


def test_a_run_is_followed_for_as_long_as_its_process_lives(world: World) -> None:
    with world.catalogue() as catalogue:
        with living_run(world, "r1"):
            assert run_is_alive(catalogue, "r1")
        assert not run_is_alive(catalogue, "r1")
        assert not run_is_alive(catalogue, "r2")
