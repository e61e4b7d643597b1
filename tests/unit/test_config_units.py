"""Sizes and durations as people write them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.vocabulary.faults import BadValue
from backupd.vocabulary.units import (
    compared_sizes,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    size_words,
)

CENTURY = 100 * 366 * 86400


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("5GiB", 5 << 30),
        ("1.5GiB", 3 << 29),
        ("100MB", 100_000_000),
        ("1kB", 1000),
        ("7B", 7),
        (4096, 4096),
        (0, 0),
    ],
)
def test_a_size_is_bytes_by_its_unit(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("5m", 300), ("2h", 7200), ("7d", 604800), ("1.5h", 5400), (3, 3), (0.25, 0.25)],
)
def test_a_duration_is_seconds_by_its_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["64K", "5G", "1m", "10k", "3KB", "2T", "1mb"])
def test_a_unit_that_could_mean_two_sizes_is_refused_with_both_spellings(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_size(text)
    assert "1024" in refused.value.hint
    assert "1000" in refused.value.hint


@pytest.mark.parametrize(
    "value", ["", "KiB", "-5GiB", "5 GiB 3", "5XB", "0.3B", "64", "9999999TiB", -1, True, 1.5, None, [], {}, "٣KiB"]
)
def test_what_is_no_size_is_refused_with_a_hint(value: object) -> None:
    with pytest.raises(BadValue) as refused:
        parse_size(value)
    assert refused.value.hint


@pytest.mark.parametrize(
    "value",
    ["", "s", "-5s", "10", "5min", "1h30m", "10S", -0.1, True, None, float("inf"), float("nan"), "99999d", [], {}],
)
def test_what_is_no_duration_is_refused_with_a_hint(value: object) -> None:
    with pytest.raises(BadValue) as refused:
        parse_duration(value)
    assert refused.value.hint


@pytest.mark.parametrize("parse", [parse_size, parse_duration])
@pytest.mark.parametrize("digits", [29, 400, 5000])
def test_a_number_of_any_length_is_refused_with_a_hint(parse: Callable[[object], object], digits: int) -> None:
    units = ("B", "GiB", "TB") if parse is parse_size else ("ms", "s", "d")
    nines = "9" * digits
    for value in (10**digits, *(f"{nines}{unit}" for unit in units)):
        with pytest.raises(BadValue) as refused:
            parse(value)
        assert refused.value.hint
        assert len(refused.value.fact) < 120


@given(st.integers(0, (1 << 63) - 1) | st.builds(lambda n, unit: n * unit, st.integers(0, 999), st.just(1 << 20)))
def test_a_size_that_was_formatted_is_read_as_the_same_bytes(size: int) -> None:
    assert parse_size(format_size(size)) == size
    assert parse_size(size_words(size)) == size


@given(
    st.floats(0, CENTURY, allow_nan=False)
    | st.integers(0, CENTURY).map(float)
    | st.integers(0, 10**9).map(lambda ms: ms / 1000)
)
def test_a_duration_that_was_formatted_is_read_as_the_same_seconds(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_formatting_takes_the_largest_unit_that_is_exact() -> None:
    assert [format_size(n) for n in (65536, 5 << 30, 100_000_000, 1025, 0)] == [
        "64KiB",
        "5GiB",
        "100MB",
        "1025B",
        "0B",
    ]
    assert [format_duration(n) for n in (86400.0, 90.0, 0.5, 1.0, 0.0)] == ["1d", "90s", "500ms", "1s", "0s"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (75665256448, 3 << 30, ("70.5 GiB", "3.0 GiB")),
        ((1 << 30) - 1, 1 << 30, ("1024.0 MiB", "1.0 GiB")),
        ((1 << 30) + 1, 1 << 30, ("1073741825 bytes", "1073741824 bytes")),
        (10, 99, ("10 B", "99 B")),
    ],
)
def test_sizes_that_are_compared_never_look_the_same(one: int, other: int, said: tuple[str, str]) -> None:
    assert compared_sizes(one, other) == said
