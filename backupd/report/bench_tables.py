"""The tables of a bench: those of the published reports E2 to E5 by name, the disks' parts, and the snapshots.

Knows: which figure belongs in which row and column, and what is said once above them. Refuses to judge
(`bench_verdict`), and to know whether text or HTML is made of it. What was not measured is a dash; a table without a
figure says how to get them.
"""

from collections.abc import Callable, Sequence

from backupd.report.bench_disks import disk_grids, snapshot_grids
from backupd.report.bench_grid import TitledGrid, iops, mib, rate, sharing, spread, titled, worded_if_empty
from backupd.report.bench_words import base, quotient, times
from backupd.report.words import many, ratio
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    Cell,
    CellResult,
    LayoutBench,
    PublishedTable,
)
from backupd.vocabulary.scratch_layouts import LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.units import size_words


def tables(bench: LayoutBench, wanted: Sequence[PublishedTable] = ()) -> tuple[TitledGrid, ...]:
    """The wanted tables in their order; none named: those that were measured, the disks' parts, and the snapshots."""
    asked = tuple(one for one in PublishedTable if one.value in bench.settings.tables)
    named = [grid for one in wanted or asked for grid in _TABLES[one](bench)]
    rest = [] if wanted else [*disk_grids(bench), *snapshot_grids(bench)]
    return tuple(worded_if_empty(grid) for grid in (*named, *rest))


def record_pairs(bench: LayoutBench) -> list[tuple[ScratchLayout, ScratchLayout | None]]:
    """Which layouts' record sizes stand side by side: each beside the one that all are compared with."""
    measured = [layout for layout in bench.layouts if any(_of_records(bench, one) for one in _of(bench, layout))]
    first = base(bench)
    if first not in measured:
        first = measured[0] if measured else None
    if first is None:
        return []
    return [(first, other) for other in measured if other != first] or [(first, None)]


def record_sizes(bench: LayoutBench) -> list[int]:
    """Bytes of the requests that E5 has a row for, ascending."""
    return sorted({one.record for one in bench.cells if _of_records(bench, one)})


def record_threads(bench: LayoutBench) -> int:
    """By how many threads records of all sizes were measured: the most that anything was read by."""
    return max((one.threads for one in bench.cells if one.medium is Medium.FILE and _reads(one)), default=1)


def writer_counts(bench: LayoutBench) -> list[int]:
    """Threads that E4 has rows for, ascending."""
    return sorted({one.threads for one in bench.cells if _of_writers(one)})


# --- E2: linear beside striped ---------------------------------------------------------------------------------------

_E2 = (
    ("WRITE", Cell(Operation.WRITE, LARGE_RECORD)),
    ("REWRITE", Cell(Operation.REWRITE, LARGE_RECORD)),
    ("READ", Cell(Operation.READ, LARGE_RECORD)),
    ("SEEKS/S", Cell(Operation.RANDOM_READ, SMALL_RECORD)),
)


def _e2(bench: LayoutBench) -> list[TitledGrid]:
    found = [[bench.find(layout.name, cell) for _, cell in _E2] for layout in bench.layouts]
    rows = [
        (layout.name, *(text for one, (head, _) in zip(of_layout, _E2, strict=True) for text in _rated(head, one)))
        for layout, of_layout in zip(bench.layouts, found, strict=True)
        if any(of_layout)
    ]
    head = ("LAYOUT", *(text for name, _ in _E2 for text in (name, "SPREAD")))
    title = "linear and striped: MiB/s of 1 MiB records, and random reads of 16 KiB a second (seeks), by 1 thread"
    return [titled(bench, PublishedTable.E2.value, title, head, rows, [one for some in found for one in some], left=1)]


def _rated(head: str, one: CellResult | None) -> tuple[str, str]:
    return (iops(one) if head == "SEEKS/S" else rate(one)), spread(one)


# --- E3: how throughput scales ---------------------------------------------------------------------------------------


def _e3(bench: LayoutBench) -> list[TitledGrid]:
    rows, known = [], []
    narrow = base(bench)
    several = len({layout.width for layout in bench.layouts}) < len(bench.layouts)
    for layout in sorted(bench.layouts, key=lambda layout: layout.width):
        for medium in Medium:
            cells = [Cell(operation, LARGE_RECORD, medium=medium) for operation in (Operation.READ, Operation.WRITE)]
            found = [bench.find(layout.name, cell) for cell in cells]
            against = [bench.find(narrow.name, cell) if narrow else None for cell in cells]
            if any(found):
                named = str(layout.width) + (" (raw, fio)" if medium is Medium.RAW else "")
                figures = [_scaled(one, first) for one, first in zip(found, against, strict=True)]
                rows.append((named, *((layout.name,) if several else ()), *(text for some in figures for text in some)))
                known += found
    head = ("STRIPES", *(("LAYOUT",) if several else ()), *("READ", "SPREAD", "SCALE"), *("WRITE", "SPREAD", "SCALE"))
    title = "how sequential throughput scales with the stripes: MiB/s of 1 MiB records by 1 thread"
    one = "one stripe" if narrow and narrow.kind is LayoutKind.LINEAR else narrow.name if narrow else "nothing"
    drawn = titled(bench, PublishedTable.E3.value, title, head, rows, known, left=2 if several else 1)
    return [sharing(drawn, f"scale: against {one}")]


