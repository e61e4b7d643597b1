"""How large a COW area is made by what earlier runs have filled; the unit is MiB."""

from collections.abc import Sequence

import pytest

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.policy.cow_size import room_for
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.volumes import SnapshotPlan
from tests.fakes.lvm_host import LvmHost, striped_volume

MIB = 1 << 20
USUAL = 64 << 10  # the chunks of these runs


def life(filled: int, seconds: float = 100.0, chunk_size: int = USUAL) -> SnapshotLife:
    return SnapshotLife(chunk_size, filled * MIB, seconds)


@pytest.mark.parametrize(
    ("past", "wanted", "least"),
    [
        ([], 200, 200),  # the usual share, and no less
        ([life(90, chunk_size=512 << 10)], 200, 200),  # chunks of another size tell nothing
        ([life(90, seconds=0.0)], 200, 200),
        ([life(90)], 200, 90),  # twice that is less than usual: enough
        ([life(1)], 200, 64),
        ([life(300)], 600, 200),
        ([life(300, 100.0), life(90, 400.0)], 200, 90),  # too short beside the longest to tell anything
        ([life(300, 100.0), life(90, 225.0)], 900, 200),  # half as much again in 2.25 times as long
    ],
)
def test_what_was_filled_twice_or_the_usual_share(past: Sequence[SnapshotLife], wanted: int, least: int) -> None:
    room = room_for(1000 * MIB, USUAL, past)
    assert (room.wanted // MIB, room.least // MIB) == (wanted, least)


def test_the_reason_has_the_figures() -> None:
    told = "2 runs of at most 100 s filled up to 300 MiB"
    assert room_for(1000 * MIB, USUAL, [life(300), life(1)]).reason == f"twice the forecast: {told}"
    assert room_for(10**6 * MIB, USUAL, [life(300), life(1)]).reason == f"20% of the origin is enough: {told}"
    assert "a run of at most 1 s filled up to 50 MiB" in room_for(1000 * MIB, USUAL, [life(50, 0.01)]).reason
    assert "of the origin: no run has shown yet how much it fills" in room_for(MIB, USUAL, []).reason


def plan(past: Sequence[SnapshotLife], *, free: int, settings: SnapshotConfig | None = None) -> SnapshotPlan:
    """Of an origin of 1000 MiB in a group that has so much left."""
    host = LvmHost(volume=striped_volume(size=1000 * MIB), free_by_pv={"/dev/sdb": free // 4})
    return plan_snapshot(host.volume, host.group(), "r1", settings or SnapshotConfig(), past)


def test_it_is_never_more_than_is_free_and_a_forecast_refuses_no_backup() -> None:
    assert plan([life(300)], free=800).size == 600 * MIB
    scarce = plan([life(300)], free=400)  # 350 extents with the volume: 35 of them stay free
    assert scarce.size == (400 - 4 * 35) * MIB
    assert scarce.size_reason.startswith("all that is available: twice the forecast: ")
    assert plan([life(70)], free=100).size == 72 * MIB  # what is forecast, from the last tenth
    with pytest.raises(SnapshotError, match="need 50, have 49"):  # a forecast alone refuses no backup
        plan([life(300)], free=196)
    with pytest.raises(SnapshotError, match="need 50, have 49") as caught:
        plan([], free=196)
    assert caught.value.hint.startswith("lower snapshot.size (now auto: 20%, or what past runs have filled)")


def test_no_more_is_taken_than_a_complete_copy_needs_and_what_the_job_says_goes_first() -> None:
    assert plan([life(3000)], free=8000).size == 1004 * MIB
    said = plan([life(300)], free=800, settings=SnapshotConfig(size=SnapshotSize(bytes=100 * MIB)))
    assert (said.size, said.size_reason) == (100 * MIB, "")
