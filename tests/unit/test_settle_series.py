"""The settle gate on whole series of samples, one file each in `data/settle`: recorded in the lab, or made.

A file says where its series is from (`origin`), whether a probe made windows (`probing`), and what everybody's writes
took before the snapshot (`baseline_latency_ms`).
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, inf
from pathlib import Path
from statistics import fmean

import pytest

from backupd.policy.settle_gate import OWN_CHUNKS, CowForecast, SettleLimits, decide
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict
from tests.settle_limits import settle_limits

MIB = 1 << 20
FOLDER = Path(__file__).parents[1] / "data" / "settle"
LIMITS = settle_limits(max_wait_seconds=600, max_cow_fill=0.8)
HASTY = settle_limits(max_wait_seconds=600, plateau_looks=30)
PATIENCE_OF_ONE = settle_limits(max_wait_seconds=600, patience=1.0)
NO_MORE_THAN_FOUR = settle_limits(max_wait_seconds=600, max_penalty=4.0)
OVER = settle_limits(max_wait_seconds=10)
WAIT, START, GIVE_UP = GateOutcome.WAIT, GateOutcome.START, GateOutcome.GIVE_UP


@dataclass(frozen=True)
class Series:
    """What a file says."""

    origin: str
    probing: bool
    baseline_latency_ms: float | None
    samples: tuple[Sample, ...]

    def judged(self, limits: SettleLimits, forecast: CowForecast | None = None, *, until: float = inf) -> Verdict:
        """The verdict at that moment; at the end of the series when none is named."""
        seen = [sample for sample in self.samples if sample.at_seconds <= until]
        return decide(
            seen,
            limits,
            now_seconds=seen[-1].at_seconds if seen else 0.0,
            forecast=forecast,
            probing=self.probing,
            baseline_latency_ms=self.baseline_latency_ms,
        )


def series(name: str) -> Series:
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return Series(**{**document, "samples": tuple(Sample(**sample) for sample in document["samples"])})


def cow_area(mib: int, copy_seconds: float | None = 100.0) -> CowForecast:
    return CowForecast(total=mib * MIB, copy_seconds=copy_seconds)


ROWS: list[tuple[str, SettleLimits, CowForecast | None, GateOutcome, Reason]] = [
    ("recorded-settling", LIMITS, None, START, Reason.SETTLED),
    ("recorded-settling", LIMITS, cow_area(836), START, Reason.SETTLED),
    ("recorded-settling", PATIENCE_OF_ONE, cow_area(836, 600), START, Reason.SETTLED),
    ("recorded-settling", NO_MORE_THAN_FOUR, None, START, Reason.SETTLED),  # one window above it was the shock
    ("recorded-settling-passive", LIMITS, None, START, Reason.SETTLED),
    ("recorded-passive", LIMITS, None, WAIT, Reason.SETTLING),
    ("recorded-passive", HASTY, None, START, Reason.PLATEAU),
    ("recorded-passive", PATIENCE_OF_ONE, cow_area(836, 9), START, Reason.PLATEAU),
    ("recorded-passive", OVER, None, START, Reason.MAX_WAIT),
    ("made-settling", LIMITS, None, START, Reason.SETTLED),
    ("made-plateau", LIMITS, None, START, Reason.PLATEAU),
    ("made-plateau", NO_MORE_THAN_FOUR, None, START, Reason.PLATEAU),
    ("made-plateau", LIMITS, cow_area(2000, 100), GIVE_UP, Reason.COW_SHORT),
    ("made-never-settling", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-never-settling", OVER, None, START, Reason.MAX_WAIT),
    ("made-never-settling", PATIENCE_OF_ONE, cow_area(100_000, 100), START, Reason.PLATEAU),
    ("made-spiking", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-spiking-settled", LIMITS, None, START, Reason.PLATEAU),
    ("made-own-chunks", LIMITS, None, START, Reason.PLATEAU),
    ("made-own-chunks-fewer", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-own-chunks-fewer", OVER, None, START, Reason.MAX_WAIT),
    ("made-empty", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-empty-passive", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-one-sample", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-nan", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-nan", OVER, None, START, Reason.NO_DATA),
    ("made-nan-between", LIMITS, None, START, Reason.SETTLED),
    ("made-filling", LIMITS, cow_area(10_000), WAIT, Reason.SETTLING),
    ("made-filling", LIMITS, cow_area(2_000), START, Reason.COW_SHORT),
    ("made-filling", LIMITS, cow_area(1_000), GIVE_UP, Reason.COW_SHORT),
    ("made-filling", LIMITS, cow_area(180), GIVE_UP, Reason.LIMIT),  # 150 MiB are in use already
    ("made-passive-slow", LIMITS, None, WAIT, Reason.SETTLING),
    ("made-passive-slow-for-long", LIMITS, None, START, Reason.PLATEAU),
    ("made-passive-fast", LIMITS, None, START, Reason.SETTLED),
    ("made-passive-fast-but-hitting-fresh-chunks", HASTY, None, START, Reason.PLATEAU),
    ("made-passive-unknown-before", LIMITS, None, START, Reason.SETTLED),
    ("made-passive-nobody-writes", LIMITS, None, START, Reason.SETTLED),
]


@pytest.mark.parametrize(("name", "limits", "forecast", "outcome", "reason"), ROWS)
def test_each_series_has_its_verdict(
    name: str, limits: SettleLimits, forecast: CowForecast | None, outcome: GateOutcome, reason: Reason
) -> None:
    verdict = series(name).judged(limits, forecast)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict.detail
    assert verdict.detail


def test_every_series_is_in_the_table_and_says_where_it_is_from() -> None:
    names = {file.stem for file in FOLDER.glob("*.json")}
    assert names == {row[0] for row in ROWS}
    for name in names:
        how, _, _ = series(name).origin.partition(":")
        assert name.startswith(how)


def began_at(name: str, limits: SettleLimits, forecast: CowForecast | None = None) -> float | None:
    """When a gate that looks after every sample stops waiting."""
    found = series(name)
    verdicts = ((at, found.judged(limits, forecast, until=at)) for at in (s.at_seconds for s in found.samples))
    return next((at for at, verdict in verdicts if verdict.outcome is not WAIT), None)


def test_a_recorded_run_starts_when_it_did() -> None:
    assert began_at("recorded-settling", LIMITS) == pytest.approx(105.0, abs=0.2)
    assert began_at("recorded-passive", HASTY) == pytest.approx(30.3, abs=0.1)


def test_the_kernels_counters_see_a_settled_server_a_minute_before_a_probe_does() -> None:
    by_counters, by_probe = began_at("recorded-settling-passive", LIMITS), began_at("recorded-settling", LIMITS)
    assert by_counters is not None
    assert by_probe is not None
    assert by_probe - by_counters > 60


def test_a_wait_that_outlasts_the_copy_ends() -> None:
    assert began_at("recorded-settling", PATIENCE_OF_ONE, cow_area(836, 35)) == pytest.approx(35, abs=1)
    verdict = series("recorded-settling").judged(PATIENCE_OF_ONE, cow_area(836, 35), until=36)
    assert verdict.reason is Reason.PLATEAU
    assert "the copy takes about 35 s, waiting longer would not pay off" in verdict.detail
    assert "penalty" in verdict.detail


def test_a_wait_ends_where_the_copys_end_would_be_no_cheaper() -> None:
    steady, cow = [Sample(at, "settle", cow_used=0, cow_rate=2.0 * MIB) for at in range(30)], cow_area(100_000, 60)
    verdict = decide(steady, PATIENCE_OF_ONE, now_seconds=30, forecast=cow, probing=False)
    assert (verdict.outcome, verdict.reason) == (START, Reason.PLATEAU)
    assert "first writes will hardly drop during the copy (about 60 s), waiting would not pay off" in verdict.detail
    assert decide(steady[1:], PATIENCE_OF_ONE, now_seconds=30, forecast=cow, probing=False).outcome is WAIT
    assert decide(steady, LIMITS, now_seconds=30, forecast=cow, probing=False).outcome is WAIT  # no patience is set
    patient = replace(PATIENCE_OF_ONE, patience=3.0)
    assert decide(steady, patient, now_seconds=30, forecast=cow, probing=False).outcome is WAIT
    longer = cow_area(100_000, 120)  # a fall to half within two minutes shows later
    assert decide(steady, PATIENCE_OF_ONE, now_seconds=30, forecast=longer, probing=False).outcome is WAIT


Rate = Callable[[float], float]


def falling(half_life_seconds: float, *, floor: float = 0.0, after_seconds: float = 0.0, noise: float = 0.0) -> Rate:
    """A server's first writes that fall exponentially to a share of what they were; the noise is always the same."""
    numbers = random.Random(7)
    factors = [exp(numbers.gauss(0, noise)) for _ in range(2000)]

    def rate(at: float) -> float:
        fallen = 2 ** (-max(0.0, at - after_seconds) / half_life_seconds)
        return 20 * MIB * (floor + (1 - floor) * fallen) * factors[int(at)]

    return rate


