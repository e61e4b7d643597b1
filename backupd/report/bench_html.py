"""One bench as one HTML file that can be mailed; in the frame and the looks of a probe's page.

Knows: the page. Everything that came from a host is escaped.
"""

from collections.abc import Sequence

from backupd.report.bench_charts import chart_svg
from backupd.report.bench_contrast import Judgement, Topic
from backupd.report.bench_course import course_svg
from backupd.report.bench_grid import TitledGrid, said_once
from backupd.report.bench_tables import tables, writer_counts
from backupd.report.bench_verdict import verdict
from backupd.report.bench_words import base, load_words, times
from backupd.report.combinations import short_pv
from backupd.report.page import cell, facts_list, figure, page, tag, text
from backupd.report.words import duration, instant, many, ratio, size
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    BenchRecord,
    Cell,
    LayoutBench,
    PublishedTable,
    size_words,
)
from backupd.vocabulary.scratch_layouts import LayoutKind, Operation, ScratchLayout

_CAPTIONS = {
    PublishedTable.E3: "Compared with one stripe; the dashed line is what as many disks could do.",
    PublishedTable.E4: "Small writes, by more and more threads at once.",
    PublishedTable.E5: "The axis is not to scale: record sizes are evenly spaced.",
}


def bench_page(record: BenchRecord, *, wanted: Sequence[PublishedTable] = ()) -> str:
    """The whole page: the answer, what it rests on, the time it took, every table. `wanted`: only these tables."""
    found = record.bench
    title = f"Which layout pays on {_where(found)}" if found else "A bench of layouts"
    body = [
        tag("header", tag("h1", text(title)) + tag("p", text(_when(record)), cls="soft")),
        *_failure(record),
        *(_sections(found, wanted) if found else ()),
    ]
    return page(title, body)


def _sections(found: LayoutBench, wanted: Sequence[PublishedTable]) -> list[str]:
    """Everything that was measured, the answer first."""
    course = course_svg(found.samples, title="What each disk and the processors did", alone=False)
    caption = "Each layout in turn, including the time to create, fill and remove its volume."
    return [
        _cards(found),
        _verdict(found),
        *([figure(course, caption)] if course else ()),
        *_tables(found, wanted),
        _notes(found.notes),
        _circumstances(found),
    ]


def _cards(found: LayoutBench) -> str:
    """The widest layout against the first, in large figures: a card for each kind of load."""
    first, widest = base(found), max(found.layouts, key=lambda layout: layout.width, default=None)
    if first is None or widest is None or widest == first:
        return ""
    known = [
        (load, factor)
        for load in _telling_loads(found)
        if (factor := times(found.find(widest.name, load), found.find(first.name, load))) is not None
    ]
    cards = [
        tag(
            "div",
            tag("p", text(load_words(load)), cls="soft")
            + tag("p", text(ratio(factor)), cls="large")
            + tag("p", text(f"{widest.name} against {first.name}"), cls="soft"),
            cls="card",
        )
        for load, factor in known
    ]
    return tag("section", "\n".join(cards), cls="cards") if cards else ""


def _telling_loads(found: LayoutBench) -> list[Cell]:
    """One writer and one reader of large records; small random writes by one, and by the most."""
    counts = writer_counts(found)
    return [
        Cell(Operation.WRITE, LARGE_RECORD),
        Cell(Operation.READ, LARGE_RECORD),
        *(Cell(Operation.RANDOM_WRITE, SMALL_RECORD, count) for count in dict.fromkeys((*counts[:1], *counts[-1:]))),
    ]


def _verdict(found: LayoutBench) -> str:
    """The conclusion, then each judgement by its question, with the figures that it rests on."""
    said = verdict(found)
    topics = dict.fromkeys(one.topic for one in said)
    parts = [
        part
        for topic in topics
        for part in (
            *(() if topic is Topic.CONCLUSION else (tag("h3", text(f"{topic[0].upper()}{topic[1:]}")),)),
            tag("ul", "\n".join(_judgement(one) for one in said if one.topic is topic)),
        )
    ]
    return tag("section", "\n".join([tag("h2", "Verdict"), *parts])) if parts else ""


def _judgement(one: Judgement) -> str:
    evidence = tag("p", text("; ".join(one.evidence)), cls="soft") if one.evidence else ""
    return tag("li", text(f"{one.text[0].upper()}{one.text[1:]}") + evidence)


