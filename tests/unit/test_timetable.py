"""A timetable asked at any instant; what it refuses; offsets; blackouts; what becomes of a slot that is late."""

from datetime import UTC, datetime, time, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as some

from backupd.policy.blackouts import minutes_of_the_week, never_end, next_start
from backupd.policy.lateness import Due, Missed, Start, Wait, due_slots, lateness
from backupd.policy.timetable import (
    FIELDS_HINT,
    Timetable,
    first_showing,
    last_showing,
    longest_gap_seconds,
    minutes_due,
    require_cron,
    require_zone,
    stable_offset,
)
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.schedule import Blackout
from backupd.vocabulary.units import format_duration

BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)  # the clocks of Berlin jump from 02:00 to 03:00
AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)  # and go back from 03:00 to 02:00

instants = some.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=some.just(UTC))
zones = some.sampled_from(
    [BERLIN, "UTC", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia", "Africa/Casablanca"]
)
crons = some.sampled_from(
    [
        "30 2 * * *",
        "0 0 * * *",
        "*/7 * * * *",
        "15 */3 * * *",
        "0 0 31 * *",
        "5,55 1-3 * * 1-5",
        "0 0 29 2 *",
        "* * 1 * Mon",
    ]
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "fact"),
    [
        ("", "has 0 fields"),
        ("30 2 * *", "has 4 fields"),
        ("0 30 2 * * *", "has 6 fields"),
        ("60 2 * * *", '"60" is not a valid minute'),
        ("0 24 * * *", '"24" is not a valid hour'),
        ("0 0 0 * *", '"0" is not a valid day-of-month'),
        ("0 0 1 13 *", '"13" is not a valid month'),
        ("0 0 * * 8", '"8" is not a valid day-of-week'),
        ("0 0 * * Moon", '"Moon" is not a valid day-of-week'),
        ("0 0 * * fri-sun", '"fri-sun" is not a valid day-of-week'),
        ("*/0 * * * *", '"*/0" is not a valid minute'),
        ("5-1 * * * *", '"5-1" is not a valid minute'),
        ("-1 * * * *", '"-1" is not a valid minute'),
        ("1,,2 * * * *", '"1,,2" is not a valid minute'),
        ("٣ * * * *", '"٣" is not a valid minute'),
        ("0 0 31 2 *", "never occurs: there is no such day"),
        ("0 0 30,31 2 *", "never occurs: there is no such day"),
        ("0 0 */31 2 MON#5", "never occurs: there is no such day"),
        ("0 0 * * *" + " " * 300, "longer than 200 characters"),
        ("*/" + "9" * 5000 + " * * * *", "longer than 200 characters"),
        ("@daily", "does not have five cron fields"),
        ("@reboot", "has 1 field,"),
    ],
)
def test_what_is_not_a_schedule_is_refused_with_the_field_that_is_wrong(expression: str, fact: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_cron(expression)
    assert fact in refused.value.message
    assert refused.value.hint
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("30 2 * *", '"30 2 * *" has 4 fields, a cron schedule has five'),
        ("@reboot", '"@reboot" has 1 field, a cron schedule has five'),
        ("60 2 * * *", '"60 2 * * *" is not a cron schedule: "60" is not a valid minute'),
        ("0 0 31 2 *", '"0 0 31 2 *" never occurs: there is no such day'),
        ("0 0 */31 2 MON#5", '"0 0 */31 2 MON#5" never occurs: there is no such day'),
        ("0 0 * * *" + " " * 192, f'"0 0 * * *{" " * 50}…" is longer than 200 characters'),
        ("x" * 60, f'"{"x" * 60}" has 1 field, a cron schedule has five'),
        ("x" * 61, f'"{"x" * 59}…" has 1 field, a cron schedule has five'),
        ("1 " * 31, f'"{"1 " * 29}1…" has 31 fields, a cron schedule has five'),
        ("ü * * * *", '"ü * * * *" is not a cron schedule: "ü" is not a valid minute'),
    ],
)
def test_a_refusal_is_one_sentence_with_the_expression_in_quotes(expression: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_cron(expression)
    assert refused.value.message == message
    assert refused.value.hint == FIELDS_HINT


def test_an_expression_may_have_200_characters() -> None:
    assert require_cron("0 0 * * *" + " " * 191)


@pytest.mark.parametrize(
    ("alias", "means"),
    [
        *(("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"), ("@daily", "0 0 * * *")),
        *(("@midnight", "0 0 * * *"), ("@hourly", "0 * * * *"), (" @HOURLY ", "0 * * * *")),
    ],
)
def test_every_alias_is_answered_with_its_five_fields(alias: str, means: str) -> None:
    with pytest.raises(UsageError, match="does not have five cron fields") as refused:
        require_cron(alias)
    assert refused.value.hint == f'write "{means}"'


def test_a_zone_that_is_none_is_answered_with_the_one_that_was_meant() -> None:
    assert require_zone(BERLIN) == BERLIN
    with pytest.raises(UsageError) as refused:
        require_zone("Europe/Berlim")
    assert (refused.value.message, refused.value.hint) == (
        'unknown time zone "Europe/Berlim"',
        "did you mean Europe/Berlin?",
    )
    for odd in ("", "../etc/passwd", "Europe", "\0", "x" * 99):
        with pytest.raises(UsageError, match="unknown time zone") as refused:
            require_zone(odd)
    assert refused.value.message == f'unknown time zone "{"x" * 59}…"'
    assert refused.value.hint == 'use an IANA name, such as "Europe/Berlin" or "UTC"'


@pytest.mark.parametrize(
    ("expression", "gap"),
    [
        ("30 2 * * *", timedelta(days=1)),
        ("0 */6 * * *", timedelta(hours=6)),
        ("0 8,9,20 * * *", timedelta(hours=12)),
        ("0 8,20,21 * * *", timedelta(hours=12)),
        ("0 0 * * 0", timedelta(days=7)),
        ("0 0 * * 1-5", timedelta(days=3)),
        ("0 0 1 * *", timedelta(days=31)),
        ("0 0 31 * *", timedelta(days=61)),
        ("0 0 29 2 *", timedelta(days=4 * 365 + 1)),
        ("0 10,22 * * 0", timedelta(days=6, hours=12)),
        ("* * * * *", timedelta(minutes=1)),
    ],
)
def test_the_longest_gap_is_that_between_two_slots_that_follow_each_other(expression: str, gap: timedelta) -> None:
    assert longest_gap_seconds(expression) == gap.total_seconds()


@pytest.mark.parametrize(
    ("fields", "weekdays"),
    [
        ("* * *", "0123456"),
        ("* * 1-5", "01234"),
        ("1 1 *", "0123456"),
        ("29 2 *", "0123456"),
        ("29 2 1", "0123456"),  # the one or the other: the date comes once in four years, Mondays each week
        ("1 1 1", "0123456"),
        ("*/2 * 1", "0"),  # both, because the first begins with a star
        ("L 2 *", "0123456"),
        ("* * 5L", "4"),
        ("* * Mon#2", "0"),
    ],
)
def test_a_slot_is_due_on_each_weekday_that_ever_comes(fields: str, weekdays: str) -> None:
    assert minutes_due(f"3 2 {fields}") == {int(day) * 24 * 60 + 123 for day in weekdays}


def test_what_never_comes_has_no_longest_gap() -> None:
    assert longest_gap_seconds("0 0 */31 2 MON#5") == timedelta.max.total_seconds()


def test_an_alias_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(UsageError) as refused:
        require_cron("@Weekly")
    assert refused.value.hint == 'write "0 0 * * 0"'
    assert require_cron("0 0 * * 0")


@pytest.mark.parametrize("expression", ["0 0 31 2 1", "0 0 29 2 */7", "0 0 L * *", "0 0 * * MON#5", "  0\t0 * * *  "])
def test_what_comes_now_and_then_is_accepted(expression: str) -> None:
    assert require_cron(expression) == expression


# --- any instant ------------------------------------------------------------------------------------------------------


@given(instants, crons, zones, some.integers(0, 7200))
def test_the_next_is_always_later_and_nothing_lies_between(
    instant: datetime, cron: str, zone: str, offset: int
) -> None:
    timetable = Timetable(cron, zone, float(offset))
    first = timetable.after(instant)
    assert first is not None
    assert first > instant
    assert timetable.after(first - timedelta(microseconds=1)) == first
    assert timetable.after(instant + (first - instant) / 2) == first
    second = timetable.after(first)
    assert second is not None
    assert second > first


@given(instants, crons, zones, some.integers(0, 7200))
def test_an_offset_moves_every_slot_and_nothing_else(instant: datetime, cron: str, zone: str, offset: int) -> None:
    moved = Timetable(cron, zone, float(offset)).following(instant + timedelta(seconds=offset))
    plain = Timetable(cron, zone).following(instant)
    assert list(islice(moved, 3)) == [due + timedelta(seconds=offset) for due in islice(plain, 3)]


@pytest.mark.parametrize(
    ("reading", "first", "last"),
    [
        ("2026-06-01T02:30", "2026-06-01T00:30", "2026-06-01T00:30"),
        ("2026-10-25T02:30", "2026-10-25T00:30", "2026-10-25T01:30"),  # twice
        ("2026-03-29T02:30", "2026-03-29T01:00", "2026-03-29T01:00"),  # never: the clock jumps
    ],
)
def test_a_time_is_shown_once_twice_or_when_the_clock_jumps(reading: str, first: str, last: str) -> None:
    shown = datetime.fromisoformat(reading)
    found = (first_showing(shown, BERLIN), last_showing(shown, BERLIN))
    assert found == (utc(first), utc(last))
    assert all(instant.tzinfo is UTC for instant in found)


@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("0 0 1 3 *", "2026-03-01"),
        ("0 0 1 1 *", "2027-01-01"),
        ("0 0 31 12 *", "2026-12-31"),
        ("0 0 1 1,2 *", "2026-02-01"),
    ],
)
def test_a_month_begins_with_its_first_day(cron: str, due: str) -> None:
    assert Timetable(cron, "UTC").after(utc("2026-01-15T12:00")) == utc(due)


