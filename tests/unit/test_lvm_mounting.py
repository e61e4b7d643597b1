"""Which file system a path lies on, and how a snapshot is mounted."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.host.mountinfo import mounts, parse_mountinfo
from backupd.lvm.mounting import FILESYSTEMS, LinuxMounts, mount_argv, mount_of, mount_to_write
from backupd.vocabulary.errors import SnapshotError, UnexpectedOutput
from backupd.vocabulary.volumes import DeviceNumber, Snapshot
from tests.fakes.ledger import Ledger
from tests.fakes.lvm_host import striped_volume

LINES = """23 1 0:19 / / rw,relatime - overlay lab rw,lowerdir=/dev/lab/lower
17 23 254:0 / /mnt/my\\040data rw,relatime shared:1 master:2 - xfs /dev/mapper/labvg-data rw,attr2
18 23 254:3 /sub\\011dir /mnt/a\\134b ro - ext4 /dev/mapper/labvg-s ro
"""


def snapshot_at(path: Path) -> Snapshot:
    return Snapshot(striped_volume(), "backupd-r1", "LVM-x", "r1", path, DeviceNumber(254, 3), 4 << 20, 65536)


def test_mountinfo_is_read_with_its_octal_escapes() -> None:
    root, data, sub = parse_mountinfo(LINES)
    assert (root.path, root.filesystem, root.device) == (Path("/"), "overlay", DeviceNumber(0, 19))
    assert (data.path, data.filesystem, data.device) == (Path("/mnt/my data"), "xfs", DeviceNumber(254, 0))
    assert (sub.root, sub.path, sub.filesystem) == (Path("/sub\tdir"), Path("/mnt/a\\b"), "ext4")


def test_a_file_system_that_is_on_two_devices_is_known_by_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux tells of an XFS with a log of its own; the part that is on the other device is in no snapshot."""
    file = tmp_path / "mountinfo"
    monkeypatch.setattr("backupd.host.mountinfo._OURS", file)
    number = tmp_path.stat().st_dev
    line = f"40 23 {os.major(number)}:{os.minor(number)} / / rw - xfs /dev/mapper/vg-data rw,attr2,{{}}noquota\n"
    file.write_text(line.format("logdev=/dev/sdb1,logbufs=8,"))
    assert mount_of(tmp_path).elsewhere == ("logdev=/dev/sdb1",)
    file.write_text(line.format("logbufs=8,"))
    assert mount_of(tmp_path).elsewhere == ()


def test_only_a_newline_ends_a_line_of_mountinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user who may mount by FUSE chooses the path; what cannot be read here keeps every snapshot mounted."""
    odd = b"/home/a/\r \x0b \x0c \x1c \x1d \x1e \xc2\x85 \xe2\x80\xa8 \xe2\x80\xa9 \xff".replace(b" ", b"")
    file = tmp_path / "mountinfo"
    file.write_bytes(b"40 23 0:50 / " + odd + b" rw,nosuid,nodev - fuse.sshfs a@b: rw,user_id=1000\n" + LINES.encode())
    monkeypatch.setattr("backupd.host.mountinfo._OURS", file)
    found = mounts()
    assert [one.filesystem for one in found] == ["fuse.sshfs", "overlay", "xfs", "ext4"]
    assert os.fsencode(found[0].path) == odd


def test_line_of_unknown_form_is_shown() -> None:
    with pytest.raises(UnexpectedOutput, match="17 nonsense"):
        parse_mountinfo("17 nonsense\n")


def test_path_lies_on_the_deepest_mount_above_it() -> None:
    found = mount_of(Path("/proc/self/status"))
    assert (found.path, found.filesystem) == (Path("/proc"), "proc")


def test_device_is_the_one_that_stat_tells(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    found = mount_of(tmp_path)
    assert found.device == DeviceNumber(os.major(number), os.minor(number))
    assert tmp_path.resolve().is_relative_to(found.path)


def test_link_is_followed_to_where_its_file_lies(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self")
    assert mount_of(tmp_path / "link").path == Path("/proc")


def test_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="No such file"):
        mount_of(tmp_path / "nothing")


@pytest.mark.parametrize(("filesystem", "nouuid"), [("xfs", True), ("ext4", False)])
def test_mount_is_read_only_and_nouuid_is_for_xfs_alone(filesystem: str, nouuid: bool) -> None:
    argv = mount_argv(Path("/dev/vg/s"), Path("/mnt"), filesystem=filesystem)
    options = argv[argv.index("-o") + 1].split(",")
    assert {"ro", "nodev", "nosuid", "noexec", "noatime"} <= set(options)
    assert ("nouuid" in options) is nouuid
    assert not {"norecovery", "noload"} & set(options)


@pytest.mark.parametrize("filesystem", FILESYSTEMS)
def test_no_error_of_a_snapshot_makes_the_kernel_panic(filesystem: str) -> None:
    """`tune2fs -e panic` is in the snapshot's superblock too, and one that has overflowed gives only errors."""
    argv = mount_argv(Path("/dev/vg/s"), Path("/mnt"), filesystem=filesystem)
    errors = [option for option in argv[argv.index("-o") + 1].split(",") if option.startswith("errors=")]
    assert errors == (["errors=remount-ro"] if filesystem == "ext4" else [])  # XFS knows no such option


