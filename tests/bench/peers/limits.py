"""What backupd may cost beside its rivals, and whether a machine's rounds keep it. Pure.

Knows: the limits, by model of disks and kind of load. Compared are medians; a ratio of which the divisor is not above
zero says nothing, and is not judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from backupd.lab.options import DiskModel
from tests.bench.peers.contenders import BACKUPD, FAST_PV, MARIADB_BACKUP, MYLVMBACKUP, NOTHING, TUNED
from tests.bench.peers.figures import COLUMNS, Reading

_OURS = (BACKUPD, FAST_PV, TUNED)
_LOST, _WALL, _STALL = "lost", "wall s", "stall ms"
_P99, _P99_BEFORE = "p99 ms", "p99 before ms"


@dataclass(frozen=True, slots=True)
class Judged:
    """One limit on one of our contenders."""

    who: str
    limit: str
    figure: float | None  # None: it says nothing
    at_most: float

    @property
    def verdict(self) -> str:
        """`kept`, `MISSED`, or `-`."""
        return "-" if self.figure is None else "kept" if self.figure <= self.at_most else "MISSED"


def judged(disks: str, kind: str, readings: Sequence[Reading]) -> list[Judged]:
    """Each limit on each of ours that took part, as far as those that it is compared with did as well."""
    rounds = _Rounds(readings)
    found = []
    for who in _OURS:
        if rounds.values(who, _LOST):
            found += [one for one in _limits(disks, kind, who, rounds) if one is not None]
    return found


def limits_table(found: Sequence[Judged]) -> str:
    """A Markdown table; empty where there is nothing to judge."""
    if not found:
        return ""
    lines = ["| | limit | figure | |", "|---|---|---|---|"]
    for one in found:
        figure = "-" if one.figure is None else f"{one.figure:.2f}" if one.at_most < 10 else f"{one.figure:.0f}"
        lines.append(f"| {one.who} | {one.limit} | {figure} | {one.verdict} |")
    return "\n".join(lines)


class _Rounds:
    """The good rounds, by contender."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = [one for one in readings if not one.failed]

    def values(self, who: str, column: str) -> list[float]:
        found = (COLUMNS[column](one) for one in self._readings if one.contender == who)
        return [value for value in found if value is not None]

    def beside(self, who: str, column: str, other: str, at_most: float) -> Judged | None:
        """A ratio of two contenders' medians; None where one of them did not take part."""
        ours, theirs = self.values(who, column), self.values(other, column)
        if not ours or not theirs:
            return None
        limit = f"{column} at most {at_most:g} of {other}'s"
        return Judged(who, limit, _ratio(median(ours), median(theirs)), at_most)

    def below(self, who: str, column: str, at_most: float) -> Judged | None:
        ours = self.values(who, column)
        return Judged(who, f"{column} at most {at_most:g}", median(ours), at_most) if ours else None

    def against_before(self, who: str, at_most: float) -> Judged | None:
        ours, before = self.values(who, _P99), self.values(who, _P99_BEFORE)
        if not ours or not before:
            return None
        return Judged(who, f"{_P99} at most {at_most:g} of before", _ratio(median(ours), median(before)), at_most)

    def within_noise(self, who: str) -> Judged | None:
        """No more than was lost once without any backup."""
        ours, noise = self.values(who, _LOST), self.values(NOTHING, _LOST)
        if not ours or not noise:
            return None
        return Judged(who, "lost no more than without a backup once", median(ours), max(noise))


def _limits(disks: str, kind: str, who: str, rounds: _Rounds) -> Iterator[Judged | None]:
    def beside(column: str, at_most: float, other: str = MARIADB_BACKUP) -> Judged | None:
        return rounds.beside(who, column, other, at_most)

    if kind == "rate":
        yield rounds.within_noise(who)
        yield beside(_P99, 0.8)
        yield rounds.against_before(who, 2.0)
        yield rounds.below(who, _STALL, 400)
    elif disks == DiskModel.HDD:
        yield beside(_LOST, 0.7 if who == BACKUPD else 0.5)
        yield beside(_LOST, 0.25, MYLVMBACKUP)
        yield rounds.below(who, _STALL, 500)
        yield beside(_STALL, 0.6)
        yield beside(_WALL, 1.2)
    else:
        yield beside(_LOST, 1.0)
        yield beside(_WALL, 1.5)


def _ratio(one: float, other: float) -> float | None:
    return one / other if other > 0 else None