def test_asked_within_a_repeated_hour_it_never_answers_with_the_past() -> None:
    second_quarter_past_two = AUTUMN + timedelta(minutes=15)
    assert Timetable("30 2 * * *", BERLIN).after(second_quarter_past_two) == utc("2026-10-26T01:30")


def test_a_skipped_time_is_due_when_the_clock_jumps() -> None:
    assert Timetable("30 2 * * *", BERLIN).after(utc("2026-03-28T12:00")) == SPRING


def test_asked_in_any_zone_it_answers_in_utc() -> None:
    due = Timetable("30 2 * * *", BERLIN).after(datetime.fromisoformat("2026-06-01T00:00:00-07:00"))
    assert due == utc("2026-06-02T00:30")
    assert due.tzinfo is UTC


def test_the_end_of_the_calendar_is_an_end_and_no_error() -> None:
    assert list(Timetable("0 0 * * *", BERLIN).following(utc("9999-12-29T12:00"))) == [
        utc("9999-12-29T23:00"),
        utc("9999-12-30T23:00"),
    ]
    assert Timetable("0 0 * * *", BERLIN).after(utc("9999-12-30T23:00")) is None
    assert len(list(Timetable("0 * * * *", "America/New_York").following(utc("9999-12-31T12:00")))) < 12


