"""A run whose volume is thin: the same story, with a pool in place of the COW area."""

from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import LimitsConfig, SettleConfig
from backupd.operations.backup import preflight
from backupd.vocabulary.errors import ExitStatus, GaveUp, Refused
from backupd.vocabulary.records import Level, RunStatus
from backupd.vocabulary.volumes import Volume
from tests.fakes.lvm_host import LvmHost, thin_volume
from tests.story.world import World

MIB = 1 << 20


def thin_world(tmp_path: Path, *, used: int = 100 * MIB) -> World:
    return World(tmp_path, host=LvmHost(volume=thin_volume(used=used)))


def test_a_thin_volume_is_backed_up_and_nothing_is_left(tmp_path: Path) -> None:
    world = thin_world(tmp_path)
    row = world.back_up()
    assert (row.status, row.attention) == (RunStatus.SUCCESS, ())
    assert row.snapshot is not None
    assert (row.snapshot.layout, row.snapshot.stripes, row.snapshot.chunk_size) == ("striped", 3, 64 << 10)
    assert (row.snapshot.cow_size, row.snapshot.cow_used_peak) == (600 * MIB, 100 * MIB)
    assert row.snapshot.pool == "labvg/pool"
    assert world.left() == []


def test_a_pool_that_fills_up_costs_the_backup_and_never_the_server(tmp_path: Path) -> None:
    world = thin_world(tmp_path)
    world.at["host.usage"] = lambda: world.host.write(450 * MIB)  # beyond 90 % of the pool
    error = world.try_to_back_up(job=world.job(settle=SettleConfig(windows=9, baseline_windows=1)))
    assert isinstance(error, GaveUp)
    assert "thin pool labvg/pool is" in error.message
    assert "lvextend --size +SIZE" in error.hint
    assert world.left() == []


def test_a_pool_that_runs_out_of_metadata_costs_the_backup_before_it_costs_the_server(tmp_path: Path) -> None:
    world = thin_world(tmp_path)
    world.at["host.usage"] = lambda: world.host.fill_metadata(0.92)
    error = world.try_to_back_up(job=world.job(settle=SettleConfig(windows=9, baseline_windows=1)))
    assert isinstance(error, GaveUp)
    assert "the metadata of thin pool labvg/pool is 92% full, the limit is 90%" in error.message
    row = world.row()
    assert row.verdict is not None
    assert row.verdict.reason == "limit"
    assert world.left() == []


@pytest.mark.parametrize(("word", "fate"), [("queue", "fail after a minute"), ("error", "fail at once")])
def test_check_tells_how_full_the_pool_is_and_what_becomes_of_writes_then(tmp_path: Path, word: str, fate: str) -> None:
    world = World(tmp_path, host=LvmHost(volume=with_pool(thin_volume(metadata_used=8 * MIB), when_full=word)))
    found = preflight.examine(world.job(), world.tools, last_stored_bytes=None)
    room = next(finding for finding in found.findings if finding.name == "snapshot room")
    assert room.level is Level.OK
    assert "17% full, its metadata 25%" in room.detail
    assert fate in room.detail


def test_thin_snapshots_of_others_are_told_and_no_reason_to_refuse(tmp_path: Path) -> None:
    world = World(tmp_path, host=LvmHost(volume=replace(thin_volume(), thin_snapshots=("hers", "his"))))
    found = preflight.examine(world.job(), world.tools, last_stored_bytes=None)
    others = next(finding for finding in found.findings if finding.name == "other snapshots")
    assert (others.level, bool(others.hint)) == (Level.WARNING, True)
    assert "already has: hers, his" in others.detail
    assert world.back_up().status is RunStatus.SUCCESS


def with_pool(volume: Volume, **changes: str) -> Volume:
    assert volume.pool is not None
    return replace(volume, pool=replace(volume.pool, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("used", "level"), [(100, Level.OK), (470, Level.OK), (541, Level.REFUSED)])
def test_a_pool_beyond_the_limit_of_a_run_is_refused_before_it(tmp_path: Path, used: int, level: Level) -> None:
    world = thin_world(tmp_path, used=used * MIB)
    found = preflight.examine(world.job(), world.tools, last_stored_bytes=None)
    room = next(finding for finding in found.findings if finding.name == "snapshot room")
    assert room.level is level
    assert "thin pool labvg/pool" in room.detail
    if level is Level.REFUSED:
        error = world.try_to_back_up()
        assert error is not None
        assert error.exit_status is ExitStatus.REFUSED


def test_a_pool_beyond_a_limit_that_the_job_sets_lower_is_refused_before_it_however_little_a_snapshot_needs(
    tmp_path: Path,
) -> None:
    world = thin_world(tmp_path, used=330 * MIB)
    error = world.try_to_back_up(job=world.job(limits=LimitsConfig(max_cow_fill=0.5)))
    assert isinstance(error, Refused)
    assert "thin pool labvg/pool is 55% full, limits.max_cow_fill is 50%" in error.message
    assert "extend the pool (lvextend --size +SIZE labvg/pool), or raise the limit" in error.hint


def test_check_says_that_the_volume_is_thin(tmp_path: Path) -> None:
    world = thin_world(tmp_path)
    found = preflight.examine(world.job(), world.tools, last_stored_bytes=None)
    told = {finding.name: finding for finding in found.findings}
    assert told["layout"].detail.endswith("thin in pool pool")
    assert "segments" not in told
