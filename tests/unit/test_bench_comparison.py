"""Two benches beside each other."""

import json
import math
from dataclasses import replace

import pytest

from backupd.report.bench_comparison import compare_document, compare_table, differences, only, pairs
from backupd.vocabulary.benches import BenchRecord, LayoutBench
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.scratch_layouts import Operation
from tests.fakes.benched import BEGAN, a_bench, a_bench_record


def small(*, faster: float = 1.0) -> LayoutBench:
    """E2 and its snapshots on linear alone."""
    bench = a_bench(faster=faster)
    cells = tuple(one for one in bench.cells if one.layout == "linear" and one.threads == 1)[:4]
    return replace(bench, layouts=bench.layouts[:1], cells=cells, snapshots=bench.snapshots[:1])


def record(bench: LayoutBench, run_id: str) -> BenchRecord:
    """As the catalogue keeps it."""
    return a_bench_record(bench, run_id=run_id)


def test_alike_benches_pair_figure_by_figure() -> None:
    assert compare_table(record(small(), "a1"), record(small(faster=1.3), "b1")) == (
        "a:  a1  labvg  2026-11-20 03:00 UTC  success\n"
        "b:  b1  labvg  2026-11-20 03:00 UTC  success\n"
        "\n"
        "a and b: hosts and settings are the same\n"
        "\n"
        "linear:\n"
        "LOAD         RECORD  THREADS     A     B           B/A\n"
        "write         1 MiB        1  38.0  49.4  MiB/s  1.30x  B is ahead\n"
        "rewrite       1 MiB        1  38.0  49.4  MiB/s  1.30x  B is ahead\n"
        "read          1 MiB        1  38.0  49.4  MiB/s  1.30x  B is ahead\n"
        "random-read  16 KiB        1   228   296  IOPS   1.30x  B is ahead\n"
        "\n"
        "a snapshot's sequential reads in MiB/s, and the penalty of first writes; each\n"
        "  measured once\n"
        "LAYOUT  READ A  READ B    B/A  PENALTY A  PENALTY B\n"
        "linear    48.0    48.0  1.00x      3.50x      3.50x"
    )


@pytest.mark.parametrize(
    ("faster", "spread", "said"),
    [
        (1.3, 0.04, "B is ahead"),
        (0.7, 0.04, "B is behind"),
        (1.05, 0.04, "within the spread"),
        (1.10, 0.01, "nearly equal"),
        (1.3, 0.3, "too noisy to tell"),
    ],
)
def test_each_pair_says_what_its_repeats_bear_out(faster: float, spread: float, said: str) -> None:
    bench = small(faster=faster)
    other = replace(bench, cells=tuple(replace(one, spread=spread) for one in bench.cells))
    plain = replace(small(), cells=tuple(replace(one, spread=min(spread, 0.04)) for one in small().cells))
    lines = compare_table(record(plain, "a"), record(other, "b")).splitlines()
    assert [line.rpartition("x  ")[2] for line in lines if line.startswith(("write", "random-read"))] == [said] * 2


def test_figures_that_were_measured_once_say_so() -> None:
    once = replace(small(), cells=tuple(replace(one, repeats=1, spread=0.0) for one in small().cells))
    assert "nearly equal, once\n" in compare_table(record(once, "a"), record(small(), "b"))


def test_what_differs_comes_before_the_figures_that_it_may_explain() -> None:
    bench = small()
    other = replace(
        bench,
        host=replace(bench.host, kernel="6.12.0", fio="3.33", memory=4 << 30),
        settings=replace(bench.settings, filesystem="ext4", seconds=3.0, file_size=1 << 30, disks=("/dev/sda",), vg=""),
    )
    text = compare_table(record(bench, "a"), record(other, "b"))
    differing = text[text.index("differ in") : text.index("LOAD")]
    assert [line.split() for line in differing.splitlines()[1:-2]] == [
        ["A", "B"],
        ["kernel", "6.1.0", "6.12.0"],
        ["fio", "-", "3.33"],
        ["RAM", "2.0", "GiB", "4.0", "GiB"],
        ["volume", "group", "labvg", "-"],
        ["disks", "nbd0,", "nbd1,", "nbd2", "sda"],
        ["file", "system", "xfs", "ext4"],
        ["file", "size", "256.0", "MiB", "1.0", "GiB"],
        ["window", "1.0", "s", "3.0", "s"],
    ]
    assert text.splitlines()[1].split()[2] == "sda"


