"""Scratch volumes of a bench on LVM itself: what LVM, the file systems and the kernel then say of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.lvm.mounting import LinuxMounts
from backupd.lvm.scratch import LvmScratchVolumes
from backupd.lvm.snapshots import LvmSnapshots, volume_group
from backupd.vocabulary.errors import Refused
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, ScratchLayout
from tests.lab.inside.host import SITE, Host, tool
from tests.lab.inside.places import volume

MACHINE = "lab-0a1b2c3d"
VG, NAME, RUN_ID = SITE.volume_group, "backupd-bench-r1", "r1"
SIZE = 312 * MIB
DEVICE = Path("/dev") / VG / NAME


def pvs() -> tuple[str, ...]:
    return tuple(volume_group(VG).free_by_pv)


def layouts() -> list[ScratchLayout]:
    """Linear; two and three stripes, on PVs with unlike room, not in the order of their names."""
    first, second, third, fourth = pvs()
    return [
        ScratchLayout(LayoutKind.LINEAR, (second,)),
        ScratchLayout(LayoutKind.STRIPED, (fourth, first), 64 * KIB),
        ScratchLayout(LayoutKind.STRIPED, (third, fourth, second), 256 * KIB),
    ]


@contextmanager
def created(layout: ScratchLayout) -> Iterator[Path]:
    """A scratch volume, for the length of the block."""
    device = LvmScratchVolumes(MACHINE).create(VG, NAME, layout, size=SIZE, run_id=RUN_ID)
    try:
        yield device
    finally:
        LvmSnapshots(MACHINE).remove(VG, NAME, RUN_ID)


@contextmanager
def mounted(layout: ScratchLayout, filesystem: str, at: Path) -> Iterator[Path]:
    """The same with a file system that is mounted."""
    with created(layout) as device:
        LvmScratchVolumes(MACHINE).format(device, layout, filesystem)
        LvmScratchVolumes(MACHINE).mount(device, filesystem, at)
        try:
            yield at
        finally:
            LinuxMounts().unmount(at)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("number", range(3))
def test_lvm_says_that_it_lies_as_was_asked(number: int) -> None:
    layout = layouts()[number]
    with created(layout):
        fields = "segtype,stripes,stripe_size,seg_size,devices,lv_tags"
        said = tool("lvs", "--segments", "--noheadings", "--units", "b", "--nosuffix", "-o", fields, f"{VG}/{NAME}")
        kind, stripes, stripe_size, size, devices, tags = said.split()
        table = tool("dmsetup", "table", f"{VG}-{NAME.replace('-', '--')}").split()
    assert (kind, int(stripes)) == ("linear" if layout.width == 1 else "striped", layout.width)
    assert (int(stripe_size), int(size)) == (layout.stripe_size, SIZE)
    assert tuple(re.sub(r"\(\d+\)", "", device) for device in devices.split(",")) == layout.disks
    assert tags == f"backupd,backupd.machine={MACHINE},backupd.run=r1"
    assert table[:3] == ["0", str(SIZE // 512), kind]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("number", range(3))
def test_xfs_is_aligned_to_the_stripes(number: int, tmp_path: Path) -> None:
    layout = layouts()[number]
    with mounted(layout, "xfs", tmp_path / "mnt") as at:
        said = tool("xfs_info", str(at))
    blocks = layout.stripe_size // (4 * KIB)
    assert re.search(rf"sunit={blocks} +swidth={blocks * layout.width if blocks else 0} blks", said), said
    assert "agcount=4," in said


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("number", range(3))
def test_ext4_is_aligned_to_the_stripes_and_has_nothing_to_initialise(number: int, tmp_path: Path) -> None:
    layout = layouts()[number]
    with mounted(layout, "ext4", tmp_path / "mnt"):
        said = tool("dumpe2fs", str(DEVICE))
    stride = layout.stripe_size // (4 * KIB)
    found = dict(re.findall(r"^(RAID[\w ]+): +(\d+)$", said, re.MULTILINE))
    expected = {"RAID stride": str(stride), "RAID stripe width": str(stride * layout.width)} if stride else {}
    assert found == expected
    groups = re.findall(r"^Group \d+:.*$", said, re.MULTILINE)
    assert groups
    assert all("ITABLE_ZEROED" in group for group in groups)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_it_is_mounted_so_that_nothing_in_it_can_be_a_device_or_be_run(filesystem: str, tmp_path: Path) -> None:
    with mounted(layouts()[1], filesystem, tmp_path / "mnt") as at:
        options = tool("findmnt", "--noheadings", "--output", "VFS-OPTIONS", str(at)).strip().split(",")
    assert {"rw", "nodev", "nosuid", "noexec"} <= set(options)


@pytest.mark.usefixtures("host")
def test_nothing_of_what_had_been_on_its_extents_shows(tmp_path: Path) -> None:
    linear = ScratchLayout(LayoutKind.LINEAR, (pvs()[0],))
    with mounted(linear, "xfs", tmp_path / "mnt") as at:
        (at / "file").write_text("somebody's")
    with created(linear) as device:
        assert tool("wipefs", str(device)) == ""
        with device.open("rb") as file:
            assert file.read(4 * KIB) == bytes(4 * KIB)
        LvmScratchVolumes(MACHINE).format(device, linear, "xfs")


@pytest.mark.usefixtures("host")
def test_volume_of_that_name_that_is_not_active_is_in_the_way() -> None:
    with volume(NAME, "--size", "8m", VG):
        tool("lvchange", "--activate", "n", f"{VG}/{NAME}")
        with pytest.raises(Refused, match="already exists"):
            LvmScratchVolumes(MACHINE).require_unused(VG, NAME)


@pytest.mark.usefixtures("host")
def test_archive_of_the_group_is_left_to_people_and_the_copy_of_its_newest_state_is_right() -> None:
    archive, copy = Path("/etc/lvm/archive"), Path("/etc/lvm/backup") / VG
    before = {path.name for path in archive.iterdir()}
    with created(layouts()[1]):
        assert {path.name for path in archive.iterdir()} == before
        assert f"\t{NAME} {{\n" in copy.read_text()
    assert f"\t{NAME} {{\n" not in copy.read_text()


def test_what_a_killed_bench_left_is_removed_by_recover(host: Host) -> None:
    machine = host.backupd("identity", "show", "--json").document["name"]
    LvmScratchVolumes(machine).create(VG, NAME, layouts()[2], size=SIZE, run_id=RUN_ID)
    host.backupd("recover")
    assert LvmSnapshots(machine).ours() == ()


def test_what_another_machines_bench_left_on_a_shared_group_stays(host: Host) -> None:
    with created(layouts()[2]):
        host.backupd("recover")
        assert LvmSnapshots(MACHINE).ours() == ((VG, NAME, RUN_ID),)
