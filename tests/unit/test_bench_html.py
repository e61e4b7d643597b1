"""A bench's page: complete, harmless, and enough by itself; the answer first."""

from dataclasses import replace

import pytest

from backupd.report.bench_html import bench_page
from backupd.report.bench_verdict import verdict
from backupd.report.svg import NAMESPACE
from backupd.vocabulary.benches import BenchRecord, LayoutBench, PublishedTable
from backupd.vocabulary.records import RunError, RunStatus
from backupd.vocabulary.scratch_layouts import KIB, MIB
from tests.fakes.benched import PVS, a_bench, a_bench_record
from tests.unit.page_reader import Reader

HOSTILE = "<script>alert('x')</script>&\"\x1b[31m\x00"


def hostile() -> LayoutBench:
    """Whatever came from a host is an attack."""
    bench = a_bench()
    host = replace(bench.host, kernel=HOSTILE, lvm=HOSTILE, sysbench=HOSTILE, fio=HOSTILE, mdadm=HOSTILE)
    disks = (HOSTILE, *PVS[1:])
    return replace(
        bench,
        host=host,
        settings=replace(bench.settings, vg=HOSTILE, disks=disks, filesystem=HOSTILE),
        layouts=tuple(replace(layout, disks=disks[: layout.width]) for layout in bench.layouts),
        cells=tuple(replace(one, shares={HOSTILE: 1.0}) for one in bench.cells),
        samples=tuple(
            replace(one, step=HOSTILE, layout=HOSTILE, written={HOSTILE: 1.0}, read={HOSTILE: 1.0})
            for one in bench.samples
        ),
        snapshots=tuple(replace(one, probe_run_id=HOSTILE) for one in bench.snapshots),
        notes=(HOSTILE,),
    )


@pytest.mark.parametrize("bench", [a_bench(raw=True), a_bench(arrays=True), hostile()])
def test_a_page_needs_nothing_but_itself(bench: LayoutBench) -> None:
    page = bench_page(a_bench_record(bench))
    assert "http" not in page.replace(NAMESPACE, "")
    reader = Reader(page)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe", "image", "use"} & set(reader.tags)
    assert not {"src", "href", "style", "onload"} & {name for name, _ in reader.attributes}
    assert "url(" not in page
    assert "@import" not in page


def test_a_page_has_every_part() -> None:
    bench = a_bench()
    reader = Reader(bench_page(a_bench_record(bench)))
    assert reader.tags.count("svg") == 1 + len((PublishedTable.E3, PublishedTable.E4, PublishedTable.E5))
    for words in ("labvg", "xfs", "6.1.0", "2.03.16(2)", "1.0.20", "256.0 MiB", "2.0 GiB of RAM", "2026-11-20 03:00"):
        assert words in reader.words
    for table in PublishedTable:
        assert f"{table.value.upper()}: " in reader.words
    assert "load average at the start: 0.3" in reader.words
    assert bench.snapshots[0].probe_run_id in reader.words


def test_what_the_widest_layout_gains_stands_first_in_large_figures() -> None:
    words = Reader(bench_page(a_bench_record())).words
    cards = words[: words.index("Every figure")]
    for load, factor in (
        ("sequential writes of 1 MiB by 1 thread", "3.00x"),
        ("random writes of 16 KiB by 1 thread", "1.00x"),
        ("random writes of 16 KiB by 6 threads", "3.00x"),
    ):
        assert f"{load}{factor}striped-3x64k against linear" in cards.replace("\n", "")


def test_the_verdict_is_there_with_what_it_rests_on() -> None:
    words = Reader(bench_page(a_bench_record())).words
    judged = words[words.index("Verdict") : words.index("Every figure")]
    for one in verdict(a_bench()):
        assert one.text[1:] in judged
        assert "; ".join(one.evidence) in judged
    assert judged.index("hoose 3 stripes") < judged.index("One thread") < judged.index("Backups")


def test_stripes_and_an_array_of_the_same_width_have_no_large_figures() -> None:
    """Neither is the wider one."""
    words = Reader(bench_page(a_bench_record(a_bench(arrays=True)))).words
    assert "striped-2x64k against" not in words[: words.index("Every figure")]


def test_only_the_tables_that_were_asked_for_are_there() -> None:
    reader = Reader(bench_page(a_bench_record(), wanted=[PublishedTable.E3]))
    assert "E3: " in reader.words
    assert "E4: " not in reader.words
    assert reader.tags.count("svg") == 2


def test_names_from_a_host_stay_words() -> None:
    page = bench_page(a_bench_record(hostile()))
    assert "<script>alert('x')</script>" in Reader(page).words
    assert "\x1b" not in page
    assert "\x00" not in page


def test_a_bench_that_failed_has_a_page_with_its_error() -> None:
    error = RunError("probe-error", f"the disk {HOSTILE} failed", "look at it", 12)
    failed = BenchRecord("b1", RunStatus.FAILED, a_bench_record().started_at, error=error)
    reader = Reader(bench_page(failed))
    assert "the disk <script>" in reader.words
    assert "look at it" in reader.words
    assert "svg" not in reader.tags


def test_a_bench_of_one_layout_without_figures_has_a_page() -> None:
    bench = a_bench()
    bare = replace(bench, layouts=bench.layouts[:1], cells=(), samples=(), snapshots=(), notes=())
    reader = Reader(bench_page(a_bench_record(bare)))
    assert reader.open == []
    assert "not measured" in reader.words
    assert "svg" not in reader.tags


def test_a_page_names_no_record_size_that_was_not_measured() -> None:
    bench = a_bench(arrays=True)
    few = replace(bench, cells=tuple(one for one in bench.cells if one.record in (8 * KIB, MIB)))
    words = Reader(bench_page(a_bench_record(few))).words
    assert "8 KiB" in words
    assert "16 MiB" not in words
