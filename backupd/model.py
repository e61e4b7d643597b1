"""The words of backupd as frozen values: no I/O, no behaviour beyond arithmetic on their own fields.

Sizes are int bytes, durations float seconds from the monotonic clock, instants aware `datetime` in UTC. A ratio is
always baseline divided by what was measured: above 1 is slower.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from backupd.run_section import RunSection


class Phase(StrEnum):
    """Where a run stands. `snapshot` lies inside `lock_hold`; the others follow one another."""

    PREFLIGHT = "preflight"
    BASELINE = "baseline"
    PREFLUSH = "preflush"
    LOCK_WAIT = "lock_wait"
    LOCK_HOLD = "lock_hold"
    SNAPSHOT = "snapshot"
    SETTLE = "settle"
    COPY = "copy"
    RELEASE = "release"
    SEND = "send"  # what waited in the spool
    VERIFY = "verify"


class RunKind(StrEnum):
    """What a run is for."""

    BACKUP = "backup"
    PROBE = "probe"
    BENCH = "bench"


class RunStatus(StrEnum):
    """How a run ended, or that it has not."""

    RUNNING = "running"
    SUCCESS = "success"
    ATTENTION = "attention"
    FAILED = "failed"
    REFUSED = "refused"
    BUSY = "busy"
    CANCELLED = "cancelled"


class Level(StrEnum):
    """How grave a finding is. Only `refused` stops a run."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of the preflight, with what to do about it."""

    name: str
    level: Level
    detail: str
    hint: str = ""


# --- volumes and snapshots -------------------------------------------------------------------------------------------


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
        """Those that say how it lies on disks: of a thin volume its pool's."""
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
        """The PVs that it lies on, each once, in order of first use."""
        data = (device for segment in self.physical_segments for device in segment.devices)
        beside = self.pool.metadata_devices if self.pool is not None else ()
        before = self.cache.devices if self.cache is not None else ()
        return tuple(dict.fromkeys((*data, *beside, *before)))


RUN_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,60}")  # it goes into an LVM name, a tag and a path
AUTO: Final = "auto"
Auto = Literal["auto"]  # what a person leaves to backupd


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
    pv_uuids: Mapping[str, str] = field(default_factory=dict)  # of every PV, closed ones too; as LVM calls it -> uuid

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
    """A mounted file system, and which block device it lies on."""

    path: Path
    device: DeviceNumber
    filesystem: str  # xfs, ext4, …
    root: PurePosixPath = _WHOLE  # the folder of the file system that is seen at `path`: a bind mount's

    def inside(self, path: Path) -> PurePosixPath:
        """Where a (resolved) path below the mount point lies in the file system itself, wherever that is mounted."""
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


# --- the server ------------------------------------------------------------------------------------------------------


class Flavour(StrEnum):
    """Whose server it is."""

    MARIADB = "mariadb"
    MYSQL = "mysql"


class Cluster(StrEnum):
    """Kinds of clusters in which a lock on one member is felt by the others."""

    GROUP_REPLICATION = "group-replication"
    GALERA = "galera"


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """How far one replication channel had *applied* (not: received) its source's binlog."""

    channel: str
    source_log_file: str
    source_log_offset: int
    gtid: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the server stood in its binlog and as a replica; all None where the binlog is off."""

    binlog_file: str | None = None
    binlog_offset: int | None = None
    gtid: str | None = None
    replicas: tuple[ReplicaPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class DataPath:
    """A file or folder that the server writes, and whether a snapshot without it is no backup."""

    role: str  # datadir, redo, undo, doublewrite, system tablespace, aria log, tablespace, symlink, binlog, …
    path: Path
    must_share: bool  # must lie on the snapshotted volume


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What kind of server it is, and the settings that a restored copy needs to start."""

    flavour: Flavour
    version: str  # as the server says it
    version_number: tuple[int, int, int]
    datadir: Path
    socket: Path | None
    binlog_basename: Path | None  # None: the binlog is off
    binlog_expire_seconds: int | None  # None: kept for ever
    read_only: bool
    is_replica: bool
    redo_logging: bool
    page_size: int
    settings: Mapping[str, str] = field(default_factory=dict)  # server variables recorded for the drill
    cluster: Cluster | None = None  # of which it is a member


@dataclass(frozen=True, slots=True)
class Channel:
    """One replication channel of a replica, as it runs now."""

    name: str  # empty: the default one
    receiving: bool  # its I/O thread runs
    applying: bool  # its SQL thread runs
    lag_seconds: float | None  # None where it is unknown: a thread stands still
    by_gtid: bool  # it finds its place by GTID: file and offset do not matter
    until: bool  # it is to stop by itself at a position that a new START would forget


