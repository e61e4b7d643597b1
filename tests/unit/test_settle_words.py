"""What the gate says of a wait, a start or an aborted backup: one sentence with the figures that decided."""

from dataclasses import replace

import pytest

from backupd.policy.settle_gate import (
    BASELINE,
    COPY,
    OWN_CHUNKS,
    SETTLE,
    Area,
    CowForecast,
    SettleLimits,
    breach,
    decide,
    last_lag,
    last_ratio,
    seconds_to_limit,
    way_out,
)
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict
from tests.unit.test_settle import FALLING, LIMITS, MIB, filling, judge, series

POOL = Area("thin pool vg0/pool", "extend it")


@pytest.mark.parametrize(
    ("samples", "limits", "cow", "said"),
    [
        (
            series([9, 5]),
            replace(LIMITS, max_penalty=4.5),
            None,
            "writes are 5.0× slower than without the snapshot, the limit is 4.5×",
        ),
        (
            [Sample(1.0, SETTLE, replica_lag_seconds=31.4)],
            replace(LIMITS, max_replica_lag_seconds=30.5),
            None,
            "replica lag is 31 s, the limit is 30.5 s",
        ),
        (
            [Sample(1.0, COPY, cow_used=51)],
            replace(LIMITS, max_cow_fill=0.5),
            CowForecast(100),
            "the COW area is 51% full, the limit is 50%",
        ),
        (
            [Sample(1.0, COPY, cow_used=51)],
            replace(LIMITS, max_cow_fill=0.5),
            CowForecast(100, area=POOL),
            "thin pool vg0/pool is 51% full, the limit is 50%",
        ),
    ],
)
def test_a_limit_that_is_passed_is_told_with_both_figures(
    samples: list[Sample], limits: SettleLimits, cow: CowForecast | None, said: str
) -> None:
    assert breach(samples, limits, cow=cow) == said
    verdict = decide(samples, limits, now_seconds=7, forecast=cow)
    assert verdict == Verdict(GateOutcome.GIVE_UP, Reason.LIMIT, said, waited_seconds=7)


def test_a_window_of_before_the_snapshot_is_no_window_above_the_limit() -> None:
    limits = replace(LIMITS, max_penalty=4.0)
    before = [Sample(-2, BASELINE, ratio=9.0), Sample(-1, BASELINE, ratio=9.0, replica_lag_seconds=99.0)]
    assert breach([*before, Sample(1, SETTLE, ratio=9.0)], limits, cow=None) is None
    assert (last_ratio(before), last_lag(before)) == (None, None)


def test_what_was_told_last_is_told_of_the_newest_window_and_the_newest_look() -> None:
    samples = [
        Sample(1, SETTLE, ratio=9.0, replica_lag_seconds=5.0),
        Sample(2, SETTLE, ratio=3.0, replica_lag_seconds=4.0),
        Sample(3, SETTLE, cow_rate=1.0),
    ]
    assert (last_ratio(samples), last_lag(samples)) == (3.0, 4.0)
    assert (last_ratio([]), last_lag([])) == (None, None)


def test_old_windows_and_looks_count_however_much_was_told_since() -> None:
    """Of one sort only one may have been told for a while: the other's last figures hold."""
    limits = replace(LIMITS, max_penalty=4.0, max_replica_lag_seconds=60.0)
    old = [Sample(1, SETTLE, ratio=9.0), Sample(2, SETTLE, ratio=9.0)]
    since = [Sample(3.0 + at, SETTLE, cow_used=1, replica_lag_seconds=1.0) for at in range(20)]
    assert breach([*old, *since], limits, cow=CowForecast(100)) is not None
    used = [Sample(1, SETTLE, cow_used=99)]
    windows = [Sample(3.0 + at, SETTLE, ratio=1.0, replica_lag_seconds=1.0) for at in range(20)]
    assert breach([*used, *windows], limits, cow=CowForecast(100)) is not None
    late = [Sample(1, SETTLE, replica_lag_seconds=61.0)]
    others = [Sample(3.0 + at, SETTLE, ratio=1.0, cow_used=1) for at in range(20)]
    assert breach([*late, *others], limits, cow=CowForecast(100)) is not None


