"""Benches as they are told in a terminal, and as lines."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.report.bench_series import (
    disk_series,
    layout_spans,
    processor_series,
    record_names,
    record_series,
    scaling_series,
    stripe_names,
)
from backupd.report.bench_text import bench_text, benches_table, headline
from backupd.report.plot import PlotFrame, plot
from backupd.report.probe_combinations import Series
from backupd.report.scale import named_scale
from backupd.vocabulary.benches import LARGE_RECORD, BenchRecord, DiskSample, LayoutBench, PublishedTable
from backupd.vocabulary.records import RunError, RunStatus
from backupd.vocabulary.scratch_layouts import KIB, MIB, Operation
from tests.fakes.benched import BEGAN, a_bench, a_bench_record, result, striped
from tests.share import examples


def told(bench: LayoutBench, *wanted: PublishedTable, ascii_only: bool = False) -> str:
    """The whole text of it."""
    return bench_text(a_bench_record(bench), tables=wanted, ascii_only=ascii_only)


# --- one bench -------------------------------------------------------------------------------------------------------


def test_a_bench_is_told_from_its_circumstances_over_its_verdict_to_its_notes() -> None:
    text = told(a_bench())
    order = [
        *("bench:", "20261120T030000Z-be9c", "took:", "4 min 00 s", "layouts: linear, striped-2x64k, striped-3x64k"),
        *("verdict\n- choose 3 stripes", "all tables of loads", "\nE2: ", "\nE3: ", "\nE4: ", "\nE5: "),
        *("each disk's part", "what a layout means for backups", "● sequential reads   ▲", "record size\n"),
        *("MiB/s that each disk read and wrote", "percent of processor time", "note: load average"),
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_on_what_it_was_measured_is_said_in_sentences() -> None:
    assert told(a_bench(raw=True)).split("\n\n")[1] == (
        "layouts: linear, striped-2x64k, striped-3x64k\n"
        "in free extents of labvg: nbd0, nbd1, nbd2\n"
        "xfs file of 256.0 MiB in volumes of 384.0 MiB; the host has 2.0 GiB of RAM and\n"
        "  1 processor; caches are bypassed (O_DIRECT)\n"
        "windows of 1.0 s, medians of 3\n"
        "Linux 6.1.0, LVM 2.03.16(2), sysbench 1.0.20, fio 3.33"
    )
    arrays = told(a_bench(arrays=True))
    assert "on separate disks: nbd0, nbd1\n" in arrays
    assert "mdadm 4.2" in arrays


def test_each_sentence_of_the_verdict_has_its_evidence_below_it() -> None:
    text = told(a_bench())
    assert (
        "- 3 stripes: 3.0x sequential writes of 1 MiB by 1 thread\n"
        "    linear 38.0 MiB/s (spread 4%); 2 stripes 76.0 MiB/s (spread 4%); 3 stripes\n"
        "      114 MiB/s (spread 4%)\n"
    ) in text
    assert "    small random writes with 1 writer 1.00x, 2 writers 2.00x, 6 writers 3.00x\n" in text


def test_tables_that_are_named_come_alone_with_their_plots() -> None:
    text = told(a_bench(), PublishedTable.E3)
    assert "\nE3: how sequential throughput scales" in text
    assert "E2: " not in text
    assert "E5: " not in text
    assert "each disk's part" not in text
    assert "● sequential reads   ▲ sequential writes" in text
    assert "● system   ▲ I/O wait" in text
    assert "that each disk read and wrote" not in text
    assert "● nbd0   ▲ nbd1   ■ nbd2" in told(a_bench(), PublishedTable.E2)
    assert "record size\n" in told(a_bench(), PublishedTable.E5)


def test_everything_of_three_disks_fits_eighty_columns() -> None:
    for bench in (a_bench(raw=True), a_bench(arrays=True)):
        assert max(len(line) for line in told(bench).splitlines()) <= 80


def test_it_can_be_told_in_ascii() -> None:
    assert told(a_bench(raw=True), ascii_only=True).isascii()
    assert "(highest - lowest) / median" in " ".join(told(a_bench(), ascii_only=True).split())


def test_a_failed_bench_tells_why_and_what_to_do() -> None:
    error = RunError("no-room", "not enough free extents on labvg: need 96, have 40", "extend it: vgextend", 6)
    text = bench_text(BenchRecord("b1", RunStatus.FAILED, BEGAN, BEGAN, error=error))
    assert text.splitlines()[-2:] == [
        "error:    not enough free extents on labvg: need 96, have 40",
        "hint:     extend it: vgextend",
    ]


def test_a_bench_that_is_still_running_has_no_end() -> None:
    assert "took:" not in bench_text(BenchRecord("b1", RunStatus.RUNNING, BEGAN))


def test_without_samples_and_snapshots_there_are_no_plots_and_tables_of_them() -> None:
    text = told(replace(a_bench(), samples=(), snapshots=()))
    assert "that each disk read and wrote" not in text
    assert "percent of processor" not in text
    assert "what a layout means for backups" not in text


def test_a_bench_of_one_layout_is_told() -> None:
    bench = a_bench()
    alone = replace(bench, layouts=bench.layouts[:1], cells=tuple(one for one in bench.cells if one.layout == "linear"))
    assert "\nE2: " in told(alone)
    assert "\n     stripes\n" not in told(alone)


# any figure, and what is none
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from((math.nan, math.inf, -math.inf))


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_any_bench_can_be_told(data: st.DataObject) -> None:
    bench = a_bench()
    cells = tuple(
        replace(one, iops=data.draw(NUMBERS), bytes_per_second=data.draw(NUMBERS), spread=data.draw(NUMBERS))
        for one in data.draw(st.lists(st.sampled_from(bench.cells), max_size=6))
    )
    samples = tuple(
        replace(one, at_seconds=data.draw(NUMBERS), read={"/dev/nbd0": data.draw(NUMBERS)}, iowait=data.draw(NUMBERS))
        for one in bench.samples[: data.draw(st.integers(0, 5))]
    )
    assert not re.search(r"\bnan|\binf\b", told(replace(bench, cells=cells, samples=samples), ascii_only=True))


# --- many ------------------------------------------------------------------------------------------------------------


def test_many_benches_are_a_line_each() -> None:
    failed = BenchRecord("b2", RunStatus.FAILED, BEGAN)
    lines = benches_table([a_bench_record(), a_bench_record(a_bench(arrays=True), run_id="b1"), failed]).splitlines()
    assert [re.split(r"  +", line) for line in lines] == [
        ["RUN", "STARTED (UTC)", "TOOK", "STATUS", "ON", "LAYOUTS", "BESIDE THE FIRST"],
        [
            *("20261120T030000Z-be9c", "2026-11-20 03:00", "4 min 00 s", "success", "labvg"),
            *("linear, 2 stripes, 3 stripes", "3 stripes: 3.0x sequential writes"),
        ],
        [
            *("b1", "2026-11-20 03:00", "4 min 00 s", "success", "nbd0, nbd1"),
            *("2 stripes, RAID-0 of 2 disks", "RAID-0 of 2 disks: 1.0x sequential writes"),
        ],
        ["b2", "2026-11-20 03:00", "-", "failed", "-", "-", "-"],
    ]


def test_no_bench_is_a_table_of_its_head() -> None:
    assert benches_table([]).startswith("RUN  STARTED")


def test_a_bench_of_reads_alone_has_a_headline_of_reads() -> None:
    bench = a_bench()
    reads = replace(bench, cells=tuple(one for one in bench.cells if one.operation is Operation.READ))
    assert headline(reads) == "3 stripes: 3.0x sequential reads"
    assert headline(replace(bench, cells=())) == "-"


# --- lines -----------------------------------------------------------------------------------------------------------


def test_scaling_has_a_point_per_number_of_stripes() -> None:
    reads, writes, *raw = scaling_series(a_bench(raw=True))
    assert reads.label == "sequential reads"
    assert [x for x, _ in reads.lines[0]] == [1.0, 2.0, 3.0]
    assert [y for _, y in reads.lines[0]] == pytest.approx([38.0, 76.0, 114.0])
    assert writes.label == "sequential writes"
    assert [one.label for one in raw] == ["sequential reads, raw, fio", "sequential writes, raw, fio"]
    assert stripe_names(a_bench()) == ((1.0, "1"), (2.0, "2"), (3.0, "3"))


def test_each_stripe_size_scales_by_itself() -> None:
    bench, wide = a_bench(), replace(striped(2), stripe_size=256 * KIB)
    cell = result(wide, Operation.READ, LARGE_RECORD)
    both = replace(bench, layouts=(*bench.layouts, wide), cells=(*bench.cells, cell))
    assert [one.label for one in scaling_series(both)] == [
        "sequential reads, striped 64 KiB",
        "sequential writes, striped 64 KiB",
        "sequential reads, striped 256 KiB",
    ]


def test_without_a_linear_layout_nothing_scales() -> None:
    assert scaling_series(a_bench(arrays=True)) == []


def test_record_sizes_lie_as_far_apart_as_their_powers_of_two() -> None:
    series = record_series(a_bench(arrays=True), [Operation.WRITE])
    assert [one.label for one in series] == ["sequential writes, 2 stripes", "sequential writes, RAID-0 of 2 disks"]
    assert [x for x, _ in series[0].lines[0]] == [10, 13, 15, 16, 17, 19, 20, 22, 23, 24]
    assert record_names(a_bench())[0] == (10, "1 KiB")
    assert record_names(a_bench())[-1] == (24, "16 MiB")


def test_a_disk_s_line_is_what_it_read_and_wrote() -> None:
    sample = DiskSample(
        1.0, "linear", "", {"/dev/sda": 1.0 * MIB}, {"/dev/sda": 2.0 * MIB, "/dev/sdb": 4.0 * MIB}, 0.25, 0.5
    )
    samples = [sample, replace(sample, at_seconds=2.0)]
    assert disk_series(samples, points=60) == [
        Series("sda", (((1.0, 3.0), (2.0, 3.0)),)),
        Series("sdb", (((1.0, 4.0), (2.0, 4.0)),)),
    ]
    assert processor_series(samples, points=60) == [
        Series("system", (((1.0, 25.0), (2.0, 25.0)),)),
        Series("I/O wait", (((1.0, 50.0), (2.0, 50.0)),)),
    ]


@pytest.mark.parametrize(("count", "left"), [(60, 60), (61, 31), (300, 60)])
def test_long_lines_are_means_of_neighbours(count: int, left: int) -> None:
    samples = [DiskSample(float(i), "linear", "", {"d": i * MIB}, {}, 0.0, 0.0) for i in range(count)]
    (line,) = disk_series(samples, points=60)[0].lines
    assert len(line) == left
    assert all(x == pytest.approx(y) for x, y in line)


def test_layouts_follow_each_other_in_time() -> None:
    assert [(one.layout, one.begin, one.end) for one in layout_spans(a_bench().samples)] == [
        ("linear", 0.0, 9.0),
        ("striped-2x64k", 10.0, 19.0),
        ("striped-3x64k", 20.0, 29.0),
    ]
    assert layout_spans(()) == []


def test_an_axis_can_have_names_for_its_ticks() -> None:
    axis = named_scale([(10.0, "1 KiB"), (24.0, "16 MiB")], [12.0, math.nan])
    assert (axis.low, axis.high, axis.labels()) == (10.0, 24.0, ("1 KiB", "16 MiB"))
    text = plot([Series("", (((10.0, 1.0), (24.0, 2.0)),))], PlotFrame(names=((10.0, "1 KiB"), (24.0, "16 MiB"))))
    assert re.search(r"1 KiB +16 MiB$", text.splitlines()[-2])


def test_an_axis_of_one_name_is_an_axis() -> None:
    axis = named_scale([(3.0, "3")])
    assert axis.low < 3.0 < axis.high
