"""The slots of each target over a night as an SVG picture: a row for each slot, a bar for each try that took it.

Knows: coordinates. A slot beyond a target's limit is drawn like any other, below a line: it should never be seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from zoneinfo import ZoneInfo

from backupd.policy.fleet_slots import SlotUse, most_at_once
from backupd.report.svg import Picture, element, label
from backupd.report.words import duration, many
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.fleet import FleetBackup
from backupd.vocabulary.records import GOOD, RunStatus

_WIDTH, _LEFT, _RIGHT = 1120, 150.0, 1110.0
_ROW, _GAP, _TOP, _BAR = 15.0, 14.0, 10.0, 12.0
_SLIVER = 2.0  # the least width of what is drawn
_MOST_TICKS = 16
_STEPS = (1, 2, 3, 6, 12, 24, 48, 168)  # hours between ticks

Link = Callable[[FleetBackup], str]


def slots_svg(
    uses: Mapping[str, Sequence[SlotUse]], limits: Mapping[str, int], *, zone: str, link: Link | None = None
) -> str:
    """An `svg` element from the first beginning to the last end; empty where nothing began.

    `link`: what a bar opens.
    """
    every = [use for of_target in uses.values() for use in of_target]
    if not every:
        return ""
    axis = _Axis(min(use.begin for use in every), max(use.end for use in every), ZoneInfo(zone))
    parts: list[str] = []
    top = _TOP
    for target in sorted({*uses, *limits}):
        rows = max(limits.get(target, 0), most_at_once(uses.get(target, ())), 1)
        parts += _of_target(target, uses.get(target, ()), limits.get(target), axis, top=top, rows=rows, link=link)
        top += rows * _ROW + _GAP
    parts = [*axis.lines(_TOP, top - _GAP), *parts, *axis.words(top + 6)]
    told = "; ".join(
        f"{target}: at most {most_at_once(uses.get(target, ()))} of {limits.get(target, '?')} slots taken"
        for target in sorted({*uses, *limits})
    )
    return Picture(_WIDTH, int(top + 14), "Slots of each target over the night", told, parts).text(alone=False)


def _of_target(
    target: str,
    uses: Sequence[SlotUse],
    limit: int | None,
    axis: "_Axis",
    *,
    top: float,
    rows: int,
    link: Link | None,
) -> Iterator[str]:
    yield label(0, top + 11, target if len(target) <= 18 else f"{target[:17]}…", cls="fill-ink")
    if rows > 1:
        words = "no limit known" if limit is None else many(limit, "slot")
        yield label(0, top + 11 + _ROW, words, cls="fill-soft small")
    for row in range(rows):
        cls = "fill-grid" if limit is None or row < limit else "fill-level"
        y = top + row * _ROW + _BAR / 2
        yield element("rect", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=1.0, cls=cls)
    yield from (_bar(use, axis, top + use.slot * _ROW, link) for use in uses)


def _bar(use: SlotUse, axis: "_Axis", y: float, link: Link | None) -> str:
    begin = min(axis.at(use.begin), _RIGHT - _SLIVER)
    width = max(_SLIVER, axis.at(use.end) - begin - 1)
    took = duration((use.end - use.begin).total_seconds())
    said = f"{use.backup.owed.cluster} by {use.tried.host}: {_became(use)}, {axis.clock(use.begin)}, {took}"
    title = element("title", escape(on_one_line(said)))
    drawn = element("rect", title, x=begin, y=y, width=width, height=_BAR, rx=2.0, cls=_colour(use.tried.status))
    return drawn if link is None else element("a", drawn, href=link(use.backup))


def _became(use: SlotUse) -> str:
    return "no answer, or going on" if use.tried.status is None else use.tried.status.value


def _colour(status: RunStatus | None) -> str:
    if status in GOOD:
        return "fill-s2"
    if status in (None, RunStatus.RUNNING):
        return "fill-s0"
    return "fill-s1" if status is RunStatus.CANCELLED else "fill-level"


class _Axis:
    """Hours of the zone's clock, from the first to the last."""

    def __init__(self, begin: datetime, end: datetime, zone: ZoneInfo) -> None:
        self._begin, self._zone = begin, zone
        self._seconds = max((end - begin).total_seconds(), 60.0)
        hours = self._seconds / 3600
        step = next((step for step in _STEPS if hours / step <= _MOST_TICKS), _STEPS[-1])
        first = begin.astimezone(zone).replace(minute=0, second=0, microsecond=0).astimezone(begin.tzinfo)
        count = min(int(hours) + 2, 10_000)
        every = (first + timedelta(hours=hour) for hour in range(1, count))
        self._ticks = [at for at in every if begin <= at <= end and at.astimezone(zone).hour % min(step, 24) == 0]

    def at(self, instant: datetime) -> float:
        """Where an instant is."""
        share = (instant - self._begin).total_seconds() / self._seconds
        return _LEFT + min(max(share, 0.0), 1.0) * (_RIGHT - _LEFT)

    def clock(self, instant: datetime) -> str:
        """What the zone's clock shows."""
        return f"{instant.astimezone(self._zone):%H:%M}"

    def lines(self, top: float, bottom: float) -> Iterator[str]:
        """One at each tick, below everything."""
        for at in self._ticks:
            yield element("rect", x=self.at(at), y=top, width=1.0, height=bottom - top, cls="fill-grid")

    def words(self, y: float) -> Iterator[str]:
        """Below the picture."""
        for at in self._ticks:
            x = self.at(at)
            if _LEFT + 10 < x < _RIGHT - 10:
                yield label(x, y, self.clock(at), cls="fill-soft small", text_anchor="middle")
