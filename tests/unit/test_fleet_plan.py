"""What a night owes and how it would go: nothing twice in a cluster, no slot too many, nothing outside the windows."""

import time as clock
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy.fleet_plan import ASSUMED_SECONDS, ClusterTerms, NightClock, NightPlan, SharedTarget, plan_night
from backupd.policy.fleet_timetable import FleetTimetable, lower_bound_seconds, timetable_of
from backupd.policy.night_times import earliest_beginning, night_of, night_span, openings
from backupd.policy.one_machine import counted_as, set_apart
from backupd.vocabulary.fleet import OwedBackup, SeenHost, Span
from backupd.vocabulary.schedule import Blackout
from tests.fleets import (
    ALL_DAYS,
    CLOCK,
    NIGHT,
    NIGHTS,
    NOW,
    RULE,
    away,
    known_for,
    large_fleet,
    replica,
    seen,
    source,
    terms,
)
from tests.share import examples

OPENS = datetime(2026, 11, 26, 21, tzinfo=UTC)
CLOSES = datetime(2026, 11, 27, 6, tzinfo=UTC)
NAS = {"nas1": SharedTarget("nas1", 2)}
HOUR = timedelta(hours=1)


def plan(*clusters: ClusterTerms, told: dict[str, SeenHost], targets: dict[str, SharedTarget] = NAS) -> NightPlan:
    return plan_night(NIGHT, clusters, told, targets, CLOCK)


# --- what is owed -----------------------------------------------------------------------------------------------------


def test_a_backup_is_owed_by_the_member_that_is_fit_within_the_window() -> None:
    told = {"db1": seen("db1", source()), "db2": seen("db2", replica(3.0)), "db3": seen("db3", replica(1.0))}
    (owed,) = plan(terms("orders", "db1", "db2", "db3"), told=told).owed
    assert (owed.id, owed.members, owed.targets) == ("20261126-orders-nightly", ("db3", "db2", "db1"), ("nas1",))
    assert (owed.not_before, owed.not_after) == (OPENS, CLOSES - timedelta(seconds=1))
    assert (owed.expected_seconds, owed.expected_bytes, owed.max_rate) == (1800.0, 10 << 30, None)


@pytest.mark.parametrize(
    ("every", "hours_ago", "owed"),
    [(1, 20, True), (1, 1, True), (7, 6 * 24, False), (7, 6 * 24 + 4, True), (7, 30 * 24, True), (2, 20, False)],
)  # fmt: skip
def test_it_is_owed_where_it_would_be_too_old_before_the_next_night(every: int, hours_ago: int, owed: bool) -> None:
    told = {"db1": seen("db1", source(last_good_at=OPENS - hours_ago * HOUR))}
    made = plan(terms("orders", "db1", every_seconds=every * 86400.0), told=told)
    assert bool(made.owed) is owed
    if not owed:
        assert "is new enough" in made.not_owed[0].said


def test_the_backup_of_a_machine_that_stands_for_another_cluster_is_no_reason_to_make_none() -> None:
    """It may be the other's data; what it needs is planned all the same, for the address may be right by the night."""
    fresh = source(server="u", last_good_at=OPENS - HOUR)
    clusters = terms("bills", "db4", every_seconds=7 * 86400.0), terms("users", "db5", every_seconds=7 * 86400.0)
    for machine, owed in (("db5-0a1b2c3d", set()), ("db4-0a1b2c3d", {"bills", "users"})):
        hosts = seen("db4", fresh), seen("db5", fresh, machine=machine)
        told = {one.host: known_for(0.0, one) for one in hosts}
        made = plan(*clusters, told=set_apart(told, counted_as(clusters)))
        assert {one.cluster for one in made.owed} == owed
        assert all(one.targets == ("nas1",) for one in made.owed)


