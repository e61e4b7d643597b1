"""What a bench will do, decided before it does it: which scratch volumes, which loads on each, how long. Pure.

Knows: what each published table needs, what fits on the disks, and what cannot be asked for.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from backupd.policy.bench_cost import DISK_RATE, PROBE_FILE_SIZE, SNAPSHOT_SIZE, seconds_of, written_to
from backupd.policy.bench_request import require_sound
from backupd.policy.published_benches import cells_of, tables_of
from backupd.vocabulary.benches import LEAST_SIZE, BenchPlan, BenchRequest, PlannedLayout, PublishedTable
from backupd.vocabulary.errors import Refused, UsageError
from backupd.vocabulary.scratch_layouts import MIB, LayoutKind, ScratchLayout
from backupd.vocabulary.units import size_words
from backupd.vocabulary.volumes import VolumeGroup

_JOURNAL = 64 * MIB  # of an XFS up to 512 MiB; ext4's is smaller
_SHARE_FOR_FILES = 0.85  # of the rest: inodes, what ext4 reserves, and what a probe wants to stay free
_SCRATCH_EXTENT = 4 * MIB  # of a group on named disks: LVM's default
_SHARE_OF_LABELS = 1 / 500  # of a named disk, at the most: mdadm keeps up to a thousandth free before the data
_LABELS = 4 * MIB  # and at the least


@dataclass(frozen=True, slots=True)
class Disks:
    """Where a bench may be made, and how much room there is: facts of the host."""

    vg: str  # empty: the disks are whole ones, which a person named
    extent_size: int
    free_by_disk: Mapping[str, int] = field(default_factory=dict)  # PV or disk -> free extents
    sector_size: int = 512  # bytes, the largest of all: the least that can be read or written directly
    spare: int | None = None  # extents that may be taken of a group without its last tenth; None: there is no group
    by_name: Mapping[str, str] = field(default_factory=dict)  # as somebody names it, by uuid or any path -> PV


def group_disks(group: VolumeGroup, sector_size: int, *, names: Iterable[str] = ()) -> Disks:
    """The free extents of a volume group, some of whose PVs somebody names."""
    by_name = {name: pv for name in names for pv in group.named(name) if pv in group.free_by_pv}
    return Disks(group.name, group.extent_size, dict(group.free_by_pv), sector_size, group.spare_on(()), by_name)


def whole_disks(sizes: Mapping[str, int], sector_size: int) -> Disks:
    """Empty disks of these sizes in bytes, less what LVM or mdadm writes of its own on each."""
    usable = {disk: size - max(_LABELS, round(size * _SHARE_OF_LABELS)) for disk, size in sizes.items()}
    extents = {disk: max(0, size // _SCRATCH_EXTENT) for disk, size in usable.items()}
    return Disks("", _SCRATCH_EXTENT, extents, sector_size)


def bench_plan_of(request: BenchRequest, disks: Disks) -> BenchPlan:
    """Every scratch volume in the order of its turn, with every load that it gets.

    Raises:
        UsageError: something is asked for that no host has.
        Refused: this one has not the disks or the room for it.
    """
    require_sound(request)
    least = _least_volume(request)
    chosen = _chosen(request, disks, least)
    volumes = tuple(_volumes(request, chosen, disks, least))
    if not volumes:
        raise Refused(
            f"nothing is left to measure: direct I/O on these disks needs at least {disks.sector_size} bytes",
            hint="ask for larger --records",
        )
    for volume in volumes:
        _require_room(volume, disks, least)
    snapshots, notes = _snapshots(request, volumes, disks)
    timed = tuple(
        replace(one, seconds=seconds_of(request, one, probed=snapshots and one.layout.is_volume)) for one in volumes
    )
    largest = max(volume.size for volume in volumes)
    taken = largest + (_extents_of_snapshot(disks) * disks.extent_size if snapshots else 0)
    return BenchPlan(
        vg=disks.vg,
        disks=chosen,
        volumes=timed,
        filesystem=request.filesystem,
        file_size=request.file_size,
        volume_size=largest,
        taken=taken,
        disk_rate=DISK_RATE,
        written=sum(written_to(request, one, probed=snapshots and one.layout.is_volume) for one in volumes),
        seconds=sum(volume.seconds for volume in timed),
        snapshots=snapshots,
        notes=(*_left_out(request, disks), *notes, *_beyond_spare(taken, disks)),
    )


# --- which disks, which layouts --------------------------------------------------------------------------------------


def _chosen(request: BenchRequest, disks: Disks, least: int) -> tuple[str, ...]:
    """The disks in their order: those that were named, or else every PV that could hold a whole scratch volume."""
    named = request.array_disks or tuple(disks.by_name.get(name, name) for name in request.pvs)
    unknown = [disk for disk in named if disk not in disks.free_by_disk]
    if unknown:
        raise Refused(
            f"{', '.join(unknown)}: not a usable PV of {disks.vg}",
            hint=f"available:  {', '.join(disks.free_by_disk) or 'none, no PV takes allocations'}",
        )
    if len(set(named)) < len(named):
        raise Refused(f"--pvs names {max(named, key=named.count)} twice", hint="name each disk once")
    if len(named) == 1:
        raise Refused(f"one PV only: {named[0]}; striping needs two", hint="add more to --pvs")
    return named or _with_room(disks, least)


def _with_room(disks: Disks, least: int) -> tuple[str, ...]:
    need = ceil(least / disks.extent_size)
    found = tuple(sorted(disk for disk, free in disks.free_by_disk.items() if free >= need))
    if len(found) >= 2:
        return found
    there = ", ".join(f"{free} on {disk}" for disk, free in sorted(disks.free_by_disk.items())) or "none"
    raise Refused(
        f"{disks.vg} has room for a scratch volume on {found[0] if found else 'none of its PVs'}, and striping needs"
        f" two: {need} free extents are needed on each, and there are: {there}",
        hint=f"lower --size, name PVs of which each has its share by --pvs, or: vgextend {disks.vg} DEVICE",
    )


def _volumes(request: BenchRequest, chosen: tuple[str, ...], disks: Disks, least: int) -> Iterator[PlannedLayout]:
    """Those of the layouts that have a part in some table."""
    layouts = tuple(_layouts(request, chosen, disks))
    threads = request.threads or (1, 2, 2 * max(layout.width for layout in layouts))
    for layout in layouts:
        loads = (
            cell
            for table in tables_of(request)
            if table in (PublishedTable.E2, PublishedTable.E3) or _is_narrowest_or_widest(layout, layouts)
            for cell in cells_of(table, request, tuple(sorted(set(threads))))
        )
        cells = tuple(dict.fromkeys(cell for cell in loads if cell.record % disks.sector_size == 0))
        if cells:
            yield PlannedLayout(layout, cells, _volume_size(layout, least, disks.extent_size))


def _layouts(request: BenchRequest, chosen: tuple[str, ...], disks: Disks) -> Iterator[ScratchLayout]:
    """Linear on the first disk, then ever wider; or an LV over all of them, and an array of the same."""
    too_large = [size for size in request.stripe_sizes if size > disks.extent_size]
    if too_large:
        raise UsageError(
            f"--stripe-sizes: {size_words(too_large[0])} is larger than an extent, which LVM does not accept",
            hint=f"up to {size_words(disks.extent_size)}",
        )
    too_wide = [width for width in request.widths if width > len(chosen) or (not disks.vg and width < len(chosen))]
    if too_wide:
        raise UsageError(
            f"--widths: no {too_wide[0]} stripes on {len(chosen)} disks: {', '.join(chosen)}",
            hint=f"from 2 to {len(chosen)}" if disks.vg else "omit --widths: an array uses all of its disks",
        )
    if disks.vg:
        yield ScratchLayout(LayoutKind.LINEAR, chosen[:1])
    kinds = (LayoutKind.STRIPED,) if disks.vg else (LayoutKind.STRIPED, LayoutKind.RAID0)
    widths = request.widths or range(2 if disks.vg else len(chosen), len(chosen) + 1)
    for width in sorted(set(widths)):
        for size in sorted(set(request.stripe_sizes)):
            for kind in kinds:
                yield ScratchLayout(kind, chosen[:width], size)


def _is_narrowest_or_widest(layout: ScratchLayout, layouts: tuple[ScratchLayout, ...]) -> bool:
    """E4 and E5 are about two ways side by side: linear and the widest, or the two ways of striping."""
    return layout.width in (1, max(other.width for other in layouts))


# --- room ------------------------------------------------------------------------------------------------------------


def _least_volume(request: BenchRequest) -> int:
    """Bytes of a volume on whose file system the files have room, the probe's among them."""
    files = request.file_size + (PROBE_FILE_SIZE if request.snapshots else 0)
    return max(LEAST_SIZE[request.filesystem], ceil(files / _SHARE_FOR_FILES) + _JOURNAL)


