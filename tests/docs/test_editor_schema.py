"""What an editor says of a configuration by the schema that is shipped, beside what backupd says of it."""

import json
import tomllib
from typing import Any

import jsonschema_rs
import pytest

from backupd.config.reading import understood
from backupd.vocabulary.errors import ConfigurationError
from tests.docs import editor_schema
from tests.shipped_example import EXAMPLE, everything, spelt_out

WHOLE = everything()


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.validator_for(json.loads(editor_schema.FILE.read_text()))


@pytest.mark.parametrize(
    "text",
    [EXAMPLE.read_text(), WHOLE, spelt_out()],
    ids=["as shipped", "with every table", "with every default"],
)
def test_what_backupd_takes_no_editor_underlines(validator: Any, text: str) -> None:
    understood(text, EXAMPLE)
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#max_runs = 1", "max_run = 1"),
        ("#max_runs = 1", 'max_runs = "1"'),
        ("#max_runs = 1", "max_runs = 0"),
        ('#window = "1s"', 'window = "1 second"'),
        ('#chunk_size = "auto"', 'chunk_size = "64K"'),
        ('#chunk_size = "auto"', "chunk_size = 1048576"),
        ('#size = "auto"', 'size = "20"'),
        ("#pvs = []", 'pvs = ["sdd"]'),
        ("#pvs = []", 'pvs = "sdd"'),
        ('type = "directory"', 'type = "folder"'),
        ('#probe = "auto"', 'probe = "no"'),
        ("at_least = ", "at_least = true #"),
        ("[hosts.db1]", "[host.db1]"),
    ],
)  # fmt: skip
def test_what_an_editor_underlines_backupd_refuses(validator: Any, old: str, new: str) -> None:
    assert old in WHOLE
    text = WHOLE.replace(old, new, 1)
    assert not validator.is_valid(tomllib.loads(text))
    with pytest.raises(ConfigurationError):
        understood(text, EXAMPLE)


def test_every_key_says_what_it_means() -> None:
    made = json.loads(editor_schema.FILE.read_text())
    mute = [
        f"{name}.{key}"
        for name, table in made["$defs"].items()
        for key, property_ in table.get("properties", {}).items()
        if "description" not in property_ and "$ref" not in str(property_)
    ]
    assert mute == []
