"""Branches are counted as coverage.py saw them, and what is left out is a function that has a reason."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.branches import counting
from tests.branches.areas import AREAS, TESTS, WALKS, Area
from tests.branches.counting import Counted, Exempt, counted, exempted, share, without
from tests.branches.run import measure, missing, table, walks_of
from tests.docs.places import ROOT

FILE = "backupd/operations/one.py"
WHOLE = Counted(FILE, "f", 4, 4)
HALF = Counted(FILE, "C.g", 4, 2, ((7, 9), (8, -5)), (9,))
EXEMPT = Exempt(FILE, "C.g", "of a kernel that is not here")
REPORT = {
    "files": {
        FILE: {
            "functions": {
                "C.g": {
                    "summary": {"num_branches": 4, "covered_branches": 2},
                    "missing_branches": [[7, 9], [8, -5]],
                    "missing_lines": [9],
                },
            }
        }
    }
}


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_area_has_files_that_are_there(area: Area) -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "backupd").rglob("*.py")]
    assert all(Area("", (within,)).of(files) for within in area.within)
    assert all((ROOT / folder).is_dir() for folder in TESTS)
    assert all((ROOT / module).is_file() for module in WALKS)


def test_the_long_modules_run_with_their_folders_and_alone() -> None:
    assert walks_of(TESTS) == [*WALKS]
    assert walks_of(["tests/story", "tests/unit"]) == ["tests/story/test_finishing.py"]
    assert walks_of([WALKS[0]]) == [WALKS[0]]
    assert walks_of(["tests/cli"]) == []


def test_every_exception_is_of_a_function_that_is_there_and_counted() -> None:
    """Whether it leaves anything out is for `make coverage` to say."""
    for entry in exempted(counting.FILE.read_text()):
        assert any(area.has(entry.file) for area in AREAS), entry
        assert entry.function in names((ROOT / entry.file).read_text()), entry
        assert entry.why


def names(text: str) -> set[str]:
    """Of all functions, with the classes and functions that they are in."""
    found: set[str] = set()

    def walk(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}" if within else child.name
                found.add(name)
            walk(child, name)

    walk(ast.parse(text), "")
    return found


@pytest.mark.matrix
def test_what_was_counted_before_stays_counted_where_tests_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.json"
    monkeypatch.setattr("tests.branches.run._SCRATCH", tmp_path)
    monkeypatch.setattr("tests.branches.run._REPORT", report)

    def taken_by(test: str, *, anew: bool) -> Counter[str]:
        assert not measure([f"tests/unit/{test}.py"], workers=1, anew=anew)
        found = Counter[str]()
        for one in counted(json.loads(report.read_text())):
            found[one.file] += one.taken
        return found

    before = taken_by("test_listing", anew=True)
    after = taken_by("test_owner_chain", anew=False)
    assert 0 < before["backupd/targets/listing.py"] == after["backupd/targets/listing.py"]
    assert before["backupd/targets/chain.py"] < after["backupd/targets/chain.py"]


def test_what_coverage_py_reports_of_a_function_is_counted() -> None:
    assert list(counted(REPORT)) == [HALF]
    assert share([WHOLE, HALF]) == 0.75
    assert share([]) == 1.0


def test_an_exception_leaves_out_what_was_not_taken_and_is_stale_where_all_was() -> None:
    assert without([WHOLE, HALF], [EXEMPT]) == ([WHOLE], [])
    assert without([WHOLE], [EXEMPT]) == ([WHOLE], [EXEMPT])
    taken = Counted(FILE, "C.g", 4, 4)
    assert without([WHOLE, taken], [EXEMPT]) == ([WHOLE, taken], [EXEMPT])


def test_the_table_tells_what_was_taken_with_exceptions_and_without() -> None:
    assert table([WHOLE, HALF], [WHOLE])[2] == "| operations | 8 | 75.0% | 1 | 100.0% |"


def test_where_branches_go_that_nobody_took_is_named() -> None:
    assert missing([WHOLE, HALF]) == [f"{FILE}: C.g: 2/4 branches 7→9 8→-5 lines 9"]
