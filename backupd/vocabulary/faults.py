"""What is wrong with a configuration: a path, a fact, a hint; and how many of them become one error.

Knows: how faults are put together.
"""

import datetime
import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.vocabulary.errors import ConfigurationError

Location = tuple[str | int, ...]  # of a table, a key or one of a list's values

_LONG = 10**60  # Python refuses to write a number of some thousands of digits


class BadValue(ValueError):
    """A value that cannot be used: a lower-case fact, and what to write instead."""

    def __init__(self, fact: str, hint: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where: `jobs.nightly.snapshot.chunk_size`."""

    path: str
    fact: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.fact}"


def as_error(file: Path, faults: Sequence[Fault]) -> ConfigurationError:
    """All faults as one error: a single one as sentence and hint, several as a list with each hint under its fault."""
    if len(faults) == 1:
        return ConfigurationError(f"{file}: {faults[0]}", hint=faults[0].hint)
    lines = [f"{file}: {len(faults)} faults"]
    for fault in faults:
        lines.append(f"  {fault}")
        if fault.hint:
            lines.append(f"    hint: {fault.hint}")
    return ConfigurationError("\n".join(lines))


def dotted(location: Location) -> str:
    """`jobs.nightly.targets[0]`; a key that TOML would want in quotes has them here too."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            text += ("." if text else "") + (part if bare else quoted(part))
    return text or "the file"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that someone who wrote this one most probably meant."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def quoted(value: object) -> str:
    """A value as it would stand in the file, on one line and cut to 60 characters; tables and lists by name only."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= _LONG:
        return "a number of more than 60 digits"
    if isinstance(value, int | float | datetime.date | datetime.time):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else f"{value[:59]}…", ensure_ascii=False)
    return "a table" if isinstance(value, dict) else "a list"
