"""A host with volumes, in memory: the contracts `Snapshots` and `Mounts`, for stories that have no LVM.

One `LvmHost` is the world: groups and their free extents, volumes, what is mounted, how full each COW area is, and the
scratch volumes that `tests/fakes/scratch_volumes.py` makes beside the origin. A test looks at it afterwards, fills or
invalidates snapshots, and has any verb fail at its n-th call. An origin with a folder has content: `create` copies it
away, `mount` copies that to the mount point, so what is read is what was there then.
"""

import errno
import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backupd.host.process import ChildLedger
from backupd.lvm import Mark, SnapshotCreator, mark_of_tags, run_of_tags
from backupd.lvm.report import dashed
from backupd.vocabulary.errors import SnapshotError, SnapshotVoid
from backupd.vocabulary.volumes import (
    CowUsage,
    DeviceNumber,
    DiskQueue,
    FileIdentity,
    Segment,
    Snapshot,
    SnapshotPlan,
    ThinPool,
    Volume,
    VolumeGroup,
)
from tests.fakes.target import MACHINE

EXTENT = 4 << 20
_VERBS = (
    *("volume_at", "volume", "group", "prepared", "create", "usage", "require_intact", "extend", "ours", "remove"),
    *("mount", "unmount"),
    *("require_unused", "create_scratch", "format", "mount_scratch"),
)


def striped_volume(*, vg: str = "labvg", name: str = "data", size: int = 600 << 20) -> Volume:
    """An origin as the lab has it: three stripes of 64 KiB."""
    devices = ("/dev/sdb", "/dev/sdc", "/dev/sdd")
    return Volume(
        vg=vg,
        name=name,
        uuid="zdbTBF-yrze-GUu3-WmMd-ZtYo-3HSg-BwPoje",
        group_uuid="Wm7Qpt-0cZy-p8Vh-3h2O-9aTq-Yt0b-uLr4Xs",
        path=Path("/dev") / vg / name,
        device=DeviceNumber(254, 0),
        size=size,
        segments=(Segment("striped", size, 3, 64 << 10, devices),),
    )


def thin_volume(*, used: int = 100 << 20, metadata_used: int = 1 << 20, **changes: str | int) -> Volume:
    """The same as a volume of a thin pool that is as large, with this much of it taken."""
    thick = striped_volume(**changes)  # type: ignore[arg-type]
    pool = ThinPool(
        name="pool",
        uuid="LHFMYk-yBWE-Pej3-U8PG-CHgQ-H3CP-jxVrdS",
        chunk_size=64 << 10,
        size=thick.size,
        metadata_size=32 << 20,
        segments=thick.segments,
        metadata_devices=("/dev/sde",),
        used=used,
        metadata_used=metadata_used,
    )
    return replace(thick, segments=(Segment("thin", thick.size, 1, 0, ()),), pool=pool)


def pv_uuid(pv: str) -> str:
    """That of the disk which has this path where nothing has happened to it."""
    return dashed(hashlib.sha256(pv.encode()).hexdigest()[:32])


@dataclass
class _Failure:
    at_call: int
    error: Exception
    after_effect: bool


@dataclass
class _Lv:
    """A snapshot that exists; `usage` is what the kernel would say of it."""

    snapshot: Snapshot
    tags: frozenset[str]
    extents: int
    usage: CowUsage
    content: Path | None
    inodes: dict[Path, int] = field(default_factory=dict)  # of the content: those that the origin's files have
    live: bool = True  # False: only the COW area is there
    pvs: tuple[str, ...] = ()  # where its COW area was asked for
    striped: dict[str, int] = field(default_factory=dict)  # PV -> those of its extents that are in stripes


@dataclass
class Scratch:
    """A scratch volume that exists."""

    volume: Volume
    extents: dict[str, int]  # PV -> how many it takes there
    filesystem: str = ""  # that was made on it


