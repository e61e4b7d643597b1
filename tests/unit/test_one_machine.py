"""Which hosts are set apart for being the machine of another: only on evidence, and never who was it first."""

from dataclasses import replace

import pytest

from backupd.policy.one_machine import counted_as, taken_for_another
from backupd.vocabulary.fleet import SeenHost
from tests.fleets import known_for, seen, source, terms

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


def test_a_job_that_not_both_clusters_owe_is_no_evidence() -> None:
    """One machine, two servers: its agent tells the jobs of both, whichever name it goes by."""
    counted = counted_as([terms("bills", "a", jobs=("bills",)), terms("users", "b", jobs=("users",))])
    jobs = replace(source(), job="bills", server="u"), replace(source(), job="users", server="v")
    told = {name: known_for(0.0, seen(name, *jobs, machine=ONE)) for name in ("a", "b")}
    assert taken_for_another(told, counted) == {}


@pytest.mark.parametrize(
    ("hours", "stopped"),
    [((48.0, 0.0), {"b"}), ((0.0, 48.0), {"a"}), ((0.0, 0.0), {"a", "b"}), ((0.5, 0.0), {"a", "b"})],
)
def test_of_one_machine_and_server_who_was_it_first_goes_on(hours: tuple[float, float], stopped: set[str]) -> None:
    assert apart(host("a", hours=hours[0]), host("b", hours=hours[1])) == stopped
