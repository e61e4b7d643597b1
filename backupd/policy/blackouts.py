"""Parts of the day in which nothing may start, as instants, and what of a schedule they let start at all.

Knows: how a window of a zone's clock is in time.

A window begins when the clock shows its beginning for the first time and ends when it shows its end for the last time:
it is never shorter than the clock says. One whose end is its beginning is a whole day.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from backupd.policy.timetable import first_showing, last_showing, minutes_due
from backupd.vocabulary.schedule import Blackout

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = timedelta(days=1)
_MINUTES_OF_A_DAY = 24 * 60
_MINUTES_OF_A_WEEK = 7 * _MINUTES_OF_A_DAY
_LONGEST = timedelta(days=15)  # a week without a gap has none in the next either, but for the clock's changes


def next_start(now: datetime, blackouts: Sequence[Blackout], zone: str) -> datetime | None:
    """The first instant at or after now (UTC) in which none of these lies; None where they never end."""
    start = now.astimezone(UTC)
    while True:
        ends = [end for begin, end in _around(start, blackouts, zone) if begin <= start < end]
        if not ends:
            return start
        start = max(ends)
        if start - now > _LONGEST:
            return None


def never_end(blackouts: Sequence[Blackout]) -> bool:
    """Together they leave no minute of the week free."""
    return len(minutes_of_the_week(blackouts)) == _MINUTES_OF_A_WEEK


def minutes_of_the_week(blackouts: Iterable[Blackout]) -> set[int]:
    """Those that lie in any of them, counted from Monday's midnight."""
    found: set[int] = set()
    for blackout in blackouts:
        begin = blackout.begin.hour * 60 + blackout.begin.minute
        end = blackout.end.hour * 60 + blackout.end.minute
        length = (end - begin - 1) % _MINUTES_OF_A_DAY + 1
        for day in blackout.days:
            first = day * _MINUTES_OF_A_DAY + begin
            found.update(minute % _MINUTES_OF_A_WEEK for minute in range(first, first + length))
    return found


@dataclass(frozen=True, slots=True)
class Week:
    """What becomes of a schedule in a week of a clock that never changes, in minutes from Monday's midnight."""

    due: frozenset[int]
    missed: frozenset[int]  # of these: windows last longer than a start may be late

    @property
    def example(self) -> str:
        """The first that is missed, in words."""
        day, minute = divmod(min(self.missed), _MINUTES_OF_A_DAY)
        return f"{_DAYS[day]} {minute // 60:02}:{minute % 60:02}"


def week_of(cron: str, blackouts: tuple[Blackout, ...], within_seconds: float) -> Week:
    """Of an expression whose slots may start so late.

    Raises:
        UsageError: it is not an expression of cron.
    """
    due, waits = minutes_due(cron), _waits(blackouts)
    return Week(due, frozenset(minute for minute in due if waits[minute] * 60 > within_seconds))


@lru_cache(maxsize=64)  # jobs have much the same
def _waits(blackouts: tuple[Blackout, ...]) -> Mapping[int, int]:
    """For each minute of the week, how many minutes later none of these lasts any more."""
    busy = minutes_of_the_week(blackouts)
    waits: dict[int, int] = {}
    wait = 0
    for minute in reversed(range(2 * _MINUTES_OF_A_WEEK)):  # twice: a window may go on into the next week
        wait = wait + 1 if minute % _MINUTES_OF_A_WEEK in busy else 0
        waits[minute % _MINUTES_OF_A_WEEK] = wait
    return waits


def on_days(blackouts: Iterable[Blackout], days: Sequence[date], zone: str) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of each that begins on one of these days; where the clock is put, none is shorter than it says."""
    for blackout in blackouts:
        for day in days:
            if day.weekday() in blackout.days:
                end = day + _DAY if blackout.end <= blackout.begin else day
                yield (
                    first_showing(datetime.combine(day, blackout.begin), zone),
                    last_showing(datetime.combine(end, blackout.end), zone),
                )


def _around(instant: datetime, blackouts: Sequence[Blackout], zone: str) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of every window in which this instant may be."""
    today = instant.astimezone(ZoneInfo(zone)).date()
    return on_days(blackouts, (today - _DAY, today), zone)
