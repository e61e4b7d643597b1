"""How figures are worded."""

import math

import pytest

from backupd.report import words


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_sizes_are_read_in_binary_units(count: float | None, said: str) -> None:
    assert words.size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "0 ms"),
        (0.0214, "21 ms"),
        (0.9999, "1.0 s"),
        (1.0, "1.0 s"),
        (59.96, "1 min 00 s"),
        (60.0, "1 min 00 s"),
        (95.4, "1 min 35 s"),
        (3600.0, "1 h 00 min"),
        (7199.6, "2 h 00 min"),
    ],
)
def test_times_are_read_at_a_glance(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (math.inf, "-"),
        (0.0, "0 s"),
        (89.4, "89 s"),
        (90.0, "2 min"),
        (5399.0, "90 min"),
        (5400.0, "2 h"),
        (48 * 3600.0 - 1, "48 h"),
        (48 * 3600.0, "2 days"),
        (400 * 86400.0, "400 days"),
    ],
)
def test_ages_have_one_unit(seconds: float | None, said: str) -> None:
    assert words.age(seconds) == said


def test_columns_line_up_and_end_without_blanks() -> None:
    assert words.columns([("a", "bbb", "c"), ("aaa", "b", "")]) == "a    bbb  c\naaa  b"
    assert words.columns([]) == ""


def test_columns_of_figures_end_together() -> None:
    assert words.columns([("a", "7"), ("b", "1234")], right={1}) == "a     7\nb  1234"


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    assert [words.ratio(value), words.share(value), words.figure(value)] == ["-", "-", "-"]


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0.00"), (0.973, "0.97"), (99.94, "99.94"), (99.96, "100"), (1234.5, "1234")]
)
def test_figures_have_as_many_digits_as_they_are_worth(value: float, said: str) -> None:
    assert words.figure(value) == said


@pytest.mark.parametrize("value", [0, 0.5, -1.25, 999, 1500, 2.5e6, 1e12, 3e14, 1e200, -1e200, 1e-7, 123456.789])
def test_a_tick_has_little_room(value: float) -> None:
    assert len(words.tick(value)) <= 10


def test_ascii_keeps_what_has_a_likeness() -> None:
    assert words.in_ascii("baseline ÷ this, 2–3 × ±4 … ✓") == "baseline / this, 2-3 x +-4 ... ?"  # noqa: RUF001
