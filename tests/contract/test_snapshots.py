"""What every implementation of `Snapshots` and `Mounts` promises: the stories' fake, and, in the lab, LVM itself.

With `BACKUPD_LAB=1` (set in the lab's machine only) the suite also runs as root against the real volume `labvg/data`.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.errors import SnapshotError, SnapshotVoid
from backupd.model import DeviceNumber, Snapshot, SnapshotPlan
from backupd.snapshots import Mounts, Snapshots
from backupd.snapshots.lvm import LvmSnapshots
from backupd.snapshots.mounting import LinuxMounts, mount_of, mounts
from backupd.snapshots.plan import plan_snapshot
from tests.fakes.lvm_host import LvmHost, striped_volume

IN_LAB = os.environ.get("BACKUPD_LAB") == "1"
VG, LV = "labvg", "data"
MIB = 1 << 20


@dataclass(frozen=True)
class Size:
    bytes: int | None
    percent_of_origin: float | None = None


@dataclass(frozen=True)
class Settings:
    size: Size = Size(64 * MIB)
    chunk_size: int = 64 << 10
    pvs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """A host to try things on: `folder` is the origin's file system, `write` rewrites that many bytes of it."""

    snapshots: Snapshots
    mounts: Mounts
    device: DeviceNumber
    folder: Path
    places: Path
    write: Callable[[int], None]

    def plan(self, run_id: str, settings: Settings | None = None) -> SnapshotPlan:
        volume, group = self.snapshots.volume(VG, LV), self.snapshots.group(VG)
        return plan_snapshot(volume, group, run_id, settings or Settings())

    def take(self, run_id: str, settings: Settings | None = None) -> Snapshot:
        with self.snapshots.prepared(self.plan(run_id, settings)) as creator:
            return creator.create()

    def names(self) -> set[str]:
        return {name for _, name, _ in self.snapshots.ours()}


