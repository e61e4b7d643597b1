"""What every implementation of `ScratchVolumes` promises: the stories' fake, and, in the lab, LVM itself.

With `BACKUPD_LAB=1` (set in the lab's machine only) the suite also runs as root in the free extents of `labvg`; what
only the real one can show is in `tests/lab/inside/inside_bench_volumes.py`.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.host import process
from backupd.lvm import Mounts, ScratchVolumes, Snapshots
from backupd.lvm.mounting import LinuxMounts
from backupd.lvm.scratch import LvmScratchVolumes
from backupd.lvm.snapshots import LvmSnapshots
from backupd.vocabulary.benches import LEAST_SIZE
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, ScratchLayout
from backupd.vocabulary.volumes import SnapshotPlan
from tests.fakes.lvm_host import LvmHost
from tests.fakes.scratch_volumes import FakeScratchVolumes
from tests.fakes.target import MACHINE

IN_LAB = os.environ.get("BACKUPD_LAB") == "1"
VG, NAME = "labvg", "backupd-bench-r1"
EXTENT = 4 * MIB
SIZE = 312 * MIB  # whole extents on one, two and three stripes
UNWATCHED = ("--config", "activation/monitoring=0")  # no dmeventd, which would outlive the test


@dataclass(frozen=True)
class Ground:
    """A host to try things on: `close` has a PV take no extents, `snapshot_by_hand` makes one that is not backupd's."""

    scratch: ScratchVolumes
    snapshots: Snapshots
    mounts: Mounts
    places: Path
    close: Callable[[str], None]
    snapshot_by_hand: Callable[[str, str], None]

    @property
    def pvs(self) -> tuple[str, ...]:
        return tuple(self.free)

    @property
    def free(self) -> dict[str, int]:
        return dict(self.snapshots.group(VG).free_by_pv)

    def linear(self, number: int = 0) -> ScratchLayout:
        return ScratchLayout(LayoutKind.LINEAR, (self.pvs[number],))

    def striped(self, *numbers: int, stripe_size: int = 64 * KIB) -> ScratchLayout:
        return ScratchLayout(LayoutKind.STRIPED, tuple(self.pvs[number] for number in numbers), stripe_size)

    def create(self, layout: ScratchLayout, *, size: int = SIZE, run_id: str = "r1") -> Path:
        return self.scratch.create(VG, NAME, layout, size=size, run_id=run_id)

    def mounted(self, layout: ScratchLayout, filesystem: str = "ext4") -> Path:
        device, at = self.create(layout), self.places / "mnt"
        self.scratch.format(device, layout, filesystem)
        self.scratch.mount(device, filesystem, at)
        return at

    def snapshot(self, run_id: str) -> str:
        """One of ours, as a probe takes it."""
        origin = self.snapshots.volume(VG, NAME)
        plan = SnapshotPlan(origin, f"backupd-{run_id}", run_id, 10, 10 * EXTENT, 4 * KIB, (self.pvs[-1],))
        with self.snapshots.prepared(plan) as creator:
            return creator.create().name


