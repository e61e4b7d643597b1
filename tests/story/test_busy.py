"""One run per job, one per volume group, one process per run."""

import pytest

from backupd.host.claims import Claims
from backupd.vocabulary.errors import Busy, ExitStatus
from backupd.vocabulary.records import RunStatus
from tests.story.world import World


def test_a_second_run_of_the_same_job_is_busy_and_does_not_disturb_the_first(world: World) -> None:
    second: list[object] = []
    world.at["host.mount"] = lambda: second.append(world.try_to_back_up("r2"))
    first = world.back_up("r1")
    assert isinstance(second[0], Busy)
    assert "run r1 of job nightly" in second[0].message
    row = world.row("r2")
    assert row.status is RunStatus.BUSY
    assert row.error is not None
    assert row.error.exit_status == ExitStatus.BUSY
    assert first.status is RunStatus.SUCCESS
    assert world.left() == []


def test_a_second_job_on_the_same_volume_group_is_busy(world: World) -> None:
    with Claims(world.places.run).volume_group("labvg", "another"), pytest.raises(Busy, match="run another"):
        world.back_up()
    assert world.row().status is RunStatus.BUSY
    assert (world.host.calls["prepared"], world.database.rows, world.stored()) == (0, [], [])
    assert world.left() == []


def test_a_job_that_becomes_busy_in_the_middle_of_another_ones_run_takes_no_snapshot(world: World) -> None:
    second: list[object] = []
    weekly = world.job(name="weekly")
    world.at["host.prepared"] = lambda: second.append(world.try_to_back_up("r2", job=weekly))
    world.back_up("r1")
    assert isinstance(second[0], Busy)
    assert world.row("r2").status is RunStatus.BUSY
    assert world.left() == []


def test_a_live_run_is_not_recovered_by_the_next_one(world: World) -> None:
    snapshots: list[list[str]] = []

    def second() -> None:
        world.try_to_back_up("r2", job=world.job(name="weekly"))
        snapshots.append(list(world.host.lvs))

    world.at["host.mount"] = second
    assert world.back_up("r1").status is RunStatus.SUCCESS
    assert snapshots == [["backupd-r1"]]


def test_a_busy_job_can_run_as_soon_as_the_other_has_ended(world: World) -> None:
    with Claims(world.places.run).job("nightly", "r0"):
        assert isinstance(world.try_to_back_up("r1"), Busy)
    assert world.back_up("r2").status is RunStatus.SUCCESS
