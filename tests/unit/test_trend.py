"""Arithmetic on short noisy series: falling or not, how high it stood, and what it would add up to."""

from math import inf, log, nan

import pytest

from backupd.policy.trend import Point, expected_after, expected_sum, is_falling, peak, points, recent


def series(*values: float, apart: float = 1.0) -> list[Point]:
    return [Point(at * apart, value) for at, value in enumerate(values)]


HALVED = series(8.0, 4.0, apart=10.0)  # in ten seconds
DECAY = log(2) / 10


def test_what_was_not_measured_is_no_point() -> None:
    pairs = [(0.0, 1.0), (1.0, None), (2.0, nan), (3.0, inf), (nan, 2.0), (inf, 2.0), (4.0, 0.0)]
    assert points(pairs) == [Point(0.0, 1.0), Point(4.0, 0.0)]


@pytest.mark.parametrize(
    ("values", "falls"),
    [
        ((), False),
        ((5.0,), False),
        ((10.0, 8.9), True),
        ((10.0, 9.0), False),  # a tenth may be noise
        ((10.0, 11.0), False),
        ((10.0, 10.0, 8.0, 8.0), True),
        ((8.0, 8.0, 10.0, 10.0), False),
        ((10.0, 8.0, 8.5), True),  # of three the newer half has two
        ((10.0, 8.0, 11.0), False),
        ((10.0, 10.0, 1.0, 9.0, 9.0, 50.0), False),  # one window is an accident
    ],
)
def test_it_falls_where_the_newer_half_is_more_than_a_tenth_below_the_older(
    values: tuple[float, ...], falls: bool
) -> None:
    assert is_falling(series(*values)) is falls


@pytest.mark.parametrize(
    ("values", "highest"),
    [((), 0.0), ((3.0,), 3.0), ((1.0, 9.0), 9.0), ((1.0, 9.0, 2.0), 2.0), ((1.0, 9.0, 8.0, 1.0), 8.0),
     ((9.0, 9.0, 1.0, 1.0), 9.0), ((1.0, 1.0, 9.0, 9.0), 9.0)],
)  # fmt: skip
def test_the_peak_is_where_it_stood_for_more_than_an_instant(values: tuple[float, ...], highest: float) -> None:
    assert peak(series(*values)) == highest


def test_the_last_few_count_as_recent() -> None:
    assert recent(series(9.0, 9.0, 3.0, 4.0, 5.0, 6.0, 7.0)) == 5.0
    assert recent(series(9.0, 1.0), count=1) == 1.0
    assert recent([]) == 0.0


def test_what_falls_is_continued_and_what_does_not_goes_on_as_it_is() -> None:
    assert expected_sum(HALVED, 10.0) == pytest.approx(2.0 / DECAY)
    assert expected_sum(HALVED, 1e9) == pytest.approx(4.0 / DECAY)
    assert expected_after(HALVED, 10.0) == pytest.approx(2.0)
    assert expected_sum(series(2.0, 2.0), 10.0) == 20.0
    assert expected_after(series(2.0, 2.0), 10.0) == 2.0
    assert expected_sum(series(2.0, 4.0), 0.5) == 2.0


def test_a_fall_is_the_same_at_any_hour_and_however_small() -> None:
    late = [Point(1000.0, 8.0), Point(1010.0, 4.0)]
    assert expected_after(late, 10.0) == pytest.approx(2.0)
    assert expected_after(series(0.8, 0.4, apart=10.0), 10.0) == pytest.approx(0.2)


def test_nothing_is_expected_of_nothing_nor_in_no_time() -> None:
    assert (expected_sum([], 10.0), expected_after([], 10.0)) == (0.0, 0.0)
    assert (expected_sum(HALVED, 0.0), expected_sum(HALVED, -1.0)) == (0.0, 0.0)


@pytest.mark.parametrize("newest", [0.0, -1.0])
def test_what_has_died_down_stays_at_nothing(newest: float) -> None:
    died = series(8.0, newest)
    assert (expected_sum(died, 10.0), expected_after(died, 10.0)) == (0.0, 0.0)


@pytest.mark.parametrize(
    "at_once",
    [
        [Point(5.0, 8.0), Point(5.0, 4.0)],
        [Point(5.0, 8.0), Point(0.0, 4.0)],
        [Point(0.0, 8.0), Point(5e-324, 4.0)],
    ],
)
def test_a_fall_in_no_time_is_not_continued(at_once: list[Point]) -> None:
    assert expected_sum(at_once, 10.0) == 40.0
    assert expected_after(at_once, 10.0) == 4.0


def test_a_fall_beyond_what_a_float_can_tell_is_not_continued() -> None:
    assert expected_after([Point(0.0, 1e308), Point(1.0, 1e-308)], 10.0) == 1e-308
