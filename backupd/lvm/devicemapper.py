"""What the kernel's device mapper says: which device is which, which tables are live, how full COW areas and pools are.

Knows: the uuids in `/sys`, one ioctl of `/dev/mapper/control` (TABLE_STATUS of the stable interface in the kernel's
`uapi/linux/dm-ioctl.h`, version 4), the status lines of the snapshot and thin-pool targets. It changes nothing,
starts no process and takes no lock, so it may be asked every few milliseconds, and while LVM is at work.
"""

import errno
import fcntl
import os
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from backupd.vocabulary.errors import SnapshotError, UnexpectedOutput
from backupd.vocabulary.volumes import CowUsage, DeviceNumber

SYSFS = Path("/sys")

_CONTROL = "/dev/mapper/control"
_HEADER = struct.Struct("=3I7IQ128s129s7x")  # struct dm_ioctl: 312 bytes
_TARGET = struct.Struct("=QQiI16s")  # struct dm_target_spec: start, length, status, next (from the first target), type
_TABLE_STATUS = (3 << 30) | (_HEADER.size << 16) | (0xFD << 8) | 12  # _IOWR(0xfd, 12, struct dm_ioctl)
_SUSPENDED, _WANT_TABLE, _BUFFER_FULL, _NO_FLUSH = 1 << 1, 1 << 4, 1 << 8, 1 << 11
_BUFFER_BYTES = 64 * 1024  # some hundred targets; LVM makes one per segment
_SECTOR = 512
_OF_GROUP = re.compile(r"((?:[^-]|--)+)-")  # as `lvm_name` makes it


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line of a live table: its type, and its parameters or its status, whichever was asked for."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class MappedDevice:
    """A device-mapper device as it is at this instant, with its *live* table; one being loaded does not show."""

    name: str
    uuid: str
    device: DeviceNumber
    suspended: bool
    targets: tuple[TableLine, ...]
    open_count: int = 0  # by mounts, by other devices that lie on it, and by processes

    @property
    def only(self) -> TableLine | None:
        """The target of a table that has one line, as those of snapshots and their origins do."""
        return self.targets[0] if len(self.targets) == 1 else None


def device_number(path: str) -> DeviceNumber | None:
    """The block device that this path leads to; None where it leads to none."""
    try:
        found = os.stat(path)  # noqa: PTH116 (follows links, as whoever opens it does)
    except OSError:
        return None
    return number_of(found) if stat.S_ISBLK(found.st_mode) else None


def number_of(found: os.stat_result) -> DeviceNumber:
    """Of the device that this is the node of."""
    return DeviceNumber(os.major(found.st_rdev), os.minor(found.st_rdev))


def device_uuid(device: DeviceNumber, *, sysfs: Path = SYSFS) -> str | None:
    """The device-mapper uuid of a block device; None when it is none of device-mapper's."""
    return mapped_as(sysfs / "dev" / "block" / str(device), "uuid")


def group_name(device: DeviceNumber, *, sysfs: Path = SYSFS) -> str:
    """The name of the volume group whose LV this is; empty where it is none. LVM renames the device with its group."""
    found = _OF_GROUP.match(mapped_as(sysfs / "dev" / "block" / str(device), "name") or "")
    return found[1].replace("--", "-") if found else ""


def mapped_as(block: Path, attribute: str) -> str | None:
    """This attribute of a device whose folder of `/sys` that is; None where it is none of device-mapper's, or gone."""
    try:
        return (block / "dm" / attribute).read_text(errors="replace").strip()
    except OSError:
        return None


def describe(device: DeviceNumber, *, sysfs: Path = SYSFS) -> str:
    """What kind of block device it is, in words for a person who expected an LV."""
    folder = sysfs / "dev" / "block" / str(device)
    if not folder.exists():
        return f"device {device}, which is not a block device of this host (btrfs, overlay, tmpfs or a network share)"
    name = folder.resolve().name
    uuid = device_uuid(device, sysfs=sysfs)
    if uuid is not None:
        kind = uuid.partition("-")[0]
        layers = {
            "CRYPT": "a LUKS or dm-crypt layer",
            "LVM": "an internal volume of LVM",
            "mpath": "a multipath device",
        }
        return f"{name}, {layers.get(kind, 'a device-mapper device')} (uuid {uuid or 'none'})"
    if (folder / "md").exists():
        return f"{name}, an md array"
    if (folder / "bcache").exists():
        return f"{name}, a bcache device"
    return f"{name}, a plain partition" if (folder / "partition").exists() else f"{name}, a plain disk"


def by_uuid(uuid: str, *, table: bool = False) -> MappedDevice | None:
    """The device of this uuid with its status, or with its parameters (`table`); None when there is none.

    Raises:
        SnapshotError: the kernel would not tell (no device mapper, or we are not root).
    """
    return _ask(table_request(uuid=uuid, table=table))


