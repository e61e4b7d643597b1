"""The words of `backupd probe`: what is asked of a volume, and what was found. Frozen values, no I/O.

The same conventions as in `model`: sizes are int bytes, durations float seconds, instants aware `datetime` in UTC, and
a penalty is baseline divided by what was measured: above 1 is slower.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backupd.model import Layout, Reason, RunError, RunStatus

_DECAY_WINDOWS = 8


class Mode(StrEnum):
    """How the probe's file is used. The first four write, and are the rows of the table that made LVM's penalty known.

    Source: "Disaster: LVM performance in snapshot mode", Percona's blog, 2009.
    """

    DIRECT = "direct"  # O_DIRECT random writes
    SYNC = "sync"  # random writes, a sync after each
    FSYNC_100 = "fsync-100"  # random writes, an fsync every 100, as a buffer pool flushes
    REWRITE = "rewrite"  # O_DIRECT random writes to a small area, again and again: the decay
    READ = "read"  # O_DIRECT random reads of the origin
    READ_SNAPSHOT = "read-snapshot"  # the same of the snapshot
    SCAN = "scan"  # O_DIRECT sequential reads of the origin
    SCAN_SNAPSHOT = "scan-snapshot"  # the same of the snapshot, as a copy sees it
    PASSIVE = "passive"  # no load of ours: what the kernel counts of everybody else's writes

    @property
    def writes(self) -> bool:
        """Whether it is one of the write loads that `--modes` may name."""
        return self in (Mode.DIRECT, Mode.SYNC, Mode.FSYNC_100, Mode.REWRITE)


class Stage(StrEnum):
    """When a row was measured; its name in the table's JSON is `phase`."""

    BASELINE = "baseline"  # before there was a snapshot
    FIRST = "first"  # the first window after it was taken
    SETTLED = "settled"  # the last windows, when the penalty fell no more or the wait was over
    COPYING = "copying"  # while the snapshot was read by a copy
    FILLED = "filled"  # after every chunk of the probe's file had been copied on write


@dataclass(frozen=True, slots=True)
class FileLoad:
    """What is done to the probe's file in one window."""

    mode: Mode
    threads: int = 1
    block_size: int = 16 << 10  # bytes; InnoDB's page
    area: int = 8 << 20  # bytes of the file, from its start, that it is done to; a multiple of the block size
    write_share: float = 1.0  # of the requests, for the modes that write: the others are reads


@dataclass(frozen=True, slots=True)
class DiskCounters:
    """What the kernel has counted of a block device since it was made.

    Source: the kernel's Documentation/block/stat.rst.
    """

    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    write_bytes: int = 0
    read_seconds: float = 0.0  # that requests spent waiting and being served, summed
    write_seconds: float = 0.0
    busy_seconds: float = 0.0  # that at least one request was under way

    def since(self, before: "DiskCounters") -> "DiskCounters":
        """What was counted between two looks."""
        return DiskCounters(
            self.reads - before.reads,
            self.read_bytes - before.read_bytes,
            self.writes - before.writes,
            self.write_bytes - before.write_bytes,
            self.read_seconds - before.read_seconds,
            self.write_seconds - before.write_seconds,
            self.busy_seconds - before.busy_seconds,
        )

    def plus(self, other: "DiskCounters") -> "DiskCounters":
        """What was counted of both."""
        return DiskCounters(
            self.reads + other.reads,
            self.read_bytes + other.read_bytes,
            self.writes + other.writes,
            self.write_bytes + other.write_bytes,
            self.read_seconds + other.read_seconds,
            self.write_seconds + other.write_seconds,
            self.busy_seconds + other.busy_seconds,
        )

    @property
    def write_latency_ms(self) -> float | None:
        """The mean that a write took; None where there was none."""
        return 1000 * self.write_seconds / self.writes if self.writes else None


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests that a block device has taken and not answered yet."""

    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """How long the processors, all together, have been doing what: seconds.

    Source: the kernel's Documentation/filesystems/proc.rst, `/proc/stat`.
    """

    total: float = 0.0
    system: float = 0.0  # in the kernel, interrupts included
    iowait: float = 0.0  # idle, while some request to a disk was under way

    def since(self, before: "ProcessorTimes") -> "ProcessorTimes":
        """What was counted between two looks."""
        return ProcessorTimes(self.total - before.total, self.system - before.system, self.iowait - before.iowait)


@dataclass(frozen=True, slots=True)
class PhysicalCost:
    """Why it was slow: what the disks did for what the origin was asked to do, everybody's requests included."""

    reads_per_write: float | None  # physical reads on the PVs, less what the origin was asked to read, per origin write
    writes_per_write: float | None  # physical writes on the PVs per origin write
    cow_chunks_per_second: float | None  # that were copied on write
    shares: Mapping[str, float] = field(default_factory=dict)  # PV -> its share of the physical requests, 0 to 1


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One line of the table: medians over the repeats."""

    mode: Mode
    threads: int
    block_size: int
    chunk_size: int | None  # of the snapshot; None without one
    cow_pvs: tuple[str, ...]  # where the COW area was put; empty: LVM chose
    snapshots: int  # at once
    phase: Stage
    iops: float
    spread: float  # (highest - lowest) ÷ median, over the repeats
    penalty: float | None  # baseline ÷ this; None in baseline rows
    repeats: int = 1
    bytes_per_second: float | None = None
    latency_p95_ms: float | None = None
    physical: PhysicalCost | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One window after the snapshot was taken."""

    at_seconds: float  # since the snapshot, at the window's end
    iops: float
    penalty: float | None
    cow_used: int | None = None  # bytes, of all snapshots that were there
    latency_ms: float | None = None  # of the origin's writes, the kernel's mean


