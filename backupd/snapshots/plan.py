"""How large a snapshot's COW area is, and whether there is room for it, in the group or in a thin pool. Pure.

Knows: extents, percentages and what a complete COW area needs. Refuses to know: LVM's commands, and the configuration's
other sections.
"""

import math
from typing import Protocol

from backupd.errors import SnapshotError
from backupd.model import SnapshotPlan, ThinPool, Volume, VolumeGroup

_EXCEPTION_BYTES = 16  # one entry of the COW area's metadata (drivers/md/dm-snap-persistent.c, struct disk_exception)
MAX_POOL_METADATA_FILL = 0.8  # of a pool before the snapshot: a run gives up a tenth beyond


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
    """Decide everything about the snapshot of one run. A thin volume's takes room in its pool instead of extents.

    Raises:
        SnapshotError: a PV is not of this group, or there are not enough free extents; the pool has too little room.
    """
    if volume.pool is not None:
        return _plan_in_pool(volume, volume.pool, run_id, settings)
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


def free_bytes(volume: Volume, group: VolumeGroup, pvs: tuple[str, ...] = ()) -> int:
    """What all snapshots of a volume could take together: of the group (or these PVs of it), or of its pool."""
    return volume.pool.free if volume.pool is not None else group.free_on(pvs) * group.extent_size


def _plan_in_pool(volume: Volume, pool: ThinPool, run_id: str, settings: CowSettings) -> SnapshotPlan:
    """`snapshot.size` is here the room that must be free; nothing sets it apart. The chunk size is the pool's."""
    name = f"{volume.vg}/{pool.name}"
    if settings.pvs:
        raise SnapshotError(
            f"{volume.full_name} is thin: its snapshots lie in {name}, and not on {', '.join(settings.pvs)}",
            hint="leave out snapshot.pvs",
        )
    if pool.metadata_fill > MAX_POOL_METADATA_FILL:
        raise SnapshotError(
            f"the metadata of thin pool {name} is {pool.metadata_fill:.0%} full,"
            f" and a snapshot is taken up to {MAX_POOL_METADATA_FILL:.0%}",
            hint=f"extend it: lvextend --poolmetadatasize +SIZE {name}",
        )
    need = room_in_pool(volume, settings)
    if need > pool.free:
        raise SnapshotError(
            f"not enough room in thin pool {name}: need {need} bytes, have {pool.free}",
            hint=f"lower snapshot.size (now {_words(settings.size)}) or extend the pool: lvextend --size +SIZE {name}",
        )
    return SnapshotPlan(
        origin=volume,
        name=f"backupd-{run_id}",
        run_id=run_id,
        extents=0,
        size=pool.size,
        chunk_size=pool.chunk_size,
    )


def room_in_pool(volume: Volume, settings: CowSettings) -> int:
    """Bytes of its pool that must be free for a snapshot of a thin volume."""
    return math.ceil(min(_asked_bytes(settings.size, volume.size), volume.size))


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
