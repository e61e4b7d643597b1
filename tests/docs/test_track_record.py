"""The track record: every fault names a test that there is, and the gravest stand first."""

import ast
import re
from functools import cache
from itertools import pairwise

import pytest

from tests.docs.places import PAGES, ROOT

PAGE = PAGES / "development" / "track-record.md"
_ROW = re.compile(r"^\| (?P<what>[a-z ]+) \| (?P<fault>.+) \| (?P<found_by>.+?) \| (?P<tests>`.+`) \|$", re.MULTILINE)
_TEST = re.compile(r"`(?P<file>tests/[\w./]+\.py)::(?P<name>\w+)`")


def kinds() -> list[str]:
    """What a fault can have done, the gravest first: as the page's first table has it."""
    return re.findall(r"^\| ([a-z ]+) \| [^|`]+ \|$", PAGE.read_text().partition("\n## ")[0], re.MULTILINE)[1:]


def sections() -> dict[str, list[re.Match[str]]]:
    """The faults of each promise, by its heading."""
    texts = [text.partition("\n") for text in PAGE.read_text().split("\n## ")[1:]]
    return {heading: list(_ROW.finditer(text)) for heading, _, text in texts}


@cache
def names_in(file: str) -> frozenset[str]:
    module = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("heading", sections())
def test_every_fault_names_a_test_that_there_is(heading: str) -> None:
    named = [test for row in sections()[heading] for test in _TEST.finditer(row["tests"])]
    assert named
    assert [test[0] for test in named if test["name"] not in names_in(test["file"])] == []


@pytest.mark.parametrize("heading", sections())
def test_the_gravest_faults_of_a_promise_stand_first(heading: str) -> None:
    rows = sections()[heading]
    assert [one["what"] for one in rows if one["what"] not in kinds()] == []
    assert all(kinds().index(one["what"]) <= kinds().index(next_one["what"]) for one, next_one in pairwise(rows))


def test_no_line_of_the_record_is_passed_over() -> None:
    text = PAGE.read_text().partition("\n## ")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what |")]
    assert len(lines) == sum(len(rows) for rows in sections().values()) > 150
