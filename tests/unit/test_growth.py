"""When a COW area is extended, and to what: a pure function of the latest samples."""

from collections.abc import Sequence

import pytest

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.lvm.extending import extension, further_bytes
from backupd.policy.cow_growth import wanted_total
from backupd.policy.settle_gate import CowForecast
from backupd.policy.snapshot_plan import Further, further_extents, plan_snapshot
from backupd.vocabulary.penalty import Sample
from tests.fakes.lvm_host import EXTENT, LvmHost

MIB = 1 << 20


def filling(used: int, *, rate: float, count: int = 30) -> list[Sample]:
    """So many looks, a second apart, the last of which has seen this fill; MiB and MiB a second."""
    return [
        Sample(float(at), "copy", cow_used=round((used - rate * (count - 1 - at)) * MIB), cow_rate=rate * MIB)
        for at in range(count)
    ]


def wanted(samples: Sequence[Sample], forecast: CowForecast) -> float | None:
    total = wanted_total(samples, forecast, max_fill=0.8)
    return None if total is None else total / MIB


@pytest.mark.parametrize(
    ("used", "rate", "expected"),
    [
        (100, 0.0, None),  # nothing is written
        (100, 5.0, None),  # 700 of 800 in two minutes
        (100, 6.0, (100 + 3600) / 0.8),  # 820
        (500, 3.0, (500 + 1800) / 0.8),  # 860
        (590, 0.0, None),
        (610, 0.0, 1250),  # near the limit: a burst may be faster than the next look
        (900, 0.0, 900 / 0.6),  # beyond it
    ],
)
def test_what_is_about_to_fill_gets_room_for_the_next_ten_minutes(
    used: int, rate: float, expected: float | None
) -> None:
    found = wanted(filling(used, rate=rate), CowForecast(1000 * MIB))
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-6))


def test_a_first_burst_takes_no_more_because_the_copy_may_be_long() -> None:
    """Two terabytes at 20 MiB/s, in an area of 50 GiB: ten seconds of 30 MiB/s say nothing of the night."""
    cow = CowForecast(50 << 30, guess_seconds=100_000.0)
    assert wanted(filling(300, rate=30.0, count=10), cow) is None
    assert wanted(filling(32 << 10, rate=30.0), cow) == pytest.approx(50 * 1280)  # a quarter


def test_a_few_looks_are_no_forecast() -> None:
    assert wanted(filling(100, rate=9.0, count=9), CowForecast(1000 * MIB)) is None
    assert wanted([Sample(1.0, "copy")], CowForecast(1000 * MIB)) is None


def test_no_more_is_taken_than_there_is_and_than_a_complete_area_needs() -> None:
    host = LvmHost(free_by_pv={"/dev/sdb": 40, "/dev/sde": 27})  # of 217 with the volume
    plan = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig())

    def further(wanted: int, room: LvmHost = host) -> int:
        return further_extents(plan, room.group(), total=plan.size, wanted=wanted * EXTENT).extents

    assert plan.extents == 30
    assert further(30) == 0
    assert further(35) == 5
    assert further(10**6) == 67 - 21  # the group's last tenth is for its thin pools, or whoever else must grow
    assert further_bytes(plan, host.group()) == (67 - 21 - 30) * EXTENT
    assert further(10**6, LvmHost()) == 151 - 30  # a complete one of this volume


def test_a_striped_area_grows_in_stripes_while_they_give_enough() -> None:
    own = ("/dev/sdb", "/dev/sdc")
    host = LvmHost(free_by_pv={"/dev/sdb": 60, "/dev/sdc": 40, "/dev/sdd": 0, "/dev/sde": 0})
    settings = SnapshotConfig(size=SnapshotSize(bytes=20 * EXTENT), stripes=2, pvs=own)
    plan = plan_snapshot(host.volume, host.group(), "r1", settings)
    assert (plan.extents, plan.striped_over) == (20, own)

    def further(wanted: int, **left: int) -> Further:
        group = LvmHost(free_by_pv={f"/dev/{pv}": free for pv, free in left.items()}).group()
        return further_extents(plan, group, total=plan.size, wanted=wanted * EXTENT)

    assert further(25, sdb=50, sdc=30, sde=30) == Further(6, own, 2)  # five, and one more to be whole
    assert further(60, sdb=50, sdc=30, sde=30) == Further(40, own, 2)
    assert further(60, sdb=50, sdc=0, sde=30) == Further(40, own, 1)  # no second stripe any more
    assert further(60, sdb=50, sdc=10, sde=30) == Further(40, own, 1)  # one, but not enough
    assert further(20, sdb=50, sdc=30) == Further(0, own, 2)
    assert further_bytes(plan, host.group()) == (100 - 25 - 20) * EXTENT  # of 250 a tenth is left


def test_what_is_extended_lies_in_the_stripes_until_one_of_their_pvs_is_full() -> None:
    over = ("/dev/sdb", "/dev/sdc")
    host = LvmHost(free_by_pv={"/dev/sdb": 100, "/dev/sdc": 30, "/dev/sdd": 90, "/dev/sde": 0})
    settings = SnapshotConfig(size=SnapshotSize(bytes=20 * EXTENT), stripes=2, pvs=over)
    plan = plan_snapshot(host.volume, host.group(), "r1", settings)
    with host.snapshots.prepared(plan) as creator:
        snapshot = creator.create()
    extend = extension(host.snapshots, snapshot, plan)
    area = host.lvs[plan.name]
    assert extend(20 * EXTENT, 45 * EXTENT) == 26 * EXTENT
    assert area.striped == {"/dev/sdb": 23, "/dev/sdc": 23}
    assert extend(46 * EXTENT, 80 * EXTENT) == 34 * EXTENT  # there are seven more on sdc
    assert (area.extents, area.striped) == (80, {"/dev/sdb": 23, "/dev/sdc": 23})
