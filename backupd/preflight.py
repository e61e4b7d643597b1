"""May this job run now? Every answer at once, each with a hint; and what a run needs to know to begin.

Knows: what must be true of server, volume, target and host before anything is touched. Refuses to change anything.
A finding is `refused` where a backup would be impossible or no backup, `warning` where it would be dearer or poorer.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from backupd import replicas, unlocked
from backupd.config import JobConfig, LockStrategy
from backupd.errors import (
    BackupdError,
    CommandError,
    Refused,
    ServerError,
    SnapshotError,
    TargetError,
    UnexpectedOutput,
)
from backupd.model import DataPath, Finding, Level, MountPoint, ServerFacts, ThinPool, Volume, VolumeGroup
from backupd.mysql import ABSOLUTE_LINK, DATA_DIRECTORY, KEYS
from backupd.snapshots.mounting import FILESYSTEMS
from backupd.snapshots.plan import plan_snapshot
from backupd.tools import Tools

_HOST_FAULTS = (ServerError, SnapshotError, CommandError, UnexpectedOutput)  # never `Cancelled`: that ends the run


@dataclass(frozen=True, slots=True)
class Ready:
    """What a run knows once nothing forbids it."""

    facts: ServerFacts
    paths: tuple[DataPath, ...]
    mount: MountPoint
    volume: Volume
    group: VolumeGroup
    root: Path  # the folder that is archived: it holds everything that must share the volume

    @property
    def takes_writes(self) -> bool:
        """Whether rows of ours may be written: not on a replica, whose data would drift, nor on a read-only server."""
        return not (self.facts.read_only or self.facts.is_replica)


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, and what a run needs where none of them is `refused`."""

    findings: tuple[Finding, ...]
    ready: Ready | None

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What stops no run, and a person should know."""
        return tuple(finding for finding in self.findings if finding.level is Level.WARNING)

    def require(self) -> Ready:
        """Raise unless the job may run.

        Raises:
            Refused: the message lists every refused finding, the hint every hint.
        """
        refused = [finding for finding in self.findings if finding.level is Level.REFUSED]
        if refused or self.ready is None:
            raise Refused(
                "; ".join(f"{finding.name}: {finding.detail}" for finding in refused),
                hint="; ".join(dict.fromkeys(finding.hint for finding in refused if finding.hint)),
            )
        return self.ready


def examine(job: JobConfig, tools: Tools, *, last_stored_bytes: int | None) -> Examination:
    """Look at everything that a run of this job stands on."""
    findings: list[Finding] = []
    ready = _examine_host(job, tools, findings)
    findings += _target(tools, last_stored_bytes, tools.files.used_bytes(ready.mount.path) if ready else None)
    findings += _probe(job, tools)
    if ready is not None:
        findings += _places(tools, ready)
    return Examination(tuple(findings), ready)


def _examine_host(job: JobConfig, tools: Tools, findings: list[Finding]) -> Ready | None:
    """Server, then the volume under it; each step needs what the one before found."""
    try:
        facts = tools.server.facts()
    except _HOST_FAULTS as error:
        findings.append(_refused("server", error))
        return None
    findings.append(_ok("server", f"{facts.flavour} {facts.version}"))
    findings += _server(job, tools, facts)
    paths = _data_paths(tools, facts, findings)
    try:
        mount = tools.files.mount_of(facts.datadir)
        findings += _filesystem(mount)
        volume = tools.snapshots.volume_at(mount.device)
        group = tools.snapshots.group(volume.vg)
    except _HOST_FAULTS as error:
        findings.append(_refused("volume", error))
        return None
    findings += _volume(volume)
    findings += _room_for_snapshot(job, volume, group)
    if paths is None:
        return None
    if job.lock.strategy is LockStrategy.NONE:  # then crash recovery needs the binlog of the same instant
        paths = tuple(replace(path, must_share=path.must_share or path.role == "binlog") for path in paths)
    shared = [path for path in paths if path.must_share]
    findings += _links(paths)
    findings += _keys(paths, mount, tools.files.mount_of)
    findings += _same_volume(shared, mount, tools.files.mount_of)
    root = Path(os.path.commonpath([facts.datadir.resolve(), *(_folder(path.path) for path in shared)]))
    if not root.is_relative_to(mount.path):  # a path elsewhere was refused above; the datadir decides
        root = facts.datadir.resolve()
    return Ready(facts, paths, mount, volume, group, root)


def _data_paths(tools: Tools, facts: ServerFacts, findings: list[Finding]) -> tuple[DataPath, ...] | None:
    """Where the server's files are; None where it does not tell, which says nothing of the volume."""
    try:
        return tools.server.data_paths(facts)
    except _HOST_FAULTS as error:
        findings.append(_refused("volume", error))
        return None