@dataclass(frozen=True, slots=True)
class Curve:
    """How a penalty went: the windows of one repeat in their order."""

    mode: Mode
    threads: int
    chunk_size: int
    cow_pvs: tuple[str, ...]
    snapshots: int
    repeat: int  # counted from 1
    reason: Reason  # why it ended: settled, plateau, max-wait
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class ProbedVolume:
    """What was probed, with everything that a figure depends on."""

    name: str  # VG/LV
    size: int
    layout: Layout
    stripes: int
    stripe_size: int | None
    pvs: tuple[str, ...]
    filesystem: str
    thin: bool
    kernel: str  # as uname says it
    lvm: str
    sysbench: str | None  # None: it was not used


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How it was probed. What differs here makes two probes differ."""

    seconds: float  # of a window
    repeat: int
    block_size: int
    file_size: int
    rewrite_size: int  # the part of the file that `rewrite` writes to
    write_share: float
    chunk_size: int  # where no others were asked for
    cow_pvs: tuple[str, ...]
    cow_size: int  # of each snapshot's COW area, bytes
    threshold: float  # the penalty that counts as settled


@dataclass(frozen=True, slots=True)
class VolumeLayout:
    """How a volume lay, and beside what, when its COW areas were compared. On another layout that tells nothing."""

    volume_uuid: str  # LVM's, as the others
    group_uuid: str
    devices: tuple[str, ...]  # the PVs that the volume lies on
    stripes: int
    stripe_size: int | None
    pvs: Mapping[str, str]  # every PV of the group -> its uuid


@dataclass(frozen=True, slots=True)
class TunedCell:
    """One chunk size in one place, and how fast writes were there: one figure for each round that told one."""

    chunk_size: int
    cow_pvs: tuple[str, ...]  # empty: wherever LVM puts it
    speeds: tuple[float, ...]  # writes a second of one writer, in the order of the rounds; 0: that round told nothing


@dataclass(frozen=True, slots=True)
class Tuning:
    """Chunk sizes and places of the COW area, compared on one volume. What follows from it: `tuning`."""

    made_at: datetime
    layout: VolumeLayout
    cells: tuple[TunedCell, ...]  # the first is what the job would have had without any probe


@dataclass(frozen=True, slots=True)
class Measurement:
    """The whole result of one probe."""

    volume: ProbedVolume
    settings: ProbeSettings
    rows: tuple[ProbeRow, ...]
    curves: tuple[Curve, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader must know to judge the figures
    tuning: Tuning | None = None  # where COW areas were compared to choose one


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """A probe as the catalogue keeps it; `measurement` is None for one that did not come to its end."""

    run_id: str
    job: str | None  # None: a volume was named
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    error: RunError | None = None
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of having snapshots on the volume."""

    chunk_size: int  # bytes
    cow_pvs: tuple[str, ...] = ()  # empty: LVM chooses
    snapshots: int = 1  # at once


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be measured. What is left empty has the defaults that README names."""

    modes: tuple[Mode, ...] = (Mode.DIRECT, Mode.REWRITE)
    threads: tuple[int, ...] = (1,)
    block_size: int = 16 << 10  # InnoDB's page
    file_size: int = 256 << 20
    rewrite_size: int = 4 << 20
    seconds: float = 5.0  # of a window
    repeat: int = 3
    write_share: float = 1.0
    chunk_sizes: tuple[int, ...] = ()
    cow_on: tuple[str, ...] = ()  # PVs; each is a placement of its own, beside the default one
    snapshots: tuple[int, ...] = ()
    reads: bool = False
    scans_only: bool = False  # with `reads`: from start to end alone, and not again when the snapshot has filled
    while_copying: bool = False
    passive: bool = False
    tune: bool = False  # chunk sizes and places of the COW area are compared, to recommend one
    threshold: float = 1.25  # the penalty that counts as settled
    max_wait_seconds: float | None = None  # for one decay; None: eight windows
    max_load: float | None = None  # the load average above which nothing is begun
    max_write_latency_ms: float | None = None  # of the origin's writes, above which the probe gives up

    @property
    def longest_wait_seconds(self) -> float:
        """How long one decay is followed at most."""
        return self.max_wait_seconds if self.max_wait_seconds is not None else _DECAY_WINDOWS * self.seconds