def test_a_backup_every_week_stays_on_its_night_though_it_begins_a_little_later_each_time() -> None:
    last, nights = datetime(2026, 11, 1, 21, 30, tzinfo=UTC), []
    for day in range(1, 60):
        night = date(2026, 11, 1) + timedelta(days=day)
        told = {"db1": seen("db1", source(last_good_at=last))}
        if plan_night(night, [terms("c", "db1", every_seconds=7 * 86400.0)], told, NAS, CLOCK).owed:
            nights.append(night)
            last = datetime.combine(night, time(21, 30), UTC) + timedelta(minutes=7 * len(nights))
    assert [night.weekday() for night in nights] == [6] * len(nights)
    assert len(nights) == 8


def test_the_newest_good_backup_of_any_member_counts() -> None:
    told = {
        "db1": seen("db1", source(last_good_at=OPENS - 50 * HOUR)),
        "db2": seen("db2", replica(last_good_at=OPENS - 10 * HOUR)),
    }
    assert not plan(terms("orders", "db1", "db2", every_seconds=2 * 86400.0), told=told).owed


def test_the_most_overdue_goes_first_and_of_these_the_longest() -> None:
    told = {
        "new": seen("new", source(last_good_at=None)),
        "long": seen("long", source(last_good_at=OPENS - 20 * HOUR, expected_seconds=9000.0)),
        "brief": seen("brief", source(last_good_at=OPENS - 22 * HOUR, expected_seconds=60.0)),
        "late": seen("late", source(last_good_at=OPENS - 44 * HOUR, expected_seconds=60.0)),
        "later": seen("later", source(last_good_at=OPENS - 70 * HOUR, expected_seconds=60.0)),
    }
    made = plan(*(terms(name, name) for name in told), told=told)
    assert [one.cluster for one in made.owed] == ["new", "later", "late", "long", "brief"]
    assert [one.priority for one in made.owed] == [1, 2, 3, 4, 5]


def test_each_member_owes_one_where_the_policy_says_all() -> None:
    told = {"db1": seen("db1", source()), "db2": seen("db2", replica(3.0))}
    made = plan(terms("orders", "db1", "db2", every_member=True), told=told)
    assert sorted((one.id, one.members) for one in made.owed) == [
        ("20261126-orders-nightly-db1", ("db1",)),
        ("20261126-orders-nightly-db2", ("db2",)),
    ]


def test_what_nobody_knows_is_assumed_to_take_what_the_others_do() -> None:
    told = {"db1": seen("db1", source(expected_seconds=1000.0)), "db2": away("db2")}
    made = plan(terms("a", "db1"), terms("b", "db2"), told=told)
    assert made.assumed == ("20261126-b-nightly",)
    assert {one.cluster: one.expected_seconds for one in made.owed} == {"a": 1000.0, "b": 1000.0}
    (alone,) = plan(terms("b", "db2"), told={}).owed
    assert alone.expected_seconds == ASSUMED_SECONDS


def test_a_run_has_its_share_of_what_the_target_takes_and_is_no_sooner_done() -> None:
    nas = {"nas1": SharedTarget("nas1", slots=4, max_rate=400 << 20), "s3": SharedTarget("s3", 1, 10 << 20)}
    told = {"db1": seen("db1", source(targets=("nas1", "s3", "unknown"), expected_bytes=36000 << 20))}
    (owed,) = plan(terms("a", "db1"), told=told, targets=nas).owed
    assert (owed.targets, owed.max_rate, owed.expected_seconds) == (("nas1", "s3"), 10 << 20, 3600.0)


