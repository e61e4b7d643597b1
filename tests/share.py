"""How much of what is drawn from a seed is tried: the one place that reads `BACKUPD_TESTS_SHARE`.

`quick` is for `make check`; `usual` for the other targets of `make test`, and for pytest as it is typed; `full` for
`make test-all`. Whichever it is, every kind of case is tried: a share is a number of examples, never a choice of tests.
"""

import os
import zlib
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TypeVar

VARIABLE = "BACKUPD_TESTS_SHARE"

Case = TypeVar("Case", bound=str)


class Share(StrEnum):
    QUICK = "quick"
    USUAL = "usual"
    FULL = "full"


SHARE = Share(os.environ.get(VARIABLE, Share.USUAL))

_QUICK_PART, _QUICK_LEAST = 10, 4


def examples(count: int) -> int:
    """Of a property that `usual` tries with so many: a tenth when it has to be quick."""
    return max(count // _QUICK_PART, min(count, _QUICK_LEAST)) if SHARE is Share.QUICK else count


def seeded(full: int, *, usual: int) -> int:
    """How many of the `full` cases that come from a seed each are tried: the first ones, and all of them in `full`."""
    return full if SHARE is Share.FULL else usual


def in_turn(cases: Collection[Case], of: str, *, one_in: int) -> Sequence[Case]:
    """Of the cases that each of many things has, one in so many, in order: all of them in `full`.

    Which ones follows from the thing's name, so that all things together have every case, and none of them has none.
    """
    ordered = sorted(cases)
    if SHARE is Share.FULL or not ordered:
        return ordered
    return ordered[zlib.crc32(of.encode()) % min(one_in, len(ordered)) :: one_in]