def test_only_where_it_is_told_so_a_log_is_not_replayed() -> None:
    argv = mount_argv(Path("/dev/vg/s"), Path("/mnt"), filesystem="xfs", replay=False)
    assert {"ro", "nouuid", "norecovery"} <= set(argv[argv.index("-o") + 1].split(","))


def test_path_that_leads_to_another_device_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="does not point to snapshot"):
        LinuxMounts().mount(snapshot_at(Path("/dev/null")), tmp_path / "mnt")
    assert not (tmp_path / "mnt").exists()


def test_snapshot_of_a_volume_that_is_mounted_nowhere_any_more_is_not_mounted(tmp_path: Path) -> None:
    null = Path("/dev/null").stat().st_rdev
    snapshot = replace(snapshot_at(Path("/dev/null")), device=DeviceNumber(os.major(null), os.minor(null)))
    unmounted = replace(snapshot, origin=replace(snapshot.origin, device=DeviceNumber(254, 4095)))
    with pytest.raises(SnapshotError, match=f"{snapshot.origin.full_name} is no longer mounted"):
        LinuxMounts().mount(unmounted, tmp_path / "mnt")
    odd = replace(snapshot, origin=replace(snapshot.origin, device=mount_of(Path("/proc")).device))
    with pytest.raises(SnapshotError, match="holds proc"):
        LinuxMounts().mount(odd, tmp_path / "mnt")
    assert not (tmp_path / "mnt").exists()


def test_snapshot_without_device_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="labvg/backupd-r1"):
        LinuxMounts().mount(snapshot_at(tmp_path / "nothing"), tmp_path / "mnt")
    assert not (tmp_path / "mnt").exists()


