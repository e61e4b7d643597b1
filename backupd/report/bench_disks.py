"""What the disks and the processors did under a bench's loads, layout by layout, and what a layout means for backups.

Knows: which loads show it, and its rows. Refuses to judge.
"""

from dataclasses import replace

from backupd.report.bench_grid import TitledGrid, mib, sharing, titled
from backupd.report.bench_words import load_words, quotient
from backupd.report.probe_combinations import short_pv
from backupd.report.words import figure, ratio, share
from backupd.vocabulary.benches import LARGE_RECORD, SMALL_RECORD, Cell, LayoutBench
from backupd.vocabulary.scratch_layouts import Medium, Operation
from backupd.vocabulary.units import size_words

TEBIBYTE = 1 << 40


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
    title = f"each disk's part of the bytes, and processor time, in {load_words(cell)}"
    drawn = titled(bench, "disks", title, head, rows, [], left=1)
    return sharing(drawn, "sum: above 100% means that something else used the disks too")


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
    chunks = ", ".join(size_words(one) for one in dict.fromkeys(one.chunk_size for one in bench.snapshots))
    drawn = titled(bench, "snapshots", title, head, rows, [], left=1)
    grid = replace(drawn.grid, right=frozenset(range(1, len(head) - 1)))
    return [
        replace(
            sharing(replace(drawn, grid=grid), f"chunks of {chunks}", "H/TIB: hours to read a TiB of a snapshot"),
            words=("a probe's own rows: backupd show PROBE",),
        )
    ]


def hours_per_tebibyte(rate: float | None) -> float | None:
    """How long a copy takes that reads so many bytes a second; None where that is no number."""
    seconds = quotient(TEBIBYTE, rate)
    return None if seconds is None else seconds / 3600
