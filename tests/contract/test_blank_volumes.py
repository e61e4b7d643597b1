"""What makes and wipes file systems, on real programs: a file stands for the device. LVM itself is in the lab."""

import re
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.lvm.blank import LvmBlankVolumes, filesystem_uuid, make_argv, signatures
from backupd.lvm.devicemapper import MappedDevice, TableLine, lvm_name
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.volumes import DeviceNumber, Volume
from tests.fakes.lvm_host import striped_volume

MIB, TIB = 1 << 20, 1 << 40
OWN, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
DEVICE = MappedDevice("labvg-data", "LVM-x", DeviceNumber(254, 99), False, (TableLine("striped", ""),))


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    path = tmp_path / "device"
    with path.open("wb") as file:
        file.truncate(400 * MIB)
    return replace(striped_volume(), path=path, device=DeviceNumber(254, 99))


def blanks(**changes: object) -> LvmBlankVolumes:
    """Of a host where that device is as told."""
    device = replace(DEVICE, **changes)  # type: ignore[arg-type]
    return LvmBlankVolumes(mapped={lvm_name("labvg", "data"): device}.get)


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_file_system_of_ours_is_made_and_wiped_again(volume: Volume, filesystem: str) -> None:
    blanks().require_blank(volume)
    blanks().make(volume, filesystem, uuid=OWN)
    assert signatures(volume.path) == (filesystem,)
    assert filesystem_uuid(volume.path) == OWN
    with pytest.raises(Refused, match=f"it has {filesystem}") as refused:
        blanks().require_blank(volume)
    assert f"wipefs --all {volume.path}" in refused.value.hint
    blanks().wipe(volume.path, OWN)
    assert signatures(volume.path) == ()
    LvmBlankVolumes(blanks().mapped, overwrite_leftovers=True).require_blank(volume)
    blanks().wipe(volume.path, OWN)


