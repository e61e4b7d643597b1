"""Where the inventory comes from, and that the last good one is used while there is none better."""

import json
import time
from pathlib import Path

import pytest

from backupd.config.fleet import InventoryConfig
from backupd.config.fleet_reading import fleet_understood
from backupd.fleet.inventory import inventory_hosts
from backupd.host.process import start_time

HOSTS = json.dumps({"mysql": {"hosts": [f"db{number}" for number in range(20)]}})


@pytest.fixture
def inventory(tmp_path: Path) -> InventoryConfig:
    file = tmp_path / "hosts.json"
    file.write_text(HOSTS)
    return InventoryConfig(file=file, last_good=tmp_path / "kept.json")


def script(tmp_path: Path, body: str, *, timeout_seconds: float = 30.0) -> InventoryConfig:
    file = tmp_path / "inventory"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return InventoryConfig(
        command=(str(file), "--list"), last_good=tmp_path / "kept.json", timeout_seconds=timeout_seconds
    )


def test_a_file_is_read_and_a_command_asked(inventory: InventoryConfig, tmp_path: Path) -> None:
    from_file = inventory_hosts(inventory)
    from_command = inventory_hosts(script(tmp_path, f"[ $1 = --list ] && cat {inventory.file}"))
    assert from_file == from_command
    assert len(from_file.hosts or ()) == 20
    assert from_file.problems == ()


@pytest.mark.parametrize("text", ["", HOSTS[:40], "\xff", json.dumps({"mysql": {"hosts": ["db1"]}}), None])
def test_while_it_is_half_written_the_last_good_one_goes_on(inventory: InventoryConfig, text: str | None) -> None:
    assert inventory.file is not None
    before = inventory_hosts(inventory)
    if text is None:
        inventory.file.unlink()
    else:
        inventory.file.write_text(text, encoding="latin-1")
    after = inventory_hosts(inventory)
    assert after.hosts == before.hosts
    assert "the last good one is used, with 20 hosts" in after.problems[0]
    inventory.file.write_text(HOSTS)
    assert inventory_hosts(inventory) == before


@pytest.mark.parametrize("cluster", ["orders", "bills"])
def test_clusters_may_move_from_it_into_fleet_toml(inventory: InventoryConfig, tmp_path: Path, cluster: str) -> None:
    """Hosts that have no cluster in it any more are no sign of half a file, nor is a new host kept out by them."""
    assert inventory.file is not None
    moved = {name: {"backupd_cluster": "orders"} for name in ("db1", "db2")}
    inventory.file.write_text(json.dumps({"mysql": {"hosts": [*moved]}, "_meta": {"hostvars": moved}}))
    assert [one.cluster for one in inventory_hosts(inventory).hosts or ()] == ["orders", "orders"]
    inventory.file.write_text(json.dumps({"mysql": {"hosts": [*moved, "db3"]}}))
    text = f"""
[control]
database = "{tmp_path}/fleet.db"
[inventory]
file = "{inventory.file}"
last_good = "{inventory.last_good}"
[targets.nas]
slots = 1
[clusters.{cluster}]
members = ["db1", "db2"]
"""
    found = fleet_understood(text, tmp_path / "fleet.toml", inventory_hosts)
    assert {name: one.members for name, one in found.configuration.clusters.items()} == {
        cluster: ("db1", "db2"),
        "db3": ("db3",),
    }
    assert found.problems == ()


def test_a_fleet_that_really_shrank_is_told_what_to_do(inventory: InventoryConfig) -> None:
    assert inventory.file is not None
    inventory_hosts(inventory)
    inventory.file.write_text(json.dumps({"mysql": {"hosts": ["db1"]}}))
    assert f"if it is right, remove {inventory.last_good}" in inventory_hosts(inventory).problems[0]
    inventory.last_good.unlink()
    assert len(inventory_hosts(inventory).hosts or ()) == 1


def test_without_any_earlier_one_its_hosts_are_unknown(tmp_path: Path) -> None:
    found = inventory_hosts(InventoryConfig(file=tmp_path / "none", last_good=tmp_path / "kept.json"))
    assert found.hosts is None
    assert "no earlier one is kept" in found.problems[0]


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("echo nothing is right >&2; exit 3", "ended with status 3 and said: nothing is right"),
        ("true", "is empty"),
        ("yes | head -c 40000000", "is larger than 32 MiB"),
        ("printf '\\033[31mbad' >&2; exit 1", "said: \\x1b[31mbad"),
        ("head -c 100000 /dev/zero | tr '\\0' x >&2; echo '{\"a\":'", "it ends in the middle"),
    ],
)
def test_a_command_that_fails_is_a_sentence(tmp_path: Path, body: str, fact: str) -> None:
    found = inventory_hosts(script(tmp_path, body))
    assert found.hosts is None
    assert fact in found.problems[0]


def test_a_command_that_hangs_is_ended_at_its_deadline_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    found = inventory_hosts(script(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout_seconds=2.0))
    assert "did not end within 2 s" in found.problems[0]
    assert time.monotonic() - began < 40
    assert start_time(int((tmp_path / "pid").read_text())) is None


def test_a_command_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    found = inventory_hosts(InventoryConfig(command=(str(tmp_path / "no"),), last_good=tmp_path / "kept.json"))
    assert "No such file or directory" in found.problems[0]


def test_what_cannot_be_kept_is_a_warning_and_the_inventory_is_used(
    inventory: InventoryConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = InventoryConfig(file=inventory.file, last_good=tmp_path / "none" / "kept.json")
    assert len(inventory_hosts(nowhere).hosts or ()) == 20
    assert "could not be kept" in caplog.text