@pytest.fixture(params=["fake", "lvm"] if IN_LAB else ["fake"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    made, tidy = _real_ground(tmp_path) if request.param == "lvm" else _fake_ground(tmp_path)
    yield made
    made.mounts.unmount(tmp_path / "mnt")
    tidy()
    for vg, name, run_id in made.snapshots.ours():
        made.snapshots.remove(vg, name, run_id)


def _fake_ground(tmp_path: Path) -> tuple[Ground, Callable[[], None]]:
    host = LvmHost()

    def by_hand(origin: str, name: str) -> None:
        host.add_foreign_snapshot(name, origin=host.scratch[origin].volume)

    def tidy() -> None:
        host.lvs.pop("somebodys", None)

    return Ground(FakeScratchVolumes(host), host.snapshots, host.mounts, tmp_path, host.closed.add, by_hand), tidy


def _real_ground(tmp_path: Path) -> tuple[Ground, Callable[[], None]]:
    closed: list[str] = []

    def close(pv: str) -> None:
        _run("pvchange", "--allocatable", "n", pv)
        closed.append(pv)

    def by_hand(origin: str, name: str) -> None:
        _run("lvcreate", "--yes", *UNWATCHED, "--snapshot", "--extents", "10", "--name", name, f"{VG}/{origin}")

    def tidy() -> None:
        _run("lvremove", "--yes", *UNWATCHED, "--select", f"vg_name={VG} && lv_name=somebodys")
        for pv in closed:
            _run("pvchange", "--allocatable", "y", pv)

    snapshots = LvmSnapshots(MACHINE, busy_patience_seconds=1)
    return Ground(LvmScratchVolumes(MACHINE), snapshots, LinuxMounts(), tmp_path, close, by_hand), tidy


def _run(*argv: str) -> None:
    process.run(list(argv), timeout_seconds=60)


# --- what is asked for wrongly, or cannot be --------------------------------------------------------------------------


def refused(ground: Ground, layout: ScratchLayout, *, says: str, hint: str, vg: str = VG, size: int = SIZE) -> None:
    """It is told with what to do, and nothing is there."""
    free = ground.free
    with pytest.raises(SnapshotError, match=says) as caught:
        ground.scratch.create(vg, NAME, layout, size=size, run_id="r1")
    assert hint in caught.value.hint
    assert ground.snapshots.ours() == ()
    assert ground.free == free


def test_group_that_is_not_there_is_told(ground: Ground) -> None:
    refused(ground, ground.linear(), vg="nosuch", says="no volume group nosuch", hint="vgs")


def test_disk_that_is_no_pv_of_the_group_is_told_with_those_that_are(ground: Ground) -> None:
    layout = ScratchLayout(LayoutKind.STRIPED, (ground.pvs[0], "/dev/nosuch"), 64 * KIB)
    refused(ground, layout, says="/dev/nosuch is not a PV of labvg", hint=ground.pvs[0])


def test_pv_that_is_closed_to_allocation_is_told_with_how_to_open_it(ground: Ground) -> None:
    layout = ground.striped(0, 1)
    ground.close(layout.disks[1])
    says = f"{layout.disks[1]} of labvg takes no new extents"
    refused(ground, layout, says=says, hint=f"pvchange --allocatable y {layout.disks[1]}")


def test_too_few_extents_on_one_of_the_pvs_are_told_with_both_numbers(ground: Ground) -> None:
    layout, free = ground.striped(0, 3), ground.free
    need = free[layout.disks[0]] + 1
    assert free[layout.disks[1]] >= need, "the other one has room"
    says = f"not enough free extents on {layout.disks[0]} of labvg: need {need}, have {need - 1}"
    refused(ground, layout, size=2 * need * EXTENT, says=says, hint="smaller file")


@pytest.mark.parametrize("size", [SIZE + 1, SIZE - 4 * KIB, SIZE + EXTENT, 0, -8 * EXTENT])
def test_size_that_is_no_whole_extents_on_each_stripe_is_a_mistake_of_the_caller(ground: Ground, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes are not a whole number of extents"):
        ground.create(ground.striped(0, 1), size=size)
    assert ground.snapshots.ours() == ()


@pytest.mark.parametrize("stripe_size", [0, 2 * KIB, 96 * KIB, 8 * MIB])
def test_stripe_size_that_lvm_would_not_take_as_it_is_told_is_a_mistake_too(ground: Ground, stripe_size: int) -> None:
    with pytest.raises(ValueError, match=str(stripe_size)):
        ground.create(ground.striped(0, 1, stripe_size=stripe_size))
    assert ground.snapshots.ours() == ()


def test_layout_that_no_lv_has_is_a_mistake_too(ground: Ground) -> None:
    one, other = ground.pvs[:2]
    for layout in (
        ScratchLayout(LayoutKind.LINEAR, (one, other)),
        ScratchLayout(LayoutKind.STRIPED, (one,), 64 * KIB),
        ScratchLayout(LayoutKind.RAID0, (one, other), 64 * KIB),
        ScratchLayout(LayoutKind.STRIPED, (one, one), 64 * KIB),
    ):
        with pytest.raises(ValueError, match="ScratchLayout"):
            ground.create(layout)
    assert ground.snapshots.ours() == ()


def test_name_that_something_has_is_refused_before_anything_is_made(ground: Ground) -> None:
    ground.scratch.require_unused(VG, NAME)
    ground.scratch.require_unused("nosuch", "data")
    with pytest.raises(Refused, match="labvg/data already exists") as caught:
        ground.scratch.require_unused(VG, "data")
    assert "lvrename" in caught.value.hint
    ground.create(ground.linear())
    with pytest.raises(Refused, match=f"{NAME} already exists") as caught:
        ground.scratch.require_unused(VG, NAME)
    assert "backupd recover" in caught.value.hint


def test_second_one_of_the_same_name_is_refused_and_spares_the_first(ground: Ground) -> None:
    ground.create(ground.linear())
    first = ground.snapshots.volume(VG, NAME)
    with pytest.raises(SnapshotError, match="already exists"):
        ground.create(ground.striped(0, 1), run_id="r2")
    assert ground.snapshots.volume(VG, NAME) == first
    assert ground.snapshots.ours() == ((VG, NAME, "r1"),)


def test_file_system_that_it_is_too_small_for_is_told(ground: Ground) -> None:
    layout = ground.linear()
    device = ground.create(layout, size=LEAST_SIZE["xfs"] - EXTENT)
    with pytest.raises(SnapshotError, match="Filesystem must be larger") as caught:
        ground.scratch.format(device, layout, "xfs")
    assert "size" in caught.value.hint
    with pytest.raises(ValueError, match="btrfs"):
        ground.scratch.format(device, layout, "btrfs")


def test_what_has_no_such_file_system_is_not_mounted(ground: Ground) -> None:
    at = ground.places / "mnt"
    with pytest.raises(SnapshotError, match="could not be mounted"):
        ground.scratch.mount(ground.create(ground.linear()), "xfs", at)
    ground.mounts.unmount(at)
    assert not at.exists()


# --- as asked ---------------------------------------------------------------------------------------------------------


def test_linear_one_lies_on_its_pv_alone_and_takes_all_its_extents_there(ground: Ground) -> None:
    free, layout = ground.free, ground.linear(1)
    path = ground.create(layout)
    volume = ground.snapshots.volume(VG, NAME)
    assert path == volume.path
    assert (volume.size, volume.layout, volume.devices) == (SIZE, "linear", layout.disks)
    assert ground.free == {**free, layout.disks[0]: free[layout.disks[0]] - SIZE // EXTENT}


@pytest.mark.parametrize(
    ("numbers", "stripe_size"), [((0, 1), 64 * KIB), ((3, 0), 4 * KIB), ((2, 0, 1), 512 * KIB), ((1, 2), 4 * MIB)]
)
def test_striped_one_lies_on_its_pvs_in_their_order_to_equal_parts(
    ground: Ground, numbers: tuple[int, ...], stripe_size: int
) -> None:
    free, layout = ground.free, ground.striped(*numbers, stripe_size=stripe_size)
    ground.create(layout)
    volume = ground.snapshots.volume(VG, NAME)
    assert [(s.kind, s.stripes, s.stripe_size, s.devices) for s in volume.segments] == [
        ("striped", layout.width, stripe_size, layout.disks)
    ]
    taken = SIZE // EXTENT // layout.width
    assert ground.free == {pv: free[pv] - (taken if pv in layout.disks else 0) for pv in free}


def test_it_is_ours_by_its_tags_and_gives_its_extents_back(ground: Ground) -> None:
    free = ground.free
    ground.create(ground.striped(0, 1, 2))
    assert ground.snapshots.ours() == ((VG, NAME, "r1"),)
    with pytest.raises(SnapshotError, match="no tag of run r2"):
        ground.snapshots.remove(VG, NAME, "r2")
    ground.snapshots.remove(VG, NAME, "r1")
    assert ground.free == free
    ground.snapshots.remove(VG, NAME, "r1")
    ground.scratch.require_unused(VG, NAME)


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_file_system_of_the_least_size_can_be_written_and_is_gone_with_its_folder(
    ground: Ground, filesystem: str
) -> None:
    layout, at = ground.striped(0, 1, 2), ground.places / "mnt"
    device = ground.create(layout, size=LEAST_SIZE[filesystem] // (3 * EXTENT) * 3 * EXTENT + 3 * EXTENT)
    ground.scratch.format(device, layout, filesystem)
    ground.scratch.mount(device, filesystem, at)
    (at / "file").write_bytes(bytes(MIB))
    assert (at / "file").stat().st_size == MIB
    ground.mounts.unmount(at)
    assert not at.exists()


def test_mounted_one_is_not_removed_until_it_is_unmounted(ground: Ground) -> None:
    at = ground.mounted(ground.linear())
    with pytest.raises(SnapshotError, match="in use"):
        ground.snapshots.remove(VG, NAME, "r1")
    ground.mounts.unmount(at)
    ground.snapshots.remove(VG, NAME, "r1")
    assert ground.snapshots.ours() == ()


def test_probe_can_have_a_snapshot_of_it(ground: Ground) -> None:
    at = ground.mounted(ground.striped(0, 1))
    (at / "file").write_text("before")
    process.run(["sync", "--file-system", str(at)], timeout_seconds=60)
    name = ground.snapshot("r1-1")
    assert ground.snapshots.volume(VG, NAME).snapshots == (name,)
    assert ground.snapshots.volume_at(ground.snapshots.volume(VG, NAME).device).name == NAME
    assert ground.snapshots.ours() == ((VG, NAME, "r1"), (VG, name, "r1-1"))
    ground.snapshots.remove(VG, name, "r1-1")
    assert ground.snapshots.ours() == ((VG, NAME, "r1"),)


def test_snapshot_that_a_dead_probe_left_goes_with_it(ground: Ground) -> None:
    free = ground.free
    ground.create(ground.striped(0, 1))
    name = ground.snapshot("r1-1")
    ground.snapshots.remove(VG, NAME, "r1")
    assert ground.snapshots.ours() == ()
    assert ground.free == free
    ground.snapshots.remove(VG, name, "r1-1")


def test_snapshot_that_somebody_has_of_it_is_not_removed_nor_is_it(ground: Ground) -> None:
    ground.create(ground.linear())
    ground.snapshot_by_hand(NAME, "somebodys")
    with pytest.raises(SnapshotError, match="it has a snapshot: somebodys"):
        ground.snapshots.remove(VG, NAME, "r1")
    assert ground.snapshots.volume(VG, NAME).snapshots == ("somebodys",)
