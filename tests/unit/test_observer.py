"""The observer: what it sees of a host that changes while it looks, and how it lets go. Its clock is the test's."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from backupd.load import WriteProbe
from backupd.load.baseline import Baseline, PassiveMeter, measure_baseline, watch_baseline
from backupd.load.observer import Observer
from backupd.policy.settle_gate import COW_AREA, OWN_CHUNKS, Area, SettleLimits
from backupd.vocabulary.errors import CommandError, GaveUp, ServerError, SnapshotError, SnapshotVoid
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.penalty import GateOutcome, Reason, Verdict, Window
from backupd.vocabulary.volumes import CowUsage
from tests.fakes.probe import FakeProbe
from tests.settle_limits import settle_limits

MIB = 1 << 20


class Host:
    """A host in which only the clock moves, and what the test lets happen as it does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.used = 0.0
        self.server_rate = 0.0  # bytes a second of first writes
        self.chunks_of_probe = 0.0  # bytes a second of first writes while a window runs
        self.total = 1000 * MIB
        self.intact = True
        self.metadata_fill = 0.0
        self.lag: float | None = None
        self.lag_reads: list[float] = []
        self.server_up = True
        self.usage_error: Exception | None = None
        self.writes_a_second = 100.0  # of everybody's, to the origin
        self.milliseconds = 5.0  # that each of them takes
        self.usual_milliseconds: float | None = None  # in the baseline
        self.counted = DiskCounters()
        self.counters_error: Exception | None = None

    def clock(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.used += self.server_rate * seconds
        writes = round(self.writes_a_second * seconds)
        waited = self.counted.write_seconds + writes * self.milliseconds / 1000
        self.counted = replace(self.counted, writes=self.counted.writes + writes, write_seconds=waited)

    def counters(self) -> DiskCounters:
        if self.counters_error is not None:
            raise self.counters_error
        return self.counted

    def window(self, seconds: float) -> None:
        self.passes(seconds)
        self.used += self.chunks_of_probe * seconds

    def usage(self) -> CowUsage:
        if self.usage_error is not None:
            raise self.usage_error
        state = "active" if self.intact else "Overflow"
        return CowUsage(self.intact, int(self.used), self.total, state=state, metadata_fill=self.metadata_fill)

    def replica_lag(self) -> float | None:
        self.lag_reads.append(self.now)
        if not self.server_up:
            raise ServerError("server has gone away")
        return self.lag


class RunningClock(Host):
    """A host whose clock runs by itself, half a second whenever somebody looks: a thread needs no patience then."""

    def clock(self) -> float:
        self.passes(0.5)
        return self.now


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".backupd-probe-run1"


def probe_at(host: Host, folder: Path, *iops: float) -> FakeProbe:
    probe = FakeProbe(iops=iops, during_window=host.window)
    probe.prepare(folder)
    return probe


def observer_of(
    host: Host,
    folder: Path,
    probe: WriteProbe | None = None,
    limits: SettleLimits | None = None,
    area: Area = COW_AREA,
    extend: Callable[[int, int], int] | None = None,
    growth: int = 0,
    **more: float,
) -> Observer:
    return Observer(
        probe=probe,
        folder=folder,
        baseline=Baseline(100.0 if probe is not None else None, 0.0, 0, (), host.usual_milliseconds),
        meter=PassiveMeter(host.counters),
        read_usage=host.usage,
        read_lag=host.replica_lag,
        limits=limits or settle_limits(max_wait_seconds=600, max_cow_fill=0.8),
        area=area,
        extend=extend,
        growth=growth,
        clock=host.clock,
        window_seconds=2.0,
        **{"duty": 0.1, "tick_seconds": 0.0, **more},
    )


def tick(observer: Observer, host: Host, times: int = 1) -> None:
    for _ in range(times):
        host.passes(1)
        observer.observe()


# --- the baseline ----------------------------------------------------------------------------------------------------


def test_a_baseline_is_the_median_of_its_windows_and_lies_before_the_snapshot(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 90.0, 300.0, 100.0)
    baseline = measure_baseline(probe, folder, windows=3, seconds=2.0, clock=host.clock)
    assert baseline.iops == 100.0
    assert baseline.spread == pytest.approx(2.1)
    assert [sample.at_seconds for sample in baseline.samples] == [-4.0, -2.0, 0.0]
    assert {sample.stage for sample in baseline.samples} == {"baseline"}
    assert {sample.ratio for sample in baseline.samples} == {None}
    assert baseline.bytes_written == sum(sample.probe_bytes for sample in baseline.samples) > 0


def test_a_baseline_without_a_single_write_is_an_error(host: Host, folder: Path) -> None:
    with pytest.raises(CommandError, match="no write to the probe file in"):
        measure_baseline(probe_at(host, folder, 0.0), folder, windows=2, seconds=1.0, clock=host.clock)


def test_a_baseline_without_a_probe_is_what_everybodys_writes_take(host: Host) -> None:
    host.milliseconds = 4.0

    def pause(seconds: float) -> None:
        host.passes(seconds)
        host.milliseconds *= 2

    baseline = watch_baseline(PassiveMeter(host.counters), looks=3, seconds=2.0, clock=host.clock, pause=pause)
    assert (baseline.iops, baseline.bytes_written) == (None, 0)
    assert baseline.write_latency_ms == pytest.approx(8.0)
    assert [sample.at_seconds for sample in baseline.samples] == [-4.0, -2.0, 0.0]
    assert [sample.write_latency_ms for sample in baseline.samples] == pytest.approx([4.0, 8.0, 16.0])
    assert {(sample.stage, sample.iops) for sample in baseline.samples} == {("baseline", None)}


def test_a_baseline_of_windows_knows_what_everybodys_writes_took_meanwhile(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 100.0)
    meter = PassiveMeter(host.counters)
    host.passes(50)
    host.milliseconds = 7.0
    baseline = measure_baseline(probe, folder, windows=2, seconds=2.0, meter=meter, clock=host.clock)
    assert baseline.write_latency_ms == pytest.approx(7.0)
    assert [sample.write_latency_ms for sample in baseline.samples] == pytest.approx([7.0, 7.0])


def test_a_baseline_of_a_server_that_writes_nothing_has_no_latency(host: Host) -> None:
    host.writes_a_second = 0.0
    watched = watch_baseline(PassiveMeter(host.counters), looks=2, seconds=1.0, clock=host.clock, pause=host.passes)
    assert watched.write_latency_ms is None
    assert len(watched.samples) == 2


# --- what a sample says ----------------------------------------------------------------------------------------------


def test_the_first_look_measures_the_shock(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, probe_at(host, folder, 20.0))
    observer.observe()
    (sample,) = observer.samples
    assert (sample.at_seconds, sample.stage, sample.iops, sample.ratio) == (2.0, "settle", 20.0, 5.0)
    assert sample.latency_p95_ms is not None
    assert sample.probe_bytes == 40 * (16 << 10)


def test_the_probe_writes_no_more_than_its_share_of_the_time(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 50.0)
    observer = observer_of(host, folder, probe, duty=0.1)
    tick(observer, host, 200)
    assert probe.windows * 2.0 / (host.now - 1000.0) <= 0.11
    assert probe.windows >= 9


def test_a_window_that_overran_lengthens_the_pause(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 50.0)
    probe.during_window = lambda seconds: host.window(seconds * 10)
    observer = observer_of(host, folder, probe, duty=0.1)
    tick(observer, host, 150)
    assert probe.windows == 1


def test_first_writes_of_the_probe_are_not_taken_for_the_servers(host: Host, folder: Path) -> None:
    host.server_rate, host.chunks_of_probe = 3.0 * MIB, 50.0 * MIB
    observer = observer_of(host, folder, probe_at(host, folder, 50.0))
    tick(observer, host, 50)
    rates = [sample.cow_rate for sample in observer.samples if sample.cow_rate is not None]
    assert rates == pytest.approx([3.0 * MIB] * len(rates))
    assert len(rates) > 40
    assert all(sample.cow_rate is None for sample in observer.samples if sample.iops is not None)


def test_each_sample_says_what_everybodys_writes_took_since_the_last(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder)
    for host.milliseconds in (4.0, 12.0, 6.0):
        tick(observer, host)
    host.writes_a_second = 0.0
    tick(observer, host)
    assert [sample.write_latency_ms for sample in observer.samples] == [None, pytest.approx(12), pytest.approx(6), None]


def test_what_writes_take_during_a_window_is_told_of_the_window_alone(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 50.0)

    def window(seconds: float) -> None:
        host.milliseconds = 20.0
        host.passes(seconds)
        host.milliseconds = 5.0

    probe.during_window = window
    observer = observer_of(host, folder, probe, duty=0.5)
    tick(observer, host, 10)
    told = {sample.iops is not None: sample.write_latency_ms for sample in observer.samples}
    assert told == {True: pytest.approx(20.0), False: pytest.approx(5.0)}


def test_a_window_without_a_single_write_counts_as_one_at_best(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, probe_at(host, folder, 0.0))
    observer.observe()
    (sample,) = observer.samples
    assert (sample.iops, sample.ratio) == (0.0, 200.0)


def test_the_stage_is_the_storys_to_say(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder)
    tick(observer, host)
    observer.stage = "copy"
    tick(observer, host)
    assert [sample.stage for sample in observer.samples] == ["settle", "copy"]


def test_the_peak_of_the_cow_area_is_kept(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder)
    assert observer.cow_peak is None
    for host.used in (5, 9, 7):
        tick(observer, host)
    assert observer.cow_peak == 9


def test_the_lag_is_asked_for_every_five_seconds(host: Host, folder: Path) -> None:
    host.lag = 7.0
    observer = observer_of(host, folder)
    tick(observer, host, 20)
    assert [later - earlier for earlier, later in zip(host.lag_reads, host.lag_reads[1:], strict=False)] == [5, 5, 5]
    assert [sample.replica_lag_seconds for sample in observer.samples[:6]] == [7.0, None, None, None, None, 7.0]


def test_a_server_that_does_not_answer_is_asked_more_and_more_seldom_until_it_does(host: Host, folder: Path) -> None:
    """Whoever asks waits for its time-out, and watches nothing else meanwhile."""
    host.server_up = False
    observer = observer_of(host, folder)
    tick(observer, host, times=200)
    asked = [round(later - earlier) for earlier, later in zip(host.lag_reads, host.lag_reads[1:], strict=False)]
    assert asked == [10, 20, 40, 60, 60]
    host.server_up = True
    tick(observer, host, times=70)
    assert host.lag_reads[-1] - host.lag_reads[-2] == 5


# --- what may fail ---------------------------------------------------------------------------------------------------


def test_a_server_that_stops_after_the_unlock_does_not_end_the_watch(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder)
    tick(observer, host)
    host.server_up = False
    tick(observer, host, 11)
    assert len(observer.samples) == 12
    assert len(observer.trouble) == 1
    assert "gone away" in observer.trouble[0]
    observer.require_within_limits()
    host.server_up = True
    tick(observer, host, 5)
    assert len(observer.trouble) == 1  # what was, is told; that it is over is not


def test_after_a_probe_that_failed_the_cow_area_decides_alone(host: Host, folder: Path) -> None:
    probe = probe_at(host, folder, 20.0)
    probe.fail_at_call = 3  # prepare, one window, and then
    observer = observer_of(host, folder, probe)
    tick(observer, host, 60)
    assert probe.calls == 3
    assert len(observer.samples) == 60
    assert "told to fail" in " ".join(observer.trouble)
    verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.SETTLED)


