"""A RAID-0 of disks that a person named: made with mdadm under our name, and gone without a trace.

Knows: mdadm's commands, how an array is found by what its disks say.

An array is never looked for by its name or node: after a crash udev may have assembled it under another, and where no
udev runs, both stay behind when it is stopped (mdadm 4.2), and whoever opens the node makes an empty array anew. What
the disks say is true in either case; names and nodes that lead to no array any more are cleared away at the end.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from backupd.host import process
from backupd.lvm import Mark
from backupd.lvm.devicemapper import SYSFS, device_number
from backupd.lvm.disk_marks import Superblock, array_uuid, read_superblock
from backupd.lvm.empty_disks import Disk, whole_disks
from backupd.lvm.refusals import carry_out
from backupd.vocabulary.errors import CommandError, SnapshotError
from backupd.vocabulary.scratch_layouts import KIB, ScratchLayout

log = logging.getLogger(__name__)

NAMES = Path("/dev/md")
_SECONDS = 120.0
_PATIENCE_SECONDS = 30.0  # for whoever has an array open, as with snapshots and mounts; udev, on a busy host
_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_CLEAR_SECONDS = 10.0  # udev opens a node while it is being stopped, and so makes an empty array anew
_INSTALL = "apt-get install mdadm"


@dataclass(frozen=True, slots=True)
class ArrayMember:
    """A disk that says it is part of an array, which may run or not."""

    disk: Disk
    superblock: Superblock


def members(sysfs: Path = SYSFS, read: Callable[[Path], Superblock | None] = read_superblock) -> Iterator[ArrayMember]:
    """Every disk of this host that says so.

    One on which something else than md lies is none itself: a layer passes on what is below it.
    """
    for disk in whole_disks(sysfs):
        below = [holder for holder in disk.holders if not Disk(sysfs / "block" / holder).is_array]
        if below or disk.is_suspended:
            continue
        with contextlib.suppress(OSError):  # no medium, or gone: it says nothing
            found = read(disk.path)
            if found is not None:
                yield ArrayMember(disk, found)


def ours(
    machine: str,
    disks: Sequence[str] = (),
    *,
    sysfs: Path = SYSFS,
    read: Callable[[Path], Superblock | None] = read_superblock,
) -> tuple[ArrayMember, ...]:
    """The members of this machine's arrays, each once.

    More than one path may lead to a disk (two ways to one LUN; the lab's `hdd`, a network block device over a disk of
    the same machine), and the kernel does not report. Then it is the one that the array was made of, or one of `disks`.
    """
    named = {device_number(disk) for disk in disks}

    def rank(member: ArrayMember) -> tuple[bool, bool]:
        return not member.disk.holders, device_number(str(member.disk.path)) not in named

    best: dict[UUID, ArrayMember] = {}
    for member in sorted((one for one in members(sysfs, read) if one.superblock.run_of(machine)), key=rank):
        best.setdefault(member.superblock.member, member)
    return tuple(sorted(best.values(), key=lambda member: member.disk.path))


def require_mdadm() -> None:
    """Arrays can be made here.

    Raises:
        SnapshotError: they cannot.
    """
    if not process.found("mdadm"):
        raise SnapshotError("mdadm is not installed, and arrays cannot be created or stopped", hint=_INSTALL)


def make(name: str, layout: ScratchLayout, mark: Mark, sysfs: Path = SYSFS) -> Path:
    """An array of these empty disks runs, and nothing of what had been on them shows; its device.

    Raises:
        SnapshotError: mdadm would not; what it did before is for `remove`.
    """
    hint = "see `dmesg` and /proc/mdstat; the kernel's module is raid0"
    carry_out(create_argv(name, layout, mark), what=f"cannot create an array of {', '.join(layout.disks)}", hint=hint)
    own = _members_of(mark, layout.disks, sysfs)
    arrays = {holder for member in own for holder in member.disk.holders}
    if len(arrays) != 1:
        raise SnapshotError(f"mdadm created array {name}, but its device was not found", hint="see /proc/mdstat")
    device = Disk(sysfs / "block" / arrays.pop()).path
    carry_out(
        ["wipefs", "--quiet", "--all", "--", str(device)], what=f"{device} could not be wiped", hint="see `dmesg`"
    )
    return device


def remove(name: str, disks: Sequence[str], mark: Mark, sysfs: Path = SYSFS) -> None:
    """The array is stopped and no disk says any more that it was part of it.

    One that is busy is looked at afresh and tried again: udev looks at what somebody has just closed, and may assemble
    anew an array that was just stopped.

    Raises:
        SnapshotError: it is in use, mdadm is missing, or it failed.
    """
    nodes = [_named(name)]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        left = _members_of(mark, disks, sysfs)
        holders = sorted({holder for member in left for holder in member.disk.holders})
        arrays = [Disk(sysfs / "block" / holder).path for holder in holders]
        nodes += arrays
        try:
            _take_apart(left, arrays)
            break
        except CommandError as error:
            if time.monotonic() > deadline:
                raise SnapshotError(
                    f"array {name} could not be stopped: {error.message}",
                    hint="see what uses it: lsof, `lsblk`; then `backupd recover`",
                ) from error
            log.info("array %s is in use, trying again", name)
            time.sleep(_PAUSE_SECONDS)
    for node in dict.fromkeys(nodes):
        _clear(node, sysfs)
    for link in NAMES.glob(f"{name}*"):  # an array that udev assembled is `NAME_0`
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)


def create_argv(name: str, layout: ScratchLayout, mark: Mark) -> list[str]:
    """The command that makes an array. `--run`: it asks nothing; the disks have been proven to be empty.

    Without a home host its name is ours to the last character; with one it would be `HOST:NAME`.
    """
    digits = array_uuid(mark).hex
    uuid = ":".join(digits[start : start + 8] for start in range(0, 32, 8))
    return [
        *("mdadm", "--create", str(NAMES / name), f"--name={name}", "--homehost=<none>", f"--uuid={uuid}"),
        *("--metadata=1.2", "--level=0", f"--chunk={layout.stripe_size // KIB}", f"--raid-devices={layout.width}"),
        *("--run", *layout.disks),
    ]


def _members_of(mark: Mark, disks: Sequence[str], sysfs: Path) -> list[ArrayMember]:
    found = ours(mark.machine, disks, sysfs=sysfs)
    return [member for member in found if member.superblock.run_of(mark.machine) == mark.run_id]


def _take_apart(left: Sequence[ArrayMember], arrays: Sequence[Path]) -> None:
    if left:
        require_mdadm()
    for array in arrays:
        process.run(["mdadm", "--stop", str(array)], timeout_seconds=_SECONDS, must_finish=True)
    for member in left:
        argv = ["mdadm", "--zero-superblock", str(member.disk.path)]
        process.run(argv, timeout_seconds=_SECONDS, must_finish=True)


def _named(name: str) -> Path:
    """The node that the array's name leads to, or led to."""
    return (NAMES / name).resolve()


def _clear(node: Path, sysfs: Path) -> None:
    """A node that leads to no array any more is gone; so is an array without disks, as a killed mdadm leaves one."""
    number = device_number(str(node))
    if number is None:
        return
    array = Disk((sysfs / "dev" / "block" / str(number)).resolve())
    deadline = time.monotonic() + _CLEAR_SECONDS
    while array.is_array and not array.parts and time.monotonic() < deadline:
        if process.found("mdadm"):
            argv = ["mdadm", "--stop", str(node)]
            process.run(argv, timeout_seconds=_SECONDS, accept=(0, 1), must_finish=True)
        soon = time.monotonic() + _PAUSE_SECONDS  # the kernel takes a stopped one away in its own time
        while array.folder.exists() and time.monotonic() < soon:
            time.sleep(_LOOK_SECONDS)
    if not array.folder.exists():
        node.unlink(missing_ok=True)
