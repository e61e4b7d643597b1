"""The settle gate: which series of samples it waits on, starts after, or gives up on, and why."""

from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.config import LimitsConfig, SettleConfig
from backupd.operations.gate_limits import gate_limits
from backupd.policy.settle_gate import (
    COW_AREA,
    Area,
    CowForecast,
    SettleLimits,
    breach,
    decide,
    seconds_to_limit,
    waiting_may_pay,
    way_out,
)
from backupd.policy.write_penalty import penalty_of
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict
from tests.settle_limits import settle_limits

MIB = 1 << 20
LIMITS = settle_limits(
    threshold=1.25, windows=3, max_wait_seconds=600, max_cow_fill=0.8, plateau_windows=6, plateau_looks=20
)
FALLING = [5.0, 4.0, 3.0, 2.0, 1.5]
OF_NO_CONFIGURATION = {"max_metadata_fill", "quiet_rate"}


def series(
    ratios: Iterable[float | None] = (),
    rates: Iterable[float | None] = (),
    *,
    every: float = 10.0,
    stage: str = "settle",
) -> list[Sample]:
    """Windows every ten seconds; the rates one a second between them, as the observer records them."""
    windows = [Sample(at * every, stage, ratio=ratio) for at, ratio in enumerate(ratios)]
    ticks = [Sample(at + 0.5, stage, cow_rate=rate) for at, rate in enumerate(rates)]
    return sorted([*windows, *ticks], key=lambda sample: sample.at_seconds)


def decaying(peak: float, seconds: int, half_life: float = 10.0) -> list[float]:
    return [peak * 0.5 ** (at / half_life) for at in range(seconds)]


def judge(samples: list[Sample], *, now: float = 60.0, probing: bool = True, limits: SettleLimits = LIMITS) -> Verdict:
    return decide(samples, limits, now_seconds=now, probing=probing)


WAIT, START, GIVE_UP = GateOutcome.WAIT, GateOutcome.START, GateOutcome.GIVE_UP
TABLE: list[tuple[str, list[Sample], GateOutcome, Reason]] = [
    ("settling: the ratio falls", series(FALLING), WAIT, Reason.SETTLING),
    ("settled: three cheap windows", series([*FALLING, 1.2, 1.1, 1.2]), START, Reason.SETTLED),
    ("settled from the first window on", series([1.0, 1.0, 1.0]), START, Reason.SETTLED),
    ("at the threshold is settled", series([1.25, 1.25, 1.25]), START, Reason.SETTLED),
    ("two cheap windows are not enough", series([*FALLING, 1.2, 1.1]), WAIT, Reason.SETTLING),
    ("a dear window between starts the count again", series([*FALLING, 1.2, 1.6, 1.1, 1.1]), WAIT, Reason.SETTLING),
    ("plateau: it stays at 3", series([5, 4, 3, 3.1, 2.9, 3, 3.1, 3, 2.9]), START, Reason.PLATEAU),
    ("plateau: it even rises", series([2, 2, 2.1, 2.2, 2.3, 2.4]), START, Reason.PLATEAU),
    ("too few windows to call it a plateau", series([3, 3, 3, 3, 3]), WAIT, Reason.SETTLING),
    ("spikes on a plateau", series([3, 9, 3, 3, 8, 3]), START, Reason.PLATEAU),
    ("spikes while it falls", series([9, 8, 12, 4, 3, 9, 2.2, 2, 2]), WAIT, Reason.SETTLING),
    ("empty", [], WAIT, Reason.SETTLING),
    ("one sample", series([1.0]), WAIT, Reason.SETTLING),
    ("NaN is no measurement", series([nan, nan, nan, nan, nan, nan]), WAIT, Reason.SETTLING),
    ("infinity is none either", series([inf] * 8), WAIT, Reason.SETTLING),
    ("NaN between cheap windows does not break their row", series([1.1, nan, 1.1, inf, 1.1]), START, Reason.SETTLED),
    (
        "settled: the server's first writes have died down too",
        series([*FALLING, 1.2, 1.1, 1.2], decaying(20 * MIB, 80)),
        START,
        Reason.SETTLED,
    ),
    (
        "the probe has settled its own chunks, the server's are still being copied and get fewer",
        series([1.1, 1.1, 1.1], decaying(20 * MIB, 15)),
        WAIT,
        Reason.SETTLING,
    ),
    (
        "the same with one look at the COW area: no proof that they have died down",
        series([1.1, 1.1, 1.1], [20 * MIB]),
        WAIT,
        Reason.SETTLING,
    ),
    (
        "the same, and they get no fewer: waiting buys nothing",
        series([1.1] * 6, [20 * MIB] * 60),
        START,
        Reason.PLATEAU,
    ),
    (
        "the ratio stands still but the server's first writes still get fewer",
        series([3.0] * 6, decaying(20 * MIB, 60, half_life=40)),
        WAIT,
        Reason.SETTLING,
    ),
    ("first writes under the floor need no peak", series([1.1] * 3, [10_000.0] * 30), START, Reason.SETTLED),
    (
        "a burst at the start is no peak to measure against",
        series([1.1] * 3, [500.0 * MIB, *[20.0 * MIB] * 25]),
        WAIT,
        Reason.SETTLING,
    ),
]


