"""One figure of a job's backups over months, as SVG: a dot for each run, its median, and what stood out.

Knows: axes of days, and how many dots a picture can hold.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from backupd.report.impact import Measure, Summary
from backupd.report.scale import Scale, scale
from backupd.report.svg import Picture, element, label

_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT, _FOOT = 760, 84, 16, 34, 110, 26
_DOTS = 250  # more than these share a dot: a line then says how far apart they are
_DAYS = 6  # dates that are written below
_SMALL = "small fill-soft"

_Place = tuple[float, float, float, float]  # seconds since the epoch; the middle, the least and the most value


def summary_svg(summary: Summary, *, alone: bool = False) -> str:
    """The picture; without `alone` the page must have `svg.style()`."""
    places = gathered(summary.points)
    across = scale([at for at, *_ in places], count=_DAYS, tight=True)
    upright = scale([0.0, *(value for _, _, least, most in places for value in (least, most))], count=4)
    standing_out = {(outlier.at, outlier.value) for outlier in summary.outliers}
    parts = [
        label(0, 18, summary.measure.name, cls="title fill-ink"),
        *_axes(across, upright, summary.measure),
        *_level(upright, summary),
        *(drawn for place in places for drawn in _dot(place, across, upright)),
        *(
            element("circle", cx=_x(across, at.timestamp()), cy=_y(upright, value), r=4, cls="fill-level")
            for at, value in sorted(standing_out)
        ),
    ]
    return Picture(_WIDTH, _TOP + _PLOT + _FOOT, summary.measure.name, _words(summary), parts).text(alone=alone)


def gathered(points: Sequence[tuple[datetime, float]]) -> list[_Place]:
    """As many places as a picture can hold, from points in the order of time; where they are few, each its own."""
    share = max(1, -(-len(points) // _DOTS))
    places = []
    for first in range(0, len(points), share):
        together = points[first : first + share]
        values = [value for _, value in together]
        middle = together[len(together) // 2][0].timestamp()
        places.append((middle, median(values), min(values), max(values)))
    return places


def _axes(across: Scale, upright: Scale, measure: Measure) -> list[str]:
    bottom, right = _TOP + _PLOT, _WIDTH - _RIGHT
    parts = []
    for value in upright.ticks:
        y = _y(upright, value)
        parts.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y, cls="line-grid"))
        parts.append(label(_LEFT - 8, y + 4, measure.say(value), cls=_SMALL, text_anchor="end"))
    for i in range(_DAYS):
        at = across.low + (across.high - across.low) * i / (_DAYS - 1)
        anchor = "start" if i == 0 else "end" if i == _DAYS - 1 else "middle"
        day = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
        parts.append(label(_x(across, at), bottom + 18, day, cls=_SMALL, text_anchor=anchor))
    parts.append(element("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, cls="line-soft"))
    return parts


def _level(upright: Scale, summary: Summary) -> list[str]:
    y, right = _y(upright, summary.median), _WIDTH - _RIGHT
    words = f"median {summary.measure.say(summary.median)}"
    return [
        element("line", x1=_LEFT, x2=right, y1=y, y2=y, cls="line-soft", stroke_dasharray="6 4"),
        label(right, 18, words, cls=_SMALL, text_anchor="end"),
    ]


def _dot(place: _Place, across: Scale, upright: Scale) -> list[str]:
    at, middle, least, most = place
    x = _x(across, at)
    dot = element("circle", cx=x, cy=_y(upright, middle), r=2.2, cls="fill-s0")
    if least == most:
        return [dot]
    return [
        element("line", x1=x, x2=x, y1=_y(upright, least), y2=_y(upright, most), cls="line-s0", opacity="0.35"),
        dot,
    ]


def _words(summary: Summary) -> str:
    say, first, last = summary.measure.say, summary.points[0], summary.points[-1]
    return (
        f"{len(summary.points)} runs from {first[0]:%Y-%m-%d} to {last[0]:%Y-%m-%d}: median {say(summary.median)},"
        f" 95 of 100 no worse than {say(summary.p95)}, worst {say(summary.worst)}"
    )


def _x(across: Scale, value: float) -> float:
    return _LEFT + across.place(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(upright: Scale, value: float) -> float:
    return _TOP + (1 - upright.place(value)) * _PLOT
