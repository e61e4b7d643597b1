"""What a fault is, and at which point of a command it is: pure values, and their texts.

A point is one pass through a door, before its effect or after it. Its name says which door, what goes through it, and
on whose behalf: `process lvremove < lvm.snapshots.remove < …`. No name has a line number or a run's id in it, so that
the same point has the same name in every run.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class When(StrEnum):
    """On which side of the effect."""

    BEFORE = "before"
    AFTER = "after"


class How(StrEnum):
    """What happens to the command there."""

    DIE = "die"  # SIGKILL
    DIE_SOON = "die-soon"  # SIGKILL 20 ms later: in the middle of the effect, or of what comes after it
    CANCEL = "cancel"  # SIGTERM
    STOP = "stop"  # SIGSTOP, and SIGCONT when the lock's budget has long passed
    SLOW = "slow"  # it waits there for longer than the lock's budget
    REFUSE = "refuse"  # the door fails with the error that its contract names
    HANG = "hang"  # the external program, or the LVM shell, never ends
    KILL = "kill"  # the external program is killed while it works


ALWAYS = frozenset({How.DIE, How.DIE_SOON, How.CANCEL, How.STOP, How.SLOW})  # what can be done at any door


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One pass through a door in one run of a command."""

    name: str
    ordinal: int  # of this name, from 1
    when: When


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen where. Its text is `HOW:WHEN:ORDINAL:NAME`."""

    how: How
    point: Point

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault of this text.

        Raises:
            ValueError: it is none.
        """
        how, when, ordinal, name = text.split(":", 3)
        return cls(How(how), Point(name, int(ordinal), When(when)))

    def __str__(self) -> str:
        return f"{self.how}:{self.point.when}:{self.point.ordinal}:{self.point.name}"


@dataclass(frozen=True, slots=True)
class Passed:
    """A point that a recorded run came by."""

    point: Point
    hows: frozenset[How]  # what can be done there, always or because the door knows how
    locked: bool  # the server was locked then


def to_line(passed: Passed) -> str:
    """A line of a record."""
    point = passed.point
    told = {"name": point.name, "n": point.ordinal, "when": point.when}
    return json.dumps({**told, "hows": sorted(passed.hows - ALWAYS), "locked": passed.locked})


def from_lines(lines: Iterable[str]) -> Iterator[Passed]:
    """The points of a record; its events are passed over, and so is a last line that a death has cut."""
    for told in parsed(lines):
        if "name" in told:
            point = Point(told["name"], told["n"], When(told["when"]))
            yield Passed(point, ALWAYS | frozenset(map(How, told["hows"])), told["locked"])


def parsed(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The documents of these lines, one each."""
    for line in lines:
        if line.endswith("}\n"):
            yield json.loads(line)
