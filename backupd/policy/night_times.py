"""When a night of a fleet is, and when in it a backup may begin, as instants.

Knows: how a night and the windows of a zone's clock are in time; where the clock is put back or forward a window is
never shorter than the clock says. A night lasts from a time of day to the same time of the next day.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from itertools import pairwise

from backupd.policy.blackouts import minutes_of_the_week, on_days
from backupd.policy.timetable import first_showing
from backupd.vocabulary.fleet import OwedBackup, Span
from backupd.vocabulary.schedule import Blackout

_DAY = timedelta(days=1)


def night_span(night: date, *, begins: time, zone: str) -> Span:
    """From when to when this night is."""
    first, following = (first_showing(datetime.combine(day, begins), zone) for day in (night, night + _DAY))
    return Span(first, following)


def night_of(instant: datetime, *, begins: time, zone: str) -> date:
    """The night in which this instant is."""
    day = instant.date()  # in UTC: the night is this day's, or one beside it
    return next(
        one
        for one in (day + _DAY, day, day - _DAY, day - 2 * _DAY)
        if night_span(one, begins=begins, zone=zone).begin <= instant
    )


def openings(
    night: date, windows: Sequence[Blackout], blackout: Sequence[Blackout], *, begins: time, zone: str
) -> tuple[Span, ...]:
    """The parts of the night in which a backup may begin: within a window, and in no blackout. In order, and apart."""
    whole = night_span(night, begins=begins, zone=zone)
    days = [night + days * _DAY for days in range(-2, 3)]
    opened = _joined(_clipped(on_days(windows, days, zone), whole))
    return _without(opened, _joined(_clipped(on_days(blackout, days, zone), whole)))


def closed_between(opened: Sequence[Span]) -> tuple[Span, ...]:
    """What lies between these openings."""
    return tuple(Span(earlier.end, later.begin) for earlier, later in pairwise(opened))


def earliest_beginning(owed: OwedBackup, now: datetime) -> datetime | None:
    """The first instant from now on at which it may begin; None: it can no more."""
    begin = max(now, owed.not_before)
    for closed in owed.closed:
        if closed.begin <= begin < closed.end:
            begin = closed.end
    return begin if begin <= owed.not_after else None


def never_open(windows: Sequence[Blackout], blackout: Sequence[Blackout]) -> bool:
    """The blackouts leave no minute of the windows, in any week."""
    return not minutes_of_the_week(windows) - minutes_of_the_week(blackout)


def _clipped(spans: Iterable[tuple[datetime, datetime]], whole: Span) -> Iterable[Span]:
    for first, last in spans:
        begin, end = max(first, whole.begin), min(last, whole.end)
        if begin < end:
            yield Span(begin, end)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same instants, in order, with what meets or overlaps made one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: one.begin):
        if found and span.begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def _without(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[Span, ...]:
    """What of these is in none of those."""
    left = list(spans)
    for gone in taken:
        left = [
            part
            for span in left
            for part in (Span(span.begin, min(span.end, gone.begin)), Span(max(span.begin, gone.end), span.end))
            if part.begin < part.end
        ]
    return tuple(left)
