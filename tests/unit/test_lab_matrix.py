"""Which machines `make test-matrix` starts, what it keeps of them, and what it makes of their words."""

from pathlib import Path

import pytest

from backupd.lab.options import Filesystem, LabLayout, ServerKind
from tests.bench.cells import MatrixCell, all_cells, pairwise
from tests.bench.matrix import CellOutcome, Kept, main, result_of, table, told
from tests.bench.matrix_cell import MatrixCellResult

CELL = MatrixCell(ServerKind.MYSQL_9, LabLayout.LINEAR, Filesystem.XFS, thin=True)
RIGHT = CellOutcome(MatrixCellResult("9.7.4", backups=2, drills=2, proofs=2), 0, 120.4)
WRONG = CellOutcome(MatrixCellResult("9.7.4", 2, 2, 1, ("run-1: ledger: expected x, found y",)), 1, 99.0)
SILENT = CellOutcome(None, 125, 3.0)


def test_pairwise_every_two_values_of_two_factors_meet_in_seven_cells_at_most() -> None:
    chosen = pairwise(all_cells())
    assert {pair for cell in chosen for pair in cell.pairs()} == {pair for cell in all_cells() for pair in cell.pairs()}
    assert len(set(chosen)) == len(chosen) <= 7


def test_pairwise_chooses_the_same_cells_each_time_and_every_server() -> None:
    assert pairwise(all_cells()) == pairwise(all_cells())
    assert {cell.server for cell in pairwise(all_cells())} == set(ServerKind)


def test_the_full_grid_has_every_cell_once() -> None:
    assert len({cell.name for cell in all_cells()}) == len(all_cells()) == 3 * 2 * 2 * 2


def test_a_cell_says_to_the_lab_which_machine_it_wants() -> None:
    assert CELL.name == "mysql-9-linear-xfs-thin"
    wanted = ["--server", "mysql-9", "--layout", "linear", "--filesystem", "xfs", "--thin"]
    assert CELL.machine() == wanted
    assert "--thin" not in MatrixCell(CELL.server, CELL.layout, CELL.filesystem, thin=False).machine()


@pytest.mark.parametrize(
    ("outcome", "right"),
    [
        (RIGHT, True),
        (WRONG, False),
        (SILENT, False),
        (CellOutcome(None, 0, 1.0), False),  # it ended well, but said nothing
        (CellOutcome(MatrixCellResult("9", 2, 2, 2), 124, 1.0), False),  # it said all was well, but did not end well
        (CellOutcome(MatrixCellResult("9", 1, 1, 1), 0, 1.0), False),
        (CellOutcome(MatrixCellResult("9", 2, 2, 2, ("x",)), 0, 1.0), False),
    ],
)
def test_only_a_cell_that_did_everything_and_found_nothing_wrong_is_right(outcome: CellOutcome, right: bool) -> None:
    assert outcome.right is right
    assert CellOutcome.from_json(outcome.to_json()) == outcome


@pytest.mark.parametrize("printed", ["", "not json\n", "{}\n", '{"version": "9", "more": 1}\n', "[1]\n", "null\n"])
def test_words_that_are_no_result_are_none(printed: str) -> None:
    assert result_of(printed) is None


def test_the_result_is_the_last_line() -> None:
    assert RIGHT.result is not None
    assert result_of(f"noise\n{RIGHT.result.to_json()}\n") == RIGHT.result


def test_results_are_found_again_and_those_of_other_sources_are_gone(tmp_path: Path) -> None:
    Kept(tmp_path, "old").put(CELL, RIGHT)
    assert Kept(tmp_path, "old").outcome(CELL) == RIGHT
    assert Kept(tmp_path, "new").outcome(CELL) is None
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_cell_that_was_right_keeps_no_backups_and_one_that_was_wrong_keeps_all(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "x")
    for outcome, is_kept in ((WRONG, True), (RIGHT, False)):
        (kept.out(CELL) / "backups").mkdir(parents=True, exist_ok=True)
        kept.put(CELL, outcome)
        assert kept.out(CELL).exists() is is_kept


def test_a_failed_cell_is_told_with_its_reason_the_end_of_its_words_and_where_the_rest_is(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "x")
    kept.said(CELL).write_text("".join(f"line {number}.\n" for number in range(100)))
    lines = list(told(CELL, WRONG, kept))
    assert lines[0] == "mysql-9-linear-xfs-thin: 1 wrong after 99 s"
    assert "  wrong: run-1: ledger: expected x, found y" in lines
    assert "  | line 99." in lines
    assert "  | line 1." not in lines
    assert str(kept.said(CELL)) in lines[-1]
    assert list(told(CELL, RIGHT, kept)) == ["mysql-9-linear-xfs-thin: right after 120 s"]


def test_the_table_has_a_line_for_each_cell_and_counts_the_wrong_ones() -> None:
    other = MatrixCell(ServerKind.MARIADB_11, LabLayout.STRIPED, Filesystem.EXT4, thin=False)
    lines = table({CELL: RIGHT, other: SILENT}).splitlines()
    assert lines[2] == "| mysql-9 (9.7.4) | linear | xfs | thin | 2 of 2 | 2 of 2 | 2 of 2 | 120 | right |"
    assert lines[3] == (
        "| mariadb-11 | striped | ext4 | thick | 0 of 2 | 0 of 2 | 0 of 2 | 3 | failed with status 125 |"
    )
    assert lines[-1] == "2 cells, 1 wrong"


def test_a_name_that_no_cell_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "oracle"])
    assert ended.value.code == 2
    assert "no cell's name holds 'oracle'" in capsys.readouterr().err
