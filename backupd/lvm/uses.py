"""Who uses a block device, as the kernel tells it: mounts, swap, devices that lie on it.

Knows: mountinfo, `/proc/swaps`, `holders` in `/sys`. Of LVM it knows only enough to leave out what LVM lays on its own
volumes. It sees what our mount namespace sees: a container's mount is none of these.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from backupd.host.mountinfo import mounts
from backupd.lvm.devicemapper import SYSFS, mapped_as
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.extents import Use, UseKind
from backupd.vocabulary.volumes import DeviceNumber

_SWAPS = Path("/proc/swaps")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_GROUP = slice(len("LVM-"), len("LVM-") + 32)  # of a device-mapper uuid of LVM's: the volume group's own


def uses(*, sysfs: Path = SYSFS) -> Callable[[DeviceNumber], tuple[Use, ...]]:
    """What tells of a device who uses it; mounts and swaps are looked at once, now.

    Raises:
        SnapshotError: `/proc` cannot be read.
    """
    try:
        mounted, swapped = mounts(), parse_swaps(_SWAPS.read_text(errors="surrogateescape"))
    except OSError as error:
        raise SnapshotError(f"cannot read mounts and swap: {error}") from error
    swaps = [(path, _number(path)) for path in swapped]

    def of(device: DeviceNumber) -> tuple[Use, ...]:
        found = [
            *(Use(UseKind.MOUNT, str(one.path), one.filesystem) for one in mounted if one.device == device),
            *(Use(UseKind.SWAP, str(path)) for path, number in swaps if number == device),
            *(Use(UseKind.HOLDER, name) for name in holders(device, sysfs=sysfs)),
        ]
        return tuple(dict.fromkeys(found))

    return of


def parse_swaps(text: str) -> tuple[Path, ...]:
    """The files and devices of `/proc/swaps` (proc(5)), below its heading; a blank in a path is octal there."""
    paths = (line.split(maxsplit=1)[0] for line in text.splitlines()[1:] if line.strip())
    return tuple(Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)) for path in paths)


def holders(device: DeviceNumber, *, sysfs: Path = SYSFS) -> Iterator[str]:
    """Devices that lie on this one, by device-mapper's name or the kernel's; not those of the device's own group."""
    block = sysfs / "dev" / "block" / str(device)
    group = _group(block)
    folder = block / "holders"
    for holder in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not group or _group(holder) != group:
            yield mapped_as(holder, "name") or holder.name


def _group(block: Path) -> str:
    """The uuid of the volume group that a device is of; empty where it is none of LVM's."""
    uuid = mapped_as(block, "uuid") or ""
    return uuid[_GROUP] if uuid.startswith("LVM-") else ""


def _number(path: Path) -> DeviceNumber | None:
    """A swap file is no device, and one that is gone is none either."""
    try:
        number = path.stat().st_rdev
    except OSError:
        return None
    return DeviceNumber(os.major(number), os.minor(number)) if number else None
