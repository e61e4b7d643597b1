"""fleet.toml: what is read from it, and that all of its faults are told at once."""

from datetime import time
from pathlib import Path

import pytest

from backupd.config.fleet import FleetConfiguration, InventoryConfig, MemberChoice
from backupd.config.fleet_reading import InventoryHosts, fleet_understood, load_fleet, locate_fleet
from backupd.config.secrets import named_password
from backupd.policy.inventory import ListedHost
from backupd.vocabulary.errors import ConfigurationError

PATH = Path("/etc/backupd/fleet.toml")


def understood(text: str, *listed: ListedHost) -> FleetConfiguration:
    return fleet_understood(text, PATH, lambda _: InventoryHosts(listed)).configuration


def said(text: str, *listed: ListedHost) -> str:
    with pytest.raises(ConfigurationError) as refused:
        understood(text, *listed)
    return f"{refused.value.message}\nhint: {refused.value.hint}"


def test_one_host_is_a_cluster_of_its_own_with_the_default_policy() -> None:
    fleet = understood("[hosts.db1]")
    assert fleet.clusters["db1"].members == ("db1",)
    assert fleet.clusters["db1"].jobs == ("nightly",)
    assert fleet.hosts["db1"].cluster == "db1"
    policy = fleet.policies[fleet.clusters["db1"].policy]
    assert (policy.member, policy.every_seconds, policy.max_lag_seconds) == (MemberChoice.LEAST_LAG, 86400, 600)
    assert (policy.windows[0].begin, policy.windows[0].end) == (time(21), time(6))


def test_a_cluster_has_the_members_that_it_lists_and_those_that_name_it() -> None:
    fleet = understood("[hosts]\ndb1 = {}\ndb2 = { cluster = 'orders' }\n[clusters.orders]\nmembers = ['db1']")
    assert fleet.clusters["orders"].members == ("db1", "db2")
    assert {host.cluster for host in fleet.hosts.values()} == {"orders"}
    assert set(fleet.clusters) == {"orders"}


def test_what_the_file_says_of_a_host_goes_before_the_inventory() -> None:
    listed = ListedHost("db1.example.com", address="10.0.0.1", port=2222, user="ops", cluster="orders")
    text = '[inventory]\nfile = "/etc/ansible/hosts"\n[hosts."db1.example.com"]\naddress = "10.9.9.9"'
    host = understood(text, listed).hosts["db1.example.com"]
    assert (host.address, host.port, host.user, host.cluster) == ("10.9.9.9", 2222, "ops", "orders")


def test_all_faults_are_told_at_once() -> None:
    words = said(
        """
        [control]
        database = "postgresql://backupd:secret@db/fleet"
        pol = "1s"
        [hosts]
        db1 = { cluster = "orders" }
        db2 = {}
        "db 3" = {}
        [clusters.orders]
        members = ["db2", "db9"]
        policy = "hevy"
        [clusters.bills]
        members = ["db2"]
        [clusters.empty]
        [policies.heavy]
        retries = 9
        member = "nearest"
        windows = ["22:00-23:00"]
        blackout = ["20:00-24:00"]
        [policies.closed]
        windows = ["22:00-23:00"]
        blackout = ["21:00-23:30"]
        [targets.nas1]
        slots = 0
        max_rate = "1B"
        """
    )
    assert "secret" not in words
    for part in (
        "control.database: has a password in it",
        "control.pol: unknown key",
        "did you mean poll?",
        'hosts."db 3": "db 3" is not the name of a host',
        'clusters.orders.members: there is no host "db9"',
        'clusters.orders.policy: there is no policy "hevy"',
        "did you mean heavy?",
        "hosts.db2: is in 2 clusters: orders, bills",
        "clusters.empty: has no members",
        "policies.heavy.retries: 9 is not at most 8",
        'policies.heavy.member: "nearest" does not say which member',
        'policies.heavy.blackout[0]: "20:00-24:00" is not a time window',
        "policies.closed.blackout: covers all windows",
        "targets.nas1.slots: 0 is not at least 1",
        "targets.nas1.max_rate: 1 B is less than 1 KiB",
    ):
        assert part in words, part


