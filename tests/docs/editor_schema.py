"""The JSON Schema of the configuration, by which an editor completes keys and underlines what is wrong.

Types are the schema's own, as `backupd.config.fields` gives each kind of value; meanings and defaults are the
example's. What takes two keys to see only `backupd config check` tells.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from backupd.config import Configuration, RetentionConfig
from backupd.config.fleet import FleetConfiguration
from backupd.config.retention import TARGETS
from tests.docs import settings
from tests.docs.places import ROOT
from tests.shipped_example import EXAMPLE, FLEET

FILE = ROOT / "configs" / "backupd.schema.json"
FLEET_FILE = ROOT / "configs" / "fleet.schema.json"
_DIALECT = GenerateJsonSchema.schema_dialect


def text() -> str:
    """The whole file."""
    made = TypeAdapter(Configuration).json_schema(by_alias=True, mode="validation")
    known = {table.__name__: _documented(example) for _, example, table in reversed([*settings.tables()])}
    for name, table in made["$defs"].items():
        _as_typed(table, known.get(name, {}))
    keeps = made["$defs"][RetentionConfig.__name__]  # whose tables of targets stand beside its keys
    keeps["additionalProperties"] = keeps["properties"].pop(TARGETS)["additionalProperties"]
    _as_typed(made, {})
    head = {
        "$schema": _DIALECT,
        "title": "backupd.toml",
        "description": "The configuration of backupd. `backupd config check` knows the rules between keys as well.",
    }
    return json.dumps(head | {key: made[key] for key in made if key not in head}, indent=1, ensure_ascii=False) + "\n"


def fleet_text() -> str:
    """The same of fleet.toml."""
    made = TypeAdapter(FleetConfiguration).json_schema(by_alias=True, mode="validation")
    known = {table.__name__: _documented(example, FLEET) for _, example, table in settings.fleet_tables()}
    for name, table in made["$defs"].items():
        _as_typed(table, known.get(name, {}))
    _as_typed(made, {})
    head = {
        "$schema": _DIALECT,
        "title": "fleet.toml",
        "description": "The configuration of a fleet. `backupd fleet check` knows the rules between keys as well.",
    }
    return json.dumps(head | {key: made[key] for key in made if key not in head}, indent=1, ensure_ascii=False) + "\n"


def _documented(example: str, file: Path = EXAMPLE) -> dict[str, dict[str, Any]]:
    """What the example says of each key: `description`, and `default` where it has one."""
    found: dict[str, dict[str, Any]] = {}
    for entry in settings.entries(example, file):
        for key, value, mark in entry.keys:
            said: dict[str, Any] = {"description": entry.meaning}
            if mark == "#":
                said["default"] = tomllib.loads(f"key = {value}")["key"]
            found[key] = said
    return found


def _as_typed(table: dict[str, Any], documented: dict[str, dict[str, Any]]) -> None:
    """A table as it stands in the file: without the name, which is its header's, and Python's words for its keys."""
    table.pop("title", None)
    if "properties" not in table:  # the words that a key may have
        return
    table["properties"].pop("name", None)
    if "name" in table.get("required", ()):
        table["required"].remove("name")
    for key, property_ in table["properties"].items():
        property_.pop("title", None)
        property_.pop("default", None)
        property_.update(documented.get(key, {}))
