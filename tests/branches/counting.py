"""What coverage.py saw, as figures of functions; and which functions may be left out, by `exceptions.toml`.

Knows: coverage.py's JSON report, the functions of which it has since 7.6. An exception is of one function in one
file, with its reason; one that leaves nothing out is stale, and an error.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("exceptions.toml")


@dataclass(frozen=True, slots=True)
class Counted:
    """The branches of one function, or of what is in none; and where its branches go that nobody took."""

    file: str
    function: str  # with its class; empty: what is in no function
    branches: int
    taken: int
    missing: tuple[tuple[int, int], ...] = ()  # from line, to line; below 0: out of the function
    lines: tuple[int, ...] = ()  # that nobody has run

    @property
    def is_whole(self) -> bool:
        """Nothing of it was left out."""
        return not self.missing and not self.lines


@dataclass(frozen=True, slots=True)
class Exempt:
    """A function that is not counted."""

    file: str
    function: str
    why: str


def exempted(text: str) -> list[Exempt]:
    """The entries of such a file.

    Raises:
        KeyError: one of them lacks something.
    """
    return [Exempt(one["file"], one["function"], one["why"]) for one in tomllib.loads(text).get("exception", [])]


def counted(report: Mapping[str, Any]) -> Iterator[Counted]:
    """Every function of the report."""
    for file, of_file in report["files"].items():
        for name, found in of_file["functions"].items():
            summary = found["summary"]
            missing = tuple((begin, end) for begin, end in found["missing_branches"])
            lines = tuple(found["missing_lines"])
            yield Counted(file, name, summary["num_branches"], summary["covered_branches"], missing, lines)


def without(found: Iterable[Counted], exempt: Sequence[Exempt]) -> tuple[list[Counted], list[Exempt]]:
    """What is counted all the same, and the entries that leave nothing out."""
    named = {(one.file, one.function): one for one in exempt}
    kept: list[Counted] = []
    used: set[tuple[str, str]] = set()
    for one in found:
        key = (one.file, one.function)
        if key in named and not one.is_whole:
            used.add(key)
        else:
            kept.append(one)
    return kept, [one for key, one in named.items() if key not in used]


def share(found: Iterable[Counted]) -> float:
    """0 to 1, of all their branches; 1 where there are none."""
    known = list(found)
    branches = sum(one.branches for one in known)
    return sum(one.taken for one in known) / branches if branches else 1.0
