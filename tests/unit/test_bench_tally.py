"""From windows to the figures of a cell: medians, spreads, shares."""

import pytest

from backupd.load.bench_tally import cell_result
from backupd.load.disk_watch import Usage
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.scratch_layouts import MIB, Medium, Operation


def measured(
    mebibytes: float, *, share: float = 1.0, system: float | None = 0.1, read: bool = False
) -> tuple[Window, Usage]:
    """A window of 2 s in which so much was written, or rewritten."""
    count = round(2 * mebibytes * MIB)
    window = Window(2.0, mebibytes, count, 1.0, 10 * mebibytes, bytes_read=count if read else 0)
    return window, Usage({"/dev/a": share, "/dev/b": 1 - share}, system, system)


WRITE = Cell(Operation.WRITE, MIB, 3, Medium.RAW)


def test_a_figure_is_the_median_of_its_repeats_and_says_how_far_they_were_apart() -> None:
    found = cell_result("linear", WRITE, [measured(100), measured(80), measured(110)])
    assert found.cell == WRITE
    assert (found.iops, found.bytes_per_second, found.latency_p95_ms) == (100, 100 * MIB, 1000)
    assert found.repeats == 3
    assert found.spread == pytest.approx(0.3)


def test_shares_are_those_of_the_window_in_the_middle() -> None:
    windows = [measured(90, share=0.5), measured(80, share=0.9), measured(100, share=1.0)]
    assert cell_result("striped-2x64k", WRITE, windows).shares == {"/dev/a": 0.5, "/dev/b": 0.5}
    assert cell_result("striped-2x64k", WRITE, windows[:2]).shares["/dev/a"] == 0.9


def test_a_record_that_is_read_and_written_back_counts_once() -> None:
    cell = Cell(Operation.REWRITE, MIB)
    assert cell_result("linear", cell, [measured(50, read=True)]).bytes_per_second == 50 * MIB


def test_a_window_too_short_to_tell_the_processors_is_left_out_of_their_mean() -> None:
    assert cell_result("linear", WRITE, [measured(1, system=None), measured(1, system=0.3)]).iowait == 0.3
    assert cell_result("linear", WRITE, [measured(1, system=None)]).system is None


def test_a_load_that_got_nothing_done_has_no_spread() -> None:
    found = cell_result("linear", WRITE, [measured(0.0), measured(0.0)])
    assert (found.bytes_per_second, found.spread) == (0, 0)
