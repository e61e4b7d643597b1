"""The daemon, two command lines and the pages at one catalogue at once: nobody fails, and nothing is lost.

Each is a process of its own, as on a host. Nobody waits for anybody but at the file's own lock.
"""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.details import Filter
from backupd.catalogue.store import Catalogue
from backupd.policy.timetable import Timetable
from backupd.vocabulary.errors import CatalogueUnavailable
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.records import GOOD, Check, Drill, Holding, HoldingKind, Phase, RunStatus
from backupd.vocabulary.schedule import Activity, NoticeKind, Slot, SlotState
from backupd.vocabulary.storage import Backup

Found = TypeVar("Found")

BEGAN = datetime(2026, 11, 21, 4, tzinfo=UTC)
JOBS = ("nightly", "shop")
RUNS, LOOKS, PAGES = 40, 200, 150
_LOCKED_SECONDS = 1.0  # that the daemon's writes wait, as in `backupd.service.daemon`
_LOOKS_AGAIN = 30
_PATIENCE_SECONDS = 120


def command_line(path: Path, job: str, told: Connection) -> None:
    """Runs, one after the other, with all that a run tells; what was pruned, pinned and drilled between them."""
    for number in range(RUNS):
        run_id = f"{job}-{number}"
        with Catalogue.open(path) as catalogue:
            with catalogue.open_run(job, "db1", run_id=run_id) as run:
                run.hold(Holding(HoldingKind.STAGING, f"/staging/{run_id}"))
                with run.phase(Phase.COPY), run.quiet():
                    run.samples([Sample(float(second), "settle") for second in range(20)])
                run.released(Holding(HoldingKind.STAGING, f"/staging/{run_id}"))
                run.complete((Backup("vault", f"/vault/{job}/{run_id}", 1000, 400, 12, "ab" * 32),))
            told.send(run_id)
            catalogue.record_drill(
                Drill(run_id, ok=True, checks=(Check("tables", True, "3", "3"),), seconds=1, at=BEGAN)
            )
            catalogue.verified(run_id, "vault", BEGAN)
            catalogue.pin(run_id, "")
            catalogue.unpin(run_id)
            if number >= 3:
                catalogue.removed(f"{job}-{number - 3}", "vault", because="expired")


def sooner_or_later(step: Callable[[], Found]) -> Found:
    """As the daemon does: a write that would wait for too long is left to the next look."""
    for _ in range(_LOOKS_AGAIN):
        with suppress(CatalogueUnavailable):
            return step()
    return step()


def daemon(path: Path, told: Connection) -> None:
    """What `serve` asks and writes at its looks: slots that are taken and end, and what it tells."""
    with Catalogue.open(path, busy_timeout_seconds=_LOCKED_SECONDS) as catalogue:
        timetables = {(job, Activity.BACKUP): Timetable("* * * * *", "UTC") for job in JOBS}
        sooner_or_later(partial(catalogue.go_by, timetables, since=BEGAN))
        for look in range(LOOKS):
            due = BEGAN + timedelta(minutes=look)
            for job in JOBS:
                slot = Slot(job, Activity.BACKUP, due, SlotState.STARTED, due, f"{job}-{look}")
                assert sooner_or_later(partial(catalogue.take_slot, slot))
                catalogue.unfinished()
                catalogue.holdings()
                sooner_or_later(partial(catalogue.slot_ended, slot, exit_status=0))
            catalogue.newest_slots(before=due)
            catalogue.pauses()
            sooner_or_later(partial(catalogue.first_told, NoticeKind.MISSED, JOBS[0], due.isoformat()))
            sooner_or_later(partial(catalogue.remember_rooms, {"vault": 1 << 30}, at=due))
        told.send("daemon")


def web(path: Path, told: Connection) -> None:
    """What pages ask; it can open no file, and must never wait for a writer."""
    with Catalogue.look(path, connections=2) as catalogue:
        for _ in range(PAGES):
            catalogue.records(JOBS, at=datetime.now(UTC))
            for cost in catalogue.costs_page(Filter(None), limit=50)[:1]:
                catalogue.run(cost.run_id)
            catalogue.stored()
            catalogue.slots()
        told.send("web")


@pytest.mark.thorough
def test_a_daemon_two_command_lines_and_the_pages_share_one_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["backupd.catalogue.store"])
    parts: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        *((command_line, (path, job)) for job in JOBS),
        *((daemon, (path,)), (web, (path,))),
    ]
    with Catalogue.open(path) as kept_open:  # as the daemon has it, when the pages begin
        ours, theirs = zip(*(context.Pipe(duplex=False) for _ in parts), strict=True)
        processes = [
            context.Process(target=part, args=(*arguments, told))
            for (part, arguments), told in zip(parts, theirs, strict=True)
        ]
        for process, told in zip(processes, theirs, strict=True):
            process.start()
            told.close()
        said = [list(_all_of(end)) for end in ours]
        for process in processes:
            process.join(_PATIENCE_SECONDS)
        assert [process.exitcode for process in processes] == [0, 0, 0, 0]
        assert said[2:] == [["daemon"], ["web"]]
        found = {run.run_id: run.status for run in kept_open.runs(limit=None)}
        assert set(found) == {*said[0], *said[1]}
        assert set(found.values()) == {RunStatus.SUCCESS} <= set(GOOD)
        assert kept_open.holdings() == []
        assert len(kept_open.slots(limit=None)) == LOOKS * len(JOBS)
        assert kept_open.audit_trail().chain.first_fault is None
        kept_open.require_whole()
    with direct(path, busy_timeout_seconds=0) as connection:  # nobody has left a lock behind
        connection.execute("BEGIN EXCLUSIVE")


def _all_of(end: Connection) -> "list[str]":
    """What is said until the other side ends."""
    heard: list[str] = []
    try:
        while True:
            heard.append(end.recv())
    except EOFError:
        return heard
