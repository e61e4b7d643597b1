"""What must be true of the volume under a server, of its room, and of where the server's files lie.

Knows: which layouts a snapshot can be taken of, and which files of a server a copy leads out of. Refuses to ask the
server or LVM: it is given what they said. Adds nothing to the host.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from backupd.config import JobConfig
from backupd.host.filesystem import existing
from backupd.lvm.mounting import FILESYSTEMS
from backupd.mysql import ABSOLUTE_LINK, DATA_DIRECTORY, KEYS, LASTING
from backupd.mysql.facts import engines_elsewhere
from backupd.operations.findings import HOST_FAULTS, ok, reason, refused
from backupd.policy.chunk_size import Chunks
from backupd.policy.cow_area import RISK, is_at_home
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.report.words import size
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.gauges import Tuning, place_words
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import DataPath, ServerFacts
from backupd.vocabulary.units import compared_sizes
from backupd.vocabulary.volumes import FileIdentity, MountPoint, ThinPool, Volume, VolumeGroup

_WAY_OUT = (
    "`backupd recover` removes this machine's own; for another machine's, or one that nobody needs: lvremove VG/LV"
)
REBUILD = (  # of a table with its own DATA DIRECTORY
    "a restored server would open the live files during recovery, because its redo log has these paths: rebuild the"
    " tables inside the datadir"
)

_UNEQUAL = "mismatches exist"  # of a RAID that was scrubbed: nothing of it is being changed
_HEALTH = {  # what LVM says of a RAID and waiting does not cure (lvmraid(7), "Health"): what does
    "refresh needed": "a disk of it has failed for a while: see dmesg, then lvchange --refresh {0}",
    "partial": "bring the missing disk back, or lvconvert --repair {0}",
}


def of_filesystem(mount: MountPoint) -> Iterator[Finding]:
    """Told here because the snapshot's mount refuses it, and that would be after the lock."""
    if mount.filesystem not in FILESYSTEMS:
        yield Finding(
            "file system",
            Level.REFUSED,
            f"{mount.path} is {mount.filesystem}: backupd can only mount snapshots of {' and '.join(FILESYSTEMS)}",
            f"put the datadir on {' or '.join(FILESYSTEMS)}, directly on a logical volume",
        )
    elif mount.elsewhere:
        yield Finding(
            "file system",
            Level.REFUSED,
            f"{mount.path} is not on its volume alone ({', '.join(mount.elsewhere)}): no snapshot of it can be mounted",
            "put the datadir on a file system that has all its parts on one logical volume",
        )


def of_volume(volume: Volume) -> Iterator[Finding]:
    """How it lies, and whether its state allows a snapshot."""
    width = f", {volume.stripes} stripes of {size(volume.stripe_size)}" if volume.stripe_size else ""
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
    yield _state(volume)


def of_size(used: int, *, most: int) -> Iterator[Finding]:
    """A refusal where no backup can hold what its file system has: it would be found out when all had been copied."""
    if used > most:
        have, least = compared_sizes(used, most)
        yield Finding(
            "size",
            Level.REFUSED,
            f"{have} are used on its file system, and a backup can have {least} at most",
            "move what is not the server's to another volume",
        )


def _state(volume: Volume) -> Finding:
    """Legs of a mirror differ after a scrub where nothing valid lies, too: that keeps nobody from a snapshot."""
    forbidding = [condition for condition in volume.conditions if condition != _UNEQUAL]
    if forbidding:
        cures = [_HEALTH[condition].format(volume.full_name) for condition in forbidding if condition in _HEALTH]
        if len(cures) < len(forbidding):
            cures.append("wait until it has finished: see `lvs -a -o +devices`")
        told = f"{volume.full_name}: {', '.join(volume.conditions)}"
        return Finding("volume state", Level.REFUSED, told, "; ".join(cures))
    if volume.conditions:
        return Finding(
            "volume state",
            Level.WARNING,
            f"{volume.full_name}: the last scrub found its legs to differ ({_UNEQUAL})",
            f"prove the backup (`backupd drill`); lvchange --syncaction repair {volume.full_name} makes them alike",
        )
    return ok("volume state", "no merge, pvmove or resync")