def test_slots_and_rate_are_those_of_every_member_that_may_make_it() -> None:
    nas = {"nas1": SharedTarget("nas1", slots=4), "s3": SharedTarget("s3", 1, 10 << 20), "s4": SharedTarget("s4", 1)}
    told = {
        "db1": seen("db1", source(targets=("s4",))),
        "db2": seen("db2", replica(1.0, targets=("nas1",))),
        "db3": seen("db3", replica(5.0, targets=("s3",))),
    }
    (owed,) = plan(terms("a", "db1", "db2", "db3"), told=told, targets=nas).owed
    assert (owed.targets, owed.max_rate) == (("nas1", "s3", "s4"), 10 << 20)
    named = terms("a", "db1", "db2", "db3", rule=replace(RULE, names=("db2",)))
    (owed,) = plan(named, told=told, targets=nas).owed
    assert (owed.targets, owed.max_rate) == (("nas1",), None)


def test_a_size_that_a_host_tells_breaks_nobody_s_timetable() -> None:
    told = {"db1": seen("db1", source(expected_bytes=(1 << 63) - 1)), "db2": seen("db2", source())}
    nas = {"nas1": SharedTarget("nas1", slots=2, max_rate=10 << 20)}
    table = timetable_of(plan(terms("a", "db1"), terms("b", "db2"), told=told, targets=nas).owed, nas)
    assert {run.owed.cluster for run in table.runs} == {"a", "b"}


def test_a_backup_may_begin_until_its_window_closes_or_start_within_is_over() -> None:
    told = {"db1": seen("db1", source())}
    (owed,) = plan(terms("a", "db1", start_within_seconds=3600.0, spread_seconds=7200.0), told=told).owed
    assert owed.not_after == OPENS + HOUR
    assert OPENS <= owed.not_before <= OPENS + HOUR / 2
    many = [terms(f"c{n}", "db1", spread_seconds=7200.0) for n in range(200)]
    begins = {one.not_before for one in plan(*many, told=told).owed}
    assert len(begins) > 150
    assert max(begins) <= OPENS + 2 * HOUR


def test_a_night_without_a_window_owes_nothing_and_says_so() -> None:
    sundays = (Blackout(frozenset({6}), time(21), time(6)),)
    made = plan(terms("a", "db1", windows=sundays), told={"db1": seen("db1", source())})
    assert (made.owed, made.not_owed[0].said) == ((), "no window of its policy is in this night")


def test_a_weekly_window_owes_what_would_be_too_old_a_week_later() -> None:
    thursdays = (Blackout(frozenset({3}), time(21), time(6)),)
    told = {"db1": seen("db1", source(last_good_at=OPENS - 40 * HOUR))}
    assert plan(terms("a", "db1", windows=thursdays, every_seconds=7 * 86400.0), told=told).owed


# --- when nights are --------------------------------------------------------------------------------------------------


def test_a_night_is_from_noon_to_noon_in_the_fleets_zone() -> None:
    span = night_span(date(2026, 7, 1), begins=time(12), zone="Europe/Berlin")
    assert (span.begin.hour, span.end - span.begin) == (10, timedelta(days=1))
    for minutes in range(-3 * 1440, 3 * 1440, 97):
        instant = OPENS + timedelta(minutes=minutes)
        for zone in ("Europe/Berlin", "Pacific/Kiritimati", "America/Los_Angeles"):
            night = night_of(instant, begins=time(12), zone=zone)
            span = night_span(night, begins=time(12), zone=zone)
            assert span.begin <= instant < span.end


@pytest.mark.parametrize(("night", "hours"), [(date(2026, 10, 24), 10), (date(2026, 3, 28), 8), (date(2026, 7, 1), 9)])
def test_a_window_over_a_change_of_the_clock_is_as_long_as_the_clock_says(night: date, hours: int) -> None:
    (opened,) = openings(night, NIGHTS, (), begins=time(12), zone="Europe/Berlin")
    assert opened.end - opened.begin == hours * HOUR