def test_layouts_and_figures_that_only_one_has_are_named() -> None:
    a, b = record(a_bench(raw=True), "a"), record(small(), "b")
    text = compare_table(a, b)
    assert "only a has striped-2x64k, striped-3x64k\n" in text
    alone = len(a_bench(raw=True).cells) - 4
    assert f"figures that only one of them has: {alone} in a, 0 in b (see --json)" in text
    assert (only(a, b), only(b, a)) == (["striped-2x64k", "striped-3x64k"], [])
    assert "striped-2x64k:" not in text


def test_raw_figures_are_labelled() -> None:
    both = record(a_bench(raw=True), "a")
    assert "write (raw, fio)" in compare_table(both, both)


def test_everything_fits_eighty_columns() -> None:
    a, b = record(a_bench(raw=True), "a"), record(a_bench(raw=True, faster=0.98), "b")
    assert max(len(line) for line in compare_table(a, b).splitlines()) <= 80


def test_the_document_holds_the_same() -> None:
    a, b = record(small(), "a1"), record(small(faster=1.3), "b1")
    found = compare_document(a, b)
    assert list(found) == ["a", "b", "differs", "only_a", "only_b", "cells", "snapshots"]
    assert (found["a"]["run_id"], found["differs"], found["only_a"]) == ("a1", [], [])
    assert [cell["ratio"] for cell in found["cells"]] == pytest.approx([1.3] * 4)
    assert {cell["finding"] for cell in found["cells"]} == {"gain"}
    assert found["cells"][0]["a"]["operation"] == "write"
    assert found["snapshots"][0]["read_ratio"] == 1.0
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_differs_is_in_the_document() -> None:
    other = replace(small(), settings=replace(small().settings, repeat=5))
    assert compare_document(record(small(), "a"), record(other, "b"))["differs"] == [{"name": "repeat", "a": 3, "b": 5}]


@pytest.mark.parametrize("rate", [0.0, math.nan, math.inf])
def test_odd_figures_are_null_and_a_dash(rate: float) -> None:
    broken = replace(small(), cells=tuple(replace(one, bytes_per_second=rate, iops=rate) for one in small().cells))
    found = compare_document(record(broken, "a"), record(small(), "b"))
    assert json.loads(json.dumps(found, allow_nan=False))["cells"][0]["ratio"] is None
    text = compare_table(record(broken, "a"), record(small(), "b"))
    assert not {"nan", "inf", "nanx", "infx"} & set(text.split())


def test_every_figure_of_both_appears_once() -> None:
    one, other = a_bench(raw=True), a_bench(arrays=True)
    other = replace(other, cells=tuple(cell for cell in other.cells if cell.operation is not Operation.READ))
    found = list(pairs(record(one, "a"), record(other, "b")))
    assert sorted(id(pair.a) for pair in found if pair.a) == sorted(map(id, one.cells))
    assert sorted(id(pair.b) for pair in found if pair.b) == sorted(map(id, other.cells))


def test_a_bench_that_measured_nothing_can_be_held_against_one_that_did() -> None:
    nothing = BenchRecord("b", RunStatus.FAILED, BEGAN)
    assert differences(record(small(), "a"), nothing) == []
    assert len(compare_document(record(small(), "a"), nothing)["cells"]) == 4
    text = compare_table(nothing, record(small(), "a"))
    assert "nothing measured" in text
    assert "only b has linear" in text
    assert text.endswith("no load was measured by both on the same layout")
