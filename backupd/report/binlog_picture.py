"""What can be restored as a bar over time, with the backups on it, as an SVG picture for pages.

Knows: coordinates; `binlog_timeline` draws the same for a terminal. What cannot be restored is seen even where it is
far too short for that scale.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape

from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Hole, Reach, RestorableStretch
from backupd.report.svg import Picture, element, label
from backupd.report.words import instant, many
from backupd.vocabulary.escaping import on_one_line

_WIDTH, _HEIGHT = 760, 84
_LEFT, _RIGHT = 10.0, 750.0
_MARKS, _TOP, _BAR = 20.0, 34.0, 26.0
_AXIS = 78.0
_SLIVER = 2.0  # the least width of what is drawn


def archive_picture(reach: Reach, backups: Sequence[PlacedBackup], *, at: datetime) -> str:
    """An `svg` element, from the first backup that segments follow up to `at`; empty where none does."""
    followed = [stretch for stretch in reach.stretches if stretch.chain]
    if not followed:
        return ""
    scale = _Scale(followed[0].since, at)
    holes = [hole for hole in reach.holes if hole.until > scale.begin]
    last = max(stretch.until for stretch in followed)
    told = (
        f"Moments from {instant(scale.begin)} to {instant(last)} can be restored, except for {many(len(holes), 'gap')}."
    )
    parts = [*_bar(scale, followed, holes), *_marks(scale, backups), *_axis(scale, at)]
    return Picture(_WIDTH, _HEIGHT, "Which moments can be restored", told, parts).text(alone=False)


def _bar(scale: "_Scale", stretches: Sequence[RestorableStretch], holes: Sequence[Hole]) -> Iterator[str]:
    yield element("rect", x=_LEFT, y=_TOP, width=_RIGHT - _LEFT, height=_BAR, cls="fill-grid")
    for stretch in stretches:
        yield _span(scale, stretch.since, stretch.until, cls="fill-s2")
    for hole in holes:
        said = f"{instant(hole.since)} to {instant(hole.until)}: {hole.reason}"
        yield _span(scale, hole.since, hole.until, cls="fill-level", said=said)


def _marks(scale: "_Scale", backups: Sequence[PlacedBackup]) -> Iterator[str]:
    for backup in backups:
        if backup.taken_at >= scale.begin:
            yield _diamond(scale.at(backup.taken_at), _MARKS, f"backup {backup.run_id}, {instant(backup.taken_at)}")


def _axis(scale: "_Scale", at: datetime) -> Iterator[str]:
    yield label(_LEFT, _AXIS, instant(scale.begin), cls="fill-soft small")
    yield label(_RIGHT, _AXIS, f"now, {instant(at)}", cls="fill-soft small", text_anchor="end")


def _span(scale: "_Scale", since: datetime, until: datetime, *, cls: str, said: str = "") -> str:
    begin = min(scale.at(since), _RIGHT - _SLIVER)
    width = max(scale.at(until) - begin, _SLIVER)
    content = element("title", escape(on_one_line(said))) if said else ""
    return element("rect", content, x=begin, y=_TOP, width=width, height=_BAR, cls=cls)


def _diamond(x: float, y: float, said: str) -> str:
    points = f"{x:.1f},{y - 7:.1f} {x + 5:.1f},{y:.1f} {x:.1f},{y + 7:.1f} {x - 5:.1f},{y:.1f}"
    return element("polygon", element("title", escape(on_one_line(said))) if said else "", points=points, cls="fill-s0")


class _Scale:
    """Instants as abscissae."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.begin = begin
        self._seconds = max((end - begin).total_seconds(), 1.0)

    def at(self, instant: datetime) -> float:
        share = (instant - self.begin).total_seconds() / self._seconds
        return _LEFT + min(max(share, 0.0), 1.0) * (_RIGHT - _LEFT)