# --- tables ----------------------------------------------------------------------------------------------------------


def _tables(found: LayoutBench, wanted: Sequence[PublishedTable]) -> list[str]:
    """Each with its picture before it; what is the same in all of them is said once."""
    common, drawn = said_once(tables(found, wanted))
    parts = [
        tag("h2", "Every figure"),
        *([tag("p", text(f"All tables: {', '.join(common)}."), cls="soft")] if common else ()),
    ]
    pictured: set[str] = set()
    for one in drawn:
        if one.key not in pictured:
            parts += _picture(found, one.key)
            pictured.add(one.key)
        parts.append(_table(one))
    return [tag("section", "\n".join(parts))] if drawn else []


def _picture(found: LayoutBench, key: str) -> list[str]:
    if key not in {table.value for table in _CAPTIONS}:
        return []
    table = PublishedTable(key)
    drawn = chart_svg(found, table, alone=False)
    return [figure(drawn, _CAPTIONS[table])] if drawn else []


def _table(drawn: TitledGrid) -> str:
    grid = drawn.grid
    name = f"{drawn.key.upper()}: {drawn.title}" if drawn.key in set(PublishedTable) else drawn.title
    parts = [tag("h3", text(f"{name[0].upper()}{name[1:]}"))]
    if grid.shared:
        parts.append(tag("p", text(f"{', '.join(grid.shared)}."), cls="soft"))
    if grid.rows:
        head = "".join(cell("th", words, figures=i in grid.right) for i, words in enumerate(grid.head))
        rows = [
            tag("tr", "".join(cell("td", words, figures=i in grid.right) for i, words in enumerate(row)))
            for row in grid.rows
        ]
        table = tag("table", tag("thead", tag("tr", head)) + tag("tbody", "\n".join(rows)))
        parts.append(tag("div", table, cls="scroll"))
    parts += [tag("p", text(words), cls="soft") for words in drawn.words]
    return "\n".join(parts)


# --- circumstances ---------------------------------------------------------------------------------------------------


def _circumstances(found: LayoutBench) -> str:
    """Everything that the figures depend on."""
    host, settings = found.host, found.settings
    facts = [
        ("Disks", ", ".join(map(short_pv, settings.disks))),
        ("Scratch volumes", f"{_places(found)}, up to {size(settings.volume_size)} each, {settings.filesystem}"),
        ("Layouts", "; ".join(f"{layout.name} {_lying(layout)}" for layout in found.layouts)),
        (
            "File",
            f"{size(settings.file_size)}, past the page cache (O_DIRECT); the host has {size(host.memory)} of RAM",
        ),
        ("Windows", f"{duration(settings.seconds)} each, {many(settings.repeat, 'repeat')}"),
        ("Processors", str(host.processors)),
        ("Kernel", host.kernel),
        ("LVM", host.lvm),
        ("sysbench", host.sysbench),
        ("fio", host.fio or "not used"),
        ("mdadm", host.mdadm or "not used"),
    ]
    return tag("section", tag("h2", "Measured on, and how") + facts_list(facts))


def _places(found: LayoutBench) -> str:
    return f"in free extents of {found.settings.vg}" if found.settings.vg else "on separate disks"


def _lying(layout: ScratchLayout) -> str:
    disks = ", ".join(map(short_pv, layout.disks))
    return f"on {disks}" if layout.kind is LayoutKind.LINEAR else f"over {disks} by {size_words(layout.stripe_size)}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return tag("section", tag("h2", "Notes on the figures") + tag("ul", "".join(tag("li", text(n)) for n in notes)))


def _failure(record: BenchRecord) -> list[str]:
    if record.error is None:
        return []
    hint = tag("p", text(record.error.hint), cls="soft") if record.error.hint else ""
    return [tag("section", tag("h2", "It did not finish") + tag("p", text(record.error.message)) + hint)]


def _where(found: LayoutBench) -> str:
    return found.settings.vg or ", ".join(map(short_pv, found.settings.disks))


def _when(record: BenchRecord) -> str:
    took = duration((record.ended_at - record.started_at).total_seconds()) if record.ended_at else "-"
    return f"Bench {record.run_id}: {record.status}, {instant(record.started_at)}, took {took}"