@pytest.fixture(params=["fake", "lvm"] if IN_LAB else ["fake"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = _fake_bench(tmp_path) if request.param == "fake" else _real_bench(tmp_path)
    yield made
    made.mounts.unmount(tmp_path / "mnt")
    for vg, name, run_id in made.snapshots.ours():
        made.snapshots.remove(vg, name, run_id)
    (made.folder / "contract").unlink(missing_ok=True)


def _fake_bench(tmp_path: Path) -> Bench:
    folder = tmp_path / "origin"
    folder.mkdir()
    host = LvmHost(volume=striped_volume(vg=VG, name=LV), folder=folder)
    return Bench(host.snapshots, host.mounts, host.volume.device, folder, tmp_path, host.write)


def _real_bench(tmp_path: Path) -> Bench:
    number = (Path("/dev") / VG / LV).stat().st_rdev
    device = DeviceNumber(os.major(number), os.minor(number))
    folder = next(mounted.path for mounted in mounts() if mounted.device == device)

    def write(size: int) -> None:
        with (folder / "contract").open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())

    return Bench(LvmSnapshots(), LinuxMounts(), device, folder, tmp_path, write)


def put(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def test_volume_is_found_by_its_device_as_by_its_name(bench: Bench) -> None:
    found = bench.snapshots.volume_at(bench.device)
    assert found == bench.snapshots.volume(VG, LV)
    assert (found.full_name, found.device) == (f"{VG}/{LV}", bench.device)
    assert found.devices


def test_file_system_on_no_volume_is_refused(bench: Bench) -> None:
    with pytest.raises(SnapshotError, match="not on LVM"):
        bench.snapshots.volume_at(DeviceNumber(0, 1))


def test_unknown_volume_and_group_are_refused(bench: Bench) -> None:
    with pytest.raises(SnapshotError, match="nosuch"):
        bench.snapshots.volume(VG, "nosuch")
    with pytest.raises(SnapshotError, match="nosuch"):
        bench.snapshots.group("nosuch")


def test_preparing_takes_no_snapshot_and_what_it_made_is_removed_by_its_tag(bench: Bench) -> None:
    free, plan = bench.snapshots.group(VG).free_extents, bench.plan("p1")
    with bench.snapshots.prepared(plan):
        assert bench.snapshots.volume(VG, LV).snapshots == ()
    assert bench.snapshots.ours() == ((VG, plan.name, "p1"),)
    bench.snapshots.remove(VG, plan.name, "p1")
    assert bench.names() == set()
    assert bench.snapshots.group(VG).free_extents == free


def test_snapshot_is_there_as_planned_and_tagged_with_its_run(bench: Bench) -> None:
    plan = bench.plan("r1")
    with bench.snapshots.prepared(plan) as creator:
        snapshot = creator.create()
    assert (snapshot.name, snapshot.run_id) == (plan.name, "r1")
    assert (snapshot.size, snapshot.chunk_size) == (plan.size, plan.chunk_size)
    assert bench.snapshots.ours() == ((VG, plan.name, "r1"),)
    assert plan.name in bench.snapshots.volume(VG, LV).snapshots


def test_snapshot_takes_its_extents_and_gives_them_back(bench: Bench) -> None:
    free, plan = bench.snapshots.group(VG).free_extents, bench.plan("r1")
    bench.take("r1")
    assert bench.snapshots.group(VG).free_extents == free - plan.extents
    bench.snapshots.remove(VG, plan.name, "r1")
    assert bench.snapshots.group(VG).free_extents == free
    assert bench.snapshots.volume(VG, LV).snapshots == ()


def test_snapshot_shows_what_was_there_when_it_was_taken(bench: Bench) -> None:
    put(bench.folder / "contract", "before")
    snapshot = bench.take("r1")
    put(bench.folder / "contract", "after")
    at = bench.places / "mnt"
    bench.mounts.mount(snapshot, at)
    assert (at / "contract").read_text() == "before"


def test_plan_with_an_unknown_disk_is_refused_and_leaves_nothing(bench: Bench) -> None:
    plan = bench.plan("r1")
    wrong = SnapshotPlan(plan.origin, plan.name, "r1", plan.extents, plan.size, plan.chunk_size, ("/dev/nosuch",))
    with pytest.raises(SnapshotError, match="nosuch"), bench.snapshots.prepared(wrong) as creator:
        creator.create()
    assert bench.names() == set()


def test_second_snapshot_of_the_same_name_is_refused_and_spares_the_first(bench: Bench) -> None:
    first = bench.take("r1")
    with pytest.raises(SnapshotError, match="already exists"), bench.snapshots.prepared(bench.plan("r1")) as creator:
        creator.create()
    assert bench.snapshots.require_intact(first).intact


def test_usage_grows_with_what_the_origin_writes(bench: Bench) -> None:
    bench.write(8 * MIB)
    snapshot = bench.take("r1")
    before = bench.snapshots.usage(snapshot)
    bench.write(8 * MIB)
    after = bench.snapshots.usage(snapshot)
    assert before.intact
    assert after.intact
    assert after.used >= before.used + 8 * MIB
    assert after.metadata < before.used + MIB
    assert after.total == snapshot.size


def test_overflown_snapshot_is_void_and_can_still_be_removed(bench: Bench) -> None:
    snapshot = bench.take("r1", Settings(size=Size(8 * MIB)))
    bench.write(32 * MIB)
    assert not bench.snapshots.usage(snapshot).intact
    with pytest.raises(SnapshotVoid, match=snapshot.name):
        bench.snapshots.require_intact(snapshot)
    bench.snapshots.remove(VG, snapshot.name, "r1")
    assert bench.names() == set()


def test_snapshot_that_is_gone_is_void(bench: Bench) -> None:
    snapshot = bench.take("r1")
    bench.snapshots.remove(VG, snapshot.name, "r1")
    assert bench.snapshots.usage(snapshot).state == "gone"
    with pytest.raises(SnapshotVoid):
        bench.snapshots.require_intact(snapshot)


def test_removing_what_is_gone_is_no_error(bench: Bench) -> None:
    snapshot = bench.take("r1")
    bench.snapshots.remove(VG, snapshot.name, "r1")
    bench.snapshots.remove(VG, snapshot.name, "r1")
    bench.snapshots.remove("nosuch", snapshot.name, "r1")


def test_what_bears_no_tag_of_the_run_is_never_removed(bench: Bench) -> None:
    snapshot = bench.take("r1")
    with pytest.raises(SnapshotError, match="no tag of run r2"):
        bench.snapshots.remove(VG, snapshot.name, "r2")
    with pytest.raises(SnapshotError, match="no tag of run r1"):
        bench.snapshots.remove(VG, LV, "r1")
    assert bench.snapshots.require_intact(snapshot).intact


def test_mounted_snapshot_is_not_removed_until_it_is_unmounted(bench: Bench) -> None:
    snapshot, at = bench.take("r1"), bench.places / "mnt"
    bench.mounts.mount(snapshot, at)
    with pytest.raises(SnapshotError, match="in use"):
        bench.snapshots.remove(VG, snapshot.name, "r1")
    bench.mounts.unmount(at)
    bench.snapshots.remove(VG, snapshot.name, "r1")
    assert bench.names() == set()


def test_unmounting_removes_the_folder_and_may_be_repeated(bench: Bench) -> None:
    at = bench.places / "mnt"
    bench.mounts.mount(bench.take("r1"), at)
    bench.mounts.unmount(at)
    assert not at.exists()
    bench.mounts.unmount(at)


def test_busy_mount_is_told_with_who_uses_it(bench: Bench) -> None:
    put(bench.folder / "contract", "text")
    at = bench.places / "mnt"
    bench.mounts.mount(bench.take("r1"), at)
    with (at / "contract").open(), pytest.raises(SnapshotError, match=f"in use by process .*{os.getpid()}"):
        bench.mounts.unmount(at)
    bench.mounts.unmount(at)
    assert not at.exists()


def test_files_in_a_folder_that_is_not_mounted_are_kept(bench: Bench) -> None:
    at = bench.places / "mnt"
    at.mkdir()
    (at / "somebody's").touch()
    with pytest.raises(SnapshotError, match="not mounted"):
        bench.mounts.unmount(at)
    (at / "somebody's").unlink()


if IN_LAB:

    def test_real_mount_is_read_only_on_the_snapshots_own_device(tmp_path: Path) -> None:
        made = _real_bench(tmp_path)
        snapshot, at = made.take("r1"), tmp_path / "mnt"
        made.mounts.mount(snapshot, at)
        try:
            assert mount_of(at).device == snapshot.device
            assert mount_of(made.folder).device == made.device
            with pytest.raises(OSError, match="Read-only file system"):
                (at / "new").touch()
        finally:
            made.mounts.unmount(at)
            made.snapshots.remove(VG, snapshot.name, "r1")

    def test_volume_group_that_another_command_holds_is_an_error_at_once(tmp_path: Path) -> None:
        import fcntl

        made = _real_bench(tmp_path)
        plan = made.plan("r1")
        with made.snapshots.prepared(plan) as creator, Path(f"/run/lock/lvm/V_{VG}").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            began = time.monotonic()
            with pytest.raises(SnapshotError, match="Can't get lock"):
                creator.create()
            assert time.monotonic() - began < 3
        made.snapshots.remove(VG, plan.name, "r1")
        assert made.names() == set()