def test_offsets_are_stable_whole_and_spread() -> None:
    offsets = [stable_offset(3600, f"host{number}", "nightly", "backup") for number in range(400)]
    assert offsets == [stable_offset(3600, f"host{number}", "nightly", "backup") for number in range(400)]
    assert all(0 <= offset <= 3600 and offset.is_integer() for offset in map(float, offsets))
    quarters = [sum(low <= offset < low + 900 for offset in offsets) for low in (0, 900, 1800, 2700)]
    assert min(quarters) > 60
    assert stable_offset(0, "host") == 0
    assert stable_offset(3600, "db1", "nightly") == 1746, "or an upgrade moves every slot"
    assert stable_offset(3600, "ab", "c") != stable_offset(3600, "a", "bc")


# --- blackouts --------------------------------------------------------------------------------------------------------


def blackout(begin: str, end: str, days: str = "0123456") -> Blackout:
    return Blackout(frozenset(map(int, days)), time.fromisoformat(begin), time.fromisoformat(end))


NIGHTS = blackout("22:00", "04:00", "01234")  # Mon-Fri


@pytest.mark.parametrize(
    ("blackouts", "now", "start"),
    [
        ((), "2026-06-05T12:00", "2026-06-05T12:00"),
        ((NIGHTS,), "2026-06-05T19:59:59", "2026-06-05T19:59:59"),  # Friday 21:59:59 in Berlin
        ((NIGHTS,), "2026-06-05T20:00", "2026-06-06T02:00"),  # goes on into Saturday
        ((NIGHTS,), "2026-06-06T01:59:59", "2026-06-06T02:00"),
        ((NIGHTS,), "2026-06-06T20:00", "2026-06-06T20:00"),  # on Saturday none begins
        ((NIGHTS, blackout("04:00", "06:00")), "2026-06-05T21:00", "2026-06-06T04:00"),  # one after the other
        ((blackout("00:00", "00:00", "6"),), "2026-06-07T10:00", "2026-06-07T22:00"),  # a whole Sunday
        ((blackout("00:00", "00:00"),), "2026-06-07T10:00", None),
        ((blackout("02:00", "03:00"),), "2026-03-29T00:59:59", "2026-03-29T00:59:59"),  # which that day does not have
        ((blackout("02:00", "03:00"),), "2026-03-29T01:00", "2026-03-29T01:00"),
        ((blackout("01:00", "02:30"),), "2026-03-29T00:30", "2026-03-29T01:00"),  # its end is skipped
        ((blackout("02:00", "03:00"),), "2026-10-25T00:00", "2026-10-25T02:00"),  # two hours long
        ((blackout("01:00", "02:30"),), "2026-10-25T00:45", "2026-10-25T01:30"),  # until the second 02:30
    ],
)
def test_nothing_starts_before_the_last_blackout_ends(
    blackouts: tuple[Blackout, ...], now: str, start: str | None
) -> None:
    assert next_start(utc(now), blackouts, BERLIN) == (None if start is None else utc(start))


