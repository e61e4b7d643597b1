"""Where a probe may be made: the volume, its file system, its group; and everything that forbids it.

Knows: what must be true before a byte is written. Refuses to change anything. As in `preflight`, what is refused here
has touched nothing; a probe needs less than a backup (no server, no target), and more room on the volume itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from backupd.config import LimitsConfig
from backupd.lvm.mounting import FILESYSTEMS
from backupd.operations.tools import HostTools, Instruments, Versions
from backupd.policy.chunk_size import chunks_for
from backupd.policy.cow_placing import Placed, placed, without_probe
from backupd.policy.named_pvs import named_pvs
from backupd.policy.probe_plan import tuned_variants, variants
from backupd.policy.snapshot_plan import CowSettings, complete_cow_bytes, free_bytes, plan_snapshot, usual_bytes
from backupd.vocabulary.errors import CommandError, Refused, ServerError, SnapshotError, UnexpectedOutput, UsageError
from backupd.vocabulary.gauges import CowPlace, Tuning
from backupd.vocabulary.probes import ProbeRequest, Variant
from backupd.vocabulary.units import compared_sizes
from backupd.vocabulary.volumes import AUTO, MountPoint, PvsGone, SnapshotPlan, ThinPool, Volume, VolumeGroup

_FAULTS = (ServerError, SnapshotError, CommandError, UnexpectedOutput)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be probed, and how its snapshots are taken where nothing else is asked for."""

    find: Callable[[], MountPoint]  # raises what the looking raises
    snapshot: CowSettings
    job: str = ""  # empty: a volume was named
    host: str = ""
    max_pool_fill: float = LimitsConfig().max_cow_fill  # 0 to 1, of a thin volume's pool


@dataclass(frozen=True, slots=True)
class Ground:
    """What a probe knows once nothing forbids it."""

    mount: MountPoint
    volume: Volume
    group: VolumeGroup
    versions: Versions
    variants: tuple[Variant, ...]
    cow_size: int  # bytes, of each snapshot's COW area
    load_average: float
    max_pool_fill: float = 1.0  # beyond which the probe gives up
    note: str = ""  # how the chunk size was chosen, where backupd chose it
    passed_over: tuple[str, ...] = ()  # which places of the COW area are not tried, and why


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A COW area's size as `snapshot_plan` takes it."""

    bytes: int
    percent_of_origin: None = None


@dataclass(frozen=True, slots=True)
class _Settings:
    """A snapshot's settings as `snapshot_plan` takes them."""

    size: _Bytes
    chunk_size: int
    pvs: tuple[str, ...]
    stripes: int
    pvs_gone: PvsGone = PvsGone.REFUSE  # a place that is measured is no other


def find(subject: Subject, tools: HostTools) -> tuple[MountPoint, Volume]:
    """The file system and the volume that it is on.

    Raises:
        Refused: there is none, or it is on no LV.
    """
    try:
        mount = subject.find()
        return mount, tools.snapshots.volume_at(mount.device)
    except _FAULTS as error:
        raise Refused(error.message, hint=error.hint) from error


def require(
    request: ProbeRequest,
    subject: Subject,
    tools: HostTools,
    instruments: Instruments,
    mount: MountPoint,
    *,
    tunings: Mapping[str, Tuning],
) -> Ground:
    """Everything that a probe of this request needs. Earlier `tunings`, by volume, are followed as a run follows them.

    Raises:
        Refused: the first thing that forbids it.
        UsageError: something is asked for that such a volume's snapshots do not have.
    """
    try:
        volume, group = tools.snapshots.volume_and_group_at(mount.device)
        load_average = require_calm(instruments.load_average(), request.max_load, what="a probe")
        _require_undisturbed(volume)
        _require_snapshots(request, mount, group)
        _require_room(request, tools, mount)
        versions = instruments.versions(not request.passive)
        request = replace(request, cow_on=_paths(request.cow_on, group))
        if request.tune:  # which does not build upon the last tuning
            area = without_probe(subject.snapshot, volume, group)
        else:
            area = placed(subject.snapshot, volume, group, tunings.get(volume.uuid))
        tried, passed_over = _variants(request, subject, volume, group, area)
        cow_size = _cow_size(request, subject, volume, group, tried)
        if volume.pool is not None:
            _require_room_in_pool(request, subject, volume, volume.pool, tried)
    except _FAULTS as error:
        raise Refused(error.message, hint=error.hint) from error
    note = str(area.chunks) if subject.snapshot.chunk_size == AUTO and not request.chunk_sizes else ""
    return Ground(
        mount, volume, group, versions, tried, cow_size, load_average, subject.max_pool_fill, note, passed_over
    )


def bench_plan_of(ground: Ground, group: VolumeGroup, run_id: str, variant: Variant) -> SnapshotPlan:
    """The plan of one snapshot of this variant, with the group as it is now.

    Raises:
        SnapshotError: there is no room for it.
    """
    settings = _Settings(_Bytes(ground.cow_size), variant.chunk_size, *variant.place)
    return plan_snapshot(ground.volume, group, run_id, settings)


