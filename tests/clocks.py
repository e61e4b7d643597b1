"""What zones' clocks show, found by looking at them from one instant to the next; the opposite of asking for a reading.

An oracle for `backupd.policy.timetable`: it knows no cron, no fold, and no way from a local time to an instant but to
walk the stretches in which a clock runs evenly.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

LOOK = timedelta(days=5)  # since 1970 no clock has changed twice within less than a week (tzdata 2026)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """From one instant to another (UTC, naive) the clock is this far ahead."""

    begin: datetime
    end: datetime
    ahead: timedelta


Clock = tuple[Stretch, ...]


def clock_of(zone: str, begin: datetime, end: datetime) -> Clock:
    """The stretches of this zone between two instants (naive, of UTC)."""
    info = ZoneInfo(zone)

    def ahead(instant: datetime) -> timedelta:
        return info.fromutc(instant.replace(tzinfo=info)).replace(tzinfo=None) - instant

    stretches = []
    since, seen = begin, ahead(begin)
    look = begin
    while look < end:
        following = min(look + LOOK, end)
        if ahead(following) != seen:
            low, high = look, following
            while high - low > SECOND:
                middle = low + (high - low) // SECOND // 2 * SECOND
                low, high = (middle, high) if ahead(middle) == seen else (low, middle)
            stretches.append(Stretch(since, high, seen))
            since, seen = high, ahead(high)
        look = following
    return (*stretches, Stretch(since, end, seen))


def first_at(clock: Clock, readings: Iterable[datetime]) -> Iterator[datetime]:
    """For each of these readings, in order: the first instant at which the clock shows it or a later one."""
    stretches = iter(clock)
    stretch = next(stretches)
    for reading in readings:
        while reading >= stretch.end + stretch.ahead:
            stretch = next(stretches)
        yield max(stretch.begin, reading - stretch.ahead)


def whenever_at(clock: Clock, days: set[date], times: Iterable[time]) -> Iterator[datetime]:
    """Every instant at which the clock shows one of these times on one of these days, in order."""
    times = sorted(times)
    for stretch in clock:
        begin, end = stretch.begin + stretch.ahead, stretch.end + stretch.ahead
        day = begin.date()
        while day <= end.date():
            if day in days:
                readings = (datetime.combine(day, moment) for moment in times)
                yield from (reading - stretch.ahead for reading in readings if begin <= reading < end)
            day += timedelta(days=1)


def in_utc(instants: Iterable[datetime]) -> list[datetime]:
    """The same, aware, each once."""
    return [instant.replace(tzinfo=UTC) for instant in dict.fromkeys(instants)]