def _other_snapshots(volume: Volume) -> Finding:
    """Classic ones have each first write copied once more; thin ones only keep what they share with the origin."""
    if volume.snapshots:
        return Finding(
            "other snapshots",
            Level.REFUSED,
            f"{volume.full_name} already has: {', '.join(volume.snapshots)}",
            f"each additional snapshot multiplies the write penalty; {_WAY_OUT}",
        )
    if volume.thin_snapshots and volume.pool is not None:
        return Finding(
            "other snapshots",
            Level.WARNING,
            f"{volume.full_name} already has: {', '.join(volume.thin_snapshots)}; thin snapshots slow down no write,"
            f" but keep their old blocks in pool {volume.pool.name}",
            _WAY_OUT,
        )
    return ok("other snapshots", "none")


def of_group(group: VolumeGroup) -> Iterator[Finding]:
    """LVM changes no group of which a PV is missing (lvm2, `vg_read`: "Cannot change VG … while PVs are missing").

    Of a volume that another host has active as well it takes no snapshot; that it refuses before the lock.
    """
    if group.missing:
        yield Finding(
            "volume group",
            Level.REFUSED,
            f"LVM finds no disk for {', '.join(group.missing)} of {group.name}, and creates no snapshot until it does",
            f"bring the disk back; if it is gone for good and no volume is on it: vgreduce --removemissing {group.name}"
            " (see `pvs -o +pv_uuid,pv_missing`, `lvs -a -o +devices`)",
        )
    if group.lock_type not in ("", "none"):
        yield Finding(
            "shared group",
            Level.WARNING,
            f"{group.name} is shared between hosts (lock type {group.lock_type}): backupd was never tried with that",
            "its volume must be active on this host alone; watch how long the first backups hold the lock",
        )


