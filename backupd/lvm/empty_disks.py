"""Whole disks of this host: which there are, and the proof that nobody uses one and that nothing is on it.

Knows: what the kernel tells of block devices (`/sys`, `/proc`), whose volume group a PV is in. Refuses to know what a
disk is wanted for, and to change anything on it.

What is on a disk is asked of wipefs; but some use a disk on which it finds nothing: a database with raw devices, a copy
under way. So whoever has it open counts as well.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.host import process as programs
from backupd.host.mountinfo import Mounted, covering, mounts
from backupd.lvm import report
from backupd.lvm.blank import signatures
from backupd.lvm.devicemapper import SYSFS, device_number, mapped_as, number_of
from backupd.lvm.leftovers import OPTION, leftovers
from backupd.lvm.refusals import reporting
from backupd.lvm.report import LabelledDisk
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.units import compared_sizes
from backupd.vocabulary.volumes import DeviceNumber

LEAST_SIZE = 64 << 20  # bytes: LVM and mdadm keep some of a disk to themselves

_SECTOR = 512
_SECONDS = 60.0
_TRIES, _PAUSE_SECONDS = 5, 0.2  # udev looks at a disk that somebody has just closed
_NAME_ANOTHER = "use an unused disk"
_PROCESSES = Path("/proc")
# Where a device node can lie, and no answer is waited for from another machine or a process.
_LOCAL = frozenset({"devtmpfs", "tmpfs", "ramfs", "rootfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs"})


@dataclass(frozen=True, slots=True)
class Disk:
    """A whole block device, as the kernel shows it under `/sys/block`."""

    folder: Path

    @property
    def path(self) -> Path:
        """Its node. Where a name has a slash (`cciss/c0d0`), the kernel writes an exclamation mark in `/sys`."""
        return Path("/dev") / self.folder.name.replace("!", "/")

    @property
    def size(self) -> int:
        """Bytes."""
        return int((self.folder / "size").read_text()) * _SECTOR

    @property
    def read_only(self) -> bool:
        """Whether the kernel refuses writes to it."""
        return (self.folder / "ro").read_text().strip() != "0"

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those that the kernel sees on it."""
        return tuple(sorted(found.parent.name for found in self.folder.glob("*/partition")))

    @property
    def holders(self) -> tuple[str, ...]:
        """The devices that lie on it: LVs, arrays, crypt layers."""
        return _names(self.folder / "holders")

    @property
    def parts(self) -> tuple[str, ...]:
        """The devices that it is on."""
        return _names(self.folder / "slaves")

    @property
    def is_array(self) -> bool:
        """Whether it is one of md's."""
        return (self.folder / "md").is_dir()

    @property
    def is_volume(self) -> bool:
        """Whether it is an LV."""
        return (mapped_as(self.folder, "uuid") or "").startswith("LVM-")

    @property
    def is_suspended(self) -> bool:
        """Whether who reads it would wait."""
        return mapped_as(self.folder, "suspended") == "1"


def whole_disks(sysfs: Path = SYSFS) -> Iterator[Disk]:
    """Every disk of this host that has a size, those that are none apart: LVs."""
    for folder in sorted((sysfs / "block").iterdir()):
        disk = Disk(folder)
        with contextlib.suppress(FileNotFoundError):  # it has just gone
            if not disk.is_volume and disk.size:
                yield disk


def require_distinct(disks: tuple[str, ...], *, sysfs: Path = SYSFS) -> None:
    """No two of these paths lead to the same device, or to one disk of a storage; what leads nowhere is left out.

    Raises:
        Refused: naming two that do.
    """
    seen: dict[DeviceNumber, str] = {}
    worldwide: dict[str, str] = {}
    for path in disks:
        number = device_number(path)
        if number is None:
            continue
        if number in seen:
            other = "twice" if seen[number] == path else f"as {seen[number]} and as {path}"
            raise Refused(f"{Path(path).resolve()} is given {other}", hint="give each disk once")
        seen[number] = path
        name = _worldwide_name(sysfs / "dev" / "block" / str(number))
        if name in worldwide:
            raise Refused(
                f"{worldwide[name]} and {path} are the same disk: both are {name}",
                hint="they are two paths to it: use one, or the multipath device",
            )
        if name:
            worldwide[name] = path


