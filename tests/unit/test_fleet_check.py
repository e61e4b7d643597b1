"""Whether hosts are what the file says: what differs, how grave it is, and that one bad host spares the others."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.config.fleet_reading import FleetFile, InventoryHosts, fleet_understood
from backupd.fleet import HostAway, HostRefuses
from backupd.operations.fleet.fleet_findings import fleet_findings
from backupd.operations.fleet.host_survey import AskedHost, ask_hosts
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.fleet import DescribedJob, HostDescription
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import Flavour
from tests.fakes.agents import FakeAgents
from tests.fleets import NOW, described, replica, source

FILE = """
[control]
notifications = "/etc/backupd/backupd.toml"
[hosts]
db1 = { cluster = "orders" }
db2 = { cluster = "orders" }
db3 = { cluster = "orders" }
[targets.nas1]
"""
Told = HostDescription | BackupdError


def good(host: str, **changed: object) -> HostDescription:
    job = source() if host == "db1" else replica()
    own: dict[str, object] = {"server": f"uuid-{host}", "flavour": Flavour.MYSQL, "fallback_after_seconds": 43200.0}
    return described(host, replace(job, **own | changed))  # type: ignore[arg-type]


def findings(text: str = FILE, **changed: Told) -> tuple[Finding, ...]:
    file = fleet_understood(text, Path("fleet.toml"), lambda _: InventoryHosts(()))
    return found_in(file, changed)


def found_in(file: FleetFile, changed: Mapping[str, Told]) -> tuple[Finding, ...]:
    told: dict[str, Told] = {host: changed.get(host) or good(host) for host in file.configuration.hosts}
    return fleet_findings(file, ask_hosts(file.configuration.hosts, FakeAgents(told), at_once=8), now=NOW)


def said(found: tuple[Finding, ...]) -> list[tuple[Level, str, str]]:
    return [(one.level, one.name, one.detail) for one in found]


def with_jobs(host: str, *jobs: DescribedJob) -> HostDescription:
    return replace(good(host), jobs=jobs)


def test_where_most_hosts_have_another_time_it_is_the_clock_of_whoever_asks() -> None:
    first, second = (replace(good(host), clock_ahead_seconds=300.0) for host in ("db1", "db2"))
    found = said(findings(db1=first, db2=second))
    (own,) = [one for one in found if one[1] == "this control host"]
    assert own[0] is Level.REFUSED
    assert own[2].startswith("its clock seems to be 5m behind: 2 of ")


def test_hosts_that_are_what_the_file_says_find_nothing() -> None:
    assert findings() == ()


def test_one_host_that_is_away_is_a_warning_with_its_hint_while_another_is_fit() -> None:
    (one,) = findings(db3=HostAway("connection refused", hint="is sshd running?"))
    assert one == Finding("host db3", Level.WARNING, "connection refused", "is sshd running?")


def test_a_cluster_without_a_member_that_is_fit_is_refused_with_the_reason_of_each() -> None:
    found = findings(db2=HostAway("it is away"), db3=HostRefuses("its key has changed"))
    assert (found[0].level, found[0].name) == (Level.REFUSED, "cluster orders")
    assert found[0].detail == (
        "no member can make the backup of job nightly: db1: it is the source, which the policy does not allow;"
        " db2: it is away; db3: its key has changed"
    )
    assert "allow_source = true" in found[0].hint


def test_where_no_host_answers_nobody_is_told_to_spare_the_source_no_longer() -> None:
    away = HostAway("it is away")
    found = findings(db1=away, db2=away, db3=away)
    assert found[0].level is Level.REFUSED
    assert "allow_source" not in found[0].hint
    assert found[0].hint == "the reason is listed after each member; one usable member is enough"


def test_a_host_that_makes_its_backup_just_now_is_fit() -> None:
    text = "control.notifications = '/etc/b'\nhosts.db1 = {}\ntargets.nas1 = {}"
    assert findings(text, db1=good("db1", running="r1")) == ()


@pytest.mark.parametrize(
    ("told", "level", "name", "part"),
    [
        (replace(good("db3"), clock_ahead_seconds=3700.0), Level.WARNING, "host db3", "its clock is 62m ahead"),
        (replace(good("db3"), protocols=(7, 9)), Level.WARNING, "host db3", "too new for this control host"),
        (replace(good("db3"), machine="db2-0a1b2c3d"), Level.REFUSED, "host db2", "hosts db2, db3 have one identity"),
        (good("db3", server="uuid-db2"), Level.REFUSED, "host db2", "have one id, uuid-db2"),
        (good("db3", follows="elsewhere:3306"), Level.WARNING, "cluster orders", "db3 follows elsewhere:3306"),
        (with_jobs("db3"), Level.WARNING, "cluster orders", "job nightly is not on db3"),
        (good("db3", targets=("nas1", "nas9")), Level.WARNING, "target nas9", "it is used by db3, but has no table"),
    ],
)
def test_what_a_host_is_not_is_found(told: HostDescription, level: Level, name: str, part: str) -> None:
    (one,) = findings(db3=told)
    assert (one.level, one.name) == (level, name)
    assert part in one.detail


def test_two_that_follow_nobody_are_refused_unless_the_policy_takes_sources() -> None:
    alone = replace(good("db3"), jobs=good("db1", server="uuid-db3").jobs)
    (one,) = findings(db3=alone)
    assert one.level is Level.REFUSED
    assert one.detail == "db1, db3 are not replicas of anything: do they hold the same data?"
    (one,) = findings(FILE + "[policies.default]\nallow_source = true", db3=alone)
    assert one.level is Level.WARNING


def test_ids_of_mariadb_differ_within_a_cluster_and_those_of_mysql_everywhere() -> None:
    text = "control.notifications = '/etc/b'\nhosts.db1 = {}\nhosts.db4 = {}\ntargets.nas1 = {}"
    for flavour, refused in ((Flavour.MARIADB, False), (Flavour.MYSQL, True)):
        same: dict[str, Told] = {
            host: described(host, source(server="1", flavour=flavour, fallback_after_seconds=43200.0))
            for host in ("db1", "db4")
        }
        assert bool(findings(text, **same)) is refused


def test_a_target_that_nobody_has_is_a_warning() -> None:
    (one,) = findings(FILE + "[targets.nas2]")
    assert (one.level, one.name) == (Level.WARNING, "target nas2")


def test_a_cluster_of_which_nobody_goes_on_alone_is_told() -> None:
    never: dict[str, Told] = {host: good(host, fallback_after_seconds=None) for host in ("db1", "db2", "db3")}
    (one,) = findings(FILE, **never)
    assert one.detail == "no member backs up job nightly by itself when the control host is away"


def test_a_job_that_waits_for_a_fleet_which_never_makes_it_is_refused() -> None:
    of_shop = described("db1", *(replace(good("db1").jobs[0], job=name) for name in ("nightly", "weekly")))
    (one,) = findings(db1=of_shop)
    assert (one.level, one.name) == (Level.REFUSED, "host db1")
    assert one.detail == "job weekly has fallback_after, and its cluster has no such job: nobody would make its backups"
    assert "add weekly to `jobs`" in one.hint


def test_a_member_that_goes_by_its_own_schedule_too_is_told() -> None:
    (one,) = findings(db2=good("db2", fallback_after_seconds=0.0))
    assert one.detail == "job nightly is also backed up by its own schedule on db2, whatever the fleet does"


def test_a_member_that_waits_for_less_than_two_questions_is_told() -> None:
    (one,) = findings(db2=good("db2", fallback_after_seconds=3600.0))
    assert one.level is Level.WARNING
    assert one.detail == (
        "fallback_after of job nightly is only 1h on db2: when the control host is away for so long, backups begin"
        " there beside the fleet's"
    )
    assert "write 12h or more as fallback_after" in one.hint


def test_a_fleet_of_which_nobody_is_told_is_a_warning() -> None:
    (one,) = findings(FILE.replace("notifications", "# notifications"))
    assert (one.level, one.name) == (Level.WARNING, "control")
    assert one.detail.startswith("nobody is notified of backups that failed or were missed")


def test_the_name_of_a_host_that_is_away_is_said_once() -> None:
    for message, detail in (
        ("db3 (root@10.0.0.3) did not answer within 60 s", "it (root@10.0.0.3) did not answer within 60 s"),
        ("db3: the catalogue is locked", "the catalogue is locked"),
        ("db30 is another host", "db30 is another host"),
    ):
        (one,) = findings(db3=HostAway(message))
        assert (one.name, one.detail) == ("host db3", detail)


def test_a_proof_that_is_too_old_is_told() -> None:
    text = FILE + "[policies.default]\ndrill_within = '7d'"
    (one,) = findings(text)
    assert one.detail == "no drill has ever proven a backup; one is required every 7d"
    old = good("db2", last_proven_at=NOW - timedelta(days=9))
    assert findings(text, db2=old)[0].detail == "no drill has proven a backup for 9d; one is required every 7d"
    assert findings(text, db2=good("db2", last_proven_at=NOW - timedelta(days=6))) == ()


def test_what_is_wrong_with_the_inventory_is_told_and_the_others_go_on() -> None:
    file = fleet_understood(f"{FILE}[inventory]\nfile='/i'", Path("f"), lambda _: InventoryHosts((), ("it is cut",)))
    assert said(found_in(file, {})) == [(Level.WARNING, "inventory", "it is cut")]


def test_hosts_are_asked_side_by_side_and_so_many_at_a_time() -> None:
    hosts = [f"db{number}" for number in range(12)]
    agents = FakeAgents({host: described(host) for host in hosts}, meet=threading.Barrier(4))  # breaks with fewer
    asked = ask_hosts(hosts, agents, at_once=4)
    assert agents.most_at_once == 4
    assert list(asked) == hosts
    assert all(isinstance(one, AskedHost) and one.seen.described is not None for one in asked.values())
    assert ask_hosts([], agents, at_once=4) == {}


def test_where_each_member_owes_proofs_one_that_has_none_is_told() -> None:
    text = FILE + "[policies.default]\nmember = 'all'\ndrill_within = '7d'"
    proven = {host: good(host, last_proven_at=NOW - timedelta(days=1)) for host in ("db1", "db2", "db3")}
    assert findings(text, **proven) == ()
    (one,) = findings(text, **(proven | {"db3": good("db3")}))
    assert one.detail == "no drill has ever proven a backup; one is required every 7d"


def test_hosts_of_two_clusters_that_are_one_machine_are_refused() -> None:
    text = "control.notifications = '/etc/b'\nhosts.db1 = {}\nhosts.db4 = {}\ntargets.nas1 = {}"
    same = {host: replace(good(host), machine="db1-0a1b2c3d") for host in ("db1", "db4")}
    first = findings(text, **same)[0]
    assert (first.level, first.name) == (Level.REFUSED, "host db1")
    assert "hosts db1, db4 have one identity, db1-0a1b2c3d" in first.detail
    assert "where they have one server as well, only the one that had it first makes backups" in first.detail
    assert "correct it in fleet.toml or the inventory" in first.hint
    assert "type `backupd identity new` on the clone" in first.hint