@dataclass
class LvmHost:
    """What exists on the host now."""

    volume: Volume = field(default_factory=striped_volume)
    folder: Path | None = None  # where the origin's file system is mounted, if its content matters
    free_by_pv: dict[str, int] = field(
        default_factory=lambda: {"/dev/sdb": 200, "/dev/sdc": 200, "/dev/sdd": 200, "/dev/sde": 255}
    )
    closed: set[str] = field(default_factory=set)  # PVs that take no extents
    lock_type: str = ""
    missing: set[str] = field(default_factory=set)  # uuids of PVs whose disks are not there
    pv_uuids: dict[str, str] = field(default_factory=dict)  # those that are not as usual: the disk is another one
    failed: set[str] = field(default_factory=set)  # PVs whose disks the kernel has given up
    queue: DiskQueue | None = field(default_factory=lambda: DiskQueue(False, 1280 << 10))  # of each disk; None: untold
    hidden: set[str] = field(default_factory=set)  # names of LVs that are inactive, or within another
    lvs: dict[str, _Lv] = field(default_factory=dict)  # by name, all in the volume's group
    scratch: dict[str, Scratch] = field(default_factory=dict)  # the same
    mounted: dict[Path, str] = field(default_factory=dict)  # mount point -> snapshot's name
    calls: Counter[str] = field(default_factory=Counter)
    on_call: Callable[[str], None] = lambda verb: None  # a test's look at the rest of the world, or its signal
    shells: int = 0  # prepared and not yet ended
    shell_hangs: bool = False  # once its snapshot exists, until nobody waits for it any more
    _failures: dict[str, _Failure] = field(default_factory=dict)
    _store: TemporaryDirectory[str] = field(default_factory=TemporaryDirectory)
    _minor: int = 1

    @property
    def snapshots(self) -> "FakeSnapshots":
        """The host as the stories see it."""
        return self.snapshots_of(MACHINE)

    def snapshots_of(self, machine: str) -> "FakeSnapshots":
        """The same as a machine sees it: its group may be seen by another one too."""
        return FakeSnapshots(self, machine)

    @property
    def mounts(self) -> "FakeMounts":
        """The same for mounting."""
        return FakeMounts(self)

    def scratch_at(self, device: Path) -> Scratch | None:
        """The scratch volume that has this path."""
        return next((one for one in self.scratch.values() if one.volume.path == device), None)

    def fail(self, verb: str, *, at_call: int = 1, error: Exception | None = None, after_effect: bool = False) -> None:
        """Have the n-th call of a verb fail, before it did anything or after all of it."""
        if verb not in _VERBS:
            raise ValueError(f"no verb {verb!r}: {', '.join(_VERBS)}")
        self._failures[verb] = _Failure(at_call, error or SnapshotError(f"{verb} failed, as told"), after_effect)

    def write(self, size: int) -> None:
        """The origin takes first writes of this many bytes; every snapshot keeps the old ones, or overflows.

        Of a thin origin it is the pool that fills, and with it what all its snapshots say.
        """
        for lv in (lv for lv in self.lvs.values() if lv.live):
            used = lv.usage.used + size
            if used > lv.usage.total:
                thin = self.volume.pool is not None
                lv.usage = CowUsage(intact=False, state="pool out_of_data_space" if thin else "Invalid")
            elif lv.usage.intact:
                lv.usage = replace(lv.usage, used=used)

    def fill_metadata(self, fill: float) -> None:
        """The pool's metadata is so full, 0.0 to 1.0: somebody has many thin snapshots."""
        for lv in self.lvs.values():
            lv.usage = replace(lv.usage, metadata_fill=fill)

    def invalidate(self, name: str, state: str = "Invalid") -> None:
        """The snapshot's COW area has failed."""
        self.lvs[name].usage = CowUsage(intact=False, state=state)

    def add_foreign_snapshot(self, name: str, *, extents: int = 10, origin: Volume | None = None) -> None:
        """Somebody else's snapshot of the origin, or of a scratch volume, with no tag of ours."""
        plan = SnapshotPlan(origin or self.volume, name, "", extents, extents * EXTENT, 4096)
        self.lvs[name] = self._made(plan, frozenset())

    def free_extents(self) -> int:
        """In the whole group."""
        taken = sum(lv.extents for lv in self.lvs.values()) + sum(
            sum(s.extents.values()) for s in self.scratch.values()
        )
        return sum(self.free_by_pv.values()) - taken

    def names(self) -> set[str]:
        """Of every LV of the group."""
        return {self.volume.name, *self.lvs, *self.scratch, *self.hidden}

    def is_mounted(self, name: str) -> bool:
        """Whether the LV of this name is mounted somewhere."""
        return name in self.mounted.values()

    def next_device(self) -> DeviceNumber:
        """The number of the next device that the kernel makes."""
        self._minor += 3
        return DeviceNumber(254, self._minor)

    def identity(self, path: Path) -> FileIdentity:
        """A file in a mounted snapshot has the number that the origin's has; a link leads where it says."""
        real = path.resolve()
        for at, name in self.mounted.items():
            if real.is_relative_to(at.resolve()):
                try:
                    return FileIdentity(self.lvs[name].inodes[real.relative_to(at.resolve())], None)
                except KeyError as error:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
        return FileIdentity(real.stat().st_ino, None)

    def group(self) -> VolumeGroup:
        """The group as it is now."""
        free, lvs = dict(self.free_by_pv), self.lvs.values()
        taken = sum(lv.extents - sum(lv.striped.values()) for lv in lvs)
        for pv in free:
            free[pv] -= sum(one.extents.get(pv, 0) for one in self.scratch.values())
            free[pv] -= sum(lv.striped.get(pv, 0) for lv in lvs)
        for pv in free:
            part = min(free[pv], taken)
            free[pv] -= part
            taken -= part
        usable = {pv: extents for pv, extents in free.items() if pv not in self.closed}
        queue = self.queue
        queues = {pv: replace(queue, failed=pv in self.failed) for pv in self.free_by_pv} if queue is not None else {}
        closed = tuple(sorted(self.closed))
        whole = sum(self.free_by_pv[pv] for pv in usable) + (self.volume.size // EXTENT if usable else 0)
        return VolumeGroup(
            name=self.volume.vg,
            extent_size=EXTENT,
            free_extents=sum(usable.values()),
            free_by_pv=usable,
            closed=closed,
            missing=tuple(sorted(self.missing)),
            lock_type=self.lock_type,
            queues=queues,
            all_extents=whole,
            pv_uuids={pv: pv_uuid(pv) for pv in self.free_by_pv} | self.pv_uuids,
        )

    def replace_disk(self, pv: str) -> None:
        """The old disk was taken out of the group, and a new one, with the same path, was put into it."""
        self.pv_uuids[pv] = pv_uuid(f"{self.pv_uuids.get(pv, pv)} replaced")

    def _made(self, plan: SnapshotPlan, tags: frozenset[str]) -> _Lv:
        device = self.next_device()
        snapshot = Snapshot(
            origin=plan.origin,
            name=plan.name,
            uuid=f"LVM-{device.minor:064d}",
            run_id=plan.run_id,
            path=Path("/dev") / plan.origin.vg / plan.name,
            device=device,
            size=plan.size,
            chunk_size=plan.chunk_size,
        )
        metadata = 2 * plan.chunk_size
        usage = CowUsage(intact=True, used=metadata, total=plan.size, metadata=metadata)
        pool = self._pool()
        if pool is not None:
            usage = CowUsage(intact=True, used=pool.used, total=pool.size, metadata_fill=pool.metadata_fill)
        over = plan.striped_over
        striped = {pv: plan.extents // len(over) for pv in over}
        return _Lv(snapshot, tags, plan.extents, usage, None, pvs=over or plan.pvs, striped=striped)

    def _pool(self) -> ThinPool | None:
        """As it is now: what only snapshots held is free again when they are gone."""
        pool = self.volume.pool
        return pool and replace(pool, used=max((lv.usage.used for lv in self.lvs.values()), default=pool.used))

    def _take(self, plan: SnapshotPlan, tags: frozenset[str]) -> Snapshot:
        lv = self._made(plan, tags)
        scratch = next((at for at, name in self.mounted.items() if name == plan.origin.name), None)
        folder = self.folder if plan.origin.name == self.volume.name else scratch
        if folder is not None:
            lv.content = Path(self._store.name) / plan.name
            shutil.copytree(folder, lv.content, symlinks=True)
            found = (folder, *folder.rglob("*"))
            lv.inodes = {path.relative_to(folder): path.lstat().st_ino for path in found}
        self.lvs[plan.name] = lv
        return lv.snapshot

    @contextmanager
    def call(self, verb: str) -> Iterator[None]:
        self.calls[verb] += 1
        self.on_call(verb)
        failure = self._failures.get(verb)
        due = failure is not None and failure.at_call == self.calls[verb]
        if failure is not None and due and not failure.after_effect:
            raise failure.error
        yield
        if failure is not None and due:
            raise failure.error


@dataclass(frozen=True)
class FakeSnapshots:
    """Implements the contract `Snapshots`."""

    host: LvmHost
    machine: str

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The origin, or a scratch volume."""
        with self.host.call("volume_at"):
            for volume in self._volumes():
                if device == volume.device:
                    return volume
            raise SnapshotError(f"not on LVM: the file system is on {device}, a plain partition")

    def volume_and_group_at(self, device: DeviceNumber) -> tuple[Volume, VolumeGroup]:
        """Both; a test that has one of the two fail means this too."""
        volume = self.volume_at(device)
        return volume, self.group(volume.vg)

    def volume(self, vg: str, name: str) -> Volume:
        """The origin, or a scratch volume."""
        with self.host.call("volume"):
            for volume in self._volumes():
                if (vg, name) == (volume.vg, volume.name):
                    return volume
            raise SnapshotError(f"no active logical volume {vg}/{name}")

    def group(self, vg: str, *, promptly: bool = False) -> VolumeGroup:
        """The only group there is."""
        with self.host.call("group"):
            if vg != self.host.volume.vg:
                raise SnapshotError(f"no volume group {vg}")
            return self.host.group()

    @contextmanager
    def prepared(self, plan: SnapshotPlan, ledger: ChildLedger | None = None) -> Iterator[SnapshotCreator]:
        """Refuses what the real one refuses; then the COW area, if it has one, is there, tagged, until `remove`."""
        host, tags = self.host, frozenset(Mark(self.machine, plan.run_id).tags)
        with host.call("prepared"):
            if plan.name in host.names():
                raise SnapshotError(f'Logical Volume "{plan.name}" already exists in volume group "{host.volume.vg}"')
            if host.missing:
                raise SnapshotError(f"Cannot change VG {host.volume.vg} while PVs are missing.")
            if plan.extents % (len(plan.striped_over) or 1):
                raise AssertionError(f"{plan.extents} extents are not whole on each of {plan.striped_over}")
            if not set(plan.pvs) <= set(host.free_by_pv):
                raise SnapshotError(f'Physical Volume "{plan.pvs[0]}" not found in Volume Group "{host.volume.vg}"')
            if plan.extents > host.group().free_on(plan.striped_over or plan.pvs, stripes=len(plan.striped_over) or 1):
                raise SnapshotError(f'Volume group "{host.volume.vg}" has insufficient free space')
            if plan.origin.pool is None:
                host.lvs[plan.name] = replace(host._made(plan, tags), live=False)
        host.shells += 1
        creator = _FakeCreator(host, plan, tags)
        try:
            yield creator
        finally:
            creator.end()

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """Of the very snapshot: one of the same name that was made later is another."""
        with self.host.call("usage"):
            return self._usage(snapshot)

    def require_intact(self, snapshot: Snapshot) -> CowUsage:
        """Or `SnapshotVoid`."""
        with self.host.call("require_intact"):
            usage = self._usage(snapshot)
            if not usage.intact:
                raise SnapshotVoid(f"snapshot {snapshot.full_name} is not intact ({usage.state})")
            return usage

    def extend(self, snapshot: Snapshot, extents: int, pvs: tuple[str, ...] = (), *, stripes: int = 1) -> None:
        """Only what is ours and has a COW area of its own, and only where there is room."""
        host = self.host
        with host.call("extend"):
            if snapshot.origin.pool is not None:
                raise SnapshotError(f"{snapshot.full_name} is thin: it has no COW area of its own")
            lv = host.lvs.get(snapshot.name)
            if lv is None or mark_of_tags(lv.tags) != Mark(self.machine, snapshot.run_id):
                raise SnapshotError(
                    f"{snapshot.full_name} is not a snapshot of run {snapshot.run_id}, so it is not extended"
                )
            if extents % stripes:
                raise AssertionError(f"{extents} extents are not whole on each of {stripes} stripes")
            if extents > host.group().free_on(pvs, stripes=stripes):
                raise SnapshotError(f'Volume group "{host.volume.vg}" has insufficient free space')
            over = host.group().striped_over(pvs, stripes) if stripes > 1 else ()
            lv.extents += extents
            for pv in over:
                lv.striped[pv] = lv.striped.get(pv, 0) + extents // stripes
            lv.usage = replace(lv.usage, total=lv.usage.total + extents * EXTENT)

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """By tag."""
        with self.host.call("ours"):
            tags = {name: lv.tags for name, lv in self.host.lvs.items()}
            tags |= {name: one.volume.tags for name, one in self.host.scratch.items()}
            return tuple(
                (self.host.volume.vg, name, run_id)
                for name, found in sorted(tags.items())
                if (run_id := run_of_tags(found, self.machine))
            )

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """By tag only, with its snapshots when they are ours too; not while one of them is mounted."""
        host = self.host
        with host.call("remove"):
            if vg != host.volume.vg or name not in host.names():
                return
            lv, scratch = host.lvs.get(name), host.scratch.get(name)
            tags = lv.tags if lv is not None else scratch.volume.tags if scratch is not None else frozenset()
            mark = mark_of_tags(tags)
            if mark is not None and mark.machine != self.machine:
                raise SnapshotError(
                    f"{vg}/{name} is tagged by machine {mark.machine}, this is {self.machine}: not removed",
                    hint=f"`backupd identity adopt {mark.machine}`, then `backupd recover`",
                )
            if mark != Mark(self.machine, run_id):
                raise SnapshotError(f"{vg}/{name} has no tag of run {run_id}, so it is not removed")
            going = [*self._snapshots_of(name), name]
            strangers = {one for one, lv in host.lvs.items() if not run_of_tags(lv.tags, self.machine)}
            foreign = [other for other in going if other in strangers]
            if foreign:
                raise SnapshotError(f"{vg}/{name} is not removed, because it has a snapshot: {', '.join(foreign)}")
            for one in going:
                if host.is_mounted(one):
                    raise SnapshotError(f"Logical volume {vg}/{one} contains a filesystem in use.")
                self._remove(one)

    def _remove(self, name: str) -> None:
        self.host.scratch.pop(name, None)
        lv = self.host.lvs.pop(name, None)
        if lv is not None and lv.content is not None:
            shutil.rmtree(lv.content)

    def _volumes(self) -> Iterator[Volume]:
        """As LVM reports them; of the snapshots only the classic ones."""
        for volume in (self.host.volume, *(one.volume for one in self.host.scratch.values())):
            if volume.pool is not None:
                yield replace(volume, pool=self.host._pool())
            else:
                yield replace(volume, snapshots=self._snapshots_of(volume.name))

    def _snapshots_of(self, name: str) -> tuple[str, ...]:
        return tuple(other for other, lv in self.host.lvs.items() if lv.live and lv.snapshot.origin.name == name)

    def _usage(self, snapshot: Snapshot) -> CowUsage:
        lv = self.host.lvs.get(snapshot.name)
        return lv.usage if lv is not None and lv.snapshot == snapshot else CowUsage(intact=False, state="gone")


@dataclass
class _FakeCreator:
    host: LvmHost
    plan: SnapshotPlan
    tags: frozenset[str]
    ended: bool = False

    def create(self) -> Snapshot:
        """It exists from here on."""
        with self.host.call("create"):
            return self.host._take(self.plan, self.tags)

    def settle(self, waiting: Callable[[], None]) -> None:
        """At once, unless it hangs."""
        self.host.on_call("settle")
        while self.host.shell_hangs:
            waiting()
            time.sleep(0.01)
        self.end()

    def end(self) -> None:
        """The shell is gone."""
        self.host.shells -= not self.ended
        self.ended = True


@dataclass(frozen=True)
class FakeMounts:
    """Implements the contract `Mounts`; the mount point holds a copy."""

    host: LvmHost

    def mount(self, snapshot: Snapshot, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """What the origin held when the snapshot was taken is there to be read."""
        with self.host.call("mount"):
            lv = self.host.lvs.get(snapshot.name)
            if lv is None or not lv.live or not lv.usage.intact:
                raise SnapshotError(f"snapshot {snapshot.full_name} could not be mounted: no such device")
            at.mkdir(parents=True, exist_ok=True)
            if lv.content is not None:
                shutil.copytree(lv.content, at, symlinks=True, dirs_exist_ok=True)
            self.host.mounted[at] = snapshot.name

    def unmount(self, at: Path) -> None:
        """Not while a file in it is open in this process."""
        with self.host.call("unmount"):
            if at in self.host.mounted:
                if any(target == str(at) or target.startswith(f"{at}/") for target in _open_files()):
                    raise SnapshotError(f"{at} could not be unmounted: target is busy; in use by process {os.getpid()}")
                del self.host.mounted[at]
                shutil.rmtree(at)
            elif at.exists():
                try:
                    at.rmdir()
                except OSError as error:
                    raise SnapshotError(f"{at} is not mounted, but could not be removed: {error.strerror}") from error


def _open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield str(link.readlink())
        except FileNotFoundError:
            continue
