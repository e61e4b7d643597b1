"""Logical volumes, the disks and file systems above and below them, and their snapshots."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import eq
from pathlib import Path, PurePosixPath
from typing import Final, Literal


class Layout(StrEnum):
    """How a volume's segments lie on its disks, in one word."""

    LINEAR = "linear"
    STRIPED = "striped"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of extents of one volume that are laid out alike."""

    kind: str  # LVM's segtype: linear, striped, raid1, thin, …
    size: int
    stripes: int
    stripe_size: int  # bytes; 0 where there is but one stripe
    devices: tuple[str, ...]  # PV paths, in LVM's order


@dataclass(frozen=True, slots=True)
class DeviceNumber:
    """The kernel's name for a block device; what `st_dev` says of a file."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class ThinPool:
    """Where a thin volume's blocks lie, and those of its snapshots. Its fill is no part of what it is."""

    name: str
    uuid: str  # LVM's, with dashes
    chunk_size: int  # what is allocated and copied at a time
    size: int  # of its data; `metadata_size` lies apart
    metadata_size: int
    segments: tuple[Segment, ...]  # of its data
    metadata_devices: tuple[str, ...] = ()
    used: int = field(default=0, compare=False)  # of its data, by all its volumes
    metadata_used: int = field(default=0, compare=False)
    when_full: str = ""  # LVM's word for what then becomes of writes: `queue` (they wait) or `error`

    @property
    def free(self) -> int:
        """Bytes of data that can still be allocated."""
        return max(0, self.size - self.used)

    @property
    def fill(self) -> float:
        """Of its data, 0.0 to 1.0."""
        return self.used / self.size if self.size else 1.0

    @property
    def metadata_fill(self) -> float:
        """0.0 to 1.0."""
        return self.metadata_used / self.metadata_size if self.metadata_size else 1.0


@dataclass(frozen=True, slots=True)
class Volume:
    """A logical volume as LVM reports it."""

    vg: str
    name: str
    uuid: str  # LVM's, with dashes
    path: Path  # /dev/VG/LV
    device: DeviceNumber
    size: int
    segments: tuple[Segment, ...]
    tags: frozenset[str] = frozenset()
    snapshots: tuple[str, ...] = ()  # names of the classic snapshots that exist on it
    conditions: tuple[str, ...] = ()  # what forbids a snapshot now: merging, pvmove, resync, suspended, partial
    pool: ThinPool | None = None  # None: it is no thin volume, and its snapshots are classic ones
    thin_snapshots: tuple[str, ...] = ()  # of a thin volume: they cost no copying of ours, but room in the pool
    cache: Segment | None = None  # what LVM has before its disks (kind `cache`, `writecache`), and on which PVs
    group_uuid: str = ""  # its group's, with dashes

    @property
    def full_name(self) -> str:
        """`VG/LV`, as LVM's commands take it."""
        return f"{self.vg}/{self.name}"

    @property
    def physical_segments(self) -> tuple[Segment, ...]:
        """Those that say how it is on disks: of a thin volume its pool's."""
        return self.pool.segments if self.pool is not None else self.segments

    @property
    def layout(self) -> Layout:
        """One word for all segments. A volume may be "2 stripes, then linear": that is mixed."""
        kinds = {(segment.stripes, segment.stripe_size) for segment in self.physical_segments}
        if len(kinds) > 1:
            return Layout.MIXED
        return Layout.STRIPED if self.stripes > 1 else Layout.LINEAR

    @property
    def stripes(self) -> int:
        """The widest segment's number of stripes; 1 is linear."""
        return max((segment.stripes for segment in self.physical_segments), default=1)

    @property
    def stripe_size(self) -> int | None:
        """Bytes per stripe of the widest segment; None for a linear volume."""
        widest = max(self.physical_segments, key=lambda segment: segment.stripes, default=None)
        return widest.stripe_size if widest is not None and widest.stripes > 1 else None

    @property
    def devices(self) -> tuple[str, ...]:
        """The PVs that it is on, each once, in order of first use."""
        data = (device for segment in self.physical_segments for device in segment.devices)
        beside = self.pool.metadata_devices if self.pool is not None else ()
        before = self.cache.devices if self.cache is not None else ()
        return tuple(dict.fromkeys((*data, *beside, *before)))


AUTO: Final = "auto"


Auto = Literal["auto"]  # what a person leaves to backupd
# As LVM writes it; the marks of scratch disks have ! and #, too: they are of its alphabet (lvm2, lib/uuid/uuid.c).
PV_UUID: Final = re.compile(r"[0-9A-Za-z!#]{6}(?:-[0-9A-Za-z!#]{4}){5}-[0-9A-Za-z!#]{6}")


