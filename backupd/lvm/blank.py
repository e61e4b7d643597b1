"""A logical volume that holds nothing: proven to be blank, given a file system for a restore, made blank again.

Knows: the signatures that wipefs finds, who has a device open, how each file system is made. Refuses to know what is
restored, and to overwrite anything: a device with any signature is refused, so is one with data of any kind unless a
person has said that nobody needs it, and only a file system that bears the uuid that we gave it is ever wiped.

Tried with util-linux 2.38.1, xfsprogs 6.1.0 and e2fsprogs 1.47.0: mkfs.xfs refuses a device that holds something, and
one below 300 MB; mkfs.ext4 without a terminal overwrites in silence. `wipefs --all` takes away what all of them find a
file system by. What is free is not discarded: on a large disk that takes minutes, and a blank volume has nothing there.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backupd.host import process
from backupd.host.mountinfo import mounts
from backupd.host.process import ChildLedger
from backupd.lvm import TAG, devicemapper
from backupd.lvm.devicemapper import MappedDevice
from backupd.lvm.leftovers import OPTION, leftovers
from backupd.lvm.mounting import mount_to_write
from backupd.vocabulary.errors import CommandError, Refused, SnapshotError, UnexpectedOutput
from backupd.vocabulary.volumes import Volume

_MAKE_SECONDS, _SECONDS = 600.0, 120.0
_INODE_EVERY = ((512 << 20, 4096), (4 << 40, 16384), (16 << 40, 32768))  # bytes, of an ext4 smaller than so many
_LARGE_INODE_EVERY = 65536  # of a larger one: all of them as mke2fs.conf says
_MOST_INODES = 2**32 - 1  # of any ext4
_TRIES, _PAUSE_SECONDS = 5, 0.2  # udev looks at a device that somebody has just made
_OF_SNAPSHOTS = {
    "snapshot": "it is a snapshot",
    "snapshot-origin": "it has snapshots",
    "snapshot-merge": "it is being merged",
}


@dataclass(frozen=True, slots=True)
class LvmBlankVolumes:
    """The logical volumes of this host. Implements the contract `BlankVolumes`."""

    mapped: Callable[[str], MappedDevice | None] = devicemapper.by_name
    overwrite_leftovers: bool = False  # nobody needs what is there in no known format

    def require_blank(self, volume: Volume) -> None:
        """Nobody uses it and nothing is on it."""
        for mounted in mounts():
            if mounted.device == volume.device:
                raise Refused(f"{volume.full_name} is mounted at {mounted.path}", hint="restore into an unused volume")
        why = _in_use(volume, self._settled(volume))
        if why:
            raise Refused(f"{volume.full_name} is not blank: {why}", hint="restore into an unused volume")
        found = signatures(volume.path)
        if found:
            raise Refused(
                f"{volume.full_name} is not blank: it has {', '.join(found)}",
                hint=f"nothing is ever overwritten: check it, and if nobody needs it: wipefs --all {volume.path}",
            )
        left = "" if self.overwrite_leftovers else leftovers(volume.path)
        if left:
            raise Refused(
                f"{volume.full_name} is not blank: it has {left}",
                hint=f"a new volume may show what is left of removed ones; if nobody needs it, add {OPTION}",
            )

    def make(
        self, volume: Volume, filesystem: str, *, uuid: str, files: int = 0, ledger: ChildLedger | None = None
    ) -> None:
        """A file system of this uuid is on it, which can have so many files."""
        argv = make_argv(volume, filesystem, uuid=uuid, files=files)
        try:
            process.run(argv, timeout_seconds=_MAKE_SECONDS, must_finish=True, ledger=ledger)
        except CommandError as error:
            raise SnapshotError(
                f"cannot create {filesystem} on {volume.full_name}: {error.message}",
                hint="nothing was restored; see `dmesg` and the volume's size",
            ) from error

    def mount(self, volume: Volume, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """It is mounted to be written, by us alone."""
        mount_to_write(volume.path, filesystem, at, called=volume.full_name, ledger=ledger)

    def wipe(self, path: Path, uuid: str) -> None:
        """No file system of this uuid is on it any more; one of another uuid, or anything else, is left alone."""
        if not path.exists() or filesystem_uuid(path) != uuid:
            return
        try:
            process.run(["wipefs", "--quiet", "--all", "--", str(path)], timeout_seconds=_SECONDS, must_finish=True)
        except CommandError as error:
            raise SnapshotError(
                f"{path} still has a partial restore: {error.message}", hint=f"unmount it, then: wipefs --all {path}"
            ) from error

    def _settled(self, volume: Volume) -> MappedDevice | None:
        """The device when nobody has it open, or as it is after a second."""
        for tries_left in reversed(range(_TRIES)):
            device = self.mapped(devicemapper.lvm_name(volume.vg, volume.name))
            if device is None or not device.open_count or not tries_left:
                break
            time.sleep(_PAUSE_SECONDS)
        return device


def signatures(path: Path) -> tuple[str, ...]:
    """What wipefs finds on a device: types of file systems, partition tables, physical volumes and the like.

    Raises:
        SnapshotError: it cannot be read.
        UnexpectedOutput: with the text.
    """
    try:
        report = process.run(["wipefs", "--json", "--", str(path)], timeout_seconds=_SECONDS).stdout
    except CommandError as error:
        raise SnapshotError(f"{path} cannot be read: {error.message}", hint="run as root") from error
    try:
        return tuple(dict.fromkeys(str(found["type"]) for found in json.loads(report or "{}").get("signatures", ())))
    except (ValueError, KeyError, TypeError) as error:
        raise UnexpectedOutput(f"wipefs' output could not be parsed: {report.strip()}") from error


def filesystem_uuid(path: Path) -> str:
    """The uuid of the file system on a device, read from the device itself; empty where there is none.

    Raises:
        SnapshotError: it cannot be read.
    """
    try:
        argv = ["blkid", "-p", "-o", "value", "-s", "UUID", "--", str(path)]
        return process.run(argv, timeout_seconds=_SECONDS, accept=(0, 2)).stdout.strip()
    except CommandError as error:
        raise SnapshotError(f"{path} cannot be read: {error.message}", hint="run as root") from error


def make_argv(volume: Volume, filesystem: str, *, uuid: str, files: int = 0) -> list[str]:
    """The command that makes a file system; `filesystem` is one that backupd mounts.

    XFS makes inodes when it needs them, ext4 never again: it has them for all files, and a quarter more for folders and
    for what comes after the restore.
    """
    if filesystem == "xfs":
        return ["mkfs.xfs", "-q", "-K", "-m", f"uuid={uuid}", str(volume.path)]
    inodes = min(files + files // 4, _MOST_INODES)
    usual = volume.size // next((every for size, every in _INODE_EVERY if volume.size < size), _LARGE_INODE_EVERY)
    more = ["-N", str(inodes)] if inodes > usual else []
    return ["mkfs.ext4", "-q", "-E", "nodiscard", *more, "-U", uuid, str(volume.path)]


def _in_use(volume: Volume, device: MappedDevice | None) -> str:
    """Why it is not ours to fill, apart from what is on it; empty where nothing is in the way."""
    if device is None:
        return "the kernel has no such device"
    for target in device.targets:
        if target.kind in _OF_SNAPSHOTS:
            return _OF_SNAPSHOTS[target.kind]
    others = (*volume.snapshots, *volume.thin_snapshots)
    if others:
        return f"it has snapshots: {', '.join(others)}"
    if volume.conditions:
        return ", ".join(volume.conditions)
    if TAG in volume.tags:
        return "it is a snapshot or COW area of backupd"
    return f"a process has it open ({device.open_count} times)" if device.open_count else ""
