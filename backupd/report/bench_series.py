"""A bench's figures as lines: throughput over stripes and over record sizes; disks and processors over time.

Knows: what belongs in one line, and what its points are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, log2
from statistics import fmean

from backupd.report.bench_tables import record_pairs, record_sizes, record_threads
from backupd.report.bench_words import LOADS, base, families, layout_words
from backupd.report.lines import Points, finite
from backupd.report.probe_combinations import Series, short_pv
from backupd.vocabulary.benches import LARGE_RECORD, Cell, DiskSample, LayoutBench, PublishedTable
from backupd.vocabulary.scratch_layouts import MIB, LayoutKind, Medium, Operation
from backupd.vocabulary.units import size_words

Names = tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class LayoutSpan:
    """While one layout was measured: seconds since the bench started measuring."""

    layout: str
    begin: float
    end: float


# --- over stripes, over record sizes ---------------------------------------------------------------------------------


def scaling_series(bench: LayoutBench) -> list[Series]:
    """MiB/s of one reader and of one writer over the number of stripes: E3. Lines of a point alone are left out."""
    first = base(bench)
    if first is None or first.kind is not LayoutKind.LINEAR:
        return []
    drawn = []
    kinds = families(bench)
    for family in kinds:
        said = f", {family[-1].name.partition('-')[0]} {size_words(family[-1].stripe_size)}" if len(kinds) > 1 else ""
        for medium in Medium:
            raw = ", raw, fio" if medium is Medium.RAW else ""
            for operation in (Operation.READ, Operation.WRITE):
                cell = Cell(operation, LARGE_RECORD, medium=medium)
                found = [(layout, bench.find(layout.name, cell)) for layout in [first, *family]]
                points = finite((float(layout.width), one.bytes_per_second / MIB) for layout, one in found if one)
                drawn += [Series(f"{LOADS[operation]}{said}{raw}", (points,))] if len(points) > 1 else []
    return drawn


def stripe_names(bench: LayoutBench) -> Names:
    """The ticks below them: whole stripes."""
    return tuple((float(width), str(width)) for width in sorted({layout.width for layout in bench.layouts}))


def record_series(bench: LayoutBench, operations: Sequence[Operation]) -> list[Series]:
    """MiB/s of these loads over the record size, which stands as the power of two that it is: E5."""
    if PublishedTable.E5.value not in bench.settings.tables:
        return []
    layouts = list(dict.fromkeys(layout for pair in record_pairs(bench) for layout in pair if layout is not None))
    drawn = []
    for operation in operations:
        for layout in layouts:
            cells = [Cell(operation, record, record_threads(bench)) for record in record_sizes(bench) if record]
            found = [(cell.record, bench.find(layout.name, cell)) for cell in cells]
            points = finite((log2(record), one.bytes_per_second / MIB) for record, one in found if one)
            name = f"{LOADS[operation]}, {layout_words(layout, bench.layouts)}"
            drawn += [Series(name, (points,))] if len(points) > 1 else []
    return drawn


def record_names(bench: LayoutBench) -> Names:
    """The ticks below them: the sizes."""
    return tuple((log2(record), size_words(record)) for record in record_sizes(bench) if record)


# --- over time -------------------------------------------------------------------------------------------------------


def disk_series(samples: Sequence[DiskSample], *, points: int) -> list[Series]:
    """MiB/s that each disk read and wrote, over seconds; means where there are more samples than `points`."""
    disks = dict.fromkeys(disk for one in samples for disk in (*one.read, *one.written))
    return [Series(short_pv(disk), (_thinned(samples, _moved_by(disk), points),)) for disk in disks]


def processor_series(samples: Sequence[DiskSample], *, points: int) -> list[Series]:
    """Percent of processor time in the system and waiting for disks, over seconds."""
    return [
        Series("system", (_thinned(samples, lambda one: one.system * 100, points),)),
        Series("I/O wait", (_thinned(samples, lambda one: one.iowait * 100, points),)),
    ]


def layout_spans(samples: Sequence[DiskSample]) -> list[LayoutSpan]:
    """Which layout was measured when."""
    known = [one for one in samples if isfinite(one.at_seconds)]
    grouped = [(name, list(group)) for name, group in groupby(known, key=lambda one: one.layout)]
    return [LayoutSpan(name, group[0].at_seconds, group[-1].at_seconds) for name, group in grouped]


def _moved_by(disk: str) -> Callable[[DiskSample], float]:
    return lambda one: (one.read.get(disk, 0.0) + one.written.get(disk, 0.0)) / MIB


def _thinned(samples: Sequence[DiskSample], value: Callable[[DiskSample], float], points: int) -> Points:
    """Means of neighbours, as few as it takes."""
    together = max(1, -(-len(samples) // max(points, 1)))
    groups = (samples[i : i + together] for i in range(0, len(samples), together))
    return finite((fmean(one.at_seconds for one in group), fmean(map(value, group))) for group in groups)