class PvsGone(StrEnum):
    """What a run does when a PV that its job names for the COW area cannot be used."""

    ANYWHERE = "anywhere"  # the COW area goes anywhere in the group, and the run needs attention
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class DiskQueue:
    """What the kernel says of a disk's request queue."""

    rotational: bool
    largest_request: int  # bytes; larger ones are cut up
    virtual: bool = False  # what it says of itself, its host made up
    failed: bool = False  # the kernel has given it up


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """The room that a volume group has, in all and per PV."""

    name: str
    extent_size: int
    free_extents: int
    free_by_pv: Mapping[str, int] = field(default_factory=dict)  # PV path -> free extents
    closed: tuple[str, ...] = ()  # PVs that take no extents: missing, or closed by `pvchange -xn`
    queues: Mapping[str, DiskQueue] = field(default_factory=dict)  # PV path -> its disk's, where that is known
    all_extents: int = 0  # free or not, on the PVs that take extents
    pv_uuids: Mapping[str, str] = field(default_factory=dict)  # PV path -> uuid, of closed ones too
    same_device: Callable[[str, str], bool] = field(default=eq, compare=False)  # whether two paths lead to one now
    lock_type: str = ""  # of a group that hosts share (lvmlockd): `sanlock`, `dlm`; else empty or `none`
    missing: tuple[str, ...] = ()  # uuids of PVs whose disks LVM does not find: they have no path

    def named(self, name: str) -> tuple[str, ...]:
        """The PVs, by LVM's paths, that somebody may mean who names one by a path or its uuid; closed ones too.

        LVM tells one of its paths, and need not tell the same tomorrow: only a name that is none of those is looked at.
        """
        every = tuple(dict.fromkeys((*self.free_by_pv, *self.closed, *self.pv_uuids)))
        known = tuple(pv for pv in every if name in (pv, self.pv_uuids.get(pv)))
        return known or tuple(pv for pv in every if self.same_device(name, pv))

    def free_on(self, pvs: tuple[str, ...], *, stripes: int = 1) -> int:
        """Free extents on these PVs, on all when none is named; those that an LV of so many stripes can have."""
        if stripes > 1:
            return stripes * min((self.free_by_pv[pv] for pv in self.striped_over(pvs, stripes)), default=0)
        return sum(self.free_by_pv.get(pv, 0) for pv in pvs) if pvs else self.free_extents

    def roomy(self, pvs: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these PVs, each once, that have free extents and that the kernel has not given up."""
        return tuple(pv for pv in dict.fromkeys(pvs) if self.free_by_pv.get(pv) and not self.has_failed(pv))

    def striped_over(self, pvs: tuple[str, ...], stripes: int) -> tuple[str, ...]:
        """Those of these PVs, of all when none is named, that so many stripes go on; none where too few have room.

        The ones with the most room, in the order given; none that the kernel has given up. Every stripe is as long as
        the others: what the fullest of them has free is what each can have.
        """
        able = self.roomy(pvs or tuple(self.free_by_pv))
        chosen = sorted(able, key=lambda pv: -self.free_by_pv[pv])[:stripes]
        return tuple(pv for pv in able if pv in chosen) if len(chosen) == stripes else ()

    def has_failed(self, pv: str) -> bool:
        """Whether the kernel has given up the disk of this PV."""
        queue = self.queues.get(pv)
        return queue is not None and queue.failed

    def spare_on(self, pvs: tuple[str, ...], *, stripes: int = 1) -> int:
        """The same without the group's last tenth: what may be taken unasked. A thin pool of it may have to grow."""
        spare = max(0, min(self.free_on(pvs, stripes=stripes), self.free_extents - self.all_extents // 10))
        return spare // stripes * stripes


_WHOLE = PurePosixPath("/")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A mounted file system, and which block device it is on."""

    path: Path
    device: DeviceNumber
    filesystem: str  # xfs, ext4, …
    root: PurePosixPath = _WHOLE  # the folder of the file system that is seen at `path`: a bind mount's
    elsewhere: tuple[str, ...] = ()  # its options that put a part of it on another device: `logdev=/dev/sdb1`

    def inside(self, path: Path) -> PurePosixPath:
        """Where a (resolved) path below the mount point is in the file system itself, wherever that is mounted."""
        return self.root.relative_to("/") / path.relative_to(self.path)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """By what a file system knows a file or folder, whatever its name: the same on the live volume and a snapshot."""

    inode: int
    generation: int | None  # another one when the inode's number was used again; None where it is not told


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """A snapshot that is about to be taken: all that is decided before the lock is asked for."""

    origin: Volume
    name: str
    run_id: str
    extents: int  # of the COW area; a thin snapshot has none and takes no extents
    size: int  # of the COW area, or of the data of the pool
    chunk_size: int
    pvs: tuple[str, ...] = ()  # where the COW area goes; anywhere when empty
    displaced: str = ""  # why it does not go on the PVs that the job names
    striped_over: tuple[str, ...] = ()  # the PVs that have a stripe of it each; linear when empty
    chunk_reason: str = ""  # why the chunks are of this size
    size_reason: str = ""  # why the COW area is as large as it is; empty where the job says it
    left_aside: str = ""  # why what a probe recommends is not followed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A volume snapshot as it was confirmed by its device-mapper uuid. It lives for hours at most."""

    origin: Volume
    name: str
    uuid: str  # device-mapper's, LVM-VGUUIDLVUUID: what its usage is asked by
    run_id: str
    path: Path
    device: DeviceNumber
    size: int  # of the COW area, or of the data of the pool
    chunk_size: int

    @property
    def full_name(self) -> str:
        """`VG/LV`, as LVM's commands take it."""
        return f"{self.origin.vg}/{self.name}"


@dataclass(frozen=True, slots=True)
class CowUsage:
    """The COW area's fill as device-mapper reports it; of a thin snapshot the pool's, by whomever it is filled."""

    intact: bool  # False: invalid, overflowed or merge failed, or its pool gives out: the run must end
    used: int = 0  # bytes, metadata included
    total: int = 0
    metadata: int = 0  # of what is used; a pool's lies apart
    state: str = "active"  # device-mapper's own word where it is not intact
    metadata_fill: float = 0.0  # of a pool's metadata, 0.0 to 1.0

    @property
    def fill(self) -> float:
        """0.0 to 1.0."""
        return self.used / self.total if self.total else 0.0
