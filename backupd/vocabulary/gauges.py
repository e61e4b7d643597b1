"""What runs and probes both measure with and go by: loads, the kernel's counters, what a volume was tuned to.

Frozen values, no I/O; the same conventions as in all of `vocabulary`. Apart from `probes`, which no run needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
    threads: int
    block_size: int  # bytes
    area: int  # bytes of the file, from its start, that it is done to; a multiple of the block size
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
        """What was counted between two looks; below 0 where a counter was set back."""
        return DiskCounters(
            self.reads - before.reads,
            self.read_bytes - before.read_bytes,
            self.writes - before.writes,
            self.write_bytes - before.write_bytes,
            _seconds_since(self.read_seconds, before.read_seconds),
            _seconds_since(self.write_seconds, before.write_seconds),
            _seconds_since(self.busy_seconds, before.busy_seconds),
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


_ROUND_SECONDS = 2**32 / 1000  # the kernel counts milliseconds in 32 bits (Documentation/admin-guide/iostats.rst)


def _seconds_since(now: float, before: float) -> float:
    """Back by more than half of what the counter holds is once round: every 12 days where 4 requests are under way."""
    return now - before + (_ROUND_SECONDS if before - now > _ROUND_SECONDS / 2 else 0.0)


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

    user: float = 0.0  # in programs, and what a hypervisor gave to others
    system: float = 0.0  # in the kernel, interrupts included
    idle: float = 0.0
    iowait: float = 0.0  # idle, while some request to a disk was under way

    @property
    def total(self) -> float:
        return self.user + self.system + self.idle + self.iowait

    def since(self, before: "ProcessorTimes") -> "ProcessorTimes":
        """What was counted between two looks. Idle time and I/O wait may go back (proc(5)): that is none."""
        return ProcessorTimes(
            user=max(0.0, self.user - before.user),
            system=max(0.0, self.system - before.system),
            idle=max(0.0, self.idle - before.idle),
            iowait=max(0.0, self.iowait - before.iowait),
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One window after the snapshot was taken."""

    at_seconds: float  # since the snapshot, at the window's end
    iops: float
    penalty: float | None
    cow_used: int | None = None  # bytes, of all snapshots that were there
    latency_ms: float | None = None  # of the origin's writes, the kernel's mean


CowPlace = tuple[tuple[str, ...], int]  # of a COW area: its PVs, any when there are none, and its stripes; 1 is linear


def place_words(pvs: tuple[str, ...], stripes: int) -> str:
    """Where a COW area is, behind "the COW area"."""
    if stripes == 1:
        return f"on {', '.join(pvs) or 'any PV'}"
    if len(pvs) == stripes:
        return f"striped over {', '.join(pvs)}"
    return f"in {stripes} stripes on {', '.join(pvs) or 'any PV'}"


@dataclass(frozen=True, slots=True)
class VolumeLayout:
    """How a volume lay, and beside what, when its COW areas were compared. On another layout that tells nothing."""

    volume_uuid: str  # LVM's, as the others
    group_uuid: str
    devices: tuple[str, ...]  # the PVs that the volume is on
    stripes: int
    stripe_size: int | None
    pvs: Mapping[str, str]  # every PV of the group -> its uuid


@dataclass(frozen=True, slots=True)
class TunedCell:
    """One chunk size in one place, and how fast writes were there: one figure for each round that told one."""

    chunk_size: int
    cow_pvs: tuple[str, ...]  # empty: wherever LVM puts it
    speeds: tuple[float, ...]  # writes a second of one writer, in the order of the rounds; 0: that round told nothing
    stripes: int = 1  # of the COW area; 1: linear

    @property
    def place(self) -> CowPlace:
        """Where the COW area was."""
        return self.cow_pvs, self.stripes


@dataclass(frozen=True, slots=True)
class Tuning:
    """Chunk sizes and places of the COW area, compared on one volume. What follows from it: `cow_area`."""

    made_at: datetime
    layout: VolumeLayout
    cells: tuple[TunedCell, ...]  # the first is what the job would have had without any probe