def _server(job: JobConfig, tools: Tools, facts: ServerFacts) -> Iterator[Finding]:
    yield _grants(job, tools)
    if not facts.redo_logging:
        yield Finding(
            "redo logging",
            Level.REFUSED,
            "redo logging is disabled: no snapshot of this server can be recovered",
            "ALTER INSTANCE ENABLE INNODB REDO_LOG",
        )
    yield _binlog(job, facts)
    if job.lock.strategy is LockStrategy.NONE:
        yield from unlocked.told(tools.server, facts)
    else:
        yield _blockers(job, tools)
    yield from replicas.examine(job, tools.server, facts, binlog_shares=_binlog_shares(tools, facts))
    if job.canary and (facts.read_only or facts.is_replica):
        yield _ok("canary", "off here: the server is a replica or read-only")


def _grants(job: JobConfig, tools: Tools) -> Finding:
    try:
        strategy = tools.lock.strategy
        missing = tools.server.missing_grants(strategy, stop_applier=job.lock.stop_applier)
    except _HOST_FAULTS as error:
        return _refused("grants", error)
    if not missing:
        return _ok("grants", f"enough for {strategy}")
    return Finding(
        "grants",
        Level.REFUSED,
        f"missing for {strategy}: {', '.join(missing)}",
        f"{_grant_words(missing)} TO the user of host {job.host}",
    )


def _grant_words(missing: tuple[str, ...]) -> str:
    """Names without a level of their own are granted on everything."""
    everywhere = [name for name in missing if " ON " not in name]
    words = [f"GRANT {', '.join(everywhere)} ON *.*"] if everywhere else []
    return "; ".join((*words, *(f"GRANT {name}" for name in missing if name not in everywhere)))


def _binlog(job: JobConfig, facts: ServerFacts) -> Finding:
    if facts.binlog_basename is None:
        return Finding(
            "binlog",
            Level.WARNING,
            "the binlog is off: the backup has no position and no point-in-time recovery",
            "set log_bin in the server's option file",
        )
    kept = facts.binlog_expire_seconds
    if kept is not None and kept < job.every_seconds:
        return Finding(
            "binlog",
            Level.WARNING,
            f"binlogs are kept for {kept} s, but the job runs every {job.every_seconds:.0f} s",
            "raise binlog_expire_logs_seconds above the interval between backups",
        )
    return _ok("binlog", "kept for ever" if kept is None else f"kept for {kept} s")


def _binlog_shares(tools: Tools, facts: ServerFacts) -> bool:
    """Whether the binlog is in the image. What cannot be looked at is not."""
    if facts.binlog_basename is None:
        return False
    mount_of = tools.files.mount_of
    try:
        return mount_of(facts.binlog_basename.parent).device == mount_of(facts.datadir).device
    except (OSError, *_HOST_FAULTS):
        return False


def _blockers(job: JobConfig, tools: Tools) -> Finding:
    try:
        blockers = tools.server.blockers(job.lock.blocker_age_seconds)
    except _HOST_FAULTS as error:
        return _refused("blockers", error)
    if not blockers:
        return _ok("blockers", "no statement that a lock would wait behind")
    longest = max(blockers, key=lambda blocker: blocker.seconds)
    return Finding(
        "blockers",
        Level.WARNING,
        f"connection {longest.connection_id} of {longest.user} has run for {longest.seconds:.0f} s:"
        f" {longest.statement}",
        "wait for it to end: the lock would not be asked for while it runs",
    )


def _same_volume(
    shared: list[DataPath], mount: MountPoint, mount_of: Callable[[Path], MountPoint]
) -> Iterator[Finding]:
    """By device, not by name: a symlink or a nested mount leads elsewhere whatever the path looks like."""
    strays = []
    for path in shared:
        try:
            where = mount_of(path.path)
        except (OSError, *_HOST_FAULTS) as error:
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
        yield _ok("one volume", f"{len(shared)} files and folders, all on {mount.path}")


def _links(paths: tuple[DataPath, ...]) -> Iterator[Finding]:
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


def _keys(paths: tuple[DataPath, ...], mount: MountPoint, mount_of: Callable[[Path], MountPoint]) -> Iterator[Finding]:
    """A file that cannot be looked at is no finding of ours: it matters to the drill, which says so."""
    beside = []
    for file in (path.path for path in paths if path.role == KEYS):
        with contextlib.suppress(OSError, *_HOST_FAULTS):
            if mount_of(file).device == mount.device:
                beside.append(str(file))
    if beside:
        yield Finding(
            "encryption keys",
            Level.WARNING,
            f"{', '.join(beside)} lies on the volume that is snapshotted",
            "the key would be in the backup beside what it protects: keep it on another volume, and a copy elsewhere",
        )


