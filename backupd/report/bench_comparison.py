"""Two benches beside each other: what differs between them, and their figures in pairs.

Knows: which figure of one belongs to which of the other, and what their repeats allow to say (`bench_contrast`).
Refuses to explain: that is what the circumstances are named for, before the figures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import wrap
from typing import Any

from backupd.report.bench_contrast import Contrast, Tendency, contrast
from backupd.report.bench_document import cell_document
from backupd.report.bench_grid import iops, mib, rate
from backupd.report.bench_words import measured_on, quotient
from backupd.report.json_document import Document, clean
from backupd.report.probe_combinations import short_pv
from backupd.report.probe_table import WIDTH
from backupd.report.side_by_side import Difference, beginning, differing, document
from backupd.report.words import columns, duration, ratio, size
from backupd.vocabulary.benches import (
    BenchRecord,
    CellResult,
    SnapshotFigures,
)
from backupd.vocabulary.scratch_layouts import Medium
from backupd.vocabulary.units import size_words

_SAID = {Tendency.GAIN: "B is ahead", Tendency.LOSS: "B is behind", Tendency.UNCLEAR: "too noisy to tell"}


@dataclass(frozen=True, slots=True)
class FigurePair:
    """Figures of the same load on the same layout; None on the side that has none."""

    a: CellResult | None
    b: CellResult | None

    @property
    def contrast(self) -> Contrast | None:
        """How b stands beside a."""
        return contrast(self.b, self.a)


def compare_document(a: BenchRecord, b: BenchRecord) -> Document:
    """What `bench compare A B --json` prints; `a` and `b` of a cell are as in the bench's own document."""
    plain: Document = clean(
        {
            **document(a, b, differences(a, b)),
            "only_a": only(a, b),
            "only_b": only(b, a),
            "cells": [_pair_document(pair) for pair in pairs(a, b)],
            "snapshots": [
                {
                    "layout": one.layout,
                    "a": {"snapshot_read": one.snapshot_read, "penalty": one.penalty},
                    "b": {"snapshot_read": other.snapshot_read, "penalty": other.penalty},
                    "read_ratio": quotient(other.snapshot_read, one.snapshot_read),
                }
                for one, other in snapshot_pairs(a, b)
            ],
        }
    )
    return plain


def compare_table(a: BenchRecord, b: BenchRecord) -> str:
    """Both benches' names, what differs between them, layouts that only one has, and their figures in pairs."""
    same = "a and b: hosts and settings are the same" if a.bench and b.bench else ""
    parts = beginning(a, b, (_of(a), _of(b)), differences(a, b), same=same)
    matched = list(pairs(a, b))
    parts.append("\n".join(part for line in _alone(a, b, matched) for part in _wrapped(line)))
    both = [(pair.a, pair.b) for pair in matched if pair.a and pair.b]
    parts.append(_pair_table(both) if both else "no load was measured by both on the same layout")
    parts.append(_snapshot_table(snapshot_pairs(a, b)))
    return "\n\n".join(part for part in parts if part)


def differences(a: BenchRecord, b: BenchRecord) -> list[Difference]:
    """In which of their hosts' and settings' fields they differ; none where one of them measured nothing."""
    if a.bench is None or b.bench is None:
        return []
    both = ((a.bench.host, b.bench.host), (a.bench.settings, b.bench.settings))
    return [one for of_a, of_b in both for one in differing(of_a, of_b, names=_NAMES, say=_words)]


def only(a: BenchRecord, b: BenchRecord) -> list[str]:
    """The names of the layouts that a has and b has not."""
    names = {layout.name for layout in _layouts(b)}
    return [layout.name for layout in _layouts(a) if layout.name not in names]


def pairs(a: BenchRecord, b: BenchRecord) -> Iterator[FigurePair]:
    """Every figure of both, once: pairs in the order of a's, then what only b has."""
    waiting = {(one.layout, one.cell): one for one in _cells(b)}
    for one in _cells(a):
        yield FigurePair(one, waiting.pop((one.layout, one.cell), None))
    yield from (FigurePair(None, one) for one in waiting.values())


