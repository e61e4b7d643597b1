"""The words of `backupd bench`: which layouts are compared, on which loads, and what was found. Frozen values, no I/O.

The same conventions as in all of `vocabulary`: sizes are int bytes, durations float seconds, rates bytes a second,
shares of processor time 0 to 1. The four published reports that are repeated are E2 to E5; the documentation names
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backupd.vocabulary.records import RunError, RunStatus, lasted
from backupd.vocabulary.scratch_layouts import KIB, MIB, Medium, Operation, ScratchLayout


class PublishedTable(StrEnum):
    """The published tables that are repeated."""

    E2 = "e2"  # linear beside striped: write, rewrite, read, random reads
    E3 = "e3"  # how sequential throughput scales with the number of stripes
    E4 = "e4"  # how many writers it takes for striping to pay
    E5 = "e5"  # record sizes, by a striped volume and by an mdadm array of the same disks


@dataclass(frozen=True, slots=True)
class Cell:
    """One load: what a figure of the matrix is the figure of."""

    operation: Operation
    record: int  # bytes of a request
    threads: int = 1
    medium: Medium = Medium.FILE


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a load reached on one layout: medians over the repeats."""

    layout: str  # `ScratchLayout.name`
    operation: Operation
    record: int
    threads: int
    medium: Medium
    iops: float
    bytes_per_second: float
    spread: float  # (highest - lowest) ÷ median of the throughput, over the repeats
    repeats: int
    latency_p95_ms: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)  # disk -> bytes that it moved ÷ bytes of the load
    system: float | None = None  # share of the processors' time, 0 to 1
    iowait: float | None = None

    @property
    def cell(self) -> Cell:
        """The load that this is the figure of."""
        return Cell(self.operation, self.record, self.threads, self.medium)


@dataclass(frozen=True, slots=True)
class DiskSample:
    """What the disks and the processors did in the second (or so) before this instant."""

    at_seconds: float  # since the bench began to measure
    layout: str
    step: str  # what was being done, in words
    read: Mapping[str, float]  # disk -> bytes a second
    written: Mapping[str, float]
    system: float  # share of the processors' time, 0 to 1
    iowait: float


@dataclass(frozen=True, slots=True)
class SnapshotFigures:
    """What a layout means for backups; measured by a probe, which is a run of its own in the catalogue."""

    layout: str
    probe_run_id: str
    chunk_size: int  # of the snapshot
    origin_read: float | None  # bytes a second, sequentially, while there was no snapshot
    snapshot_read: float | None  # the same of the snapshot, as a copy reads it
    penalty: float | None  # of the first writes: above 1 is slower


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How it was measured. What differs here makes two benches differ."""

    vg: str  # in whose free extents the scratch volumes were; empty: on disks of their own
    disks: tuple[str, ...]  # PVs, or the disks that were named
    filesystem: str
    file_size: int  # bytes that the loads work on
    volume_size: int  # bytes of each scratch volume
    seconds: float  # of a window
    repeat: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchHost:
    """On what it was measured."""

    kernel: str
    lvm: str
    sysbench: str
    fio: str | None  # None: it was not used
    mdadm: str | None
    memory: int  # bytes of RAM: a file that fits in it says nothing where caches are not bypassed
    processors: int


@dataclass(frozen=True, slots=True)
class LayoutBench:
    """The whole result of one bench."""

    host: BenchHost
    settings: BenchSettings
    layouts: tuple[ScratchLayout, ...]  # in the order in which they were measured
    cells: tuple[CellResult, ...]
    samples: tuple[DiskSample, ...] = ()
    snapshots: tuple[SnapshotFigures, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader must know to judge the figures

    def find(self, layout: str, cell: Cell) -> CellResult | None:
        """The figure of this load on this layout; None where it was not measured."""
        return next((one for one in self.cells if one.layout == layout and one.cell == cell), None)


@dataclass(frozen=True, slots=True)
class BenchRecord:
    """A bench as the catalogue keeps it; `bench` is None for one that did not finish."""

    run_id: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    error: RunError | None = None
    bench: LayoutBench | None = None

    @property
    def seconds(self) -> float | None:
        """From its begin to its end; see `lasted`."""
        return lasted(self.started_at, self.ended_at, self.error)


# --- what is asked for, and what will be done ------------------------------------------------------------------------

RECORDS = tuple(size * KIB for size in (1, 8, 32, 64, 128, 512, 1024, 4096, 8192, 16384))  # those of E5: bytes
SMALL_RECORD = 16 * KIB  # InnoDB's page
LARGE_RECORD = 1 * MIB  # what a copy reads at once

# Bytes of a scratch volume by its file system, its journal within: XFS's takes 64 MiB of them, ext4's 4 MiB and more.
# mkfs.xfs refuses less since xfsprogs 5.19 (`validate_supported` in xfs_mkfs.c); below 8 MiB ext4 has no journal.
LEAST_SIZE = {"xfs": 300 * MIB, "ext4": 16 * MIB}


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is to be compared. Either `vg` is named, or `array_disks`."""

    vg: str = ""
    pvs: tuple[str, ...] = ()  # empty: every PV of the group that has room
    array_disks: tuple[str, ...] = ()  # empty disks for a scratch volume group and an mdadm array, in turn
    overwrite_leftovers: bool = False  # nobody needs data in no known format on `array_disks`
    widths: tuple[int, ...] = ()  # of striped layouts; empty: from 2 to as many as there are PVs
    stripe_sizes: tuple[int, ...] = (64 * KIB,)  # LVM's default
    filesystem: str = "xfs"
    file_size: int = 128 * MIB
    seconds: float = 1.0  # of a window
    repeat: int = 3
    tables: tuple[PublishedTable, ...] = ()  # empty: E2, E3 and E4, and for `array_disks` E5
    records: tuple[int, ...] = RECORDS  # of E5
    threads: tuple[int, ...] = ()  # of E4; empty: 1, 2 and twice the widest layout. E5 has the most of them
    raw: bool = False  # also E3 on the volume's device, by fio
    snapshots: bool = True  # also what each layout means for backups
    max_load: float | None = None  # the load average above which nothing is begun


@dataclass(frozen=True, slots=True)
class PlannedLayout:
    """One scratch volume, and the loads that it gets."""

    layout: ScratchLayout
    cells: tuple[Cell, ...]
    size: int = 0  # bytes: whole extents on each stripe; 0 is an array, which takes its disks whole
    seconds: float = 0.0  # about how long it takes, on disks as fast as a bench takes them to be


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Everything that a bench will do, decided before it does it, and told before it is asked whether it may."""

    vg: str  # empty: scratch groups and arrays on `disks`
    disks: tuple[str, ...]
    volumes: tuple[PlannedLayout, ...]  # one after the other
    filesystem: str
    file_size: int
    volume_size: int  # bytes of the largest
    taken: int  # bytes of the group at once, at the most: the largest, and what a snapshot of it takes beside it
    disk_rate: int  # bytes a second that each disk is taken to write; the next two stand on it
    written: int  # bytes in all, at the most
    seconds: float  # about how long it takes
    snapshots: bool
    notes: tuple[str, ...] = ()  # what was asked for and is left out, and why
