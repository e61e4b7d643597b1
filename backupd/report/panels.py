"""Small line charts side by side, with the same axes: one for each way of loading, a line for each layout. SVG.

Knows: places, axes, the legend that all of them share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from backupd.report import legend
from backupd.report.scale import Scale, scale
from backupd.report.svg import Picture, element, label, polyline
from backupd.report.words import figure

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 52, 12, 74
_PLOT, _BELOW = 170, 66  # height between the axes, and from there to the next panel's
_SMALL = "small fill-soft"

Line = tuple[float | None, ...]  # a value at each place; None where it was not measured


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: as many lines as the picture has names, in their order."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Axes:
    """What all panels of a picture have in common."""

    unit: str  # of the values
    suffix: str  # after each value on its axis
    places: tuple[str, ...]  # what is written below each place
    below: str  # what the places are
    names: tuple[str, ...]  # of the lines
    expected: Line = ()  # what a dashed line in each panel shows
    expectation: str = ""  # and what that is


def panels_svg(title: str, axes: Axes, panels: Sequence[Panel], *, alone: bool = True) -> str:
    """Two panels to a row. `alone`: with style and background, to be kept as a file."""
    values = [value for panel in panels for line in panel.lines for value in _finite(line)]
    upright = scale([0.0, *values, *_finite(axes.expected)], count=5)
    wide = (_WIDTH - _LEFT - _RIGHT) / 2 - _LEFT / 2 if len(panels) > 1 else _WIDTH - _LEFT - _RIGHT
    parts = [label(_LEFT, 24, title, cls="title fill-ink"), label(_LEFT, 43, axes.unit, cls=_SMALL)]
    for number, panel in enumerate(panels):
        left = _LEFT + number % 2 * (wide + _LEFT)
        top = _TOP + number // 2 * (_PLOT + _BELOW)
        parts += _frame(panel.title, axes, upright, left, top, wide)
        if axes.expected:
            places = _places(axes.expected, upright, left, top, wide)
            parts.append(polyline(places, cls="line-soft", stroke_dasharray="3 4"))
        for index, line in enumerate(panel.lines):
            parts += _line(_places(line, upright, left, top, wide), index)
    bottom = _TOP + -(-len(panels) // 2) * (_PLOT + _BELOW)
    entries = [(name, legend.line_sign(index)) for index, name in enumerate(axes.names)]
    if axes.expected:
        dashed = element("line", x1=0, x2=22, y1=-4, y2=-4, cls="line-soft", stroke_dasharray="3 4")
        entries.append((axes.expectation, dashed))
    explained, lines = legend.keys(entries, _LEFT, bottom, _WIDTH)
    height = round(bottom + lines * legend.LINE)
    return Picture(_WIDTH, height, title, _words(axes, panels), [*parts, *explained]).text(alone=alone)


def _frame(title: str, axes: Axes, upright: Scale, left: float, top: float, wide: float) -> list[str]:
    bottom = top + _PLOT
    parts = [label(left, top - 10, title, cls="small fill-ink")]
    for value, words in zip(upright.ticks, upright.labels(), strict=True):
        y = top + (1 - upright.place(value)) * _PLOT
        parts.append(element("line", x1=left, x2=left + wide, y1=y, y2=y, cls="line-grid"))
        parts.append(label(left - 8, y + 4, f"{words}{axes.suffix}", cls=_SMALL, text_anchor="end"))
    parts.append(element("line", x1=left, x2=left + wide, y1=bottom, y2=bottom, cls="line-soft"))
    widest = (max(map(len, axes.places), default=0) + 1) * legend.LETTER
    each = max(1, -(-round(widest * len(axes.places)) // round(wide)))  # as many as do not touch
    for number, words in enumerate(axes.places):
        x = _x(number, len(axes.places), left, wide)
        parts.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, cls="line-soft"))
        if number % each == 0:
            parts.append(label(x, bottom + 18, words, cls=_SMALL, text_anchor="middle"))
    return [*parts, label(left + wide / 2, bottom + 36, axes.below, cls=_SMALL, text_anchor="middle")]


def _places(line: Line, upright: Scale, left: float, top: float, wide: float) -> list[tuple[float, float]]:
    return [
        (_x(number, len(line), left, wide), top + (1 - upright.place(value)) * _PLOT)
        for number, value in enumerate(line)
        if value is not None and isfinite(value)
    ]


def _line(places: Sequence[tuple[float, float]], index: int) -> list[str]:
    if not places:
        return []
    dots = "".join(element("circle", cx=x, cy=y, r=3, cls=legend.fill(index)) for x, y in places)
    drawn = polyline(places, cls=legend.stroke(index), stroke_width=2, stroke_linejoin="round", **legend.dash(index))
    return [element("g", drawn + dots, opacity="0.85")]


def _words(axes: Axes, panels: Sequence[Panel]) -> str:
    """The last value of each line that has one."""
    return "; ".join(
        f"{panel.title}, {name}: {figure(line[at])}{axes.suffix} at {axes.places[at]}"
        for panel in panels
        for name, line in zip(axes.names, panel.lines, strict=True)
        for at in [max((at for at, value in enumerate(line) if value is not None), default=None)]
        if at is not None
    )


def _x(number: int, count: int, left: float, wide: float) -> float:
    """Places share the width; each is in the middle of its part."""
    return left + (number + 0.5) * wide / max(count, 1)


def _finite(line: Line) -> list[float]:
    return [value for value in line if value is not None and isfinite(value)]
