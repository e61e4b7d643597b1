"""When a target will be full, by what its free space has lost lately. Pure.

Knows: the rule: a straight line through the looks of the last 30 days, least squares, as Prometheus's `deriv` draws it.
Two weeks of looks are needed: in the first days nothing is pruned yet, and every new target seems to fill.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backupd.policy.trend import Point

WINDOW = timedelta(days=30)
LEAST = timedelta(days=14)  # between the first look and the last


def full_in_seconds(free: "Sequence[Point]", *, now_free: float) -> float | None:
    """In which time these free bytes will be used up; None where they do not become fewer, or nobody can tell yet.

    `free` is what earlier looks found, the oldest first.
    """
    if not free or free[-1].at - free[0].at < LEAST.total_seconds():
        return None
    lost = -_slope(free)
    return max(0.0, now_free) / lost if lost > 0 else None


def _slope(points: "Sequence[Point]") -> float:
    """A second. The points are not all of one instant."""
    middle = sum(point.at for point in points) / len(points)
    mean = sum(point.value for point in points) / len(points)
    spread = sum((point.at - middle) ** 2 for point in points)
    return sum((point.at - middle) * (point.value - mean) for point in points) / spread