def _volume_size(layout: ScratchLayout, least: int, extent_size: int) -> int:
    """Whole extents on each stripe. An array is as large as its disks are."""
    if not layout.is_volume:
        return 0
    return ceil(least / (layout.width * extent_size)) * layout.width * extent_size


def _require_room(volume: PlannedLayout, disks: Disks, least: int) -> None:
    layout = volume.layout
    need = ceil(max(volume.size, least) / layout.width / disks.extent_size)
    for disk in layout.disks:
        free = disks.free_by_disk[disk]
        if free < need and disks.vg:
            raise Refused(
                f"not enough free extents on {disk}: the {layout.name} scratch volume needs {need}, have {free}",
                hint=f"lower --size, name other PVs by --pvs, or: vgextend {disks.vg} DEVICE",
            )
        if free < need:
            raise Refused(
                f"{disk} is too small: {layout.name} needs {size_words(need * disks.extent_size)} of it,"
                f" {size_words(free * disks.extent_size)} can be used",
                hint="lower --size, or name larger disks",
            )


def _snapshots(request: BenchRequest, volumes: Collection[PlannedLayout], disks: Disks) -> tuple[bool, tuple[str, ...]]:
    """Whether there can be snapshots; and what is to be said of it."""
    if not request.snapshots:
        return False, ()
    need = _extents_of_snapshot(disks)
    left = sum(disks.free_by_disk.values()) - max(volume.size for volume in volumes) // disks.extent_size
    if left < need:
        return False, (
            f"snapshots are skipped: next to the largest scratch volume {left} extents are free for one, {need} are"
            f" needed",
        )
    if not all(volume.layout.is_volume for volume in volumes):
        return True, ("no snapshots of RAID-0: it is not a logical volume",)
    return True, ()


def _extents_of_snapshot(disks: Disks) -> int:
    return ceil(SNAPSHOT_SIZE / disks.extent_size)


def _beyond_spare(taken: int, disks: Disks) -> tuple[str, ...]:
    """What a person should know before it is agreed to: somebody else may need these extents meanwhile."""
    if disks.spare is None or taken <= disks.spare * disks.extent_size:
        return ()
    return (
        f"it takes extents of the last tenth of {disks.vg}: until it ends, a thin pool or COW area there may be unable"
        f" to grow",
    )


def _left_out(request: BenchRequest, disks: Disks) -> tuple[str, ...]:
    """Records that these disks do not take."""
    if PublishedTable.E5 not in tables_of(request):
        return ()
    small = [size_words(record) for record in sorted(set(request.records)) if record % disks.sector_size]
    why = f"direct I/O on these disks needs multiples of {disks.sector_size} bytes"
    return (f"records of {', '.join(small)} are skipped: {why}",) if small else ()