def test_where_it_stands_is_told_of_each_signal() -> None:
    assert judge(series([3.0, 2.5])).detail == "penalty 2.50 (threshold 1.25)"
    assert judge(series([1.0] * 3)).detail == "penalty 1.00 (threshold 1.25)"
    assert judge([]).detail == "nothing could be measured"
    steady = judge(series([3.0] * 6, [20.0 * MIB] * 60))
    assert steady.detail == (
        "the penalty is no longer falling; penalty 3.00 (threshold 1.25); the server's first writes are at 20.00 MiB/s,"
        " 100% of their peak"
    )
    own = judge(series([1.1] * 3, [20.0 * MIB] * 5))
    assert own.detail == (
        "penalty 1.10 (threshold 1.25); the server's first writes are at 20.00 MiB/s, 100% of their peak; " + OWN_CHUNKS
    )
    assert judge(series(rates=[0.0] * 5), probing=False).detail == "the server's first writes are at 0.00 MiB/s"
    fallen = judge(series(rates=[20.0 * MIB] * 4 + [5.0 * MIB] * 5), probing=False)
    assert fallen.detail == "the server's first writes are at 5.00 MiB/s, 25% of their peak"


def passive(*latencies: float, rate: float = 0.0) -> list[Sample]:
    """A look a second without a probe."""
    return [Sample(at, SETTLE, cow_rate=rate, write_latency_ms=latency) for at, latency in enumerate(latencies)]


@pytest.mark.parametrize(
    ("latencies", "baseline", "reason", "slowdown"),
    [
        ((2.0, 2.0, 2.0, 2.0, 2.0), 2.0, Reason.SETTLED, "1.00×"),
        ((9.0, 9.0, 2.5, 2.5, 2.5), 2.0, Reason.SETTLED, "1.25×"),
        ((2.0, 2.0, 2.6, 2.0, 2.0), 2.0, Reason.SETTLING, "1.00×"),
        ((2.0, 2.0, 2.0, 2.0, 2.6), 2.0, Reason.SETTLING, "1.00×"),
        ((1.0, 1.0, 1.0, 1.0, 1.0), 0.5, Reason.SETTLING, "2.00×"),
        ((9.0, 9.0, 9.0, 9.0, 9.0), None, Reason.SETTLED, None),
        ((9.0, 9.0, 9.0, 9.0, 9.0), 0.0, Reason.SETTLED, None),
        ((9.0, 9.0, 9.0, 9.0, 9.0), -1.0, Reason.SETTLED, None),
    ],
)
def test_without_a_probe_three_looks_in_a_row_must_be_as_fast_as_before_where_that_is_known(
    latencies: tuple[float, ...], baseline: float | None, reason: Reason, slowdown: str | None
) -> None:
    verdict = decide(passive(*latencies), LIMITS, now_seconds=5, probing=False, baseline_latency_ms=baseline)
    assert verdict.reason is reason
    begin = "the server's first writes are at 0.00 MiB/s"
    said = f"{begin}; average write latency is {slowdown} the baseline" if slowdown else begin
    assert verdict.detail == said


def test_looks_of_another_sort_than_the_baseline_are_not_compared_with_it() -> None:
    windows = [replace(sample, iops=100.0) for sample in passive(*[9.0] * 5)]
    assert decide(windows, LIMITS, now_seconds=5, probing=False, baseline_latency_ms=1.0).reason is Reason.SETTLED


def test_a_forecast_is_told_with_its_seconds_and_its_limit() -> None:
    samples = filling(10 * MIB)  # 150 MiB by now
    gone = decide(samples, LIMITS, now_seconds=15, forecast=CowForecast(1000 * MIB, copy_seconds=100))
    assert gone.detail == "the COW area is forecast to be 115% full after the copy (100 s), the limit is 80%"
    soon = decide(samples, LIMITS, now_seconds=15, forecast=CowForecast(2000 * MIB, copy_seconds=100, area=POOL))
    assert soon.detail == (
        "thin pool vg0/pool is forecast to be 88% full after waiting a little longer and the copy (160 s), the limit"
        " is 80%"
    )
    grown = CowForecast(1000 * MIB, copy_seconds=100, growth=1000 * MIB)
    assert "forecast to be 88% full" in decide(samples, LIMITS, now_seconds=15, forecast=grown).detail