@pytest.mark.parametrize(
    "policy",
    [
        "spread = '2h'\nstart_within = '1h'",
        "spread = '4h'\nwindows = ['01:00-05:00']",
        "spread = '7h'\nwindows = ['21:00-00:00', '00:00-06:00']",
    ],
)
def test_a_spread_as_long_as_the_time_to_begin_in_is_no_fault(policy: str) -> None:
    """A night spreads over half of that time at most; and the fault would keep a control host from starting."""
    understood(f"hosts.db1 = {{}}\n[policies.default]\n{policy}")


def test_a_run_id_fits_with_its_night_and_its_last_try() -> None:
    cluster = "c" * 41
    understood(f"[hosts.db1]\ncluster = '{cluster}'\n[clusters.{cluster}]\njobs = ['j{'j' * 7}']")
    words = said(f"[hosts.db1]\ncluster = '{cluster}'\n[clusters.{cluster}]\njobs = ['j{'j' * 8}']")
    assert f"20261126-{cluster}-jjjjjjjjj.9 must be one: give it a shorter name" in words


def test_where_each_member_is_backed_up_its_name_is_in_the_run_id() -> None:
    member = "m" * 60
    words = said(f"[hosts.{member}]\ncluster = 'a'\n[policies.default]\nmember = 'all'")
    assert f"the run ids of job nightly of cluster a on {member} would be longer" in words


def test_two_backups_of_one_run_id_are_a_fault() -> None:
    text = "[hosts]\ndb1={cluster='a-b'}\ndb2={cluster='a'}\n[clusters]\na-b={jobs=['c']}\na={jobs=['b-c']}"
    assert "the backups of job b-c of cluster a would have the ids of those of job c of cluster a-b" in said(text)


def test_a_policy_that_names_no_member_of_its_cluster_is_a_fault() -> None:
    words = said("[hosts.db1]\ncluster='a'\n[clusters.a]\npolicy='p'\n[policies.p]\nmember=['db2']")
    assert "clusters.a.policy: policy p names none of its members: db1" in words


LISTED = '[inventory]\nfile="/i"\n'
PLAIN = ListedHost("db0")


def with_problems(text: str, *listed: ListedHost) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The members of each cluster, and what is told of the inventory."""
    file = fleet_understood(text, PATH, lambda _: InventoryHosts(listed))
    configuration = file.configuration
    assert set(configuration.hosts) == {one for cluster in configuration.clusters.values() for one in cluster.members}
    return {name: cluster.members for name, cluster in configuration.clusters.items()}, file.problems


@pytest.mark.parametrize("name", ["db3.example.org", "DB_Reporting", "x" * 60, "db..x"])
def test_a_host_of_the_inventory_that_can_be_no_cluster_is_left_out_and_told(name: str) -> None:
    """An ordinary name of Ansible's: the others have their nights."""
    clusters, (problem,) = with_problems(LISTED, PLAIN, ListedHost(name))
    assert clusters == {"db0": ("db0",)}
    assert problem.startswith("the inventory /i: hosts in no cluster whose names no cluster can have")
    assert f'"{name}"' in problem
    assert with_problems(LISTED, ListedHost(name, cluster="a")) == ({"a": (name,)}, ())
    assert with_problems(f"{LISTED}[clusters.a]\nmembers=['{name}']", ListedHost(name)) == ({"a": (name,)}, ())


def test_a_host_of_the_file_that_can_be_no_cluster_is_a_fault() -> None:
    words = said('[hosts."db8.example.org"]')
    assert 'hosts."db8.example.org": is in no cluster, and no cluster can have its name' in words
    assert 'write cluster = "NAME" there' in words


def test_a_host_of_the_file_whose_cluster_the_inventory_says_may_have_any_name() -> None:
    listed = ListedHost("db8.example.org", cluster="a")
    assert with_problems(f'{LISTED}[hosts."db8.example.org"]\nport=2222', listed)[0] == {"a": ("db8.example.org",)}


