"""When something is due: an expression of cron in a time zone, shifted by a fixed offset.

Knows: cron's fields and weekdays, and what becomes of a time that a zone's clock skips or shows twice. It does not ask
what time it is.

A slot is due at the first instant at which the zone's clock shows its time or a later one: where the clock skips it,
when the clock jumps; where it shows it twice, the first time. Expressions that name every hour or every minute (`*` or
a step of it) go by the time that passes instead: they are due whenever the clock shows a time that they name. These are
the rules of Debian's cron.

The fields are read by cronsim, which follows Debian's cron in weekdays and in days of months. Its own walk (2.8) is not
used. Begun within a repeated hour it answers with an instant of the past: `30 2 * * *` in Europe/Berlin from the second
02:15 of 2026-10-25. Where a clock changes by half an hour it skips slots: `20 */6 * * *` in Australia/Lord_Howe on
2026-04-05 has no 06:20. It rounds a jump's end to minutes (Africa/Monrovia, 1972).
"""

import contextlib
import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from backupd.vocabulary.errors import UsageError

FIELDS_HINT = (
    "five fields: minute 0-59, hour 0-23, day of the month 1-31, month 1-12, weekday 0-7 (0 and 7 are Sunday), "
    'such as "30 2 * * *" for 02:30 every day'
)

