"""What the kernel and `/dev` say of the disks beneath a volume group.

Knows: `queue/rotational` and `queue/max_sectors_kb` (the kernel's Documentation/ABI/stable/sysfs-block); a
device-mapper or md device has there what its disks have in common, a partition has its disk's. And which disks are
virtual: most hypervisors call theirs rotational, whatever they lie on.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backupd.lvm.devicemapper import SYSFS
from backupd.vocabulary.volumes import DiskQueue, VolumeGroup

_DEV = Path("/dev")
_VIRTUAL_NAMES = re.compile(r"(vd|xvd)[a-z]+|loop[0-9]+")
# Of SCSI disks and of NVMe's (drivers/scsi/scsi_sysfs.c, drivers/nvme/host/sysfs.c).
_FAILED_STATES = frozenset({"offline", "transport-offline", "cancel", "deleted", "dead"})
_VIRTUAL_MAKERS = re.compile(r"VMware|QEMU|VBOX|Msft|Virtual", re.IGNORECASE)  # of SCSI disks


def with_queues(group: VolumeGroup, *, sysfs: Path = SYSFS) -> VolumeGroup:
    """The group, with what is known of the disks of its PVs, closed ones too, and by which other paths they go."""
    pvs = (*group.free_by_pv, *group.closed)
    found = {pv: queue_of(Path(pv), sysfs=sysfs) for pv in pvs}
    return replace(
        group, queues={pv: queue for pv, queue in found.items() if queue is not None}, pv_links=links_to(pvs)
    )


def links_to(pvs: Iterable[str], *, folder: Path = _DEV) -> dict[str, tuple[str, ...]]:
    """Other paths to these devices, as udev and people make them: `/dev/disk/by-id/…`, `/dev/mapper/…`, `/dev/dm-3`.

    LVM tells one of them, and need not tell the same tomorrow.
    """
    nodes = {Path(pv).resolve(): pv for pv in pvs if pv.startswith("/")}  # a missing one is `[unknown]`
    found: dict[str, list[str]] = {pv: [str(node)] for node, pv in nodes.items() if str(node) != pv}
    for place in (folder, folder / "mapper", *sorted((folder / "disk").glob("*"))):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                pv = nodes.get(Path(entry.path).resolve()) if entry.is_symlink() else None
                if pv is not None and pv != entry.path:
                    found.setdefault(pv, []).append(entry.path)
    return {pv: tuple(sorted(paths)) for pv, paths in found.items()}


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
