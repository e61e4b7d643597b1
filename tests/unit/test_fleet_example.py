"""The example of fleet.toml that is shipped: it loads, has every key, and every default in it is the real one."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, get_origin

import jsonschema_rs
import pytest

from backupd.config.fleet import FleetConfiguration, InventoryConfig
from backupd.config.fleet_reading import InventoryHosts, fleet_understood
from backupd.config.wording import keys_of, table_in
from backupd.policy.inventory import ListedHost
from backupd.vocabulary.errors import ConfigurationError
from tests.docs import editor_schema, settings
from tests.shipped_example import FLEET, everything, spelt_out

WHOLE = everything(FLEET)


def understood(text: str) -> FleetConfiguration:
    return fleet_understood(text, FLEET, lambda _: InventoryHosts((ListedHost("db9"),))).configuration


def test_the_example_loads_as_it_is() -> None:
    fleet = understood(FLEET.read_text())
    assert {name: one.members for name, one in fleet.clusters.items()} == {"orders": ("db1", "db2", "db3")}
    assert fleet.inventory is None


@pytest.mark.parametrize(("name", "example", "table"), list(settings.fleet_tables()), ids=lambda one: str(one)[:20])
def test_the_example_documents_every_key(name: str, example: str, table: Any) -> None:
    fields = keys_of(table)
    keys = [
        key
        for key, field in fields.items()
        if not table_in(field.annotation) and get_origin(field.annotation) is not Mapping
    ]
    documented = [key for entry in settings.entries(example, FLEET) for key, _, _ in entry.keys]
    assert sorted(documented) == sorted(keys), name


def test_every_default_that_the_example_documents_is_the_real_one() -> None:
    assert understood(spelt_out(FLEET)) == understood(WHOLE)
    assert len(tomllib.loads(spelt_out(FLEET))["inventory"]) == len(keys_of(InventoryConfig)) - 2


def test_every_example_of_a_key_without_default_is_accepted() -> None:
    before = understood(WHOLE)
    for line in re.findall(r"^# ([a-z_]+ = .*)$", WHOLE, re.MULTILINE):
        changed = WHOLE.replace(f"# {line}", line)
        if line.startswith("password"):
            changed = changed.replace('#database = "/var/lib/backupd/fleet.sqlite"', 'database = "postgresql://u@db/f"')
        if line.startswith("command"):
            changed = changed.replace("\nfile =", "\n# file =")
        if line.startswith("cluster"):
            changed = changed.replace('members = ["db1", ', "members = [")
            assert understood(changed).clusters["orders"].members == ("db2", "db3", "db1")
        assert understood(changed) != before, line


def test_an_editor_takes_what_backupd_takes_and_underlines_what_it_refuses() -> None:
    validator = jsonschema_rs.validator_for(json.loads(editor_schema.FLEET_FILE.read_text()))
    for text in (FLEET.read_text(), WHOLE, spelt_out(FLEET)):
        assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []
    for old, new in (
        ("#slots = 4", "slots = 0"),
        ('#member = "least-lag"', 'member = "nearest"'),
        ('#windows = ["21:00-06:00"]', 'windows = ["21-6"]'),
        ('#night_begins = "12:00"', 'night_begins = "noon"'),
        ("#retries = 2", "retries = 9"),
        ("[clusters.orders]", "[cluster.orders]"),
    ):
        assert old in WHOLE
        changed = WHOLE.replace(old, new, 1)
        assert not validator.is_valid(tomllib.loads(changed)), new
        with pytest.raises(ConfigurationError):
            understood(changed)


def test_every_key_says_in_an_editor_what_it_means() -> None:
    made = json.loads(editor_schema.FLEET_FILE.read_text())
    mute = [
        f"{name}.{key}"
        for name, table in made["$defs"].items()
        for key, property_ in table.get("properties", {}).items()
        if "description" not in property_ and "$ref" not in str(property_)
    ]
    assert mute == []
