"""Groups and arrays on the lab's two spare disks: what is refused there, and what is left when somebody is killed.

The contract itself is tried here too, by `tests/contract/test_scratch_disks.py`; this is what only a real kernel shows.
"""

import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from backupd.lvm import Mark, disks_of, holding_on_disks, scratch_name
from backupd.lvm.blank import signatures
from backupd.lvm.scratch_disks import LinuxScratchDisks
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, ScratchLayout
from tests.lab.inside.host import SITE, tool, until
from tests.lab.inside.places import volume

SPARE = tuple(os.environ["BACKUPD_LAB_SPARE_DISKS"].split())
FIRST, SECOND = SPARE
RUN = "20261122-005204-ab12"
NAME = scratch_name(RUN)
LAYOUT = ScratchLayout(LayoutKind.RAID0, SPARE, stripe_size=64 * KIB)
MACHINE = "lab-0a1b2c3d"
DISKS = LinuxScratchDisks(MACHINE)
TAGGED = Mark(MACHINE, RUN).tag_words

# Makes a group or an array and removes it again, and is killed instead of starting its Nth program that writes.
KILLED = f"""
import os, signal, sys
from backupd.host import process as command
from backupd.vocabulary.scratch_layouts import LayoutKind, ScratchLayout
from backupd.lvm.scratch_disks import LinuxScratchDisks
kind, left = sys.argv[1], int(sys.argv[2])
run = command.run
def counted(argv, **options):
    global left
    if argv[0] in ("pvcreate", "vgcreate", "vgremove", "pvremove", "mdadm") or argv[:2] == ["wipefs", "--quiet"]:
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    return run(argv, **options)
command.run = counted
disks = LinuxScratchDisks({MACHINE!r})
if kind == "group":
    disks.make_group({NAME!r}, {SPARE!r}, {RUN!r})
    disks.remove_group({NAME!r}, {SPARE!r}, {RUN!r})
else:
    disks.make_array({NAME!r}, ScratchLayout(LayoutKind.RAID0, {SPARE!r}, 65536), {RUN!r})
    disks.remove_array({NAME!r}, {SPARE!r}, {RUN!r})
"""
# The end of a DOS boot sector: one partition of Linux's kind, of 128 MiB from the first MiB on, and three of none.
PARTITION_TABLE = struct.pack("<4xB3xII", 0x83, 2048, 262144) + bytes(3 * 16) + b"\x55\xaa"
WRITES = {"group": 6, "array": 5}  # label two, make the group, remove it, unlabel two; create, wipe, stop, zero two


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """After every test the disks are as they were; by hand, so that one that failed does not fail the next."""
    before = world()
    yield
    try:
        assert contents() == [(), ()]
        assert world() == before
    finally:
        for array in Path("/sys/block").glob("md*"):
            subprocess.run(["mdadm", "--stop", f"/dev/{array.name}"], check=False)
        subprocess.run(["vgremove", "-qq", "--yes", NAME], check=False, capture_output=True)
        subprocess.run(["pvremove", "-qq", "-ff", "--yes", *SPARE], check=False, capture_output=True)
        for disk in SPARE:
            subprocess.run(["blkdiscard", "--zeroout", "--force", disk], check=False)


def world() -> dict[str, list[str]]:
    """Devices and names, groups, LVM's archive."""
    return {
        "devices": sorted(path.name for path in Path("/sys/block").iterdir()),
        "nodes": sorted(path.name for path in Path("/dev").glob("md?*")),
        "names": sorted(path.name for path in Path("/dev/md").glob("*")),
        "groups": tool("vgs", "--noheadings", "--options", "vg_name").split(),
        "pvs": tool("pvs", "--noheadings", "--options", "pv_name").split(),
        "archive": sorted(path.name for path in Path("/etc/lvm").glob("*/backupd-*")),
    }


def contents() -> list[tuple[str, ...]]:
    return [signatures(Path(disk)) for disk in SPARE]


@contextmanager
def after(*argv: str) -> Iterator[None]:
    """The program runs when the block ends."""
    try:
        yield
    finally:
        tool(*argv)


def refused(disk: str, says: str) -> str:
    """Why the disk is refused; neither a group nor an array is made of it and the other one."""
    with pytest.raises(Refused, match=says) as alone:
        DISKS.require_empty(Path(disk))
    assert alone.value.hint
    before = signatures(Path(SECOND))
    others = (SECOND, disk) if disk != SECOND else (FIRST, disk)
    with pytest.raises(Refused, match=says):
        DISKS.make_group(NAME, others, RUN)
    with pytest.raises(Refused, match=says):
        DISKS.make_array(NAME, ScratchLayout(LayoutKind.RAID0, others, 64 * KIB), RUN)
    assert signatures(Path(SECOND)) == before
    return alone.value.hint


