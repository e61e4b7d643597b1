"""What the kernel counts of everybody's writes: in every run, with a probe and without, and in the record of each."""

import time
from dataclasses import replace

import pytest

from backupd.config import JobConfig, LimitsConfig, SettleConfig
from backupd.operations.backup import preflight
from backupd.operations.tools import FilesystemRoom
from backupd.vocabulary.penalty import GateOutcome, Reason
from backupd.vocabulary.records import Finding, Phase, RunStatus
from backupd.vocabulary.storage import LastCopy
from tests.story.world import World

ENDLESS = SettleConfig(windows=1, baseline_windows=1, patience=1e9)


@pytest.mark.parametrize(
    "settle",
    [
        ENDLESS,
        SettleConfig(probe=False, baseline_windows=1, max_wait_seconds=1),
        SettleConfig(enabled=False, baseline_windows=2),
    ],
)
def test_every_run_knows_what_writes_took_before_the_snapshot_and_after(world: World, settle: SettleConfig) -> None:
    world.with_probe = bool(settle.probe)
    row = world.back_up(job=world.job(settle=settle))
    before = [sample for sample in row.samples if sample.stage == "baseline"]
    assert len(before) == settle.baseline_windows
    assert all(sample.write_latency_ms == pytest.approx(world.write_milliseconds) for sample in before)
    assert all((sample.iops is not None) == (settle.probe and settle.enabled) for sample in before)
    assert row.pace == ()
    assert world.left() == []


@pytest.mark.parametrize(
    ("settle", "limits", "probes"),
    [
        (SettleConfig(baseline_windows=1), LimitsConfig(), False),
        (SettleConfig(baseline_windows=1), LimitsConfig(max_penalty=9), True),
        (SettleConfig(baseline_windows=1, probe=True), LimitsConfig(), True),
        (SettleConfig(baseline_windows=1, windows=1, patience=1e9), LimitsConfig(), True),
        (SettleConfig(baseline_windows=1, windows=1, patience=1e9, probe=False), LimitsConfig(), False),
    ],
)
def test_a_run_probes_only_where_that_can_change_something(
    world: World, settle: SettleConfig, limits: LimitsConfig, probes: bool
) -> None:
    world.with_probe = settle.probe is not False
    prepared: list[bool] = []
    world.at["probe.prepare"] = lambda: prepared.append(True)
    row = world.back_up(job=world.job(settle=settle, limits=limits))
    assert any(sample.iops is not None for sample in row.samples) == bool(prepared) == probes
    assert row.status is RunStatus.SUCCESS
    assert world.left() == []


def test_no_probe_file_is_written_where_the_server_would_lack_the_room(world: World) -> None:
    prepared: list[bool] = []
    world.at["probe.prepare"] = lambda: prepared.append(True)
    world.room = FilesystemRoom(free=100 << 20, total=10 << 30, read_only=False)
    job = world.job(settle=replace(ENDLESS, file_size=8 << 20))
    row = world.back_up(job=job)
    assert prepared == []
    (attention,) = row.attention
    assert "the probe's file needs 8.0 MiB, " in attention
    assert row.status is RunStatus.ATTENTION
    (found,) = told_of_the_probe_file(world, job)
    assert found.detail in attention
    assert "settle.file_size" in found.hint
    assert world.left() == []


def told_of_the_probe_file(world: World, job: JobConfig, last: LastCopy | None = None) -> list[Finding]:
    found = preflight.examine(job, world.tools, last_stored_bytes=None, last_copy=last)
    return [one for one in found.findings if one.name == "probe file"]


@pytest.mark.parametrize(
    ("settle", "limits", "seconds", "told"),
    [
        (SettleConfig(), LimitsConfig(), None, False),  # by what there is, the copy is too short to wait for
        (SettleConfig(), LimitsConfig(), 36000.0, True),
        (SettleConfig(), LimitsConfig(max_penalty=9), None, True),
        (SettleConfig(probe=True), LimitsConfig(), None, True),
        (SettleConfig(enabled=False, probe=True), LimitsConfig(), 36000.0, False),
    ],
)
def test_nobody_is_warned_of_a_probe_file_that_no_run_would_write(
    world: World, settle: SettleConfig, limits: LimitsConfig, seconds: float | None, told: bool
) -> None:
    world.room = FilesystemRoom(free=100 << 20, total=10 << 30, read_only=False)
    used = world.tools.files.used_bytes(world.mount_root)
    last = None if seconds is None else LastCopy(used, used, used, seconds)
    job = world.job(settle=replace(settle, file_size=8 << 20), limits=limits)
    assert bool(told_of_the_probe_file(world, job, last)) is told


