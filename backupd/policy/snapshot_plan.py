"""How large a snapshot's COW area is, and whether there is room for it, in the group or in a thin pool. Pure.

Knows: extents, percentages and what a complete COW area needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backupd.policy.chunk_size import Chunks, chunks_for
from backupd.policy.cow_placing import Placed, PlaceSettings, placed, too_small
from backupd.policy.cow_size import USUAL_PERCENT, room_for
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.gauges import Tuning
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.units import compared_sizes, format_size
from backupd.vocabulary.volumes import AUTO, Auto, PvsGone, SnapshotPlan, ThinPool, Volume, VolumeGroup

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


class CowSettings(PlaceSettings, Protocol):
    """What a job says of its snapshot."""

    @property
    def size(self) -> CowSize | Auto:
        """Of the COW area; or by what past runs have filled."""

    @property
    def pvs_gone(self) -> PvsGone:
        """Whether it goes elsewhere when a PV that the job names cannot be used."""


def plan_snapshot(
    volume: Volume,
    group: VolumeGroup,
    run_id: str,
    settings: CowSettings,
    past: Sequence[SnapshotLife] = (),
    *,
    tuning: Tuning | None = None,
) -> SnapshotPlan:
    """Decide everything about the snapshot of one run. A thin volume's takes room in its pool instead of extents.

    `past` is what snapshots of earlier runs on this volume have filled, `tuning` the last that was made of it: where
    the place that it recommends has too little space, the default is used.

    Raises:
        SnapshotError: a PV that the job names cannot be used, and it wants no other place; there are not enough free
            extents, or too few PVs that have some for the stripes; the pool has too little room.
    """
    if volume.pool is not None:
        return _plan_in_pool(volume, group, volume.pool, run_id, settings)
    area = placed(settings, volume, group, tuning)
    if area.displaced and settings.pvs_gone is PvsGone.REFUSE:
        raise SnapshotError(
            area.displaced, hint=f"available: {', '.join(group.free_by_pv) or 'none, no PV takes allocations'}"
        )
    extents, size_reason = _extents(settings, volume, group, area, past)
    if extents > group.free_on(area.pvs, stripes=area.stripes) and area.by_probe and tuning is not None:
        area = too_small(settings, volume, group, tuning)
        extents, size_reason = _extents(settings, volume, group, area, past)
    striped_over = group.striped_over(area.pvs, area.stripes) if area.stripes > 1 else ()
    if area.stripes > 1 and not striped_over:
        raise _too_few_pvs(group, area)
    if extents > group.free_on(area.pvs, stripes=area.stripes):
        raise _no_room(settings, group, area, extents)
    return SnapshotPlan(
        origin=volume,
        name=f"backupd-{run_id}",
        run_id=run_id,
        extents=extents,
        size=extents * group.extent_size,
        chunk_size=area.chunks.size,
        pvs=area.pvs,
        displaced=area.displaced,
        striped_over=striped_over,
        chunk_reason=area.chunks.reason,
        size_reason=size_reason,
        left_aside=area.left_aside,
    )


def _extents(
    settings: CowSettings, volume: Volume, group: VolumeGroup, area: Placed, past: Sequence[SnapshotLife]
) -> tuple[int, str]:
    """Of a COW area there, and why so many, where the job does not say."""
    spare = group.spare_on(area.pvs, stripes=area.stripes) * group.extent_size
    asked, reason = _asked(settings.size, volume, area.chunks, past, spare=spare)
    extents = math.ceil(min(asked, complete_cow_bytes(volume.size, area.chunks.size)) / group.extent_size)
    return math.ceil(extents / area.stripes) * area.stripes, reason


def _too_few_pvs(group: VolumeGroup, area: Placed) -> SnapshotError:
    roomy = group.roomy(area.pvs or tuple(group.free_by_pv))
    named = " that snapshot.pvs names" if area.pvs else ""
    return SnapshotError(
        f"not enough PVs for {area.stripes} stripes of the COW area on {group.name}: of the PVs{named}, {len(roomy)}"
        f" have free extents"
        f" ({', '.join(roomy) or 'none'})",
        hint=f"lower snapshot.stripes (now {area.stripes}),"
        f" {'name more in snapshot.pvs' if area.pvs else f'or extend the volume group: vgextend {group.name} DEVICE'}",
    )


def _no_room(settings: CowSettings, group: VolumeGroup, area: Placed, extents: int) -> SnapshotError:
    ways = [f"lower snapshot.size (now {_words(settings.size)})"]
    if area.stripes > 1:
        over = group.striped_over(area.pvs, area.stripes)
        fullest = min(over, key=lambda pv: group.free_by_pv[pv])
        told = (
            f"not enough free extents on {', '.join(over)} of {group.name}: {area.stripes} stripes need"
            f" {extents // area.stripes} on each, and {fullest} has {group.free_by_pv[fullest]}"
        )
        ways.append(f"lower snapshot.stripes (now {area.stripes})")
    else:
        where = f"{', '.join(area.pvs)} of {group.name}" if area.pvs else group.name
        told = f"not enough free extents on {where}: need {extents}, have {group.free_on(area.pvs)}"
    return SnapshotError(told, hint=f"{', '.join(ways)} or extend the volume group: vgextend {group.name} DEVICE")


@dataclass(frozen=True, slots=True)
class Further:
    """What a COW area in use can be given."""

    extents: int  # a multiple of the stripes; 0: nothing
    pvs: tuple[str, ...] = ()  # anywhere when empty
    stripes: int = 1


def further_extents(plan: SnapshotPlan, group: VolumeGroup, *, total: int, wanted: int) -> Further:
    """What a COW area of `total` bytes can be given, where `wanted` are wanted in all.

    At most to a complete one, since LVM gives no more, and no more than can be spared where the plan puts it. It stays
    striped where that gives enough; else it goes on in whichever way gives more, for room counts more than speed now.
    """
    complete = complete_cow_bytes(plan.origin.size, plan.chunk_size)
    there = total // group.extent_size
    missing = max(0, math.ceil(min(wanted, complete) / group.extent_size) - there)
    linear = Further(min(missing, group.spare_on(plan.pvs)), plan.pvs)
    stripes = len(plan.striped_over)
    if not stripes:
        return linear
    most = max(0, math.ceil(complete / group.extent_size) - there) // stripes * stripes
    spare = group.spare_on(plan.striped_over, stripes=stripes)
    striped = Further(min(math.ceil(missing / stripes) * stripes, most, spare), plan.striped_over, stripes)
    return striped if striped.extents >= linear.extents else linear


def free_bytes(volume: Volume, group: VolumeGroup, pvs: tuple[str, ...] = (), *, stripes: int = 1) -> int:
    """What all snapshots of a volume could take together: of the group (or these PVs of it), or of its pool."""
    return volume.pool.free if volume.pool is not None else group.free_on(pvs, stripes=stripes) * group.extent_size


def _plan_in_pool(
    volume: Volume, group: VolumeGroup, pool: ThinPool, run_id: str, settings: CowSettings
) -> SnapshotPlan:
    """`snapshot.size` is here the room that must be free; nothing sets it apart. The chunk size is the pool's."""
    name = f"{volume.vg}/{pool.name}"
    if settings.pvs and settings.pvs != AUTO:
        raise SnapshotError(
            f"{volume.full_name} is thin: its snapshots are in {name}, and not on {', '.join(settings.pvs)}",
            hint="omit snapshot.pvs",
        )
    if not isinstance(settings.stripes, str) and settings.stripes > 1:
        raise SnapshotError(
            f"{volume.full_name} is thin: its snapshots are in {name}, and have the stripes of that pool",
            hint="omit snapshot.stripes",
        )
    if pool.metadata_fill > MAX_POOL_METADATA_FILL:
        raise SnapshotError(
            f"the metadata of thin pool {name} is {pool.metadata_fill:.0%} full,"
            f" snapshots are taken up to {MAX_POOL_METADATA_FILL:.0%}",
            hint=f"extend it: lvextend --poolmetadatasize +SIZE {name}",
        )
    need = room_in_pool(volume, settings)
    if need > pool.free:
        wanted, there = compared_sizes(need, pool.free)
        raise SnapshotError(
            f"not enough space in thin pool {name}: need {wanted}, have {there}",
            hint=f"lower snapshot.size (now {_words(settings.size)}) or extend the pool: lvextend --size +SIZE {name}",
        )
    chunks = chunks_for(settings.chunk_size, volume, group)
    return SnapshotPlan(
        origin=volume,
        name=f"backupd-{run_id}",
        run_id=run_id,
        extents=0,
        size=pool.size,
        chunk_size=chunks.size,
        chunk_reason=chunks.reason,
    )


