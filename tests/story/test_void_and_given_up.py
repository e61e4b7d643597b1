"""No proof, no backup; and the backup is the thing to lose, not the server."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from backupd.archive.governor import CHECK_SECONDS
from backupd.config import CopyConfig, JobConfig, LimitsConfig, SettleConfig, SnapshotConfig, SnapshotSize
from backupd.operations.backup.phases import BackupTelling
from backupd.vocabulary.errors import ExitStatus, GaveUp, LockLost, LockNotGranted, SnapshotError, SnapshotVoid
from backupd.vocabulary.penalty import GateOutcome, Reason
from backupd.vocabulary.records import Phase, RunStatus
from backupd.vocabulary.schedule import Deadline
from backupd.vocabulary.servers import Blocker
from tests.fakes.target import MemoryTarget
from tests.story.world import World

TWO_TICKS = 60.0  # seconds, in which the observer looks at least once whatever the machine is doing


def assert_failed_and_clean(world: World, status: ExitStatus) -> None:
    world.at.clear()
    row = world.row()
    assert row.status is RunStatus.FAILED
    assert row.error is not None
    assert row.error.exit_status == status
    assert row.backup is None
    assert (world.left(), world.stored()) == ([], [])


def impatient(**limits: float) -> dict[str, object]:
    """A job whose gate would wait for long, and what its server may suffer."""
    settle = SettleConfig(baseline_windows=1, patience=1e9, max_wait_seconds=600)
    return {"settle": settle, "limits": LimitsConfig(**limits)}


def in_mid_copy(world: World, happens: Callable[[], object]) -> BackupTelling:
    """Something happens after the first bytes; the copy goes on once the observer has looked and a check is due."""
    world.make_orders_large()
    looked = threading.Semaphore(0)

    def once(done: int, total: int) -> None:
        if "host.usage" not in world.at:
            happens()
            world.at["host.usage"] = looked.release
            assert looked.acquire(timeout=TWO_TICKS)
            threading.Event().wait(CHECK_SECONDS + 0.1)

    return BackupTelling(copied=once)


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_not_granted_leaves_nothing(world: World) -> None:
    world.database.refuses_lock = True
    with pytest.raises(LockNotGranted):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.SERVER)


def test_a_lock_that_was_lost_costs_the_snapshot(world: World) -> None:
    world.at["host.create"] = world.database.end_lock_session
    existed: list[bool] = []
    world.at["host.remove"] = lambda: existed.append(bool(world.host.lvs))
    with pytest.raises(LockLost):
        world.back_up()
    assert existed == [True]
    assert_failed_and_clean(world, ExitStatus.SERVER)


def test_a_position_that_moved_under_the_lock_costs_the_snapshot(world: World) -> None:
    def a_write_slips_through() -> None:
        world.database.offset += 1

    world.at["host.create"] = a_write_slips_through
    with pytest.raises(LockLost):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.SERVER)


@pytest.mark.parametrize("event", ["host.create", "lock.granted"])
def test_what_the_lock_cost_is_recorded_of_a_run_that_failed_under_it(world: World, event: str) -> None:
    def fail() -> None:
        raise SnapshotError("no snapshot: LVM said no")

    world.at[event] = fail
    with pytest.raises(SnapshotError):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)
    row = world.row()
    assert (row.lock is not None) == (event == "host.create")  # before it there was nothing to hold
    if row.lock is not None:
        assert (row.lock.strategy, row.lock.tries, row.lock.proof) == ("ftwrl", 1, "none")
        assert {Phase.LOCK_WAIT, Phase.LOCK_HOLD} <= set(row.phases)
    assert row.position is None


def test_a_server_that_refuses_the_canary_s_row_is_never_locked(world: World) -> None:
    locked: list[str] = []
    world.at["lock.asked"] = lambda: locked.append("asked")
    read_only = replace(world.database.facts, read_only=True)
    world.at["probe.window"] = lambda: setattr(world.database, "facts", read_only)
    error = world.try_to_back_up()
    assert error is not None
    assert error.exit_status is ExitStatus.SERVER
    assert locked == []
    assert_failed_and_clean(world, ExitStatus.SERVER)


def test_a_blocker_that_came_after_the_preflight_is_not_waited_behind_for_ever(world: World) -> None:
    blocker = Blocker(7, "report", 300.0, "SELECT SLEEP(1000)")
    world.at["probe.window"] = lambda: setattr(world.database, "running", (blocker,))
    with pytest.raises(LockNotGranted):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.SERVER)


# --- the snapshot -----------------------------------------------------------------------------------------------------


def test_a_snapshot_that_is_not_confirmed_unlocks_and_is_removed(world: World) -> None:
    world.host.fail("create", after_effect=True)
    with pytest.raises(SnapshotError):
        world.back_up()
    assert world.database.rows == [("r1", "before")]
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_an_overflow_while_the_gate_waits_is_no_backup(world: World) -> None:
    world.probe.iops = (1000.0, 100.0)
    world.at["host.usage"] = lambda: world.host.write(1 << 40)
    with pytest.raises(SnapshotVoid):
        world.back_up(job=world.job(**impatient()))
    assert world.stored() == []
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_an_overflow_in_mid_copy_ends_the_copy(world: World) -> None:
    copied: list[tuple[int, int]] = []
    overflow = in_mid_copy(world, lambda: world.host.write(1 << 40))

    def note(done: int, total: int) -> None:
        copied.append((done, total))
        overflow.copied(done, total)

    with pytest.raises(SnapshotVoid):
        world.back_up(telling=BackupTelling(copied=note))
    assert copied[-1][0] < copied[-1][1] / 2
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_an_overflow_after_the_last_byte_is_no_backup_either(world: World) -> None:
    on_target: list[str] = []

    def overflow() -> None:
        on_target.extend(world.stored())
        world.host.write(1 << 40)

    world.at["host.require_intact"] = overflow
    with pytest.raises(SnapshotVoid):
        world.back_up()
    assert "nightly/r1/data-1.tar.zst" in on_target
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_a_snapshot_that_somebody_removed_is_no_backup(world: World) -> None:
    world.at["host.require_intact"] = world.host.lvs.clear
    with pytest.raises(SnapshotVoid):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


# --- limits -----------------------------------------------------------------------------------------------------------


def slow_writes(world: World) -> JobConfig:
    world.probe.iops = (1000.0, 100.0)
    return world.job(**impatient(max_penalty=3))


def no_room_for_more(world: World) -> None:
    """The volume group has what the snapshot takes, and nothing to extend it by."""
    world.host.free_by_pv = {"/dev/sdb": 10, "/dev/sdc": 10, "/dev/sdd": 10}


def full_cow_area(world: World) -> JobConfig:
    no_room_for_more(world)
    world.at["host.usage"] = lambda: world.host.write(100 << 20)
    return world.job(**impatient(max_cow_fill=0.5))


def late_replica(world: World) -> JobConfig:
    world.database.lag_seconds = 120.0
    return world.job(**impatient(max_replica_lag_seconds=60.0))


@pytest.mark.parametrize("beyond", [slow_writes, full_cow_area, late_replica])
def test_beyond_a_limit_the_backup_is_given_up_and_the_snapshot_dropped(
    world: World, beyond: Callable[[World], JobConfig]
) -> None:
    mounted: list[str] = []
    world.at["host.mount"] = lambda: mounted.append("mounted")
    job = beyond(world)
    with pytest.raises(GaveUp):
        world.back_up(job=job)
    assert mounted == []
    verdict = world.row().verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == (GateOutcome.GIVE_UP, Reason.LIMIT)
    assert world.row().samples
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_a_limit_that_is_passed_in_mid_copy_gives_the_backup_up(world: World) -> None:
    no_room_for_more(world)
    telling = in_mid_copy(world, lambda: world.host.write(100 << 20))
    with pytest.raises(GaveUp, match="COW area"):
        world.back_up(job=world.job(limits=LimitsConfig(max_cow_fill=0.5)), telling=telling)
    row = world.row()
    assert row.snapshot is not None
    assert row.snapshot.cow_used_peak is not None
    assert row.snapshot.cow_used_peak > 100 << 20
    assert "copy" in {sample.stage for sample in row.samples}
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


@pytest.mark.parametrize("stripes", [1, 3])
def test_a_cow_area_that_fills_up_in_mid_copy_is_extended_where_there_is_room(world: World, stripes: int) -> None:
    """A fill of 83 %, where half is the limit."""
    snapshot = SnapshotConfig(size=SnapshotSize(percent_of_origin=20.0), stripes=stripes)
    row = world.back_up(
        job=world.job(limits=LimitsConfig(max_cow_fill=0.5), snapshot=snapshot),
        telling=in_mid_copy(world, lambda: world.host.write(100 << 20)),
    )
    assert row.status is RunStatus.SUCCESS
    assert row.snapshot is not None
    assert row.snapshot.cow_extended > 0
    assert row.snapshot.cow_size == (120 << 20) + row.snapshot.cow_extended
    assert world.host.lvs == {}


def test_a_copy_exceeds_its_rate_limit_rather_than_let_the_cow_area_fill_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB at 1 MiB/s; the area, which cannot grow, reaches its limit in about 6 s."""
    no_room_for_more(world)
    monkeypatch.setattr("backupd.operations.backup.settling.LOOK_SECONDS", 0.05)
    (world.datadir / "shop" / "orders.ibd").write_bytes(b"x" * (16 << 20))
    world.at["host.usage"] = lambda: world.host.write(512 << 10)
    world.with_probe = False
    settle = SettleConfig(enabled=False)
    job = world.job(limits=LimitsConfig(max_cow_fill=0.5), copy=CopyConfig(max_rate=1 << 20), settle=settle)
    row = world.back_up(job=job)
    assert row.status is RunStatus.ATTENTION
    assert [text for text in row.attention if text.startswith("the copy exceeded copy.max_rate (1.0 MiB/s)")]