def require_empty(
    path: Path, *, least_size: int = LEAST_SIZE, overwrite_leftovers: bool = False, sysfs: Path = SYSFS
) -> int:
    """Prove that nobody uses this disk and that nothing is on it; its size in bytes.

    `overwrite_leftovers`: nobody needs what is there in no known format.

    Raises:
        Refused: naming what is in the way.
        SnapshotError: it cannot be read.
        UnexpectedOutput: a report cannot be parsed.
    """
    number = _device_number(path)
    disk = _whole_disk(path, number, sysfs)
    if disk.read_only:
        raise Refused(f"{path} is read-only", hint="use a writable disk: see `lsblk -o name,ro`")
    size = disk.size
    if size < least_size:
        has, least = compared_sizes(size, least_size)
        raise Refused(f"{path} is too small: {has}", hint=f"use a disk of at least {least}")
    why = _use(number, disk, sysfs)
    if why:
        raise Refused(f"{path} is not empty: {why}", hint=_NAME_ANOTHER)
    found = signatures(path)
    if found:
        raise Refused(
            f"{path} is not empty: it has {', '.join(found)}",
            hint=f"nothing is ever overwritten: check it, and if nobody needs it: wipefs --all {path}",
        )
    why = _opened(path, number)
    if why:
        raise Refused(f"{path} is in use: {why}", hint=_NAME_ANOTHER)
    left = "" if overwrite_leftovers else leftovers(path)
    if left:
        raise Refused(
            f"{path} is not empty: it has {left}",
            hint=f"it may be a raw device or an encrypted one without a header; if nobody needs it, add {OPTION}",
        )
    return size


def physical_volumes() -> tuple[LabelledDisk, ...]:
    """Every PV of this host that LVM may see, in a group or not.

    Raises:
        SnapshotError: LVM could not report.
        UnexpectedOutput: with the text.
    """
    with reporting():
        return report.parse_labels(programs.run(report.labels_argv(), timeout_seconds=_SECONDS).stdout)


def _worldwide_name(folder: Path) -> str:
    """What its maker or its storage calls it, the same on each path to it; empty where the kernel knows none."""
    for file in (folder / "wwid", folder / "device" / "wwid"):  # of NVMe, of SCSI
        with contextlib.suppress(OSError):
            return file.read_text(errors="replace").strip()
    return ""


def _device_number(path: Path) -> DeviceNumber:
    if any(character.isspace() for character in str(path)):
        raise Refused(f"{str(path)!r} has a blank in it", hint="use a path without blanks: see `lsblk -p`")
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise Refused(f"{path} does not exist", hint="see `lsblk -p`") from error
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror}", hint="run as root") from error
    if not stat.S_ISBLK(found.st_mode):
        raise Refused(f"{path} is not a block device", hint="use a whole disk: see `lsblk -p`")
    return number_of(found)


def _whole_disk(path: Path, number: DeviceNumber, sysfs: Path) -> Disk:
    link = sysfs / "dev" / "block" / str(number)
    if not link.exists():
        raise Refused(f"{path} leads to device {number}, which this host does not have", hint="see `lsblk -p`")
    disk = Disk(link.resolve())
    if (disk.folder / "partition").exists():
        raise Refused(f"{path} is a partition", hint=f"use a whole disk, as {disk.folder.parent.name} is")
    if disk.is_volume:
        raise Refused(f"{path} is a logical volume", hint="use a whole disk: see `lsblk -p`")
    return disk