def test_a_disk_that_is_mounted_is_refused(tmp_path: Path) -> None:
    tool("mkfs.ext4", "-q", "-E", "nodiscard", FIRST)
    tool("mount", FIRST, str(tmp_path))
    with after("wipefs", "--quiet", "--all", FIRST), after("umount", str(tmp_path)):
        refused(FIRST, f"{FIRST} is not empty: it is mounted at {tmp_path}")


def test_a_disk_that_is_swap_is_refused() -> None:
    tool("mkswap", "-q", FIRST)
    tool("swapon", FIRST)
    with after("wipefs", "--quiet", "--all", FIRST), after("swapoff", FIRST):
        refused(FIRST, "it is used as swap")


def test_a_pv_is_refused_with_the_name_of_its_group_whether_active_or_not() -> None:
    pv, *_ = tool("pvs", "--noheadings", "-o", "pv_name", "-S", f"vg_name={SITE.volume_group}").split()
    refused(pv, f"it is a PV of volume group {SITE.volume_group}")
    tool("vgcreate", "-qq", "theirs", FIRST)
    with after("pvremove", "-qq", FIRST), after("vgremove", "-qq", "theirs"):
        refused(FIRST, "it is a PV of volume group theirs")


def test_a_disk_with_partitions_is_refused_and_so_is_a_partition() -> None:
    with partitioned() as partition:
        refused(FIRST, f"it has partitions: {partition}")
        hint = refused(f"/dev/{partition}", "is a partition")
        assert Path(FIRST).name in hint


@contextmanager
def partitioned() -> Iterator[str]:
    """The disk has one partition, of this name; where udev runs, the kernel reads a table anew by itself."""

    def names() -> list[str]:
        return [found.parent.name for found in Path("/sys/block", Path(FIRST).name).glob("*/partition")]

    with Path(FIRST).open("r+b") as disk:
        disk.seek(446)
        disk.write(PARTITION_TABLE)
    try:
        subprocess.run(["partx", "--add", FIRST], check=False, capture_output=True)
        until(lambda: Path("/dev", *names()).is_block_device())
        (name,) = names()
        yield name
    finally:
        tool("wipefs", "--quiet", "--all", "--force", FIRST)
        subprocess.run(["partx", "--delete", FIRST], check=False, capture_output=True)
        until(lambda: not names())


def test_a_volume_is_no_disk() -> None:
    refused(str(SITE.volume_path), "is a logical volume")


def test_a_disk_under_another_device_is_refused() -> None:
    tool("dmsetup", "create", "above", "--table", f"0 1000 linear {FIRST} 0")
    with after("dmsetup", "remove", "above"):
        refused(FIRST, "another device uses it: dm-")


def test_a_disk_that_a_process_has_open_is_refused_with_its_name() -> None:
    with Path(FIRST).open("rb"):
        refused(FIRST, rf"in use: process {os.getpid()} \(\S+\) has it open")


def test_a_disk_that_a_process_has_open_by_a_node_anywhere_is_refused() -> None:
    number = Path(FIRST).stat().st_rdev
    node = Path("/run/not-below-dev")
    os.mknod(node, 0o600 | stat.S_IFBLK, number)
    with after("rm", str(node)), node.open("rb"):
        refused(FIRST, rf"in use: process {os.getpid()} \(\S+\) has it open")


def test_a_disk_beneath_a_loop_device_is_refused() -> None:
    """At an offset, so that nothing is found at its head; the kernel counts no holder, and no process has it open."""
    loop = tool("losetup", "--find", "--show", "--offset", str(32 << 20), FIRST).strip()
    with after("losetup", "--detach", loop):
        refused(FIRST, f"another device uses it: {Path(loop).name}")


def test_a_disk_that_somebody_nobody_sees_has_claimed_is_refused() -> None:
    """A file system that is mounted elsewhere only: neither our mounts nor any open file tell of it."""
    tool("mkfs.ext4", "-q", "-E", "nodiscard", FIRST)
    script = f"mount {FIRST} /mnt && wipefs --quiet --all --force {FIRST} && echo up && read -r _; umount /mnt"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as elsewhere:
        assert elsewhere.stdout is not None
        assert elsewhere.stdout.readline() == b"up\n"
        assert contents() == [(), ()], "there is nothing to be seen on it"
        refused(FIRST, "it cannot be opened exclusively: Device or resource busy")
        elsewhere.communicate(b"\n")
    tool("wipefs", "--quiet", "--all", FIRST)


def test_a_read_only_disk_is_refused() -> None:
    tool("blockdev", "--setro", FIRST)
    with after("blockdev", "--setrw", FIRST):
        refused(FIRST, f"{FIRST} is read-only")


