"""What every implementation of `Snapshots` and `Mounts` promises: the stories' fake, and, in the lab, LVM itself.

With `BACKUPD_LAB=1` (set in the lab's machine only) the suite also runs as root against the real volume `labvg/data`,
and against a volume of a small thin pool that is made for it in the same group.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backupd.host import process
from backupd.host.mountinfo import mounts
from backupd.lvm import Mounts, Snapshots
from backupd.lvm.mounting import LinuxMounts, mount_of
from backupd.lvm.snapshots import LvmSnapshots
from backupd.policy.named_pvs import named_pvs
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.vocabulary.errors import GroupBusy, SnapshotError, SnapshotVoid
from backupd.vocabulary.volumes import PV_UUID, DeviceNumber, PvsGone, Snapshot, SnapshotPlan, Volume
from tests.fakes.lvm_host import LvmHost, striped_volume, thin_volume
from tests.fakes.target import MACHINE

IN_LAB = os.environ.get("BACKUPD_LAB") == "1"
VG = "labvg"
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
    stripes: int = 1
    pvs_gone: PvsGone = PvsGone.REFUSE


@dataclass(frozen=True)
class Bench:
    """A host to try things on: `folder` is the origin's file system, `write` rewrites that many bytes of it.

    `overflow` has a snapshot of 8 MiB overflow, a thin one by filling its pool.
    """

    lv: str
    snapshots: Snapshots
    another: Snapshots  # the same host, as another machine sees it
    mounts: Mounts
    device: DeviceNumber
    folder: Path
    places: Path
    write: Callable[[int], None]
    overflow: Callable[[], None]

    def plan(self, run_id: str, settings: Settings | None = None) -> SnapshotPlan:
        volume, group = self.snapshots.volume(VG, self.lv), self.snapshots.group(VG)
        return plan_snapshot(volume, group, run_id, settings or Settings())

    def take(self, run_id: str, settings: Settings | None = None) -> Snapshot:
        with self.snapshots.prepared(self.plan(run_id, settings)) as creator:
            return creator.create()

    def names(self) -> set[str]:
        return {name for _, name, _ in self.snapshots.ours()}


ANOTHER = "db2-4e5f6a7b"
FAKES, REAL = ["fake", "fake thin"], ["lvm", "lvm thin"]


@pytest.fixture(params=FAKES + REAL if IN_LAB else FAKES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "lvm thin":
        request.getfixturevalue("small_pool")
    made = _bench(request.param, tmp_path)
    yield made
    made.mounts.unmount(tmp_path / "mnt")
    if request.param == "lvm thin":
        _run("blkdiscard", f"/dev/{VG}/neighbour")
    for vg, name, run_id in made.snapshots.ours():
        made.snapshots.remove(vg, name, run_id)
    (made.folder / "contract").unlink(missing_ok=True)


def _bench(kind: str, tmp_path: Path) -> Bench:
    if kind in FAKES:
        return _fake_bench(thin_volume() if kind == "fake thin" else striped_volume(), tmp_path)
    return _real_bench("thin" if kind == "lvm thin" else "data", tmp_path)


@pytest.fixture(scope="module")
def small_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`labvg/thin` with a mounted file system, and `labvg/neighbour`, which can fill the pool of both."""
    folder = tmp_path_factory.mktemp("origin")
    _run("lvcreate", "-y", "-T", "-L", "128m", "-c", "64k", "--errorwhenfull", "y", f"{VG}/small")
    try:
        for name, size in (("thin", "96m"), ("neighbour", "128m")):
            _run("lvcreate", "-y", "-V", size, "-n", name, "-T", f"{VG}/small")
        _run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0", f"/dev/{VG}/thin")
        _run("mount", f"/dev/{VG}/thin", str(folder))
        try:
            yield
        finally:
            _run("umount", str(folder))
    finally:
        _run("lvremove", "-y", "--config", "activation/monitoring=0", f"{VG}/small")


def _run(*argv: str) -> None:
    process.run(list(argv), timeout_seconds=60)


def _fake_bench(volume: Volume, tmp_path: Path) -> Bench:
    folder = tmp_path / "origin"
    folder.mkdir()
    host = LvmHost(volume=volume, folder=folder)
    size = volume.pool.free + 1 if volume.pool is not None else 32 * MIB

    def overflow() -> None:
        host.write(size)

    another, device = host.snapshots_of(ANOTHER), volume.device
    return Bench(volume.name, host.snapshots, another, host.mounts, device, folder, tmp_path, host.write, overflow)


