"""Benches for a terminal: one in full, verdict first; many, a line each.

Knows: the order in which it is told.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from backupd.report.bench_contrast import Judgement, Topic
from backupd.report.bench_grid import TitledGrid, said_once
from backupd.report.bench_series import (
    disk_series,
    layout_spans,
    processor_series,
    record_names,
    record_series,
    scaling_series,
    stripe_names,
)
from backupd.report.bench_tables import record_threads
from backupd.report.bench_tables import tables as tables_of
from backupd.report.bench_verdict import verdict
from backupd.report.bench_words import LOADS, base, layout_words, times
from backupd.report.plot import PlotFrame, plot
from backupd.report.probe_combinations import Series, short_pv
from backupd.report.probe_table import WIDTH
from backupd.report.words import columns, duration, in_ascii, instant, many, size
from backupd.vocabulary.benches import LARGE_RECORD, BenchRecord, Cell, LayoutBench, PublishedTable
from backupd.vocabulary.scratch_layouts import Operation, ScratchLayout

_TOGETHER = 4  # series in one plot; with more nobody can follow one
_NUMBER = re.compile(r"(?<=\d) (?=[A-Za-z])")
_POINTS = 60  # of a line over time: about one for each column


def bench_text(
    record: BenchRecord, *, tables: Sequence[PublishedTable] = (), width: int = 72, ascii_only: bool = False
) -> str:
    """Everything of one bench: what became of it, what was measured on what, what it means, tables, plots, notes.

    With `tables` only those, and their plots. No line but of a wide table is longer than 80 characters.
    """
    parts = [columns(_outcome(record))]
    if record.bench is not None:
        parts += [
            "\n".join(_wrapped(circumstances(record.bench))),
            _verdict_text(verdict(record.bench)),
            *_table_texts(record.bench, tables),
            *_plots(record.bench, tables, width=width, ascii_only=ascii_only),
            "\n".join(_wrapped(f"note: {note}" for note in record.bench.notes)),
        ]
    text = "\n\n".join(part for part in parts if part)
    return in_ascii(text) if ascii_only else text


def circumstances(bench: LayoutBench) -> list[str]:
    """What was measured on what, and how: a sentence each."""
    host, settings = bench.host, bench.settings
    where = f"in free extents of {settings.vg}" if settings.vg else "on separate disks"
    tools = [f"Linux {host.kernel}", f"LVM {host.lvm}", f"sysbench {host.sysbench}"]
    tools += [f"fio {host.fio}"] if host.fio else []
    tools += [f"mdadm {host.mdadm}"] if host.mdadm else []
    return [
        f"layouts: {', '.join(layout.name for layout in bench.layouts)}",
        f"{where}: {', '.join(map(short_pv, settings.disks))}",
        f"{settings.filesystem} file of {size(settings.file_size)} in volumes of {size(settings.volume_size)};"
        f" the host has {size(host.memory)} of RAM and {many(host.processors, 'processor')};"
        " caches are bypassed (O_DIRECT)",
        f"windows of {duration(settings.seconds)}, medians of {settings.repeat}",
        ", ".join(tools),
    ]


def benches_table(records: Sequence[BenchRecord]) -> str:
    """Benches, a line each, in the order given: the layouts, and what the widest of them reached beside the first."""
    head = ("RUN", "STARTED (UTC)", "TOOK", "STATUS", "ON", "LAYOUTS", "BESIDE THE FIRST")
    return columns([head, *map(_benches_row, records)])


def headline(bench: LayoutBench) -> str:
    """What the widest layout reached beside the one that all are compared with, in the plainest load; or a dash."""
    first = base(bench)
    others = sorted((layout for layout in bench.layouts if layout != first), key=lambda layout: layout.width)
    if first is None or not others:
        return "-"
    for cell in (
        Cell(Operation.WRITE, LARGE_RECORD),
        Cell(Operation.READ, LARGE_RECORD),
        Cell(Operation.WRITE, LARGE_RECORD, record_threads(bench)),
    ):
        factor = times(bench.find(others[-1].name, cell), bench.find(first.name, cell))
        if factor is not None:
            return f"{layout_words(others[-1], bench.layouts)}: {factor:.1f}x {LOADS[cell.operation]}"
    return "-"


def _benches_row(record: BenchRecord) -> tuple[str, ...]:
    bench = record.bench
    return (
        *(record.run_id, f"{record.started_at:%Y-%m-%d %H:%M}", duration(record.seconds), record.status.value),
        (bench.settings.vg or ", ".join(map(short_pv, bench.settings.disks))) if bench else "-",
        _layouts(bench.layouts) if bench else "-",
        headline(bench) if bench else "-",
    )


def _layouts(layouts: Sequence[ScratchLayout]) -> str:
    return ", ".join(layout_words(layout, layouts) for layout in layouts) or "-"


def _outcome(record: BenchRecord) -> list[tuple[str, str]]:
    head = [("bench:", record.run_id), ("status:", record.status.value), ("started:", instant(record.started_at))]
    if record.seconds is not None:
        head.append(("took:", duration(record.seconds)))
    if record.error is not None:
        head.append(("error:", record.error.message))
        head += [("hint:", record.error.hint)] if record.error.hint else []
    return head


def _verdict_text(judgements: Sequence[Judgement]) -> str:
    """Each sentence with its evidence below it; that of record sizes is the whole of E5, and is in its tables."""
    lines = []
    for one in judgements:
        lines += _wrapped([f"- {one.text}"])
        if one.topic is Topic.CONCLUSION:
            lines += _wrapped(one.evidence, indent="    ")
        elif one.topic is not Topic.RECORDS and one.evidence:
            lines += _wrapped(["; ".join(one.evidence)], indent="    ")
    return "\n".join(["verdict", *lines]) if lines else ""


def _table_texts(bench: LayoutBench, wanted: Sequence[PublishedTable]) -> list[str]:
    common, drawn = said_once(tables_of(bench, wanted))
    once = _wrapped([f"all tables of loads: {'; '.join(common)}"] if common else [])
    return ["\n".join(once), *map(_table_text, drawn)]


def _table_text(one: TitledGrid) -> str:
    named = f"{one.key.upper()}: " if one.key in set(PublishedTable) else ""
    lines = _wrapped([f"{named}{one.title}", *(["; ".join(one.grid.shared)] if one.grid.shared else [])])
    rows = [columns([one.grid.head, *one.grid.rows], right=one.grid.right)] if one.grid.rows else []
    return "\n".join([*lines, *rows, *_wrapped(one.words)])


# --- plots -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Picture:
    """One plot: whose table it goes with, and what is said below it."""

    table: PublishedTable
    series: Sequence[Series]
    frame: PlotFrame
    words: str = ""


def _plots(bench: LayoutBench, wanted: Sequence[PublishedTable], *, width: int, ascii_only: bool) -> list[str]:
    """Those that go with the wanted tables, or all; one without a line is left out."""
    texts = []
    for one in _pictures(bench, PlotFrame(width=width, reach=(0.0,), ascii_only=ascii_only)):
        if one.series and (not wanted or one.table in wanted):
            drawn = (plot(one.series[i : i + _TOGETHER], one.frame) for i in range(0, len(one.series), _TOGETHER))
            texts += ["\n".join([*drawn, *_wrapped([one.words] if one.words else [])])]
    return texts


def _pictures(bench: LayoutBench, plain: PlotFrame) -> Iterator[_Picture]:
    scaling = replace(plain, unit="MiB/s of 1 MiB records by 1 thread", across="stripes", names=stripe_names(bench))
    yield _Picture(PublishedTable.E3, scaling_series(bench), scaling)
    by = f"by {many(record_threads(bench), 'thread')}"
    sizes = replace(plain, across="record size", names=record_names(bench))
    for kind, operations in (
        ("sequential", (Operation.WRITE, Operation.READ)),
        ("random", (Operation.RANDOM_WRITE, Operation.RANDOM_READ)),
    ):
        yield _Picture(PublishedTable.E5, record_series(bench, operations), replace(sizes, unit=f"MiB/s, {kind}, {by}"))
    time = replace(plain, across="seconds since the bench started measuring")
    spans = "; ".join(f"{span.begin:.0f} to {span.end:.0f} s {span.layout}" for span in layout_spans(bench.samples))
    if bench.samples:
        disks = disk_series(bench.samples, points=_POINTS)
        yield _Picture(PublishedTable.E2, disks, replace(time, unit="MiB/s that each disk read and wrote"), spans)
        busy = processor_series(bench.samples, points=_POINTS)
        yield _Picture(PublishedTable.E3, busy, replace(time, unit="percent of processor time"), spans)


def _wrapped(lines: Iterable[str], *, indent: str = "") -> list[str]:
    """In lines of 80 characters; a number stays with its unit."""
    return [
        part.replace("\0", " ")
        for line in lines
        for part in wrap(
            _NUMBER.sub("\0", line),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
    ]