def test_a_fill_that_cannot_be_read_for_a_while_leaves_a_gap_and_no_false_rate(host: Host, folder: Path) -> None:
    host.server_rate = 1.0 * MIB
    observer = observer_of(host, folder)
    tick(observer, host, 2)
    host.usage_error = SnapshotError("dmsetup failed")
    tick(observer, host, 2)
    host.usage_error = None
    tick(observer, host, 2)
    assert [sample.cow_rate for sample in observer.samples] == [None, MIB, None, None, None, MIB]
    assert len(observer.trouble) == 1


def test_counters_that_cannot_be_read_leave_the_fill_to_decide(host: Host, folder: Path) -> None:
    host.usual_milliseconds, host.milliseconds = 4.0, 40.0
    host.counters_error = CommandError("no such device")
    observer = observer_of(host, folder)
    tick(observer, host, 10)
    assert {sample.write_latency_ms for sample in observer.samples} == {None}
    assert len(observer.trouble) == 1
    assert "no such device" in observer.trouble[0]
    assert observer.wait_for_verdict().reason is Reason.SETTLED


def test_a_baseline_taken_with_a_probe_is_not_compared_with_looks_without_one(host: Host, folder: Path) -> None:
    host.usual_milliseconds, host.milliseconds = 4.0, 40.0
    probe = probe_at(host, folder, 20.0)
    probe.fail_at_call = 2
    observer = observer_of(host, folder, probe)
    tick(observer, host, 10)
    verdict = observer.wait_for_verdict()
    assert verdict.reason is Reason.SETTLED
    assert "write latency" not in verdict.detail


