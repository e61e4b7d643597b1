"""How large a snapshot is made, and when there is no room for it."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.snapshot_plan import complete_cow_bytes, further_extents, plan_snapshot
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.volumes import PvsGone, SnapshotPlan, VolumeGroup
from tests.fakes.lvm_host import striped_volume

GIB = 1 << 30
GROUP = VolumeGroup("vg0", 4 << 20, 300, {"/dev/sda": 260, "/dev/sdb": 40})


@dataclass(frozen=True)
class Size:
    percent_of_origin: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Settings:
    size: Size
    chunk_size: int = 64 << 10
    pvs: tuple[str, ...] = ()
    stripes: int = 1
    pvs_gone: PvsGone = PvsGone.REFUSE


def plan(size: Size, *, pvs: tuple[str, ...] = (), origin_size: int = GIB, stripes: int = 1) -> SnapshotPlan:
    return plan_snapshot(striped_volume(size=origin_size), GROUP, "r1", Settings(size, pvs=pvs, stripes=stripes))


def test_percentage_is_of_the_origin_in_whole_extents_rounded_up() -> None:
    assert plan(Size(percent_of_origin=20)).extents == 52  # 51.2
    assert plan(Size(percent_of_origin=20)).size == 52 * (4 << 20)


def test_bytes_are_rounded_up_to_whole_extents() -> None:
    assert plan(Size(bytes=1)).extents == 1
    assert plan(Size(bytes=8 << 20)).extents == 2


def test_no_more_is_taken_than_a_complete_copy_needs() -> None:
    assert plan(Size(percent_of_origin=100)).extents == 256
    assert plan(Size(bytes=50 * GIB)).extents == 257  # and one for the COW area's own header and metadata


def test_complete_cow_area_is_what_lvm_reduces_a_larger_one_to() -> None:
    # lvcreate 2.03.16, 600 MiB origin, 64 KiB chunks, 4 MiB extents: "down to maximum usable size 604.00 MiB"
    assert complete_cow_bytes(600 << 20, 64 << 10) == 604 * (1 << 20) - 60 * (64 << 10)


def test_snapshot_bears_its_runs_name_and_settings() -> None:
    made = plan(Size(bytes=GIB), pvs=("/dev/sda",))
    assert (made.name, made.run_id, made.chunk_size, made.pvs) == ("backupd-r1", "r1", 64 << 10, ("/dev/sda",))


def test_lack_of_extents_is_told_in_numbers_with_two_ways_out() -> None:
    with pytest.raises(SnapshotError, match=r"not enough free extents on vg0: need 512, have 300") as caught:
        plan(Size(percent_of_origin=20), origin_size=10 * GIB)
    assert caught.value.hint == "lower snapshot.size (now 20%) or extend the volume group: vgextend vg0 DEVICE"


def test_only_the_chosen_disks_count() -> None:
    with pytest.raises(SnapshotError, match="on /dev/sdb of vg0: need 52, have 40"):
        plan(Size(percent_of_origin=20), pvs=("/dev/sdb",))


def test_disk_of_another_group_is_named_with_those_to_choose_from() -> None:
    with pytest.raises(SnapshotError, match=r"/dev/sdz is not a PV of vg0") as caught:
        plan(Size(percent_of_origin=20), pvs=("/dev/sdz",))
    assert "/dev/sda, /dev/sdb" in caught.value.hint


# --- in stripes ------------------------------------------------------------------------------------------------------

EXTENT = 4 << 20
BOTH = ("/dev/sda", "/dev/sdb")


def test_a_striped_area_has_as_many_extents_on_each_pv() -> None:
    made = plan(Size(bytes=51 * EXTENT), stripes=2)
    assert (made.extents, made.size, made.striped_over) == (52, 52 * EXTENT, BOTH)
    assert plan(Size(bytes=51 * EXTENT)).striped_over == ()


def test_room_for_stripes_is_what_the_fullest_of_their_pvs_has() -> None:
    assert plan(Size(bytes=80 * EXTENT), stripes=2).extents == 80  # 40 of sdb and as many of sda
    with pytest.raises(SnapshotError) as caught:
        plan(Size(bytes=81 * EXTENT), stripes=2)
    assert caught.value.message == (
        "not enough free extents on /dev/sda, /dev/sdb of vg0: 2 stripes need 41 on each, and /dev/sdb has 40"
    )
    assert caught.value.hint == (
        "lower snapshot.size (now 324MiB), lower snapshot.stripes (now 2) or extend the volume group:"
        " vgextend vg0 DEVICE"
    )


def test_more_stripes_than_pvs_with_room_are_refused() -> None:
    with pytest.raises(SnapshotError) as caught:
        plan(Size(bytes=GIB), stripes=3)
    assert caught.value.message == (
        "not enough PVs for 3 stripes of the COW area on vg0: of the PVs, 2 have free extents (/dev/sda, /dev/sdb)"
    )
    assert caught.value.hint == "lower snapshot.stripes (now 3), or extend the volume group: vgextend vg0 DEVICE"
    with pytest.raises(SnapshotError, match=r"that snapshot\.pvs names, 1 have free extents \(/dev/sda\)") as caught:
        plan(Size(bytes=GIB), stripes=2, pvs=("/dev/sda",))
    assert caught.value.hint == "lower snapshot.stripes (now 2), name more in snapshot.pvs"


def test_stripes_go_on_the_pvs_with_the_most_room_of_those_named() -> None:
    group = VolumeGroup("vg0", EXTENT, 60, {"/dev/a": 10, "/dev/b": 30, "/dev/c": 0, "/dev/d": 20})
    assert group.striped_over((), 2) == ("/dev/b", "/dev/d")
    assert group.striped_over(("/dev/d", "/dev/a"), 2) == ("/dev/d", "/dev/a")
    assert group.striped_over((), 4) == ()
    assert [group.free_on((), stripes=stripes) for stripes in (1, 2, 3, 4)] == [60, 40, 30, 0]


groups = st.lists(st.integers(0, 300), min_size=1, max_size=6).map(
    lambda free: VolumeGroup(
        "vg0", EXTENT, sum(free), {f"/dev/sd{i}": extents for i, extents in enumerate(free)}, all_extents=sum(free) + 50
    )
)


@given(group=groups, stripes=st.integers(1, 5), asked=st.integers(1, 400), chunk_power=st.integers(12, 19))
def test_whatever_is_planned_and_added_fits_and_is_whole_on_each_stripe(
    group: VolumeGroup, stripes: int, asked: int, chunk_power: int
) -> None:
    origin = striped_volume(size=GIB)
    settings = Settings(Size(bytes=asked * EXTENT), chunk_size=1 << chunk_power, stripes=stripes)
    complete = -(-complete_cow_bytes(origin.size, settings.chunk_size) // EXTENT)
    need = -(-min(asked, complete) // stripes)
    try:
        made = plan_snapshot(origin, group, "r1", settings)
    except SnapshotError:
        roomy = [free for free in group.free_by_pv.values() if free >= need]
        assert len(roomy) < stripes if stripes > 1 else group.free_extents < need
        return
    assert made.extents == need * stripes
    assert len(made.striped_over) == (stripes if stripes > 1 else 0)
    assert all(group.free_by_pv[pv] >= need for pv in made.striped_over)
    left = {pv: free - need * (pv in made.striped_over) for pv, free in group.free_by_pv.items()}
    now = VolumeGroup("vg0", EXTENT, group.free_extents - made.extents, left, all_extents=group.all_extents)
    further = further_extents(made, now, total=made.size, wanted=GIB)
    assert further.extents % further.stripes == 0
    if further.stripes > 1 and further.extents:
        assert further.pvs == made.striped_over
        assert all(left[pv] >= further.extents // further.stripes for pv in further.pvs)
        assert made.extents + further.extents <= complete
    assert further.extents <= max(0, now.free_extents - group.all_extents // 10)
