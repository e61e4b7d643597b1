"""Mutants that no test can kill, each with its reason: `survivors.toml`.

A mutant is named by what it changes, because mutmut numbers those of a function anew whenever the function changes. An
entry of which no mutant is left is stale, and an error: whoever changes the code, or writes the missing test, removes
it.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.tool import Change, Mutant

FILE = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True, slots=True)
class Survivor:
    """An entry of the file."""

    module: str
    function: str
    change: Change
    why: str

    def is_(self, mutant: Mutant, change: Change) -> bool:
        """Whether this is the mutant that the entry names."""
        return (self.module, self.function, self.change) == (mutant.module, mutant.function, change)


def explained(text: str) -> list[Survivor]:
    """The entries of such a file.

    Raises:
        KeyError: one of them lacks something.
    """
    return [
        Survivor(one["module"], one["function"], Change(one["was"], one["now"]), one["why"])
        for one in tomllib.loads(text).get("survivor", [])
    ]


def unexplained(alive: Mapping[Mutant, Change], entries: Sequence[Survivor]) -> tuple[list[Mutant], list[Survivor]]:
    """The survivors that no entry names, and the entries that name none."""
    without = [mutant for mutant, change in alive.items() if not any(entry.is_(mutant, change) for entry in entries)]
    stale = [entry for entry in entries if not any(entry.is_(mutant, change) for mutant, change in alive.items())]
    return without, stale
