"""From windows to the rows of the table. Pure.

Knows: what belongs into one row, medians and spreads, what the kernel's counters say of a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode, Stage
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.probes import PhysicalCost, ProbeRow, Variant

_BASELINE_OF = {Mode.READ_SNAPSHOT: Mode.READ, Mode.SCAN_SNAPSHOT: Mode.SCAN}


@dataclass(frozen=True, slots=True)
class CounterLook:
    """The counters at one instant: of the origin, of each PV, and how much of the COW areas was in use."""

    at: float  # seconds
    origin: DiskCounters
    pvs: Mapping[str, DiskCounters]
    cow_used: int | None = None  # bytes, metadata left out


@dataclass(frozen=True, slots=True)
class Measured:
    """One window and what the disks did meanwhile."""

    window: Window
    before: CounterLook
    after: CounterLook


@dataclass(frozen=True, slots=True)
class _Key:
    mode: Mode
    threads: int
    block_size: int
    variant: Variant | None
    phase: Stage


@dataclass
class Tally:
    """Collects windows, and makes a row of those that belong together: one per repeat."""

    _measured: dict[_Key, list[Measured]] = field(default_factory=dict)

    def add(self, load: FileLoad, variant: Variant | None, phase: Stage, measured: Measured) -> None:
        """A window of this load, on these snapshots (None: without any)."""
        key = _Key(load.mode, load.threads, load.block_size, variant, phase)
        self._measured.setdefault(key, []).append(measured)

    def penalty(self, load: FileLoad, measured: Measured) -> float | None:
        """Of one window, against the median of the baselines so far; None before there is one."""
        baseline, speed = self._baseline(load.mode, load.threads, load.block_size), speed_of(load.mode, measured)
        return baseline / speed if baseline and speed else None

    def latency_before(self, load: FileLoad) -> float | None:
        """Milliseconds that somebody's write took without a snapshot, for a load that is not ours."""
        speed = self._baseline(load.mode, load.threads, load.block_size)
        return 1000 / speed if speed else None

    def rows(self) -> tuple[ProbeRow, ...]:
        """In the order in which their first windows came; the baseline of each load before its other rows."""
        order = sorted(self._measured, key=lambda key: (list(Mode).index(key.mode), key.threads))
        return tuple(self._row(key, self._measured[key]) for key in order)

    def _row(self, key: _Key, measured: Sequence[Measured]) -> ProbeRow:
        speeds = [speed_of(key.mode, one) for one in measured]
        middle = median(speeds)
        baseline = self._baseline(key.mode, key.threads, key.block_size)
        moved = [(one.window.bytes_written + one.window.bytes_read) / one.window.seconds for one in measured]
        variant = key.variant
        return ProbeRow(
            mode=key.mode,
            threads=key.threads,
            block_size=key.block_size,
            chunk_size=variant.chunk_size if variant else None,
            cow_pvs=variant.cow_pvs if variant else (),
            snapshots=variant.snapshots if variant else 0,
            phase=key.phase,
            iops=median(one.window.iops for one in measured),
            spread=(max(speeds) - min(speeds)) / middle if middle else 0.0,
            penalty=baseline / middle if key.phase is not Stage.BASELINE and baseline and middle else None,
            repeats=len(measured),
            cow_stripes=variant.stripes if variant else 1,
            bytes_per_second=median(moved),
            latency_p95_ms=_latency(key.mode, measured),
            physical=physical_cost(
                measured,
                variant,
                write_size=self._write_size(key.mode, key.threads, key.block_size),
                copying=key.phase is Stage.COPYING,
            ),
        )

    def _write_size(self, mode: Mode, threads: int, block_size: int) -> float | None:
        """Mean bytes of a write to the origin while there was no snapshot; None where there was no write."""
        before = self._without_snapshot(mode, threads, block_size)
        wrote = [one.after.origin.since(one.before.origin) for one in before]
        writes = sum(one.writes for one in wrote)
        return sum(one.write_bytes for one in wrote) / writes if writes else None

    def _baseline(self, mode: Mode, threads: int, block_size: int) -> float | None:
        """The median speed without a snapshot."""
        before = self._without_snapshot(mode, threads, block_size)
        return median(speed_of(mode, one) for one in before) if before else None

    def _without_snapshot(self, mode: Mode, threads: int, block_size: int) -> Sequence[Measured]:
        """The windows that a load's others are compared with: for reads of a snapshot, those of the origin."""
        return self._measured.get(_Key(_BASELINE_OF.get(mode, mode), threads, block_size, None, Stage.BASELINE), ())


def physical_cost(
    measured: Sequence[Measured], variant: Variant | None, *, write_size: float | None, copying: bool = False
) -> PhysicalCost:
    """What the disks did for what was asked of the origin, by everybody, summed over these windows.

    `write_size` is how large a write to the origin was without a snapshot, in bytes. With one the kernel splits writes
    at the chunks and counts the parts (seen in 6.1: four writes for 16 KiB on chunks of 4 KiB), so that writes are told
    by their bytes. While a copy reads the snapshot its reads are among the disks', and reads per write say nothing.
    """
    origin = [one.after.origin.since(one.before.origin) for one in measured]
    disks = {
        pv: [one.after.pvs[pv].since(one.before.pvs[pv]) for one in measured]
        for pv in (measured[0].after.pvs if measured else ())
    }
    reads = sum(one.reads for one in origin)
    writes = sum(one.write_bytes for one in origin) / write_size if write_size else 0.0
    disk_writes = sum(one.writes for each in disks.values() for one in each)
    disk_reads = sum(one.reads for each in disks.values() for one in each)
    requests = {pv: sum(one.reads + one.writes for one in each) for pv, each in disks.items()}
    total = sum(requests.values())
    return PhysicalCost(
        reads_per_write=max(0, disk_reads - reads) / writes if writes and not copying else None,
        writes_per_write=disk_writes / writes if writes else None,
        cow_chunks_per_second=_chunks_per_second(measured, variant),
        shares={pv: count / total for pv, count in requests.items()} if total else {},
    )


def _chunks_per_second(measured: Sequence[Measured], variant: Variant | None) -> float | None:
    if variant is None:
        return None
    rates = [
        (one.after.cow_used - one.before.cow_used) / variant.chunk_size / (one.after.at - one.before.at)
        for one in measured
        if one.after.cow_used is not None and one.before.cow_used is not None and one.after.at > one.before.at
    ]
    return max(0.0, median(rates)) if rates else None


def speed_of(mode: Mode, measured: Measured) -> float:
    """What is compared: requests a second; where no load of ours ran, how many writes one writer would have got done.

    The number of other people's writes is their business; what each of them waited for is the snapshot's.
    """
    if mode is not Mode.PASSIVE:
        return measured.window.iops
    latency = measured.window.latency_avg_ms
    return 1000 / latency if latency else 0.0


def _latency(mode: Mode, measured: Sequence[Measured]) -> float | None:
    """The 95th percentile; the kernel counts no percentiles, so that a passive row has none."""
    return None if mode is Mode.PASSIVE else median(one.window.latency_p95_ms for one in measured)
