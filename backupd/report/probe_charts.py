"""The pictures of a probe as SVG: how a penalty decays, how high each is, how much each disk works.

Knows: measures, axes, legends.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isfinite

from backupd.report import legend
from backupd.report.lines import finite
from backupd.report.probe_combinations import Series, labels, of_row, penalty_series, short_pv
from backupd.report.probe_table import share_rows
from backupd.report.scale import Scale, scale
from backupd.report.svg import Picture, element, label, polyline
from backupd.report.words import figure, ratio, share
from backupd.vocabulary.gauges import Stage
from backupd.vocabulary.probes import Curve, ProbeRow

WIDTH = 760
_LEFT, _RIGHT, _TOP, _PLOT = 56, 20, 52, 280  # of a curve's picture: margins, and the height between the axes
_BARS, _FIGURES = 380, 190  # of a bar chart: width of the bars, and of the figures on their right
_BAR = 16
_STAGES = {  # how dark a bar is
    Stage.FIRST: 1.0,
    Stage.COPYING: 0.75,
    Stage.SETTLED: 0.5,
    Stage.FILLED: 0.3,
}


def curve_svg(
    curves: Sequence[Curve],
    *,
    threshold: float | None = None,
    title: str = "Write penalty after a snapshot",
    alone: bool = True,
) -> str:
    """Penalty over the seconds since the snapshot: a colour per combination, a line per repeat, a level to settle at.

    `alone`: with style and background, to be kept as a file; otherwise the page must have `svg.style()`.
    """
    return course_svg(penalty_series(curves), threshold=threshold, title=title, alone=alone)


def course_svg(
    series: Sequence[Series],
    *,
    unit: str = "baseline ÷ this: above 1 is slower",
    least: float = 1.0,
    suffix: str = "x",
    span: tuple[float, ...] = (),
    threshold: float | None = None,
    mark: tuple[float, str] | None = None,
    title: str,
    alone: bool = True,
) -> str:
    """Values over the seconds since the snapshot; `mark` is one of them.

    `least` and the seconds of `span` are in sight whatever was measured.
    """
    series = [Series(one.label, tuple(map(finite, one.lines))) for one in series]
    points = [point for one in series for line in one.lines for point in line]
    across = scale([0.0, *span, *(x for x, _ in points)], count=8, tight=True)
    upright = scale([0.0, least, *(y for _, y in points), *_known(threshold)], count=6)
    explained, rows = _legend([one for one in series if one.label])
    parts = [label(_LEFT, 24, title, cls="title fill-ink"), *_axes(across, upright, unit, suffix)]
    if mark is not None:
        parts += _mark(across, *mark)
    for i, one in enumerate(series):
        parts += [drawn for line in one.lines for drawn in _curve(line, i, across, upright)]
    if threshold is not None and isfinite(threshold):
        parts += _level(upright, threshold)
    if not points:
        parts.append(label(WIDTH / 2, _TOP + _PLOT / 2, "no curve was measured", text_anchor="middle"))
    height = _TOP + _PLOT + 56 + rows * legend.LINE
    return Picture(WIDTH, height, title, _curve_words(series, suffix), [*parts, *explained]).text(alone=alone)


def penalty_svg(rows: Sequence[ProbeRow], *, title: str = "How much slower", alone: bool = True) -> str:
    """A bar per row that has a penalty, grouped by combination; beside each its penalty and its IOPS."""
    known = [row for row in rows if row.penalty is not None and isfinite(row.penalty) and row.penalty >= 0]
    names = labels(map(of_row, known))
    order = list(names)
    known.sort(key=lambda row: order.index(of_row(row)))
    left = _room_for(names.values())
    axis = scale([0.0, 1.0, *(row.penalty or 0.0 for row in known)], count=6)
    parts, top = [label(16, 24, title, cls="title fill-ink")], 44.0
    for combination, group in groupby(known, key=of_row):
        of_one = list(group)
        parts.append(_name(names[combination], left, top + _BAR * len(of_one) / 2 + 4))
        for row in of_one:
            parts += _bar(row, left, top, axis)
            top += _BAR
        top += 12
    one = left + axis.place(1.0) * _BARS
    parts.append(element("line", x1=one, x2=one, y1=38, y2=top, cls="line-ink", stroke_dasharray="3 3"))
    parts.append(label(one, top + 16, "1x: as fast as without a snapshot", cls="small fill-soft", text_anchor="middle"))
    words = "; ".join(f"{names[of_row(row)]}, {row.phase}: {ratio(row.penalty)}" for row in known)
    return Picture(left + _BARS + _FIGURES, round(top + 30), title, words, parts).text(alone=alone)


def shares_svg(rows: Iterable[ProbeRow], *, title: str = "Which disks work", alone: bool = True) -> str:
    """A bar per row, divided among the PVs as the physical requests were."""
    known = [(row, _positive(shares)) for row, shares in share_rows(rows)]
    combinations = labels(of_row(row) for row, _ in known)
    names = [f"{combinations[of_row(row)]}, {row.phase}" for row, _ in known]
    pvs = list(dict.fromkeys(pv for _, shares in known for pv in shares))
    left, top = _room_for(names), 44.0
    parts = [label(16, 24, title, cls="title fill-ink")]
    for name, (_, shares) in zip(names, known, strict=True):
        parts += [_name(name, left, top + 14), *_divided(shares, pvs, left, top)]
        top += 26
    width = left + _BARS + _FIGURES
    signs = [legend.area_sign(legend.fill(i)) for i in range(len(pvs))]
    explained, lines = legend.keys(list(zip(map(short_pv, pvs), signs, strict=True)), left, top + 20, width)
    words = "; ".join(
        f"{name}: " + ", ".join(f"{short_pv(pv)} {share(part)}" for pv, part in shares.items())
        for name, (_, shares) in zip(names, known, strict=True)
    )
    return Picture(width, round(top + 16 + lines * legend.LINE), title, words, [*parts, *explained]).text(alone=alone)


# --- curves ----------------------------------------------------------------------------------------------------------

_SMALL = "small fill-ink"


def _axes(across: Scale, upright: Scale, unit: str, suffix: str) -> list[str]:
    bottom, right = _TOP + _PLOT, WIDTH - _RIGHT
    parts = [label(_LEFT, 43, unit, cls="small fill-soft")]
    for value, words in zip(upright.ticks, upright.labels(), strict=True):
        y = _y(upright, value)
        parts.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y, cls="line-grid"))
        parts.append(label(_LEFT - 8, y + 4, f"{words}{suffix}", cls="small fill-soft", text_anchor="end"))
    for value, words in zip(across.ticks, across.labels(), strict=True):
        x = _x(across, value)
        parts.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, cls="line-soft"))
        parts.append(label(x, bottom + 19, words, cls="small fill-soft", text_anchor="middle"))
    parts.append(element("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, cls="line-soft"))
    middle = (_LEFT + right) / 2
    parts.append(label(middle, bottom + 38, "seconds since the snapshot", cls="small fill-soft", text_anchor="middle"))
    return parts


def _level(upright: Scale, threshold: float) -> list[str]:
    y, right = _y(upright, threshold), WIDTH - _RIGHT
    words = f"settled: {ratio(threshold)} or less"
    return [
        element("line", x1=_LEFT, x2=right, y1=y, y2=y, cls="line-level", stroke_dasharray="6 4"),
        label(_LEFT + 6, y - 5, words, cls="small fill-level halo"),
    ]


def _mark(across: Scale, at: float, words: str) -> list[str]:
    x, late = _x(across, at), across.place(at) > 0.7
    beside, anchor = (x - 6, "end") if late else (x + 6, "start")
    return [
        element("line", x1=x, x2=x, y1=_TOP, y2=_TOP + _PLOT, cls="line-soft", stroke_dasharray="3 3"),
        label(beside, _TOP + 12, words, cls="small fill-soft halo", text_anchor=anchor),
    ]


def _curve(line: Sequence[tuple[float, float]], index: int, across: Scale, upright: Scale) -> list[str]:
    if not line:
        return []
    places = [(_x(across, x), _y(upright, y)) for x, y in line]
    dots = [element("circle", cx=x, cy=y, r=2.4, cls=legend.fill(index)) for x, y in places]
    drawn = polyline(places, cls=legend.stroke(index), stroke_width=2, stroke_linejoin="round", **legend.dash(index))
    return [element("g", drawn + "".join(dots), opacity="0.7")]


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    keys = [
        (
            f"{one.label} ({len(one.lines)} times)" if len(one.lines) > 1 else one.label,
            legend.line_sign(i),
        )
        for i, one in enumerate(series)
    ]
    return legend.keys(keys, _LEFT, _TOP + _PLOT + 64, WIDTH)


def _curve_words(series: Sequence[Series], suffix: str) -> str:
    """First and last of each first line."""
    lines = [(f"{one.label}: " if one.label else "", one.lines[0]) for one in series if one.lines and one.lines[0]]
    return "; ".join(
        f"{name}{line[0][1]:.2f}{suffix} after {line[0][0]:.0f} s, {line[-1][1]:.2f}{suffix} after {line[-1][0]:.0f} s"
        for name, line in lines
    )


# --- bars ------------------------------------------------------------------------------------------------------------


def _bar(row: ProbeRow, left: float, top: float, axis: Scale) -> list[str]:
    wide = axis.place(row.penalty or 0.0) * _BARS
    strength = f"{_STAGES.get(row.phase, 1.0):g}"
    words, right = f"{row.phase} {ratio(row.penalty)}", left + _BARS + _FIGURES - 8
    return [
        element("rect", x=left, y=top, width=wide, height=_BAR - 2, rx=2, cls="fill-s0", fill_opacity=strength),
        label(left + wide + 6, top + 11, words, cls=f"{_SMALL} halo"),
        label(right, top + 11, f"{figure(row.iops, 1)} IOPS", cls="small fill-soft", text_anchor="end"),
    ]


def _name(words: str, left: float, y: float) -> str:
    return label(left - 12, y, words, text_anchor="end", cls=_SMALL)


def _room_for(names: Iterable[str]) -> int:
    """Left of the bars."""
    return round(32 + legend.LETTER * max(map(len, names), default=8))


def _divided(shares: dict[str, float], pvs: Sequence[str], left: float, top: float) -> list[str]:
    parts, x = [], left
    for pv, part in shares.items():
        wide = part * (_BARS + _FIGURES - 16)
        parts.append(element("rect", x=x, y=top, width=max(wide - 1, 0.0), height=20, cls=legend.fill(pvs.index(pv))))
        if wide > 36:
            parts.append(label(x + wide / 2, top + 14, share(part), cls="small fill-paper", text_anchor="middle"))
        x += wide
    return parts


def _positive(shares: dict[str, float]) -> dict[str, float]:
    """Parts of one whole, whatever was counted."""
    good = {pv: max(part, 0.0) if isfinite(part) else 0.0 for pv, part in shares.items()}
    whole = sum(good.values())
    return {pv: part / whole if whole else 0.0 for pv, part in good.items()}


# --- places and signs ------------------------------------------------------------------------------------------------


def _x(across: Scale, value: float) -> float:
    return _LEFT + across.place(value) * (WIDTH - _LEFT - _RIGHT)


def _y(upright: Scale, value: float) -> float:
    return _TOP + (1 - upright.place(value)) * _PLOT


def _known(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)