def waited_before(copy_seconds: int, rate: Rate) -> int:
    cow = CowForecast(total=1 << 50, copy_seconds=copy_seconds)
    samples: list[Sample] = []
    while True:
        now = float(len(samples))
        samples.append(Sample(now, "settle", cow_used=0, cow_rate=rate(now)))
        verdict = decide(samples, PATIENCE_OF_ONE, now_seconds=now, forecast=cow, probing=False)
        if verdict.outcome is START:
            return int(now)


def beside_the_best(copy_seconds: int, rate: Rate) -> float:
    """What it costs to wait so long, beside the best wait in hindsight, where a first write in a copy costs twice."""
    paid = list(accumulate((rate(at) for at in range(600 + copy_seconds)), initial=0.0))

    def price(waited: int) -> float:
        return 2 * paid[waited + copy_seconds] - paid[waited]

    return price(waited_before(copy_seconds, rate)) / min(map(price, range(600)))


MADE = [
    *(falling(half_life, floor=floor) for half_life in (5, 15, 60, 100, 180, 300) for floor in (0.0, 0.02, 0.2, 0.6)),
    *(falling(half_life, after_seconds=40) for half_life in (10, 60)),
    *(falling(half_life, noise=0.3) for half_life in (15, 60, 180)),
]


@pytest.mark.thorough
def test_waiting_costs_little_more_than_the_best_wait_in_hindsight() -> None:
    """By a seventh on average: what falls slower than in the half minute that it takes to see it costs most."""
    prices = [beside_the_best(copy_seconds, rate) for rate in MADE for copy_seconds in (40, 60, 120, 300, 1200)]
    assert fmean(prices) <= 1.15
    assert max(prices) <= 1.65


