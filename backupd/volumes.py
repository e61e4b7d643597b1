"""What must be true of the volume under a server, of its room, and of where the server's files lie.

Knows: which layouts a snapshot can be taken of, and which files of a server a copy leads out of. Refuses to ask the
server or LVM: it is given what they said. Adds nothing to the host.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from backupd.config import JobConfig
from backupd.errors import SnapshotError
from backupd.findings import HOST_FAULTS, ok, refused
from backupd.model import DataPath, Finding, Level, MountPoint, ThinPool, Volume, VolumeGroup
from backupd.mysql import ABSOLUTE_LINK, DATA_DIRECTORY, KEYS
from backupd.snapshots.mounting import FILESYSTEMS
from backupd.snapshots.plan import plan_snapshot


def of_filesystem(mount: MountPoint) -> Iterator[Finding]:
    """Told here because the snapshot's mount refuses it, and that would be after the lock."""
    if mount.filesystem not in FILESYSTEMS:
        yield Finding(
            "file system",
            Level.REFUSED,
            f"{mount.path} is {mount.filesystem}: backupd mounts snapshots of {' and '.join(FILESYSTEMS)} only",
            f"put the datadir on {' or '.join(FILESYSTEMS)}, directly on a logical volume",
        )


def of_volume(volume: Volume) -> Iterator[Finding]:
    """How it lies, and whether its state allows a snapshot."""
    width = f", {volume.stripes} stripes of {volume.stripe_size} bytes" if volume.stripe_size else ""
    count = len(volume.physical_segments)
    segments = f"{count} segment{'s' if count != 1 else ''}"
    cache = f", behind a {volume.cache.kind} on {', '.join(volume.cache.devices)}" if volume.cache is not None else ""
    thin = f", thin in pool {volume.pool.name}" if volume.pool is not None else ""
    yield ok("layout", f"{volume.full_name} is {volume.layout}{width} ({segments}){cache}{thin}")
    known = {"thin"} if volume.pool is not None else {"linear", "striped", "raid1"}
    unknown = sorted({s.kind for s in volume.segments} - known)
    if unknown:
        yield Finding(
            "segments",
            Level.REFUSED,
            f"{volume.full_name} has segments of type {', '.join(unknown)}",
            "backupd takes snapshots of linear, striped, raid1 and thin volumes, cached or not",
        )
    yield _other_snapshots(volume)
    if volume.conditions:
        yield Finding(
            "volume state",
            Level.REFUSED,
            f"{volume.full_name}: {', '.join(volume.conditions)}",
            "wait until it has ended: see `lvs -a -o +devices`",
        )
    else:
        yield ok("volume state", "no merge, pvmove or resync")


def _other_snapshots(volume: Volume) -> Finding:
    """Classic ones have each first write copied once more; thin ones only keep what they share with the origin."""
    if volume.snapshots:
        return Finding(
            "other snapshots",
            Level.REFUSED,
            f"{volume.full_name} already has: {', '.join(volume.snapshots)}",
            "each further snapshot multiplies the write penalty; remove it, or `backupd recover` if it is ours",
        )
    if volume.thin_snapshots and volume.pool is not None:
        return Finding(
            "other snapshots",
            Level.WARNING,
            f"{volume.full_name} already has: {', '.join(volume.thin_snapshots)}; being thin they slow no write, but"
            f" what they share with it is kept in pool {volume.pool.name} when it changes",
            "remove those that nobody needs: lvremove VG/LV, or `backupd recover` if it is ours",
        )
    return ok("other snapshots", "none")


def of_room(job: JobConfig, volume: Volume, group: VolumeGroup) -> Iterator[Finding]:
    """Whether a snapshot fits into the group, or into the pool of a thin volume."""
    try:
        plan = plan_snapshot(volume, group, "preflight", job.snapshot)
    except SnapshotError as error:
        yield refused("snapshot room", error)
        return
    if volume.pool is None:
        yield ok("snapshot room", f"{plan.extents} extents for the COW area, {group.free_on(plan.pvs)} free")
    else:
        yield _room_in_pool(job, volume.vg, volume.pool)


def _room_in_pool(job: JobConfig, vg: str, pool: ThinPool) -> Finding:
    """A pool beyond the limit of the run itself would have it give up as soon as it watches."""
    if pool.fill > job.limits.max_cow_fill:
        return Finding(
            "snapshot room",
            Level.REFUSED,
            f"thin pool {vg}/{pool.name} is {pool.fill:.0%} full, limits.max_cow_fill is {job.limits.max_cow_fill:.0%}",
            f"extend the pool (lvextend --size +SIZE {vg}/{pool.name}), or raise the limit",
        )
    fate = {"queue": "wait for room, and fail after a minute", "error": "fail at once"}.get(pool.when_full, "fail")
    return ok(
        "snapshot room",
        f"thin pool {vg}/{pool.name} is {pool.fill:.0%} full, its metadata {pool.metadata_fill:.0%};"
        f" {pool.free} bytes are free; when it is full, the writes of all its volumes {fate}",
    )


def of_one_volume(
    shared: list[DataPath], mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """By device, not by name: a symlink or a nested mount leads elsewhere whatever the path looks like."""
    strays = []
    for path in shared:
        try:
            where = mount_of(path.path)
        except (OSError, *HOST_FAULTS) as error:
            strays.append(f"{path.role} {path.path} cannot be looked at ({error})")
            continue
        if where.device != mount.device:
            strays.append(f"{path.role} {path.path} lies on {where.path} ({where.device})")
    if strays:
        yield Finding(
            "one volume",
            Level.REFUSED,
            f"not on the volume of {mount.path}: {'; '.join(strays)}",
            "move it onto the datadir's volume: LVM cannot take an atomic snapshot of two",
        )
    else:
        yield ok("one volume", f"{len(shared)} files and folders, all on {mount.path}")


def of_links(paths: tuple[DataPath, ...]) -> Iterator[Finding]:
    """Told here because the copy refuses them, and that would be after the lock."""
    absolute = [str(path.path) for path in paths if path.role == ABSOLUTE_LINK]
    if absolute:
        yield Finding(
            "links",
            Level.REFUSED,
            f"absolute symlinks in the datadir lead to {', '.join(absolute)}",
            "a restored server would follow them to the live files: make them relative, or move the files back",
        )
    tables = [str(path.path) for path in paths if path.role == DATA_DIRECTORY]
    if tables:
        yield Finding(
            "data directory",
            Level.REFUSED,
            f"tables with a DATA DIRECTORY of their own: {', '.join(tables)}",
            "a restored server would open the live files while it recovers, for its redo log names them by these"
            " paths: rebuild the tables inside of the datadir",
        )


def of_keys(
    paths: tuple[DataPath, ...], mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """A file that cannot be looked at is no finding of ours: it matters to the drill, which says so."""
    beside = []
    for file in (path.path for path in paths if path.role == KEYS):
        with contextlib.suppress(OSError, *HOST_FAULTS):
            if mount_of(file).device == mount.device:
                beside.append(str(file))
    if beside:
        yield Finding(
            "encryption keys",
            Level.WARNING,
            f"{', '.join(beside)} lies on the volume that is snapshotted",
            "the key would be in the backup beside what it protects: keep it on another volume, and a copy elsewhere",
        )