@pytest.mark.parametrize(("size", "usual"), [(400 * MIB, 100_000), (2048 * MIB, 130_000)])
def test_an_ext4_has_inodes_for_all_files_and_no_fewer_than_usual(volume: Volume, size: int, usual: int) -> None:
    """It never gets more of them, unlike an XFS; a small one has one for each 4 KiB."""
    with volume.path.open("r+b") as file:
        file.truncate(size)
    volume = replace(volume, size=size)
    for files in (0, usual // 2, 2 * usual):
        blanks().make(volume, "ext4", uuid=OWN, files=files)
        with volume.path.open("rb") as file:
            file.seek(1024)  # the superblock begins with their number
            inodes = int.from_bytes(file.read(4), "little")
        assert inodes >= max(usual, files + files // 4)
        assert inodes < max(usual, files + files // 4) * 1.1


def test_a_large_ext4_which_has_fewer_of_them_for_its_size_has_them_for_all_files(volume: Volume) -> None:
    """As mke2fs reckons, which makes nothing here: one for each 32 KiB from 4 TiB on, for each 64 KiB from 16 TiB."""
    files = 200_000_000
    with volume.path.open("r+b") as file:
        file.truncate(5 * TIB)
    command, _quiet, *rest = make_argv(replace(volume, size=5 * TIB), "ext4", uuid=OWN, files=files)
    told = subprocess.run([command, "-n", *rest], capture_output=True, check=True, text=True).stdout
    (inodes,) = re.findall(r" (\d+) inodes", told)
    assert int(inodes) >= files + files // 4


@pytest.mark.parametrize(
    ("size", "files", "asked"),
    [
        (4 * TIB, 100_000_000, None),
        (16 * TIB, 200_000_000, None),
        (16 * TIB, 300_000_000, 375_000_000),
        (64 * TIB, 4_000_000_000, 2**32 - 1),
    ],
)
def test_an_ext4_is_given_a_number_of_inodes_where_its_size_alone_means_fewer(
    volume: Volume, size: int, files: int, asked: int | None
) -> None:
    argv = make_argv(replace(volume, size=size), "ext4", uuid=OWN, files=files)
    assert argv[4:-3] == ([] if asked is None else ["-N", str(asked)])


@pytest.mark.parametrize("at", [0, 5000, 200 * MIB, 400 * MIB - 1])
def test_data_in_no_known_format_is_something_unless_nobody_needs_it(volume: Volume, at: int) -> None:
    """A database's raw device, plain dm-crypt; the middle is where allocation groups lie."""
    with volume.path.open("r+b") as file:
        file.seek(at)
        file.write(b"\x01")
    with pytest.raises(Refused, match=r"labvg/data is not blank: it has data at .*, in no known format") as refused:
        blanks().require_blank(volume)
    assert "--overwrite-leftovers" in refused.value.hint
    LvmBlankVolumes(blanks().mapped, overwrite_leftovers=True).require_blank(volume)


def test_an_xfs_whose_head_is_lost_is_something(volume: Volume) -> None:
    blanks().make(volume, "xfs", uuid=OWN)
    with volume.path.open("r+b") as file:
        file.write(bytes(8 * MIB))
    assert signatures(volume.path) == ()
    with pytest.raises(Refused, match="in no known format"):
        blanks().require_blank(volume)


def test_a_file_system_of_somebody_else_is_never_wiped(volume: Volume) -> None:
    blanks().make(volume, "ext4", uuid=OTHER)
    blanks().wipe(volume.path, OWN)
    assert filesystem_uuid(volume.path) == OTHER


def test_a_volume_that_is_gone_needs_no_wiping(tmp_path: Path) -> None:
    blanks().wipe(tmp_path / "gone", OWN)
    assert not (tmp_path / "gone").exists()


def test_a_volume_that_mkfs_refuses_is_told_in_its_words(volume: Volume) -> None:
    with volume.path.open("r+b") as file:
        file.truncate(100 * MIB)
    with pytest.raises(SnapshotError, match="larger than 300MB"):
        blanks().make(volume, "xfs", uuid=OWN)
    assert signatures(volume.path) == ()


def test_a_physical_volume_or_partition_table_on_it_is_something_too(volume: Volume) -> None:
    with volume.path.open("r+b") as file:
        file.seek(510)
        file.write(b"\x55\xaa")
        file.seek(446)
        file.write(b"\x00\x01\x01\x00\x83\xfe\xff\xff\x00\x08\x00\x00\x00\x00\x01\x00")
    with pytest.raises(Refused, match="it has dos"):
        blanks().require_blank(volume)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"targets": (TableLine("snapshot", ""),)}, "it is a snapshot"),
        ({"targets": (TableLine("snapshot-origin", ""),)}, "it has snapshots"),
        ({"open_count": 2}, "a process has it open"),
    ],
)
def test_a_volume_that_somebody_uses_is_refused(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], says: str
) -> None:
    monkeypatch.setattr("backupd.lvm.blank._PAUSE_SECONDS", 0)
    with pytest.raises(Refused, match=says):
        blanks(**changes).require_blank(volume)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"snapshots": ("s",)}, "it has snapshots: s"),
        ({"thin_snapshots": ("t",)}, "it has snapshots: t"),
        ({"conditions": ("merging",)}, "merging"),
        (
            {"tags": frozenset({"backupd", "backupd.machine=db1-0a1b2c3d", "backupd.run=r1"})},
            "snapshot or COW area of backupd",
        ),
    ],
)
def test_a_volume_in_a_state_that_forbids_it_is_refused(volume: Volume, changes: dict[str, object], says: str) -> None:
    with pytest.raises(Refused, match=says):
        blanks().require_blank(replace(volume, **changes))  # type: ignore[arg-type]


def test_a_mounted_volume_is_refused(volume: Volume) -> None:
    number = Path("/proc").stat().st_dev
    with pytest.raises(Refused, match="is mounted at /proc"):
        blanks().require_blank(replace(volume, device=DeviceNumber(number >> 8, number & 0xFF)))


def test_udev_that_looks_at_a_new_volume_is_waited_for(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.lvm.blank._PAUSE_SECONDS", 0)
    looks = iter([replace(DEVICE, open_count=1), DEVICE])
    LvmBlankVolumes(mapped=lambda name: next(looks)).require_blank(volume)
    assert next(looks, None) is None
