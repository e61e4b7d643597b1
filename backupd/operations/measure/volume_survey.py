"""What is on every volume of the host, which jobs use it, and whether their snapshots would fit.

Knows: how LVM's facts, the kernel's, the servers' and the catalogue's are joined. Refuses to change anything, and to
fail because a server does not answer: where its data lies is then told by the last run of its job, or is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from backupd.config import JobConfig
from backupd.lvm import run_of_tags
from backupd.operations.findings import HOST_FAULTS
from backupd.policy.snapshot_plan import free_bytes, plan_snapshot, room_in_pool
from backupd.vocabulary.errors import ConfigurationError, SnapshotError, UsageError
from backupd.vocabulary.extents import (
    HostElsewhere,
    HostHere,
    JobHere,
    KnownFrom,
    Landscape,
    PlacedGroup,
    PlacedVolume,
    SnapshotHere,
    SnapshotRoom,
    Survey,
    SurveyedGroup,
    SurveyedVolume,
    Use,
    UseKind,
    VolumeKind,
)
from backupd.vocabulary.gauges import Tuning
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.volumes import DeviceNumber, MountPoint

_FAULTS = (*HOST_FAULTS, ConfigurationError, OSError)  # of one host: the others can be told all the same


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom a survey asks."""

    landscape: Callable[[], Landscape]
    uses: Callable[[], Callable[[DeviceNumber], tuple[Use, ...]]]
    datadir: Callable[[str], MountPoint]  # of a configured host: asks its server, and raises where it does not answer
    last_volume: Callable[[str], str | None]  # `VG/LV` of the job's newest snapshot
    machine: str  # whose snapshots are ours; empty: nobody's
    past: Callable[[str], tuple[SnapshotLife, ...]] = lambda _job: ()  # what the job's snapshots have filled
    tunings: Mapping[str, Tuning] = field(default_factory=dict)  # what probes have found best, by the volume's uuid


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """Where a host's data lies, as far as that is known."""

    host: str
    jobs: tuple[JobConfig, ...]
    volume: str | None  # `VG/LV`; None: on none of this host's, or it is not known
    known_from: KnownFrom | None
    detail: str  # where no volume is known: where it lies, or why that is not known


def survey(hosts: Sequence[str], jobs: Sequence[JobConfig], sources: Sources) -> Survey:
    """Every volume of the host.

    Raises:
        SnapshotError: LVM or the kernel does not report.
        UnexpectedOutput: LVM's report cannot be parsed.
    """
    land = sources.landscape()
    uses = sources.uses()
    known = [_whereabouts(host, [job for job in jobs if job.host == host], land, sources) for host in hosts]
    return Survey(
        groups=tuple(_group(group, known, uses, sources) for group in land.groups),
        unused=land.unused,
        elsewhere=tuple(_elsewhere(one) for one in known if one.volume is None),
    )


def only(whole: Survey, wanted: str) -> Survey:
    """The part of a survey that is asked for: `VG` or `VG/LV`.

    Raises:
        UsageError: there is none of that name; the hint lists those there are.
    """
    vg, _, lv = wanted.removeprefix("/dev/").partition("/")
    for group in whole.groups:
        if group.placed.room.name == vg:
            return Survey((group if not lv else _only_volume(group, lv),))
    names = ", ".join(group.placed.room.name for group in whole.groups)
    raise UsageError(
        f"no volume group {vg!r}", hint=f"there are: {names}" if names else "this host has none: see `vgs`"
    )


def _only_volume(group: SurveyedGroup, name: str) -> SurveyedGroup:
    vg = group.placed.room.name
    for volume in group.volumes:
        if volume.placed.volume.name == name:
            return SurveyedGroup(group.placed, (volume,))
    for volume in group.volumes:
        if name.strip("[]") in [part.name for part in volume.placed.parts]:
            owner = volume.placed.volume.full_name
            raise UsageError(f"{vg}/{name} is an internal part of {owner}", hint=f"backupd volumes {owner}")
    names = ", ".join(volume.placed.volume.name for volume in group.volumes)
    raise UsageError(f"no logical volume {vg}/{name}", hint=f"{vg} has: {names}" if names else f"{vg} has none")


# --- where the servers' data lies -------------------------------------------------------------------------------------