def test_of_a_copy_that_nobody_knows_only_the_wait_is_forecast_and_told() -> None:
    samples = filling(10 * MIB)  # 150 MiB by now
    soon = decide(samples, LIMITS, now_seconds=15, forecast=CowForecast(900 * MIB))
    assert (soon.outcome, soon.reason) == (GateOutcome.START, Reason.COW_SHORT)
    assert soon.detail == (
        "the COW area is forecast to be 83% full after waiting a little longer (60 s), the limit is 80%"
    )
    full = decide(samples, LIMITS, now_seconds=15, forecast=CowForecast(190 * MIB))
    assert full.outcome is GateOutcome.START, "another second of a copy would be too much, but no copy is known"


def test_ten_looks_are_enough_for_a_forecast() -> None:
    forecast = CowForecast(total=1000 * MIB, copy_seconds=3600)
    verdict = decide(filling(10 * MIB, seconds=10), LIMITS, now_seconds=10, forecast=forecast)
    assert (verdict.outcome, verdict.reason) == (GateOutcome.GIVE_UP, Reason.COW_SHORT)


def test_a_guess_of_how_long_the_copy_takes_can_end_a_wait() -> None:
    patient = replace(LIMITS, patience=1.0)
    guessed = decide(series(FALLING), patient, now_seconds=15, forecast=CowForecast(1 << 50, guess_seconds=9))
    assert guessed.detail == "the copy takes about 9 s, waiting would not pay off; penalty 1.50 (threshold 1.25)"
    known = CowForecast(1 << 50, copy_seconds=600, guess_seconds=9)
    assert decide(series(FALLING), patient, now_seconds=15, forecast=known).outcome is GateOutcome.WAIT


def test_a_wait_as_long_as_the_copy_is_long_enough() -> None:
    patient, cow = replace(LIMITS, patience=1.0), CowForecast(1 << 50, copy_seconds=35)
    assert decide(series(FALLING), patient, now_seconds=34.9, forecast=cow).outcome is GateOutcome.WAIT
    assert decide(series(FALLING), patient, now_seconds=35, forecast=cow).reason is Reason.PLATEAU


def test_where_waiting_saves_no_more_than_it_costs_it_ends() -> None:
    steady = [Sample(at, SETTLE, cow_used=0, cow_rate=2.0 * MIB) for at in range(30)]
    twice, cow = replace(LIMITS, patience=2.0, plateau_looks=60), CowForecast(1 << 50, copy_seconds=60)
    assert decide(steady, twice, now_seconds=30, forecast=cow, probing=False).reason is Reason.PLATEAU
    more = replace(twice, patience=2.01)
    assert decide(steady, more, now_seconds=30, forecast=cow, probing=False).outcome is GateOutcome.WAIT


def test_whoever_says_nothing_of_a_probe_has_one() -> None:
    assert decide(series([1.0] * 3), LIMITS, now_seconds=60).reason is Reason.SETTLED


def test_a_rate_at_its_floor_is_quiet() -> None:
    assert judge(series(rates=[float(LIMITS.quiet_rate)] * 5), probing=False).reason is Reason.SETTLED
    assert judge(series(rates=[LIMITS.quiet_rate + 1.0] * 5), probing=False).reason is Reason.SETTLING


def test_a_plateau_is_looked_for_from_the_first_look_of_its_stretch_on() -> None:
    two = replace(LIMITS, plateau_looks=2, plateau_windows=2)
    falls = decide(passive(4.0, 3.0, rate=20.0 * MIB), two, now_seconds=2, probing=False, baseline_latency_ms=1.0)
    assert falls.outcome is GateOutcome.WAIT
    stays = decide(passive(4.0, 4.0, rate=20.0 * MIB), two, now_seconds=2, probing=False, baseline_latency_ms=1.0)
    assert stays.reason is Reason.PLATEAU
    windows = [Sample(at, SETTLE, ratio=3.0, cow_rate=rate) for at, rate in ((0, 20.0 * MIB), (10, 10.0 * MIB))]
    assert decide(windows, two, now_seconds=20).outcome is GateOutcome.WAIT
    level = [replace(window, cow_rate=20.0 * MIB) for window in windows]
    assert decide(level, two, now_seconds=20).reason is Reason.PLATEAU


