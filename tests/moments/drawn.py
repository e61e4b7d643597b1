"""Moments of a history, drawn by a seed: how a person asks for each, and how many transactions belong to it.

Knows: the instants that are never left out, those around whatever is not like the rest of the history. They are drawn
first, one of each kind in turn, so that a few moments have every kind and a hundred have every instant.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice, zip_longest

from tests.moments.history import BACKUPS, History
from tests.moments.server_log import Logged


@dataclass(frozen=True, slots=True)
class Drawn:
    """A moment."""

    name: str
    options: tuple[str, ...]
    count: int  # of the log's transactions, that are in what is restored


def drawn(history: History, count: int, *, seed: int) -> Sequence[Drawn]:
    """So many, always the same of the same history."""
    return list(islice(_Draw(history, random.Random(seed)).all(), count))


class _Draw:
    def __init__(self, history: History, chance: random.Random) -> None:
        self._history, self._record, self._chance = history, history.record, chance
        self._first, self._second = (self._record.up_to(*history.places[run]) for run in BACKUPS)

    def all(self) -> Iterator[Drawn]:
        kinds = [list(kind) for kind in self._special()]
        for kind in kinds:
            self._chance.shuffle(kind)
        in_turn = chain.from_iterable(zip_longest(*kinds))
        yield from (moment for moment in in_turn if moment is not None)
        while True:
            yield self._chance.choice([self._with, self._without, self._behind, self._time])(self._any())

    def _special(self) -> Iterator[Iterator[Drawn]]:
        gtids = self._history.changes
        yield (self._without(self._history.number(gtid), f"without {what}") for what, gtid in gtids.items())
        yield (self._with(self._history.number(gtid), f"with {what}") for what, gtid in gtids.items())
        yield (self._with(self._history.number(gtid) + 1, f"one behind {what}") for what, gtid in gtids.items())
        yield self._around_backups()
        for number in self._files():
            yield self._around_file(number)
        yield self._around_large()
        yield (self._time(self._any()) for _ in range(10))
        yield iter([Drawn("the latest", ("--to-latest",), len(self._record.log))])

    def _around_backups(self) -> Iterator[Drawn]:
        for run, number in zip(BACKUPS, (self._first, self._second), strict=True):
            place = "{}:{}".format(*self._history.places[run])
            yield Drawn(f"the place of {run}", ("--to-position", place), number)
            yield self._without(number, f"the place of {run}, by GTID")
            yield self._with(number, f"one behind {run}")
        yield self._with(self._second - 1, f"the last one in {BACKUPS[1]}")
        over = self._with(self._second + 1, f"over {BACKUPS[1]}")
        yield Drawn(f"{over.name} from {BACKUPS[0]}", (BACKUPS[0], *over.options), over.count)

    def _files(self) -> list[int]:
        """The first transactions of those files that begin behind the first backup."""
        log = self._record.log
        return [n for n in range(self._first + 1, len(log)) if log[n].file != log[n - 1].file]

    def _around_file(self, number: int) -> Iterator[Drawn]:
        one = self._record.log[number]
        yield self._with(number - 1, f"the last one before {one.file}")
        yield self._behind(number - 1, f"the end of those before {one.file}")
        yield Drawn(f"where {one.file} begins", ("--to-position", f"{one.file}:{one.start}"), number)
        yield self._without(number, f"without the first one of {one.file}")
        yield self._with(number, f"the first one of {one.file}")

    def _around_large(self) -> Iterator[Drawn]:
        number = self._history.number(self._history.large)
        one = self._log(number)
        yield self._without(number, "without the large one")
        yield self._with(number, "with the large one")
        for _ in range(2):
            place = f"{one.file}:{self._chance.randrange(one.start + 1, one.end)}"
            yield Drawn("within the large one", ("--to-position", place), number)

    def _log(self, number: int) -> Logged:
        return self._record.log[number]

    def _any(self) -> int:
        return self._chance.randrange(self._first, len(self._record.log) - 1)

    def _with(self, number: int, name: str = "") -> Drawn:
        return Drawn(name, ("--to-gtid", self._log(number).gtid), number + 1)

    def _without(self, number: int, name: str = "") -> Drawn:
        return Drawn(name, ("--before-gtid", self._log(number).gtid), number)

    def _behind(self, number: int, name: str = "") -> Drawn:
        return Drawn(name, ("--to-position", self._log(number).place), number + 1)

    def _time(self, number: int) -> Drawn:
        """That of a commit, or soon after it; later than the first backup, which was taken a while after its place."""
        least = self._record.before(self._history.taken[BACKUPS[0]] + timedelta(seconds=1), behind=self._first)
        at = self._log(max(least, number)).at
        last = max(one.at for one in self._record.log[self._first :])
        at = min(last, at + timedelta(microseconds=self._chance.choice((0, 1, 300_000))))
        return Drawn("", ("--to-time", at.isoformat()), self._record.before(at, behind=self._first))
