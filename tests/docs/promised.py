"""Which `make` target holds which promise: by the tests that the page of promises names.

Knows: what the targets run, by the folder that a test lies in, by its marks and by `tests.thorough`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import thorough
from tests.docs.places import PAGES, ROOT

PAGE = PAGES / "development" / "promises.md"
_QUICK = ("unit", "contract", "story", "cli", "docs")  # as the Makefile's QUICK
_OTHERS = {"docker": "docker-tests", "lab": "lab-tests", "packaging": "packaging-tests"}
_THOROUGH = "thorough-tests"
_OTHERS |= dict.fromkeys(thorough.WHOLE, _THOROUGH)
_MARKS = {"exhaustive", "thorough"}  # what is not in `check`


def promises() -> list[tuple[str, list[str]]]:
    """Each promise with the tests and targets that it names."""
    rows = re.findall(r"^\| (?!promise )(.+?) \| (`.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return [(promise, re.findall(r"`([^`]+)`", tests)) for promise, tests in rows]


def table() -> str:
    """A row for each promise."""
    lines = ["| promise | `make` targets |", "|---|---|"]
    for promise, tests in promises():
        holding = dict.fromkeys(target for test in tests for target in targets(test))
        lines.append(f"| {promise} | {', '.join(f'`{target}`' for target in holding)} |")
    return "\n".join(lines) + "\n"


def targets(test: str) -> Iterator[str]:
    """That run this test, or are it."""
    if test.startswith("make "):
        yield test.removeprefix("make ")
        return
    folder = Path(test).parts[1]
    found = sorted(ROOT.glob(test))
    files = [path for one in found for path in ([one] if one.is_file() else one.rglob("test_*.py"))]
    if folder in _QUICK:
        running = {target for path in files for target in _by_marks(path)}
        yield from (target for target in ("check", _THOROUGH) if target in running)
    if folder in _OTHERS:
        rare = folder in thorough.WHOLE and all("matrix" in _names_of_all(path) for path in files)
        yield "thorough-matrix" if rare else _OTHERS[folder]


def _by_marks(path: Path) -> Iterator[str]:
    """The targets that run this module's tests: a property is tried in `check`, and with more examples elsewhere."""
    otherwise = "check" if thorough.is_quick(path) else _THOROUGH
    left_out_whole = bool(_names_of_all(path) & _MARKS)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            left_out = left_out_whole or any(_names(part) & _MARKS for part in _marks_of(node))
            yield _THOROUGH if left_out else otherwise
            if any(_names(part) & {"given", *_MARKS} for part in node.decorator_list):
                yield _THOROUGH


def _names_of_all(path: Path) -> set[str]:
    """What is in the marks of all tests of a module."""
    ours = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    return {name for node in ours if "pytestmark" in _names(node) for name in _names(node)}


def _marks_of(test: ast.FunctionDef) -> list[ast.expr]:
    """Its own marks; one of its parameters' marks is not its own."""
    return [one for one in test.decorator_list if not isinstance(one, ast.Call) or "parametrize" not in _names(one)]


def _names(node: ast.AST) -> set[str]:
    found = ast.walk(node)
    return {one.attr if isinstance(one, ast.Attribute) else one.id for one in found if isinstance(one, _NAMES)}


_NAMES = (ast.Attribute, ast.Name)
