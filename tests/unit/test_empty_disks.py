"""Who uses a disk, by a host of files; the kernel itself is asked in the lab (`inside_bench_disks`)."""

from pathlib import Path

import pytest

from backupd.host.mountinfo import parse_mountinfo
from backupd.lvm import empty_disks
from backupd.vocabulary.errors import Refused
from backupd.vocabulary.volumes import DeviceNumber

NUMBER = DeviceNumber(8, 16)
MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/root rw
2 1 0:5 / /run rw - tmpfs none rw
3 1 0:9 / /share rw - nfs4 server:/x rw
"""


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, of which `opened` says what it has open; every path leads to the disk."""
    monkeypatch.setattr(empty_disks, "_PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(empty_disks, "mounts", lambda process=None: parse_mountinfo(MOUNTS))
    monkeypatch.setattr(empty_disks, "device_number", lambda path: NUMBER)
    (tmp_path / "proc/7/fd").mkdir(parents=True)
    (tmp_path / "proc/7/comm").write_text("qemu\n")


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/dev/sdb", True),
        ("/run/node", True),  # of tmpfs
        ("/var/lib/vm/disk", True),
        ("/share/node", False),  # whoever asks may hang
        ("socket:[1]", False),
    ],
)
def test_who_has_a_disk_open_counts_wherever_its_node_lies_unless_the_answer_may_hang(
    tmp_path: Path, path: str, counts: bool
) -> None:
    (tmp_path / "proc/7/fd/3").symlink_to(path)
    assert list(empty_disks._openers(NUMBER)) == ([(7, "qemu")] if counts else [])


def test_a_loop_device_over_a_disk_is_found(tmp_path: Path) -> None:
    for loop, backing in (("loop0", "/share/image"), ("loop1", "/dev/sdb"), ("loop2", None)):
        (tmp_path / "sys/block" / loop / "loop").mkdir(parents=True)
        if backing:
            (tmp_path / "sys/block" / loop / "loop/backing_file").write_text(f"{backing}\n")
    assert list(empty_disks._loops_on(NUMBER, tmp_path / "sys")) == ["loop1"]


@pytest.mark.parametrize("file", ["wwid", "device/wwid"])
def test_two_paths_to_one_disk_of_a_storage_are_one_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    numbers = {"/dev/sdb": DeviceNumber(8, 16), "/dev/sdc": DeviceNumber(8, 32), "/dev/sdd": DeviceNumber(8, 48)}
    monkeypatch.setattr(empty_disks, "device_number", numbers.get)
    for number, name in zip(numbers.values(), ("naa.6001", "naa.6001", "naa.6002"), strict=True):
        told = tmp_path / "dev/block" / str(number) / file
        told.parent.mkdir(parents=True)
        told.write_text(f"{name}\n")
    empty_disks.require_distinct(("/dev/sdb", "/dev/sdd", "/dev/nowhere"), sysfs=tmp_path)
    with pytest.raises(Refused, match=r"/dev/sdb and /dev/sdc are the same disk: both are naa\.6001"):
        empty_disks.require_distinct(("/dev/sdb", "/dev/sdc"), sysfs=tmp_path)
