"""How large a snapshot is made, and when there is no room for it."""

from dataclasses import dataclass

import pytest

from backupd.errors import SnapshotError
from backupd.model import SnapshotPlan, VolumeGroup
from backupd.snapshots.plan import complete_cow_bytes, plan_snapshot
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


def plan(size: Size, *, pvs: tuple[str, ...] = (), origin_size: int = GIB) -> SnapshotPlan:
    return plan_snapshot(striped_volume(size=origin_size), GROUP, "r1", Settings(size, pvs=pvs))


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
    with pytest.raises(SnapshotError, match="/dev/sdz: no usable PV of vg0") as caught:
        plan(Size(percent_of_origin=20), pvs=("/dev/sdz",))
    assert "/dev/sda, /dev/sdb" in caught.value.hint
