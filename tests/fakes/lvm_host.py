"""A host with volumes, in memory: the contracts `Snapshots` and `Mounts`, for stories that have no LVM.

One `LvmHost` is the world: groups and their free extents, volumes, what is mounted, how full each COW area is. A test
looks at it afterwards, fills or invalidates snapshots, and has any verb fail at its n-th call. An origin with a folder
has content: `create` copies it away, `mount` copies that to the mount point, so what is read is what was there then.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backupd.command import ChildLedger
from backupd.errors import SnapshotError, SnapshotVoid
from backupd.model import CowUsage, DeviceNumber, Segment, Snapshot, SnapshotPlan, ThinPool, Volume, VolumeGroup
from backupd.snapshots import RUN_TAG, TAG, SnapshotCreator

EXTENT = 4 << 20
_VERBS = (
    *("volume_at", "volume", "group", "prepared", "create", "usage", "require_intact", "ours", "remove"),
    *("mount", "unmount"),
)


def striped_volume(*, vg: str = "labvg", name: str = "data", size: int = 600 << 20) -> Volume:
    """An origin as the lab has it: three stripes of 64 KiB."""
    devices = ("/dev/sdb", "/dev/sdc", "/dev/sdd")
    return Volume(
        vg=vg,
        name=name,
        uuid="zdbTBF-yrze-GUu3-WmMd-ZtYo-3HSg-BwPoje",
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
    live: bool = True  # False: only the COW area is there


@dataclass
class LvmHost:
    """What exists on the host now."""

    volume: Volume = field(default_factory=striped_volume)
    folder: Path | None = None  # where the origin's file system is mounted, if its content matters
    free_by_pv: dict[str, int] = field(
        default_factory=lambda: {"/dev/sdb": 200, "/dev/sdc": 200, "/dev/sdd": 200, "/dev/sde": 255}
    )
    lvs: dict[str, _Lv] = field(default_factory=dict)  # by name, all in the volume's group
    mounted: dict[Path, str] = field(default_factory=dict)  # mount point -> snapshot's name
    calls: Counter[str] = field(default_factory=Counter)
    on_call: Callable[[str], None] = lambda verb: None  # a test's look at the rest of the world, or its signal
    shells: int = 0  # prepared and not yet ended
    _failures: dict[str, _Failure] = field(default_factory=dict)
    _store: TemporaryDirectory[str] = field(default_factory=TemporaryDirectory)
    _minor: int = 1

    @property
    def snapshots(self) -> "FakeSnapshots":
        """The host as the stories see it."""
        return FakeSnapshots(self)

    @property
    def mounts(self) -> "FakeMounts":
        """The same for mounting."""
        return FakeMounts(self)

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

    def add_foreign_snapshot(self, name: str, *, extents: int = 10) -> None:
        """Somebody else's snapshot of the origin, with no tag of ours."""
        plan = SnapshotPlan(self.volume, name, "", extents, extents * EXTENT, 4096)
        self.lvs[name] = self._made(plan, frozenset())

    def free_extents(self) -> int:
        """In the whole group."""
        return sum(self.free_by_pv.values()) - sum(lv.extents for lv in self.lvs.values())

    def _group(self) -> VolumeGroup:
        free, taken = dict(self.free_by_pv), sum(lv.extents for lv in self.lvs.values())
        for pv in free:
            part = min(free[pv], taken)
            free[pv] -= part
            taken -= part
        return VolumeGroup(self.volume.vg, EXTENT, sum(free.values()), free)

    def _made(self, plan: SnapshotPlan, tags: frozenset[str]) -> _Lv:
        self._minor += 3
        snapshot = Snapshot(
            origin=plan.origin,
            name=plan.name,
            uuid=f"LVM-{self._minor:064d}",
            run_id=plan.run_id,
            path=Path("/dev") / plan.origin.vg / plan.name,
            device=DeviceNumber(254, self._minor),
            size=plan.size,
            chunk_size=plan.chunk_size,
        )
        metadata = 2 * plan.chunk_size
        usage = CowUsage(intact=True, used=metadata, total=plan.size, metadata=metadata)
        pool = self._pool()
        if pool is not None:
            usage = CowUsage(intact=True, used=pool.used, total=pool.size, metadata_fill=pool.metadata_fill)
        return _Lv(snapshot, tags, plan.extents, usage, None)

    def _pool(self) -> ThinPool | None:
        """As it is now: what only snapshots held is free again when they are gone."""
        pool = self.volume.pool
        return pool and replace(pool, used=max((lv.usage.used for lv in self.lvs.values()), default=pool.used))

    def _take(self, plan: SnapshotPlan) -> Snapshot:
        lv = self._made(plan, _tags(plan))
        if self.folder is not None:
            lv.content = Path(self._store.name) / plan.name
            shutil.copytree(self.folder, lv.content, symlinks=True)
        self.lvs[plan.name] = lv
        return lv.snapshot

    @contextmanager
    def _call(self, verb: str) -> Iterator[None]:
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

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The origin, if it is that."""
        with self.host._call("volume_at"):
            if device != self.host.volume.device:
                raise SnapshotError(f"not on LVM: the file system lies on {device}, a plain partition")
            return self._volume()

    def volume(self, vg: str, name: str) -> Volume:
        """The origin, if it is that."""
        with self.host._call("volume"):
            if (vg, name) != (self.host.volume.vg, self.host.volume.name):
                raise SnapshotError(f"no active logical volume {vg}/{name}")
            return self._volume()

    def group(self, vg: str) -> VolumeGroup:
        """The only group there is."""
        with self.host._call("group"):
            if vg != self.host.volume.vg:
                raise SnapshotError(f"no volume group {vg}")
            return self.host._group()

    @contextmanager
    def prepared(self, plan: SnapshotPlan, ledger: ChildLedger | None = None) -> Iterator[SnapshotCreator]:
        """Refuses what the real one refuses; then the COW area, if it has one, is there, tagged, until `remove`."""
        host = self.host
        with host._call("prepared"):
            if plan.name in host.lvs or plan.name == host.volume.name:
                raise SnapshotError(f'Logical Volume "{plan.name}" already exists in volume group "{host.volume.vg}"')
            if not set(plan.pvs) <= set(host.free_by_pv):
                raise SnapshotError(f'Physical Volume "{plan.pvs[0]}" not found in Volume Group "{host.volume.vg}"')
            if plan.extents > host._group().free_on(plan.pvs):
                raise SnapshotError(f'Volume group "{host.volume.vg}" has insufficient free space')
            if host.volume.pool is None:
                host.lvs[plan.name] = replace(host._made(plan, _tags(plan)), live=False)
        host.shells += 1
        try:
            yield _FakeCreator(host, plan)
        finally:
            host.shells -= 1

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """Of the very snapshot: one of the same name that was made later is another."""
        with self.host._call("usage"):
            return self._usage(snapshot)

    def require_intact(self, snapshot: Snapshot) -> CowUsage:
        """Or `SnapshotVoid`."""
        with self.host._call("require_intact"):
            usage = self._usage(snapshot)
            if not usage.intact:
                raise SnapshotVoid(f"snapshot {snapshot.full_name} is not intact ({usage.state})")
            return usage

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """By tag."""
        with self.host._call("ours"):
            return tuple(
                (self.host.volume.vg, name, lv.snapshot.run_id) for name, lv in self.host.lvs.items() if TAG in lv.tags
            )

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """By tag only; not while it is mounted."""
        with self.host._call("remove"):
            lv = self.host.lvs.get(name)
            is_origin = name == self.host.volume.name
            if vg != self.host.volume.vg or (lv is None and not is_origin):
                return
            if lv is None or not {TAG, f"{RUN_TAG}{run_id}"} <= lv.tags:
                raise SnapshotError(f"{vg}/{name} bears no tag of run {run_id}: it is not removed")
            if name in self.host.mounted.values():
                raise SnapshotError(f"Logical volume {vg}/{name} contains a filesystem in use.")
            del self.host.lvs[name]
            if lv.content is not None:
                shutil.rmtree(lv.content)

    def _volume(self) -> Volume:
        """As LVM reports it; of the snapshots only the classic ones."""
        if self.host.volume.pool is not None:
            return replace(self.host.volume, pool=self.host._pool())
        return replace(self.host.volume, snapshots=tuple(name for name, lv in self.host.lvs.items() if lv.live))

    def _usage(self, snapshot: Snapshot) -> CowUsage:
        lv = self.host.lvs.get(snapshot.name)
        return lv.usage if lv is not None and lv.snapshot == snapshot else CowUsage(intact=False, state="gone")


@dataclass(frozen=True)
class _FakeCreator:
    host: LvmHost
    plan: SnapshotPlan

    def create(self) -> Snapshot:
        """It exists from here on."""
        with self.host._call("create"):
            return self.host._take(self.plan)


@dataclass(frozen=True)
class FakeMounts:
    """Implements the contract `Mounts`; the mount point holds a copy."""

    host: LvmHost

    def mount(self, snapshot: Snapshot, at: Path) -> None:
        """What the origin held when the snapshot was taken is there to be read."""
        with self.host._call("mount"):
            lv = self.host.lvs.get(snapshot.name)
            if lv is None or not lv.live or not lv.usage.intact:
                raise SnapshotError(f"snapshot {snapshot.full_name} could not be mounted: no such device")
            at.mkdir(parents=True, exist_ok=True)
            if lv.content is not None:
                shutil.copytree(lv.content, at, symlinks=True, dirs_exist_ok=True)
            self.host.mounted[at] = snapshot.name

    def unmount(self, at: Path) -> None:
        """Not while a file in it is open in this process."""
        with self.host._call("unmount"):
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


def _tags(plan: SnapshotPlan) -> frozenset[str]:
    return frozenset({TAG, f"{RUN_TAG}{plan.run_id}"})


def _open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield str(link.readlink())
        except FileNotFoundError:
            continue
