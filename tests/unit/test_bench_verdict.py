"""What a bench's figures are said to mean."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.report.bench_contrast import Judgement, Tendency, Topic, contrast, overall
from backupd.report.bench_verdict import span_words, verdict
from backupd.vocabulary.benches import LARGE_RECORD, SMALL_RECORD, Cell, CellResult, LayoutBench
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, Operation, ScratchLayout
from tests.fakes.benched import a_bench, result, striped
from tests.share import examples

LARGE_WRITE = Cell(Operation.WRITE, LARGE_RECORD)
RAID0 = striped(2, kind=LayoutKind.RAID0)


def changed(bench: LayoutBench, where: Callable[[CellResult], bool], *, times: float = 1.0, **new: Any) -> LayoutBench:
    """The same with other figures where this holds, and so many times the throughput."""
    return replace(
        bench,
        cells=tuple(
            replace(one, iops=one.iops * times, bytes_per_second=one.bytes_per_second * times, **new)
            if where(one)
            else one
            for one in bench.cells
        ),
    )


def of(layout: ScratchLayout, *cells: Cell) -> Callable[[CellResult], bool]:
    """Figures of these loads on this layout; all of its loads if none is named."""
    return lambda one: one.layout == layout.name and (one.cell in cells or not cells)


def by(threads: int, operation: Operation = Operation.RANDOM_WRITE) -> Cell:
    """Small requests by so many."""
    return Cell(operation, SMALL_RECORD, threads)


def texts(bench: LayoutBench, topic: Topic) -> list[str]:
    """What is said on this topic."""
    return [one.text for one in verdict(bench) if one.topic is topic]


def conclusion(bench: LayoutBench) -> Judgement:
    """The one that comes first."""
    first = verdict(bench)[0]
    assert first.topic is Topic.CONCLUSION
    return first


# --- when a difference counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "spread_a", "spread_b", "finding"),
    [
        (2.9, 0.04, 0.04, Tendency.GAIN),
        (1.16, 0.02, 0.02, Tendency.GAIN),
        (1.149, 0.0, 0.0, Tendency.SAME),
        (1.02, 0.04, 0.04, Tendency.SAME),
        (1.20, 0.15, 0.06, Tendency.SAME),  # a's best repeat may be as good as b's worst
        (1.20, 0.04, 0.15, Tendency.SAME),
        (1.60, 0.15, 0.15, Tendency.GAIN),
        (0.80, 0.04, 0.04, Tendency.LOSS),
        (0.90, 0.0, 0.0, Tendency.SAME),
        (0.80, 0.20, 0.10, Tendency.SAME),
        (0.0, 0.0, 0.0, Tendency.LOSS),
        (1.4, 0.26, 0.0, Tendency.UNCLEAR),
        (1.4, 0.0, 0.26, Tendency.UNCLEAR),
        (3.0, 0.26, 0.27, Tendency.GAIN),  # the slowest of one is still 1.7 times the fastest of the other
        (0.3, 0.27, 0.26, Tendency.LOSS),
        (1.5, 0.25, 0.0, Tendency.GAIN),
        (3.0, float("nan"), 0.0, Tendency.UNCLEAR),
        (3.0, 0.0, float("nan"), Tendency.UNCLEAR),
    ],
)
def test_a_gain_is_more_than_small_and_more_than_the_spreads(
    times: float, spread_a: float, spread_b: float, finding: Tendency
) -> None:
    a = result(striped(1), Operation.WRITE, LARGE_RECORD, spread=spread_a)
    b = replace(a, bytes_per_second=a.bytes_per_second * times, spread=spread_b)
    compared = contrast(b, a)
    assert compared is not None
    assert compared.finding is finding
    assert compared.times == pytest.approx(times)


@pytest.mark.parametrize("rate", [0.0, float("nan"), float("inf")])
def test_what_is_no_throughput_is_not_compared(rate: float) -> None:
    a = result(striped(1), Operation.WRITE, LARGE_RECORD)
    assert contrast(a, replace(a, bytes_per_second=rate)) is None
    assert contrast(a, None) is None
    assert contrast(None, a) is None


@pytest.mark.parametrize(
    ("findings", "whole"),
    [
        ([Tendency.SAME, Tendency.SAME], Tendency.SAME),
        ([Tendency.SAME, Tendency.GAIN], Tendency.GAIN),
        ([Tendency.LOSS, Tendency.UNCLEAR], Tendency.LOSS),
        ([Tendency.LOSS, Tendency.GAIN, Tendency.SAME], Tendency.MIXED),
        ([Tendency.SAME, Tendency.UNCLEAR], Tendency.UNCLEAR),
        ([], Tendency.UNCLEAR),
    ],
)
def test_several_findings_come_to_one(findings: list[Tendency], whole: Tendency) -> None:
    assert overall(findings) is whole


# --- one thread ------------------------------------------------------------------------------------------------------


def test_one_thread_s_loads_are_judged_with_the_figures_of_every_width() -> None:
    found = [one for one in verdict(a_bench()) if one.topic is Topic.ONE_THREAD]
    assert [(one.finding.value, one.text) for one in found] == [
        ("gain", "3 stripes: 3.0x sequential writes of 1 MiB by 1 thread"),
        ("gain", "3 stripes: 3.0x sequential reads of 1 MiB by 1 thread"),
        ("gain", "3 stripes: 3.0x rewrites of 1 MiB by 1 thread"),
        ("same", "3 stripes: no gain for random reads of 16 KiB by 1 thread (1.00x, spread 4%)"),
    ]
    assert found[0].evidence == (
        "linear 38.0 MiB/s (spread 4%)",
        "2 stripes 76.0 MiB/s (spread 4%)",
        "3 stripes 114 MiB/s (spread 4%)",
    )
    assert found[3].evidence[0] == "linear 228 IOPS (spread 4%)"


def test_loads_past_the_file_system_are_judged_too_where_they_were_measured() -> None:
    raw = [one for one in verdict(a_bench(raw=True)) if "raw, fio" in one.text]
    assert [(one.topic, one.finding, one.text) for one in raw] == [
        (Topic.ONE_THREAD, Tendency.GAIN, "3 stripes: 3.0x sequential writes of 1 MiB by 1 thread, raw, fio"),
        (Topic.ONE_THREAD, Tendency.GAIN, "3 stripes: 3.0x sequential reads of 1 MiB by 1 thread, raw, fio"),
    ]
    assert raw[0].evidence == (
        "linear 38.0 MiB/s (spread 4%)",
        "2 stripes 76.0 MiB/s (spread 4%)",
        "3 stripes 114 MiB/s (spread 4%)",
    )
    assert not any("raw" in one.text for one in verdict(a_bench()))


def test_fewer_stripes_that_do_as_well_are_named() -> None:
    bench = changed(a_bench(), of(striped(3), LARGE_WRITE), times=2 / 3)
    assert texts(bench, Topic.ONE_THREAD)[0] == (
        "3 stripes: 2.0x sequential writes of 1 MiB by 1 thread; 2 stripes already reach that"
    )


def test_a_loss_is_called_one() -> None:
    bench = changed(a_bench(), of(striped(3), LARGE_WRITE), times=0.2)
    assert texts(bench, Topic.ONE_THREAD)[0] == (
        "3 stripes: slower at sequential writes of 1 MiB by 1 thread (0.60x, spread 4%)"
    )


def test_what_is_too_noisy_is_not_judged() -> None:
    bench = changed(a_bench(), of(striped(3), LARGE_WRITE), spread=0.7)
    found = next(one for one in verdict(bench) if one.topic is Topic.ONE_THREAD)
    assert found.finding is Tendency.UNCLEAR
    assert found.text == (
        "3 stripes: cannot tell for sequential writes of 1 MiB by 1 thread: the repeats differ too much"
        " (3.00x, spread 70%)"
    )


def test_what_was_measured_once_says_so() -> None:
    bench = changed(a_bench(), lambda _: True, repeats=1, spread=0.0)
    found = [one for one in verdict(bench) if one.topic is Topic.ONE_THREAD]
    assert found[0].evidence[0] == "linear 38.0 MiB/s (measured once)"
    assert found[3].text.endswith("(1.00x, measured once)")


def test_stripe_sizes_are_named_where_there_are_several() -> None:
    wide = replace(striped(3), stripe_size=256 * KIB)
    bench = a_bench()
    more = replace(
        bench,
        layouts=(*bench.layouts, wide),
        cells=(*bench.cells, result(wide, Operation.WRITE, LARGE_RECORD, faster=0.5)),
    )
    said = texts(more, Topic.ONE_THREAD)
    assert said[0] == "3 stripes of 64 KiB: 3.0x sequential writes of 1 MiB by 1 thread"
    assert said[-1] == "3 stripes of 256 KiB: 1.5x sequential writes of 1 MiB by 1 thread"
    assert conclusion(more).text.startswith("choose 3 stripes of 64 KiB")


# --- writers ---------------------------------------------------------------------------------------------------------


def test_it_is_said_from_how_many_writers_on_striping_pays_and_which_were_measured() -> None:
    found = [one for one in verdict(a_bench()) if one.topic is Topic.WRITERS]
    assert [(one.finding.value, one.text) for one in found[:2]] == [
        ("same", "3 stripes: no gain for random writes of 16 KiB with 1 thread (1.00x, spread 4%)"),
        (
            "gain",
            "3 stripes: gain for random writes of 16 KiB from 2 threads on: 2.0x with 2, 3.0x with 6"
            " (measured with 1, 2 and 6 threads)",
        ),
    ]
    assert found[1].evidence[0] == "2 threads: linear 228 IOPS (spread 4%), 3 stripes 456 IOPS (spread 4%)"
    assert "sequential writes of 16 KiB" in found[2].text


def test_a_gain_that_ends_is_not_one_from_there_on() -> None:
    bench = changed(a_bench(), of(striped(3), by(6)), times=1 / 3)
    said = texts(bench, Topic.WRITERS)
    assert said[1].startswith("3 stripes: gain for random writes of 16 KiB with 2 threads: 2.0x with 2 (measured")
    assert said[2] == "3 stripes: no gain for random writes of 16 KiB with 6 threads (1.00x, spread 4%)"
    assert not any("random writes of 16 KiB from" in text for text in said)


def test_neighbours_without_gain_share_a_sentence() -> None:
    bench = changed(a_bench(), of(striped(3), by(2)), times=0.51, spread=0.09)
    assert texts(bench, Topic.WRITERS)[0] == (
        "3 stripes: no gain for random writes of 16 KiB with 1 and 2 threads (1.00x, 1.02x, spread up to 9%)"
    )


def test_noise_and_losses_among_writers_are_said() -> None:
    bench = changed(a_bench(), of(striped(3), by(1)), times=0.5)
    bench = changed(bench, of(striped(3), by(6)), spread=0.7)
    said = texts(bench, Topic.WRITERS)
    assert said[0] == "3 stripes: loss for random writes of 16 KiB with 1 thread (0.5x, spread 4%)"
    assert said[2] == (
        "3 stripes: cannot tell for random writes of 16 KiB with 6 threads: the repeats differ too much (spread 70%)"
    )


# --- record sizes ----------------------------------------------------------------------------------------------------


def test_arrays_that_are_equal_get_one_sentence() -> None:
    assert texts(a_bench(arrays=True), Topic.RECORDS) == [
        "RAID-0 of 2 disks and 2 stripes are equal within the spread, at records of 1 KiB-16 MiB by 6 threads"
    ]
    assert conclusion(a_bench(arrays=True)).text == (
        "choose whichever of 2 stripes and RAID-0 of 2 disks you prefer to maintain: neither is ahead"
    )


def test_where_an_array_is_ahead_is_said_by_record_size() -> None:
    small = [Cell(Operation.WRITE, record, 6) for record in (1 * KIB, 8 * KIB)]
    bench = changed(a_bench(arrays=True), of(RAID0, *small), times=1.2)
    bench = changed(bench, of(RAID0, Cell(Operation.WRITE, 64 * KIB, 6)), times=0.5)
    bench = changed(bench, of(RAID0, Cell(Operation.WRITE, 128 * KIB, 6)), spread=0.3)
    assert texts(bench, Topic.RECORDS)[0] == (
        "RAID-0 of 2 disks compared with 2 stripes, sequential writes by 6 threads: 1.2x ahead at 1-8 KiB,"
        " equal within the spread at 32 KiB, behind (0.5x) at 64 KiB, cannot tell (spread 30%) at 128 KiB,"
        " equal within the spread at 512 KiB-16 MiB"
    )
    assert conclusion(bench).finding is Tendency.MIXED


def test_a_small_difference_beyond_the_spread_is_not_called_equal() -> None:
    bench = changed(a_bench(arrays=True), lambda _: True, spread=0.01)
    bench = changed(bench, of(RAID0), times=1.1)
    assert texts(bench, Topic.RECORDS) == [
        "RAID-0 of 2 disks and 2 stripes are less than 1.15x apart, at records of 1 KiB-16 MiB by 6 threads"
    ]
    (one,) = [one for one in verdict(bench) if one.topic is Topic.RECORDS]
    assert one.evidence == ("1.1x, spread 1%",)


def test_record_sizes_of_a_bench_without_e5_are_not_judged() -> None:
    bench = a_bench()
    assert texts(replace(bench, settings=replace(bench.settings, tables=("e2",))), Topic.RECORDS) == []


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([512], "512 B"),
        ([1024, 8192], "1-8 KiB"),
        ([32768, 16 << 20], "32 KiB-16 MiB"),
        ([1 << 20, 4 << 20], "1-4 MiB"),
    ],
)
def test_a_span_of_records_names_its_unit_once(records: list[int], words: str) -> None:
    assert span_words(records) == words


# --- processors and backups ------------------------------------------------------------------------------------------


def test_waiting_shrinks_as_stripes_are_added_or_does_not() -> None:
    assert texts(a_bench(), Topic.PROCESSORS) == [
        "I/O wait shrinks as stripes are added: 60% on linear, 30% on 2 stripes, 20% on 3 stripes,"
        " in sequential writes of 1 MiB by 1 thread"
    ]
    level = changed(a_bench(), of(striped(3), LARGE_WRITE), iowait=0.3)
    assert texts(level, Topic.PROCESSORS)[0].startswith("I/O wait does not shrink with every stripe: 60% on linear")


def test_backups_are_told_how_long_a_tebibyte_takes() -> None:
    reading, penalty = [one for one in verdict(a_bench()) if one.topic is Topic.BACKUPS]
    assert reading.text == (
        "a snapshot of 3 stripes is read at 144 MiB/s, 2.0 h per TiB; of linear at 48.0 MiB/s, 6.1 h per TiB"
        " (3.0x, measured once)"
    )
    assert (reading.finding, len(reading.evidence)) == (Tendency.GAIN, 3)
    assert penalty.text == (
        "penalty of first writes while there is a snapshot: 3.50x on linear, 2.50x on 2 stripes, 1.50x on 3 stripes"
    )
    assert penalty.evidence[0] == "probe 20261120T030000Z-be9c-1"


def test_snapshots_that_are_read_alike_gain_nothing() -> None:
    bench = a_bench()
    alike = tuple(replace(one, snapshot_read=50e6 + i) for i, one in enumerate(bench.snapshots))
    assert (
        "hardly faster than of linear (1.00x, measured once)"
        in texts(replace(bench, snapshots=alike), Topic.BACKUPS)[0]
    )
    best = tuple(replace(one, snapshot_read=50e6 - i) for i, one in enumerate(bench.snapshots))
    assert "no other is read faster (measured once)" in texts(replace(bench, snapshots=best), Topic.BACKUPS)[0]


def test_snapshots_that_were_not_read_are_not_judged() -> None:
    bench = a_bench()
    unread = tuple(replace(one, snapshot_read=None, penalty=None) for one in bench.snapshots)
    assert texts(replace(bench, snapshots=unread), Topic.BACKUPS) == []
    (alone,) = texts(replace(bench, snapshots=(replace(bench.snapshots[0], penalty=None),)), Topic.BACKUPS)
    assert alone == "a snapshot of linear is read at 48.0 MiB/s, 6.1 h per TiB (measured once)"


# --- the conclusion --------------------------------------------------------------------------------------------------


def test_the_conclusion_depends_on_the_writers_at_once() -> None:
    found = conclusion(a_bench())
    assert found.text == (
        "choose 3 stripes where 2 or more write at once: from there on small random writes are faster,"
        " and gain nothing with 1 writer; large requests are written 3.0x as fast and read 3.0x as fast"
    )
    assert found.evidence[0] == "small random writes with 1 writer 1.00x, 2 writers 2.00x, 6 writers 3.00x"
    assert any("innodb_write_io_threads" in words for words in found.evidence)


def test_a_gain_from_the_first_writer_on_needs_no_condition() -> None:
    bench = changed(a_bench(), of(striped(3), by(1)), times=2.0)
    assert conclusion(bench).text.startswith(
        "choose 3 stripes where the server writes: small random writes are faster with 1 writer or more; large requests"
    )


def test_stripes_that_speed_up_large_requests_only_are_for_backups() -> None:
    bench = changed(a_bench(), of(striped(3), by(2)), times=1 / 2)
    bench = changed(bench, of(striped(3), by(6)), times=1 / 3)
    assert conclusion(bench).text == (
        "choose 3 stripes if backups and restores must be fast: large requests are written 3.0x as fast and"
        " read 3.0x as fast; small random writes gain nothing with up to 6 writers"
    )


def flat(bench: LayoutBench) -> LayoutBench:
    """On it no layout is faster than the linear one."""
    linear = {one.cell: one for one in bench.cells if one.layout == "linear"}
    return replace(
        bench, cells=tuple(replace(linear.get(one.cell, one), layout=one.layout) for one in bench.cells), snapshots=()
    )


def test_where_nothing_is_gained_linear_does_as_well() -> None:
    found = conclusion(flat(a_bench()))
    assert (found.finding, found.text) == (
        Tendency.SAME,
        "linear is as good: 2 stripes gained nothing beyond the noise of the repeats",
    )


def test_where_something_is_lost_and_nothing_gained_linear_is_chosen() -> None:
    bench = changed(flat(a_bench()), of(striped(3), LARGE_WRITE), times=0.5)
    bench = changed(bench, of(striped(2), LARGE_WRITE), times=0.4)
    assert conclusion(bench).text == (
        "choose linear: 3 stripes gained nothing and lost under some loads; but large requests are written at 0.5x"
    )


def test_no_more_stripes_are_advised_than_gain_something() -> None:
    bench = a_bench()
    two = {one.cell: one for one in bench.cells if one.layout == striped(2).name}
    level = replace(
        bench,
        cells=tuple(
            replace(two[one.cell], layout=one.layout) if one.layout == striped(3).name and one.cell in two else one
            for one in bench.cells
        ),
    )
    assert conclusion(level).text.startswith("choose 2 stripes where 2 or more write")


def test_where_all_is_noise_no_advice_is_given() -> None:
    found = conclusion(changed(a_bench(), lambda _: True, spread=0.5))
    assert found.finding is Tendency.UNCLEAR
    assert found.text.startswith("no advice: the repeats differ too much: measure again, with longer windows")


def test_what_small_writes_would_gain_is_not_guessed() -> None:
    bench = a_bench()
    without = replace(bench, cells=tuple(one for one in bench.cells if one.record != SMALL_RECORD))
    found = conclusion(without)
    assert found.text.startswith("choose 3 stripes if backups and restores must be fast")
    assert "small" not in found.text
    assert found.evidence[0] == "small random writes were not measured: --table e4"


def test_one_layout_alone_is_compared_with_nothing() -> None:
    bench = a_bench()
    alone = replace(
        bench,
        layouts=bench.layouts[:1],
        cells=tuple(one for one in bench.cells if one.layout == "linear"),
        snapshots=bench.snapshots[:1],
    )
    assert {one.topic for one in verdict(alone)} == {Topic.BACKUPS}
    assert verdict(replace(alone, layouts=(), cells=())) == ()


# any figure, and what is none
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from((math.nan, math.inf, -math.inf))


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_any_figures_can_be_judged(data: st.DataObject) -> None:
    bench = data.draw(st.sampled_from([a_bench(), a_bench(raw=True), a_bench(arrays=True)]))
    chosen = data.draw(st.lists(st.sampled_from(bench.cells), max_size=12, unique_by=id))
    cells = tuple(
        replace(
            one,
            iops=data.draw(NUMBERS),
            bytes_per_second=data.draw(NUMBERS),
            spread=data.draw(NUMBERS),
            repeats=data.draw(st.integers(1, 3)),
            iowait=data.draw(st.none() | NUMBERS),
        )
        for one in chosen
    )
    snapshots = tuple(
        replace(one, snapshot_read=data.draw(st.none() | NUMBERS), penalty=data.draw(st.none() | NUMBERS))
        for one in bench.snapshots
    )
    for one in verdict(replace(bench, cells=cells, snapshots=snapshots)):
        assert one.text
        assert "nan" not in one.text
        assert "inf" not in one.text
