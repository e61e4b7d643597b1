"""How large a snapshot's COW area is, and whether there is room for it. Pure.

Knows: extents, percentages and what a complete COW area needs. Refuses to know: LVM's commands, and the configuration's
other sections.
"""

import math
from typing import Protocol

from backupd.errors import SnapshotError
from backupd.model import SnapshotPlan, Volume, VolumeGroup

_EXCEPTION_BYTES = 16  # one entry of the COW area's metadata (drivers/md/dm-snap-persistent.c, struct disk_exception)


class CowSize(Protocol):
    """How large the COW area is asked to be: a share of the origin, or bytes; exactly one is set."""

    @property
    def percent_of_origin(self) -> float | None:
        """Above 0, up to 100."""

    @property
    def bytes(self) -> int | None:
        """As it stands."""


class CowSettings(Protocol):
    """What a job says of its snapshot."""

    @property
    def size(self) -> CowSize:
        """Of the COW area."""

    @property
    def chunk_size(self) -> int:
        """Bytes; a power of two from 4 KiB to 512 KiB."""

    @property
    def pvs(self) -> tuple[str, ...]:
        """Where the COW area goes; anywhere when empty."""


def plan_snapshot(volume: Volume, group: VolumeGroup, run_id: str, settings: CowSettings) -> SnapshotPlan:
    """Decide everything about the snapshot of one run.

    Raises:
        SnapshotError: a PV is not of this group, or there are not enough free extents.
    """
    unknown = [pv for pv in settings.pvs if pv not in group.free_by_pv]
    if unknown:
        raise SnapshotError(
            f"{', '.join(unknown)}: no usable PV of {group.name}",
            hint=f"snapshot.pvs may name: {', '.join(group.free_by_pv) or 'none, no PV takes allocations'}",
        )
    enough = complete_cow_bytes(volume.size, settings.chunk_size)
    extents = math.ceil(min(_asked_bytes(settings.size, volume.size), enough) / group.extent_size)
    free = group.free_on(settings.pvs)
    if extents > free:
        where = f"{', '.join(settings.pvs)} of {group.name}" if settings.pvs else group.name
        raise SnapshotError(
            f"not enough free extents on {where}: need {extents}, have {free}",
            hint=f"lower snapshot.size (now {_words(settings.size)}) or extend the volume group: "
            f"vgextend {group.name} DEVICE",
        )
    return SnapshotPlan(
        origin=volume,
        name=f"backupd-{run_id}",
        run_id=run_id,
        extents=extents,
        size=extents * group.extent_size,
        chunk_size=settings.chunk_size,
        pvs=settings.pvs,
    )


def complete_cow_bytes(origin_size: int, chunk_size: int) -> int:
    """What the COW area needs when every chunk of the origin is rewritten; LVM gives no more than this either.

    One header chunk, the data, and one metadata chunk for each `chunk_size / 16` exceptions and a last one (lvm2,
    `_cow_max_size`; met in 2.03.16: "Reducing COW size … down to maximum usable size").
    """
    chunks = math.ceil(origin_size / chunk_size)
    per_area = chunk_size // _EXCEPTION_BYTES
    return (1 + chunks + (chunks + per_area) // per_area) * chunk_size


def _asked_bytes(size: CowSize, origin_size: int) -> float:
    return size.bytes if size.bytes is not None else (size.percent_of_origin or 0) / 100 * origin_size


def _words(size: CowSize) -> str:
    return f"{size.bytes} bytes" if size.bytes is not None else f"{size.percent_of_origin or 0:g}%"