def require_calm(load: float, limit: float | None, *, what: str) -> float:
    """The load average, which forbids nothing.

    Raises:
        Refused: it is beyond the limit; None is no limit.
    """
    if limit is not None and load > limit:
        raise Refused(
            f"the load average is {load:.1f}, the limit is {limit:g}: {what} would add to it",
            hint="choose a quieter hour, or raise --max-load",
        )
    return load


def _require_undisturbed(volume: Volume) -> None:
    if volume.snapshots:
        raise Refused(
            f"{volume.full_name} already has a snapshot: {', '.join(volume.snapshots)};"
            " the cost of writes without one cannot be measured",
            hint="if it is yours, remove it; if it is backupd's: `backupd recover`; see `lvs`",
        )
    if volume.conditions:
        raise Refused(
            f"{volume.full_name}: {', '.join(volume.conditions)}",
            hint="wait until it has ended: see `lvs -a -o +devices`",
        )


def _require_snapshots(request: ProbeRequest, mount: MountPoint, group: VolumeGroup) -> None:
    """They can be taken, and mounted where they are to be read."""
    if group.missing:
        raise Refused(
            f"LVM finds no disk for {', '.join(group.missing)} of {group.name}, and creates no snapshot until it does",
            hint="bring the disk back: see `pvs -o +pv_uuid,pv_missing`",
        )
    if (request.reads or request.while_copying) and mount.filesystem not in FILESYSTEMS:
        raise Refused(
            f"{mount.path} is {mount.filesystem}: backupd can only mount snapshots of {' and '.join(FILESYSTEMS)}",
            hint="omit --reads and --while-copying",
        )


def _require_room(request: ProbeRequest, tools: HostTools, mount: MountPoint) -> None:
    room = tools.files.room(mount.path)
    if room.read_only:
        raise Refused(
            (f"the file system on {mount.path} is read-only"), hint="check the kernel log for the reason (dmesg)"
        )
    if not request.passive and (lack := room.lack_for_probe(request.file_size, mount.path)):
        raise Refused(lack, hint="free some space, or use a smaller file: --file-size 64MiB")


def _variants(
    request: ProbeRequest, subject: Subject, volume: Volume, group: VolumeGroup, area: Placed
) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """What is tried, and what is not, in words. A thin volume's snapshots lie in its pool, in the pool's own chunks."""
    if volume.pool is None and request.tune:
        return _tuned(request, subject, volume, group, area)
    if volume.pool is None:
        return variants(request, chunk_size=area.chunks.size, place=(area.pvs, area.stripes)), _displaced(area)
    if request.tune:
        raise UsageError(
            f"{volume.full_name} is thin: its snapshots are in thin pool {volume.vg}/{volume.pool.name}, in that pool's"
            " chunks, there is nothing to tune",
            hint="omit --tune: backupd probe still measures what a snapshot costs",
        )
    if request.chunk_sizes or request.cow_on:
        raise UsageError(
            f"{volume.full_name} is thin: its snapshots have the chunk size and the disks of its pool"
            f" {volume.pool.name}",
            hint="omit --chunk-sizes and --cow-on",
        )
    return variants(request, chunk_size=area.chunks.size, place=((), 1)), ()


def _paths(names: tuple[str, ...], group: VolumeGroup) -> tuple[str, ...]:
    named = named_pvs(names, group)
    if named.gone:
        raise SnapshotError("; ".join(named.gone), hint=f"available: {', '.join(group.free_by_pv) or 'none'}")
    return named.paths


def _displaced(area: Placed) -> tuple[str, ...]:
    return (f"not on the PVs of snapshot.pvs: {area.displaced}",) if area.displaced else ()


def _tuned(
    request: ProbeRequest, subject: Subject, volume: Volume, group: VolumeGroup, area: Placed
) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """The places that are compared where a backup's COW area would fit, the default's always."""
    default = Variant(area.chunks.size, area.pvs, stripes=area.stripes)
    usual = chunks_for(AUTO, volume, group, area.pvs).size
    alone = tuned_variants(request, default=default, usual=usual, places=())  # every chunk size, once
    need = max(usual_bytes(subject.snapshot.size, volume.size), *(_least(request, variant) for variant in alone))
    linear, striped = _places(request, volume, group, need=need)
    failed = [pvs for pvs, _ in linear if any(group.has_failed(pv) for pv in pvs)]
    passed_over = [f"{', '.join(pvs)}: the kernel has disabled the disk, so it was not measured" for pvs in failed]
    passed_over += _displaced(area)
    passed_over += [f"{pv} is missing or not allocatable, so no COW area was measured there" for pv in group.closed]
    tried: list[CowPlace] = []
    for pvs, stripes in [*(place for place in linear if place[0] not in failed), *striped]:
        free = group.free_on(pvs, stripes=stripes) * group.extent_size
        if (pvs, stripes) != default.place and free < need:
            how = f"striped over {', '.join(pvs)}" if stripes > 1 else ", ".join(pvs)
            passed_over.append(
                f"{how}: not measured: {free >> 20} MiB are free, a COW area needs {math.ceil(need / (1 << 20))} MiB"
            )
        else:
            tried.append((pvs, stripes))
    return tuned_variants(request, default=default, usual=usual, places=tried), tuple(passed_over)


