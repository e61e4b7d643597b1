"""Loading pauses where the server has waited, as long as that, and never for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.loading_pace import LONGEST_SECONDS, LoadingPace

SECONDS = st.lists(st.floats(0, 3600), min_size=1, max_size=200)


def after(*seconds: float) -> LoadingPace:
    pace = LoadingPace()
    for each in seconds:
        pace = pace.after(each)
    return pace


def test_a_server_that_takes_as_long_as_ever_is_not_paused_for() -> None:
    assert after(0.1, 0.11, 0.25, 0.09).pause_seconds == 0


def test_a_pause_is_as_long_as_the_server_waited_itself() -> None:
    assert after(0.1, 0.1, 0.6).pause_seconds == pytest.approx(0.5, abs=0.01)
    assert after(0.1, 0.1, 0.6, 0.1).pause_seconds == 0


def test_a_server_that_becomes_slower_for_good_becomes_usual() -> None:
    assert after(0.1, *[0.4] * 300).pause_seconds == 0


@given(SECONDS)
def test_a_pause_never_takes_longer_than_the_piece_before_it(seconds: list[float]) -> None:
    pause = after(*seconds).pause_seconds
    assert 0 <= pause <= min(seconds[-1], LONGEST_SECONDS)