def _scaled(one: CellResult | None, first: CellResult | None) -> tuple[str, str, str]:
    return rate(one), spread(one), ratio(times(one, first))


# --- E4: how many writers it takes -----------------------------------------------------------------------------------


def _e4(bench: LayoutBench) -> list[TitledGrid]:
    return [_writers(bench, operation) for operation in (Operation.WRITE, Operation.RANDOM_WRITE)]


def _writers(bench: LayoutBench, operation: Operation) -> TitledGrid:
    first, rows, known = base(bench), [], []
    for threads in writer_counts(bench):
        cell = Cell(operation, SMALL_RECORD, threads)
        against = bench.find(first.name, cell) if first else None
        for layout in bench.layouts:
            if (one := bench.find(layout.name, cell)) is not None:
                each = quotient(one.bytes_per_second, float(threads))
                rates = (rate(one), mib(each), iops(one), spread(one))
                rows.append((str(threads), layout.name, *rates, ratio(times(one, against))))
                known.append(one)
    head = ("THREADS", "LAYOUT", "IN ALL", "EACH", "IOPS", "SPREAD", "FACTOR")
    kind = "random" if operation.is_random else "sequential"
    title = f"number of writers from which striping pays off: MiB/s of {kind} writes of 16 KiB"
    drawn = titled(bench, PublishedTable.E4.value, title, head, rows, known, left=0)
    return sharing(drawn, f"factor: against {first.name}" if first else "")


# --- E5: record sizes ------------------------------------------------------------------------------------------------

_E5 = (
    ("sequential", (("WRITE", Operation.WRITE), ("READ", Operation.READ))),
    ("random", (("READ", Operation.RANDOM_READ), ("WRITE", Operation.RANDOM_WRITE))),
)


def _e5(bench: LayoutBench) -> list[TitledGrid]:
    """Of each pair of layouts: throughput and IOPS, sequential and random."""
    pairs = record_pairs(bench) if PublishedTable.E5.value in bench.settings.tables else []
    if not pairs:
        return [titled(bench, PublishedTable.E5.value, "record sizes: MiB/s and IOPS", ("RECORD",), [], [], left=1)]
    return [
        _records(bench, pair, f"record sizes, {kind}: {unit}", loads, said)
        for pair in pairs
        for unit, said in (("MiB/s", rate), ("IOPS", iops))
        for kind, loads in _E5
    ]


def _records(
    bench: LayoutBench,
    pair: tuple[ScratchLayout, ScratchLayout | None],
    title: str,
    loads: Sequence[tuple[str, Operation]],
    said: Callable[[CellResult | None], str],
) -> TitledGrid:
    a, b = pair
    threads = record_threads(bench)
    rows, known = [], []
    for record in record_sizes(bench):
        row = [size_words(record)]
        for _, operation in loads:
            cell = Cell(operation, record, threads)
            found = [bench.find(a.name, cell), *([bench.find(b.name, cell)] if b else [])]
            row += map(said, found)
            row += [ratio(times(found[1], found[0]))] if b else []
            row.append(spread(*found))
            known += found
        rows.append(tuple(row))
    head = ["RECORD"]
    for name, _ in loads:
        head += [f"{name} A", "B", "B/A", "SPREAD"] if b else [name, "SPREAD"]
    both = f"A: {a.name}, B: {b.name}; spread: the larger of the two" if b else a.name
    drawn = titled(
        bench, PublishedTable.E5.value, f"{title}, by {many(threads, 'thread')}", tuple(head), rows, known, left=0
    )
    return sharing(drawn, both)


# --- what all of them share ------------------------------------------------------------------------------------------

_TABLES: dict[PublishedTable, Callable[[LayoutBench], list[TitledGrid]]] = {
    PublishedTable.E2: _e2,
    PublishedTable.E3: _e3,
    PublishedTable.E4: _e4,
    PublishedTable.E5: _e5,
}


def _of(bench: LayoutBench, layout: ScratchLayout) -> list[CellResult]:
    return [one for one in bench.cells if one.layout == layout.name]


def _reads(one: CellResult) -> bool:
    return one.operation in (Operation.READ, Operation.RANDOM_READ)


def _of_records(bench: LayoutBench, one: CellResult) -> bool:
    """Whether it belongs to E5: reads are by that many threads nowhere else, and writes of these sizes neither."""
    return one.medium is Medium.FILE and one.threads == record_threads(bench) and _reads(one)


def _of_writers(one: CellResult) -> bool:
    writes = one.operation in (Operation.WRITE, Operation.RANDOM_WRITE)
    return writes and one.record == SMALL_RECORD and one.medium is Medium.FILE