def test_a_blackout_parts_a_window() -> None:
    blackout = (Blackout(ALL_DAYS, time(23), time(1)), Blackout(frozenset({4}), time(5), time(12)))
    first, second = openings(NIGHT, NIGHTS, blackout, begins=time(12), zone="UTC")
    assert (first, second) == (Span(OPENS, OPENS + 2 * HOUR), Span(OPENS + 4 * HOUR, OPENS + 8 * HOUR))
    (owed,) = plan(terms("a", "db1", blackout=blackout), told={"db1": seen("db1", source())}).owed
    assert earliest_beginning(owed, OPENS + 3 * HOUR) == OPENS + 4 * HOUR
    assert earliest_beginning(owed, OPENS - HOUR) == OPENS
    assert earliest_beginning(owed, OPENS + 8 * HOUR) is None


# --- how it would go --------------------------------------------------------------------------------------------------

WINDOWS = st.sampled_from(
    [
        NIGHTS,
        (Blackout(ALL_DAYS, time(22), time(23)), Blackout(ALL_DAYS, time(2), time(4))),
        (Blackout(ALL_DAYS, time(0), time(0)),),
    ]
)  # fmt: skip
BLACKOUTS = st.sampled_from(
    [(), (Blackout(ALL_DAYS, time(22, 30), time(3)),), (Blackout(ALL_DAYS, time(21), time(23)),)]
)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[ClusterTerms], dict[str, SeenHost], dict[str, SharedTarget]]:
    names = [f"t{number}" for number in range(draw(st.integers(1, 4)))]
    rate = st.none() | st.integers(1 << 20, 1 << 30)
    targets = {name: SharedTarget(name, draw(st.integers(1, 3)), draw(rate)) for name in names}
    clusters: list[ClusterTerms] = []
    told: dict[str, SeenHost] = {}
    for number in range(draw(st.integers(1, 12))):
        members = [f"db{number}-{member}" for member in range(draw(st.integers(1, 3)))]
        jobs = tuple(f"job{job}" for job in range(draw(st.integers(1, 2))))
        for member in members:
            on = tuple(draw(st.sets(st.sampled_from(names), max_size=2)))
            takes = draw(st.none() | st.floats(0, 20_000))
            bytes_ = draw(st.integers(0, 1 << 40))
            described = [
                replica(1.0, job=job, targets=on, expected_seconds=takes, expected_bytes=bytes_) for job in jobs
            ]
            told[member] = seen(member, *described)
        made = terms(
            f"c{number}",
            *members,
            jobs=jobs,
            windows=draw(WINDOWS),
            blackout=draw(BLACKOUTS),
            every_member=draw(st.booleans()),
            spread_seconds=draw(st.sampled_from([0.0, 3600.0])),
            start_within_seconds=draw(st.sampled_from([None, 1800.0])),
        )
        clusters.append(made)
    return clusters, told, targets


def require_sound(made: FleetTimetable, targets: dict[str, SharedTarget]) -> None:
    """No overlap in a cluster, no slot twice at a time, nothing outside of its time; never shorter than the bound."""
    places: dict[tuple[str, object], list[tuple[datetime, datetime]]] = {}
    for run in made.runs:
        assert earliest_beginning(run.owed, run.begins_at) == run.begins_at
        spans = [("cluster", run.owed.cluster), *zip(run.owed.targets, run.slots, strict=True)]
        for place in spans:
            places.setdefault(place, []).append((run.begins_at, run.ends_at))
        assert all(slot < targets[name].slots for name, slot in zip(run.owed.targets, run.slots, strict=True))
    for spans_of_one in places.values():
        for (_, ended), (began, _) in pairwise(sorted(spans_of_one)):
            assert ended <= began
    assert made.makespan_seconds >= made.bound_seconds - 1e-3


@settings(max_examples=examples(60), deadline=None)
@given(fleets())
def test_no_night_overlaps_exceeds_a_slot_or_leaves_its_windows(
    fleet: tuple[list[ClusterTerms], dict[str, SeenHost], dict[str, SharedTarget]],
) -> None:
    clusters, told, targets = fleet
    made = plan_night(NIGHT, clusters, told, targets, CLOCK)
    table = timetable_of(made.owed, targets)
    require_sound(table, targets)
    assert sorted(one.id for one in (*(run.owed for run in table.runs), *table.missed)) == sorted(
        one.id for one in made.owed
    )
    again = plan_night(NIGHT, clusters[::-1], dict(reversed(told.items())), targets, CLOCK)
    assert again == made
    assert timetable_of(again.owed[::-1], targets) == table