@pytest.mark.parametrize(
    "measured", [Sample(1.0, SETTLE, cow_rate=20.0 * MIB), Sample(1.0, SETTLE, write_latency_ms=8)]
)
def test_a_wait_of_which_one_thing_was_measured_is_not_said_to_have_no_data(measured: Sample) -> None:
    verdict = decide([measured], LIMITS, now_seconds=600, probing=False, baseline_latency_ms=1.0)
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.MAX_WAIT)


def test_a_copy_that_is_short_begins_once_there_is_something_to_tell_of_the_shock() -> None:
    patient, short = replace(LIMITS, patience=1.0), CowForecast(1 << 50, copy_seconds=9)
    looks = series(rates=[2.0 * MIB] * 2)
    one, two = (decide(looks[:count], patient, now_seconds=2, forecast=short) for count in (1, 2))
    assert one.outcome is GateOutcome.WAIT
    assert (two.outcome, two.reason) == (GateOutcome.START, Reason.PLATEAU)


def test_a_cow_area_whose_fill_was_never_told_is_taken_for_empty() -> None:
    idle = series(rates=[0.0] * 10)
    verdict = decide(idle, LIMITS, now_seconds=10, forecast=CowForecast(total=1), probing=False)
    assert verdict.outcome is GateOutcome.START


def test_no_longer_wait_is_forecast_than_the_gate_still_has() -> None:
    samples, cow = filling(10 * MIB), CowForecast(2000 * MIB, copy_seconds=100)
    assert decide(samples, LIMITS, now_seconds=590, forecast=cow).outcome is GateOutcome.WAIT
    assert decide(samples, LIMITS, now_seconds=555, forecast=cow).outcome is GateOutcome.WAIT
    assert decide(samples, LIMITS, now_seconds=554, forecast=cow).reason is Reason.COW_SHORT


def test_a_gate_that_is_off_has_nothing_to_say() -> None:
    assert decide([], replace(LIMITS, enabled=False), now_seconds=3) == Verdict(
        GateOutcome.START, Reason.DISABLED, "", waited_seconds=3
    )


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        (filling(10 * MIB, seconds=10), 70.0),
        (filling(1.0, seconds=10), 800 * MIB - 10),
        (filling(10 * MIB, seconds=80), 0.0),
        (filling(10 * MIB, seconds=90), 0.0),
        (filling(0, seconds=20), None),
        ([replace(sample, cow_used=None) for sample in filling(10 * MIB)], None),
        ([replace(sample, stage=BASELINE) for sample in filling(10 * MIB)], None),
        (
            [*filling(99 * MIB, seconds=30), *(Sample(30.0 + at, COPY, cow_used=0, cow_rate=MIB) for at in range(30))],
            800,
        ),
    ],
)
def test_when_the_area_has_filled_to_its_limit_is_told_by_what_it_did_lately(
    samples: list[Sample], seconds: float | None
) -> None:
    found = seconds_to_limit(samples, LIMITS, CowForecast(1000 * MIB))
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_the_way_out_has_a_share_only_where_that_would_be_enough() -> None:
    much = way_out(filling(10 * MIB), LIMITS, CowForecast(1 << 30, copy_seconds=90), area=POOL)
    assert much == ("extend it so that thin pool vg0/pool has 1.3 GiB (now 1 GiB), or choose a quieter hour"), (
        "102 % of it is no limit"
    )
    enough = way_out(filling(10 * MIB), LIMITS, CowForecast(1 << 30, copy_seconds=10), area=POOL)
    assert enough == "extend it, raise the job's limits, or choose a quieter hour"
    filled = way_out([Sample(1.0, COPY, cow_used=900 * MIB)], LIMITS, CowForecast(1 << 30, copy_seconds=1), area=POOL)
    assert filled.startswith("extend it so that thin pool vg0/pool has 1.1 GiB (now 1 GiB), raise limits.max_cow_fill")
    at_its_limit = way_out([Sample(1.0, COPY, cow_used=800)], LIMITS, CowForecast(1000, copy_seconds=1), area=POOL)
    assert at_its_limit == enough
    fullest = way_out([Sample(1.0, COPY, cow_used=950)], LIMITS, CowForecast(1000, copy_seconds=1), area=POOL)
    assert "raise limits.max_cow_fill to 95% (now 80%)" in fullest
    growing = CowForecast(1 << 30, copy_seconds=80, growth=1 << 30)
    assert way_out(filling(10 * MIB), LIMITS, growing, area=POOL) == enough
