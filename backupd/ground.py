"""Where a probe may be made: the volume, its file system, its group; and everything that forbids it.

Knows: what must be true before a byte is written. Refuses to change anything. As in `preflight`, what is refused here
has touched nothing; a probe needs less than a backup (no server, no target), and more room on the volume itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from backupd.errors import CommandError, Refused, ServerError, SnapshotError, UnexpectedOutput, UsageError
from backupd.measurement import ProbeRequest, Variant
from backupd.model import MountPoint, SnapshotPlan, Volume, VolumeGroup
from backupd.probe.plan import variants
from backupd.snapshots.plan import CowSettings, complete_cow_bytes, free_bytes, plan_snapshot
from backupd.tools import HostTools, Instruments, Versions

_FAULTS = (ServerError, SnapshotError, CommandError, UnexpectedOutput)
_LEAST_SHARE_LEFT = 0.05  # of the file system, beside the probe's file: a server that runs out of room stops


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be probed, and how its snapshots are taken where nothing else is asked for."""

    find: Callable[[], MountPoint]  # raises what the looking raises
    snapshot: CowSettings
    job: str = ""  # empty: a volume was named
    host: str = ""


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


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A COW area's size as `snapshots.plan` takes it."""

    bytes: int
    percent_of_origin: None = None


@dataclass(frozen=True, slots=True)
class _Settings:
    """A snapshot's settings as `snapshots.plan` takes them."""

    size: _Bytes
    chunk_size: int
    pvs: tuple[str, ...]


def find(subject: Subject, tools: HostTools) -> tuple[MountPoint, Volume]:
    """The file system and the volume that it lies on.

    Raises:
        Refused: there is none, or it is on no LV.
    """
    try:
        mount = subject.find()
        return mount, tools.snapshots.volume_at(mount.device)
    except _FAULTS as error:
        raise Refused(error.message, hint=error.hint) from error


def require(
    request: ProbeRequest, subject: Subject, tools: HostTools, instruments: Instruments, mount: MountPoint
) -> Ground:
    """Everything that a probe of this request needs.

    Raises:
        Refused: the first thing that forbids it.
        UsageError: something is asked for that such a volume's snapshots do not have.
    """
    try:
        volume = tools.snapshots.volume_at(mount.device)
        group = tools.snapshots.group(volume.vg)
        load_average = require_calm(instruments.load_average(), request.max_load, what="a probe")
        _require_undisturbed(volume)
        _require_room(request, tools, mount)
        versions = instruments.versions(not request.passive)
        tried = _variants(request, subject, volume)
        cow_size = _cow_size(request, subject, volume, group, tried)
    except _FAULTS as error:
        raise Refused(error.message, hint=error.hint) from error
    return Ground(mount, volume, group, versions, tried, cow_size, load_average)


def plan_of(ground: Ground, group: VolumeGroup, run_id: str, variant: Variant) -> SnapshotPlan:
    """The plan of one snapshot of this variant, with the group as it is now.

    Raises:
        SnapshotError: there is no room for it.
    """
    settings = _Settings(_Bytes(ground.cow_size), variant.chunk_size, variant.cow_pvs)
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
            " what writes cost without one cannot be measured",
            hint="remove it if it is yours, or `backupd recover` if it is ours; see `lvs`",
        )
    if volume.conditions:
        raise Refused(
            f"{volume.full_name}: {', '.join(volume.conditions)}",
            hint="wait until it has ended: see `lvs -a -o +devices`",
        )


def _require_room(request: ProbeRequest, tools: HostTools, mount: MountPoint) -> None:
    room = tools.files.room(mount.path)
    if room.read_only:
        raise Refused(f"the file system on {mount.path} is read-only", hint="look at the kernel's log for the reason")
    left = room.free - request.file_size
    if not request.passive and left < _LEAST_SHARE_LEFT * room.total:
        raise Refused(
            f"too full: the probe's file takes {request.file_size} bytes, and {mount.path} has {room.free} free;"
            f" {_LEAST_SHARE_LEFT:.0%} of it must stay free",
            hint="free some room, or ask for a smaller file: --file-size 64MiB",
        )


def _variants(request: ProbeRequest, subject: Subject, volume: Volume) -> tuple[Variant, ...]:
    """A thin volume's snapshots lie in its pool, in the pool's own chunks."""
    if volume.pool is None:
        return variants(request, chunk_size=subject.snapshot.chunk_size, cow_pvs=subject.snapshot.pvs)
    if request.chunk_sizes or request.cow_on:
        raise UsageError(
            f"{volume.full_name} is thin: its snapshots have the chunks and the place of its pool {volume.pool.name}",
            hint="leave out --chunk-sizes and --cow-on",
        )
    return variants(request, chunk_size=volume.pool.chunk_size, cow_pvs=())


def _cow_size(
    request: ProbeRequest, subject: Subject, volume: Volume, group: VolumeGroup, tried: tuple[Variant, ...]
) -> int:
    """As large as is usual for the subject where there is room, never less than twice what the probe itself fills.

    The other half is for what everybody else writes meanwhile. Bytes, of one COW area.

    Raises:
        Refused: there is no room for so many at once.
        SnapshotError: a PV is none of the group's.
    """
    usual = subject.snapshot.size.bytes or round(volume.size * (subject.snapshot.size.percent_of_origin or 0) / 100)
    for variant in tried:  # names a PV that is none of the group's
        plan_snapshot(volume, group, "probe", _Settings(_Bytes(0), variant.chunk_size, variant.cow_pvs))
    least = 0 if request.passive else max(_needed(request, variant) for variant in tried)
    room = min(_room_for_one(volume, group, variant) for variant in tried)
    if least > room:
        raise Refused(
            f"no room for snapshots of {volume.full_name}: the probe needs {least} bytes for each, and {room} are free",
            hint=f"ask for a smaller file (--file-size), for fewer snapshots, or: vgextend {group.name} DEVICE",
        )
    return max(least, min(usual, room))


def _room_for_one(volume: Volume, group: VolumeGroup, variant: Variant) -> int:
    """Bytes that each of so many snapshots can have: whole extents; thin ones share what their pool has."""
    free = free_bytes(volume, group, variant.cow_pvs)
    if volume.pool is not None:
        return free
    return free // variant.snapshots // group.extent_size * group.extent_size


def _needed(request: ProbeRequest, variant: Variant) -> int:
    return 2 * complete_cow_bytes(request.file_size, variant.chunk_size)