def _real_bench(name: str, tmp_path: Path) -> Bench:
    number = (Path("/dev") / VG / name).stat().st_rdev
    device = DeviceNumber(os.major(number), os.minor(number))
    folder = next(mounted.path for mounted in mounts() if mounted.device == device)

    def write(size: int) -> None:
        with (folder / "contract").open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())

    def overflow() -> None:
        if name == "data":
            write(32 * MIB)
        else:
            _fill(Path("/dev") / VG / "neighbour")

    snapshots, mounting = LvmSnapshots(MACHINE, busy_patience_seconds=1), LinuxMounts(patience_seconds=1)
    return Bench(name, snapshots, LvmSnapshots(ANOTHER), mounting, device, folder, tmp_path, write, overflow)


def _fill(volume: Path) -> None:
    """Its pool is full: the kernel has refused it a block."""
    with volume.open("wb", buffering=0) as device, pytest.raises(OSError, match=r"No space|Input/output"):
        while True:
            device.write(os.urandom(MIB))
            os.fsync(device.fileno())


def put(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def test_volume_is_found_by_its_device_as_by_its_name(bench: Bench) -> None:
    found = bench.snapshots.volume_at(bench.device)
    assert found == bench.snapshots.volume(VG, bench.lv)
    assert (found.full_name, found.device) == (f"{VG}/{bench.lv}", bench.device)
    assert found.devices


def test_volume_and_its_group_are_told_together_as_they_are_told_alone(bench: Bench) -> None:
    for _ in ("without a snapshot", "with one"):
        volume, group = bench.snapshots.volume_at(bench.device), bench.snapshots.group(VG)
        assert bench.snapshots.volume_and_group_at(bench.device) == (volume, group)
        bench.take(f"r{len(bench.names())}")


def test_every_pv_of_the_group_has_a_uuid_of_its_own(bench: Bench) -> None:
    group = bench.snapshots.group(VG)
    assert set(group.pv_uuids) == {*group.free_by_pv, *group.closed}
    assert len(set(group.pv_uuids.values())) == len(group.pv_uuids)
    assert all(PV_UUID.fullmatch(uuid) for uuid in group.pv_uuids.values())
    assert group.missing == ()


def test_a_pv_is_found_by_its_uuid(bench: Bench) -> None:
    group = bench.snapshots.group(VG)
    paths = tuple(group.free_by_pv)
    assert named_pvs((group.pv_uuids[path] for path in paths), group).paths == paths


def test_file_system_on_no_volume_is_refused(bench: Bench) -> None:
    for told in (bench.snapshots.volume_at, bench.snapshots.volume_and_group_at):
        with pytest.raises(SnapshotError, match="not on LVM"):
            told(DeviceNumber(0, 1))


def test_unknown_volume_and_group_are_refused(bench: Bench) -> None:
    with pytest.raises(SnapshotError, match="nosuch"):
        bench.snapshots.volume(VG, "nosuch")
    with pytest.raises(SnapshotError, match="nosuch"):
        bench.snapshots.group("nosuch")


def test_preparing_takes_no_snapshot_and_what_it_made_is_removed_by_its_tag(bench: Bench) -> None:
    free, plan = bench.snapshots.group(VG).free_extents, bench.plan("p1")
    with bench.snapshots.prepared(plan):
        assert bench.snapshots.volume(VG, bench.lv).snapshots == ()
    assert bench.snapshots.ours() == (((VG, plan.name, "p1"),) if plan.extents else ())
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
    assert bench.snapshots.volume(VG, bench.lv).snapshots == ((plan.name,) if plan.extents else ())


def test_snapshot_takes_its_extents_and_gives_them_back(bench: Bench) -> None:
    free, plan = bench.snapshots.group(VG).free_extents, bench.plan("r1")
    bench.take("r1")
    assert bench.snapshots.group(VG).free_extents == free - plan.extents
    bench.snapshots.remove(VG, plan.name, "r1")
    assert bench.snapshots.group(VG).free_extents == free
    assert bench.snapshots.volume(VG, bench.lv).snapshots == ()


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


def test_cow_area_in_use_is_extended_and_then_holds_more(bench: Bench) -> None:
    snapshot = bench.take("r1", Settings(size=Size(16 * MIB)))
    at, group = bench.places / "mnt", bench.snapshots.group(VG)
    if snapshot.origin.pool is not None:
        with pytest.raises(SnapshotError, match="is thin"):
            bench.snapshots.extend(snapshot, 2)
        return
    put(bench.folder / "contract", "after")
    bench.mounts.mount(snapshot, at)
    bench.snapshots.extend(snapshot, 4)
    bench.snapshots.extend(snapshot, 2, bench.snapshots.volume(VG, bench.lv).devices)
    usage = bench.snapshots.require_intact(snapshot)
    assert usage.total == snapshot.size + 6 * group.extent_size
    assert bench.snapshots.group(VG).free_extents == group.free_extents - 6
    bench.write(24 * MIB)
    assert bench.snapshots.require_intact(snapshot).used > snapshot.size


def test_striped_cow_area_is_extended_in_stripes_and_without_and_is_removed_whole(bench: Bench) -> None:
    settings = Settings(size=Size(17 * MIB), chunk_size=128 << 10, stripes=2)
    if bench.snapshots.volume(VG, bench.lv).pool is not None:
        with pytest.raises(SnapshotError, match="is thin"):
            bench.plan("r1", settings)
        return
    before, plan = bench.snapshots.group(VG), bench.plan("r1", settings)
    over = plan.striped_over

    def taken() -> dict[str, int]:
        now = bench.snapshots.group(VG).free_by_pv
        return {pv: free - now[pv] for pv, free in before.free_by_pv.items() if free != now[pv]}

    snapshot = bench.take("r1", settings)
    assert taken() == dict.fromkeys(over, plan.extents // 2)
    bench.snapshots.extend(snapshot, 4, over, stripes=2)
    assert taken() == dict.fromkeys(over, plan.extents // 2 + 2)
    bench.snapshots.extend(snapshot, 1, over[:1])
    assert sum(taken().values()) == plan.extents + 5
    assert bench.snapshots.require_intact(snapshot).total == plan.size + 5 * before.extent_size
    if IN_LAB and isinstance(bench.snapshots, LvmSnapshots):
        assert _segments_of(snapshot) == [(2, 128 << 10)] * (len(_segments_of(snapshot)) - 1) + [(1, 0)]
    bench.write(24 * MIB)
    assert bench.snapshots.require_intact(snapshot).used > snapshot.size
    bench.snapshots.remove(VG, snapshot.name, "r1")
    assert taken() == {}
    assert bench.names() == set()


def _segments_of(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Stripes and stripe size of each segment of its COW area, in their order."""
    fields = ("--segments", "-o", "stripes,stripe_size", "--units", "b", "--nosuffix", "-O", "seg_start")
    rows = process.run(["lvs", "--noheadings", *fields, snapshot.full_name], timeout_seconds=60).stdout.splitlines()
    return [(int(stripes), int(size)) for stripes, size in (row.split() for row in rows if row.strip())]


def test_what_is_none_of_ours_or_finds_no_room_is_not_extended(bench: Bench) -> None:
    snapshot, free = bench.take("r1"), bench.snapshots.group(VG).free_extents
    for snapshots, what, extents in (
        (bench.another, snapshot, 1),
        (bench.snapshots, replace(snapshot, run_id="r2"), 1),
        (bench.snapshots, replace(snapshot, name="nosuch"), 1),
        (bench.snapshots, snapshot, free + 1),
    ):
        with pytest.raises(SnapshotError):
            snapshots.extend(what, extents)
    assert bench.snapshots.usage(snapshot).total == snapshot.size
    assert bench.snapshots.group(VG).free_extents == free


def test_overflown_snapshot_is_void_and_can_still_be_removed(bench: Bench) -> None:
    snapshot = bench.take("r1", Settings(size=Size(8 * MIB)))
    bench.overflow()
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
        bench.snapshots.remove(VG, bench.lv, "r1")
    assert bench.snapshots.require_intact(snapshot).intact


def test_run_whose_id_is_the_beginning_of_another_s_removes_nothing_of_it(bench: Bench) -> None:
    snapshot = bench.take("r12")
    for run_id in ("r1", "r", "r123", "12"):
        with pytest.raises(SnapshotError, match=f"no tag of run {run_id},"):
            bench.snapshots.remove(VG, snapshot.name, run_id)
    assert bench.snapshots.require_intact(snapshot).intact
    bench.snapshots.remove(VG, snapshot.name, "r12")
    assert bench.names() == set()


def test_what_another_machine_has_taken_is_none_of_ours_and_never_removed(bench: Bench) -> None:
    """On a volume group that two hosts see."""
    snapshot = bench.take("r1")
    assert bench.another.ours() == ()
    with pytest.raises(SnapshotError, match=f"is tagged by machine {MACHINE}, this is {ANOTHER}") as refused:
        bench.another.remove(VG, snapshot.name, "r1")
    assert f"`backupd identity adopt {MACHINE}`" in refused.value.hint
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
    only_real = pytest.mark.parametrize("bench", REAL, indirect=True)

    @only_real
    def test_real_mount_is_read_only_on_the_snapshots_own_device(bench: Bench) -> None:
        snapshot, at = bench.take("r1"), bench.places / "mnt"
        bench.mounts.mount(snapshot, at)
        assert mount_of(at).device == snapshot.device
        assert mount_of(bench.folder).device == bench.device
        with pytest.raises(OSError, match="Read-only file system"):
            (at / "new").touch()

    @only_real
    @pytest.mark.parametrize("tag", ["aaa", "zzz"])
    def test_snapshot_that_somebody_has_tagged_besides_is_removed_as_ours(bench: Bench, tag: str) -> None:
        snapshot = bench.take("r1")
        _run("lvchange", "--addtag", tag, snapshot.full_name)
        bench.snapshots.remove(VG, snapshot.name, "r1")
        assert bench.names() == set()
        assert not snapshot.path.exists()

    @only_real
    @pytest.mark.parametrize("tag", ["backupd.run=r2", "backupd.machine=db2-4e5f6a7b"])
    def test_snapshot_with_the_marks_of_two_is_nobody_s(bench: Bench, tag: str) -> None:
        snapshot = bench.take("r1")
        _run("lvchange", "--addtag", tag, snapshot.full_name)
        for run_id in ("r1", "r2"):
            with pytest.raises(SnapshotError, match="not removed"):
                bench.snapshots.remove(VG, snapshot.name, run_id)
        assert bench.snapshots.require_intact(snapshot).intact
        _run("lvchange", "--deltag", tag, snapshot.full_name)

    @only_real
    def test_snapshot_is_removed_by_one_command(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        snapshot = bench.take("r1")
        with caplog.at_level("DEBUG", "backupd.host.process"):
            bench.snapshots.remove(VG, snapshot.name, "r1")
        started = [word for word in caplog.messages if word.startswith("run: lv")]
        assert [word.split()[1] for word in started] == ["lvremove"]
        assert bench.names() == set()

    @only_real
    def test_volume_group_that_another_command_keeps_is_an_error_soon(bench: Bench) -> None:
        import fcntl

        plan = bench.plan("r1")
        with bench.snapshots.prepared(plan) as creator, Path(f"/run/lock/lvm/V_{VG}").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            began = time.monotonic()
            with pytest.raises(GroupBusy, match="Can't get lock"):
                creator.create()
            assert time.monotonic() - began < 5
        bench.snapshots.remove(VG, plan.name, "r1")
        assert bench.names() == set()

    @only_real
    def test_monitoring_that_reads_volumes_all_the_time_costs_no_snapshot(bench: Bench) -> None:
        import subprocess

        reading = subprocess.Popen(["sh", "-c", "while :; do lvs; vgs; done"], stdout=subprocess.DEVNULL)
        try:
            for number in range(3):
                snapshot = bench.take(f"r{number}")
                bench.snapshots.remove(VG, snapshot.name, f"r{number}")
        finally:
            reading.kill()
            reading.wait()
        assert bench.names() == set()

    @pytest.mark.parametrize("bench", ["lvm thin"], indirect=True)
    def test_thin_snapshot_is_not_activated_by_a_reboot(bench: Bench) -> None:
        snapshot = bench.take("r1")
        for how in ("n", "y"):
            _run("lvchange", "--activate", how, snapshot.full_name)
        assert not snapshot.path.exists()
