"""What the kernel and `/dev` say of the disks beneath a volume group.

Knows: `queue/rotational` and `queue/max_sectors_kb` (the kernel's Documentation/ABI/stable/sysfs-block); a
device-mapper or md device has there what its disks have in common, a partition has its disk's. And which disks are
virtual: most hypervisors call theirs rotational, whatever they lie on.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

from backupd.lvm.devicemapper import SYSFS, device_number
from backupd.vocabulary.volumes import DiskQueue, VolumeGroup

_VIRTUAL_NAMES = re.compile(r"(vd|xvd)[a-z]+|loop[0-9]+")
# Of SCSI disks and of NVMe's (drivers/scsi/scsi_sysfs.c, drivers/nvme/host/sysfs.c).
_FAILED_STATES = frozenset({"offline", "transport-offline", "cancel", "deleted", "dead"})
_VIRTUAL_MAKERS = re.compile(r"VMware|QEMU|VBOX|Msft|Virtual", re.IGNORECASE)  # of SCSI disks


def with_queues(group: VolumeGroup, *, sysfs: Path = SYSFS) -> VolumeGroup:
    """The group, with what is known of the disks of its PVs, closed ones too, and who knows them by other paths."""
    found = {pv: queue_of(Path(pv), sysfs=sysfs) for pv in (*group.free_by_pv, *group.closed)}
    queues = {pv: queue for pv, queue in found.items() if queue is not None}
    return replace(group, queues=queues, same_device=_same_device)


def _same_device(path: str, pv: str) -> bool:
    """Whether a path of udev's or a person's leads to this PV: `/dev/disk/by-id/…`, `/dev/mapper/…`, `/dev/dm-3`.

    None outside `/dev` is followed: it may lie on a share that hangs.
    """
    number = device_number(path) if path.startswith("/dev/") else None
    return number is not None and number == device_number(pv)


def queue_of(device: Path, *, sysfs: Path = SYSFS) -> DiskQueue | None:
    """Of this block device; None where there is no such device, or the kernel does not say."""
    try:
        number = device.stat().st_rdev
        folder = (sysfs / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        disk = _disk_of(folder)
        rotational, largest = (int((disk / "queue" / name).read_text()) for name in ("rotational", "max_sectors_kb"))
        return DiskQueue(rotational != 0, largest << 10, virtual=_is_virtual(disk), failed=_has_failed(disk))
    except (OSError, ValueError):
        return None


def _disk_of(folder: Path) -> Path:
    return folder.parent if (folder / "partition").exists() else folder


def _has_failed(disk: Path) -> bool:
    """By the kernel's word for its state; of what is on other devices, that is theirs to survive."""
    state = disk / "device" / "state"
    return state.is_file() and state.read_text(errors="replace").strip() in _FAILED_STATES


def _is_virtual(disk: Path) -> bool:
    """By its name or its maker; what is on other devices is if one of them is."""
    beneath = disk / "slaves"
    if beneath.is_dir() and any(_is_virtual(_disk_of(one.resolve(strict=True))) for one in beneath.iterdir()):
        return True
    told = (disk / "device" / name for name in ("vendor", "model"))
    makers = " ".join(path.read_text(errors="replace") for path in told if path.is_file())
    return _VIRTUAL_NAMES.fullmatch(disk.name) is not None or _VIRTUAL_MAKERS.search(makers) is not None