def snapshot_pairs(a: BenchRecord, b: BenchRecord) -> list[tuple[SnapshotFigures, SnapshotFigures]]:
    """What each measured of the snapshots of the layouts that both have."""
    if a.bench is None or b.bench is None:
        return []
    other = {one.layout: one for one in b.bench.snapshots}
    return [(one, other[one.layout]) for one in a.bench.snapshots if one.layout in other]


def _layouts(record: BenchRecord) -> Sequence[Any]:
    return record.bench.layouts if record.bench else ()


def _cells(record: BenchRecord) -> Sequence[CellResult]:
    return record.bench.cells if record.bench else ()


def _pair_document(pair: FigurePair) -> Document:
    compared = pair.contrast
    return {
        "a": None if pair.a is None else cell_document(pair.a),
        "b": None if pair.b is None else cell_document(pair.b),
        "ratio": compared and compared.times,
        "finding": compared and compared.finding.value,
    }


# --- in words --------------------------------------------------------------------------------------------------------

_NAMES = {
    **{"lvm": "LVM", "memory": "RAM", "filesystem": "file system", "seconds": "window", "repeat": "repeats"},
    **{"vg": "volume group"},
}


def _alone(a: BenchRecord, b: BenchRecord, matched: Sequence[FigurePair]) -> list[str]:
    """What one has and the other has not."""
    names = {"a": only(a, b), "b": only(b, a)}
    said = [f"only {letter} has {', '.join(of_it)}" for letter, of_it in names.items() if of_it]
    of_a, of_b = sum(pair.b is None for pair in matched), sum(pair.a is None for pair in matched)
    return said + (
        [(f"figures that only one of them has: {of_a} in a, {of_b} in b (see --json)")] if of_a or of_b else []
    )


def _pair_table(both: Sequence[tuple[CellResult, CellResult]]) -> str:
    """Layout by layout, all in the same columns; random requests are counted, sequential ones measured in MiB/s."""
    head = ("LOAD", "RECORD", "THREADS", "A", "B", "", "B/A", "")
    order = list(dict.fromkeys(a.layout for a, _ in both))
    ordered = sorted(both, key=lambda pair: order.index(pair[0].layout))
    first, *lines = columns([head, *(_pair_row(a, b) for a, b in ordered)], right={1, 2, 3, 4, 6}).splitlines()
    drawn = iter(lines)
    return "\n\n".join(
        "\n".join([f"{name}:", first, *islice(drawn, sum(a.layout == name for a, _ in both))]) for name in order
    )


def _pair_row(a: CellResult, b: CellResult) -> tuple[str, ...]:
    compared = contrast(b, a)
    raw = " (raw, fio)" if a.medium is Medium.RAW else ""
    said, unit = (iops, "IOPS") if a.operation.is_random else (rate, "MiB/s")
    return (
        *(f"{a.operation.value}{raw}", size_words(a.record), str(a.threads), said(a), said(b), unit),
        *(ratio(compared.times if compared else None), _finding(compared)),
    )


def _finding(compared: Contrast | None) -> str:
    if compared is None:
        return "-"
    near = "within the spread" if compared.within and not compared.once else "nearly equal"
    return _SAID.get(compared.finding, near) + (", once" if compared.once else "")


def _snapshot_table(found: Sequence[tuple[SnapshotFigures, SnapshotFigures]]) -> str:
    if not found:
        return ""
    head = ("LAYOUT", "READ A", "READ B", "B/A", "PENALTY A", "PENALTY B")
    rows = [
        (
            *(a.layout, mib(a.snapshot_read), mib(b.snapshot_read), ratio(quotient(b.snapshot_read, a.snapshot_read))),
            *(ratio(a.penalty), ratio(b.penalty)),
        )
        for a, b in found
    ]
    title = "a snapshot's sequential reads in MiB/s, and the penalty of first writes; each measured once"
    return "\n".join([*_wrapped(title), columns([head, *rows], right=range(1, 6))])


def _wrapped(line: str) -> list[str]:
    return wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _of(record: BenchRecord) -> str:
    return measured_on(record.bench) if record.bench else "nothing measured"


def _words(name: str, value: Any) -> str:
    """A field's value as a person reads it."""
    match value:
        case None | "":
            return "-"
        case tuple():
            return ", ".join(map(short_pv, value)) or "-"
        case int() if name == "memory" or name.endswith("_size"):
            return size(value)
        case float():
            return duration(value)
        case _:
            return str(value)
