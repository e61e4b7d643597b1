"""Every zone, ten years, every kind of expression: a timetable's instants beside what the zone's clock shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import available_timezones

import pytest

from backupd.policy.timetable import Timetable
from tests.clocks import Clock, Stretch, clock_of, first_at, in_utc, whenever_at
from tests.share import seeded

NEAR = timedelta(hours=30)  # of a change
AROUND = timedelta(days=3)  # more of the clock is looked at than is asked for: a zone may skip a whole day
SOME_ZONES = (
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",  # its summer time is the standard one
    "America/New_York",
    "America/Santiago",  # changes at midnight
    "Africa/Cairo",
    "Africa/Casablanca",  # four changes a year, by the moon
    "Australia/Lord_Howe",  # changes by half an hour
    "Asia/Kathmandu",
    "Pacific/Chatham",
)
ODD_DAYS = (
    ("Pacific/Apia", datetime(2011, 12, 30)),  # which it had not
    ("Pacific/Kwajalein", datetime(1993, 8, 21)),  # neither had that
    ("America/St_Johns", datetime(2006, 10, 29)),  # back at 00:01, into the day before
    ("America/Caracas", datetime(2007, 12, 9)),  # half an hour for good
    ("Africa/Monrovia", datetime(1972, 1, 7)),  # 44 min 30 s at once
)


def every_day(day: date) -> bool:
    return True


def at(*times: str) -> tuple[time, ...]:
    return tuple(time.fromisoformat(text) for text in times)


def each(hours: Sequence[int], minutes: Sequence[int]) -> tuple[time, ...]:
    return tuple(time(hour, minute) for hour in hours for minute in minutes)


@dataclass(frozen=True)
class Case:
    """An expression, and what it means in words of its own."""

    cron: str
    days: Callable[[date], bool]
    times: tuple[time, ...]
    by_time_that_passes: bool = False


CASES = (
    Case("0 0 * * *", every_day, at("00:00")),
    Case("1 0 * * *", every_day, at("00:01")),
    Case("30 1 * * *", every_day, at("01:30")),
    Case("0 2 * * *", every_day, at("02:00")),
    Case("30 2 * * *", every_day, at("02:30")),
    Case("0 3 * * *", every_day, at("03:00")),
    Case("59 23 * * *", every_day, at("23:59")),
    Case("15,45 1-3 * * *", every_day, each((1, 2, 3), (15, 45))),
    Case("30 2 * * 0", lambda day: day.isoweekday() == 7, at("02:30")),
    Case("30 2 * * 7", lambda day: day.isoweekday() == 7, at("02:30")),
    Case("0 0 * * sat,Sun", lambda day: day.isoweekday() in (6, 7), at("00:00")),
    Case("0 4 1,15 * Mon", lambda day: day.day in (1, 15) or day.isoweekday() == 1, at("04:00")),
    Case("0 4 */2 * Mon", lambda day: day.day % 2 == 1 and day.isoweekday() == 1, at("04:00")),
    Case("30 0 29 2 *", lambda day: (day.month, day.day) == (2, 29), at("00:30")),
    Case("0 1 L * *", lambda day: (day + timedelta(days=1)).day == 1, at("01:00")),
    Case("20 */6 * * *", every_day, each(range(0, 24, 6), (20,)), by_time_that_passes=True),
    Case("*/30 0-3 * * Sun", lambda day: day.isoweekday() == 7, each(range(4), (0, 30)), by_time_that_passes=True),
)
ALL_THE_TIME = (CASES[4], CASES[13], CASES[15])
DENSE = (  # what nobody needs a whole decade of: around each change
    Case("0-59/5 0-23 * * *", every_day, each(range(24), range(0, 60, 5))),
    Case("0 * * * *", every_day, each(range(24), (0,)), by_time_that_passes=True),
    Case("*/5 * * * *", every_day, each(range(24), range(0, 60, 5)), by_time_that_passes=True),
)
COARSE = (
    CASES[0],
    CASES[4],
    CASES[8],
    Case("0-59/15 0-23 * * *", every_day, each(range(24), range(0, 60, 15))),
    Case("*/15 * * * *", every_day, each(range(24), range(0, 60, 15)), by_time_that_passes=True),
)
SHARES = 8  # for several processors
DECADES = (2020, 2030, 1970, 1980, 1990, 2000, 2010, 2090)  # by their first year
ZONES = sorted(available_timezones())


@lru_cache(maxsize=256)
def dates(begin: date, end: date) -> tuple[date, ...]:
    return tuple(begin + timedelta(days=number) for number in range((end - begin).days))


def expected(case: Case, clock: Clock, begin: datetime, end: datetime) -> list[datetime]:
    """When the clock shows what the case means, between two instants."""
    days = [day for day in dates((begin - AROUND).date(), (end + AROUND).date()) if case.days(day)]
    if case.by_time_that_passes:
        found = in_utc(whenever_at(clock, set(days), case.times))
    else:
        shown = clock[-1].end + clock[-1].ahead
        readings = (datetime.combine(day, moment) for day in days for moment in case.times)
        found = in_utc(first_at(clock, takewhile(lambda reading: reading < shown, readings)))
    return [due for due in found if begin.replace(tzinfo=UTC) < due <= end.replace(tzinfo=UTC)]


def told(case: Case, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    last = end.replace(tzinfo=UTC)
    following = Timetable(case.cron, zone).following(begin.replace(tzinfo=UTC))
    return list(takewhile(lambda due: due <= last, following))


def agree(cases: Sequence[Case], zone: str, clock: Clock, *, begin: datetime, end: datetime) -> None:
    for case in cases:
        assert told(case, zone, begin, end) == expected(case, clock, begin, end), (zone, case.cron, begin)


def agree_around_changes(cases: Sequence[Case], zone: str, clock: Clock) -> None:
    for stretch in clock[1:]:
        agree(cases, zone, clock, begin=stretch.begin - NEAR, end=stretch.begin + NEAR)


@pytest.mark.parametrize("zone", SOME_ZONES)
def test_two_years_of_a_zone_have_no_slot_skipped_and_none_doubled(zone: str) -> None:
    begin, end = datetime(2025, 7, 1), datetime(2027, 7, 1)
    clock = clock_of(zone, begin - 2 * AROUND, end + 2 * AROUND)
    agree((CASES[0], CASES[4], CASES[8]), zone, clock, begin=begin, end=end)
    agree_around_changes(CASES, zone, clock)


@pytest.mark.parametrize(("zone", "day"), ODD_DAYS)
def test_a_day_on_which_a_clock_did_something_odd_is_no_exception(zone: str, day: datetime) -> None:
    clock = clock_of(zone, day - 3 * AROUND, day + 3 * AROUND)
    assert len(clock) == 2
    agree_around_changes(CASES + DENSE, zone, clock)


def test_asking_one_after_the_other_gives_what_is_told_in_one_go() -> None:
    timetable = Timetable("*/20 1-3 * * *", "Europe/Berlin")
    instant = datetime(2026, 10, 24, tzinfo=UTC)
    for due in takewhile(lambda due: due.day < 27, timetable.following(instant)):
        assert timetable.after(instant) == due
        instant = due


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(SHARES))
def test_ten_years_of_every_zone_have_no_slot_skipped_and_none_doubled(share: int) -> None:
    """Zones whose clocks run alike in these years are one: what is told depends on nothing else.

    Between two changes all zones are alike: there one daily case, one by the time that passes, and one that has a slot
    in four years are enough, and all the others are asked around each change.
    """
    begin, end = datetime(2026, 1, 1), datetime(2036, 1, 1)
    alike: dict[Clock, list[str]] = {}
    for zone in ZONES:
        alike.setdefault(clock_of(zone, begin - 2 * AROUND, end + 2 * AROUND), []).append(zone)
    for clock, (zone, *_) in list(alike.items())[share::SHARES]:
        agree(ALL_THE_TIME, zone, clock, begin=begin, end=end)
        agree_around_changes(CASES + DENSE, zone, clock)
    assert sorted(zone for zones in alike.values() for zone in zones) == ZONES
    assert len(ZONES) > 400


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("year", DECADES[: seeded(len(DECADES), usual=1)])
def test_no_change_of_any_clock_skips_a_slot_or_doubles_one(year: int) -> None:
    """Changes at one instant from one offset to one other are one."""
    compared: set[tuple[Stretch, ...]] = set()
    for zone in ZONES:
        clock = clock_of(zone, datetime(year, 1, 1) - 2 * AROUND, datetime(year + 10, 1, 1) + 2 * AROUND)
        for stretch in clock[1:]:
            begin, end = stretch.begin - 2 * AROUND, stretch.begin + 2 * AROUND
            near = tuple(
                Stretch(max(one.begin, begin), min(one.end, end), one.ahead)
                for one in clock
                if one.begin < end and one.end > begin
            )
            if near not in compared:
                agree_around_changes(COARSE, zone, near)
                compared.add(near)
    assert len(compared) > 100
