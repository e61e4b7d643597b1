"""Scratch volumes without LVM: file systems made on real files, and what is told when a program fails or is missing."""

import json
import os
import re
from pathlib import Path

import pytest

from backupd.config import Configuration
from backupd.host import process
from backupd.lvm import Mark
from backupd.lvm.devicemapper import MappedDevice, TableLine
from backupd.lvm.scratch import LvmScratchVolumes, create_argv, format_argv
from backupd.vocabulary.benches import LEAST_SIZE
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, ScratchLayout
from backupd.vocabulary.volumes import DeviceNumber
from backupd.wiring import host_tools
from tests.fakes.target import MACHINE

DATA = Path(__file__).parent.parent / "data" / "lvm"
PVS = ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd")
LINEAR = ScratchLayout(LayoutKind.LINEAR, PVS[:1])
STRIPED = ScratchLayout(LayoutKind.STRIPED, PVS, 64 * KIB)
RAID0 = ScratchLayout(LayoutKind.RAID0, PVS[:2], 512 * KIB)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose scripts are found first: LVM knows the group that was recorded."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    script(folder, "vgs", f'cat "{DATA}/group_four.json"')
    return folder


def script(folder: Path, program: str, text: str) -> None:
    path = folder / program
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def device_file(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "device"
    with path.open("wb") as file:
        file.truncate(size)
    return path


def told(*argv: str) -> str:
    return process.run(argv, timeout_seconds=60).stdout


@pytest.mark.parametrize(
    ("layout", "sunit", "swidth"), [(LINEAR, 0, 0), (STRIPED, 16, 48), (RAID0, 128, 256)], ids=["linear", "lvm", "md"]
)
def test_xfs_is_aligned_to_the_stripes_and_fits_into_the_least_size(
    tmp_path: Path, layout: ScratchLayout, sunit: int, swidth: int
) -> None:
    device = device_file(tmp_path, LEAST_SIZE["xfs"])
    LvmScratchVolumes(MACHINE).format(device, layout, "xfs")
    superblock = told("xfs_db", "-r", "-c", "sb 0", "-c", "print unit width agcount", str(device))
    assert superblock.split() == ["unit", "=", str(sunit), "width", "=", str(swidth), "agcount", "=", "4"]


@pytest.mark.parametrize("width", [2, 3, 5, 16])
@pytest.mark.parametrize("stripe_size", [4 * KIB, 512 * KIB, 4 * MIB])
def test_xfs_of_the_least_size_takes_any_stripes(tmp_path: Path, width: int, stripe_size: int) -> None:
    layout = ScratchLayout(LayoutKind.STRIPED, tuple(f"/dev/sd{n}" for n in range(width)), stripe_size)
    device = device_file(tmp_path, LEAST_SIZE["xfs"])
    LvmScratchVolumes(MACHINE).format(device, layout, "xfs")
    assert told("blkid", "-p", "-o", "value", "-s", "TYPE", str(device)) == "xfs\n"


@pytest.mark.parametrize(
    ("layout", "stride", "width"), [(LINEAR, None, None), (STRIPED, "16", "48"), (RAID0, "128", "256")]
)
def test_ext4_is_aligned_to_the_stripes_and_initialises_nothing_later(
    tmp_path: Path, layout: ScratchLayout, stride: str | None, width: str | None
) -> None:
    device = device_file(tmp_path, LEAST_SIZE["ext4"])
    LvmScratchVolumes(MACHINE).format(device, layout, "ext4")
    found = told("dumpe2fs", str(device))
    fields = dict(re.findall(r"^([A-Z][\w ]+): +(.*)$", found, re.MULTILINE))
    assert (fields.get("RAID stride"), fields.get("RAID stripe width")) == (stride, width)
    assert fields["Block size"] == "4096"
    assert "Journal inode" in fields
    groups = re.findall(r"^Group \d+:.*$", found, re.MULTILINE)
    assert groups
    assert all("ITABLE_ZEROED" in group for group in groups)


def test_what_an_old_array_had_in_its_place_is_no_obstacle_but_on_a_volume_it_is(tmp_path: Path) -> None:
    device = device_file(tmp_path, LEAST_SIZE["xfs"])
    LvmScratchVolumes(MACHINE).format(device, RAID0, "xfs")
    LvmScratchVolumes(MACHINE).format(device, RAID0, "xfs")
    with pytest.raises(SnapshotError, match="appears to contain an existing filesystem"):
        LvmScratchVolumes(MACHINE).format(device, STRIPED, "xfs")


@pytest.mark.parametrize(("filesystem", "package"), [("xfs", "xfsprogs"), ("ext4", "e2fsprogs")])
def test_missing_mkfs_is_told_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filesystem: str, package: str
) -> None:
    monkeypatch.setattr(process, "_environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(SnapshotError, match=rf"cannot create {filesystem}.*program not found: mkfs") as caught:
        LvmScratchVolumes(MACHINE).format(tmp_path / "device", LINEAR, filesystem)
    assert caught.value.hint == f"apt-get install {package}"


def test_file_system_that_we_do_not_make_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="btrfs"):
        format_argv(Path("/dev/labvg/x"), LINEAR, "btrfs")