def mountable(monkeypatch: pytest.MonkeyPatch, programs: Path, *, mount: str) -> Snapshot:
    """What is mounted by this script."""
    programs.mkdir()
    (programs / "mount").write_text(f"#!/bin/sh\n{mount}\n")
    (programs / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr("backupd.lvm.mounting._EXTRA", {"proc": ""})
    null, root = Path("/dev/null").stat().st_rdev, mount_of(Path("/proc"))
    snapshot = replace(snapshot_at(Path("/dev/null")), device=DeviceNumber(os.major(null), os.minor(null)))
    return replace(snapshot, origin=replace(snapshot.origin, device=root.device))


def test_a_mount_that_fails_once_it_has_mounted_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mount(8) ends with 16 where it could not write down what it has mounted: the folder cannot be removed then."""
    at = tmp_path / "run" / "mnt" / "r1"
    snapshot = mountable(monkeypatch, tmp_path / "bin", mount=f"touch '{at}/mounted'; echo 'no mtab' >&2; exit 16")
    with pytest.raises(SnapshotError, match=r"could not be mounted: .*ended with status 16: no mtab"):
        LinuxMounts().mount(snapshot, at)


def test_a_mount_that_is_at_work_is_in_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    LinuxMounts().mount(mountable(monkeypatch, tmp_path / "bin", mount=""), tmp_path / "mnt" / "r1", ledger=ledger)
    assert (ledger.told, ledger.alive) == (["mount"], [])
    mount_to_write(Path("/dev/null"), "xfs", tmp_path / "mnt" / "r2", called="a volume", ledger=ledger)
    assert (ledger.told, ledger.alive) == (["mount", "mount"], [])


def test_unmounting_an_empty_folder_removes_it_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    LinuxMounts().unmount(tmp_path / "mnt")
    assert not (tmp_path / "mnt").exists()
    LinuxMounts().unmount(tmp_path / "mnt")


def test_folder_with_files_that_is_not_mounted_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotError, match="not mounted"):
        LinuxMounts().unmount(tmp_path)
    assert (tmp_path / "file").exists()


def test_nothing_is_mounted_where_others_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mounted brings modes of its own: the folder above is closed before, one of an older version's too."""
    at = tmp_path / "run" / "mnt" / "r1"
    seen = f"stat --format=%a {at.parent} >{tmp_path}/seen"
    snapshot = mountable(monkeypatch, tmp_path / "bin", mount=seen)
    at.parent.mkdir(parents=True)
    at.parent.chmod(0o755)
    LinuxMounts().mount(snapshot, at)
    assert (tmp_path / "seen").read_text() == "700\n"
    at.parent.chmod(0o755)
    mount_to_write(Path("/dev/null"), "xfs", at, called="a volume")
    assert (tmp_path / "seen").read_text() == "700\n"


def test_a_folder_above_the_mount_that_is_somebody_else_s_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(SnapshotError, match="belongs to the user of id 65534"):
        mount_to_write(Path("/dev/null"), "xfs", tmp_path / "r1", called="a volume")


@pytest.mark.parametrize("filesystem", FILESYSTEMS)
def test_no_container_that_is_given_the_hosts_folders_takes_a_mounted_snapshot_along(filesystem: str) -> None:
    """A recursive bind leaves out what is unbindable (mount_namespaces(7)); a copy would keep the snapshot in use."""
    argv = mount_argv(Path("/dev/vg/s"), Path("/mnt"), filesystem=filesystem)
    assert "unbindable" in argv[argv.index("-o") + 1].split(",")


def test_nor_does_it_take_a_scratch_volume_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mount"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    mount_to_write(Path("/dev/null"), "xfs", tmp_path / "mnt" / "r1", called="a volume")
    said = (tmp_path / "said").read_text().split()
    assert "unbindable" in said[said.index("-o") + 1].split(",")


@pytest.mark.parametrize(("features", "inode", "told"), [(0x4, 0, ("external journal",)), (0x4, 8, ()), (0x0, 0, ())])
def test_an_ext4_whose_journal_is_on_another_device_is_known_by_its_superblock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: int, inode: int, told: tuple[str, ...]
) -> None:
    """Its options do not tell; the kernel opens that device for one file system only, so no snapshot can be mounted."""
    number = tmp_path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    block = bytearray(1024)
    for at, size, value in ((0x38, 2, 0xEF53), (0x5C, 4, features), (0xE0, 4, inode)):
        block[at : at + size] = value.to_bytes(size, "little")
    (tmp_path / name).write_bytes(bytes(1024) + block)
    (tmp_path / "mountinfo").write_text(f"40 23 {name} / / rw - ext4 /dev/mapper/vg-data rw\n")
    monkeypatch.setattr("backupd.host.mountinfo._OURS", tmp_path / "mountinfo")
    monkeypatch.setattr("backupd.lvm.mounting._DEVICES", tmp_path)
    assert mount_of(tmp_path).elsewhere == told
