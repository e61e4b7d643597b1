"""A job's own checks: what a value must be, and what is said when it is not."""

from datetime import UTC, datetime

import pytest

from backupd.config import DrillCheckConfig
from backupd.mysql.own_checks import judged

TAKEN = datetime(2026, 11, 20, 3, tzinfo=UTC)


def check(**expected: object) -> DrillCheckConfig:
    return DrillCheckConfig(name="orders", sql="SELECT v FROM t", **expected)  # type: ignore[arg-type]


def outcome(value: str | None, **expected: object) -> tuple[bool, str]:
    result = judged(check(**expected), [(value,)], taken_at=TAKEN)
    return result.ok, result.found


@pytest.mark.parametrize(
    ("value", "expected", "ok"),
    [
        ("1000", {"at_least": 1000}, True),
        ("999", {"at_least": 1000}, False),
        ("999.9999999999999999999", {"at_least": 1000}, False),
        ("9007199254740993", {"at_most": 9007199254740992}, False),  # a double does not tell the two apart
        ("0.1", {"at_least": 0.1, "at_most": 0.1}, True),
        ("-1", {"at_least": 0, "at_most": 5}, False),
        ("5.5", {"at_most": 5}, False),
        ("1e3", {"at_least": 1000}, True),
        (" 12 ", {"at_least": 12}, True),
        ("42", {"equals": "42"}, True),
        ("42.0", {"equals": "42"}, False),
        ("Ja", {"equals": "ja"}, False),
        ("", {"equals": ""}, True),
    ],
)
def test_a_number_is_compared_exactly_and_a_text_by_its_characters(
    value: str, expected: dict[str, object], ok: bool
) -> None:
    assert outcome(value, **expected)[0] is ok


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("many", "many, which is not a number"),
        ("", "an empty text, which is not a number"),
        ("NaN", "NaN, which is not a number"),
        ("Infinity", "Infinity, which is not a number"),
        ("1_000", "1_000, which is not a number"),
        ("٣", "٣, which is not a number"),
        (None, "NULL"),
    ],
)
def test_what_is_no_number_is_within_no_bounds(value: str | None, found: str) -> None:
    assert outcome(value, at_least=0) == (False, found)


@pytest.mark.parametrize(
    ("value", "ok"),
    [
        ("2026-11-19 01:00:00", True),
        ("2026-11-19 00:59:59", False),
        ("2026-11-19 01:00:00.000000", True),
        ("2026-11-20", True),
        ("2026-11-19", False),
        ("2026-11-19T02:30:00+01:00", True),
        ("2026-11-19T01:30:00+01:00", False),
        ("2026-11-19T01:30:00Z", True),
        ("2026-11-20 16:00:00", True),  # of a clock in another zone
    ],
)
def test_a_time_is_fresh_if_it_is_near_enough_before_the_snapshot(value: str, ok: bool) -> None:
    assert outcome(value, newer_than_seconds=26 * 3600.0)[0] is ok


@pytest.mark.parametrize("value", ["yesterday", "20261120", "1763600000", "0000-00-00 00:00:00", "2026-02-31", ""])
def test_what_is_no_time_is_not_fresh(value: str) -> None:
    ok, found = outcome(value, newer_than_seconds=26 * 3600.0)
    assert not ok
    assert found.endswith(", which is not a time")


def test_a_time_long_after_the_snapshot_proves_nothing_fresh() -> None:
    assert outcome("2099-01-01", newer_than_seconds=3600.0) == (
        False,
        "2099-01-01 00:00:00 UTC, more than a day after the moment of the copy",
    )


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], "no row"),
        ([("1",), ("1",)], "more than one row"),
        ([("1", "2", "3")], "3 columns instead of one"),
        ([(None,)], "NULL"),
    ],
)
def test_anything_but_one_value_is_a_failed_check(rows: list[tuple[str | None, ...]], found: str) -> None:
    for expected in ({"equals": "1"}, {"at_least": 1}, {"newer_than_seconds": 1.0}):
        result = judged(check(**expected), rows, taken_at=TAKEN)
        assert (result.ok, result.found) == (False, found)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"equals": "42"}, "42"),
        ({"equals": ""}, "an empty text"),
        ({"at_least": 1000}, "at least 1000"),
        ({"at_most": 0.5}, "at most 0.5"),
        ({"at_least": 1, "at_most": 3}, "1 to 3"),
        ({"newer_than_seconds": 93600.0}, "2026-11-19 01:00:00 UTC or later: 26h before the moment of the copy"),
    ],
)
def test_the_result_says_what_was_asked_and_what_was_expected(expected: dict[str, object], words: str) -> None:
    result = judged(check(**expected), [("x",)], taken_at=TAKEN)
    assert (result.name, result.asked, result.expected) == ("checks.orders", "SELECT v FROM t", words)


def test_what_is_kept_of_a_value_and_of_a_statement_is_short() -> None:
    long = DrillCheckConfig(name="long", sql=f"SELECT '{'x' * 5000}'", equals="y" * 5000)
    result = judged(long, [("z" * 5000,)], taken_at=TAKEN)
    assert (len(result.asked), len(result.expected), len(result.found)) == (1019, 219, 219)
    assert result.found.endswith("z… (5000 characters)")
    assert judged(long, [("y" * 5000,)], taken_at=TAKEN).ok  # compared whole