@dataclass(frozen=True, slots=True)
class Replication:
    """What a replica does beside serving its clients."""

    channels: tuple[Channel, ...]
    workers: int  # that apply in parallel; 0: the SQL thread applies by itself
    logs_updates: bool  # what it applies is in its own binlog too
    open_temporary_tables: int  # of its appliers: they are in no snapshot, and later events may need them


@dataclass(frozen=True, slots=True)
class Membership:
    """How a member stands in its cluster."""

    cluster: Cluster
    members: int
    state: str  # the cluster's own word: ONLINE, Synced, Donor/Desynced, …
    primary: bool  # clients may write to it
    desynced: bool = False  # Galera's: an administrator has told the others not to wait for it


@dataclass(frozen=True, slots=True)
class Blocker:
    """A statement that has run for long and that a lock would wait behind."""

    connection_id: int
    user: str
    seconds: float
    statement: str  # cut to 100 characters


class PreflushEnd(StrEnum):
    """Why a run waited no longer for the dirty pages to be written."""

    FEW = "few"  # next to none are left
    STEADY = "steady"  # they hardly fell any more
    LIMIT = "limit"  # it had waited for as long as the job lets it


@dataclass(frozen=True, slots=True)
class Preflush:
    """What it brought to have the server write its dirty pages before the lock."""

    pages_before: int
    pages_after: int
    seconds: float
    ended: PreflushEnd


@dataclass(frozen=True, slots=True)
class LockReceipt:
    """What the lock cost, and how it was proven."""

    strategy: str
    tries: int
    wait_seconds: float  # first lock statement sent, to last one granted, over all tries
    hold_seconds: float  # last lock statement granted, to unlock returned
    proof: str  # "metadata-locks", or "session and position"; "none" where nothing proves it, or nothing was locked
    lsn: int | None = None  # InnoDB's log sequence number while locked
    position_seconds: float = 0.0  # of the hold: where the server stands was read
    flush_seconds: float = 0.0  # of the hold: the engines wrote their logs, and up to where was read
    proof_seconds: float = 0.0  # of the hold: what proves it was read, and who waited was counted
    unlock_seconds: float = 0.0  # of the hold: from the unlock's being sent for to its answer
    stalled: int | None = None  # statements of others, reads aside, under way at the unlock; None: nobody counted


# --- penalty and verdict ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """One short sysbench run against the probe file."""

    seconds: float
    iops: float
    bytes_written: int
    latency_avg_ms: float
    latency_p95_ms: float
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known at one instant while the gate watched."""

    at_seconds: float  # since the snapshot was taken; negative before it
    stage: str  # baseline | settle | copy
    iops: float | None = None  # None: no probe window here, only the COW area was read
    ratio: float | None = None  # baseline iops ÷ iops
    latency_p95_ms: float | None = None
    probe_bytes: int = 0  # written by the probe's window
    cow_used: int | None = None  # bytes
    cow_rate: float | None = None  # bytes a second of first writes that were not the probe's
    replica_lag_seconds: float | None = None
    write_latency_ms: float | None = (
        None  # of everybody's writes to the origin since the last sample, the kernel's mean
    )


@dataclass(frozen=True, slots=True)
class PaceChange:
    """A change of the speed at which the snapshot is read, and why."""

    at_seconds: float  # since the snapshot was taken
    share: float  # of full speed, 0 to 1
    bytes_per_second: int | None  # about; None before anything was read
    reason: str


class Outcome(StrEnum):
    """What the settle gate decided."""

    WAIT = "wait"
    START = "start"
    GIVE_UP = "give-up"


class Reason(StrEnum):
    """Why it decided so."""

    SETTLED = "settled"
    PLATEAU = "plateau"
    MAX_WAIT = "max-wait"
    COW_SHORT = "cow-short"
    LIMIT = "limit"
    DISABLED = "disabled"
    NO_DATA = "no-data"
    SETTLING = "settling"  # only with `wait`


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the settle gate decided, why, in which words, and how long that took."""

    outcome: Outcome
    reason: Reason
    detail: str = ""
    waited_seconds: float = 0.0


# --- what is stored --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of a stored object that can be checked by itself. An object's frames follow one another without gaps.

    Where nothing is encrypted it is one zstd frame, which can be read by itself as well.
    """

    plain_bytes: int  # of the tar stream
    stored_bytes: int
    stored_sha256: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a backup on its target: a tar stream in zstd frames, encrypted by age where its name ends so."""

    name: str
    plain_bytes: int
    stored_bytes: int
    plain_sha256: str
    stored_sha256: str
    files: int
    frames: tuple[Frame, ...]

    @property
    def encrypted(self) -> bool:
        """Only the holder of an identity can read it; whether it is whole, everybody can tell."""
        return self.name.endswith(".age")


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """What a target says of a backup that lies there: no digest is compared for it."""

    job: str
    backup_id: str
    finished: bool  # it has a manifest
    at: datetime  # by the storage's clock where it has one: when its manifest, or else its newest object, was written


