"""A run's process is killed at any moment: the catalogue is whole, and what was acknowledged is in it."""

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.host.process import start_time
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunError, RunStatus
from backupd.vocabulary.storage import Backup

pytestmark = pytest.mark.exhaustive

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
DIED = RunError("died", "the run's process died without reporting an error", "start it again", 1)
KILLS = 12


def write_until_killed(path: Path, name: str, acknowledged: Connection) -> None:
    """Runs without end; `acknowledged` gets each run and holding only after the catalogue has returned from it."""
    with Catalogue.open(path) as catalogue:
        for number in range(1_000_000):
            run_id = f"{name}-{number}"
            with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
                for part in range(4):
                    holding = Holding(HoldingKind.STAGING, f"/staging/{run_id}/{part}")
                    run.hold(holding)
                    acknowledged.send(("held", run_id, holding.name))
                    run.samples([Sample(float(second), "settle") for second in range(50)])
                    with run.quiet():
                        run.took(Phase.COPY, float(part))
                run.complete((BACKUP,))
                acknowledged.send(("complete", run_id, ""))


def kill_a_writer(path: Path, name: str, after_seconds: float) -> list[tuple[str, str, str]]:
    """What a writer had acknowledged when it was killed, so many seconds after its first word."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["backupd.catalogue.store"])
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=write_until_killed, args=(path, name, theirs))
    writer.start()
    theirs.close()
    told = [ours.recv()]
    assert writer.pid is not None
    timer = threading.Timer(after_seconds, os.kill, (writer.pid, signal.SIGKILL))
    timer.start()
    with contextlib.suppress(EOFError):  # it was killed
        while True:
            told.append(ours.recv())
    writer.join()
    return told


def test_a_killed_writer_loses_nothing_that_was_acknowledged_and_leaves_the_catalogue_whole(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    moments = random.Random(20261121)
    for kill in range(KILLS):
        told = kill_a_writer(path, f"k{kill}", moments.uniform(0.0, 0.15))
        with direct(path, busy_timeout_seconds=1) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        with Catalogue.open(path) as catalogue:
            held = {(run_id, holding.name) for run_id, holding in catalogue.holdings()}
            assert {(run_id, name) for event, run_id, name in told if event == "held"} <= held
            good = {run.run_id for run in catalogue.runs(limit=None) if run.status is RunStatus.SUCCESS}
            assert {run_id for event, run_id, _ in told if event == "complete"} <= good
            for run in map(catalogue.run, catalogue.unfinished()):
                pid, born = catalogue.process_of(run.run_id) or (0, 0)
                assert start_time(pid) != born
                catalogue.end_dead_run(run.run_id, DIED)
            assert catalogue.unfinished() == []