_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NEVER = "{} never occurs: there is no such day"
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_LONGEST = 200  # characters of an expression
_PATIENCE = timedelta(days=50 * 366)  # 29 February comes on a given weekday every 28 or 40 years
_ALL_MONTHS = timedelta(days=5 * 366)  # that are different in length
_ALL_CALENDARS_END = date(2028, 1, 1)  # in 28 years each date falls on each weekday
_MINUTES_OF_A_DAY = 24 * 60
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What the five fields name, whatever the zone."""

    fields: CronSim
    times: tuple[time, ...]  # of a day, in order
    by_time_that_passes: bool

    def days(self, first: date) -> Iterator[date]:
        """The days that match, from this one on, until none has for 50 years."""
        day, last = first, first
        while day - last < _PATIENCE:
            if day.month not in self.fields.months:
                day = (day.replace(day=1) + 31 * _DAY).replace(day=1)
                continue
            if self.fields.match_day(day):
                yield day
                last = day
            day += _DAY

    def readings(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """The times that match from this reading of a clock until before that one."""
        for day in self.days(begin.date()):
            if day > end.date():
                return
            first = bisect_left(self.times, begin.time()) if day == begin.date() else 0
            stop = bisect_left(self.times, end.time()) if day == end.date() else len(self.times)
            for moment in self.times[first:stop]:
                yield datetime.combine(day, moment)


@dataclass(frozen=True, slots=True)
class Timetable:
    """All instants at which something is due.

    Raises, when it is asked:
        UsageError: the expression is not one of cron.
    """

    cron: str  # five fields
    zone: str  # IANA's name
    offset_seconds: float = 0.0  # added to each

    def after(self, instant: datetime) -> datetime | None:
        """The first one after this instant, in UTC; None where the expression has no more within 50 years."""
        return next(self.following(instant), None)

    def following(self, instant: datetime) -> Iterator[datetime]:
        """Every one after this instant, in UTC and in order."""
        pattern, clock = pattern_of(self.cron), ZoneInfo(self.zone)
        offset = timedelta(seconds=self.offset_seconds)
        walk = _by_time_that_passes if pattern.by_time_that_passes else _by_calendar
        try:
            last = instant.astimezone(UTC) - offset
            for due in walk(pattern, clock, last):
                if due > last:
                    last = due
                    yield due + offset
        except OverflowError:  # the calendar of datetime ends with the year 9999
            return


@dataclass(frozen=True, slots=True)
class ChangedTimetable(Timetable):
    """One that has replaced another, by which a slot was due that had not been decided: that is due still."""

    owed: datetime = field(kw_only=True)  # by the other one
    since: datetime = field(kw_only=True)  # when it was replaced, later than that; nothing in between is due

    def following(self, instant: datetime) -> Iterator[datetime]:
        """The same, with what is owed."""
        if instant < self.owed:
            yield from takewhile(lambda due: due < self.owed, Timetable.following(self, instant))
            yield self.owed
        yield from Timetable.following(self, max(instant, self.since))


def require_cron(expression: str) -> str:
    """The expression, if it is one of cron that ever comes.

    Raises:
        UsageError: it is not; the sentence names the field that is wrong.
    """
    if next(pattern_of(expression).days(_ANY_TIME.date()), None) is None:
        raise UsageError(_NEVER.format(_shown(expression)), hint=FIELDS_HINT)
    return expression


@lru_cache(maxsize=1024)  # a thousand jobs have a few schedules
def longest_gap_seconds(expression: str) -> float:
    """The longest time between two slots that follow each other, by a clock that never changes.

    Raises:
        UsageError: it is not an expression of cron.
    """
    pattern = pattern_of(expression)
    moments = [datetime.combine(_ANY_TIME, moment) for moment in pattern.times]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    between_days = _longest_between_days(" ".join(expression.split()[2:]))
    if between_days is not None:
        gaps.append(between_days + moments[0] - moments[-1])
    return max(gaps, default=timedelta.max).total_seconds()


def minutes_due(expression: str) -> frozenset[int]:
    """The minutes of the week, counted from Monday's midnight, at which it is ever due, by a clock that never changes.

    Raises:
        UsageError: it is not an expression of cron.
    """
    times = [moment.hour * 60 + moment.minute for moment in pattern_of(expression).times]
    days = _weekdays(" ".join(expression.split()[2:]))
    return frozenset(day * _MINUTES_OF_A_DAY + minute for day in days for minute in times)


@lru_cache(maxsize=1024)
def _weekdays(fields: str) -> frozenset[int]:
    """On which the days fall that day of the month, month and weekday name; Monday is 0."""
    days = pattern_of(f"0 0 {fields}").days(_ANY_TIME.date())
    return frozenset(day.weekday() for day in takewhile(lambda day: day < _ALL_CALENDARS_END, days))


@lru_cache(maxsize=1024)  # and most of these are due every day
def _longest_between_days(fields: str) -> timedelta | None:
    """From one day that day of the month, month and weekday name to the next one; None where there are not two."""
    longest: timedelta | None = None
    for earlier, following in pairwise(pattern_of(f"0 0 {fields}").days(_ANY_TIME.date())):
        longest = max(longest or following - earlier, following - earlier)
        if following - _ANY_TIME.date() > _ALL_MONTHS:
            break
    return longest


def require_zone(name: str) -> str:
    """The name, if there is a time zone of it.

    Raises:
        UsageError: there is none.
    """
    try:
        return ZoneInfo(name).key
    except (OSError, ValueError, KeyError) as error:  # a folder or a link, an odd name, none: as zoneinfo has them
        meant = next(iter(get_close_matches(name, available_timezones(), n=1)), None)
        hint = f"did you mean {meant}?" if meant else 'use an IANA name, such as "Europe/Berlin" or "UTC"'
        raise UsageError(f"unknown time zone {_shown(name)}", hint=hint) from error


def is_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    with contextlib.suppress(UsageError):
        return bool(require_zone(name))
    return False


def stable_offset(spread_seconds: float, *names: str) -> float:
    """Whole seconds from 0 up to the spread: always the same for the same names, and evenly spread over others.

    So that many hosts which have the same schedule do not start together.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return int.from_bytes(digest[:8]) % (int(spread_seconds) + 1)


def first_showing(reading: datetime, zone: str) -> datetime:
    """The first instant (UTC) at which the zone's clock shows this (naive) time or a later one."""
    return _first_showing(reading, ZoneInfo(zone))


def last_showing(reading: datetime, zone: str) -> datetime:
    """The last instant (UTC) at which the zone's clock comes to this (naive) time; where it skips it, it jumps then."""
    clock = ZoneInfo(zone)
    first, last = _first_showing(reading, clock), reading.replace(tzinfo=clock, fold=1).astimezone(UTC)
    return max(first, last)


