"""Which hosts are set apart for being the machine of another: only on evidence, and never who was it first."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backupd.policy.one_machine import counted_as, taken_for_another
from backupd.vocabulary.fleet import SeenHost
from tests.fleets import NOW, known_for, seen, source, terms

ONE = "dbhost-0badcafe"
COUNTED = counted_as([terms("bills", "a"), terms("users", "b")])


def host(name: str, server: str = "u", *, job: str = "nightly", machine: str = ONE, hours: float = 0.0) -> SeenHost:
    """One that has been this machine for so long."""
    return known_for(hours, seen(name, replace(source(server=server), job=job), machine=machine))


def apart(*hosts: SeenHost) -> set[str]:
    return set(taken_for_another({one.host: one for one in hosts}, COUNTED))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (host("a"), host("b", "v")),
        (host("a"), host("b", "")),  # its server is down
        (host("a", ""), host("b", "")),
        (host("a"), host("b", job="hourly")),
        (host("a", machine=""), host("b", machine="")),
        (host("a"), known_for(0.0, seen("b", machine=ONE))),
        (host("a"), seen("b", source(server="u"), machine=ONE)),  # of a database that does not say since when
    ],
)
def test_what_is_no_evidence_stops_nobody(one: SeenHost, other: SeenHost) -> None:
    assert apart(one, other) == set()


@pytest.mark.parametrize(("servers", "stopped"), [(("u", "v"), set()), (("u", "u"), {"b"}), (("", ""), set())])
def test_the_servers_of_the_jobs_that_each_cluster_owes_are_evidence(
    servers: tuple[str, str], stopped: set[str]
) -> None:
    """One machine may have two servers: its agent tells the jobs of both, whichever name it goes by."""
    counted = counted_as([terms("bills", "a", jobs=("bills",)), terms("users", "b", jobs=("users",))])
    jobs = [replace(source(), job=job, server=one) for job, one in zip(("bills", "users"), servers, strict=True)]
    told = {name: known_for(hours, seen(name, *jobs, machine=ONE)) for name, hours in (("a", 48.0), ("b", 0.0))}
    assert set(taken_for_another(told, counted)) == stopped


@pytest.mark.parametrize(
    ("hours", "stopped"),
    [((48.0, 0.0), {"b"}), ((0.0, 48.0), {"a"}), ((0.0, 0.0), {"a", "b"}), ((0.5, 0.0), {"a", "b"})],
)
def test_of_one_machine_and_server_who_was_it_first_goes_on(hours: tuple[float, float], stopped: set[str]) -> None:
    assert apart(host("a", hours=hours[0]), host("b", hours=hours[1])) == stopped


def test_who_was_a_machine_first_is_that_still_after_it_was_another_for_a_while() -> None:
    back = host("a")
    assert back.described is not None
    back = replace(back, described=replace(back.described, machines={ONE: NOW - timedelta(days=300)}))
    assert apart(back, host("b", hours=6.0)) == {"b"}


@pytest.mark.parametrize(
    ("problem", "answered_hours_ago", "stopped"),
    [("it does not answer", 48.0, set()), ("it does not answer", 6.0, {"b"}), ("", 48.0, {"b"})],
)
def test_a_name_that_has_not_answered_since_stops_no_successor(
    problem: str, answered_hours_ago: float, stopped: set[str]
) -> None:
    """A host was renamed, and its old name is in the inventory still."""
    answered_at = NOW - timedelta(hours=answered_hours_ago)
    old = replace(host("a", hours=900.0), answered_at=answered_at, problem=problem)
    assert apart(old, host("b", hours=24.0)) == stopped