def test_the_hint_of_a_backup_that_is_given_up_for_its_cow_area_names_the_rate_limit(world: World) -> None:
    no_room_for_more(world)
    telling = in_mid_copy(world, lambda: world.host.write(100 << 20))
    job = world.job(limits=LimitsConfig(max_cow_fill=0.5), copy=CopyConfig(max_rate=100 << 20))
    with pytest.raises(GaveUp, match="COW area") as given_up:
        world.back_up(job=job, telling=telling)
    assert "raise copy.max_rate (now 100.0 MiB/s)" in given_up.value.hint


def test_an_extension_that_fails_is_an_attention_and_the_backup_is_good_below_the_limit(world: World) -> None:
    world.host.fail("extend")
    row = world.back_up(
        job=world.job(limits=LimitsConfig(max_cow_fill=0.9)),
        telling=in_mid_copy(world, lambda: world.host.write(100 << 20)),
    )
    assert row.status is RunStatus.ATTENTION
    assert any("could not be extended" in text for text in row.attention)
    assert row.snapshot is not None
    assert row.snapshot.cow_extended == 0


class InAnOutage(MemoryTarget):
    """Waits until nobody wants the object any more."""

    @contextmanager
    def writing(self, *which: Any, unwanted: threading.Event | None = None, **how: Any) -> Iterator[Any]:
        assert unwanted is not None
        with super().writing(*which, **how) as writer:
            assert unwanted.wait(60)
            yield writer


