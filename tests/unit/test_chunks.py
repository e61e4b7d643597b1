"""Which chunks a snapshot gets on which disks, and what the kernel says of them."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import SnapshotConfig
from backupd.lvm.devicemapper import device_number
from backupd.lvm.queues import queue_of, with_queues
from backupd.policy.chunk_size import chunks_for
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.vocabulary.volumes import AUTO, DeviceNumber, DiskQueue, VolumeGroup
from tests.fakes.lvm_host import LvmHost, striped_volume, thin_volume

KIB = 1 << 10
HDD, CUT, SSD = DiskQueue(True, 1280 * KIB), DiskQueue(True, 128 * KIB), DiskQueue(False, 128 * KIB)
VIRTUAL = replace(HDD, virtual=True)
UNTOLD = (
    "chunks of 64 KiB: the disks are virtual, and the disks under them are not known; measure with backupd probe JOB"
    " --chunk-sizes 64k,512k, and set snapshot.chunk_size"
)
ORIGIN = striped_volume().devices
BESIDE = "/dev/sde"


def group(origin: DiskQueue | None, beside: DiskQueue | None) -> VolumeGroup:
    """Room on the origin's PVs and on one beside them."""
    told = {**dict.fromkeys(ORIGIN, origin), BESIDE: beside}
    free = dict.fromkeys(told, 200)
    queues = {pv: queue for pv, queue in told.items() if queue is not None}
    return VolumeGroup("labvg", 4 << 20, sum(free.values()), free, (), queues)


@pytest.mark.parametrize(
    ("disks", "beside", "pvs", "told"),
    [
        (HDD, HDD, (), "chunks of 512 KiB: the disks are rotational and accept requests of 1280 KiB"),
        (CUT, CUT, (), "chunks of 64 KiB: the disks are rotational, but accept requests of at most 128 KiB"),
        (HDD, CUT, (), "chunks of 64 KiB: the disks are rotational, but accept requests of at most 128 KiB"),
        (HDD, CUT, ORIGIN, "chunks of 512 KiB: the disks are rotational and accept requests of 1280 KiB"),
        (HDD, SSD, (), "chunks of 512 KiB: the disks are rotational and accept requests of 1280 KiB"),
        (HDD, SSD, (BESIDE,), "chunks of 64 KiB: the disks under the COW area are not rotational"),
        (SSD, HDD, (BESIDE,), "chunks of 512 KiB: the disks are rotational and accept requests of 1280 KiB"),
        (SSD, SSD, (), "chunks of 64 KiB: the disks are not rotational"),
        (VIRTUAL, VIRTUAL, (), UNTOLD),
        (HDD, VIRTUAL, (), UNTOLD),
        (HDD, VIRTUAL, ORIGIN, "chunks of 512 KiB: the disks are rotational and accept requests of 1280 KiB"),
        (replace(SSD, virtual=True), SSD, (), "chunks of 64 KiB: the disks are not rotational"),
        (HDD, None, (), "chunks of 64 KiB: whether /dev/sde is rotational is not known"),
        (None, SSD, (BESIDE,), "chunks of 64 KiB: whether /dev/sdb is rotational is not known"),
    ],
)
def test_chunks_are_large_where_every_disk_that_rotates_takes_large_requests(
    disks: DiskQueue | None, beside: DiskQueue | None, pvs: tuple[str, ...], told: str
) -> None:
    assert str(chunks_for(AUTO, striped_volume(), group(disks, beside), pvs)) == told


def test_a_disk_without_room_for_the_cow_area_does_not_count() -> None:
    full = replace(group(HDD, CUT), free_by_pv={**dict.fromkeys(ORIGIN, 200), BESIDE: 0})
    assert chunks_for(AUTO, striped_volume(), full).size == 512 * KIB


def test_what_the_job_says_goes_first_and_a_pools_chunks_are_what_they_are() -> None:
    assert chunks_for(16 * KIB, striped_volume(), group(HDD, HDD)).size == 16 * KIB
    assert str(chunks_for(AUTO, thin_volume(), group(HDD, HDD))) == "chunks of 64 KiB: those of thin pool labvg/pool"


def test_a_plan_has_the_chunks_with_their_reason() -> None:
    host = LvmHost(queue=HDD)
    plan = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig())
    assert plan.chunk_size == 512 * KIB
    assert plan.chunk_reason == "the disks are rotational and accept requests of 1280 KiB"


