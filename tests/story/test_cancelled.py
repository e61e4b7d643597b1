"""SIGTERM at any moment: the run ends as cancelled, and nothing of it is left."""

import os
import signal
import time

import pytest

from backupd.catalogue import store
from backupd.catalogue.store import RunRecord
from backupd.config import CopyConfig, SettleConfig
from backupd.host.signals import cancellable, shielded
from backupd.operations.backup.phases import BackupTelling
from backupd.vocabulary.errors import Cancelled, ExitStatus
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunStatus
from tests.story.world import World


def stop() -> None:
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # it would end the tests
    os.kill(os.getpid(), signal.SIGTERM)


def assert_cancelled_and_clean(world: World) -> None:
    world.at.clear()
    row = world.row()
    assert row.status is RunStatus.CANCELLED
    assert row.error is not None
    assert (row.error.code, row.error.exit_status) == ("terminated", ExitStatus.TERMINATED)
    assert (world.left(), world.stored()) == ([], [])


@pytest.mark.parametrize("phase", [p for p in Phase if p not in {Phase.LOCK_HOLD, Phase.SNAPSHOT}])
def test_a_stop_signal_at_the_beginning_of_any_phase_ends_the_run(world: World, phase: Phase) -> None:
    world.with_preflush = True
    telling = BackupTelling(phase=lambda now: stop() if now is phase else None)
    with pytest.raises(Cancelled), cancellable():
        world.back_up(job=world.job(copy=CopyConfig(spool=world.spool)), telling=telling)
    assert_cancelled_and_clean(world)


class StopsAtItsEnd:
    """Python prints what its destructor raises, and goes on."""

    def __del__(self) -> None:
        stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stop_signal_that_python_swallows_ends_the_run_all_the_same(world: World) -> None:
    world.at["host.mount"] = StopsAtItsEnd
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert_cancelled_and_clean(world)


@pytest.mark.parametrize(
    "event",
    [
        "host.ours",
        "host.volume_at",
        "host.group",
        "probe.prepare",
        "probe.window",
        "host.prepared",
        "sync",
        "lock.asked",
        "lock.granted",
        "host.create",
        "lock.ended",
        "host.usage",
        "target.writing",
        "host.mount",
        "host.require_intact",
        "host.unmount",
        "host.remove",
        "target.reading",
        "target.publish",
        "target.published",
    ],
)
def test_a_stop_signal_during_any_step_ends_the_run(world: World, event: str) -> None:
    happened: list[str] = []

    def stop_then() -> None:
        happened.append(event)
        stop()

    world.at[event] = stop_then
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert happened
    assert_cancelled_and_clean(world)


@pytest.mark.parametrize(
    "kind", [HoldingKind.PARTIAL, HoldingKind.PROBE_FILES, HoldingKind.SNAPSHOT, HoldingKind.MOUNT]
)
def test_a_stop_signal_while_a_holding_is_written_down_leaves_no_row_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: HoldingKind
) -> None:
    """It waits for the write: then the row is there, and nothing of what it is for."""

    class Stopped(RunRecord):
        def hold(self, holding: Holding) -> None:
            with shielded():  # as the write itself is
                if holding.kind is kind:
                    stop()
                super().hold(holding)

    monkeypatch.setattr(store, "RunRecord", Stopped)
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert_cancelled_and_clean(world)


def test_a_stop_signal_while_the_gate_waits_ends_the_run_at_once(world: World) -> None:
    world.probe.iops = (1000.0, 100.0)
    world.at["host.usage"] = stop
    began = time.monotonic()
    with pytest.raises(Cancelled), cancellable():
        world.back_up(job=world.job(settle=SettleConfig(baseline_windows=1, patience=1e9, max_wait_seconds=600)))
    assert time.monotonic() - began < 60  # of ten minutes
    assert_cancelled_and_clean(world)


def test_a_stop_signal_in_mid_copy_leaves_no_partial_object(world: World) -> None:
    world.make_orders_large()
    done: list[int] = []

    def stop_then(now: int, total: int) -> None:
        done.append(now)
        stop()

    with pytest.raises(Cancelled), cancellable():
        world.back_up(telling=BackupTelling(copied=stop_then))
    assert done
    assert world.row().backup is None
    assert_cancelled_and_clean(world)


def test_a_second_stop_signal_does_not_disturb_the_clean_up(world: World) -> None:
    world.at["host.mount"] = stop
    world.at["host.remove"] = stop
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert_cancelled_and_clean(world)


def test_the_next_run_of_the_job_is_not_in_the_way_of_a_cancelled_one(world: World) -> None:
    world.at["host.mount"] = stop
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    world.at.clear()
    assert world.back_up("r2").status is RunStatus.SUCCESS
