"""One bench as one HTML file that can be mailed; in the frame and the looks of a probe's page.

Knows: what is on the page, and in which words; the template knows where. What came from a host is escaped as the
template is filled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backupd.report.bench_charts import chart_svg
from backupd.report.bench_contrast import Judgement, Topic
from backupd.report.bench_course import course_svg
from backupd.report.bench_grid import TitledGrid, said_once
from backupd.report.bench_tables import tables, writer_counts
from backupd.report.bench_verdict import verdict
from backupd.report.bench_words import base, load_words, measured_on, times
from backupd.report.probe_combinations import short_pv
from backupd.report.probe_table import Grid
from backupd.report.templating import report
from backupd.report.words import duration, instant, many, size
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    BenchRecord,
    Cell,
    LayoutBench,
    PublishedTable,
)
from backupd.vocabulary.scratch_layouts import LayoutKind, Operation, ScratchLayout
from backupd.vocabulary.units import size_words

_CAPTIONS = {
    PublishedTable.E3.value: "Compared with one stripe; the dashed line is what as many disks could do.",
    PublishedTable.E4.value: "Small writes, by more and more threads at once.",
    PublishedTable.E5.value: "The axis is not to scale: record sizes are evenly spaced.",
}


@dataclass(frozen=True, slots=True)
class _Table:
    """One table, with the picture that stands before it."""

    name: str
    grid: Grid
    words: Sequence[str]  # below it
    picture: str  # SVG; empty where there is none
    caption: str


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the template shows of a bench."""

    cards: Sequence[tuple[str, float, str]]  # a load, how many times as fast, which layout against which
    verdict: Mapping[Topic, Sequence[Judgement]]
    course: str  # SVG; empty where there is none
    shared: Sequence[str]  # what is said once for all tables
    tables: Sequence[_Table]
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]  # everything that the figures depend on


def bench_page(record: BenchRecord, *, wanted: Sequence[PublishedTable] = ()) -> str:
    """The whole page: the answer, what it rests on, the time it took, every table. `wanted`: only these tables."""
    found = record.bench
    return report(
        "bench.html",
        title=f"Which layout pays on {measured_on(found)}" if found else "A bench of layouts",
        subtitle=_when(record),
        error=record.error,
        measured=_measured(found, wanted) if found else None,
    )


def _measured(found: LayoutBench, wanted: Sequence[PublishedTable]) -> _Measured:
    shared, drawn = said_once(tables(found, wanted))
    return _Measured(
        cards=list(_cards(found)),
        verdict=_by_topic(verdict(found)),
        course=course_svg(found.samples, title="What each disk and the processors did", alone=False),
        shared=shared,
        tables=list(_tables(found, drawn)),
        notes=found.notes,
        facts=_circumstances(found),
    )


def _cards(found: LayoutBench) -> Iterator[tuple[str, float, str]]:
    """The widest layout against the first, for each kind of load."""
    first, widest = base(found), max(found.layouts, key=lambda layout: layout.width, default=None)
    if first is None or widest is None or widest == first:
        return
    for load in _telling_loads(found):
        factor = times(found.find(widest.name, load), found.find(first.name, load))
        if factor is not None:
            yield load_words(load), factor, f"{widest.name} against {first.name}"


def _telling_loads(found: LayoutBench) -> list[Cell]:
    """One writer and one reader of large records; small random writes by one, and by the most."""
    counts = writer_counts(found)
    return [
        Cell(Operation.WRITE, LARGE_RECORD),
        Cell(Operation.READ, LARGE_RECORD),
        *(Cell(Operation.RANDOM_WRITE, SMALL_RECORD, count) for count in dict.fromkeys((*counts[:1], *counts[-1:]))),
    ]


def _by_topic(said: Sequence[Judgement]) -> dict[Topic, list[Judgement]]:
    """In the order in which the topics come up."""
    return {topic: [one for one in said if one.topic is topic] for topic in dict.fromkeys(one.topic for one in said)}


def _tables(found: LayoutBench, drawn: Sequence[TitledGrid]) -> Iterator[_Table]:
    """Each; the first of a published one with its picture."""
    pictured: set[str] = set()
    for one in drawn:
        name = f"{one.key.upper()}: {one.title}" if one.key in set(PublishedTable) else one.title
        caption = _CAPTIONS.get(one.key, "")
        first = caption and one.key not in pictured
        pictured.add(one.key)
        picture = chart_svg(found, PublishedTable(one.key), alone=False) if first else ""
        yield _Table(name, one.grid, one.words, picture, caption)


def _circumstances(found: LayoutBench) -> list[tuple[str, str]]:
    host, settings = found.host, found.settings
    return [
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


def _places(found: LayoutBench) -> str:
    return f"in free extents of {found.settings.vg}" if found.settings.vg else "on separate disks"


def _lying(layout: ScratchLayout) -> str:
    disks = ", ".join(map(short_pv, layout.disks))
    return f"on {disks}" if layout.kind is LayoutKind.LINEAR else f"over {disks} by {size_words(layout.stripe_size)}"


def _when(record: BenchRecord) -> str:
    return f"Bench {record.run_id}: {record.status}, {instant(record.started_at)}, took {duration(record.seconds)}"
