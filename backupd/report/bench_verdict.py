"""What a bench's figures say, in sentences, each with the figures that it rests on. Pure.

Knows: which comparisons answer which question of somebody who builds a host. Refuses to say more than was measured:
what is within the repeats' spread is no gain, what is too noisy is not judged (`bench_contrast`).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from backupd.report.bench_advice import advice
from backupd.report.bench_contrast import (
    LEAST,
    Contrast,
    Judgement,
    Tendency,
    Topic,
    contrast,
    equal,
    overall,
    runs,
    span,
    worst,
)
from backupd.report.bench_disks import hours_per_tebibyte
from backupd.report.bench_grid import mib
from backupd.report.bench_tables import (
    record_pairs,
    record_sizes,
    record_threads,
    writer_counts,
)
from backupd.report.bench_words import LOADS, base, count_words, families, layout_words, load_words, quotient
from backupd.report.words import figure, many, ratio, share
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    Cell,
    CellResult,
    LayoutBench,
    PublishedTable,
    SnapshotFigures,
)
from backupd.vocabulary.scratch_layouts import LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.units import size_words

ONE_THREAD = (  # the loads of E2
    Cell(Operation.WRITE, LARGE_RECORD),
    Cell(Operation.READ, LARGE_RECORD),
    Cell(Operation.REWRITE, LARGE_RECORD),
    Cell(Operation.RANDOM_READ, SMALL_RECORD),
)
RAW = (  # those of E3 without a file system
    Cell(Operation.WRITE, LARGE_RECORD, medium=Medium.RAW),
    Cell(Operation.READ, LARGE_RECORD, medium=Medium.RAW),
)


def verdict(bench: LayoutBench) -> tuple[Judgement, ...]:
    """Everything that the figures support: the conclusion first, then what it rests on."""
    first = base(bench)
    if first is None:
        return ()
    found = [
        *(
            one
            for family in families(bench)
            for cell in (*ONE_THREAD, *RAW)
            for one in _one_thread(bench, first, family, cell)
        ),
        *(
            one
            for family in families(bench)
            for operation in (Operation.RANDOM_WRITE, Operation.WRITE)
            for one in _writers(bench, first, family[-1], operation)
        ),
        *(one for a, b in record_pairs(bench) if b for one in _records(bench, a, b)),
        *(one for family in families(bench) for one in _processors(bench, [first, *family])),
        *_backups(bench, first),
    ]
    return (*advice(bench), *found)


# --- one thread ------------------------------------------------------------------------------------------------------


def _one_thread(
    bench: LayoutBench, first: ScratchLayout, family: Sequence[ScratchLayout], cell: Cell
) -> list[Judgement]:
    """How the widest of these layouts stands beside the first under this load."""
    against = bench.find(first.name, cell)
    measured = [layout for layout in family if bench.find(layout.name, cell)]
    compared = contrast(bench.find(measured[-1].name, cell), against) if measured else None
    if compared is None:
        return []
    name, load = layout_words(measured[-1], bench.layouts), load_words(cell)
    beside = _beside(bench, first)
    match compared.finding:
        case Tendency.GAIN:
            text = f"{name}: {compared.times:.1f}x {load}{beside}{_enough(bench, measured, cell)}"
        case Tendency.LOSS:
            text = f"{name}: slower at {load}{beside} ({compared.words()})"
        case Tendency.SAME:
            text = f"{name}: no gain for {load}{beside} ({compared.words()})"
        case _:
            text = f"{name}: cannot tell for {load}{beside}: the repeats differ too much ({compared.words()})"
    shown = [first, *measured]
    return [Judgement(Topic.ONE_THREAD, compared.finding, text, tuple(_figures(bench, shown, cell)))]


def _enough(bench: LayoutBench, measured: Sequence[ScratchLayout], cell: Cell) -> str:
    """That fewer stripes do as well as the most, where they do."""
    widest = bench.find(measured[-1].name, cell)
    for layout in measured[:-1]:
        compared = contrast(widest, bench.find(layout.name, cell))
        if compared is not None and compared.finding in (Tendency.SAME, Tendency.LOSS):
            return f"; {layout_words(layout, bench.layouts)} already reach that"
    return ""


def _figures(bench: LayoutBench, layouts: Sequence[ScratchLayout], cell: Cell) -> list[str]:
    found = [(layout, bench.find(layout.name, cell)) for layout in layouts]
    return [f"{layout_words(layout, bench.layouts)} {_rate(one)}" for layout, one in found if one is not None]


def _rate(one: CellResult) -> str:
    """In the unit in which it is talked about, with its spread."""
    small = one.operation.is_random or one.record <= SMALL_RECORD
    rate = f"{figure(one.iops, 1)} IOPS" if small else f"{mib(one.bytes_per_second)} MiB/s"
    return f"{rate} ({f'spread {share(one.spread)}' if one.repeats > 1 else 'measured once'})"


def _beside(bench: LayoutBench, first: ScratchLayout) -> str:
    """What it is compared with, where that is not the linear layout that everybody expects."""
    return "" if first.kind is LayoutKind.LINEAR else f" beside {layout_words(first, bench.layouts)}"


# --- how many writers it takes ---------------------------------------------------------------------------------------


def _writers(bench: LayoutBench, first: ScratchLayout, layout: ScratchLayout, operation: Operation) -> list[Judgement]:
    """By the number of threads: neighbours with the same finding in one sentence."""
    compared = []
    for threads in writer_counts(bench):
        cell = Cell(operation, SMALL_RECORD, threads)
        one = contrast(bench.find(layout.name, cell), bench.find(first.name, cell))
        compared += [(threads, one)] if one else []
    measured = [threads for threads, _ in compared]
    return [
        Judgement(
            Topic.WRITERS,
            finding,
            f"{layout_words(layout, bench.layouts)}: {_writers_words(finding, group, operation, measured)}"
            + _beside(bench, first),
            tuple(
                f"{many(threads, 'thread')}: {', '.join(_figures(bench, [first, layout], cell))}"
                for threads, _ in group
                for cell in [Cell(operation, SMALL_RECORD, threads)]
            ),
        )
        for finding, group in runs(compared)
    ]


def _writers_words(
    finding: Tendency, group: Sequence[tuple[int, Contrast]], operation: Operation, measured: Sequence[int]
) -> str:
    load = f"{LOADS[operation]} of {size_words(SMALL_RECORD)}"
    counts = [threads for threads, _ in group]
    found = [one for _, one in group]
    by = f"with {count_words(counts, 'thread')}"
    match finding:
        case Tendency.GAIN:
            each = ", ".join(f"{one.times:.1f}x with {threads}" for threads, one in group)
            last = counts[-1] == measured[-1]
            since = f"from {many(counts[0], 'thread')} on" if last else by
            return f"gain for {load} {since}: {each} (measured with {count_words(measured, 'thread')})"
        case Tendency.LOSS:
            return f"loss for {load} {by} ({span(found)}, {worst(found)})"
        case Tendency.SAME:
            return f"no gain for {load} {by} ({', '.join(ratio(one.times) for one in found)}, {worst(found)})"
        case _:
            return f"cannot tell for {load} {by}: the repeats differ too much ({worst(found)})"


# --- record sizes ----------------------------------------------------------------------------------------------------


def _records(bench: LayoutBench, a: ScratchLayout, b: ScratchLayout) -> list[Judgement]:
    """How b stands beside a, by the size of a request: a sentence for each load, or one if there is no difference."""
    if PublishedTable.E5.value not in bench.settings.tables:
        return []
    threads = record_threads(bench)
    name_a, name_b = (layout_words(one, bench.layouts) for one in (a, b))
    by_load: list[tuple[Operation, list[tuple[int, Contrast]]]] = []
    for operation in (Operation.WRITE, Operation.READ, Operation.RANDOM_READ, Operation.RANDOM_WRITE):
        cells = [Cell(operation, record, threads) for record in record_sizes(bench)]
        compared = [(cell.record, contrast(bench.find(b.name, cell), bench.find(a.name, cell))) for cell in cells]
        known = [(record, one) for record, one in compared if one is not None]
        by_load += [(operation, known)] if known else []
    everything = [one for _, found in by_load for _, one in found]
    if everything and overall(one.finding for one in everything) is Tendency.SAME:
        sizes = span_words(sorted({record for _, found in by_load for record, _ in found}))
        text = f"{name_b} and {name_a} are {equal(everything)}, at records of {sizes} by {many(threads, 'thread')}"
        return [Judgement(Topic.RECORDS, Tendency.SAME, text, (f"{span(everything)}, {worst(everything)}",))]
    return [
        Judgement(
            Topic.RECORDS,
            overall(one.finding for _, one in found),
            f"{name_b} compared with {name_a}, {LOADS[operation]} by {many(threads, 'thread')}:"
            f" {_records_words(found)}",
            tuple(f"{size_words(record)}: {one.words()}" for record, one in found),
        )
        for operation, found in by_load
    ]


def _records_words(found: Sequence[tuple[int, Contrast]]) -> str:
    parts = []
    for finding, group in runs(found):
        ratios = [one for _, one in group]
        words = {
            Tendency.GAIN: f"{span(ratios)} ahead",
            Tendency.LOSS: f"behind ({span(ratios)})",
            Tendency.SAME: equal(ratios),
        }.get(finding, f"cannot tell ({worst(ratios)})")
        parts.append(f"{words} at {span_words([record for record, _ in group])}")
    return ", ".join(parts)


def span_words(records: Sequence[int]) -> str:
    """From the smallest to the largest: `64 KiB`, `1-8 KiB`, `32 KiB-16 MiB`."""
    low, high = size_words(records[0]), size_words(records[-1])
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if unit == high.partition(' ')[2] else low}-{high}"


# --- processors ------------------------------------------------------------------------------------------------------


def _processors(bench: LayoutBench, layouts: Sequence[ScratchLayout]) -> list[Judgement]:
    """The part of their time that the processors waited for disks, by stripes; of the first load that is known."""
    for cell in ONE_THREAD[:2]:
        found = [(layout, bench.find(layout.name, cell)) for layout in layouts]
        known = [
            (layout, one.iowait) for layout, one in found if one and one.iowait is not None and isfinite(one.iowait)
        ]
        if len(known) > 1:
            falls = all(b < a for (_, a), (_, b) in pairwise(known))
            said = ", ".join(f"{share(wait)} on {layout_words(layout, bench.layouts)}" for layout, wait in known)
            text = "I/O wait shrinks as stripes are added" if falls else "I/O wait does not shrink with every stripe"
            return [Judgement(Topic.PROCESSORS, Tendency.FACT, f"{text}: {said}, in {load_words(cell)}")]
    return []


# --- backups ---------------------------------------------------------------------------------------------------------


def _backups(bench: LayoutBench, first: ScratchLayout) -> list[Judgement]:
    names = {layout.name: layout_words(layout, bench.layouts) for layout in bench.layouts}
    known = [one for one in bench.snapshots if hours_per_tebibyte(one.snapshot_read) is not None]
    found = []
    if known:
        fastest = max(known, key=lambda one: one.snapshot_read or 0.0)
        plain = next((one for one in known if one.layout == first.name), None)
        found.append(_copying(fastest, plain, names, [_copied(one, names) for one in known]))
    slowed = [one for one in bench.snapshots if one.penalty is not None and isfinite(one.penalty)]
    if slowed:
        said = ", ".join(f"{ratio(one.penalty)} on {names.get(one.layout, one.layout)}" for one in slowed)
        text = f"penalty of first writes while there is a snapshot: {said}"
        found.append(
            Judgement(Topic.BACKUPS, Tendency.FACT, text, tuple(f"probe {one.probe_run_id}" for one in slowed))
        )
    return found


def _copying(
    fastest: SnapshotFigures, plain: SnapshotFigures | None, names: dict[str, str], evidence: Sequence[str]
) -> Judgement:
    """How long a copy of a snapshot takes at best; each was measured once, so that only a clear difference counts."""
    at_best = f"a snapshot of {_copied(fastest, names, is_read=' is read')}"
    factor = quotient(fastest.snapshot_read, plain.snapshot_read) if plain else None
    if plain is None or plain is fastest or factor is None:
        best = ": no other is read faster" if len(evidence) > 1 else ""
        return Judgement(Topic.BACKUPS, Tendency.FACT, f"{at_best}{best} (measured once)", tuple(evidence))
    if factor <= LEAST:
        text = (
            f"{at_best}: hardly faster than of {names.get(plain.layout, plain.layout)} ({ratio(factor)}, measured once)"
        )
        return Judgement(Topic.BACKUPS, Tendency.SAME, text, tuple(evidence))
    text = f"{at_best}; of {_copied(plain, names)} ({factor:.1f}x, measured once)"
    return Judgement(Topic.BACKUPS, Tendency.GAIN, text, tuple(evidence))


def _copied(one: SnapshotFigures, names: dict[str, str], *, is_read: str = "") -> str:
    hours = figure(hours_per_tebibyte(one.snapshot_read), 1)
    return f"{names.get(one.layout, one.layout)}{is_read} at {mib(one.snapshot_read)} MiB/s, {hours} h per TiB"
