"""Which slots of which targets a night's tries took."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.fleet_slots import SlotUse, busy_seconds, most_at_once, slot_uses
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry
from backupd.vocabulary.records import RunStatus
from tests.unit.test_cluster_status import NOW, owed

BEGIN = datetime(2026, 11, 25, 22, tzinfo=UTC)


def backup(name: str, *spans: tuple[int, int | None], targets: tuple[str, ...] = ("nas1",)) -> FleetBackup:
    """Tries by the minutes at which they began and ended."""
    tries = tuple(
        FleetTry(
            "db1",
            f"{name}.{number}",
            BEGIN + timedelta(minutes=begin),
            None if end is None else BEGIN + timedelta(minutes=end),
            RunStatus.SUCCESS,
        )
        for number, (begin, end) in enumerate(spans)
    )
    return FleetBackup(replace(owed(name), targets=targets), FleetState.DONE, tries, BEGIN + timedelta(hours=1))


def test_whoever_begins_takes_the_lowest_slot_that_is_free() -> None:
    uses = slot_uses([backup("a", (0, 10)), backup("b", (0, 30)), backup("c", (10, 20))], now=NOW)["nas1"]
    assert [(use.backup.owed.cluster, use.slot) for use in uses] == [("a", 0), ("b", 1), ("c", 0)]
    assert most_at_once(uses) == 2
    assert busy_seconds(uses) == 50 * 60


def test_a_try_takes_a_slot_of_each_target_and_a_further_try_takes_one_again() -> None:
    uses = slot_uses([backup("a", (0, 10), (15, 20), targets=("nas1", "s3"))], now=NOW)
    assert {target: len(of) for target, of in uses.items()} == {"nas1": 2, "s3": 2}


def test_each_target_has_slots_of_its_own_and_each_use_says_whose_it_was() -> None:
    one, other = backup("a", (0, 10), targets=("nas1",)), backup("b", (5, 10), targets=("s3",))
    assert slot_uses([one, other], now=NOW) == {
        target: [SlotUse(target, 0, BEGIN + timedelta(minutes=begin), BEGIN + timedelta(minutes=10), of, of.tries[0])]
        for target, begin, of in (("nas1", 0, one), ("s3", 5, other))
    }


def test_of_two_that_began_together_the_first_by_its_run_takes_the_lower_slot() -> None:
    uses = slot_uses([backup("b", (0, 10)), backup("a", (0, 20))], now=NOW)["nas1"]
    assert [(use.tried.run_id, use.slot) for use in uses] == [("a.0", 0), ("b.0", 1)]
    earlier = slot_uses([backup("a", (9, 10)), backup("b", (0, 20))], now=NOW)["nas1"]
    assert [use.tried.run_id for use in earlier] == ["b.0", "a.0"]


def test_a_try_that_goes_on_goes_on_until_now_and_one_whose_end_nobody_saw_until_its_backup_was_over() -> None:
    going = replace(backup("a", (0, None)), state=FleetState.RUNNING)
    lost = backup("b", (0, None))
    ends = {use.backup.owed.cluster: use.end for use in slot_uses([going, lost], now=NOW)["nas1"]}
    assert ends == {"a": NOW, "b": BEGIN + timedelta(hours=1)}


def test_a_clock_that_went_back_makes_no_slot_of_less_than_nothing() -> None:
    (use,) = slot_uses([backup("a", (10, 5))], now=NOW)["nas1"]
    assert use.begin == use.end


SPANS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 200)), max_size=40)


@given(SPANS)
def test_no_slot_is_taken_twice_and_no_more_are_drawn_than_were_taken_at_once(spans: list[tuple[int, int]]) -> None:
    backups = [backup(f"c{number}", (begin, begin + length)) for number, (begin, length) in enumerate(spans)]
    uses = slot_uses(backups, now=NOW).get("nas1", [])
    for slot in range(most_at_once(uses)):
        mine = [use for use in uses if use.slot == slot]
        assert all(before.end <= after.begin for before, after in pairwise(mine))
    alive = [sum(one.begin <= use.begin < one.end for one in uses if one is not use) for use in uses]
    assert most_at_once(uses) <= max(alive, default=-1) + 1
