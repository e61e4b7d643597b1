"""The tables of a bench: those of the published reports E2 to E5 by name, the disks' parts, and the snapshots.

Knows: which figure belongs in which row and column, and what is said once above them. Refuses to judge
(`bench_verdict`), and to know whether text or HTML is made of it. What was not measured is a dash; a table without a
figure says how to get them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from backupd.benchmark import (
    LARGE_RECORD,
    MIB,
    SMALL_RECORD,
    Cell,
    CellResult,
    LayoutBench,
    LayoutKind,
    Medium,
    Operation,
    ScratchLayout,
    Table,
)
from backupd.report.bench_words import base, load_words, quotient, record_words, times
from backupd.report.combinations import short_pv
from backupd.report.probe_table import Grid
from backupd.report.words import duration, figure, many, ratio, share

TEBIBYTE = 1 << 40
_SPREAD = "spread: (highest - lowest) ÷ median"


@dataclass(frozen=True, slots=True)
class TitledGrid:
    """One table before it is text or HTML."""

    key: str  # the published table's name, `disks` or `snapshots`
    title: str  # what it shows, in which unit
    grid: Grid  # its `shared` words are said once, above the rows
    words: tuple[str, ...] = ()  # below it; of a table without rows: why it has none


def tables(bench: LayoutBench, wanted: Sequence[Table] = ()) -> tuple[TitledGrid, ...]:
    """The wanted tables in their order; none named: those that were measured, the disks' parts, and the snapshots."""
    asked = tuple(one for one in Table if one.value in bench.settings.tables)
    named = [grid for one in wanted or asked for grid in _TABLES[one](bench)]
    rest = [] if wanted else [*disk_grids(bench), *snapshot_grids(bench)]
    return tuple(_explained(grid) for grid in (*named, *rest))


def said_once(drawn: Sequence[TitledGrid]) -> tuple[tuple[str, ...], tuple[TitledGrid, ...]]:
    """What is the same in all tables that say how they were measured, and the tables without it."""
    measured = [one.grid.shared for one in drawn if _SPREAD in one.grid.shared]
    common = tuple(word for word in (measured[0] if len(measured) > 1 else ()) if all(word in one for one in measured))
    return common, tuple(
        replace(one, grid=replace(one.grid, shared=tuple(word for word in one.grid.shared if word not in common)))
        for one in drawn
    )


def mib(value: float | None) -> str:
    """A rate in MiB/s, without its unit: with two digits where one would say nothing of small requests."""
    if value is None or not isfinite(value):
        return "-"
    return figure(value / MIB, 1 if value >= 10 * MIB else 2)


def hours_per_tebibyte(rate: float | None) -> float | None:
    """How long a copy takes that reads so many bytes a second; None where that is no number."""
    seconds = quotient(TEBIBYTE, rate)
    return None if seconds is None else seconds / 3600


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
    title = "linear beside striped: MiB/s of 1 MiB records, and random reads of 16 KiB a second (seeks), by 1 thread"
    return [_titled(bench, Table.E2.value, title, head, rows, [one for some in found for one in some], left=1)]


def _rated(head: str, one: CellResult | None) -> tuple[str, str]:
    return (_iops(one) if head == "SEEKS/S" else _rate(one)), _spread(one)


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
    drawn = _titled(bench, Table.E3.value, title, head, rows, known, left=2 if several else 1)
    return [_sharing(drawn, f"scale: against {one}")]


def _scaled(one: CellResult | None, first: CellResult | None) -> tuple[str, str, str]:
    return _rate(one), _spread(one), ratio(times(one, first))


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
                rates = (_rate(one), mib(each), _iops(one), _spread(one))
                rows.append((str(threads), layout.name, *rates, ratio(times(one, against))))
                known.append(one)
    head = ("THREADS", "LAYOUT", "IN ALL", "EACH", "IOPS", "SPREAD", "FACTOR")
    kind = "random" if operation.is_random else "sequential"
    title = f"how many writers it takes for striping to pay: MiB/s of {kind} writes of 16 KiB"
    drawn = _titled(bench, Table.E4.value, title, head, rows, known, left=0)
    return _sharing(drawn, f"factor: against {first.name}" if first else "")


# --- E5: record sizes ------------------------------------------------------------------------------------------------

_E5 = (
    ("sequential", (("WRITE", Operation.WRITE), ("READ", Operation.READ))),
    ("random", (("READ", Operation.RANDOM_READ), ("WRITE", Operation.RANDOM_WRITE))),
)


