"""What a night takes of its targets and clusters: slots, rates, time; and what it leaves undone."""

from datetime import datetime, time, timedelta
from typing import Any

import pytest

from backupd.policy.fleet_plan import NotOwed, SharedTarget
from backupd.policy.fleet_timetable import PlannedRun, lower_bound_seconds, timetable_of
from backupd.vocabulary.fleet import Span
from backupd.vocabulary.schedule import Blackout
from tests.fleets import ALL_DAYS, NIGHT, replica, seen, source, terms
from tests.unit.test_fleet_plan import CLOSES, HOUR, NAS, OPENS, owed, plan

NOON = OPENS - 9 * HOUR
MIB = 1 << 20


@pytest.mark.parametrize(
    ("max_rate", "slots", "of_one"), [(None, 2, None), (400, 4, 100), (401, 4, 100), (3, 4, 1), (0, 4, 1), (5, 1, 5)]
)
def test_all_slots_together_stay_within_the_targets_rate(max_rate: int | None, slots: int, of_one: int | None) -> None:
    assert SharedTarget("nas1", slots, max_rate).rate_of_one == of_one


def test_a_run_takes_no_less_than_its_bytes_at_its_rate_nor_less_than_it_took_before() -> None:
    told = {"db1": seen("db1", source(expected_bytes=100 * MIB, expected_seconds=1800.0))}
    (slow,) = plan(terms("a", "db1"), told=told, targets={"nas1": SharedTarget("nas1", 1, 10000)}).owed
    assert (slow.max_rate, slow.expected_seconds) == (10000, 100 * MIB / 10000)
    (fast,) = plan(terms("a", "db1"), told=told, targets={"nas1": SharedTarget("nas1", 1, 1 << 40)}).owed
    assert (fast.max_rate, fast.expected_seconds) == (1 << 40, 1800.0)


def test_a_host_that_nobody_foresaw_costs_its_own_cluster_the_night_and_no_other() -> None:
    naive = datetime(2026, 11, 25)  # what no host may tell
    told = {"db1": seen("db1", source(last_good_at=naive)), "db2": seen("db2", source())}
    made = plan(terms("a", "db1", "db3"), terms("b", "db2"), terms("c", "db1", "db2", every_member=True), told=told)
    assert [(one.cluster, one.only) for one in made.owed] == [("b", ""), ("c", "db2")]
    said = (
        "backupd could not plan it, which is a bug in it: TypeError: can't compare offset-naive and offset-aware"
        " datetimes"
    )
    assert made.not_owed == (NotOwed("a", "nightly", "", said), NotOwed("c", "nightly", "db1", said))
    first, second = (one.owed for one in made.broken)
    assert (first.night, first.cluster, first.job, first.members) == (NIGHT, "a", "nightly", ("db1", "db3"))
    assert (first.not_before, first.not_after, first.targets) == (NOON, NOON + 24 * HOUR, ())
    assert (first.priority, first.expected_seconds, first.expected_bytes, first.only) == (0, 0.0, 0, "")
    assert (second.members, second.only) == (("db1",), "db1")


def test_what_is_not_owed_says_why_and_which_it_is() -> None:
    told = {"db1": seen("db1", source(last_good_at=OPENS - HOUR)), "db2": seen("db2", replica(last_good_at=None))}
    made = plan(terms("a", "db1", "db2", every_member=True, every_seconds=7 * 86400.0), told=told)
    assert made.not_owed == (
        NotOwed("a", "nightly", "db1", "the last good one, of 2026-11-26 20:00 UTC, is new enough"),
    )
    assert [(one.only, one.members) for one in made.owed] == [("db2", ("db2",))]


def test_whoever_owes_one_every_night_owes_it_however_new_the_last_one_is() -> None:
    told = {"db1": seen("db1", source(last_good_at=OPENS - HOUR))}
    assert plan(terms("a", "db1", every_seconds=0.0), told=told).owed
    assert plan(terms("a", "db1", every_seconds=0.0), told=told).owed[0].priority == 1


def test_a_backup_is_new_enough_where_it_is_due_as_the_next_night_s_windows_open_and_not_before() -> None:
    day = 86400.0
    for seconds, owes in ((0, False), (1, True)):
        told = {"db1": seen("db1", source(last_good_at=OPENS - timedelta(seconds=seconds)))}
        assert bool(plan(terms("a", "db1", every_seconds=day), told=told).owed) is owes


def test_whole_periods_that_have_passed_put_a_backup_before_others() -> None:
    ago = {"five": 5, "six": 6, "eleven": 11, "twelve": 12}
    told = {name: seen(name, source(last_good_at=OPENS - hours * HOUR)) for name, hours in ago.items()}
    ahead = {"ahead": seen("ahead", source(last_good_at=OPENS - timedelta(minutes=1), expected_seconds=9999.0))}
    made = plan(*(terms(name, name, every_seconds=6 * 3600.0) for name in (*ago, "ahead")), told={**told, **ahead})
    assert [one.cluster for one in made.owed] == ["twelve", "eleven", "six", "ahead", "five"]