def _places(
    request: ProbeRequest, volume: Volume, group: VolumeGroup, *, need: float
) -> tuple[list[CowPlace], list[CowPlace]]:
    """Linear on the volume's own PVs together and on each other one, or on each of those named; and the same striped.

    The volume's own PVs are compared with whatever LVM chooses, which is the same where there are no others.
    """
    own = tuple(pv for pv in volume.devices if pv in group.free_by_pv)
    others = tuple(pv for pv in group.free_by_pv if pv not in volume.devices)
    linear: list[CowPlace] = [((pv,), 1) for pv in request.cow_on or others]
    if own and others and not request.cow_on:
        linear.insert(0, (own, 1))
    sets = (request.cow_on,) if request.cow_on else (own, others)
    return linear, [(pvs, len(pvs)) for one in sets if len(pvs := _widest(one, group, need=need)) > 1]


def _widest(pvs: tuple[str, ...], group: VolumeGroup, *, need: float) -> tuple[str, ...]:
    """As many of these PVs as have room for a stripe each of so many bytes; two at least, where there are two.

    A PV that has little room would make every stripe short: it is left out where the others do without it.
    """
    sound = group.roomy(pvs)
    for stripes in range(len(sound), 2, -1):
        if group.free_on(sound, stripes=stripes) * group.extent_size >= need:
            return group.striped_over(sound, stripes)
    return group.striped_over(sound, 2) if sound else ()


def _cow_size(
    request: ProbeRequest, subject: Subject, volume: Volume, group: VolumeGroup, tried: tuple[Variant, ...]
) -> int:
    """As large as is usual for the subject where there is room, never less than twice what the probe itself fills.

    The other half is for what everybody else writes meanwhile. As a run, it takes of the group's last tenth what it
    needs, and no more unless the job says how large its COW area is. Bytes, of one COW area.

    Raises:
        Refused: there is no room for so many at once.
        SnapshotError: there are too few PVs for the stripes.
    """
    usual = round(usual_bytes(subject.snapshot.size, volume.size))
    for variant in tried:
        plan_snapshot(volume, group, "probe", _Settings(_Bytes(0), variant.chunk_size, *variant.place))
    least = max(_least(request, variant) for variant in tried)
    room = min(_room_for_one(volume, group, variant) for variant in tried)
    if least > room:
        wanted, there = compared_sizes(least, room)
        raise Refused(
            f"not enough space for snapshots of {volume.full_name}: the probe needs {wanted} for each,"
            f" {there} are free",
            hint=f"use a smaller file (--file-size), fewer snapshots, or: vgextend {group.name} DEVICE",
        )
    if subject.snapshot.size == AUTO and not request.passive:  # which fills nothing itself: no less than usual will do
        room = min(_room_for_one(volume, group, variant, unasked=True) for variant in tried)
    return max(least, min(usual, room))


def _require_room_in_pool(
    request: ProbeRequest, subject: Subject, volume: Volume, pool: ThinPool, tried: tuple[Variant, ...]
) -> None:
    """As for a backup, with what the probe itself writes: its file, and what each of its snapshots keeps of that.

    Raises:
        Refused: the pool is fuller than that, or would be.
    """
    file = 0 if request.passive else request.file_size
    fill = (pool.used + file + max(_least(request, variant) for variant in tried)) / pool.size
    if fill > subject.max_pool_fill:
        limit, name = f"{subject.max_pool_fill:.0%}", f"{volume.vg}/{pool.name}"
        would = f", and would be {fill:.0%} full by the probe" if file else ""
        whose = f"limits.max_cow_fill of job {subject.job}" if subject.job else "the limit of a probe without a job"
        ways = [f"extend the pool (lvextend --size +SIZE {name})"]
        if pool.fill <= subject.max_pool_fill:
            ways.append("use a smaller file (--file-size 64MiB)")
        ways.append("raise that limit" if subject.job else "probe a job that has a higher limits.max_cow_fill")
        raise Refused(f"thin pool {name} is {pool.fill:.0%} full{would}; {whose} is {limit}", hint=", or ".join(ways))


def _room_for_one(volume: Volume, group: VolumeGroup, variant: Variant, *, unasked: bool = False) -> int:
    """Bytes that each of so many snapshots can have: whole rows of extents; thin ones share what their pool has."""
    free = free_bytes(volume, group, variant.cow_pvs, stripes=variant.stripes)
    if volume.pool is not None:
        return free
    if unasked:
        free = group.spare_on(variant.cow_pvs, stripes=variant.stripes) * group.extent_size
    row = variant.stripes * group.extent_size
    return free // variant.snapshots // row * row


def _least(request: ProbeRequest, variant: Variant) -> int:
    return 0 if request.passive else 2 * complete_cow_bytes(request.file_size, variant.chunk_size)
