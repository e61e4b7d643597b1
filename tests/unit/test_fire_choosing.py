"""Which fault comes with which seed."""

from collections import Counter

from tests.fire.beating import Beat, held_seconds, longest, noise, parsed
from tests.fire.choosing import Situation, chosen, every, failpoints
from tests.fire.points import ALWAYS, Fault, How, Passed, Point, When

SHARES = {"run": 3, "recover": 1}


def passes(name: str, times: int, *, locked: bool = False, hows: frozenset[How] = ALWAYS) -> list[Passed]:
    return [Passed(Point(name, n, when), hows, locked) for n in range(1, times + 1) for when in When]


RECOVERY = Situation("recover", "run", Fault(How.DIE, Point("sql FLUSH", 1, When.BEFORE)))
POINTS = {
    Situation("run"): [
        *passes("target write a piece", 500),
        *passes("sql FLUSH", 1, locked=True),
        *passes("process lvs", 3, hows=ALWAYS | {How.HANG}),
    ],
    RECOVERY: passes("process lvremove", 2),
}


def test_seed_has_the_same_fault_every_time_and_another_seed_another_one() -> None:
    cases = [chosen(seed, POINTS, SHARES) for seed in range(200)]
    assert cases == [chosen(seed, POINTS, SHARES) for seed in range(200)]
    assert len({case.fault for case in cases}) > 30
    assert {case.situation for case in cases if "lvremove" in case.fault.point.name} == {RECOVERY}


def test_door_that_is_passed_often_is_not_all_that_is_tried() -> None:
    faults = [chosen(seed, POINTS, {"run": 1, "recover": 0}).fault for seed in range(600)]
    by_name = Counter(fault.point.name for fault in faults)
    assert by_name["sql FLUSH"] > by_name["target write a piece"] > 50
    assert {1, 500} <= {fault.point.ordinal for fault in faults if fault.point.name == "target write a piece"}
    assert {fault.how for fault in faults} == ALWAYS | {How.HANG}


def test_every_fault_of_a_kind_is_tried_once_at_each_name_and_what_lasts_only_under_the_lock() -> None:
    kinds = frozenset({How.DIE, How.HANG, How.SLOW})
    assert [str(case.fault) for case in every(POINTS, kinds)] == [
        "die:before:1:target write a piece",
        "die:before:1:sql FLUSH",
        "slow:before:1:sql FLUSH",
        "slow:after:1:sql FLUSH",
        "die:before:1:process lvs",
        "hang:before:1:process lvs",
        "die:before:1:process lvremove",
    ]
    assert [str(case.fault) for case in every(POINTS, kinds, "process lvs")] == [
        "die:before:1:process lvs",
        "hang:before:1:process lvs",
    ]


def test_failpoint_is_a_door_of_a_command_however_often_it_is_passed() -> None:
    assert len(failpoints(POINTS)) == 2 * 4


def test_lock_lasts_from_its_grant_to_the_first_write_that_began_after_it() -> None:
    beats = parsed("0.90 0.91\n0.99 1.01\n1.02 3.10\n3.12 3.13\n3.2")
    assert held_seconds(beats, granted=1.0) == Beat(1.02, 3.10).done - 1.0
    assert held_seconds(beats, granted=4.0) is None
    assert longest(beats, 1.0, 4.0) == Beat(1.02, 3.10).seconds
    assert longest(beats, 5.0, 6.0) == 0.0


def test_noise_is_what_a_write_waits_for_without_a_lock() -> None:
    beats = parsed("1.00 1.01\n1.035 1.215\n1.24 1.25\n1.60 1.61\n")
    assert round(noise(beats, granted=1.3), 3) == 0.18
    assert round(noise(beats, granted=1.7), 3) == 0.325
    assert noise([], granted=1.7) == 0.0
