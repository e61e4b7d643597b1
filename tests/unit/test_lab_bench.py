"""What `make bench-settle` makes of a run's logs."""

import pytest

from backupd.lab.load import Heartbeat, LoadSample
from backupd.vocabulary.errors import LabError
from tests.bench.bench_settle import UNDISTURBED_SECONDS, WINDOW_SECONDS, Price, SettleMoments, p99, price, table

BEGAN = 1000.0
RUN = SettleMoments(began=BEGAN, ended=BEGAN + 30)


def load_of(rates: dict[int, float]) -> list[LoadSample]:
    """200 a second, but for the seconds after the run's start that are named."""
    seconds = range(-int(UNDISTURBED_SECONDS), int(WINDOW_SECONDS))
    return [LoadSample(BEGAN + at + 1, rates.get(at, 200.0)) for at in seconds]


def beats_of(milliseconds: dict[int, float]) -> list[Heartbeat]:
    return [Heartbeat(BEGAN + at, milliseconds.get(at, 5.0)) for at in range(int(WINDOW_SECONDS))]


def price_of(samples: list[LoadSample], beats: list[Heartbeat], gone: float = 28.0) -> Price:
    return price(samples, beats, RUN, gone=BEGAN + gone, waited=9, copied=8)


def test_what_is_lost_is_counted_until_the_snapshot_is_gone_and_over_the_length_that_all_runs_share() -> None:
    disturbed = load_of({**dict.fromkeys(range(10, 20), 50.0), 100: 150.0})
    found = price_of(disturbed, beats_of({12: 400.0}))
    assert found.undisturbed == pytest.approx(200)
    assert found.lost == pytest.approx(1500)
    assert found.lost_in_window == pytest.approx(1550)
    assert found.slowest == pytest.approx(0.25)
    assert found.stall_ms == pytest.approx(400)
    assert found.p99_ms == 400
    assert found.slow == 1
    assert found.p99_in_window_ms == 5
    assert (found.waited, found.copied, found.wall) == (9, 8, 30)


def test_a_server_that_gets_faster_all_the_while_has_not_won_transactions_by_a_backup() -> None:
    drifting = load_of({at: 200.0 + at for at in range(-20, int(WINDOW_SECONDS))})
    found = price_of(drifting, beats_of({}))
    assert found.lost == pytest.approx(0, abs=20)
    assert found.lost_in_window == pytest.approx(0, abs=100)


def test_a_run_that_outlasts_the_shared_length_is_no_result() -> None:
    with pytest.raises(LabError, match="too long"):
        price_of(load_of({}), beats_of({}), gone=WINDOW_SECONDS - 10)


def test_a_longer_window_takes_a_longer_copy_and_is_named_in_the_table() -> None:
    with pytest.raises(LabError, match="does not cover"):  # the logs go on for as long as the usual window
        price(load_of({}), beats_of({}), RUN, window=WINDOW_SECONDS + 40, gone=BEGAN + 150, waited=0, copied=140)
    short = price(load_of({}), beats_of({}), RUN, window=80, gone=BEGAN + 50, waited=0, copied=40)
    assert short.lost_in_window == pytest.approx(0)
    assert "lost in 80 s" in table({"off": [short]}, window=80)


def test_a_log_that_ends_early_is_no_result() -> None:
    with pytest.raises(LabError, match="does not cover"):
        price_of(load_of({})[:-20], beats_of({}))


def test_p99_leaves_one_insert_in_a_hundred_out() -> None:
    assert p99([*beats_of({}), Heartbeat(BEGAN, 900.0)], BEGAN, BEGAN + WINDOW_SECONDS) == 5.0
    assert p99([Heartbeat(BEGAN, 900.0)], BEGAN, BEGAN + 1) == 900.0
    assert p99([], BEGAN, BEGAN + 1) == 0.0


def test_the_table_shows_medians_and_what_they_lie_between() -> None:
    runs = [price_of(load_of({1: rate}), beats_of({})) for rate in (200.0, 100.0, 150.0)]
    head, _, row = table({"on": runs}).splitlines()
    assert head.startswith("| settle | lost |")
    assert row.startswith("| on | 50 (0-100) |")