@dataclass(frozen=True, slots=True)
class Backup:
    """A verified set of objects on a target. A run leaves one on each of its targets."""

    target: str
    location: str
    bytes_read: int
    bytes_stored: int
    files: int
    sha256: str  # of the first object as stored: what `sha256sum` says of the file
    verified_at: datetime | None = None  # since then all of it was read back and found equal
    broken: str = ""  # what was found wrong with it; empty: nothing
    removed_at: datetime | None = None
    removed_because: str = ""
    read_frames: int = 0  # by the rounds of verification that have begun anew since: where the next one begins
    reading_since: datetime | None = None  # when the first of these rounds began

    @property
    def is_there(self) -> bool:
        """It can be restored, by all that is known of it."""
        return self.removed_at is None and not self.broken


@dataclass(frozen=True, slots=True)
class LastCopy:
    """How far a copy came, complete or not, and in which time."""

    bytes_read: int
    of_bytes: int  # that all of it had
    used_bytes: int  # of the volume's file system then
    seconds: float

    def expected_seconds(self, used_bytes: int) -> float | None:
        """What a whole copy takes now that so much is used; None where it was over before it had begun."""
        if not self.bytes_read or not self.used_bytes:
            return None
        return self.seconds * (self.of_bytes / self.bytes_read) * (used_bytes / self.used_bytes)


@dataclass(frozen=True, slots=True)
class SnapshotLife:
    """What a run's snapshot filled of its COW area, for as long as it was used."""

    chunk_size: int
    filled: int  # bytes
    seconds: float


READ_BACK = "read-back:"  # begins the stage in which a target's copy is read back


SPOOL_STAGE = "spool"  # of a copy: writing what waits until the snapshot is gone


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one stage of a copy worked: bytes that it took, and the seconds in which it was neither idle nor waiting."""

    stage: str  # read, digest-spool, spool, read-spool, digest, compress, encrypt, digest-stored, write:TARGET, …
    bytes: int
    busy_seconds: float

    @property
    def rate(self) -> float | None:
        """Bytes a second that it could do by itself; None where that is unknown."""
        return self.bytes / self.busy_seconds if self.busy_seconds else None

    @property
    def of_copy(self) -> bool:
        """It worked while the snapshot was there; each target is read back afterwards."""
        return not self.stage.startswith(READ_BACK)


# --- what it cost ----------------------------------------------------------------------------------------------------


class Counted(StrEnum):
    """What stands for a transaction among a server's counters."""

    LOGGED = "logged"  # what went through the binlog's cache
    COMMITS = "commits"  # COMMIT statements: the binlog is off
    STATEMENTS = "statements"  # writing statements, where clients hardly ever send a COMMIT