def of_room(
    job: JobConfig,
    volume: Volume,
    group: VolumeGroup,
    past: Sequence[SnapshotLife] = (),
    *,
    tuning: Tuning | None = None,
) -> Iterator[Finding]:
    """Whether a snapshot fits into the group, or into the pool of a thin volume, and on which disks it would rely."""
    try:
        plan = plan_snapshot(volume, group, "preflight", job.snapshot, past, tuning=tuning)
    except SnapshotError as error:
        yield refused("snapshot room", error)
        return
    told = str(Chunks(plan.chunk_size, plan.chunk_reason))
    if plan.left_aside:
        yield Finding("snapshot", Level.WARNING, told, f"measure again: backupd probe {job.name} --tune")
    else:
        yield ok("snapshot", told)
    over = plan.striped_over
    where = over or plan.pvs
    words = place_words(where, len(over) or 1)
    risk = "" if is_at_home(where, volume.devices) else RISK
    if plan.displaced:
        hint = (
            f"backupd probe {job.name} --tune --write compares the PVs of today and enters the best;"
            " or edit snapshot.pvs, with a uuid of `pvs -o pv_uuid,pv_name,vg_name`"
        )
        yield Finding(
            "COW area", Level.WARNING, f"{words}, not as snapshot.pvs says: {plan.displaced}", hint, attention=True
        )
    elif over or risk:
        yield ok("COW area", ": ".join(filter(None, (words, risk))))
    if volume.pool is None:
        why = f"; {plan.size_reason}" if plan.size_reason else ""
        free = group.free_on(where, stripes=len(over) or 1)
        yield ok("snapshot room", f"{plan.extents} extents for the COW area, {free} free{why}")
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
    fate = {"queue": "wait for space, and fail after a minute", "error": "fail at once"}.get(pool.when_full, "fail")
    return ok(
        "snapshot room",
        f"thin pool {vg}/{pool.name} is {pool.fill:.0%} full, its metadata {pool.metadata_fill:.0%};"
        f" {size(pool.free)} are free; when it is full, writes to all its volumes {fate}",
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
            strays.append(f"{path.role} {path.path} cannot be read ({error})")
            continue
        if where.device != mount.device:
            strays.append(f"{path.role} {path.path} is on {where.path} ({where.device})")
    if strays:
        yield Finding(
            "one volume",
            Level.REFUSED,
            f"not on the volume of {mount.path}: {'; '.join(strays)}",
            "move it onto the datadir's volume: LVM cannot take an atomic snapshot of two",
        )
    else:
        yield ok("one volume", f"{len(shared)} files and folders, all on {mount.path}")


def of_one_mount(
    shared: list[DataPath], mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """What is seen through another mount of the same file system is elsewhere in it, and so in the snapshot."""
    detours = []
    for path in shared:
        with contextlib.suppress(OSError, *HOST_FAULTS):  # told by `of_one_volume`
            where = mount_of(path.path)
            if where.device == mount.device and where.path != mount.path:
                detours.append(f"{path.role} {path.path} is reached through {where.path}")
    if detours:
        yield Finding(
            "one mount",
            Level.REFUSED,
            f"outside of the mount at {mount.path}, though on its file system: {'; '.join(detours)}",
            f"set its path in the server's options below {mount.path}, without a separate bind mount",
        )


def landmarks(paths: tuple[DataPath, ...], identity: Callable[[Path], FileIdentity]) -> Mapping[Path, FileIdentity]:
    """What a snapshot is to be known by: the datadir, and what no server replaces while it runs.

    Raises:
        SnapshotError: one of them cannot be read.
    """
    try:
        return {path.path: identity(path.path) for path in paths if path.role in LASTING and path.path.exists()}
    except OSError as error:
        raise SnapshotError(
            f"cannot read {error.filename}: {error.strerror}", hint="check the kernel log: dmesg"
        ) from error


def of_links(paths: tuple[DataPath, ...]) -> Iterator[Finding]:
    """Told here because the copy refuses them, and that would be after the lock."""
    absolute = [str(path.path) for path in paths if path.role == ABSOLUTE_LINK]
    if absolute:
        yield Finding(
            "links",
            Level.REFUSED,
            f"absolute symlinks in the datadir point to {', '.join(absolute)}",
            "a restored server would follow them to the live files: make the links relative, or move the files back",
        )
    tables = [str(path.path) for path in paths if path.role == DATA_DIRECTORY]
    if tables:
        yield Finding(
            "data directory",
            Level.REFUSED,
            f"tables with their own DATA DIRECTORY: {', '.join(tables)}",
            REBUILD,
        )


def of_engines(facts: ServerFacts) -> Iterator[Finding]:
    """What no snapshot of this volume shows, and nothing of the copy misses."""
    if engines := engines_elsewhere(facts):
        yield Finding(
            "engines elsewhere",
            Level.WARNING,
            f"the rows of any {' or '.join(engines)} tables are not in the backup: they are not in the datadir",
            "back them up where they are; if there are no such tables, uninstall the engine's plugin",
            attention=True,
        )


def of_keys(
    paths: tuple[DataPath, ...], mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """A file that cannot be read is no finding of ours: it matters to the drill, which says so."""
    beside = []
    for file in (path.path for path in paths if path.role == KEYS):
        with contextlib.suppress(OSError, *HOST_FAULTS):
            if mount_of(file).device == mount.device:
                beside.append(str(file))
    if beside:
        yield Finding(
            "encryption keys",
            Level.WARNING,
            f"{', '.join(beside)} is on the volume that is snapshotted",
            "the backup would hold the key next to the data it protects: keep the key on another volume, and a copy"
            " elsewhere",
        )


def of_places(
    places: Mapping[str, Path], volume: Volume, mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """What we write while the volume's write-back is frozen must not wait for it, nor fill its COW area. Of a folder
    that cannot be read nobody knows whether it lies there. That refuses no run: an unusable target is told as such.
    """
    for name, path in places.items():
        try:
            there = mount_of(existing(path))
        except (OSError, *HOST_FAULTS) as error:
            told = f"it is unknown whether {path} is on the volume that is snapshotted: {reason(error)}"
            yield Finding(name, Level.WARNING, told, "mount its file system again, or repair its disk")
            continue
        if there.device == mount.device:
            yield Finding(
                name,
                Level.REFUSED,
                f"{path} is on the volume that is snapshotted ({volume.full_name})",
                "move it to another volume: it would freeze under the lock, and be lost with the data",
            )
        else:
            yield ok(name, f"{path} is not on {volume.full_name}")