def test_what_is_no_disk_or_too_small_a_one_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"\0" * (1 << 20))
    refused(str(image), "is not a block device")
    refused("/dev/null", "is not a block device")
    refused("/dev/no such", "has a blank in it")
    small = tool("losetup", "--find", "--show", str(image)).strip()
    with after("losetup", "--detach", small):
        refused(small, f"{small} is too small: 1.0 MiB")


def test_nothing_of_what_had_been_on_the_disks_shows_on_an_array() -> None:
    DISKS.make_array(NAME, LAYOUT, RUN)
    device = next(Path("/dev", array.name) for array in Path("/sys/block").glob("md*"))
    tool("mkfs.ext4", "-q", "-E", "nodiscard", str(device))
    DISKS.remove_array(NAME, SPARE, RUN)
    assert signatures(DISKS.make_array(NAME, LAYOUT, RUN)) == ()
    DISKS.remove_array(NAME, SPARE, RUN)


def test_an_array_is_laid_out_as_asked_over_the_disks_in_their_order() -> None:
    layout = ScratchLayout(LayoutKind.RAID0, (SECOND, FIRST), stripe_size=256 * KIB)
    md = Path("/sys/block", DISKS.make_array(NAME, layout, RUN).name, "md")
    assert (md / "level").read_text() == "raid0\n"
    assert (md / "chunk_size").read_text() == f"{256 * KIB}\n"
    order = [(md / f"rd{place}" / "block").resolve().name for place in (0, 1)]
    assert order == [Path(SECOND).name, Path(FIRST).name]
    DISKS.remove_array(NAME, SPARE, RUN)


def test_an_array_in_use_is_not_taken_apart_until_it_is_in_use_no_more(tmp_path: Path) -> None:
    device = DISKS.make_array(NAME, LAYOUT, RUN)
    tool("mkfs.ext4", "-q", "-E", "nodiscard", str(device))
    tool("mount", str(device), str(tmp_path))
    with pytest.raises(SnapshotError, match=f"array {NAME} could not be stopped") as told:
        DISKS.remove_array(NAME, SPARE, RUN)
    assert "lsof" in told.value.hint
    tool("umount", str(tmp_path))
    DISKS.remove_array(NAME, SPARE, RUN)


def test_a_group_goes_with_the_volumes_of_its_run_and_stays_with_anybody_elses() -> None:
    DISKS.make_group(NAME, SPARE, RUN)
    tool("lvcreate", "-qq", "-An", "--yes", "--size", "64m", "--name", "ours", *TAGGED, NAME)
    tool("lvcreate", "-qq", "-An", "--yes", "--size", "64m", "--name", "theirs", NAME)
    with pytest.raises(SnapshotError, match=f"theirs in it has no tag of run {RUN}") as told:
        DISKS.remove_group(NAME, SPARE, RUN)
    assert f"lvremove {NAME}/theirs" in told.value.hint
    assert set(tool("lvs", "--noheadings", "-o", "lv_name", NAME).split()) == {"ours", "theirs"}
    tool("lvremove", "-qq", "-An", "--yes", f"{NAME}/theirs")
    DISKS.remove_group(NAME, SPARE, RUN)


def test_a_group_whose_volume_is_mounted_stays(tmp_path: Path) -> None:
    DISKS.make_group(NAME, SPARE, RUN)
    tool("lvcreate", "-qq", "-An", "--yes", "--size", "64m", "--name", "ours", *TAGGED, NAME)
    tool("mkfs.ext4", "-q", "-E", "nodiscard", f"/dev/{NAME}/ours")
    tool("mount", f"/dev/{NAME}/ours", str(tmp_path))
    with pytest.raises(SnapshotError, match="could not be removed"):
        DISKS.remove_group(NAME, SPARE, RUN)
    tool("umount", str(tmp_path))
    DISKS.remove_group(NAME, SPARE, RUN)


def test_a_disk_that_somebody_took_into_a_group_of_his_is_his() -> None:
    DISKS.make_group(NAME, SPARE, RUN)
    tool("vgchange", "-qq", "-An", "--deltag", "backupd", NAME)
    with pytest.raises(SnapshotError, match=f"volume group {NAME} on it has no tag of run {RUN}"):
        DISKS.remove_group(NAME, SPARE, RUN)
    assert DISKS.ours() == ()
    tool("vgchange", "-qq", "-An", "--addtag", "backupd", NAME)
    DISKS.remove_group(NAME, SPARE, RUN)


def test_a_pv_of_ours_that_lvm_does_not_see_is_told_and_not_taken_for_gone() -> None:
    DISKS.make_group(NAME, SPARE, RUN)
    configuration = SITE.lvm_system / "lvmlocal.conf"
    before = configuration.read_text()
    configuration.write_text(before.replace(f'"a|^{SECOND}$|", ', "").replace(f', "a|^{SECOND}$|"', ""))
    try:
        with pytest.raises(SnapshotError, match=f"{SECOND} is a PV of run {RUN}, but LVM does not see it"):
            DISKS.remove_group(NAME, SPARE, RUN)
    finally:
        configuration.write_text(before)
    DISKS.remove_group(NAME, SPARE, RUN)


