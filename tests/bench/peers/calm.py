"""Whether the server has come to rest: it flushes as it always does under this load, and is as fast as always.

What the contender before has left (dirty pages that wait, a checkpoint that is far behind) would be told as the next
one's. Pure but for `look`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from backupd.mysql.session import Session
from backupd.vocabulary.errors import LabError

LONGEST_SECONDS = 90.0  # then it goes on, and the figures say so
_LOOKS = 10  # a second apart, that have to be alike
_WITHIN = 0.15  # of their mean, half against half
_LITTLE_DIRT = 200  # pages: a difference of less is none
_LITTLE_AGE = 4 << 20  # bytes of redo log


@dataclass(frozen=True, slots=True)
class ServerSecond:
    """One second of a server under load."""

    dirty_pages: float
    checkpoint_age: float  # bytes of redo log that only the buffer pool has applied
    commits: float  # since the server was started


def look(session: Session) -> ServerSecond:
    """How it stands now.

    Raises:
        LabError: the server does not say it.
    """

    def counter(name: str) -> float:
        value = session.status(name)
        if value is None:
            raise LabError(f"the server has no status {name}", hint="bench-peers needs MariaDB")
        return float(value)

    return ServerSecond(
        counter("Innodb_buffer_pool_pages_dirty"), counter("Innodb_checkpoint_age"), counter("Handler_commit")
    )


def is_calm(looks: Sequence[ServerSecond]) -> bool:
    """Whether the last ten seconds were alike: the second half of them like the first."""
    last = looks[-_LOOKS - 1 :]
    if len(last) < _LOOKS + 1:
        return False
    rates = [after.commits - before.commits for before, after in pairwise(last)]
    return (
        _alike([one.dirty_pages for one in last[1:]], at_least=_LITTLE_DIRT)
        and _alike([one.checkpoint_age for one in last[1:]], at_least=_LITTLE_AGE)
        and _alike(rates, at_least=0.0)
    )


def await_calm(look: Callable[[], ServerSecond], *, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Return as soon as the server is calm, or at the deadline; whether it is."""
    looks = [look()]
    while not is_calm(looks):
        if len(looks) > LONGEST_SECONDS:
            return False
        sleep(1.0)
        looks.append(look())
    return True


def _alike(values: Sequence[float], *, at_least: float) -> bool:
    half = len(values) // 2
    return abs(mean(values[half:]) - mean(values[:half])) <= max(at_least, _WITHIN * mean(values))
