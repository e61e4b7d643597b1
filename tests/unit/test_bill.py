"""The bill from recorded series: what a server lost, and when nobody can say."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from backupd.policy.bill import Count, copied_on_write, losses, penalty_seconds
from backupd.vocabulary.penalty import Counted, Losses, Sample

CLOSED_BEFORE = (108, 118, 97, 112, 115, 104, 110, 116)  # transactions in each second, four writers, nothing else
CLOSED_DURING = (0, 61, 70, 74, 66, 81, 78, 83, 74, 69, 80, 77, 84, 79, 71, 82, 88, 79, 85, 90)


def counts(done: Iterable[int], *, at: float = 0.0, step: float = 1.0, base: int = 5000) -> list[Count]:
    """One look more than there are figures; every transaction is a COMMIT after four writing statements."""
    totals = accumulate(done, initial=base)
    return [
        Count(at + step * number, 7000 + int(at + step * number), total, total, 4 * total)
        for number, total in enumerate(totals)
    ]


def series(before: Sequence[int], during: Sequence[int]) -> tuple[list[Count], list[Count]]:
    """The second begins with the look that the first ends with."""
    first = counts(before)
    return first, counts(during, at=first[-1].at, base=first[-1].logged)


def found(before: Sequence[Count], during: Sequence[Count], after: Sequence[Count] = ()) -> Losses:
    answer = losses(before, during, after)
    assert answer is not None
    return answer


def test_a_closed_loop_lost_what_it_did_not_do() -> None:
    one = found(*series(CLOSED_BEFORE, CLOSED_DURING))
    assert (one.counted, one.rate_before, one.seconds, one.done) == (Counted.LOGGED, 110, 20, sum(CLOSED_DURING))
    assert one.lost == one.expected - one.done == 2200 - sum(CLOSED_DURING)
    assert 0 < one.noise < 0.25 * one.lost


def test_a_fixed_rate_that_is_kept_up_has_lost_nothing_that_can_be_told() -> None:
    one = found(*series((85, 86, 84, 85, 85, 84), (60, 110, *(84, 86, 85) * 8)))
    assert one.lost == 0
    assert one.expected - one.done == pytest.approx(0, abs=20)


def test_a_server_that_did_more_than_before_has_lost_nothing() -> None:
    assert found(*series(CLOSED_BEFORE, [160] * 20)).lost == 0


def test_an_idle_server_has_nothing_to_lose() -> None:
    one = found(*series((0, 0, 1, 0, 0), [0] * 20))
    assert (one.rate_before, one.lost) == (0.2, 0)


def test_gaps_between_looks_lose_no_count() -> None:
    before, during = series(CLOSED_BEFORE, CLOSED_DURING)
    whole, gappy = found(before, during), found(before, [during[0], *during[5:7], during[-1]])
    assert (gappy.done, gappy.seconds, gappy.lost) == (whole.done, whole.seconds, whole.lost)


def test_the_steps_around_a_restart_are_left_out() -> None:
    before, during = series(CLOSED_BEFORE, [50] * 20)
    restarted = [replace(one, uptime_seconds=int(one.at) - 17, logged=one.logged - 5000) for one in during[10:]]
    one = found(before, during[:10] + restarted)
    assert (one.seconds, one.done) == (19, 19 * 50)


def test_a_restart_that_has_counted_further_than_before_is_seen_by_the_uptime() -> None:
    before, during = series((10,) * 8, [10] * 20)
    restarted = [replace(one, uptime_seconds=1, logged=one.logged + 100) for one in during[10:11]]
    assert found(before, during[:10] + restarted).seconds == 9


def test_counters_that_stand_still_are_not_taken_for_a_stall() -> None:
    before, during = series(CLOSED_BEFORE, [70] * 4)
    frozen = [replace(during[-1], at=during[-1].at + more) for more in (5.0, 10.0)]
    assert found(before, [*during, *frozen]).seconds == 4


def test_a_stall_is_no_frozen_counter() -> None:
    one = found(*series(CLOSED_BEFORE, [70] * 4 + [0] * 6))
    assert (one.seconds, one.done) == (10, 280)


@pytest.mark.parametrize("where", ["before", "during"])
def test_a_counter_that_jumps_makes_no_rate(where: str) -> None:
    before, during = series(CLOSED_BEFORE, CLOSED_DURING)
    series_of = {"before": before, "during": during}
    series_of[where][4:] = [replace(one, logged=one.logged + 10**9) for one in series_of[where][4:]]
    one = found(before, during)
    assert one.rate_before == pytest.approx(110, rel=0.02)
    assert one.lost == pytest.approx(710, rel=0.25)


def test_of_too_few_looks_before_nothing_is_told() -> None:
    before, during = series(CLOSED_BEFORE, CLOSED_DURING)
    assert losses(before[:3], during) is None
    assert losses(before, during[:1]) is None
    assert losses((), ()) is None


def test_longer_looks_before_make_an_estimate_surer() -> None:
    short, long = found(*series(CLOSED_BEFORE, CLOSED_DURING)), found(*series(CLOSED_BEFORE * 8, CLOSED_DURING))
    assert long.noise < 0.8 * short.noise


def test_how_the_server_went_on_is_told_beside() -> None:
    before, during = series(CLOSED_BEFORE, CLOSED_DURING)
    after = counts([104] * 5, at=during[-1].at, base=during[-1].logged)
    assert found(before, during, after).rate_after == 104
    assert found(before, during, after[:2]).rate_after is None


def without_binlog(counted: Iterable[Count], *, commits: bool) -> Iterator[Count]:
    for one in counted:
        yield replace(one, logged=0, commits=one.commits if commits else 0)


@pytest.mark.parametrize(("commits", "counted", "each"), [(True, Counted.COMMITS, 1), (False, Counted.STATEMENTS, 4)])
def test_without_a_binlog_clients_tell_by_what_they_send(commits: bool, counted: Counted, each: int) -> None:
    before, during = series(CLOSED_BEFORE, CLOSED_DURING)
    one = found(list(without_binlog(before, commits=commits)), list(without_binlog(during, commits=commits)))
    assert (one.counted, one.done) == (counted, each * sum(CLOSED_DURING))


def test_a_few_commits_among_many_writes_do_not_hide_the_writes() -> None:
    rare = [Count(one.at, one.uptime_seconds, 0, one.commits // 50, one.statements) for one in counts(CLOSED_BEFORE)]
    assert found(rare, rare).counted is Counted.STATEMENTS


# --- what the snapshot's life cost -----------------------------------------------------------------------------------

BASELINE = Sample(-1.0, "baseline", iops=400.0, write_latency_ms=5.0)


def test_penalty_is_what_could_not_be_written_over_the_snapshots_life() -> None:
    seen = [
        Sample(2.0, "settle", iops=100.0, ratio=4.0),
        Sample(4.0, "settle", write_latency_ms=50.0),
        Sample(10.0, "copy", iops=200.0, ratio=2.0),
        Sample(20.0, "copy", iops=500.0, ratio=0.8),
    ]
    assert penalty_seconds([BASELINE, *seen], 30.0) == pytest.approx(10 * 0.75 + 10 * 0.5)


def test_without_a_probe_the_penalty_follows_what_everybodys_writes_took() -> None:
    seen = [
        Sample(1.0, "settle", write_latency_ms=10.0),
        Sample(2.0, "settle"),
        Sample(5.0, "copy", write_latency_ms=4),
    ]
    assert penalty_seconds([BASELINE, *seen], 10.0) == pytest.approx(5 * 0.5)


def test_a_penalty_that_nobody_measured_is_none() -> None:
    assert penalty_seconds([BASELINE, Sample(1.0, "settle")], 10.0) is None
    assert penalty_seconds([Sample(1.0, "settle", write_latency_ms=10.0)], 10.0) is None


def test_all_of_a_cow_area_is_the_snapshots_and_of_a_pool_what_it_grew_by() -> None:
    seen = [
        Sample(at, "copy", cow_used=used) for at, used in ((1.0, 100), (2.0, 300), (3.0, None), (4.0, 250), (5.0, 400))
    ]
    assert copied_on_write(seen, pooled=False) == 100 + 200 + 150
    assert copied_on_write(seen, pooled=True) == 200 + 150
    assert copied_on_write([BASELINE], pooled=False) is None
