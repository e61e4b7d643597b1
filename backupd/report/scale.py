"""From values to places on an axis, with ticks at round numbers. For terminal and SVG alike; any finite float works."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from backupd.report.words import tick

_FARTHEST = 1e200  # beyond it differences of floats may overflow; nothing that is measured comes near
_SMALLEST = 1e-200
_WRITTEN_OUT = 1e5  # from here on a figure has a multiple's letter, or an exponent
_SAME = 1e-9  # of the values: what differs by less is drawn as one height


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: its ends, and the values that are written beside it, ascending."""

    low: float
    high: float
    ticks: tuple[float, ...]
    names: tuple[str, ...] = ()  # of the ticks, where their values would say nothing

    def place(self, value: float) -> float:
        """Where a value is, 0.0 at the low end to 1.0 at the high end; what lies outside is at the end."""
        return min(max((_clamped(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    def labels(self) -> tuple[str, ...]:
        """What is written beside the ticks: their names, or as many digits as it takes to tell one from the next."""
        if self.names:
            return self.names
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else self.high - self.low
        if max(abs(self.low), abs(self.high)) >= _WRITTEN_OUT or step < 1 / _WRITTEN_OUT:
            return tuple(map(tick, self.ticks))
        digits = next(digits for digits in range(8) if abs(round(step, digits) - step) <= step / 100)
        return tuple(f"{value:.{digits}f}" for value in self.ticks)


def scale(values: Iterable[float], *, count: int = 5, tight: bool = False) -> Scale:
    """An axis that holds all finite values, with about `count` ticks; 0 to 1 where there are none.

    Its ends are ticks, except where it is `tight`: then they are the lowest and the highest value.
    """
    known = [_clamped(value) for value in values if isfinite(value)]
    low, high = _apart(min(known, default=0.0), max(known, default=1.0))
    step = _round_step((high - low) / max(count, 1))
    first, last = (ceil, floor) if tight else (floor, ceil)
    slack = 1e-6 if tight else -1e-6  # a tick that is off by rounding is still the value's own
    lowest, highest = first(low / step - slack), last(high / step + slack)
    ticks = tuple(step * i for i in range(lowest, highest + 1))
    return Scale(low, high, ticks) if tight else Scale(ticks[0], ticks[-1], ticks)


def named_scale(names: Sequence[tuple[float, str]], values: Iterable[float] = ()) -> Scale:
    """An axis with ticks at these values, ascending, that go by these names; it holds the other finite values too."""
    known = [_clamped(value) for value in (*(value for value, _ in names), *values) if isfinite(value)]
    low, high = _apart(min(known, default=0.0), max(known, default=1.0))
    return Scale(low, high, tuple(_clamped(value) for value, _ in names), tuple(name for _, name in names))


def _clamped(value: float) -> float:
    return min(max(value, -_FARTHEST), _FARTHEST)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Two ends that differ by enough to divide by."""
    greatest = max(abs(low), abs(high))
    if high - low > max(_SAME * greatest, _SMALLEST):
        return low, high
    room = greatest / 2 if greatest > _SMALLEST else 0.5
    return low - room, high + room


def _round_step(step: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below `step`."""
    power = 10.0 ** floor(log10(step))
    return next((power * factor for factor in (1, 2, 2.5, 5) if power * factor >= step * (1 - 1e-9)), power * 10)