def room_in_pool(volume: Volume, settings: CowSettings) -> int:
    """Bytes of its pool that must be free for a snapshot of a thin volume."""
    return math.ceil(min(usual_bytes(settings.size, volume.size), volume.size))


def complete_cow_bytes(origin_size: int, chunk_size: int) -> int:
    """What the COW area needs when every chunk of the origin is rewritten; LVM gives no more than this either.

    One header chunk, the data, and one metadata chunk for each `chunk_size / 16` exceptions and a last one (lvm2,
    `_cow_max_size`; met in 2.03.16: "Reducing COW size … down to maximum usable size").
    """
    chunks = math.ceil(origin_size / chunk_size)
    per_area = chunk_size // _EXCEPTION_BYTES
    return (1 + chunks + (chunks + per_area) // per_area) * chunk_size


def usual_bytes(size: CowSize | Auto, origin_size: int) -> float:
    """What is asked for of an origin of this size, where no past run says otherwise."""
    if isinstance(size, str):
        return USUAL_PERCENT / 100 * origin_size
    return size.bytes if size.bytes is not None else (size.percent_of_origin or 0) / 100 * origin_size


def _asked(
    size: CowSize | Auto, volume: Volume, chunks: Chunks, past: Sequence[SnapshotLife], *, spare: int
) -> tuple[float, str]:
    """Bytes of a COW area, and why so many, where the job does not say: no more than can be spared, if that is enough.

    Of the group's last tenth it takes what a backup needs at least, and no byte more.
    """
    if not isinstance(size, str):
        return usual_bytes(size, volume.size), ""
    room = room_for(volume.size, chunks.size, past)
    if room.least <= spare < room.wanted:
        return spare, f"all that is available: {room.reason}"
    return room.wanted if spare >= room.wanted else room.least, room.reason


def _words(size: CowSize | Auto) -> str:
    if isinstance(size, str):
        return f"{size}: {USUAL_PERCENT:g}%, or what past runs have filled"
    return format_size(size.bytes) if size.bytes is not None else f"{size.percent_of_origin or 0:g}%"
