"""Which `make` target holds which promise: by the tests that the page of promises names.

Knows: what the targets run. A file whose tests are marked `exhaustive` is the business of `make exhaustive-tests` too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.places import PAGES, ROOT

PAGE = PAGES / "development" / "promises.md"
_QUICK = ("unit", "contract", "story", "cli", "docs")  # as the Makefile's QUICK
_OTHERS = {"web": "service-tests", "service": "service-tests", "docker": "docker-tests", "lab": "lab-tests"}
_OTHERS |= {"packaging": "packaging-tests"}
_EXHAUSTIVE = re.compile(r"mark\.exhaustive")


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
    if folder in _QUICK:
        yield "check"
    if folder in _OTHERS:
        yield _OTHERS[folder]
    found = sorted(ROOT.glob(test))
    files = [path for one in found for path in ([one] if one.is_file() else one.rglob("*.py"))]
    if any(_EXHAUSTIVE.search(path.read_text()) for path in files) and folder in (*_QUICK, "web"):
        yield "exhaustive-tests"