@pytest.mark.parametrize("how", ["not intact", "raised"])
def test_a_void_snapshot_ends_the_run(host: Host, folder: Path, how: str) -> None:
    observer = observer_of(host, folder)
    tick(observer, host)
    observer.require_within_limits()
    if how == "raised":
        host.usage_error = SnapshotVoid("it is gone")
    host.intact = False
    tick(observer, host)
    for ask in (observer.require_within_limits, observer.wait_for_verdict):
        with pytest.raises(SnapshotVoid, match=r"gone|Overflow"):
            ask()


# --- limits and the verdict ------------------------------------------------------------------------------------------


def test_a_limit_that_is_passed_in_the_copy_gives_up_even_if_it_was_for_a_moment(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, limits=settle_limits(max_replica_lag_seconds=60))
    observer.stage = "copy"
    host.lag = 60.0
    tick(observer, host)
    observer.require_within_limits()
    host.lag = 61.0
    tick(observer, host, 5)
    host.lag = 0.0
    tick(observer, host, 5)
    with pytest.raises(GaveUp, match="replica lag is 61 s"):
        observer.require_within_limits()


def test_a_cow_area_that_fills_up_while_copying_gives_up(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.5))
    observer.stage = "copy"
    host.server_rate = 10.0 * MIB
    tick(observer, host, 50)
    observer.require_within_limits()
    tick(observer, host)
    with pytest.raises(GaveUp, match="the COW area is 51% full") as caught:
        observer.require_within_limits()
    assert "raise snapshot.size" in caught.value.hint