def _whereabouts(host: str, jobs: Sequence[JobConfig], land: Landscape, sources: Sources) -> _Whereabouts:
    """By what the server says of itself; where it does not answer, by the last snapshot of one of its jobs."""
    every = [placed for group in land.groups for placed in group.volumes]
    try:
        mount = sources.datadir(host)
    except _FAULTS as error:
        there = {placed.volume.full_name for placed in every}
        last = (sources.last_volume(job.name) for job in jobs)
        volume = next((name for name in last if name in there), None)
        return _Whereabouts(host, tuple(jobs), volume, KnownFrom.LAST_RUN if volume else None, str(error))
    detail = f"on {mount.path} ({mount.filesystem}), which is on none of these volumes"
    on = {placed.volume.device: placed.volume.full_name for placed in every if placed.active}
    return _Whereabouts(host, tuple(jobs), on.get(mount.device), KnownFrom.SERVER, detail)


def _elsewhere(one: _Whereabouts) -> HostElsewhere:
    return HostElsewhere(one.host, tuple(job.name for job in one.jobs), one.known_from is not None, one.detail)


# --- volume by volume -------------------------------------------------------------------------------------------------


def _group(
    group: PlacedGroup,
    known: Sequence[_Whereabouts],
    uses: Callable[[DeviceNumber], tuple[Use, ...]],
    sources: Sources,
) -> SurveyedGroup:
    return SurveyedGroup(group, tuple(_volume(placed, group, known, uses, sources) for placed in group.volumes))


def _volume(
    placed: PlacedVolume,
    group: PlacedGroup,
    known: Sequence[_Whereabouts],
    uses: Callable[[DeviceNumber], tuple[Use, ...]],
    sources: Sources,
) -> SurveyedVolume:
    whose = partial(run_of_tags, machine=sources.machine)
    name = placed.volume.full_name
    here = [(one, one.known_from) for one in known if one.volume == name and one.known_from is not None]
    return SurveyedVolume(
        placed=placed,
        uses=_uses(placed, uses(placed.volume.device)),
        hosts=tuple(HostHere(one.host, known_from) for one, known_from in here),
        jobs=tuple(_job(job, placed, group, known_from, sources) for one, known_from in here for job in one.jobs),
        snapshots=tuple(_snapshots(placed, group, whose)),
        run_id=whose(placed.volume.tags),
        room=_room(placed, group) if placed.kind.can_have_snapshots else None,
    )


def _uses(placed: PlacedVolume, found: tuple[Use, ...]) -> tuple[Use, ...]:
    """What has it open although nothing is seen on it is told too; a pool's own volumes have it open."""
    if placed.open and not found and placed.kind is not VolumeKind.POOL:
        return (Use(UseKind.OPEN),)
    return found


def _snapshots(
    placed: PlacedVolume, group: PlacedGroup, whose: Callable[[frozenset[str]], str | None]
) -> Iterator[SnapshotHere]:
    volume = placed.volume
    tags = {other.volume.name: other.volume.tags for other in group.volumes}
    for names, thin in ((volume.snapshots, False), (volume.thin_snapshots, True)):
        yield from (SnapshotHere(name, thin, whose(tags.get(name, frozenset()))) for name in sorted(names))


def _room(placed: PlacedVolume, group: PlacedGroup) -> SnapshotRoom:
    volume, room = placed.volume, group.room
    if volume.pool is not None:
        return SnapshotRoom(volume.pool.free, {}, f"{volume.vg}/{volume.pool.name}")
    by_pv = {pv: extents * room.extent_size for pv, extents in room.free_by_pv.items()}
    return SnapshotRoom(free_bytes(volume, room), by_pv)


def _job(job: JobConfig, placed: PlacedVolume, group: PlacedGroup, known_from: KnownFrom, sources: Sources) -> JobHere:
    volume, past = placed.volume, sources.past(job.name)
    try:
        plan = plan_snapshot(volume, group.room, "survey", job.snapshot, past, tuning=sources.tunings.get(volume.uuid))
    except SnapshotError as error:
        return JobHere(job.name, known_from, None, error.message, error.hint)
    thin = placed.volume.pool is not None
    return JobHere(job.name, known_from, room_in_pool(placed.volume, job.snapshot) if thin else plan.size)