@pytest.mark.parametrize(
    ("preferred", "other", "third", "expected"),
    [
        ((1000.0, 5), (2000.0, 6), (3000.0, 7), (1000.0, 5)),
        ((None, 5), (2000.0, 6), (3000.0, 7), (3000.0, 7)),
        ((None, 5), (2000.0, 6), (None, 7), (2000.0, 6)),
        ((1000.0, None), (2000.0, 6), (None, 7), (1000.0, 0)),
        ((0.0, 5), (2000.0, 6), (None, 7), (0.0, 5)),
        ((None, 5), (0.0, 6), (0.5, 7), (0.5, 7)),
    ],
)
def test_what_it_is_expected_to_take_is_what_the_preferred_member_told_or_the_most_of_the_others(
    preferred: Any, other: Any, third: Any, expected: tuple[float, int]
) -> None:
    told = {
        f"db{number}": seen(f"db{number}", replica(float(number), expected_seconds=seconds, expected_bytes=size))
        for number, (seconds, size) in enumerate((preferred, other, third))
    }
    made = plan(terms("a", "db0", "db1", "db2"), told=told)
    assert [(one.expected_seconds, one.expected_bytes) for one in made.owed] == [expected]
    assert made.assumed == ()


def test_the_preferred_member_need_not_be_the_first_that_the_policy_names() -> None:
    told = {
        "db0": seen("db0", replica(9.0, expected_seconds=1000.0)),
        "db1": seen("db1", replica(1.0, expected_seconds=2000.0)),
        "db2": seen("db2", replica(5.0, expected_seconds=3000.0)),
    }
    (one,) = plan(terms("a", "db0", "db1", "db2"), told=told).owed
    assert (one.members[0], one.expected_seconds) == ("db1", 2000.0)


def test_jobs_and_members_of_one_cluster_have_their_own_share_of_the_spread() -> None:
    names = [f"n{number}" for number in range(40)]
    jobs = seen("db1", *(source(job=name) for name in names))
    of_jobs = plan(terms("a", "db1", jobs=tuple(names), spread_seconds=7200.0), told={"db1": jobs}).owed
    assert len({one.not_before for one in of_jobs}) > 30
    members = {name: seen(name, source()) for name in names}
    of_members = plan(terms("a", *names, every_member=True, spread_seconds=7200.0), told=members).owed
    assert len({one.not_before for one in of_members}) > 30


@pytest.mark.parametrize(
    "begins_within", [{"start_within_seconds": 3600.0}, {"windows": (Blackout(ALL_DAYS, time(21), time(22)),)}]
)
def test_a_spread_that_is_longer_than_the_time_to_begin_in_leaves_each_backup_half_of_that(
    begins_within: dict[str, Any],
) -> None:
    many = [terms(f"c{number}", "db1", spread_seconds=7200.0, **begins_within) for number in range(400)]
    made = plan(*many, told={"db1": seen("db1", source())}).owed
    assert min(one.not_after - one.not_before for one in made) >= timedelta(minutes=29)
    assert len({one.not_before for one in made}) > 300


def test_a_night_without_a_window_is_told_of_each_job_and_member() -> None:
    sundays = (Blackout(frozenset({6}), time(21), time(6)),)
    made = plan(terms("a", "db1", windows=sundays, every_member=True), told={"db1": seen("db1", source())})
    assert made.not_owed == (NotOwed("a", "nightly", "db1", "no window of its policy is in this night"),)
    assert (made.night, made.owed, made.broken) == (NIGHT, (), ())


def test_what_is_assumed_is_the_median_of_what_is_known() -> None:
    known = {f"db{n}": seen(f"db{n}", source(expected_seconds=float(n))) for n in (100, 200, 900)}
    made = plan(*(terms(f"c{host}", host) for host in (*known, "unknown")), told=known)
    took = {one.cluster: (one.expected_seconds, one.expected_bytes) for one in made.owed}
    assert took.pop("cunknown") == (200.0, 0)
    assert took == {f"c{host}": (float(host.removeprefix("db")), 10 << 30) for host in known}
    assert made.assumed == ("20261126-cunknown-nightly",)


def test_a_backup_begins_within_its_window_and_within_its_share_of_the_spread() -> None:
    told = {"db1": seen("db1", source())}
    (one,) = plan(terms("a", "db1"), told=told).owed
    assert (one.night, one.closed, one.not_before, one.not_after) == (NIGHT, (), OPENS, CLOSES - timedelta(seconds=1))
    many = [terms(f"c{n}", "db1", start_within_seconds=60.0, spread_seconds=7200.0) for n in range(50)]
    assert max(one.not_before for one in plan(*many, told=told).owed) == OPENS + timedelta(seconds=30)
    (wide,) = plan(terms("a", "db1", start_within_seconds=24 * 3600.0), told=told).owed
    assert wide.not_after == CLOSES - timedelta(seconds=1)
    parted = (Blackout(ALL_DAYS, time(23), time(1)),)
    (two,) = plan(terms("a", "db1", blackout=parted), told=told).owed
    assert two.closed == (Span(OPENS + 2 * HOUR, OPENS + 4 * HOUR),)