@pytest.mark.parametrize("listed", [(PLAIN,), (PLAIN, ListedHost("db8.example.org"))])
def test_a_host_of_the_file_whose_cluster_the_inventory_has_dropped_is_left_out_and_told(
    listed: tuple[ListedHost, ...],
) -> None:
    clusters, (problem,) = with_problems(f'{LISTED}[hosts."db8.example.org"]\naddress="10.0.0.3"', *listed)
    assert clusters == {"db0": ("db0",)}
    assert '(1 to 41 of a-z, 0-9, _ and -) are left out: "db8.example.org"' in problem


def test_while_nobody_knows_the_inventory_a_host_of_the_file_that_can_be_no_cluster_is_left_out_and_told() -> None:
    text = f'{LISTED}[hosts.db0]\n[hosts."db8.example.org"]\naddress="10.0.0.3"'
    file = fleet_understood(text, PATH, lambda _: InventoryHosts(None, ("it is away",)))
    assert set(file.configuration.hosts) == {"db0"}
    assert len(file.problems) == 2


@pytest.mark.parametrize("table", ["", f"[hosts.{'m' * 60}]\nport=2222\n"])
def test_a_host_of_the_inventory_whose_backups_can_have_no_id_is_left_out_and_told(table: str) -> None:
    """Also where the file says how it is reached."""
    long = "m" * 60
    every = f"{LISTED}{table}[policies.default]\nmember='all'"
    clusters, (problem,) = with_problems(every, ListedHost("db1", cluster="a"), ListedHost(long, cluster="a"))
    assert clusters == {"a": ("db1",)}
    assert f'hosts whose backups could have no run ids of their own are left out: "{long}'[:60] in problem


def test_a_host_of_the_inventory_whose_backups_would_have_the_ids_of_another_s_is_left_out_and_told() -> None:
    text = f"{LISTED}[hosts]\ndb1={{cluster='a-b'}}\n[clusters]\na-b={{jobs=['nightly']}}\na={{jobs=['b-nightly']}}"
    assert "would have the ids of" in said(f"{text}\n[hosts.db2]\ncluster='a'", PLAIN)
    text = f"{LISTED}[hosts]\ndb1={{cluster='a'}}\n[clusters]\na={{jobs=['b-nightly']}}"
    clusters, (problem,) = with_problems(text, ListedHost("a-b"), PLAIN)
    assert clusters == {"a": ("db1",), "db0": ("db0",)}
    assert "could have no run ids of their own" in problem


def test_a_host_that_the_inventory_and_the_file_put_into_two_clusters_is_left_out_and_told() -> None:
    """Which of the two is right nobody knows: it could be another's data."""
    text = f"{LISTED}[hosts.db2]\n[clusters.bills]\nmembers=['db1', 'db2']"
    clusters, (problem,) = with_problems(text, ListedHost("db1", cluster="orders"), PLAIN)
    assert clusters == {"bills": ("db2",), "db0": ("db0",)}
    assert problem == ('the inventory /i: hosts that are in two clusters are left out: "db1 (bills, orders)"')
    assert "hosts.db2: is in 2 clusters" in said(f"{text}\n[clusters.orders]\nmembers=['db2']", PLAIN)


def test_a_member_that_has_left_the_inventory_is_told_and_costs_the_others_nothing() -> None:
    text = f"{LISTED}[clusters.orders]\nmembers=['db1', 'db2']\n[clusters.bills]\nmembers=['db3']"
    clusters, problems = with_problems(text, ListedHost("db1"), PLAIN)
    assert clusters == {"orders": ("db1",), "db0": ("db0",)}
    gone = "which is no host of the file or the inventory; did you mean db1?"
    assert problems == (
        f'the inventory /i: cluster orders lists "db2", {gone}',
        f'the inventory /i: cluster bills lists "db3", {gone}',
        "the inventory /i: cluster bills has no members, and no backups",
    )