@lru_cache(maxsize=1024)
def pattern_of(expression: str) -> _Pattern:
    """What the expression names.

    Raises:
        UsageError: it does not have five cron fields.
    """
    fields = expression.split()
    shown = _shown(expression)
    if meant := _ALIASES.get(expression.strip().lower()):
        raise UsageError(f"{shown} does not have five cron fields", hint=f'write "{meant}"')
    if len(fields) != len(_FIELDS):
        found = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        raise UsageError(f"{shown} has {found}, a cron schedule has five", hint=FIELDS_HINT)
    if len(expression) > _LONGEST:
        raise UsageError(f"{shown} is longer than {_LONGEST} characters", hint=FIELDS_HINT)
    try:
        read = CronSim(expression, _ANY_TIME)
    except CronSimError as error:
        raise UsageError(_fault(shown, fields, str(error).removeprefix("Bad ")), hint=FIELDS_HINT) from error
    times = tuple(time(hour, minute) for hour in sorted(read.hours) for minute in sorted(read.minutes))
    return _Pattern(read, times, fields[0].startswith("*") or fields[1].startswith("*"))


def _fault(shown: str, fields: Sequence[str], name: str) -> str:
    """What is wrong with them; cronsim refuses a good day where no month of them has it in the same words as a bad."""
    wrong = fields[_FIELDS.index(name)]
    if name == "day-of-month":
        with contextlib.suppress(CronSimError):
            CronSim(f"0 0 {wrong} * *", _ANY_TIME)
            return _NEVER.format(shown)
    return f"{shown} is not a cron schedule: {_shown(wrong)} is not a valid {name}"


def _shown(text: str) -> str:
    """In quotes, on one line, and not too long for a sentence."""
    return json.dumps(text if len(text) <= 60 else f"{text[:59]}…", ensure_ascii=False)


def _by_calendar(pattern: _Pattern, clock: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """When each time of each day is due. None of a day before is due after this instant: the clock has shown more."""
    for day in pattern.days(after.astimezone(clock).date()):
        for moment in pattern.times:
            yield _first_showing(datetime.combine(day, moment), clock)


def _by_time_that_passes(pattern: _Pattern, clock: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Every instant at which the clock shows a time that matches, in order."""
    begin, last = after.replace(microsecond=0), after
    while begin - last < _PATIENCE:
        offset = _offset(begin, clock)
        end = begin + _DAY
        if _offset(end, clock) != offset:
            end = _change(begin, end, clock)
        for reading in pattern.readings(_reading(begin, offset), _reading(end, offset)):
            last = (reading - offset).replace(tzinfo=UTC)
            yield last
        begin = end


def _first_showing(reading: datetime, clock: ZoneInfo) -> datetime:
    due = reading.replace(tzinfo=clock, fold=0).astimezone(UTC)
    if due.astimezone(clock).replace(tzinfo=None, fold=0) == reading:
        return due
    return _change(reading.replace(tzinfo=clock, fold=1).astimezone(UTC), due, clock)  # skipped: the jump is in between


def _change(begin: datetime, end: datetime, clock: ZoneInfo) -> datetime:
    """The first instant, to the second, up to which the clock's offset has changed since the first of these two.

    It must have changed once between them: no zone changes it twice within a day.
    """
    before = _offset(begin, clock)
    while end - begin > _SECOND:
        middle = begin + (end - begin) // _SECOND // 2 * _SECOND
        if _offset(middle, clock) == before:
            begin = middle
        else:
            end = middle
    return end


def _offset(instant: datetime, clock: ZoneInfo) -> timedelta:
    offset = instant.astimezone(clock).utcoffset()
    assert offset is not None  # of a zone it never is
    return offset


def _reading(instant: datetime, offset: timedelta) -> datetime:
    return (instant + offset).replace(tzinfo=None)
