"""A bench's table before it is text or HTML, and how its cells are worded.

Knows: what is said once above rows, and which columns are figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from backupd.report.probe_table import Grid
from backupd.report.words import duration, figure, share
from backupd.vocabulary.benches import CellResult, LayoutBench
from backupd.vocabulary.scratch_layouts import MIB

_SPREAD = "spread: (highest - lowest) ÷ median"


@dataclass(frozen=True, slots=True)
class TitledGrid:
    """One table before it is text or HTML."""

    key: str  # the published table's name, `disks` or `snapshots`
    title: str  # what it shows, in which unit
    grid: Grid  # its `shared` words are said once, above the rows
    words: tuple[str, ...] = ()  # below it; of a table without rows: why it has none


def titled(
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


def sharing(drawn: TitledGrid, *words: str) -> TitledGrid:
    """The same with more that is said once above it."""
    return replace(drawn, grid=replace(drawn.grid, shared=(*drawn.grid.shared, *filter(None, words))))


def worded_if_empty(drawn: TitledGrid) -> TitledGrid:
    """A table without rows has a sentence in their place."""
    if drawn.grid.rows:
        return drawn
    said = f"not measured: add --table {drawn.key}"
    return replace(drawn, grid=Grid((), (), (), frozenset()), words=(said,))


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


def rate(one: CellResult | None) -> str:
    """Its throughput in MiB/s."""
    return mib(one.bytes_per_second) if one else "-"


def iops(one: CellResult | None) -> str:
    """Its requests a second."""
    return figure(one.iops, 1) if one else "-"


def spread(*some: CellResult | None) -> str:
    """The largest of them; of what was measured once it is not known."""
    return share(max((one.spread for one in some if one and one.repeats > 1), default=None))