@pytest.mark.parametrize(("samples", "outcome", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table_of_series(samples: list[Sample], outcome: GateOutcome, reason: Reason) -> None:
    verdict = judge(samples)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict.detail


PASSIVE: list[tuple[str, list[float | None], GateOutcome, Reason]] = [
    ("it gets less", list(decaying(20 * MIB, 15)), WAIT, Reason.SETTLING),
    ("it has died down", list(decaying(20 * MIB, 60)), START, Reason.SETTLED),
    ("it goes on and on", [20.0 * MIB] * 20, START, Reason.PLATEAU),
    ("it goes on, but not for long enough to say so", [20.0 * MIB] * 19, WAIT, Reason.SETTLING),
    ("the server is not writing", [0.0] * 5, START, Reason.SETTLED),
    ("nobody has written for a moment", [0.0] * 4, WAIT, Reason.SETTLING),
    ("it cannot be read", [None, nan, inf] * 10, WAIT, Reason.SETTLING),
]


@pytest.mark.parametrize(("rates", "outcome", "reason"), [row[1:] for row in PASSIVE], ids=[row[0] for row in PASSIVE])
def test_without_a_probe_the_rate_of_first_writes_decides_alone(
    rates: list[float | None], outcome: GateOutcome, reason: Reason
) -> None:
    verdict = judge(series(rates=rates), probing=False)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict.detail


def test_windows_of_a_probe_that_has_failed_since_decide_nothing() -> None:
    cheap_then_failed = series([1.0] * 6, [20.0 * MIB] * 10)
    assert judge(cheap_then_failed, probing=False).outcome is WAIT
    dear_then_failed = series([9.0, 7.0], [0.0] * 10)
    assert judge(dear_then_failed, probing=False).reason is Reason.SETTLED


def test_the_maximum_wait_ends_it() -> None:
    assert judge(series(FALLING), now=599.9).outcome is WAIT
    verdict = judge(series(FALLING), now=600)
    assert (verdict.outcome, verdict.reason, verdict.waited_seconds) == (START, Reason.MAX_WAIT, 600)


@pytest.mark.parametrize("probing", [True, False])
@pytest.mark.parametrize("samples", [[], series([nan, inf, None], [None, nan])])
def test_a_wait_without_any_measurement_is_called_so(samples: list[Sample], probing: bool) -> None:
    verdict = judge(samples, now=600, probing=probing)
    assert (verdict.outcome, verdict.reason) == (START, Reason.NO_DATA)
    assert verdict.detail == "nothing could be measured"


def test_a_gate_that_is_off_starts_at_once_unless_a_limit_is_passed() -> None:
    off = replace(LIMITS, enabled=False, max_replica_lag_seconds=60)
    assert judge(series(FALLING), now=0, limits=off).reason is Reason.DISABLED
    late = [Sample(1.0, "settle", replica_lag_seconds=61)]
    assert judge(late, now=1, limits=off).outcome is GIVE_UP


def test_the_baseline_is_not_taken_for_a_settled_penalty() -> None:
    baseline = [Sample(-at, "baseline", ratio=1.0, cow_rate=0.0) for at in (3, 2, 1)]
    assert judge(baseline).outcome is WAIT
    assert judge(baseline, now=600).reason is Reason.NO_DATA


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["settle", "copy"])
def test_two_windows_in_a_row_above_the_penalty_limit_give_up_and_one_does_not(stage: str) -> None:
    limits = replace(LIMITS, max_penalty=4.0)
    assert breach(series([3, 3, 9], stage=stage), limits, cow=None) is None
    assert breach(series([3, 4, 4], stage=stage), limits, cow=None) is None
    assert breach(series([9, nan, None, 5], stage=stage), limits, cow=None) is not None
    verdict = judge(series([9, 9, 5], stage=stage), limits=limits)
    assert (verdict.outcome, verdict.reason) == (GIVE_UP, Reason.LIMIT)
    assert "5.0× slower" in verdict.detail


def test_a_replica_that_falls_behind_gives_up_by_the_last_known_lag() -> None:
    limits = replace(LIMITS, max_replica_lag_seconds=30.0)
    behind = [Sample(1.0, "settle", replica_lag_seconds=31.0), Sample(2.0, "settle")]
    assert breach(behind, limits, cow=None) is not None
    caught_up = [*behind, Sample(3.0, "settle", replica_lag_seconds=30.0)]
    assert breach(caught_up, limits, cow=None) is None


def test_a_cow_area_beyond_its_limit_gives_up() -> None:
    limits = replace(LIMITS, max_cow_fill=0.5)
    assert breach([Sample(1.0, "copy", cow_used=50)], limits, cow=CowForecast(100)) is None
    assert breach([Sample(1.0, "copy", cow_used=51), Sample(2.0, "copy")], limits, cow=CowForecast(100)) is not None
    assert breach([Sample(1.0, "copy", cow_used=51)], limits, cow=None) is None


def test_a_pool_beyond_its_limit_for_metadata_gives_up_though_nothing_else_is_known() -> None:
    pool = Area("thin pool vg/pool", "extend it")
    assert breach([], LIMITS, cow=CowForecast(100, area=pool, metadata_fill=0.9)) is None
    verdict = decide([], LIMITS, now_seconds=1, forecast=CowForecast(100, area=pool, metadata_fill=0.92))
    assert (verdict.outcome, verdict.reason) == (GIVE_UP, Reason.LIMIT)
    assert verdict.detail == "the metadata of thin pool vg/pool is 92% full, the limit is 90%"


# --- will the COW area last? -----------------------------------------------------------------------------------------


def filling(rate: float, seconds: int = 15) -> list[Sample]:
    return [Sample(at, "settle", cow_used=int(rate * at), cow_rate=rate) for at in range(1, seconds + 1)]


@pytest.mark.parametrize(
    ("total_mib", "outcome", "reason"),
    [
        (10_000, WAIT, Reason.SETTLING),  # 15 + 60 + 100 seconds at 10 MiB/s = 1750 MiB, below 80 % of it
        (2_000, START, Reason.COW_SHORT),  # not for another minute's wait, but 15 + 100 seconds are 1150 MiB
        (1_000, GIVE_UP, Reason.COW_SHORT),
    ],
)
def test_a_cow_area_that_will_not_last_starts_at_once_or_gives_up(
    total_mib: int, outcome: GateOutcome, reason: Reason
) -> None:
    forecast = CowForecast(total=total_mib * MIB, copy_seconds=100)
    verdict = decide(filling(10 * MIB), LIMITS, now_seconds=15, forecast=forecast, probing=True)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict.detail


def test_a_cow_area_too_short_for_the_copy_gives_up_even_when_settled() -> None:
    cheap = [*filling(10 * MIB), *series([1.0] * 3, [10.0 * MIB] * 40)]
    short = CowForecast(total=1000 * MIB, copy_seconds=1000)
    verdict = decide(cheap, replace(LIMITS, quiet_rate=20 * MIB), now_seconds=30, forecast=short)
    assert (verdict.outcome, verdict.reason) == (GIVE_UP, Reason.COW_SHORT)


def test_a_forecast_follows_the_decay_rather_than_the_first_shock() -> None:
    rates = decaying(50 * MIB, 20)  # adds up to 720 MiB if it goes on so, to 8 GiB at the last rate
    samples = [Sample(at, "settle", cow_used=540 * MIB, cow_rate=rate) for at, rate in enumerate(rates)]
    forecast = CowForecast(total=4000 * MIB, copy_seconds=600)
    assert decide(samples, LIMITS, now_seconds=20, forecast=forecast).outcome is WAIT


def test_a_first_glance_gives_up_nothing() -> None:
    forecast = CowForecast(total=1000 * MIB, copy_seconds=3600)
    assert decide(filling(10 * MIB, seconds=9), LIMITS, now_seconds=9, forecast=forecast).outcome is WAIT


def test_without_a_last_copy_only_the_wait_is_forecast() -> None:
    forecast = CowForecast(total=900 * MIB)
    verdict = decide(filling(10 * MIB), LIMITS, now_seconds=15, forecast=forecast)
    assert (verdict.outcome, verdict.reason) == (START, Reason.COW_SHORT)


def test_without_a_last_copy_a_backup_is_given_up_for_a_measured_fill_only() -> None:
    """Whatever a guess by the volume's size says: the first backup of a large host would be given up for ever."""
    forecast = CowForecast(900 * MIB, guess_seconds=70 * 3600.0)
    for seconds in range(1, 601, 9):
        verdict = decide(filling(1 * MIB, seconds=seconds), LIMITS, now_seconds=seconds, forecast=forecast)
        assert verdict.outcome is not GIVE_UP, seconds


def test_the_way_out_of_a_cow_area_that_is_too_small_has_figures() -> None:
    samples, total = filling(10 * MIB), 1 << 30
    known = way_out(samples, LIMITS, CowForecast(total, copy_seconds=80), area=COW_AREA)
    assert known == (
        "raise snapshot.size so that the COW area has 1.2 GiB (now 1 GiB), raise limits.max_cow_fill to 93% (now 80%),"
        " or choose a quieter hour"
    )
    unknown = way_out(filling(90 * MIB), LIMITS, CowForecast(total), area=COW_AREA)
    assert unknown == (
        "raise snapshot.size: try 2 GiB for the COW area (now 1 GiB; how long the copy takes is not known yet), raise"
        " limits.max_cow_fill (now 80%), or choose a quieter hour"
    )
    in_general = way_out(samples, LIMITS, CowForecast(total), area=COW_AREA)
    assert in_general == "raise snapshot.size, raise the job's limits, or choose a quieter hour"


def test_the_way_out_names_the_jobs_own_rate_limit() -> None:
    slowed = replace(COW_AREA, sooner="raise copy.max_rate (now 5 MiB/s)")
    for cow in (None, CowForecast(1 << 30), CowForecast(1 << 30, copy_seconds=80)):
        told = way_out(filling(90 * MIB), LIMITS, cow, area=slowed)
        assert ", raise copy.max_rate (now 5 MiB/s), " in told


def test_room_that_the_area_may_still_be_given_counts_until_its_limit() -> None:
    samples = filling(10 * MIB)  # 150 MiB by now
    assert seconds_to_limit(samples, LIMITS, CowForecast(500 * MIB)) == pytest.approx(25.0)
    assert seconds_to_limit(samples, LIMITS, CowForecast(500 * MIB, growth=500 * MIB)) == pytest.approx(65.0)


def test_a_first_glance_forecasts_no_limit() -> None:
    assert seconds_to_limit(filling(10 * MIB, seconds=9), LIMITS, CowForecast(100 * MIB)) is None
    assert seconds_to_limit(filling(10 * MIB, seconds=10), LIMITS, None) is None


# --- for any series --------------------------------------------------------------------------------------------------

maybe = st.none() | st.floats(allow_nan=True, allow_infinity=True, width=32)
any_sample = st.builds(
    Sample,
    at_seconds=st.floats(0, 600),
    stage=st.sampled_from(["baseline", "settle", "copy"]),
    ratio=maybe | st.floats(0.5, 20),
    cow_used=st.none() | st.integers(0, 2000 * MIB),
    cow_rate=maybe | st.floats(0, 100 * MIB),
    replica_lag_seconds=maybe,
    write_latency_ms=maybe | st.floats(0.1, 100),
)
any_series = st.lists(any_sample, max_size=60)
any_float = st.floats() | st.none()
no_sample = st.builds(  # anything that the types allow
    Sample,
    at_seconds=st.floats(),
    stage=st.sampled_from(["baseline", "settle", "copy"]),
    iops=any_float,
    ratio=any_float,
    cow_used=st.none() | st.integers(0, 1 << 62),
    cow_rate=any_float,
    replica_lag_seconds=any_float,
    write_latency_ms=any_float,
)
any_limits = st.builds(
    settle_limits,
    threshold=st.floats(1, 10),
    windows=st.integers(1, 5),
    max_wait_seconds=st.floats(0, 600),
    max_penalty=st.none() | st.floats(1, 10),
    max_replica_lag_seconds=st.none() | st.floats(0, 100),
    max_cow_fill=st.floats(0.1, 1),
    plateau_windows=st.integers(2, 8),
    plateau_looks=st.integers(2, 40),
    patience=st.none() | st.floats(0, 10),
    enabled=st.booleans(),
)
any_forecast = st.none() | st.builds(
    CowForecast, total=st.integers(1, 2000 * MIB), copy_seconds=st.none() | st.floats(0, 10_000)
)


@given(any_series, any_limits, st.floats(0, 1200), any_forecast, st.booleans())
def test_it_always_ends(
    samples: list[Sample], limits: SettleLimits, now: float, forecast: CowForecast | None, probing: bool
) -> None:
    verdict = decide(samples, limits, now_seconds=now, forecast=forecast, probing=probing)
    assert (verdict.outcome is WAIT) == (verdict.reason is Reason.SETTLING)
    assert verdict.outcome is not WAIT or (now < limits.max_wait_seconds and limits.enabled)


@given(any_series, any_limits, st.floats(0, 1200), any_forecast, st.booleans())
def test_it_never_starts_beyond_a_limit(
    samples: list[Sample], limits: SettleLimits, now: float, forecast: CowForecast | None, probing: bool
) -> None:
    passed = breach(samples, limits, cow=forecast)
    verdict = decide(samples, limits, now_seconds=now, forecast=forecast, probing=probing)
    assert (verdict.reason is Reason.LIMIT) == (passed is not None)
    assert passed is None or verdict.outcome is GIVE_UP


@given(any_series, any_limits, st.floats(0, 1200), any_forecast)
def test_above_the_threshold_it_starts_for_a_recorded_reason_only(
    samples: list[Sample], limits: SettleLimits, now: float, forecast: CowForecast | None
) -> None:
    dear = [*samples, Sample(600, "settle", ratio=limits.threshold + 1)]
    verdict = decide(dear, limits, now_seconds=now, forecast=forecast)
    assert verdict.reason is not Reason.SETTLED
    if verdict.outcome is START:
        assert verdict.reason in {Reason.PLATEAU, Reason.MAX_WAIT, Reason.COW_SHORT, Reason.DISABLED}
        assert verdict.detail or verdict.reason is Reason.DISABLED


@given(st.lists(no_sample, max_size=40), any_limits, st.floats(), any_forecast, st.booleans(), st.none() | st.floats())
def test_no_figure_is_too_strange_to_be_judged(
    samples: list[Sample],
    limits: SettleLimits,
    now: float,
    forecast: CowForecast | None,
    probing: bool,
    baseline: float | None,
) -> None:
    verdict = decide(samples, limits, now_seconds=now, forecast=forecast, probing=probing, baseline_latency_ms=baseline)
    assert (verdict.outcome is WAIT) == (verdict.reason is Reason.SETTLING)
    assert verdict.outcome is not WAIT or now < limits.max_wait_seconds


@given(any_series, any_limits, st.floats(0, 1200), any_forecast, st.booleans(), st.floats(0, 1200))
def test_a_longer_maximum_never_ends_a_wait_sooner_unless_the_cow_area_would_not_last(
    samples: list[Sample],
    limits: SettleLimits,
    now: float,
    forecast: CowForecast | None,
    probing: bool,
    longer: float,
) -> None:
    shorter = decide(samples, limits, now_seconds=now, forecast=forecast, probing=probing)
    limits = replace(limits, max_wait_seconds=limits.max_wait_seconds + longer)
    verdict = decide(samples, limits, now_seconds=now, forecast=forecast, probing=probing)
    if shorter.outcome is WAIT:
        assert verdict.outcome is WAIT or (verdict.outcome, verdict.reason) == (START, Reason.COW_SHORT)
    elif shorter.reason not in {Reason.MAX_WAIT, Reason.NO_DATA, Reason.COW_SHORT}:
        assert (verdict.outcome, verdict.reason) == (shorter.outcome, shorter.reason)


@given(any_series, any_limits, st.floats(0, 1200), any_forecast, st.floats(0.1, 100))
def test_settled_means_cheap_by_the_signal_that_decides(
    samples: list[Sample], limits: SettleLimits, now: float, forecast: CowForecast | None, baseline: float
) -> None:
    for probing in (True, False):
        verdict = decide(
            samples, limits, now_seconds=now, forecast=forecast, probing=probing, baseline_latency_ms=baseline
        )
        if verdict.reason is not Reason.SETTLED:
            continue
        since = [sample for sample in samples if sample.stage != "baseline"]
        latencies = [s.write_latency_ms / baseline for s in since if s.iops is None and s.write_latency_ms is not None]
        signal = [sample.ratio for sample in since if sample.ratio is not None] if probing else latencies
        measured = [value for value in signal if isfinite(value)]
        assert all(value <= limits.threshold for value in measured[-limits.windows :])
        assert not probing or len(measured) >= limits.windows


def test_what_keeps_the_gate_shut_is_said() -> None:
    verdict = judge(series([1.1, 1.1, 1.1], decaying(20 * MIB, 15)))
    assert "the probe's own chunks have settled, but the server's are still being copied" in verdict.detail
    assert "MiB/s" in verdict.detail


# --- the penalty in five figures -------------------------------------------------------------------------------------


def window(stage: str, iops: float, at: float = 0.0) -> Sample:
    return Sample(at, stage, iops=iops)


def test_the_penalty_is_medians_before_the_copy_and_the_first_window() -> None:
    baseline = [window("baseline", iops) for iops in (190.0, 200.0, 260.0)]
    settling = [window("settle", iops) for iops in (25.0, 60.0, 100.0, 160.0, 120.0)]
    between = Sample(1.0, "settle", cow_used=5, cow_rate=1.0)
    copying = [window("copy", 10.0)]
    penalty = penalty_of([*baseline, settling[0], between, *settling[1:], *copying])
    assert (penalty.baseline_iops, penalty.initial_iops, penalty.settled_iops) == (200.0, 25.0, 120.0)
    assert penalty.initial_ratio == pytest.approx(200 / 25)
    assert penalty.settled_ratio == pytest.approx(200 / 120)


def test_what_was_not_measured_is_none() -> None:
    nothing = penalty_of([Sample(1.0, "settle", cow_used=1), window("copy", 5.0)])
    assert (nothing.baseline_iops, nothing.initial_iops, nothing.settled_iops) == (None, None, None)
    assert (nothing.initial_ratio, nothing.settled_ratio) == (None, None)
    refused = penalty_of([window("baseline", 100.0)])
    assert (refused.baseline_iops, refused.initial_ratio, refused.settled_ratio) == (100.0, None, None)


def test_a_window_without_a_single_write_has_no_ratio_in_the_summary() -> None:
    stalled = penalty_of([window("baseline", 100.0), window("settle", 0.0)])
    assert (stalled.initial_iops, stalled.initial_ratio) == (0.0, None)


@pytest.mark.parametrize(
    ("copy_seconds", "patience", "enabled", "may_pay"),
    [
        (29.9, 1.0, True, False),
        (30.0, 1.0, True, True),
        (300.0, 0.0, True, False),
        (9.0, None, True, True),
        (None, 1.0, True, True),
        (300.0, 1.0, False, False),
    ],
)
def test_waiting_may_pay_before_a_copy_that_is_long_or_of_which_nothing_is_known(
    copy_seconds: float | None, patience: float | None, enabled: bool, may_pay: bool
) -> None:
    assert waiting_may_pay(replace(LIMITS, patience=patience, enabled=enabled), copy_seconds) == may_pay


def test_the_gate_goes_by_what_the_configuration_says() -> None:
    settle = SettleConfig(
        enabled=False,
        threshold=1.5,
        windows=4,
        plateau_windows=7,
        plateau_looks=50,
        quiet_share=0.3,
        patience=2.0,
        max_wait_seconds=900.0,
    )
    limits = LimitsConfig(max_penalty=4.0, max_replica_lag_seconds=60.0, max_cow_fill=0.8, max_penalty_seconds=5.0)
    said = {field.name: getattr(table, field.name) for table in (settle, limits) for field in fields(table)}
    asked = {field.name: getattr(gate_limits(settle, limits), field.name) for field in fields(SettleLimits)}
    told = asked.keys() - OF_NO_CONFIGURATION
    assert {name: asked[name] for name in told} == {name: said[name] for name in told}


def test_what_nobody_says_the_gate_goes_by_the_configurations_defaults() -> None:
    """It has none of its own beside them, which could drift."""
    own = {field.name for field in fields(SettleLimits) if field.default is not MISSING}
    assert own == OF_NO_CONFIGURATION
