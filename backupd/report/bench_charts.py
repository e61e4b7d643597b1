"""The pictures of a bench's tables: how throughput scales with stripes (E3), writers (E4), record sizes (E5).

Knows: which figures are a line. A table that was not measured, or of which one place only was, has no picture.
"""

from collections.abc import Callable, Sequence

from backupd.report.bench_tables import record_pairs, record_sizes, record_threads, writer_counts
from backupd.report.bench_words import LOADS, base, load_words, times
from backupd.report.panels import Axes, Line, Panel, panels_svg
from backupd.report.words import many
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    Cell,
    CellResult,
    LayoutBench,
    PublishedTable,
)
from backupd.vocabulary.scratch_layouts import MIB, LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.units import size_words


def chart_svg(bench: LayoutBench, table: PublishedTable, *, alone: bool = True) -> str:
    """The picture of one table; empty where there is none."""
    return _CHARTS[table](bench, alone) if table in _CHARTS and table.value in bench.settings.tables else ""


def _scaling(bench: LayoutBench, alone: bool) -> str:
    """A line for each way of making wider volumes."""
    first = base(bench)
    widths = sorted({layout.width for layout in bench.layouts})
    ways = _ways(bench)
    if first is None or len(widths) < 2 or not ways:
        return ""
    reads_and_writes = [Cell(way, LARGE_RECORD) for way in (Operation.READ, Operation.WRITE)]
    panels = [
        Panel(load_words(cell), tuple(_scaled(bench, first, cell, way, widths) for _, way in ways))
        for cell in reads_and_writes
    ]
    axes = Axes(
        unit=f"times the throughput of {first.name}",
        suffix="x",
        places=tuple(map(str, widths)),
        below="stripes",
        names=tuple(name for name, _ in ways),
        expected=tuple(float(width) / first.width for width in widths),
        expectation="ideal: one times per stripe",
    )
    return panels_svg("What each stripe adds", axes, panels, alone=alone)


_Way = tuple[LayoutKind, int, Medium]  # of making a volume, its stripes' size, and what the load goes through


def _ways(bench: LayoutBench) -> list[tuple[str, _Way]]:
    """Each that was measured, with what tells it from the others."""
    loads = {(Operation.READ, LARGE_RECORD, 1), (Operation.WRITE, LARGE_RECORD, 1)}
    media = [medium for medium in Medium if any(_is_of(one, loads) and one.medium is medium for one in bench.cells)]
    wider = dict.fromkeys((layout.kind, layout.stripe_size) for layout in bench.layouts if layout.width > 1)
    return [
        (f"{kind}, {size_words(size)} stripes{', raw, by fio' if medium is Medium.RAW else ''}", (kind, size, medium))
        for kind, size in wider
        for medium in media
    ]


def _is_of(one: CellResult, loads: set[tuple[Operation, int, int]]) -> bool:
    return (one.operation, one.record, one.threads) in loads


def _scaled(bench: LayoutBench, first: ScratchLayout, cell: Cell, way: _Way, widths: Sequence[int]) -> Line:
    """Against the first layout, at each width; one stripe is the same whatever its size would be."""
    kind, size, medium = way
    load = Cell(cell.operation, cell.record, cell.threads, medium)
    against = bench.find(first.name, load)
    of_way = {layout.width: layout for layout in bench.layouts if (layout.kind, layout.stripe_size) == (kind, size)}
    of_way.setdefault(first.width, first)
    return tuple(times(bench.find(of_way[width].name, load), against) if width in of_way else None for width in widths)


def _writers(bench: LayoutBench, alone: bool) -> str:
    counts, ways = writer_counts(bench), (Operation.WRITE, Operation.RANDOM_WRITE)
    loads = {way: [Cell(way, SMALL_RECORD, count) for count in counts] for way in ways}
    layouts = [
        layout
        for layout in bench.layouts
        if any(bench.find(layout.name, cell) for cells in loads.values() for cell in cells)
    ]
    if len(counts) < 2 or not layouts:
        return ""
    panels = [
        Panel(
            f"{LOADS[way]} of {size_words(SMALL_RECORD)}",
            tuple(_line(bench, layout, cells) for layout in layouts),
        )
        for way, cells in loads.items()
    ]
    axes = Axes(
        unit="total MiB/s",
        suffix="",
        places=tuple(map(str, counts)),
        below="threads",
        names=tuple(layout.name for layout in layouts),
    )
    return panels_svg("How many writers are needed", axes, panels, alone=alone)


def _records(bench: LayoutBench, alone: bool) -> str:
    sizes, threads = record_sizes(bench), record_threads(bench)
    layouts = list(dict.fromkeys(one for pair in record_pairs(bench) for one in pair if one is not None))
    if len(sizes) < 2 or not layouts:
        return ""
    panels = [
        Panel(
            LOADS[way], tuple(_line(bench, layout, [Cell(way, size, threads) for size in sizes]) for layout in layouts)
        )
        for way in (Operation.WRITE, Operation.READ, Operation.RANDOM_WRITE, Operation.RANDOM_READ)
    ]
    axes = Axes(
        unit=f"total MiB/s, by {many(threads, 'thread')}",
        suffix="",
        places=tuple(size_words(size).replace("iB", "").replace(" ", "") for size in sizes),
        below="size of a record",
        names=tuple(layout.name for layout in layouts),
    )
    return panels_svg("Effect of the record size", axes, panels, alone=alone)


def _line(bench: LayoutBench, layout: ScratchLayout, cells: Sequence[Cell]) -> Line:
    found = (bench.find(layout.name, cell) for cell in cells)
    return tuple(one.bytes_per_second / MIB if one is not None else None for one in found)


_CHARTS: dict[PublishedTable, Callable[[LayoutBench, bool], str]] = {
    PublishedTable.E3: _scaling,
    PublishedTable.E4: _writers,
    PublishedTable.E5: _records,
}
