"""Which fault comes with which seed: pure, so that a campaign resumes and any fault of it can be had again.

Knows: that a place where the server is locked is worth more faults than another, and that of a door which is passed a
thousand times the first and the last pass are worth as much as all between. A seed's fault depends on the recorded
points as well: its text, which is in every result, does not.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.fire.points import Fault, How, Passed, Point, When

# A stop and a wait take longer than all else, and show most where the server is locked.
_WEIGHTS = {
    How.DIE: 4,
    How.DIE_SOON: 4,
    How.CANCEL: 3,
    How.REFUSE: 6,
    How.HANG: 5,
    How.KILL: 4,
    How.SLOW: 1,
    How.STOP: 1,
}
_WEIGHTS_LOCKED = {**_WEIGHTS, How.SLOW: 4, How.STOP: 4}
_LOCKED_NAME = 3  # as likely as another name


@dataclass(frozen=True, slots=True)
class Situation:
    """A command, and where it needs a run that died: which one, and where."""

    command: str
    died: str = ""
    death: Fault | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in one situation."""

    seed: int
    situation: Situation
    fault: Fault


def chosen(seed: int, points: Mapping[Situation, Sequence[Passed]], shares: Mapping[str, int]) -> Case:
    """The case of this seed. `points` are those of each situation, `shares` how often each command is chosen."""
    luck = random.Random(seed)
    commands = sorted({situation.command for situation in points})
    command = luck.choices(commands, [shares[name] for name in commands])[0]
    situation = luck.choice(sorted((one for one in points if one.command == command), key=str))
    return Case(seed, situation, chosen_fault(luck, points[situation]))


def chosen_fault(luck: random.Random, passed: Sequence[Passed]) -> Fault:
    """A name, a pass of it, and what happens there."""
    at = chosen_pass(luck, passed)
    weights = _WEIGHTS_LOCKED if at.locked else _WEIGHTS
    hows = sorted(at.hows)
    return Fault(luck.choices(hows, [weights[how] for how in hows])[0], at.point)


def chosen_pass(luck: random.Random, passed: Sequence[Passed]) -> Passed:
    """One point: names first, so that a door which is passed often is not all that is tried."""
    of_name: dict[str, list[Passed]] = defaultdict(list)
    for one in passed:
        of_name[one.point.name].append(one)
    names = sorted(of_name)
    weights = [_LOCKED_NAME if any(one.locked for one in of_name[name]) else 1 for name in names]
    passes = of_name[luck.choices(names, weights)[0]]
    locked = [one for one in passes if one.locked]
    return luck.choice([passes[0], passes[-1], luck.choice(passes), luck.choice(locked or passes)])


def every(points: Mapping[Situation, Sequence[Passed]], hows: frozenset[How], names: str = "") -> Iterator[Case]:
    """Each of these faults at every name once, in the first situation that comes by it; for a lock's, on both sides.

    A stop and a wait are of interest where the server is locked. Only names that begin with `names`.
    """
    seen: set[tuple[How, str, When | None]] = set()
    for situation in sorted(points, key=lambda one: (one.command == "recover", str(one))):
        for one in points[situation]:
            for how in sorted(hows & one.hows):
                lasting = how in (How.STOP, How.SLOW)
                key = (how, one.point.name, one.point.when if lasting else None)
                if key not in seen and (one.locked or not lasting) and one.point.name.startswith(names):
                    seen.add(key)
                    yield Case(-1, situation, Fault(how, one.point))


def failpoints(points: Mapping[Situation, Sequence[Passed]]) -> set[tuple[str, Point]]:
    """What a campaign can choose from, every pass of a door counted once: a command, a name, a side."""
    return {
        (situation.command, Point(one.point.name, 0, one.point.when))
        for situation, all_ in points.items()
        for one in all_
    }
