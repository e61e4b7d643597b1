"""The points that a line is drawn through: what was measured, and is a number."""

from collections.abc import Callable, Iterable, Sequence
from math import isfinite

from backupd.vocabulary.penalty import Sample

Points = tuple[tuple[float, float], ...]


def finite(points: Iterable[tuple[float, float]]) -> Points:
    """Those that have a place in a picture."""
    return tuple((x, y) for x, y in points if isfinite(x) and isfinite(y))


def measured(samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> Points:
    """This value of each sample that has it, over the seconds since the snapshot."""
    found = ((sample.at_seconds, value(sample)) for sample in samples)
    return tuple((at, known) for at, known in found if known is not None)