def by_name(name: str, *, table: bool = False) -> MappedDevice | None:
    """The same for a device-mapper name (`VG-LV`, with the dashes of VG and LV doubled)."""
    return _ask(table_request(name=name, table=table))


def is_active(name: str, *, sysfs: Path = SYSFS) -> bool:
    """Whether there is a device of this name, by what `/sys` says: also where nobody may ask device-mapper."""
    return any(mapped_as(block, "name") == name for block in (sysfs / "block").glob("dm-*"))


def lvm_name(vg: str, name: str) -> str:
    """What LVM calls an LV's device: dashes doubled, then joined by one (lvm2, `dm_build_dm_name`)."""
    return f"{vg.replace('-', '--')}-{name.replace('-', '--')}"


def cow_usage(snapshot: MappedDevice | None) -> CowUsage:
    """The fill of a snapshot's COW area from its status; not intact when it is gone or is no snapshot any more.

    Raises:
        UnexpectedOutput: the status has none of the forms that `snapshot_status` in the kernel's dm-snap.c prints.
    """
    if snapshot is None:
        return CowUsage(intact=False, state="gone")
    target = snapshot.only
    if target is None or target.kind != "snapshot":
        return CowUsage(intact=False, state=target.kind if target is not None else "no table")
    if target.words in ("Invalid", "Overflow", "Merge failed", "Unknown"):
        return CowUsage(intact=False, state=target.words)
    fill, _, metadata = target.words.partition(" ")
    used, _, total = fill.partition("/")
    try:
        return CowUsage(True, int(used) * _SECTOR, int(total) * _SECTOR, int(metadata) * _SECTOR)
    except ValueError as error:
        raise UnexpectedOutput(
            f"device-mapper's status of {snapshot.name} could not be parsed: {target.words}"
        ) from error


def pool_usage(pool: MappedDevice | None, chunk_size: int) -> CowUsage:
    """How full a thin pool's data is, in bytes, and its metadata; not intact when it takes no writes any more.

    Raises:
        UnexpectedOutput: the status has none of the forms that `pool_status` in the kernel's dm-thin.c prints.
    """
    if pool is None:
        return CowUsage(intact=False, state="pool gone")
    target = pool.only
    if target is None or target.kind != "thin-pool":
        return CowUsage(intact=False, state=f"pool {target.kind if target is not None else 'no table'}")
    if target.words.strip() in ("Fail", "Error"):
        return CowUsage(intact=False, state=f"pool {target.words.strip()}")
    try:
        _, metadata, data, _, mode, *_ = target.words.split()
        used, total, metadata_used, metadata_total = map(int, (*data.split("/"), *metadata.split("/")))
        metadata_fill = metadata_used / metadata_total
    except (ValueError, ZeroDivisionError) as error:
        raise UnexpectedOutput(f"device-mapper's status of {pool.name} could not be parsed: {target.words}") from error
    intact = mode == "rw"
    return CowUsage(
        intact=intact,
        used=used * chunk_size,
        total=total * chunk_size,
        state="active" if intact else f"pool {mode}",
        metadata_fill=metadata_fill,
    )


def table_request(*, name: str = "", uuid: str = "", table: bool = False) -> bytearray:
    """The bytes that ask for the live table of one device, found by its name or by its uuid."""
    flags = _NO_FLUSH | (_WANT_TABLE if table else 0)
    request = bytearray(_BUFFER_BYTES)
    _HEADER.pack_into(
        request, 0, 4, 0, 0, _BUFFER_BYTES, _HEADER.size, 0, 0, flags, 0, 0, 0, name.encode(), uuid.encode()
    )
    return request


def parse_table(answer: bytes) -> MappedDevice:
    """The device that an answer to `table_request` describes.

    Raises:
        UnexpectedOutput: the table did not fit.
    """
    fields = _HEADER.unpack_from(answer)
    start, count, open_count, flags, device = *fields[4:8], fields[10]
    if flags & _BUFFER_FULL:
        raise UnexpectedOutput(f"device-mapper's table of {_text(fields[11])} is longer than {_BUFFER_BYTES} bytes")
    targets, here = [], start
    for _ in range(count):
        _, _, _, following, kind = _TARGET.unpack_from(answer, here)
        targets.append(TableLine(_text(kind), _text(answer[here + _TARGET.size : start + following])))
        here = start + following
    return MappedDevice(
        name=_text(fields[11]),
        uuid=_text(fields[12]),
        device=DeviceNumber(os.major(device), os.minor(device)),
        suspended=bool(flags & _SUSPENDED),
        targets=tuple(targets),
        open_count=open_count,
    )


def _ask(request: bytearray) -> MappedDevice | None:
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise SnapshotError(
            f"cannot open {_CONTROL}: {error.strerror}", hint="run as root, on a kernel with device-mapper (dm-mod)"
        ) from error
    try:
        fcntl.ioctl(control, _TABLE_STATUS, request)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise SnapshotError(f"device-mapper did not answer: {error.strerror}") from error
    finally:
        os.close(control)
    return parse_table(bytes(request))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