def test_a_cow_area_is_extended_before_its_fill_is_judged(host: Host, folder: Path) -> None:
    asked: list[tuple[int, int]] = []

    def extend(total: int, wanted: int) -> int:
        asked.append((total // MIB, wanted // MIB))
        assert observer.samples[-1].cow_used == 700 * MIB  # it is told already, whatever becomes of it
        observer.require_within_limits()  # nobody gives up meanwhile
        assert observer._verdict().outcome is GateOutcome.WAIT
        host.total = wanted
        return wanted - total

    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.5), extend=extend)
    observer.stage = "copy"
    tick(observer, host)
    host.used = 700.0 * MIB  # all at once, far beyond the limit
    tick(observer, host, 5)
    observer.require_within_limits()
    assert asked == [(1000, 1866)]
    assert observer.cow_added == host.total - 1000 * MIB
    assert observer.trouble == ()


def test_an_extension_that_takes_long_holds_the_limit_off_for_a_while_only(host: Host, folder: Path) -> None:
    given_up: list[float] = []

    def extend(_total: int, _wanted: int) -> int:
        for second in range(60):
            host.passes(1)
            try:
                observer.require_within_limits()
            except GaveUp:
                given_up.append(second)
                break
        return 0

    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.9), extend=extend)
    host.used = 950.0 * MIB
    tick(observer, host)
    assert 10 <= given_up[0] <= 20


def test_nothing_is_extended_for_a_run_that_is_over(host: Host, folder: Path) -> None:
    def extend(_total: int, _wanted: int) -> int:
        raise AssertionError("extended")

    host.used, host.lag = 950.0 * MIB, 100.0
    late = observer_of(host, folder, limits=settle_limits(max_replica_lag_seconds=1), extend=extend)
    tick(late, host, 3)
    host.lag = None
    left = observer_of(host, folder, extend=extend)
    left._end()
    tick(left, host, 3)
    host.intact = False
    void = observer_of(host, folder, extend=extend)
    tick(void, host, 3)


def test_a_gate_counts_on_the_room_that_the_area_can_be_extended_by(host: Host, folder: Path) -> None:
    """What is forecast for the copy would pass the limit of today's area, and not that of what it can become."""
    host.server_rate = 2.0 * MIB

    def decided(growth: int) -> Verdict:
        observer = observer_of(
            host, folder, extend=lambda total, wanted: wanted - total, growth=growth * MIB, copy_seconds=600.0
        )
        host.used = 0.0
        tick(observer, host, 12)
        return observer._verdict()

    assert (decided(0).outcome, decided(1000).outcome) == (GateOutcome.GIVE_UP, GateOutcome.WAIT)


