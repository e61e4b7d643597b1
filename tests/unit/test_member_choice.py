"""Which member of a cluster is backed up, and what is said of those that are not."""

from dataclasses import replace

import pytest

from backupd.policy.member_choice import MemberRule, choose_member, roughly
from backupd.vocabulary.fleet import FleetTry, Role, SeenHost
from tests.fleets import NOW, away, replica, seen, source

MEMBERS = ("db1", "db2", "db3")
RULE = MemberRule(max_lag_seconds=60.0)


def cluster(**changed: SeenHost) -> dict[str, SeenHost]:
    return {"db1": seen("db1", source()), "db2": seen("db2", replica(9.0)), "db3": seen("db3", replica(2.0))} | changed


def test_the_replica_least_behind_is_chosen_and_the_source_is_spared() -> None:
    chosen = choose_member(MEMBERS, "nightly", cluster(), RULE)
    assert [one.host for one in chosen.fit] == ["db3", "db2"]
    assert chosen.said == "db3: a replica, 2s behind"
    assert [(one.host, one.said) for one in chosen.unfit] == [
        ("db1", "it is the source, which the policy does not allow")
    ]


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (away("db3", "connection refused"), "connection refused"),
        (SeenHost("db3", None, None), "it has not been asked yet"),
        (seen("db3"), "it has no job nightly"),
        (seen("db3", replica(61.0)), "it is 61s behind its source, and 1m is allowed"),
        (seen("db3", replica(7300.0)), "it is 2h behind its source, and 1m is allowed"),
        (seen("db3", replica(None)), "it does not know how far behind its source it is"),
        (seen("db3", replica(paused=True)), "a person has paused the job there"),
        (seen("db3", replica(running="r7")), "run r7 is in progress there"),
        (seen("db3", replace(replica(), role=Role.UNKNOWN, problem="gone")), "its server cannot be asked: gone"),
        (seen("db3", replica(), clock_ahead_seconds=3660.0), "its clock is 61m ahead"),
        (seen("db3", replica(), clock_ahead_seconds=-61.0), "its clock is 61s behind"),
        (seen("db3", replica(), protocols=(2, 3)), "its backupd 0.1.0 is too new for this control host"),
        (seen("db3", replica(), protocols=(0, 0)), "its backupd 0.1.0 is too old for this control host"),
    ],
)  # fmt: skip
def test_a_member_that_is_not_fit_is_passed_over_with_a_reason(member: SeenHost, said: str) -> None:
    chosen = choose_member(MEMBERS, "nightly", cluster(db3=member), RULE)
    assert chosen.host == "db2"
    assert next(one.said for one in chosen.unfit if one.host == "db3").startswith(said)


def test_the_source_is_used_only_where_no_replica_is_fit_and_the_policy_allows_it() -> None:
    down = cluster(db2=away("db2"), db3=away("db3"))
    refused = choose_member(MEMBERS, "nightly", down, RULE)
    assert refused.host is None
    assert refused.said == (
        "db1: it is the source, which the policy does not allow; db2: it does not answer; db3: it does not answer"
    )
    allowed = replace(RULE, allow_source=True)
    assert choose_member(MEMBERS, "nightly", down, allowed).host == "db1"
    spared = choose_member(MEMBERS, "nightly", cluster(), allowed)
    assert [one.host for one in spared.fit] == ["db3", "db2"]
    assert spared.unfit[0].said == "it is the source, and a replica is available"


def test_the_only_host_of_a_cluster_is_backed_up_whatever_it_is() -> None:
    assert choose_member(("db1",), "nightly", cluster(), RULE).host == "db1"


def test_named_members_go_in_the_order_of_their_names_source_or_not() -> None:
    chosen = choose_member(MEMBERS, "nightly", cluster(), replace(RULE, names=("db1", "db2", "elsewhere")))
    assert [one.host for one in chosen.fit] == ["db1", "db2"]
    assert choose_member(MEMBERS, "nightly", cluster(db1=away("db1")), replace(RULE, names=("db1",))).host is None


def tried(*hosts: str) -> list[FleetTry]:
    return [FleetTry(host, f"r{number}", NOW) for number, host in enumerate(hosts)]


def test_a_retry_goes_to_a_member_that_has_not_tried() -> None:
    def chosen(*hosts: str, rule: MemberRule = RULE) -> str | None:
        return choose_member(MEMBERS, "nightly", cluster(), rule, tries=tried(*hosts)).host

    assert (chosen("db3"), chosen("db3", "db2"), chosen("db3", "db2", "db3")) == ("db2", "db3", "db2")
    assert chosen("db2", rule=replace(RULE, retry_by_another=False)) == "db2"


def test_its_own_run_keeps_no_member_from_going_on() -> None:
    busy = cluster(db3=seen("db3", replica(running="r7")))
    assert choose_member(MEMBERS, "nightly", busy, RULE, of_its_own="r7").host == "db3"


def test_a_length_of_time_is_told_in_the_unit_that_says_enough() -> None:
    assert [roughly(seconds) for seconds in (0.2, 119, 121, 7300, 200_000)] == ["0s", "119s", "2m", "2h", "2d"]