def test_failure_of_lvcreate_is_told_in_its_words(programs: Path) -> None:
    script(programs, "lvcreate", "echo '  Cannot process volume group labvg' >&2; exit 5")
    with pytest.raises(SnapshotError, match=r"cannot create scratch volume labvg/x: .*Cannot process") as caught:
        LvmScratchVolumes(MACHINE).create("labvg", "x", STRIPED, size=312 * MIB, run_id="r1")
    assert "another LVM command" in caught.value.hint


def test_volume_whose_path_leads_elsewhere_is_not_taken_for_the_one_just_made(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.lvm.scratch._PAUSE_SECONDS", 0)
    script(programs, "lvcreate", "")
    made = MappedDevice("labvg-x", "LVM-x", DeviceNumber(254, 99), False, (TableLine("striped", ""),))
    with pytest.raises(SnapshotError, match="/dev/labvg/x does not point to the new volume") as caught:
        LvmScratchVolumes(MACHINE, mapped={"labvg-x": made}.get).create(
            "labvg", "x", STRIPED, size=312 * MIB, run_id="r1"
        )
    assert "udev" in caught.value.hint


def test_hidden_or_inactive_volume_of_the_name_is_in_the_way_too(programs: Path) -> None:
    script(programs, "lvs", f'cat "{DATA}/volumes_inactive.json"')
    with pytest.raises(Refused, match="labvg/r1 already exists"):
        LvmScratchVolumes(MACHINE).require_unused("labvg", "r1")
    script(programs, "lvs", f'cat "{DATA}/volumes_thin.json"')
    with pytest.raises(Refused, match="labvg/pool_tdata already exists"):
        LvmScratchVolumes(MACHINE).require_unused("labvg", "pool_tdata")


def test_it_is_tagged_by_the_command_that_makes_it_and_takes_no_archive_of_the_group() -> None:
    argv = create_argv("labvg", "x", STRIPED, extents=78, mark=Mark(MACHINE, "r1"))
    assert f" --addtag backupd --addtag backupd.machine={MACHINE} --addtag backupd.run=r1 " in f" {' '.join(argv)} "
    assert argv[-4:] == ["labvg", *PVS]
    assert "backup/archive=0" in argv[argv.index("--config") + 1]


def test_scratch_volume_that_a_run_holds_is_given_back_by_its_tag(programs: Path) -> None:
    recorded = json.loads((DATA / "volumes_striped.json").read_text())
    for row in recorded["report"][0]["seg"]:
        row["lv_tags"] = f"backupd,backupd.machine={MACHINE},backupd.run=r1"
    (programs / "lvs.json").write_text(json.dumps(recorded))
    script(programs, "lvs", f'cat "{programs}/lvs.json"')
    script(programs, "lvremove", f'echo "$@" >> "{programs}/removed"')
    release = host_tools(Configuration(), MACHINE).releases[HoldingKind.SCRATCH_VOLUME]
    release(Holding(HoldingKind.SCRATCH_VOLUME, "labvg/data", {"run": "r1"}))
    assert (programs / "removed").read_text().split()[-1] == "labvg/data"
    with pytest.raises(SnapshotError, match="no tag of run r2"):
        release(Holding(HoldingKind.SCRATCH_VOLUME, "labvg/data", {"run": "r2"}))