def test_where_there_is_no_room_the_limit_stays_and_room_is_looked_for_each_minute(host: Host, folder: Path) -> None:
    asked: list[float] = []

    def extend(_total: int, _wanted: int) -> int:
        asked.append(host.now)
        return 0

    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.9), extend=extend)
    host.used = 850.0 * MIB
    tick(observer, host, 70)
    observer.require_within_limits()
    assert [round(at - asked[0]) for at in asked] == [0, 60]
    host.used = 901.0 * MIB
    tick(observer, host)
    with pytest.raises(GaveUp, match="the COW area is 90% full"):
        observer.require_within_limits()
    assert observer.trouble == ()


def test_an_extension_that_fails_is_tried_again_after_a_minute_and_after_two(host: Host, folder: Path) -> None:
    asked: list[float] = []
    fails = True

    def extend(total: int, wanted: int) -> int:
        asked.append(host.now)
        if fails:
            raise SnapshotError("vg/snap could not be extended: as told")
        host.total = wanted
        return wanted - total

    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.9), extend=extend)
    host.used = 850.0 * MIB
    tick(observer, host, 400)
    assert [round(at - asked[0]) for at in asked] == [0, 60, 180]
    told = "the COW area was filling up and could not be extended: vg/snap could not be extended: as told"
    assert observer.trouble == (told,)

    asked.clear()
    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.9), extend=extend)
    tick(observer, host)
    assert observer.trouble == (told,)
    fails = False
    tick(observer, host, 70)
    assert len(asked) == 2
    assert not observer.trouble


POOL = Area("thin pool labvg/pool", "extend the pool")


@pytest.mark.parametrize("stage", ["settle", "copy"])
def test_a_pool_that_runs_out_of_metadata_gives_up_long_before(host: Host, folder: Path, stage: str) -> None:
    observer = observer_of(host, folder, area=POOL)
    observer.stage = stage
    host.metadata_fill = 0.9
    tick(observer, host)
    observer.require_within_limits()
    host.metadata_fill = 0.91
    tick(observer, host)
    words = "the metadata of thin pool labvg/pool is 91% full, the limit is 90%"
    assert observer.wait_for_verdict().detail == words
    with pytest.raises(GaveUp, match=words) as caught:
        observer.require_within_limits()
    assert "extend the pool" in caught.value.hint


def test_what_is_said_of_a_pool_is_not_said_of_a_cow_area(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, limits=settle_limits(max_cow_fill=0.5), area=POOL)
    host.used = 600.0 * MIB
    tick(observer, host)
    with pytest.raises(GaveUp, match="thin pool labvg/pool is 60% full"):
        observer.require_within_limits()
    host.intact = False
    tick(observer, host)
    with pytest.raises(SnapshotVoid) as caught:
        observer.require_within_limits()
    assert caught.value.hint == (
        "thin pool labvg/pool was probably too small for the writes during the backup: extend the pool"
    )


def test_the_penalty_limit_gives_up_before_the_copy(host: Host, folder: Path) -> None:
    observer = observer_of(host, folder, probe_at(host, folder, 10.0), settle_limits(max_penalty=8))
    tick(observer, host, 19)
    verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.GIVE_UP, Reason.LIMIT)
    assert "10.0× slower" in verdict.detail


def test_the_forecast_knows_how_long_the_last_copy_took(host: Host, folder: Path) -> None:
    host.server_rate = 10.0 * MIB
    verdicts = []
    for copy_seconds in (10.0, 500.0):
        host.used = 0
        observer = observer_of(host, folder, copy_seconds=copy_seconds)
        tick(observer, host, 15)
        verdicts.append(observer.wait_for_verdict())
    assert [verdict.reason for verdict in verdicts] == [Reason.COW_SHORT, Reason.COW_SHORT]
    assert [verdict.outcome for verdict in verdicts] == [GateOutcome.START, GateOutcome.GIVE_UP]


def test_without_a_probe_it_starts_when_everybodys_writes_are_as_fast_as_before(folder: Path) -> None:
    host = RunningClock()
    host.usual_milliseconds, host.milliseconds, host.server_rate = 4.0, 12.0, 2.0 * MIB
    recovers = host.now + 40

    def usage() -> CowUsage:
        if host.now >= recovers:
            host.milliseconds, host.server_rate = 4.1, 0.0
        return Host.usage(host)

    host.usage = usage  # type: ignore[method-assign]
    with observer_of(host, folder) as observer:
        verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.SETTLED)
    assert verdict.waited_seconds >= 40
    assert "average write latency is 1.0" in verdict.detail


