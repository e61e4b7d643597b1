"""When a target will be full, by what its free space has lost."""

import pytest

from backupd.policy.filling import full_in_seconds
from backupd.policy.trend import Point

DAY = 86400.0
GIB = float(1 << 30)


def looks(*free: float, apart: float = DAY) -> list[Point]:
    return [Point(number * apart, value * GIB) for number, value in enumerate(free)]


def test_what_is_lost_each_day_tells_the_day_on_which_nothing_is_left() -> None:
    free = looks(*(1000 - 10 * day for day in range(21)))
    assert full_in_seconds(free, now_free=800 * GIB) == pytest.approx(80 * DAY)


@pytest.mark.parametrize("last", range(22, 31))
def test_a_week_s_rhythm_is_not_taken_for_a_trend(last: int) -> None:
    """Six backups a week, and on the seventh day retention takes as many; whatever day it is."""
    free = [500.0 - 50 * (day % 7) for day in range(last)]
    assert (full_in_seconds(looks(*free), now_free=free[-1] * GIB) or 3650 * DAY) > 56 * DAY


def test_nobody_can_tell_in_the_first_two_weeks_when_nothing_is_pruned_yet() -> None:
    assert full_in_seconds(looks(*(1000 - 50 * day for day in range(14))), now_free=350 * GIB) is None
    assert full_in_seconds(looks(*(1000 - 50 * day for day in range(15))), now_free=300 * GIB) is not None


@pytest.mark.parametrize("free", [[], [500.0], [500.0] * 30, [100.0 + day for day in range(30)]])
def test_what_does_not_become_less_is_never_full(free: list[float]) -> None:
    assert full_in_seconds(looks(*free), now_free=500 * GIB) is None


def test_a_target_that_is_full_is_full_now() -> None:
    assert full_in_seconds(looks(*(20.0 - day for day in range(20))), now_free=0) == 0
