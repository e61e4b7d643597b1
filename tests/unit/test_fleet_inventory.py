"""Ansible's inventories: the hosts in them, and what a stranger may write."""

import json

import pytest

from backupd.policy.inventory import BadInventory, InventoryReading, ListedHost, listed_hosts
from backupd.policy.inventory_text import groups_in

INI = """\
# production
db0.example.com ansible_host=10.0.0.9

[cluster_orders]
db[01:03] ansible_user=ops   # three of them
[cluster_bills]
db04 ansible_port=2222 note="two words"
[mysql:children]
cluster_orders
cluster_bills
[cluster_orders:vars]
ansible_port=22022
"""

YAML = """\
all:
  vars: {ansible_port: 22022}
  children:
    mysql:
      children:
        cluster_orders:
          hosts: {"db[01:03]": {ansible_user: ops}}
        cluster_bills:
          hosts:
            db04:
              ansible_port: 2222
              tags: [a, b]
"""

JSON = json.dumps(
    {
        "_meta": {"hostvars": {"db01": {"ansible_port": 22022, "ansible_user": "ops"}, "db04": {"nested": {"a": 1}}}},
        "all": {"children": ["ungrouped", "cluster_orders", "cluster_bills"]},
        "cluster_orders": {"hosts": ["db01", "db02"]},
        "cluster_bills": {"hosts": ["db04"]},
    }
)


def reading(group: str | None = None) -> InventoryReading:
    return InventoryReading(group, "backupd_cluster", "cluster_")


def hosts(text: str, name: str = "", *, group: str | None = None) -> dict[str, ListedHost]:
    return {one.name: one for one in listed_hosts(groups_in(text, name=name), reading(group)).hosts}


def problems(text: str) -> tuple[str, ...]:
    return listed_hosts(groups_in(text), reading()).problems


def test_ini_has_groups_ranges_and_variables() -> None:
    found = hosts(INI)
    assert sorted(found) == ["db0.example.com", "db01", "db02", "db03", "db04"]
    assert found["db02"] == ListedHost("db02", port=22022, user="ops", cluster="orders")
    assert found["db04"] == ListedHost("db04", port=2222, cluster="bills")
    assert found["db0.example.com"] == ListedHost("db0.example.com", address="10.0.0.9")


def test_yaml_has_groups_within_groups() -> None:
    found = hosts(YAML, "hosts.yml")
    assert found["db03"] == ListedHost("db03", port=22022, user="ops", cluster="orders")
    assert found["db04"] == ListedHost("db04", port=2222, cluster="bills")


def test_json_is_what_ansible_inventory_lists() -> None:
    found = hosts(JSON)
    assert found["db01"] == ListedHost("db01", port=22022, user="ops", cluster="orders")
    assert found["db04"] == ListedHost("db04", cluster="bills")


def test_only_the_hosts_of_a_group_are_taken() -> None:
    assert "db0.example.com" not in hosts(INI, group="mysql")
    with pytest.raises(BadInventory, match='has no group "postgres"'):
        hosts(INI, group="postgres")


def test_a_variable_of_the_host_tells_its_cluster_before_its_group_does() -> None:
    text = "[cluster_orders]\ndb1 backupd_cluster=bills\ndb2\n"
    assert {name: one.cluster for name, one in hosts(text).items()} == {"db1": "bills", "db2": "orders"}


def test_what_cannot_be_used_is_left_out_and_told_and_the_others_go_on() -> None:
    text = (
        "db1\ndb\x1b[31m\n-oProxyCommand=x\ndb2 ansible_host='a b'\ndb3 ansible_port=70000\ndb4 backupd_cluster=A\n"
        "[cluster_a]\ndb5\n[cluster_b]\ndb5\n"
    )
    assert set(hosts(text)) == {"db1"}
    told = "\n".join(problems(text))
    for part in (
        "names that no host can have",
        "in two clusters",
        "db5 (a, b)",
        "cannot be called so",
        "address, port",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("text", "name", "fact"),
    [
        ("", "", "is empty"),
        (" \n", "hosts.json", "is empty"),
        (JSON[: len(JSON) // 2], "", "it ends in the middle"),
        (JSON[:-1], "", "it ends in the middle"),
        ('{"all": nothing}', "", "is not JSON: a fault"),
        ("[1, 2]", "x.json", "no table of groups"),
        ('{"a":' * 100_000, "", "too deep|ends in the middle"),
        (YAML[:-20], "hosts.yml", "was cut off"),
        ("all:\n  hosts: {db1: \n", "hosts.yml", "is not YAML"),
        ("a: &x {b: 1}\nc: *x\n", "hosts.yml", "alias"),
        ("[" * 100_000 + "\n", "hosts.yml", "60 deep|is not YAML"),
        ("db1\ndb2", "", "was cut off"),
        ("db1 a='b\n", "", "line 1 has a quote without an end"),
        ("db[000000:999999]\n", "", "more than 20000"),
        ("[a:children]\nb\n[b:children]\na\n", "", "lists no host"),
        ("{}", "", "lists no host"),
    ],
)
def test_what_is_half_written_or_none_is_a_sentence(text: str, name: str, fact: str) -> None:
    with pytest.raises(BadInventory, match=fact):
        hosts(text, name)


def test_every_cut_of_a_json_inventory_is_noticed() -> None:
    for length in range(len(JSON)):
        with pytest.raises(BadInventory):
            hosts(JSON[:length], "hosts.json")


def test_ten_thousand_hosts_are_read() -> None:
    groups = {f"cluster_c{n}": {"hosts": [f"db{n}-{m}" for m in range(3)]} for n in range(3334)}
    assert len(hosts(json.dumps(groups))) == 10_002