def test_a_probe_that_settles_only_its_own_chunks_is_called_so_in_the_verdict(host: Host, folder: Path) -> None:
    host.server_rate = 2.0 * MIB
    observer = observer_of(host, folder, probe_at(host, folder, 40.0, 98.0))
    tick(observer, host, 120)
    verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.PLATEAU)
    assert OWN_CHUNKS in verdict.detail


# --- the thread ------------------------------------------------------------------------------------------------------


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("observer")]


def test_it_watches_until_the_gate_opens_and_leaves_no_thread(folder: Path) -> None:
    host = RunningClock()
    probe = FakeProbe(iops=(20.0, 40.0, 80.0, 95.0, 95.0, 95.0))
    probe.prepare(folder)
    with observer_of(host, folder, probe) as observer:
        verdict = observer.wait_for_verdict()
        assert threads() != []
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.SETTLED)
    ratios = [sample.ratio for sample in observer.samples if sample.ratio is not None]
    assert ratios[:4] == pytest.approx([100 / 20, 100 / 40, 100 / 80, 100 / 95])
    assert threads() == []


def test_without_any_measurement_it_starts_at_the_maximum_wait(folder: Path) -> None:
    host = RunningClock()
    host.usage_error = SnapshotError("no dmsetup here")
    with observer_of(host, folder, limits=settle_limits(max_wait_seconds=30)) as observer:
        verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.START, Reason.NO_DATA)
    assert verdict.waited_seconds >= 30


def test_the_copy_stops_when_nobody_watches_any_more(host: Host, folder: Path) -> None:
    host.usage_error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError), observer_of(host, folder) as observer:
        observer.wait_for_verdict()
    with pytest.raises(ZeroDivisionError), observer_of(host, folder):
        pass
    assert threads() == []


def test_the_first_error_is_not_hidden_by_the_observers_own(host: Host, folder: Path) -> None:
    host.usage_error = ZeroDivisionError("a bug")
    with pytest.raises(KeyError), observer_of(host, folder):
        raise KeyError("the story's own")


def test_a_signal_that_raises_breaks_the_wait_promptly(host: Host, folder: Path) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    def watch() -> None:
        with observer_of(host, folder, tick_seconds=3600.0) as observer:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            observer.wait_for_verdict()

    before = signal.signal(signal.SIGALRM, stop)
    began = time.monotonic()
    try:
        with pytest.raises(InterruptedError):
            watch()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 60  # of an hour
    assert threads() == []


class EndlessProbe:
    """A probe on a stalled disk: its window ends when it is interrupted, and not before."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self._interrupted = threading.Event()

    def prepare(self, folder: Path) -> int:
        return 0

    def window(self, folder: Path, seconds: float) -> Window:
        self.began.set()
        assert self._interrupted.wait(30), "nobody interrupted the window"
        raise CommandError("the probe was interrupted")

    def interrupt(self) -> None:
        self._interrupted.set()

    def remove(self, folder: Path) -> None:
        pass


def test_leaving_does_not_wait_for_a_window_and_calls_it_no_trouble(host: Host, folder: Path) -> None:
    probe = EndlessProbe()
    with observer_of(host, folder, probe) as observer:
        assert probe.began.wait(30)
    assert observer.trouble == ()
    assert threads() == []


def test_what_is_read_while_it_watches_is_whole(folder: Path) -> None:
    host = RunningClock()
    with observer_of(host, folder, limits=settle_limits(max_wait_seconds=100_000)) as observer:
        read: list[Callable[[], object]] = [lambda: observer.samples, lambda: observer.trouble]
        seen = 0
        while seen < 200:
            for each in read:
                each()
            instants = [sample.at_seconds for sample in observer.samples]
            assert instants == sorted(instants)
            seen = len(instants)


def test_what_the_snapshot_costs_before_the_copy_counts_in_the_jobs_budget(host: Host, folder: Path) -> None:
    limits = settle_limits(max_wait_seconds=600, max_penalty_seconds=5)
    observer = observer_of(host, folder, probe_at(host, folder, 10.0), limits)
    tick(observer, host, 19)  # nine tenths of each second
    verdict = observer.wait_for_verdict()
    assert (verdict.outcome, verdict.reason) == (GateOutcome.GIVE_UP, Reason.LIMIT)
    assert "s of writing, the limit is 5 s" in verdict.detail