# --- the night as it would go ----------------------------------------------------------------------------------------


def test_an_empty_night_takes_no_time_and_has_no_beginning() -> None:
    made = timetable_of([], NAS)
    assert (made.runs, made.missed, made.bound_seconds, made.begins_at, made.makespan_seconds) == ((), (), 0, None, 0)


def test_a_night_is_from_when_the_first_may_begin_until_the_last_has_ended() -> None:
    late = owed("c2", 600, "nas1", not_before=OPENS + 2 * HOUR)
    made = timetable_of([late, owed("c1", 3600, "nas1")], {"nas1": SharedTarget("nas1", 2)})
    assert made.begins_at == OPENS
    assert made.makespan_seconds == made.bound_seconds == 2 * 3600 + 600
    assert [(run.owed.cluster, run.begins_at, run.ends_at, run.slots) for run in made.runs] == [
        ("c1", OPENS, OPENS + HOUR, (0,)),
        ("c2", OPENS + 2 * HOUR, OPENS + 2 * HOUR + timedelta(minutes=10), (0,)),
    ]


def test_each_run_has_its_slot_of_each_target_and_gives_it_to_the_next() -> None:
    targets = {"a": SharedTarget("a", 2), "b": SharedTarget("b", 1)}
    backups = [
        owed("c1", 60, "a", "b", priority=1),
        owed("c2", 120, "a", priority=2),
        owed("c3", 60, "a", priority=3),
        owed("c4", 60, "b", "a", priority=4),
    ]
    made = timetable_of(backups, targets)
    minute = timedelta(minutes=1)
    assert made.runs == (
        PlannedRun(backups[0], OPENS, OPENS + minute, (0, 0)),
        PlannedRun(backups[1], OPENS, OPENS + 2 * minute, (1,)),
        PlannedRun(backups[2], OPENS + minute, OPENS + 2 * minute, (0,)),
        PlannedRun(backups[3], OPENS + 2 * minute, OPENS + 3 * minute, (0, 0)),
    )


def test_a_cluster_s_backups_go_one_after_the_other_and_hold_up_no_other_cluster() -> None:
    backups = [
        owed("c1", 60, "nas1", priority=1),
        owed("c1", 60, "nas1", priority=2, job="other"),
        owed("c1", 60, priority=3, job="third"),
        owed("c2", 60, "nas1", priority=4),
    ]
    made = timetable_of(backups, {"nas1": SharedTarget("nas1", 2)})
    begins = {(run.owed.cluster, run.owed.job): (run.begins_at - OPENS).total_seconds() for run in made.runs}
    assert begins == {("c1", "nightly"): 0, ("c1", "other"): 60, ("c1", "third"): 120, ("c2", "nightly"): 0}


def test_of_one_priority_the_first_by_its_id_goes_first() -> None:
    backups = [owed(f"c{n}", 60, "nas1") for n in (3, 1, 2)]
    made = timetable_of(backups, {"nas1": SharedTarget("nas1", 1)})
    assert [run.owed.cluster for run in made.runs] == ["c1", "c2", "c3"]


def test_what_is_missed_is_told_by_priority_whether_it_waited_or_was_late() -> None:
    never = owed("c9", 60, "gone", priority=2)
    late = [owed(f"c{n}", 60, "nas1", priority=n, not_after=OPENS) for n in (5, 4)]
    made = timetable_of([owed("c1", 3600, "nas1", priority=0), *late, never], {**NAS, "nas1": SharedTarget("nas1", 1),
                        "gone": SharedTarget("gone", 0)})  # fmt: skip
    assert [one.cluster for one in made.missed] == ["c9", "c4", "c5"]


def test_a_closed_window_of_one_holds_up_nothing_behind_it() -> None:
    closed = (Span(OPENS, OPENS + HOUR),)
    backups = [owed("c1", 60, "nas1", priority=1, closed=closed), owed("c2", 60, "nas1", priority=2)]
    made = timetable_of(backups, {"nas1": SharedTarget("nas1", 1)})
    assert {run.owed.cluster: run.begins_at - OPENS for run in made.runs} == {"c2": timedelta(0), "c1": HOUR}


def test_no_schedule_is_shorter_than_the_work_of_the_busiest() -> None:
    targets = {"a": SharedTarget("a", 2)}
    late = [owed(f"c{n}", 100, "a", not_before=OPENS + HOUR) for n in range(4)]
    assert lower_bound_seconds(late, targets) == 200, "from when the first may begin"
    assert lower_bound_seconds([*late, owed("c9", 10)], targets) == 3600 + 200
    first, last = owed("c1", 10), owed("c1", 100, job="other", not_before=OPENS + HOUR)
    assert lower_bound_seconds([first, last], targets) == 3700, "nor than the last of a cluster's"
    assert lower_bound_seconds([owed("c1", 100, "gone"), owed("c2", 100, "gone")], targets) == 200
