"""Whatever fails, at whichever call: the run says so, and nothing of ours is left, or it is named.

Each test walks through the calls that a run makes, one run for each call that fails, until a run has so few calls that
nothing failed any more. All its runs share one world: what one left would be in the next one's way.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from backupd.config import CopyConfig, SettleConfig
from backupd.host.process import start_time
from backupd.operations.backup.run import run_backup
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.targets import BackupSource
from backupd.vocabulary.errors import BackupdError, CatalogueError, ExitStatus
from backupd.vocabulary.records import HoldingKind, Phase, RunDetails, RunStatus
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.processes import children
from tests.story.world import World

pytestmark = pytest.mark.exhaustive

BEFORE, AFTER = False, True  # the effect
STATUSES = {ExitStatus.REFUSED: RunStatus.REFUSED}


def assert_failed_and_clean(world: World, row: RunDetails, error: BackupdError, expected: ExitStatus) -> None:
    assert error.exit_status is expected
    assert row.status is STATUSES.get(expected, RunStatus.FAILED)
    assert row.error is not None
    assert (row.error.code, row.error.exit_status) == (error.code, expected)
    assert row.error.message.startswith(error.message)
    assert row.error.hint == error.hint
    assert (row.backup, row.ended_at is not None) == (None, True)
    assert world.left() == []


def runs_that_fail(world: World) -> Iterator[int]:
    """1, 2, …: the call that is to fail in the next run; for ever."""
    for n in count(1):
        world.host.calls.clear()
        world.database.calls = world.probe.calls = 0
        world.database.fails_at = None
        yield n


@pytest.mark.parametrize("after_effect", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("volume_at", ExitStatus.REFUSED),
        ("group", ExitStatus.REFUSED),
        ("prepared", ExitStatus.SNAPSHOT),
        ("create", ExitStatus.SNAPSHOT),
        ("mount", ExitStatus.SNAPSHOT),
        ("require_intact", ExitStatus.SNAPSHOT),
    ],
)
def test_a_volume_verb_that_fails_ends_the_run_and_leaves_nothing(
    world: World, verb: str, expected: ExitStatus, after_effect: bool
) -> None:
    for n in runs_that_fail(world):
        world.host.fail(verb, at_call=n, after_effect=after_effect)
        error = world.try_to_back_up(f"r{n}")
        if world.host.calls[verb] < n:
            break
        assert error is not None
        assert_failed_and_clean(world, world.row(f"r{n}"), error, expected)
        assert world.stored() == []
    assert error is None
    assert n > 1
    assert world.row(f"r{n}").status is RunStatus.SUCCESS


def test_a_run_goes_on_where_what_dead_runs_have_left_cannot_be_looked_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.host.fail("ours", at_call=1)
    assert world.try_to_back_up("r1") is None
    assert world.row("r1").status is RunStatus.SUCCESS
    assert "volumes of dead runs could not be looked for: ours failed, as told" in caplog.text
    assert world.left() == []


@pytest.mark.parametrize(
    ("verb", "kind", "after_effect"),
    [
        ("remove", HoldingKind.SNAPSHOT, BEFORE),
        ("remove", HoldingKind.SNAPSHOT, AFTER),
        ("unmount", HoldingKind.MOUNT, BEFORE),
        ("unmount", HoldingKind.MOUNT, AFTER),
    ],
)
@pytest.mark.parametrize("spooled", [False, True])
def test_a_release_that_fails_keeps_the_good_backup_and_names_what_is_left(
    world: World, verb: str, kind: HoldingKind, after_effect: bool, spooled: bool
) -> None:
    world.host.fail(verb, after_effect=after_effect)
    row = world.back_up(job=world.job(copy=CopyConfig(spool=world.spool if spooled else None)))
    assert row.status is RunStatus.ATTENTION
    assert f"clean-up incomplete: {verb} failed, as told" in row.attention[0]
    assert row.backup is not None
    assert world.target.manifest("nightly", "r1").run_id == "r1"
    assert any(kind in thing for thing in world.left())
    with world.catalogue() as catalogue:
        recovery = clean_up_dead_runs(catalogue, world.tools)
    recovery.require_complete()
    assert world.left() == []
    assert world.row().status is RunStatus.ATTENTION
    assert world.target.manifest("nightly", "r1").run_id == "r1"


def test_a_release_that_fails_after_another_error_does_not_take_its_place(world: World) -> None:
    world.host.fail("require_intact")
    world.host.fail("unmount")
    error = world.try_to_back_up()
    row = world.row()
    assert (error is not None, row.status) == (True, RunStatus.FAILED)
    assert row.error is not None
    assert row.error.message.startswith("require_intact failed, as told\nclean-up incomplete: unmount failed, as told")
    assert world.try_to_back_up("r2") is None  # a run begins by giving back what dead ones left
    assert world.left() == []


def test_a_volume_that_cannot_be_synced_is_never_locked(world: World) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    locked: list[str] = []
    world.at = {"sync": fail, "lock.asked": lambda: locked.append("asked")}
    error = world.try_to_back_up()
    assert error is not None
    assert locked == []
    assert_failed_and_clean(world, world.row(), error, ExitStatus.SNAPSHOT)


@pytest.mark.parametrize(
    "event", ["probe.prepare", "host.prepared", "lock.ended", "host.mount", "target.writing", "target.reading"]
)
def test_a_catalogue_that_cannot_be_written_any_more_leaves_nothing_on_the_host(world: World, event: str) -> None:
    """Its rows cannot be struck then; the next `recover` does that, and finishes a copy that was read back."""
    is_read_back = event == "target.reading"
    before = children_of_ours()
    with ExitStack() as elsewhere, world.catalogue(busy_timeout_seconds=0.01) as catalogue:

        def lock_the_catalogue() -> None:
            other = sqlite3.connect(world.places.catalogue, check_same_thread=False)  # a writer of ours makes it
            elsewhere.callback(other.close)
            other.execute("BEGIN IMMEDIATE")
            world.at.clear()

        world.at[event] = lock_the_catalogue
        with pytest.raises(CatalogueError):
            run_backup(world.job(), world.tools, catalogue, run_id="r1")
        assert (world.host.lvs, world.host.mounted, list(world.mount_root.glob(".*"))) == ({}, {}, [])
        assert (children_of_ours() - before, world.database.locked) == (set(), False)
        assert (world.stored() != []) is is_read_back
    assert world.row().status is RunStatus.RUNNING
    with world.catalogue() as catalogue:
        clean_up_dead_runs(catalogue, world.tools, finishing=world.finishing).require_complete()
    assert world.left() == []
    row = world.row()
    assert row.status is (RunStatus.ATTENTION if is_read_back else RunStatus.FAILED)
    assert (row.backup is not None, world.stored() != []) == (is_read_back, is_read_back)


def children_of_ours() -> set[str]:
    """Number and name of the processes that this one has started and that still run."""
    alive = (pid for pid in children() if start_time(int(pid)) is not None)
    return {pid + Path(f"/proc/{pid}/comm").read_text().strip() for pid in alive}


def test_a_fill_that_cannot_be_read_ends_no_run(world: World) -> None:
    world.host.fail("usage")
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert "usage failed, as told" in row.attention[0]
    assert world.left() == []


def test_a_server_that_dies_at_any_call_ends_the_run_or_takes_nothing_from_the_backup(world: World) -> None:
    locked = {1: ExitStatus.REFUSED, 2: ExitStatus.REFUSED, 3: ExitStatus.REFUSED, 4: ExitStatus.REFUSED}
    for n in runs_that_fail(world):
        world.database.fails_at = n
        error = world.try_to_back_up(f"r{n}")
        row = world.row(f"r{n}")
        if world.database.calls < n:
            break
        if row.position is None:  # before the unlock
            assert error is not None
            assert_failed_and_clean(world, row, error, locked.get(n, ExitStatus.SERVER))
        else:
            assert error is None
            assert row.status is RunStatus.ATTENTION
            assert "cannot connect" in row.attention[0]
            assert row.backup is not None
        assert world.left() == []
    assert n > 6
    assert row.status is RunStatus.SUCCESS


def test_a_probe_that_fails_at_any_call_ends_no_run(world: World) -> None:
    job = world.job(settle=SettleConfig(windows=1, baseline_windows=1, patience=1e9, max_wait_seconds=0.05))
    for n in runs_that_fail(world):
        world.probe.fail_at_call = n
        row = world.back_up(f"r{n}", job=job)
        if world.probe.calls < n:
            break
        assert row.status is RunStatus.ATTENTION
        assert "told to fail" in row.attention[-1] or "told to fail" in row.attention[0]
        assert world.left() == []
    assert n > 3
    assert row.status is RunStatus.SUCCESS


@pytest.mark.parametrize("spooled", [False, True])
def test_a_target_that_fails_at_any_call_ends_the_run_and_keeps_nothing(world: World, spooled: bool) -> None:
    spared = []
    job = world.job(copy=CopyConfig(spool=world.spool if spooled else None))
    for n in runs_that_fail(world):
        world.memory = MemoryTarget(name="vault", fail_at_call=n)
        error = world.try_to_back_up(f"r{n}", job=job)
        if world.memory.calls < n:
            break
        row = world.row(f"r{n}")
        if error is None:
            assert verify_backup(BackupSource(world.target, "nightly", f"r{n}", BELIEVED)).whole
            spared.append(n)
            continue
        expected = ExitStatus.TARGET if Phase.BASELINE in row.phases else ExitStatus.REFUSED
        assert_failed_and_clean(world, row, error, expected)
        assert world.stored() == []
    assert n > 10
    assert len(spared) <= 1, "an older owner record that stays is nobody's failure"
    assert world.row(f"r{n}").status is RunStatus.SUCCESS