def test_the_kernel_is_asked_by_number_and_a_partition_has_its_disks_queue(tmp_path: Path) -> None:
    number = Path("/dev/null").stat().st_rdev
    disk = tmp_path / "devices" / "sda"
    (disk / "queue").mkdir(parents=True)
    (disk / "sda1").mkdir()
    (disk / "queue/rotational").write_text("1\n")
    (disk / "queue/max_sectors_kb").write_text("1280\n")
    link = tmp_path / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk)
    assert queue_of(Path("/dev/null"), sysfs=tmp_path) == HDD
    (disk / "sda1" / "partition").write_text("1\n")
    link.unlink()
    link.symlink_to(disk / "sda1")
    told = with_queues(VolumeGroup("vg", 4 << 20, 9, {"/dev/null": 9}, ("/dev/gone",)), sysfs=tmp_path)
    assert told.queues == {"/dev/null": HDD}
    (disk / "queue/max_sectors_kb").write_text("much\n")
    assert queue_of(Path("/dev/null"), sysfs=tmp_path) is None


def test_a_pv_is_known_by_any_path_to_its_device_and_no_path_is_followed_but_the_one_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_id, mapper = "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "/dev/mapper/mpatha"
    numbers = {by_id: DeviceNumber(8, 64), "/dev/sde": DeviceNumber(8, 64), mapper: DeviceNumber(253, 3)}
    asked: list[str] = []

    def number(path: str) -> DeviceNumber | None:
        asked.append(path)
        return numbers.get(path)

    monkeypatch.setattr("backupd.lvm.queues.device_number", number)
    free = {"/dev/sde": 9, mapper: 9, "[unknown]": 0}
    told = with_queues(VolumeGroup("vg", 4 << 20, 18, free, pv_uuids={"/dev/sde": "uuid"}))
    assert (told.named("/dev/sde"), told.named("uuid"), asked) == (("/dev/sde",), ("/dev/sde",), [])
    assert told.named(by_id) == ("/dev/sde",)
    assert set(asked) == {by_id, *free}
    asked.clear()
    assert (told.named("/dev/dm-9"), told.named("another"), told.named("/share/sde")) == ((), (), ())
    assert set(asked) == {"/dev/dm-9"}


def test_a_link_that_leads_nowhere_or_to_itself_is_no_device(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("sdz")
    (tmp_path / "file").touch()
    assert [device_number(str(tmp_path / name)) for name in ("loop", "gone", "file")] == [None, None, None]


@pytest.mark.parametrize(
    ("name", "told", "virtual"),
    [
        ("sda", {"vendor": "ATA     ", "model": "ST4000NM0035"}, False),
        ("sda", {"vendor": "VMware  ", "model": "Virtual disk    "}, True),
        ("sda", {"vendor": "QEMU    "}, True),
        ("sda", {"vendor": "Msft    "}, True),
        ("sda", {"model": "VBOX HARDDISK"}, True),
        ("vda", {"vendor": "0x1af4"}, True),
        ("xvdba", {}, True),
        ("loop7", {}, True),
        ("nbd0", {}, False),
    ],
)
@pytest.mark.parametrize("beneath", [False, True])
def test_a_disk_is_virtual_by_its_name_its_maker_or_what_lies_beneath(
    tmp_path: Path, name: str, told: Mapping[str, str], virtual: bool, beneath: bool
) -> None:
    disk = tmp_path / "devices" / name
    (disk / "device").mkdir(parents=True)
    for which, text in told.items():
        (disk / "device" / which).write_text(f"{text}\n")
    seen = disk
    if beneath:
        seen = tmp_path / "devices" / "dm-3"
        (seen / "slaves").mkdir(parents=True)
        (seen / "slaves" / name).symlink_to(disk)
    (seen / "queue").mkdir()
    (seen / "queue/rotational").write_text("1\n")
    (seen / "queue/max_sectors_kb").write_text("1280\n")
    number = Path("/dev/null").stat().st_rdev
    link = tmp_path / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(seen)
    assert queue_of(Path("/dev/null"), sysfs=tmp_path) == replace(HDD, virtual=virtual)


@pytest.mark.parametrize(
    ("state", "failed"),
    [("running", False), ("live", False), ("offline", True), ("transport-offline", True), ("dead", True)],
)
def test_a_disk_that_the_kernel_has_given_up_has_failed(tmp_path: Path, state: str, failed: bool) -> None:
    number = Path("/dev/null").stat().st_rdev
    disk = tmp_path / "devices" / "sda"
    for part, text in {"queue/rotational": "1", "queue/max_sectors_kb": "1280", "device/state": state}.items():
        (disk / part).parent.mkdir(parents=True, exist_ok=True)
        (disk / part).write_text(f"{text}\n")
    link = tmp_path / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk)
    assert queue_of(Path("/dev/null"), sysfs=tmp_path) == replace(HDD, failed=failed)
