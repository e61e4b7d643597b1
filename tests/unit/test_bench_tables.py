"""The tables of a bench: whole ones as text, and what is odd in them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.report.bench_disks import hours_per_tebibyte
from backupd.report.bench_grid import TitledGrid, mib, said_once
from backupd.report.bench_tables import tables
from backupd.report.bench_words import base, layout_words, load_words, quotient
from backupd.report.words import columns
from backupd.vocabulary.benches import (
    LARGE_RECORD,
    SMALL_RECORD,
    BenchSettings,
    Cell,
    LayoutBench,
    PublishedTable,
)
from backupd.vocabulary.scratch_layouts import KIB, MIB, Medium, Operation
from backupd.vocabulary.units import size_words
from tests.fakes.benched import a_bench, result, striped
from tests.share import examples


def drawn(bench: LayoutBench, table: PublishedTable) -> list[str]:
    """The rows of this table, as text."""
    return [as_text(one) for one in tables(bench, [table])]


def as_text(one: TitledGrid) -> str:
    """Head and rows."""
    return columns([one.grid.head, *one.grid.rows], right=one.grid.right)


def lines(text: str) -> str:
    """A table as it is written in a test: without the margin."""
    return "\n".join(line.removeprefix("        ") for line in text.strip("\n").splitlines()).rstrip()


def test_e2_has_a_row_per_layout_with_the_spread_beside_each_figure() -> None:
    assert drawn(a_bench(), PublishedTable.E2) == [
        lines("""
        LAYOUT         WRITE  SPREAD  REWRITE  SPREAD  READ  SPREAD  SEEKS/S  SPREAD
        linear          38.0      4%     38.0      4%  38.0      4%      228      4%
        striped-2x64k   76.0      4%     76.0      4%  76.0      4%      228      4%
        striped-3x64k    114      4%      114      4%   114      4%      228      4%
        """)
    ]


def test_e3_has_a_row_per_number_of_stripes_and_its_raw_rows_are_labelled() -> None:
    assert drawn(a_bench(raw=True), PublishedTable.E3) == [
        lines("""
        STRIPES       READ  SPREAD  SCALE  WRITE  SPREAD  SCALE
        1             38.0      4%  1.00x   38.0      4%  1.00x
        1 (raw, fio)  38.0      4%  1.00x   38.0      4%  1.00x
        2             76.0      4%  2.00x   76.0      4%  2.00x
        2 (raw, fio)  76.0      4%  2.00x   76.0      4%  2.00x
        3              114      4%  3.00x    114      4%  3.00x
        3 (raw, fio)   114      4%  3.00x    114      4%  3.00x
        """)
    ]


def test_e4_holds_the_layouts_against_each_other_for_each_number_of_writers() -> None:
    random = tables(a_bench(), [PublishedTable.E4])[1]
    assert random.title.endswith("MiB/s of random writes of 16 KiB")
    assert "factor: against linear" in random.grid.shared
    assert as_text(random) == lines("""
        THREADS  LAYOUT         IN ALL  EACH  IOPS  SPREAD  FACTOR
              1  linear           3.56  3.56   228      4%   1.00x
              1  striped-2x64k    3.56  3.56   228      4%   1.00x
              1  striped-3x64k    3.56  3.56   228      4%   1.00x
              2  linear           3.56  1.78   228      4%   1.00x
              2  striped-2x64k    7.12  3.56   456      4%   2.00x
              2  striped-3x64k    7.12  3.56   456      4%   2.00x
              6  linear           3.56  0.59   228      4%   1.00x
              6  striped-2x64k    7.12  1.19   456      4%   2.00x
              6  striped-3x64k    10.7  1.78   684      4%   3.00x
        """)


def test_e5_has_two_layouts_side_by_side_once_as_throughput_and_once_as_iops() -> None:
    found = tables(a_bench(arrays=True), [PublishedTable.E5])
    assert [one.title for one in found] == [
        "record sizes, sequential: MiB/s, by 6 threads",
        "record sizes, random: MiB/s, by 6 threads",
        "record sizes, sequential: IOPS, by 6 threads",
        "record sizes, random: IOPS, by 6 threads",
    ]
    assert all("A: striped-2x64k, B: raid0-2x64k; spread: the larger of the two" in one.grid.shared for one in found)
    assert as_text(found[2]) == lines("""
         RECORD  WRITE A     B    B/A  SPREAD  READ A     B    B/A  SPREAD
          1 KiB      456   456  1.00x      4%     456   456  1.00x      4%
          8 KiB      456   456  1.00x      4%     456   456  1.00x      4%
         32 KiB      456   456  1.00x      4%     456   456  1.00x      4%
         64 KiB      456   456  1.00x      4%     456   456  1.00x      4%
        128 KiB      456   456  1.00x      4%     456   456  1.00x      4%
        512 KiB      456   456  1.00x      4%     456   456  1.00x      4%
          1 MiB     76.0  76.0  1.00x      4%    76.0  76.0  1.00x      4%
          4 MiB     19.0  19.0  1.00x      4%    19.0  19.0  1.00x      4%
          8 MiB      9.5   9.5  1.00x      4%     9.5   9.5  1.00x      4%
         16 MiB      4.8   4.8  1.00x      4%     4.8   4.8  1.00x      4%
        """)


def test_the_disks_parts_stand_beside_their_sum_and_what_the_processors_did() -> None:
    found = [one for one in tables(a_bench()) if one.key == "disks"]
    assert [one.title.rpartition(" in ")[2] for one in found] == [
        "sequential writes of 1 MiB by 1 thread",
        "sequential reads of 1 MiB by 1 thread",
        "random writes of 16 KiB by 6 threads",
    ]
    assert as_text(found[0]) == lines("""
        LAYOUT         nbd0  nbd1  nbd2   SUM  SYSTEM  IOWAIT
        linear         100%    0%    0%  100%     12%     60%
        striped-2x64k   50%   50%    0%  100%     12%     30%
        striped-3x64k   33%   33%   33%  100%     12%     20%
        """)


def test_snapshots_tell_how_long_a_tebibyte_takes_and_which_probe_says_so() -> None:
    (found,) = [one for one in tables(a_bench()) if one.key == "snapshots"]
    assert "chunks of 64 KiB" in found.grid.shared
    assert as_text(found) == lines("""
        LAYOUT         ORIGIN  SNAPSHOT  H/TIB  PENALTY  PROBE
        linear           52.0      48.0    6.1    3.50x  20261120T030000Z-be9c-1
        striped-2x64k     104      96.0    3.0    2.50x  20261120T030000Z-be9c-2
        striped-3x64k     156       144    2.0    1.50x  20261120T030000Z-be9c-3
        """)


def test_none_named_is_all_that_were_asked_for_and_the_rest() -> None:
    assert list(dict.fromkeys(one.key for one in tables(a_bench()))) == ["e2", "e3", "e4", "e5", "disks", "snapshots"]
    assert list(dict.fromkeys(one.key for one in tables(a_bench(arrays=True)))) == ["e5", "disks"]
    assert {one.key for one in tables(a_bench(), [PublishedTable.E4, PublishedTable.E2])} == {"e4", "e2"}


@pytest.mark.parametrize("table", [PublishedTable.E2, PublishedTable.E3, PublishedTable.E4])
def test_a_table_without_a_figure_says_how_to_get_them(table: PublishedTable) -> None:
    for one in tables(a_bench(arrays=True), [table]):
        assert (one.grid.rows, one.words) == ((), (f"not measured: add --table {table.value}",))


def test_the_cells_of_e2_are_not_taken_for_e5() -> None:
    bench = a_bench()
    (one,) = tables(replace(bench, settings=replace(bench.settings, tables=("e2",))), [PublishedTable.E5])
    assert one.words == ("not measured: add --table e5",)


def test_what_was_not_measured_is_a_dash_beside_what_was() -> None:
    bench = replace(a_bench(), cells=(result(striped(1), Operation.READ, LARGE_RECORD),))
    assert drawn(bench, PublishedTable.E3)[0].splitlines()[1].split() == ["1", "38.0", "4%", "1.00x", "-", "-", "-"]
    assert "linear" in drawn(bench, PublishedTable.E2)[0]
    assert "striped" not in drawn(bench, PublishedTable.E2)[0]


def test_a_scale_needs_the_figure_that_it_is_against() -> None:
    bench = replace(a_bench(), cells=(result(striped(2), Operation.READ, LARGE_RECORD),))
    assert drawn(bench, PublishedTable.E3)[0].splitlines()[1].split() == ["2", "76.0", "4%", "-", "-", "-", "-"]


def test_layouts_of_the_same_width_have_names_in_e3() -> None:
    wide = replace(striped(2), stripe_size=256 * KIB)
    bench = a_bench()
    more = replace(
        bench, layouts=(*bench.layouts, wide), cells=(*bench.cells, result(wide, Operation.READ, LARGE_RECORD))
    )
    named = [line.split()[:2] for line in drawn(more, PublishedTable.E3)[0].splitlines()[1:]]
    assert named == [["1", "linear"], ["2", "striped-2x64k"], ["2", "striped-2x256k"], ["3", "striped-3x64k"]]


def test_one_layout_alone_has_its_tables() -> None:
    bench = a_bench()
    alone = replace(bench, layouts=bench.layouts[:1], cells=tuple(one for one in bench.cells if one.layout == "linear"))
    e5 = tables(alone, [PublishedTable.E5])
    assert e5[0].grid.head == ("RECORD", "WRITE", "SPREAD", "READ", "SPREAD")
    assert len(e5[0].grid.rows) == 10


def test_of_what_was_measured_once_no_spread_is_claimed() -> None:
    bench = a_bench()
    once = replace(bench, cells=tuple(replace(one, repeats=1, spread=0.0) for one in bench.cells))
    (e2,) = tables(once, [PublishedTable.E2])
    assert e2.grid.shared[0] == "measured once: no spread is known"
    assert {row[2] for row in e2.grid.rows} == {"-"}


def test_how_it_was_measured_is_said_once_for_all_tables() -> None:
    common, without = said_once(tables(a_bench()))
    assert common == ("medians of 3", "windows of 1.0 s", "spread: (highest - lowest) ÷ median")
    assert not any(word in one.grid.shared for one in without for word in common)
    assert "factor: against linear" in next(one for one in without if one.key == "e4").grid.shared


def test_the_tables_of_three_disks_fit_eighty_columns() -> None:
    assert max(len(line) for one in tables(a_bench(raw=True)) for line in as_text(one).splitlines()) <= 80


# any figure, and what is none
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from((math.nan, math.inf, -math.inf))


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_any_figures_make_tables_without_nan_in_them(data: st.DataObject) -> None:
    bench = a_bench(raw=True)
    chosen = data.draw(st.lists(st.sampled_from(bench.cells), max_size=8))
    cells = tuple(
        replace(
            one,
            iops=data.draw(NUMBERS),
            bytes_per_second=data.draw(NUMBERS),
            spread=data.draw(NUMBERS),
            repeats=data.draw(st.integers(1, 3)),
            shares=data.draw(st.dictionaries(st.sampled_from(("/dev/nbd0", "/dev/x")), NUMBERS)),
            system=data.draw(st.none() | NUMBERS),
            iowait=data.draw(st.none() | NUMBERS),
        )
        for one in chosen
    )
    snapshots = tuple(
        replace(one, origin_read=data.draw(st.none() | NUMBERS), snapshot_read=data.draw(st.none() | NUMBERS))
        for one in bench.snapshots
    )
    for one in tables(replace(bench, cells=cells, snapshots=snapshots)):
        assert one.grid.rows or one.words
        assert all(len(row) == len(one.grid.head) for row in one.grid.rows)
        assert not {"nan", "inf", "nan%", "inf%", "nanx", "infx"} & set(as_text(one).split())


def test_a_bench_of_nothing_has_tables_that_say_so() -> None:
    empty = LayoutBench(a_bench().host, BenchSettings("vg0", (), "xfs", 0, 0, 1.0, 3, ("e2", "e3", "e4", "e5")), (), ())
    assert [one.key for one in tables(empty)] == ["e2", "e3", "e4", "e4", "e5"]
    assert all(one.words and not one.grid.rows for one in tables(empty))


@pytest.mark.parametrize(
    ("record", "words"), [(512, "512 B"), (SMALL_RECORD, "16 KiB"), (MIB, "1 MiB"), (1536, "1536 B")]
)
def test_a_record_is_named_exactly(record: int, words: str) -> None:
    assert size_words(record) == words


def test_a_load_and_a_layout_have_names() -> None:
    assert load_words(Cell(Operation.RANDOM_WRITE, SMALL_RECORD)) == "random writes of 16 KiB by 1 thread"
    raw = Cell(Operation.READ, LARGE_RECORD, 2, Medium.RAW)
    assert load_words(raw) == "sequential reads of 1 MiB by 2 threads, raw, fio"
    wide = replace(striped(3), stripe_size=256 * KIB)
    assert layout_words(striped(3), [striped(1), striped(3)]) == "3 stripes"
    assert layout_words(wide, [wide, striped(3)]) == "3 stripes of 256 KiB"
    assert layout_words(striped(1), [wide, striped(3)]) == "linear"


def test_without_a_linear_layout_the_first_is_the_measure() -> None:
    first = base(a_bench(arrays=True))
    assert first is not None
    assert first.name == "striped-2x64k"
    assert base(replace(a_bench(), layouts=())) is None


@pytest.mark.parametrize("a", [0.0, -1.0, math.nan, math.inf, None])
def test_nothing_is_divided_by_what_is_no_number(a: float | None) -> None:
    assert quotient(1.0, a) is None
    assert hours_per_tebibyte(a) is None


def test_small_rates_have_two_digits() -> None:
    assert [mib(value * MIB) for value in (0.123, 9.994, 10.0, 250.0, math.nan)] == ["0.12", "9.99", "10.0", "250", "-"]