def _filesystem(mount: MountPoint) -> Iterator[Finding]:
    """Told here because the snapshot's mount refuses it, and that would be after the lock."""
    if mount.filesystem not in FILESYSTEMS:
        yield Finding(
            "file system",
            Level.REFUSED,
            f"{mount.path} is {mount.filesystem}: backupd mounts snapshots of {' and '.join(FILESYSTEMS)} only",
            f"put the datadir on {' or '.join(FILESYSTEMS)}, directly on a logical volume",
        )


def _volume(volume: Volume) -> Iterator[Finding]:
    width = f", {volume.stripes} stripes of {volume.stripe_size} bytes" if volume.stripe_size else ""
    count = len(volume.physical_segments)
    segments = f"{count} segment{'s' if count != 1 else ''}"
    cache = f", behind a {volume.cache.kind} on {', '.join(volume.cache.devices)}" if volume.cache is not None else ""
    thin = f", thin in pool {volume.pool.name}" if volume.pool is not None else ""
    yield _ok("layout", f"{volume.full_name} is {volume.layout}{width} ({segments}){cache}{thin}")
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
        yield _ok("volume state", "no merge, pvmove or resync")


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
    return _ok("other snapshots", "none")


def _room_for_snapshot(job: JobConfig, volume: Volume, group: VolumeGroup) -> Iterator[Finding]:
    try:
        plan = plan_snapshot(volume, group, "preflight", job.snapshot)
    except SnapshotError as error:
        yield _refused("snapshot room", error)
        return
    if volume.pool is None:
        yield _ok("snapshot room", f"{plan.extents} extents for the COW area, {group.free_on(plan.pvs)} free")
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
    return _ok(
        "snapshot room",
        f"thin pool {vg}/{pool.name} is {pool.fill:.0%} full, its metadata {pool.metadata_fill:.0%};"
        f" {pool.free} bytes are free; when it is full, the writes of all its volumes {fate}",
    )


def _target(tools: Tools, last_stored_bytes: int | None, used_bytes: int | None) -> Iterator[Finding]:
    try:
        free = tools.target.require_usable()
    except TargetError as error:
        yield _refused("target", error)
        return
    hint = f"free some room on target {tools.target.name}, or choose another"
    if last_stored_bytes is not None and free < last_stored_bytes * 1.1:
        yield Finding("target", Level.REFUSED, f"{free} bytes free, the last backup took {last_stored_bytes}", hint)
    elif last_stored_bytes is None and used_bytes is not None and free < used_bytes // 10:
        yield Finding("target", Level.REFUSED, f"{free} bytes free for a volume with {used_bytes} in use", hint)
    elif last_stored_bytes is None and used_bytes is not None and free < used_bytes:
        yield Finding("target", Level.WARNING, f"{free} bytes free, and {used_bytes} before compression", hint)
    else:
        yield _ok("target", f"{tools.target.name} is writable, {free} bytes free")


def _probe(job: JobConfig, tools: Tools) -> Iterator[Finding]:
    if not (job.settle.enabled and job.settle.probe):
        yield _ok("sysbench", "not asked for: settle.probe is off")
    elif tools.probe is None:
        yield Finding(
            "sysbench",
            Level.WARNING,
            "sysbench is not installed: the gate has only the COW area's fill to go by",
            "apt-get install sysbench, or set settle.probe = false",
        )
    else:
        yield _ok("sysbench", "installed")


def _places(tools: Tools, ready: Ready) -> Iterator[Finding]:
    """What we write while the volume's write-back is frozen must not wait for it, nor fill its COW area."""
    places = {
        "catalogue": tools.places.catalogue,
        "run folder": tools.places.run,
        "staging folder": tools.places.staging,
        **({f"target {tools.target.name}": folder} if (folder := tools.target.folder) else {}),
    }
    for name, path in places.items():
        if tools.files.mount_of(_existing(path)).device == ready.mount.device:
            yield Finding(
                name,
                Level.REFUSED,
                f"{path} lies on the volume that is snapshotted ({ready.volume.full_name})",
                "put it on another volume: it would stand still under the lock, and be lost with the data",
            )
        else:
            yield _ok(name, f"{path} is not on {ready.volume.full_name}")


def _existing(path: Path) -> Path:
    """The path itself or its nearest ancestor that is there."""
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def _folder(path: Path) -> Path:
    resolved = path.resolve()
    return resolved if resolved.is_dir() else resolved.parent


def _ok(name: str, detail: str) -> Finding:
    return Finding(name, Level.OK, detail)


def _refused(name: str, error: BackupdError) -> Finding:
    return Finding(name, Level.REFUSED, error.message, error.hint)
