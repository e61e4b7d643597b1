"""Which backups stay: what a policy keeps, and what no policy and no clock gives up."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as some

from backupd.policy.retention import Candidate, RetentionRule, by_each_clock, decide, kept_if_whole
from backupd.vocabulary.storage import RetentionDecision
from tests.share import examples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)  # a Saturday
BERLIN = ZoneInfo("Europe/Berlin")


def backup(
    at: datetime | str,
    backup_id: str = "",
    *,
    broken: str = "",
    only_whole: str = "",
    proven: bool = False,
    doubted: bool = False,
    pin: str | None = None,
) -> Candidate:
    when = datetime.fromisoformat(at).replace(tzinfo=UTC) if isinstance(at, str) else at
    name = backup_id or f"{when:%Y%m%d-%H%M}"
    return Candidate(name, when, broken=broken, only_whole=only_whole, proven=proven, doubted=doubted, pin=pin)


def policy(keep_last: int = 1, *, daily: int = 0, weekly: int = 0, monthly: int = 0, yearly: int = 0) -> RetentionRule:
    return RetentionRule(keep_last, daily, weekly, monthly, yearly)


def every(hours: float, count: int) -> list[Candidate]:
    return [backup(NOW - timedelta(hours=hours * number)) for number in range(count)]


def kept(decisions: Sequence[RetentionDecision]) -> dict[str, str]:
    return {decision.backup_id: decision.reason for decision in decisions if decision.keep}


def expired(decisions: Sequence[RetentionDecision]) -> dict[str, str]:
    return {decision.backup_id: decision.reason for decision in decisions if not decision.keep}


# --- what a policy keeps ---------------------------------------------------------------------------------------------


def test_nothing_is_decided_about_nothing() -> None:
    assert decide((), policy(), NOW) == ()


def test_the_last_so_many_are_kept_and_each_says_which_it_is() -> None:
    decisions = decide(every(24, 4), policy(keep_last=2), NOW)
    assert [(decision.keep, decision.reason) for decision in decisions] == [
        (True, "last good one, last 1 of 2"),
        (True, "last 2 of 2"),
        (False, "expired: not among the last 2"),
        (False, "expired: not among the last 2"),
    ]


def test_the_last_of_each_period_is_kept_for_as_many_periods_as_have_a_backup() -> None:
    backups = [
        backup("2026-11-21T06:00"), backup("2026-11-20T18:00"), backup("2026-11-20T06:00"), backup("2026-11-13T06:00"),
        backup("2026-10-31T06:00"), backup("2026-10-30T06:00"), backup("2025-12-31T06:00"), backup("2024-02-29T06:00"),
    ]  # fmt: skip
    decisions = decide(backups, policy(1, daily=2, weekly=2, monthly=3, yearly=2), NOW, zone=UTC)
    assert kept(decisions) == {
        "20261121-0600":
            "last good one, last 1 of 1, daily 2026-11-21, weekly 2026-W47, monthly 2026-11, yearly 2026",
        "20261120-1800": "daily 2026-11-20",
        "20261113-0600": "weekly 2026-W46",
        "20261031-0600": "monthly 2026-10",
        "20251231-0600": "monthly 2025-12, yearly 2025",
    }  # fmt: skip
    assert expired(decisions) == dict.fromkeys(
        ("20261120-0600", "20261030-0600", "20240229-0600"),
        "expired: not among the last 1, 2 daily, 2 weekly, 3 monthly, 2 yearly",
    )


def test_a_week_is_that_of_iso_8601_also_over_the_turn_of_a_year() -> None:
    backups = [backup("2027-01-03T06:00"), backup("2026-12-28T06:00"), backup("2026-12-27T06:00")]
    decisions = decide(backups, policy(1, weekly=5), NOW + timedelta(days=90), zone=UTC)
    assert kept(decisions) == {
        "20270103-0600": "last good one, last 1 of 1, weekly 2026-W53",
        "20261227-0600": "weekly 2026-W52",
    }


def test_a_day_is_one_of_the_local_calendar() -> None:
    backups = [backup("2026-11-20T23:30"), backup("2026-11-20T22:30")]  # 00:30 and 23:30 in Berlin
    assert len(kept(decide(backups, policy(1, daily=2), NOW, zone=UTC))) == 1
    assert kept(decide(backups, policy(1, daily=2), NOW, zone=BERLIN))["20261120-2230"] == "daily 2026-11-20"


def test_a_day_of_25_hours_is_one_day() -> None:
    backups = [backup("2026-10-25T22:59"), backup("2026-10-24T22:00"), backup("2026-10-24T21:59")]
    decisions = decide(backups, policy(1, daily=9), NOW, zone=BERLIN)
    assert set(kept(decisions)) == {"20261025-2259", "20261024-2159"}


# --- what is never given up ------------------------------------------------------------------------------------------


def test_a_pinned_backup_and_the_last_proven_one_stay_whatever_their_age() -> None:
    old = [backup("2020-01-01", "pinned", pin="before the merger"), backup("2021-01-01", "unnoted", pin="")]
    proven = [backup("2022-01-01", "proven", proven=True), backup("2021-06-01", "proven before", proven=True)]
    decisions = decide([*every(24, 3), *old, *proven], policy(1), NOW)
    stay = kept(decisions)
    assert (stay["pinned"], stay["unnoted"], stay["proven"]) == (
        "pinned: before the merger", "pinned", "last proven one"
    )  # fmt: skip
    assert "proven before" in expired(decisions)


def test_a_proof_that_a_later_drill_contradicts_pushes_out_none_that_stands() -> None:
    """And stays itself: what has failed may have been the host that drilled."""
    old = [
        backup("2022-01-01", "doubted", proven=True, doubted=True),
        backup("2021-06-01", "doubted before", proven=True, doubted=True),
        backup("2021-01-01", "stands", proven=True),
        backup("2020-01-01", "stands too", proven=True),
    ]
    decisions = decide([*every(24, 3), *old], policy(1), NOW)
    assert {name: reason for name, reason in kept(decisions).items() if name in {one.backup_id for one in old}} == {
        "doubted": "last proven one, though a later drill of it failed",
        "stands": "last proven one",
    }


def test_a_broken_backup_stays_until_there_is_a_newer_good_one_and_counts_for_nothing() -> None:
    good, newer, older = (
        backup("2026-11-20", "good"),
        backup("2026-11-21", "newer", broken="frame 7 differs", proven=True),
        backup("2026-11-19", "older", broken="frame 1 differs"),
    )
    decisions = decide([good, newer, older, backup("2026-11-18", "oldest")], policy(2, daily=2), NOW, zone=UTC)
    assert kept(decisions) == {
        "newer": "broken, but there is no newer good one",
        "good": "last good one, last 1 of 2, daily 2026-11-20",
        "oldest": "last 2 of 2, daily 2026-11-18",
    }
    assert expired(decisions) == {"older": "expired: broken (frame 1 differs), and there is a newer good one"}


def test_a_broken_backup_as_new_as_a_good_one_goes() -> None:
    decisions = decide([backup("2026-11-20", "good"), backup("2026-11-20", "broken", broken="flipped")], policy(1), NOW)
    assert list(expired(decisions)) == ["broken"]


def test_where_all_are_broken_all_stay() -> None:
    assert expired(decide([replace(one, broken="flipped") for one in every(24, 5)], policy(1), NOW)) == {}


def test_backups_of_a_clock_that_was_ahead_push_out_no_other() -> None:
    ahead = [backup(f"2031-01-0{day}", f"ahead-{day}") for day in range(1, 8)]
    decisions = decide([*ahead, *every(24, 3)], policy(2, yearly=1), NOW, zone=UTC)
    assert {name for name in kept(decisions) if not name.startswith("ahead")} == {"20261121-1200", "20261120-1200"}
    assert kept(decisions)["ahead-1"] == "dated in the future: a clock is or was wrong"
    assert not any(name.startswith("ahead") for name in expired(decisions))


def test_a_proof_of_a_clock_that_was_ahead_pushes_out_no_other() -> None:
    proven = [backup("2031-01-01", "ahead", proven=True), backup("2026-01-01", "proven", proven=True)]
    decisions = decide([*proven, *every(24, 3)], policy(1), NOW, zone=UTC)
    assert kept(decisions)["proven"] == "last proven one"
    assert kept(decisions)["ahead"] == "dated in the future: a clock is or was wrong"


def test_a_clock_that_is_behind_expires_nothing() -> None:
    assert expired(decide(every(24, 9), policy(1), datetime(2001, 1, 1, tzinfo=UTC))) == {}


def test_what_either_of_two_clocks_keeps_stays() -> None:
    """The storage was copied, the newest backups first: by its time the oldest are the newest."""
    oldest_first = every(24, 5)[::-1]
    copied = [
        replace(one, at=NOW - timedelta(minutes=number), at_by_host=one.at) for number, one in enumerate(oldest_first)
    ]
    decisions = decide(copied, policy(keep_last=2), NOW)
    assert kept(decisions) == {
        "20261117-1200": "last good one, last 1 of 2",
        "20261118-1200": "last 2 of 2",
        "20261120-1200": "last 2 of 2 (by the time of its run)",
        "20261121-1200": "last good one, last 1 of 2 (by the time of its run)",
    }


def test_a_storage_whose_clock_is_a_little_ahead_has_no_wrong_one() -> None:
    decisions = decide([backup(NOW + timedelta(minutes=5), "new"), *every(24, 2)], policy(1), NOW)
    assert kept(decisions) == {"new": "last good one, last 1 of 1"}


def test_the_only_whole_copy_and_what_nobody_can_tell_stay_and_say_so() -> None:
    only = replace(backup("2026-11-01", "only"), only_whole="broken on there")
    unsure = replace(backup("2026-11-02", "unsure"), uncertain="its target does not answer")
    both_broken = replace(backup("2026-11-03", "broken"), only_whole="broken on there", broken="flipped")
    decisions = decide([*every(24, 2), only, unsure, both_broken], policy(1), NOW)
    assert kept(decisions) == {
        "20261121-1200": "last good one, last 1 of 1",
        "only": "only complete copy: broken on there",
        "unsure": "its target does not answer",
    }
    assert expired(decisions)["broken"] == "expired: broken (flipped), and there is a newer good one"


def test_an_hour_ahead_is_a_clock_that_differs_and_more_is_a_wrong_one() -> None:
    hour = timedelta(hours=1)
    assert kept(decide([backup(NOW + hour, "new")], policy(1), NOW)) == {"new": "last good one, last 1 of 1"}
    later = backup(NOW + hour + timedelta(seconds=1), "new")
    assert kept(decide([later], policy(1), NOW)) == {"new": "dated in the future: a clock is or was wrong"}


def test_all_reasons_of_the_hosts_clock_are_told_in_one_line() -> None:
    day = timedelta(days=1)
    newer = replace(backup(NOW - day, "newer"), at_by_host=NOW - 9 * day)
    older = replace(backup(NOW - 2 * day, "older"), at_by_host=NOW - day)
    decisions = decide([newer, older], policy(1, daily=1), NOW, zone=UTC)
    assert kept(decisions) == {
        "newer": "last good one, last 1 of 1, daily 2026-11-20",
        "older": "last good one, last 1 of 1, daily 2026-11-20 (by the time of its run)",
    }


def test_a_backup_that_both_clocks_tell_wrong_is_no_older_than_those_before_it() -> None:
    back = replace(backup(NOW - timedelta(days=30), "back"), at_in_order=NOW + timedelta(minutes=1))
    assert kept(decide([back, *every(24, 3)], policy(1), NOW + timedelta(hours=1))) == {
        "20261121-1200": "last good one, last 1 of 1",
        "back": "last good one, last 1 of 1 (by the order of the runs)",
    }


# --- what holds for every history ------------------------------------------------------------------------------------

INSTANTS = some.datetimes(
    min_value=datetime(2023, 1, 1),
    max_value=datetime(2027, 6, 1),
    timezones=some.sampled_from([UTC, BERLIN, timezone(timedelta(hours=-9))]),
)
NEAR = some.integers(min_value=-400, max_value=30).map(lambda hours: NOW + timedelta(hours=hours))
HISTORIES = some.lists(
    some.builds(
        Candidate,
        backup_id=some.from_regex(r"[a-z]{1,4}", fullmatch=True),
        at=INSTANTS | NEAR,
        at_by_host=some.none() | INSTANTS | NEAR,
        at_in_order=some.none() | INSTANTS | NEAR,
        broken=some.sampled_from(["", "", "", "flipped"]),
        only_whole=some.sampled_from(["", "", "", "broken on there"]),
        uncertain=some.sampled_from(["", "", "", "", "nobody can tell"]),
        proven=some.booleans(),
        doubted=some.booleans(),
        pin=some.sampled_from([None, None, None, "note"]),
    ),
    max_size=30,
    unique_by=lambda backup: backup.backup_id,
)
COUNTS = some.integers(min_value=0, max_value=5)
POLICIES = some.builds(
    RetentionRule,
    keep_last=some.integers(min_value=1, max_value=6),
    daily=COUNTS,
    weekly=COUNTS,
    monthly=COUNTS,
    yearly=COUNTS,
)


@settings(max_examples=examples(50))
@given(HISTORIES, POLICIES, some.just(NOW) | INSTANTS)
def test_what_must_never_be_given_up_is_kept_whenever_it_is_decided(
    history: list[Candidate], chosen: RetentionRule, now: datetime
) -> None:
    decisions = decide(history, chosen, now, zone=BERLIN)
    stay = kept(decisions)
    assert [decision.backup_id for decision in decisions] == [
        one.backup_id for one in sorted(history, key=lambda one: (one.at, one.backup_id), reverse=True)
    ]
    assert all(decision.reason for decision in decisions)
    assert {one.backup_id for one in history if one.pin is not None} <= set(stay)
    assert {one.backup_id for one in history if one.uncertain or (one.only_whole and not one.broken)} <= set(stay)
    for clock in by_each_clock(history):
        good = sorted(
            (one for one in clock if not (one.broken or one.uncertain)), key=lambda one: (one.at, one.backup_id)
        )
        assert not good or good[-1].backup_id in stay
        assert not (proven := [one for one in good if one.proven]) or proven[-1].backup_id in stay
        assert len([one for one in good if one.backup_id in stay]) >= min(len(good), chosen.keep_last)


@settings(max_examples=examples(50))
@given(HISTORIES, POLICIES, some.just(NOW) | INSTANTS)
def test_deciding_again_on_what_is_left_expires_nothing_more(
    history: list[Candidate], chosen: RetentionRule, now: datetime
) -> None:
    first = kept(decide(history, chosen, now, zone=BERLIN))
    again = decide([one for one in history if one.backup_id in first], chosen, now, zone=BERLIN)
    assert kept(again) == first


@settings(max_examples=examples(50))
@given(some.data(), HISTORIES, POLICIES)
def test_the_order_in_which_backups_are_told_means_nothing(
    data: some.DataObject, history: list[Candidate], chosen: RetentionRule
) -> None:
    shuffled = data.draw(some.permutations(history))
    assert decide(shuffled, chosen, NOW, zone=BERLIN) == decide(history, chosen, NOW, zone=BERLIN)


@settings(max_examples=examples(50))
@given(HISTORIES, POLICIES, POLICIES)
def test_a_policy_that_asks_for_more_keeps_all_that_one_keeps_that_asks_for_less(
    history: list[Candidate], less: RetentionRule, plus: RetentionRule
) -> None:
    more = RetentionRule(
        keep_last=less.keep_last + plus.keep_last,
        daily=less.daily + plus.daily,
        weekly=less.weekly + plus.weekly,
        monthly=less.monthly + plus.monthly,
        yearly=less.yearly + plus.yearly,
    )
    fewer = decide(history, less, NOW, zone=BERLIN)
    assert set(kept(fewer)) <= set(kept(decide(history, more, NOW, zone=BERLIN)))


@settings(max_examples=examples(50))
@given(HISTORIES, POLICIES)
def test_what_is_kept_does_not_depend_on_when_it_is_decided(history: list[Candidate], chosen: RetentionRule) -> None:
    arrived = [one for one in history if max(one.at, one.at_by_host or one.at, one.at_in_order or one.at) <= NOW]
    before, after = (decide(arrived, chosen, now, zone=BERLIN) for now in (NOW, NOW + timedelta(days=1)))
    assert before == after


LOST = "lost"  # retention has removed it, or somebody else has taken it away, and whole it might have stayed
COPIES = some.sampled_from(["whole", "whole", "broken", LOST, None])
SITES = some.lists(some.fixed_dictionaries({"a": COPIES, "b": COPIES, "c": COPIES}), min_size=1, max_size=12)
RULES = some.fixed_dictionaries({"a": POLICIES, "b": POLICIES, "c": POLICIES})


@settings(max_examples=examples(100))
@given(some.data(), SITES, RULES)
def test_no_target_gives_up_what_another_has_or_would_keep_and_has_lost_and_the_last_whole_copy_of_a_job_stays(
    data: some.DataObject, nights: list[dict[str, str | None]], rules: dict[str, RetentionRule]
) -> None:
    """However often, and in whatever order, they are pruned, each by its own rule; a night is the hour of its run."""
    had_whole = [hour for hour, copies in enumerate(nights) if "whole" in copies.values()]
    last_whole = max(had_whole, default=None)

    def lying_on(target: str) -> dict[int, Candidate]:
        return {
            hour: backup(
                NOW - timedelta(hours=len(nights) - hour),
                f"r{hour}",
                broken="flipped" if copies[target] == "broken" else "",
            )
            for hour, copies in enumerate(nights)
            if copies[target] in ("whole", "broken")
        }

    def wants(target: str, hour: int) -> bool:
        lost = [
            backup(NOW - timedelta(hours=len(nights) - hour), f"r{hour}")
            for hour, copies in enumerate(nights)
            if copies[target] in ("broken", LOST)
        ]
        there = list(lying_on(target).values())
        return f"r{hour}" in kept_if_whole(lost, there, rules[target], NOW, zone=BERLIN)

    def only_whole(target: str, hour: int) -> str:
        others = {name: state for name, state in nights[hour].items() if name != target}
        wanted = any(state == LOST and wants(name, hour) for name, state in others.items())
        protects = "whole" not in others.values() and ("broken" in others.values() or wanted)
        return "broken on another" if protects else ""

    for target in data.draw(some.lists(some.sampled_from("abc"), min_size=3, max_size=9)):
        there = lying_on(target)
        candidates = [replace(one, only_whole=only_whole(target, hour)) for hour, one in there.items()]
        gone = expired(decide(candidates, rules[target], NOW, zone=BERLIN))
        for hour in (hour for hour in there if f"r{hour}" in gone):
            assert nights[hour][target] == "broken" or not only_whole(target, hour)
            nights[hour][target] = LOST if nights[hour][target] == "broken" else None
        assert last_whole is None or "whole" in nights[last_whole].values()
    for hour in (hour for hour in had_whole if "whole" not in nights[hour].values()):
        assert not any(state == LOST and wants(name, hour) for name, state in nights[hour].items())