@given(instants, zones)
def test_no_start_lies_within_a_blackout_whatever_the_clock_does(now: datetime, zone: str) -> None:
    blackouts = (NIGHTS, blackout("01:30", "03:30"), blackout("23:00", "00:30", "56"))
    start = next_start(now, blackouts, zone)
    assert start is not None
    assert now <= start <= now + timedelta(hours=32)
    assert next_start(start, blackouts, zone) == start


def test_a_window_over_a_day_that_a_zone_skips_goes_on_after_it() -> None:
    """Samoa had no 30 December 2011: the night of the 29th, cut off by that, is followed by the night of the 30th."""
    nights = (blackout("22:00", "04:00"),)
    assert next_start(utc("2011-12-30T08:30"), nights, "Pacific/Apia") == utc("2011-12-30T14:00")
    assert next_start(utc("2011-12-30T13:59"), nights, "Pacific/Apia") == utc("2011-12-30T14:00")


def test_asked_in_any_zone_a_start_is_told_in_utc() -> None:
    start = next_start(datetime.fromisoformat("2026-06-05T12:00:00-07:00"), (), BERLIN)
    assert start == utc("2026-06-05T19:00")
    assert start.tzinfo is UTC


def test_the_minutes_of_a_week_are_counted_from_monday_s_midnight() -> None:
    assert minutes_of_the_week((blackout("22:30", "04:15", "0"),)) == set(range(1350, 1695))
    assert minutes_of_the_week((blackout("23:45", "00:30", "6"),)) == {*range(10065, 10080), *range(30)}
    assert minutes_of_the_week((blackout("01:10", "01:20", "12"),)) == {*range(1510, 1520), *range(2950, 2960)}