@pytest.mark.parametrize(
    ("kind", "writes"), [(kind, writes) for kind, count in WRITES.items() for writes in range(count + 1)]
)
def test_whoever_is_killed_between_two_steps_leaves_what_the_host_alone_tells_of(kind: str, writes: int) -> None:
    held = killed(kind, writes)
    found = DISKS.ours()
    assert bool(found) == any(contents())
    for holding, run_id in found:
        assert (holding.kind, holding.name, run_id) == (held, NAME, RUN)
        give_back(holding)
    assert contents() == [(), ()]
    if not found:  # a name or a node may be left of an array that is gone: its row tells of it
        give_back(holding_on_disks(held, SPARE, RUN))


@pytest.mark.parametrize(("kind", "writes"), [("group", 1), ("group", 3), ("array", 1)])
def test_the_row_of_who_was_killed_is_enough_as_well(kind: str, writes: int) -> None:
    held = killed(kind, writes)
    assert any(contents())
    give_back(holding_on_disks(held, SPARE, RUN))


def killed(kind: str, writes: int) -> HoldingKind:
    """Somebody makes a group or an array and removes it, and is killed after so many of his programs.

    After all of them he is not: an array that udev has made anew meanwhile is stopped once more.
    """
    ends = writes == WRITES[kind]
    killed_after = 1000 if ends else writes
    done = subprocess.run(
        [sys.executable, "-c", KILLED, kind, str(killed_after)], capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if ends else -9), done.stderr
    return HoldingKind.SCRATCH_GROUP if kind == "group" else HoldingKind.SCRATCH_ARRAY


def half_written() -> None:
    """As mdadm leaves them that was killed between two disks."""
    tool("mdadm", "--stop", f"/dev/md/{NAME}")
    tool("mdadm", "--zero-superblock", SECOND)


def assembled_by_udev() -> None:
    """As at the next boot: under another name."""
    tool("mdadm", "--stop", f"/dev/md/{NAME}")
    for disk in SPARE:
        tool("mdadm", "--incremental", disk)


def half_assembled() -> None:
    """One disk came, and the other did not yet."""
    tool("mdadm", "--stop", f"/dev/md/{NAME}")
    tool("mdadm", "--incremental", SECOND)


def stopped() -> None:
    """Its name and its node are still there."""
    tool("mdadm", "--stop", f"/dev/md/{NAME}")


@pytest.mark.parametrize("leaving", [half_written, assembled_by_udev, half_assembled, stopped])
def test_an_array_is_found_and_removed_in_whatever_state_it_was_left(leaving: Callable[[], None]) -> None:
    DISKS.make_array(NAME, LAYOUT, RUN)
    leaving()
    ((holding, run_id),) = DISKS.ours()
    assert (holding.kind, holding.name, run_id) == (HoldingKind.SCRATCH_ARRAY, NAME, RUN)
    give_back(holding)


def test_an_array_of_somebody_else_of_the_same_name_is_left_alone() -> None:
    argv = ["--level=0", "--raid-devices=2", "--metadata=1.2", "--homehost=<none>", f"--name={NAME}", "--run", *SPARE]
    tool("mdadm", "--create", "/dev/md/theirs", *argv)
    try:
        assert DISKS.ours() == ()
        DISKS.remove_array(NAME, SPARE, RUN)
        assert contents() == [("linux_raid_member",)] * 2
        with volume("third", "--size", "128m", SITE.volume_group), ExitStack() as owed:
            loop = tool("losetup", "--find", "--show", f"/dev/{SITE.volume_group}/third").strip()
            owed.enter_context(after("losetup", "--detach", loop))
            with pytest.raises(Refused, match=f"array {NAME} already exists"):
                DISKS.make_array(NAME, ScratchLayout(LayoutKind.RAID0, (loop,), 64 * KIB), RUN)
    finally:
        node = Path("/dev/md/theirs").resolve()
        tool("mdadm", "--stop", str(node))
        until(lambda: not Path("/sys/block", node.name).exists())
        tool("mdadm", "--zero-superblock", *SPARE)
        node.unlink(missing_ok=True)
        Path("/dev/md/theirs").unlink(missing_ok=True)


def give_back(holding: Holding) -> None:
    """As its release does."""
    remove = DISKS.remove_group if holding.kind is HoldingKind.SCRATCH_GROUP else DISKS.remove_array
    remove(holding.name, disks_of(holding), holding.detail["run"])