def owed(cluster: str, seconds: float, *targets: str, priority: int = 1, **changed: object) -> OwedBackup:
    made = OwedBackup(NIGHT, cluster, "nightly", ("db1",), targets, OPENS, CLOSES, priority, seconds, 0)
    return replace(made, **changed)  # type: ignore[arg-type]


def test_slots_are_filled_by_priority_and_what_needs_a_busy_target_keeps_no_other_waiting() -> None:
    targets = {"a": SharedTarget("a", 1), "b": SharedTarget("b", 1)}
    backups = [
        owed("c1", 3600, "a", priority=1),
        owed("c2", 3600, "a", "b", priority=2),
        owed("c3", 1800, "b", priority=3),
        owed("c4", 60, priority=4),
    ]
    begins = {run.owed.cluster: (run.begins_at - OPENS) / HOUR for run in timetable_of(backups, targets).runs}
    assert begins == {"c1": 0, "c2": 1, "c3": 0, "c4": 0}


def test_what_cannot_begin_in_time_is_missed() -> None:
    backups = [owed("c1", 10 * 3600, "nas1"), owed("c2", 60, "nas1", priority=2)]
    made = timetable_of(backups, {"nas1": SharedTarget("nas1", 1)})
    assert ([run.owed.cluster for run in made.runs], [one.cluster for one in made.missed]) == (["c1"], ["c2"])


def test_a_backup_waits_for_its_windows_next_part() -> None:
    closed = (Span(OPENS + HOUR, OPENS + 3 * HOUR),)
    backups = [owed("c1", 5400, "nas1"), owed("c2", 60, "nas1", priority=2, closed=closed)]
    made = timetable_of(backups, {"nas1": SharedTarget("nas1", 1)})
    assert made.runs[1].begins_at == OPENS + 3 * HOUR


def test_the_bound_is_the_worst_of_targets_clusters_and_the_longest() -> None:
    targets = {"a": SharedTarget("a", 2), "b": SharedTarget("b", 1)}
    assert lower_bound_seconds([], targets) == 0
    assert lower_bound_seconds([owed("c1", 100, "a"), owed("c2", 60, "a")], targets) == 100
    assert lower_bound_seconds([owed(f"c{n}", 100, "a") for n in range(5)], targets) == 250
    assert lower_bound_seconds([owed("c1", 100, "a"), owed("c1", 90, "a", job="other")], targets) == 190
    late = owed("c2", 50, "b", not_before=OPENS + HOUR)
    assert lower_bound_seconds([owed("c1", 100, "a"), late], targets) == 3650


@pytest.mark.thorough
def test_ten_thousand_hosts_are_planned_within_ten_seconds() -> None:
    fleet = large_fleet(18, clusters=3333, members=3, targets=60)
    began = clock.process_time()
    made = plan_night(NIGHT, fleet.clusters, fleet.seen, fleet.targets, CLOCK)
    table = timetable_of(made.owed, fleet.targets)
    seconds = clock.process_time() - began
    require_sound(table, dict(fleet.targets))
    assert len(made.owed) == 3333
    assert seconds <= 10
    assert NOW < OPENS


def test_clusters_on_a_clock_that_is_put_back_are_planned_in_the_longer_window() -> None:
    made = plan_night(
        date(2026, 10, 24),
        [terms("a", "db1")],
        {"db1": seen("db1", source())},
        NAS,
        NightClock("Europe/Berlin", time(12)),
    )
    assert made.owed[0].not_after - made.owed[0].not_before == 10 * HOUR - timedelta(seconds=1)