def _e5(bench: LayoutBench) -> list[TitledGrid]:
    """Of each pair of layouts: throughput and IOPS, sequential and random."""
    pairs = record_pairs(bench) if Table.E5.value in bench.settings.tables else []
    if not pairs:
        return [_titled(bench, Table.E5.value, "record sizes: MiB/s and IOPS", ("RECORD",), [], [], left=1)]
    return [
        _records(bench, pair, f"record sizes, {kind}: {unit}", loads, said)
        for pair in pairs
        for unit, said in (("MiB/s", _rate), ("IOPS", _iops))
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
        row = [record_words(record)]
        for _, operation in loads:
            cell = Cell(operation, record, threads)
            found = [bench.find(a.name, cell), *([bench.find(b.name, cell)] if b else [])]
            row += map(said, found)
            row += [ratio(times(found[1], found[0]))] if b else []
            row.append(_spread(*found))
            known += found
        rows.append(tuple(row))
    head = ["RECORD"]
    for name, _ in loads:
        head += [f"{name} A", "B", "B/A", "SPREAD"] if b else [name, "SPREAD"]
    both = f"A: {a.name}, B: {b.name}; spread: the larger of the two" if b else a.name
    drawn = _titled(bench, Table.E5.value, f"{title}, by {many(threads, 'thread')}", tuple(head), rows, known, left=0)
    return _sharing(drawn, both)


# --- the disks' parts, and backups -----------------------------------------------------------------------------------


def disk_loads(bench: LayoutBench) -> list[Cell]:
    """Loads that show how the disks share the work: one writer, one reader, and the most random writers."""
    chosen = []
    for operation, record, most in (
        (Operation.WRITE, LARGE_RECORD, False),
        (Operation.READ, LARGE_RECORD, False),
        (Operation.RANDOM_WRITE, SMALL_RECORD, True),
    ):
        cells = {one.cell for one in bench.cells if one.operation is operation and one.medium is Medium.FILE}
        sized = sorted({cell.record for cell in cells}, key=lambda size: (abs(size - record), size))
        if sized:
            counts = [cell.threads for cell in cells if cell.record == sized[0]]
            chosen.append(Cell(operation, sized[0], max(counts) if most else min(counts)))
    return chosen


def disk_grids(bench: LayoutBench) -> list[TitledGrid]:
    """Each disk's part of a load's bytes, by layout, and what the processors did meanwhile; none if it is not known."""
    return [grid for cell in disk_loads(bench) if (grid := _disks(bench, cell)).grid.rows]


def _disks(bench: LayoutBench, cell: Cell) -> TitledGrid:
    found = [one for layout in bench.layouts if (one := bench.find(layout.name, cell)) is not None]
    known = [one for one in found if one.shares or one.system is not None or one.iowait is not None]
    disks = list(dict.fromkeys([*bench.settings.disks, *(disk for one in known for disk in one.shares)]))
    rows = [
        (
            one.layout,
            *(share(one.shares.get(disk, 0.0) if one.shares else None) for disk in disks),
            *(share(sum(one.shares.values()) if one.shares else None), share(one.system), share(one.iowait)),
        )
        for one in known
    ]
    head = ("LAYOUT", *map(short_pv, disks), "SUM", "SYSTEM", "IOWAIT")
    title = f"each disk's part of the bytes, and the processors' time, in {load_words(cell)}"
    drawn = _titled(bench, "disks", title, head, rows, [], left=1)
    return _sharing(drawn, "sum: above 100% somebody else used the disks too")


def snapshot_grids(bench: LayoutBench) -> list[TitledGrid]:
    """What each layout means for backups; none where no snapshot was measured."""
    if not bench.snapshots:
        return []
    rows = [
        (
            *(one.layout, mib(one.origin_read), mib(one.snapshot_read)),
            *(figure(hours_per_tebibyte(one.snapshot_read), 1), ratio(one.penalty), one.probe_run_id),
        )
        for one in bench.snapshots
    ]
    head = ("LAYOUT", "ORIGIN", "SNAPSHOT", "H/TIB", "PENALTY", "PROBE")
    title = "what a layout means for backups: sequential reads in MiB/s, and the penalty of first writes"
    chunks = ", ".join(record_words(one) for one in dict.fromkeys(one.chunk_size for one in bench.snapshots))
    drawn = _titled(bench, "snapshots", title, head, rows, [], left=1)
    grid = replace(drawn.grid, right=frozenset(range(1, len(head) - 1)))
    return [
        replace(
            _sharing(replace(drawn, grid=grid), f"chunks of {chunks}", "H/TIB: hours to read a TiB of a snapshot"),
            words=("a probe's own rows: backupd show PROBE",),
        )
    ]


# --- what all of them share ------------------------------------------------------------------------------------------

_TABLES: dict[Table, Callable[[LayoutBench], list[TitledGrid]]] = {
    Table.E2: _e2,
    Table.E3: _e3,
    Table.E4: _e4,
    Table.E5: _e5,
}


def _titled(
    bench: LayoutBench,
    key: str,
    title: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    known: Iterable[CellResult | None],
    *,
    left: int,
) -> TitledGrid:
    """A table whose first `left` columns, and any of layouts, are words; said once is how its figures came to be."""
    repeats = sorted({one.repeats for one in known if one})
    shared = (_repeats_words(repeats), f"windows of {duration(bench.settings.seconds)}", _SPREAD) if repeats else ()
    right = frozenset(i for i, name in enumerate(head) if i >= left and name != "LAYOUT")
    return TitledGrid(key, title, Grid(shared, head, tuple(rows), right))


def _repeats_words(repeats: Sequence[int]) -> str:
    if list(repeats) == [1]:
        return "measured once: no spread is known"
    return f"medians of {' or '.join(map(str, repeats))}"


def _sharing(drawn: TitledGrid, *words: str) -> TitledGrid:
    return replace(drawn, grid=replace(drawn.grid, shared=(*drawn.grid.shared, *filter(None, words))))


def _explained(drawn: TitledGrid) -> TitledGrid:
    """A table without rows has a sentence in their place."""
    if drawn.grid.rows:
        return drawn
    said = f"not measured: ask for it with --table {drawn.key}"
    return replace(drawn, grid=Grid((), (), (), frozenset()), words=(said,))


def _rate(one: CellResult | None) -> str:
    return mib(one.bytes_per_second) if one else "-"


def _iops(one: CellResult | None) -> str:
    return figure(one.iops, 1) if one else "-"


def _spread(*some: CellResult | None) -> str:
    """The largest of them; of what was measured once it is not known."""
    return share(max((one.spread for one in some if one and one.repeats > 1), default=None))


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