@dataclass(frozen=True, slots=True)
class Losses:
    """Transactions that a server did while a backup was taken, and would have done, by its own counters."""

    counted: Counted
    seconds: float  # of the time from the lock to the snapshot's release, what the counters cover
    rate_before: float  # a second
    rate_after: float | None  # None: it was not looked at for long enough
    done: int
    noise: float  # transactions: a difference up to this may be chance

    @property
    def expected(self) -> float:
        """What it would have done."""
        return self.rate_before * self.seconds

    @property
    def lost(self) -> float:
        """What it did not do; 0 where that cannot be distinguished from chance."""
        difference = self.expected - self.done
        return difference if difference > self.noise else 0.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What the snapshot of one run cost, from the lock to its release. What could not be measured is None."""

    seconds: float
    penalty_seconds: float | None = None  # of writing: see `bill.penalty_seconds`
    copied_on_write: int | None = None  # bytes
    disks: int = 0  # that the origin lies on
    disk_seconds: float | None = None  # that these were busy, summed, whoever used them
    disk_read_seconds: float | None = None  # that reads of them waited and were served, summed, whoever read


# --- the record ------------------------------------------------------------------------------------------------------


class HoldingKind(StrEnum):
    """Kinds of things on the host that must be given back."""

    SNAPSHOT = "snapshot"
    MOUNT = "mount"
    STAGING = "staging"
    PROBE_FILES = "probe-files"
    PARTIAL = "partial-objects"
    CHILD = "child-process"
    APPLIER = "replica-applier"
    FLUSH_SETTINGS = "flush-settings"  # of a server that was told to write its dirty pages
    UPLOAD = "upload"
    SPOOL = "spool"  # the folder of one run in it
    FILESYSTEM = "file-system"  # that a restore fills
    SCRATCH_VOLUME = "scratch-volume"
    SCRATCH_GROUP = "scratch-group"  # a volume group on disks that a person named
    SCRATCH_ARRAY = "scratch-array"  # an mdadm array on them


@dataclass(frozen=True, slots=True)
class Holding:
    """Something on the host that must be given back, told so that a later process can find it."""

    kind: HoldingKind
    name: str  # VG/LV, VG, mount point, folder, backup id, array, or pid
    detail: Mapping[str, str] = field(default_factory=dict)  # what proves it ours: tag, uuid, start time, target


@dataclass(frozen=True, slots=True)
class RunError:
    """The error that ended a run, for machines and for people."""

    code: str
    message: str
    hint: str
    exit_status: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What the catalogue keeps of a snapshot. `layout`, `stripes` and `stripe_size` describe the origin."""

    name: str
    volume: str
    layout: Layout
    stripes: int
    stripe_size: int | None
    chunk_size: int
    cow_size: int
    cow_used_peak: int | None = None
    pool: str | None = None  # VG/POOL of a thin origin: sizes are the pool's then; None: a COW area of its own
    chunk_reason: str = ""  # why the chunks are of this size
    cow_extended: int = 0  # bytes of `cow_size` that were added while the snapshot was used
    size_reason: str = ""  # why the COW area was as large as it was at first; empty where the job said it
    redo_left_out: int = 0  # bytes of the redo log that are a hole in the backup: no recovery looks at them


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of a drill."""

    name: str
    ok: bool
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Drill:
    """A proof, or its failure: the backup was restored and a server was started on it."""

    run_id: str
    ok: bool
    checks: tuple[Check, ...]
    seconds: float
    at: datetime
    position: Position | None = None  # where the recovered server stood, of a backup that was taken without a lock
    undecided: str = ""  # the limit of its own that it ran into; then nothing was found out. Empty: it has an answer

    @property
    def failed(self) -> bool:
        """It has an answer, and that is no proof."""
        return not self.ok and not self.undecided


@dataclass(frozen=True, slots=True)
class Pin:
    """A person wants this backup to be kept whatever retention says."""

    note: str
    at: datetime


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything that the catalogue knows of one run."""

    run_id: str
    job: str
    host: str
    machine: str  # that took it: the name of its identity, and of its folder on every target
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    pid: int | None = None
    phases: Mapping[Phase, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    position: Position | None = None
    lock: LockReceipt | None = None
    snapshot: SnapshotFacts | None = None
    samples: tuple[Sample, ...] = ()
    backups: tuple[Backup, ...] = ()  # one for each target that has it, in the job's order
    error: RunError | None = None
    attention: tuple[str, ...] = ()  # what a person should look at although the backup is good
    drills: tuple[Drill, ...] = ()
    kind: RunKind = RunKind.BACKUP
    derived: bool = False  # the position was found by a drill: nothing was locked
    throughput: tuple[Throughput, ...] = ()  # of the copy
    pace: tuple[PaceChange, ...] = ()  # how fast the snapshot was read; without those of no consequence
    pin: Pin | None = None
    bill: Bill | None = None  # of a run that asked for its lock, whatever became of it
    losses: Losses | None = None
    preflush: Preflush | None = None  # of a run whose job has `lock.preflush`

    @property
    def backup(self) -> Backup | None:
        """The one to read first: the first that is still there; None where there is none."""
        return next((backup for backup in self.backups if backup.is_there), None)

    @property
    def proven_at(self) -> datetime | None:
        """When a drill last proved it."""
        return max((drill.at for drill in self.drills if drill.ok), default=None)

    @property
    def doubted(self) -> bool:
        """The last drill that had an answer failed."""
        return next((drill.failed for drill in reversed(self.drills) if not drill.undecided), False)


# --- what is written beside the objects ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup consists of and what it takes to start a server on it; written last, readable JSON."""

    run_id: str
    job: str
    host: str
    machine: str
    created_at: datetime
    objects: tuple[StoredObject, ...]
    server: ServerFacts
    position: Position
    lsn: int | None
    layout: str  # of the origin: a `Layout`, or a later backupd's word
    volume: str  # VG/LV of the origin
    datadir: str  # relative to the restored folder: where the server's datadir is in it
    run: RunSection  # what the catalogue knew of the run then
    binlog: str | None = (
        None  # relative to the restored folder: the binlog that the position names; None where it is off
    )
    canary: str | None = None  # schema.table that holds the canary rows, None where it was off
    locked: bool = True  # False: an image as of a power cut; its position is known only once it has been recovered
    filesystem: str = ""  # of the snapshotted volume: xfs, ext4
    recipients: tuple[str, ...] = ()  # age's public keys that it was encrypted for; empty: it is readable by all
    audit_head: str = ""  # of the catalogue's audit chain when the manifest was written


# --- retention -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """What retention says of one backup on one target, and why."""

    backup_id: str
    keep: bool
    reason: str