def test_a_policy_whose_members_have_left_the_inventory_is_told() -> None:
    text = f"{LISTED}[clusters.a]\npolicy='p'\nmembers=['db1', 'db2']\n[policies.p]\nmember=['db2']"
    clusters, problems = with_problems(text, ListedHost("db1"))
    assert clusters == {"a": ("db1",)}
    assert problems[-1] == "the inventory /i: cluster a has no backups: policy p names none of its members: db1"


def test_a_file_that_can_use_no_host_of_its_inventory_says_why() -> None:
    words = said(LISTED, ListedHost("db1.example.org"))
    assert "there is no host" in words
    assert "inventory: hosts in no cluster whose names no cluster can have" in words


@pytest.mark.parametrize("listed", [("a", "db1"), ("db1", "z")])
def test_a_host_after_which_others_name_their_cluster_is_in_it(listed: tuple[str, str]) -> None:
    """Else no cluster had it, and it would be backed up by nobody."""
    hosts = [ListedHost(name, cluster=None if name == "db1" else "db1") for name in listed]
    assert with_problems(LISTED, *hosts) == ({"db1": listed}, ())


def test_while_nobody_knows_the_inventorys_hosts_none_of_them_is_missed() -> None:
    text = "[inventory]\nfile='/i'\n[clusters.orders]\nmembers=['db1']\n[clusters.bills]"
    file = fleet_understood(text, PATH, lambda _: InventoryHosts(None, ("it is away",)))
    assert file.problems == ("it is away",)


def test_an_inventory_with_a_fault_of_its_own_is_neither_run_nor_read() -> None:
    def never(_: InventoryConfig) -> InventoryHosts:
        raise AssertionError

    for table in ("command = ['ls']", "file = '/i'\ncommand = ['/bin/ls']", "", "file = '/i'\nfiel = 1"):
        with pytest.raises(ConfigurationError):
            fleet_understood(f"[inventory]\n{table}\n", PATH, never)


def test_a_fleet_without_a_host_is_a_fault() -> None:
    assert "hosts: there is no host" in said("")


@pytest.mark.parametrize(
    "text",
    ["/var/lib/x.sqlite", "postgresql://u@h:5432/db?sslmode=require", "postgresql:///fleet?host=/run/postgresql"],
)
def test_a_database_is_a_file_or_an_address(text: str) -> None:
    assert understood(f"control.database = '{text}'\nhosts.db1 = {{}}").control.database == text


@pytest.mark.parametrize("text", ["x.sqlite", "mysql://h/db", "postgresql://h", "postgresql://u@h/db?password=x"])
def test_what_is_no_database_is_a_fault_that_does_not_show_it(text: str) -> None:
    words = said(f"control.database = '{text}'\nhosts.db1 = {{}}")
    assert "control.database: " in words
    assert text not in words


def test_a_database_has_at_most_one_password_and_a_file_none() -> None:
    both = 'control = { database = "postgresql://u@h/d", password_file = "/p", password_env = "P" }\nhosts.db1 = {}'
    assert "control: has 2 sources for one password" in said(both)
    assert "control.password_env: an SQLite file has no password" in said(
        'control = { password_env = "P" }\nhosts.db1={}'
    )


def test_the_databases_password_is_found_as_any(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    control = understood(
        f'control = {{ database = "postgresql://u@h/d", password_file = "{secret}" }}\nhosts.db1={{}}'
    ).control
    assert named_password(control, "control", {}) == "s3cret"
    secret.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"control.password_file: .* can be read or written by others"):
        named_password(control, "control", {})


def test_the_file_is_named_by_the_option_the_environment_or_the_package(tmp_path: Path) -> None:
    assert locate_fleet(tmp_path, {"BACKUPD_FLEET_CONFIG": "/x"}) == tmp_path
    assert locate_fleet(None, {"BACKUPD_FLEET_CONFIG": "/x"}) == Path("/x")
    assert locate_fleet(None, {}) == PATH
    with pytest.raises(ConfigurationError, match="no configuration at"):
        load_fleet(tmp_path / "none.toml", lambda _: InventoryHosts())
