"""How a bench's layouts and loads are called, and how two figures are held against each other.

Knows: names, and which layout the others are compared with.
"""

from collections.abc import Sequence
from math import isfinite

from backupd.report.probe_combinations import short_pv
from backupd.report.words import many
from backupd.vocabulary.benches import Cell, CellResult, LayoutBench
from backupd.vocabulary.scratch_layouts import LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.units import size_words

LOADS = {  # what is done, as many times as there is time for
    Operation.WRITE: "sequential writes",
    Operation.REWRITE: "rewrites",
    Operation.READ: "sequential reads",
    Operation.RANDOM_WRITE: "random writes",
    Operation.RANDOM_READ: "random reads",
}


def layout_words(layout: ScratchLayout, among: Sequence[ScratchLayout]) -> str:
    """A layout in a sentence: `linear`, `3 stripes`, `RAID-0 of 2 disks`; with the stripes' size where it varies."""
    sizes = {one.stripe_size for one in among if one.kind is not LayoutKind.LINEAR}
    of_size = f" of {size_words(layout.stripe_size)}" if len(sizes) > 1 else ""
    match layout.kind:
        case LayoutKind.LINEAR:
            return "linear"
        case LayoutKind.STRIPED:
            return f"{many(layout.width, 'stripe')}{of_size}"
        case LayoutKind.RAID0:
            return f"RAID-0 of {many(layout.width, 'disk')}" + (f", chunks{of_size}" if of_size else "")


def count_words(counts: Sequence[int], noun: str) -> str:
    """Several numbers of things: `1 thread`, `1 and 2 threads`, `1, 2 and 6 threads`."""
    if len(counts) == 1:
        return many(counts[0], noun)
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} {noun}s"


def load_words(cell: Cell) -> str:
    """A load: `sequential writes of 1 MiB by 6 threads`; what went past the file system says so."""
    raw = ", raw, fio" if cell.medium is Medium.RAW else ""
    return f"{LOADS[cell.operation]} of {size_words(cell.record)} by {many(cell.threads, 'thread')}{raw}"


def measured_on(bench: LayoutBench) -> str:
    """The volume group whose free extents were used, or the disks."""
    return bench.settings.vg or ", ".join(map(short_pv, bench.settings.disks))


def base(bench: LayoutBench) -> ScratchLayout | None:
    """What the other layouts are compared with: the linear one, or the first where there is none."""
    linear = (layout for layout in bench.layouts if layout.kind is LayoutKind.LINEAR)
    return next(linear, next(iter(bench.layouts), None))


def families(bench: LayoutBench) -> list[list[ScratchLayout]]:
    """What is compared with the base: layouts that differ in their number of disks alone, ascending, together."""
    first = base(bench)
    grouped: dict[tuple[LayoutKind, int], list[ScratchLayout]] = {}
    for layout in sorted(bench.layouts, key=lambda layout: layout.width):
        if layout != first:
            grouped.setdefault((layout.kind, layout.stripe_size), []).append(layout)
    return list(grouped.values())


def times(b: CellResult | None, a: CellResult | None) -> float | None:
    """How many times as much `b` reached as `a`, in bytes a second; None where that is no number."""
    return quotient(b.bytes_per_second, a.bytes_per_second) if a is not None and b is not None else None


def quotient(b: float | None, a: float | None) -> float | None:
    """b ÷ a; None where one of them was not measured, or is no number to divide by."""
    if a is None or b is None or not isfinite(a) or not isfinite(b) or a <= 0 or b < 0:
        return None
    return b / a if isfinite(b / a) else None