def test_a_probe_that_still_falls_is_waited_for_and_a_server_that_writes_nothing_is_no_price() -> None:
    steady = [Sample(at, "settle", cow_used=0, cow_rate=2.0 * MIB) for at in range(50)]
    windows = [Sample(at + 0.5, "settle", ratio=8 - at / 10) for at in range(0, 50, 10)]
    samples = sorted([*steady, *windows], key=lambda sample: sample.at_seconds)
    verdict = decide(samples, PATIENCE_OF_ONE, now_seconds=50, forecast=cow_area(100_000, 100), probing=True)
    assert verdict.outcome is WAIT
    idle = [replace(sample, cow_rate=0.0 if sample.cow_rate is not None else None) for sample in samples]
    levelled = [replace(sample, ratio=3.0 if sample.ratio is not None else None) for sample in idle]
    verdict = decide(levelled, PATIENCE_OF_ONE, now_seconds=50, forecast=cow_area(100_000, 100), probing=True)
    assert verdict.outcome is WAIT


def test_a_short_copy_is_not_waited_for_once_a_probe_has_told_of_the_shock() -> None:
    recorded, cow = series("recorded-settling"), cow_area(836, 9)
    first = recorded.samples[0].at_seconds
    assert recorded.judged(PATIENCE_OF_ONE, cow, until=first / 2).outcome is GateOutcome.WAIT
    verdict = recorded.judged(PATIENCE_OF_ONE, cow, until=first)
    assert verdict.reason is Reason.PLATEAU
    assert "the copy takes about 9 s, waiting would not pay off" in verdict.detail
    assert "× the baseline" in verdict.detail


def test_a_short_copy_without_a_probe_is_not_waited_for_at_all() -> None:
    verdict = series("recorded-passive").judged(PATIENCE_OF_ONE, cow_area(836, 9), until=0.0)
    assert (verdict.outcome, verdict.reason, verdict.waited_seconds) == (GateOutcome.START, Reason.PLATEAU, 0.0)
    assert verdict.detail == "the copy takes about 9 s, waiting would not pay off"


@pytest.mark.parametrize(
    ("name", "limits", "said"),
    [
        ("made-own-chunks", LIMITS, True),
        ("made-own-chunks-fewer", LIMITS, True),
        ("made-own-chunks-fewer", OVER, True),
        ("made-plateau", LIMITS, False),
        ("made-settling", LIMITS, False),
        ("recorded-settling", LIMITS, False),
    ],
)
def test_a_probe_that_has_settled_only_its_own_chunks_is_called_so(name: str, limits: SettleLimits, said: bool) -> None:
    verdict = series(name).judged(limits)
    assert (OWN_CHUNKS in verdict.detail) is said
    assert not said or verdict.reason is not Reason.SETTLED


def test_what_everybodys_writes_take_is_said_where_it_compares() -> None:
    assert "average write latency is 3.00× the baseline" in series("made-passive-slow").judged(LIMITS).detail
    assert "write latency" not in series("made-passive-unknown-before").judged(LIMITS).detail