def _use(number: DeviceNumber, disk: Disk, sysfs: Path) -> str:
    """What is made of it, in words; empty where nothing is."""
    for mounted in mounts():
        if mounted.device == number:
            return f"it is mounted at {mounted.path}"
    if any(device_number(swap) == number for swap in _swaps()):
        return "it is used as swap"
    for pv in physical_volumes():
        if device_number(pv.path) == number and pv.vg:
            return f"it is a PV of volume group {pv.vg}"
    if disk.partitions:
        return f"it has partitions: {', '.join(disk.partitions)}"
    others = (*disk.holders, *_loops_on(number, sysfs))
    return f"another device uses it: {', '.join(others)}" if others else ""


def _loops_on(number: DeviceNumber, sysfs: Path) -> Iterator[str]:
    """Loop devices over it, which the kernel does not count as holders."""
    ours = mounts()
    for file in sorted(sysfs.glob("block/loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # it was detached just now
            backing = os.fsdecode(file.read_bytes().removesuffix(b"\n"))
            if _may_be_asked(backing, ours) and device_number(backing) == number:
                yield file.parts[-3]


def _opened(path: Path, number: DeviceNumber) -> str:
    """Who has it open, or as it is after a second."""
    for tries_left in reversed(range(_TRIES)):
        why = _open_now(path, number)
        if not why or not tries_left:
            break
        time.sleep(_PAUSE_SECONDS)
    return why


def _open_now(path: Path, number: DeviceNumber) -> str:
    """O_EXCL without O_CREAT: the kernel refuses it where somebody else has claimed the device (open(2))."""
    who = ", ".join(f"{pid} ({name})" for pid, name in _openers(number))
    if who:
        return f"process {who} has it open"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return f"it cannot be opened exclusively: {error.strerror}"
    return ""


def _openers(number: DeviceNumber) -> Iterator[tuple[int, str]]:
    processes = tuple(_PROCESSES.glob("[0-9]*"))
    filesystems = _filesystems(processes)
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            if any(_leads_to(entry, number, filesystems) for entry in (process / "fd").iterdir()):
                yield int(process.name), (process / "comm").read_text(errors="replace").strip()


def _filesystems(processes: Iterable[Path]) -> Mapping[int, str]:
    """Of each mount that one of these processes sees, by its number. Those with one namespace and root see the same."""
    found: dict[int, str] = {}
    seen: set[tuple[str, str]] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            view = (os.readlink(process / "ns/mnt"), os.readlink(process / "root"))  # noqa: PTH115 (no path)
            if view not in seen:
                found.update((one.number, one.filesystem) for one in mounts(int(process.name)))
                seen.add(view)
    return found


def _leads_to(entry: Path, number: DeviceNumber, filesystems: Mapping[int, str]) -> bool:
    """Whether what a process has open here is the device, by a node wherever that lies."""
    try:
        target = os.readlink(entry)  # noqa: PTH115 (a socket's is no path)
        if not target.startswith("/"):
            return False
        if not target.startswith("/dev/") and filesystems.get(_mount_number(entry)) not in _LOCAL:
            return False  # one on a network share may hang
        return device_number(str(entry)) == number
    except OSError:  # it was closed just now
        return False


def _mount_number(entry: Path) -> int:
    """Of the mount by which it was opened (proc_pid_fdinfo(5))."""
    told = (entry.parent.parent / "fdinfo" / entry.name).read_text()
    return next((int(line.split()[1]) for line in told.splitlines() if line.startswith("mnt_id:")), 0)  # 0: of none


def _may_be_asked(path: str, mounted: Sequence[Mounted]) -> bool:
    """Whether the kernel answers at once; one on a network share may hang."""
    if path.startswith("/dev/"):
        return True
    over = covering(Path(path), mounted)
    return over is not None and over.filesystem in _LOCAL


def _swaps() -> list[str]:
    """Its first line is a heading, and the name the first column, a blank in it in octal (proc(5))."""
    return [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()
