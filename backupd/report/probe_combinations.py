"""What was measured together, and what to call it beside the rest: `direct`, `direct, 10 threads, 4.0 KiB chunks`.

Knows: which fields tell rows and curves apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from backupd.report.lines import Points
from backupd.report.words import many, size
from backupd.vocabulary.gauges import Mode
from backupd.vocabulary.probes import Curve, ProbeRow


@dataclass(frozen=True, slots=True)
class Combination:
    """One way of loading one kind of snapshot. What is None is not known, or not there."""

    mode: Mode
    threads: int
    block_size: int | None
    chunk_size: int | None
    cow_pvs: tuple[str, ...]
    snapshots: int
    cow_stripes: int = 1


@dataclass(frozen=True, slots=True)
class Series:
    """What is drawn in one colour: one line per repeat, as (seconds, value)."""

    label: str
    lines: tuple[Points, ...]


def of_row(row: ProbeRow) -> Combination:
    """What a row was measured under; rows of one combination differ in their stage only."""
    return Combination(
        row.mode, row.threads, row.block_size, row.chunk_size, row.cow_pvs, row.snapshots, row.cow_stripes
    )


def of_curve(curve: Curve) -> Combination:
    """What a curve was measured under; curves of one combination differ in their repeat only."""
    return Combination(
        curve.mode, curve.threads, None, curve.chunk_size, curve.cow_pvs, curve.snapshots, curve.cow_stripes
    )


def is_of_writes(mode: Mode) -> bool:
    """Whether its penalty is one of writes: ours, or all of them."""
    return mode.writes or mode is Mode.PASSIVE


def whose_writes(mode: Mode) -> str:
    """What a penalty is one of, in words."""
    return "all writes" if mode is Mode.PASSIVE else f"{mode} writes"


def short_pv(path: str) -> str:
    """A PV's path without the folder that all devices lie in."""
    return path.removeprefix("/dev/").removeprefix("mapper/")


def cow_on(pvs: Sequence[str], stripes: int) -> str:
    """Where the COW area was put."""
    where = ", ".join(map(short_pv, pvs)) or "any PV"
    return f"{where} ({stripes} stripes)" if stripes > 1 else where


def labels(combinations: Iterable[Combination]) -> dict[Combination, str]:
    """A name for each: its mode, and of the rest only what differs among them. In the order of their first coming."""
    distinct = list(dict.fromkeys(combinations))
    words = [_words(combination) for combination in distinct]
    telling = {name for name in _TELLING if len({said[name] for said in words} - {_ABSENT}) > 1}
    return {
        combination: ", ".join(text for name, text in said.items() if text and (name == "mode" or name in telling))
        for combination, said in zip(distinct, words, strict=True)
    }


def penalty_series(curves: Sequence[Curve]) -> list[Series]:
    """Penalty over seconds since the snapshot: a series per combination, a line per repeat."""
    names = labels(of_curve(curve) for curve in curves)
    order = list(names)
    ordered = sorted(curves, key=lambda curve: (order.index(of_curve(curve)), curve.repeat))
    return [
        Series(names[combination], tuple(map(_line, repeats)))
        for combination, repeats in groupby(ordered, key=of_curve)
    ]


_ABSENT = ""  # what a baseline has no word for tells it apart from nothing
_TELLING = ("threads", "block", "chunk", "COW on", "snapshots")


def _words(combination: Combination) -> dict[str, str]:
    without = combination.snapshots == 0
    return {
        "mode": combination.mode.value,
        "threads": many(combination.threads, "thread"),
        "block": f"{size(combination.block_size)} blocks" if combination.block_size else _ABSENT,
        "chunk": _ABSENT if combination.chunk_size is None else f"{size(combination.chunk_size)} chunks",
        "COW on": _ABSENT if without else f"COW on {cow_on(combination.cow_pvs, combination.cow_stripes)}",
        "snapshots": _ABSENT if without else many(combination.snapshots, "snapshot"),
    }


def _line(curve: Curve) -> Points:
    return tuple((point.at_seconds, point.penalty) for point in curve.points if point.penalty is not None)