def test_blackouts_that_leave_no_minute_of_the_week_never_end() -> None:
    assert never_end((blackout("00:00", "00:00"),))
    assert never_end((blackout("08:00", "20:00"), blackout("20:00", "08:00")))
    assert not never_end((blackout("08:00", "20:00"), blackout("20:00", "07:59")))
    assert not never_end((blackout("00:00", "00:00", "012345"),))
    assert not never_end(())


# --- what becomes of a slot -------------------------------------------------------------------------------------------

DUE = utc("2026-06-05T00:30")


@pytest.mark.parametrize(
    ("blackouts", "now", "becomes"),
    [
        ((), DUE - timedelta(seconds=1), Wait(DUE)),
        ((), DUE, Start()),
        ((), DUE + timedelta(hours=4), Start()),
        ((), DUE + timedelta(hours=4, seconds=1), Missed("it could not start within 4h")),
        ((blackout("02:00", "03:00"),), DUE, Wait(utc("2026-06-05T01:00"))),
        ((blackout("02:00", "06:30"),), DUE, Wait(DUE + timedelta(hours=4))),
        ((blackout("02:00", "06:31"),), DUE, Missed("a blackout lasts longer than the 4h within which it may start")),
        ((blackout("02:00", "03:00"),), DUE - timedelta(days=1), Wait(utc("2026-06-05T01:00"))),
        ((blackout("00:00", "00:00"),), DUE, Missed("a blackout lasts longer than the 4h within which it may start")),
    ],
)
def test_a_slot_starts_in_time_waits_for_a_blackout_or_is_missed(
    blackouts: tuple[Blackout, ...], now: datetime, becomes: object
) -> None:
    assert lateness(DUE, now, start_within_seconds=4 * 3600, blackouts=blackouts, zone=BERLIN) == becomes


@given(instants, some.integers(-100_000, 100_000), some.integers(1, 100_000))
def test_whoever_waits_may_start_then_and_nobody_starts_too_late(due: datetime, late: int, within: int) -> None:
    def judged(now: datetime) -> object:
        return lateness(due, now, start_within_seconds=within, blackouts=(NIGHTS,), zone=BERLIN)

    answer = judged(due + timedelta(seconds=late))
    if isinstance(answer, Wait):
        assert answer.until > due + timedelta(seconds=late)
        assert judged(answer.until) == Start()
    elif isinstance(answer, Missed):
        assert judged(due + timedelta(seconds=within + 1)) == Missed(
            f"it could not start within {format_duration(within)}"
        )


def test_of_several_slots_that_passed_the_newest_is_told_apart_and_none_is_left_out() -> None:
    nightly = Timetable("30 2 * * *", BERLIN)
    since, now = utc("2026-06-01T00:30"), utc("2026-06-04T12:00")
    assert due_slots(nightly, since=since, now=now) == Due(
        utc("2026-06-04T00:30"), (utc("2026-06-02T00:30"), utc("2026-06-03T00:30"))
    )
    assert due_slots(nightly, since=now, now=utc("2026-06-05T00:29:59")) == Due()
    assert due_slots(nightly, since=now, now=utc("2026-06-05T00:30")) == Due(DUE)


def test_a_clock_that_was_put_back_owes_nothing() -> None:
    assert due_slots(Timetable("* * * * *", "UTC"), since=DUE, now=DUE - timedelta(days=400)) == Due()


def test_slots_of_a_long_sleep_are_counted_where_they_are_too_many_to_list() -> None:
    due = due_slots(Timetable("*/10 * * * *", "UTC"), since=DUE, now=DUE + timedelta(days=30))
    assert due.newest == DUE + timedelta(days=30)
    assert (len(due.older), due.unlisted) == (1000, 30 * 144 - 1001)
    assert due.older[-1] == DUE + timedelta(days=30, minutes=-10)