def test_an_outage_longer_than_the_snapshots_life_ends_with_the_snapshots_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And at once: no thread is waited for that waits for the target, nor any of those that wait for it in turn."""
    for module in ("pipeline", "source_file", "parallel"):  # a thread that does not end is waited for for so long
        monkeypatch.setattr(f"backupd.archive.{module}._JOIN_SECONDS", 120.0)
    no_room_for_more(world)
    (world.datadir / "shop" / "orders.ibd").write_bytes(os.urandom(64 << 20))  # more than all queues have room for
    world.memory = InAnOutage(name="vault")
    writes = iter([100 << 20])
    filled: list[float] = []

    def fill_up(done: int, _total: int) -> None:
        if done >= 12 << 20:
            world.host.write(next(writes, 0))
            filled.append(time.monotonic())

    with pytest.raises(GaveUp, match="COW area"):
        world.back_up(job=world.job(limits=LimitsConfig(max_cow_fill=0.5)), telling=BackupTelling(copied=fill_up))
    assert time.monotonic() - filled[0] < 60
    assert "is blocked in a call" not in caplog.text
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_the_next_gate_knows_how_fast_a_copy_was_that_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    no_room_for_more(world)
    monkeypatch.setattr("backupd.catalogue.past_runs._TELLING_SECONDS", 0.0)
    telling = in_mid_copy(world, lambda: world.host.write(100 << 20))
    with pytest.raises(GaveUp, match="COW area") as given_up:
        world.back_up(job=world.job(limits=LimitsConfig(max_cow_fill=0.5)), telling=telling)
    assert "raise snapshot.size: try 0.3 GiB for the COW area (now 0.2 GiB" in given_up.value.hint
    with world.catalogue() as catalogue:
        last = catalogue.last_copy("nightly")
    assert last is not None
    assert 0 < last.bytes_read < last.of_bytes <= last.used_bytes
    assert last.seconds == world.row().phases[Phase.COPY]


def test_a_copy_that_is_not_done_by_its_deadline_is_given_up(world: World) -> None:
    world.make_orders_large()
    deadline = soon()

    with pytest.raises(GaveUp, match="deadline"):
        world.back_up(
            job=world.job(copy=CopyConfig(must_finish_by=Deadline(clock=deadline.time()))),
            telling=BackupTelling(copied=lambda _done, _total: wait_until(deadline)),
        )
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def test_a_deadline_that_passes_before_the_copy_is_not_the_next_days(world: World) -> None:
    deadline = soon()

    def dawdle(phase: Phase) -> None:
        if phase is Phase.SETTLE:
            wait_until(deadline)

    with pytest.raises(GaveUp, match="missed its deadline: 0 B of"):
        world.back_up(
            job=world.job(copy=CopyConfig(must_finish_by=Deadline(clock=deadline.time()))),
            telling=BackupTelling(phase=dawdle),
        )
    assert_failed_and_clean(world, ExitStatus.SNAPSHOT)


def soon() -> datetime:
    """Two to three seconds from now: a configuration knows whole seconds only, and a busy machine starts slowly."""
    return (datetime.now().astimezone() + timedelta(seconds=3)).replace(microsecond=0)


def wait_until(instant: datetime) -> None:
    threading.Event().wait(max(0.0, (instant - datetime.now().astimezone()).total_seconds() + 0.1))


@pytest.mark.parametrize(
    ("with_probe", "max_wait", "reason"), [(True, 0.2, Reason.MAX_WAIT), (False, 0.0, Reason.NO_DATA)]
)
def test_a_gate_that_waited_long_enough_starts_and_asks_for_attention(
    world: World, with_probe: bool, max_wait: float, reason: Reason
) -> None:
    world.with_probe = with_probe
    world.probe.iops = (1000.0, 100.0)
    row = world.back_up(job=world.job(settle=SettleConfig(baseline_windows=1, patience=1e9, max_wait_seconds=max_wait)))
    assert row.status is RunStatus.ATTENTION
    assert row.verdict is not None
    assert (row.verdict.outcome, row.verdict.reason) == (GateOutcome.START, reason)
    assert f"({reason})" in row.attention[0]
    assert row.backup is not None
    assert world.left() == []


# --- the server, afterwards -------------------------------------------------------------------------------------------


def test_a_server_that_dies_after_the_unlock_takes_nothing_from_the_backup(world: World) -> None:
    world.at["lock.ended"] = lambda: setattr(world.database, "fails_at", 1)
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert any("after the unlock" in text for text in row.attention)
    assert world.target.manifest("nightly", "r1").position == row.position
    assert world.left() == []
