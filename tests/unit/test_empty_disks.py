"""Who uses a disk, by a host of files; the kernel itself is asked in the lab (`inside_bench_disks`)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from backupd.host.mountinfo import Mounted, parse_mountinfo
from backupd.lvm import empty_disks
from backupd.vocabulary.errors import Refused
from backupd.vocabulary.volumes import DeviceNumber

NUMBER = DeviceNumber(8, 16)
ELSEWHERE = 8  # a process with mounts of its own
MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/root rw
2 1 0:5 / /run rw - tmpfs none rw
3 1 0:9 / /share rw - nfs4 server:/x rw
"""


@pytest.fixture(autouse=True)
def lists_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """A host where every path leads to the disk; of whom the lists of mounts were read."""
    read: list[int | None] = []

    def mounts(process: int | None = None) -> tuple[Mounted, ...]:
        read.append(process)
        return parse_mountinfo(MOUNTS if process != ELSEWHERE else "9 0 0:9 / / rw - nfs4 server:/x rw\n")

    monkeypatch.setattr(empty_disks, "_PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(empty_disks, "mounts", mounts)
    monkeypatch.setattr(empty_disks, "device_number", lambda path: NUMBER)
    return read


def process(host: Path, pid: int, opened: Mapping[str, int], *, namespace: str = "mnt:[1]") -> None:
    """It has these paths open, each by the mount of this number."""
    folder = host / "proc" / str(pid)
    for name in ("fd", "fdinfo", "ns"):
        (folder / name).mkdir(parents=True)
    (folder / "comm").write_text("qemu\n")
    (folder / "ns/mnt").symlink_to(namespace)
    (folder / "root").symlink_to("/")
    for number, (path, mount) in enumerate(opened.items()):
        (folder / "fd" / str(number)).symlink_to(path)
        (folder / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t0100000\nmnt_id:\t{mount}\nino:\t3\n")


@pytest.mark.parametrize(
    ("path", "mount", "counts"),
    [
        ("/dev/sdb", 77, True),
        ("/run/node", 2, True),  # of tmpfs
        ("/var/lib/vm/disk", 1, True),
        ("/share/node", 3, False),  # whoever asks may hang
        ("/var/lib/vm/disk", 9, False),  # as it sees it, by a share of its own
        ("/var/lib/vm/disk", 77, False),  # nobody sees what it lies on
        ("socket:[1]", 1, False),
    ],
)
def test_who_has_a_disk_open_counts_wherever_its_node_lies_unless_the_answer_may_hang(
    tmp_path: Path, path: str, mount: int, counts: bool
) -> None:
    process(tmp_path, 7, {"/share/image": 3, path: mount})
    process(tmp_path, ELSEWHERE, {}, namespace="mnt:[2]")
    assert list(empty_disks._openers(NUMBER)) == ([(7, "qemu")] if counts else [])


def test_what_is_mounted_is_read_once_for_all_who_see_the_same(tmp_path: Path, lists_read: list[int | None]) -> None:
    """A host of containers has hundreds of mounts, and each process a list of them."""
    for pid in range(10, 20):
        process(tmp_path, pid, {f"/var/lib/{number}": 1 for number in range(9)}, namespace=f"mnt:[{pid % 2}]")
    assert len(list(empty_disks._openers(NUMBER))) == 10
    assert len(lists_read) == 2


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
