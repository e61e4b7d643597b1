"""Which cuts a seed stands for, and what had been promised when one of them came. Pure.

Knows: the marks of a recording.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from tests.power.cuts import MODES, Mode

Mark = Mapping[str, Any]

_OURS = 0.75


@dataclass(frozen=True, slots=True)
class Cut:
    """The power goes after so many requests; `seed` decides what the disks' caches still get out."""

    index: int
    phase: str
    instant: int
    mode: Mode
    seed: str


def cuts(marks: Sequence[Mark], ours: Sequence[int], seed: str, indexes: Sequence[int]) -> list[Cut]:
    """One for each index, by that and the seed alone; each phase has its turn. The earliest comes first.

    `ours` are the instants at which something was asked of a disk by backupd or by LVM, in their order: three of four
    cuts are at one of these. The server's own requests, of which there are many more, are passed over by them.
    """
    spans = phases(marks)
    names = list(spans)
    found = []
    for index in indexes:
        chance = Random(f"{seed}/{index}")
        phase = names[index % len(names)]
        begin, end = spans[phase]
        instant = chance.randint(begin, end)
        within = ours[bisect_left(ours, begin) : bisect_left(ours, end)]
        if within and chance.random() < _OURS:
            instant = chance.choice(within)
        found.append(Cut(index, phase, instant, chance.choice(MODES), f"{seed}/{index}/cache"))
    return sorted(found, key=lambda cut: cut.instant)


def phases(marks: Sequence[Mark]) -> dict[str, tuple[int, int]]:
    """From which instant to which each lasted."""
    begun = [(mark["phase"], mark["instant"]) for mark in marks if mark["what"] == "phase"]
    return {
        name: (begin, end)
        for (name, begin), (_, end) in pairwise(begun)
        if name  # what lies between two of them is not backupd's doing
    }


def promised(marks: Sequence[Mark], cut: Cut) -> dict[str, Any]:
    """What somebody had been told by then."""
    before = [mark for mark in marks if mark["instant"] <= cut.instant]
    whole = next(mark["tree"] for mark in marks if mark["what"] == "restored")
    spans = phases(marks)
    return {
        "phase": cut.phase,
        "orders": max((mark["orders"] for mark in before), default=0),
        "runs": [mark["run"] for mark in before if mark["what"] == "run"],
        "may_go": [mark["run"] for mark in before if mark["what"] == "may-go"],
        "tree": next((mark["tree"] for mark in before if mark["what"] == "restored"), ""),
        "whole_tree": whole,
        "archive": cut.instant >= spans["archiving"][0],
    }
