"""The words of `backupd probe`: what is asked of a volume, and what was found. Frozen values, no I/O.

The same conventions as in all of `vocabulary`: sizes are int bytes, durations float seconds, instants aware `datetime`
in UTC, and a penalty is baseline divided by what was measured: above 1 is slower.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backupd.vocabulary.gauges import CowPlace, CurvePoint, Mode, Stage, Tuning
from backupd.vocabulary.penalty import Reason
from backupd.vocabulary.records import RunError, RunStatus, lasted
from backupd.vocabulary.volumes import Layout

_DECAY_WINDOWS = 8


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
    cow_stripes: int = 1  # 1: the COW area was linear


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
    cow_stripes: int = 1


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
    cow_stripes: int = 1


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
    """A probe as the catalogue keeps it; `measurement` is None for one that did not finish."""

    run_id: str
    job: str | None  # None: a volume was named
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    error: RunError | None = None
    measurement: Measurement | None = None

    @property
    def seconds(self) -> float | None:
        """From its begin to its end; see `lasted`."""
        return lasted(self.started_at, self.ended_at, self.error)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of having snapshots on the volume."""

    chunk_size: int  # bytes
    cow_pvs: tuple[str, ...] = ()  # empty: LVM chooses
    snapshots: int = 1  # at once
    stripes: int = 1  # of each COW area; 1: linear

    @property
    def place(self) -> CowPlace:
        """Where the COW area goes."""
        return self.cow_pvs, self.stripes


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be measured. What is left empty has the defaults that docs/pages/probe.md names."""

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
