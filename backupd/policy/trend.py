"""Arithmetic on short noisy series: is it falling, how fast, what would it add up to.

Knows numbers. Medians throughout, because one window in ten is an accident.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import median

_LEAST_FALL = 0.1  # of the older half: less is noise


@dataclass(frozen=True, slots=True)
class Point:
    """A value at an instant, in seconds."""

    at: float
    value: float


def points(pairs: Iterable[tuple[float, float | None]]) -> list[Point]:
    """Those that were measured: what is missing, NaN or infinite is no measurement, and neither is what has no time."""
    return [Point(at, value) for at, value in pairs if value is not None and isfinite(value) and isfinite(at)]


def is_falling(series: Sequence[Point]) -> bool:
    """Whether the newer half's median is more than a tenth below the older half's. False for fewer than two."""
    if len(series) < 2:
        return False
    older, newer = _halves(series)
    return newer.value < older.value * (1 - _LEAST_FALL)


def peak(series: Sequence[Point]) -> float:
    """The highest that it stood for more than an instant: the greatest median of three neighbours."""
    values = [point.value for point in series]
    if len(values) < 3:
        return max(values, default=0.0)
    return max(median(values[at : at + 3]) for at in range(len(values) - 2))


def recent(series: Sequence[Point], count: int = 5) -> float:
    """The median of the last few; 0 for an empty series."""
    return median(point.value for point in series[-count:]) if series else 0.0


def expected_sum(rates: Sequence[Point], seconds: float) -> float:
    """What a rate adds up to over the time to come, if it goes on as it has lately.

    Copying on write can only happen once per chunk, so the rate of a steady load decays exponentially: where the
    series is falling its decay is continued, where it is not the last rate is.
    """
    if not rates or seconds <= 0:
        return 0.0
    newer, decay = _going_on(rates)
    return newer * (1 - exp(-decay * seconds)) / decay if decay else newer * seconds


def expected_after(rates: Sequence[Point], seconds: float) -> float:
    """What a rate will be after that time, if it goes on in the same way."""
    if not rates:
        return 0.0
    newer, decay = _going_on(rates)
    return newer * exp(-decay * seconds)


def _going_on(rates: Sequence[Point]) -> tuple[float, float]:
    """The rate by now, and by which share it falls in each second; 0 where it does not."""
    older, newer = _halves(rates)
    if newer.value <= 0 or not is_falling(rates) or newer.at <= older.at:
        return max(0.0, newer.value), 0.0
    decay = log(older.value / newer.value) / (newer.at - older.at)
    return newer.value, decay if 0 < decay < inf else 0.0  # instants or values beyond what a float can tell apart


def _halves(series: Sequence[Point]) -> tuple[Point, Point]:
    middle = len(series) // 2
    older, newer = series[:middle] or series, series[middle:]
    return _centre(older), _centre(newer)


def _centre(series: Sequence[Point]) -> Point:
    return Point(median(point.at for point in series), median(point.value for point in series))