def test_a_small_probe_file_is_written_however_full_the_volume_is(world: World) -> None:
    world.room = FilesystemRoom(free=800 << 20, total=100 << 30, read_only=False)
    row = world.back_up(job=world.job(settle=replace(ENDLESS, file_size=8 << 20)))
    assert any(sample.iops is not None for sample in row.samples)
    assert row.status is RunStatus.SUCCESS


@pytest.mark.parametrize("call", [1, 2], ids=["prepare", "window"])
def test_a_probe_that_fails_gives_its_room_back_before_the_lock(world: World, call: int) -> None:
    there: list[bool] = []
    folder = world.places.probe_folder(world.mount_root, "r1")
    world.probe.fail_at_call = call
    world.at["lock.asked"] = lambda: there.append(folder.exists())
    row = world.back_up(job=world.job(settle=ENDLESS))
    assert there == [False]
    assert any("no probe" in one for one in row.attention)
    assert world.left() == []


def test_who_only_watches_waits_for_nobody_else_who_only_watches(world: World) -> None:
    """Both take three seconds. One after the other they would take six."""
    world.with_probe = False
    world.undisturbed_seconds = 3.0
    job = world.job(settle=SettleConfig(probe=False, window_seconds=3.0, baseline_windows=1, max_wait_seconds=1))
    row = world.back_up(job=job)
    assert 3.0 <= row.phases[Phase.BASELINE] < 6.0
    assert world.left() == []


def test_a_probe_waits_until_the_server_was_watched_undisturbed(world: World) -> None:
    """Its files and its windows would be taken for what the server does undisturbed."""
    world.undisturbed_seconds = 2.0
    after: list[float] = []
    began = time.monotonic()
    for event in ("probe.prepare", "probe.window"):
        world.at[event] = lambda: after.append(time.monotonic() - began)
    world.back_up(job=world.job(settle=SettleConfig(probe=True, windows=1, baseline_windows=1)))
    assert min(after) >= world.undisturbed_seconds
    assert world.left() == []


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_probe_that_fails_before_the_snapshot_leaves_the_gate_to_the_meter_and_is_told(
    world: World, fails_at: int
) -> None:
    """While it lays its files, and while it measures."""
    world.probe.disk.fail_at_call = fails_at
    row = world.back_up(job=world.job(settle=SettleConfig(probe=True, windows=1, baseline_windows=1)))
    assert row.status is RunStatus.ATTENTION
    told = f"no probe: the gate relied on the passive meter alone: the disk was told to fail at call {fails_at}"
    assert told in row.attention
    before = [sample for sample in row.samples if sample.stage == "baseline"]
    assert before[0].write_latency_ms == pytest.approx(world.write_milliseconds)
    assert world.left() == []


def test_a_copy_within_a_budget_records_how_fast_it_was_read(world: World) -> None:
    row = world.back_up(job=world.job(settle=ENDLESS, limits=LimitsConfig(max_latency=2.0)))
    assert [change.reason for change in row.pace] != []


def test_a_run_that_was_given_up_keeps_its_verdict_and_what_was_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "backupd.operations.backup.settling.LOOK_SECONDS", 3600.0
    )  # the look that ends the run is the last one
    world.with_probe = False
    world.write_milliseconds = 40.0
    world.database.lag_seconds = 99.0
    job = world.job(settle=ENDLESS, limits=LimitsConfig(max_replica_lag_seconds=60))
    assert world.try_to_back_up(job=job) is not None
    row = world.row()
    assert row.status is RunStatus.FAILED
    assert row.verdict is not None
    assert (row.verdict.outcome, row.verdict.reason) == (GateOutcome.GIVE_UP, Reason.LIMIT)
    assert {sample.stage for sample in row.samples} == {"baseline", "settle"}
    assert row.samples[0].write_latency_ms == pytest.approx(40.0)
    assert row.samples[-1].replica_lag_seconds == 99.0
