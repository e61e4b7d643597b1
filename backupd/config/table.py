"""What every table of the configuration has: no unknown keys, a name of its own, spellings for TOML and for Python.

Knows: that a key which holds a time or a size is named for what it means in TOML (`wait_timeout = "2s"`) and for its
unit in Python (`wait_timeout_seconds`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WrapSerializer

from backupd.config.fields import Name

TABLE = ConfigDict(
    extra="forbid",
    validate_by_name=True,  # in Python; `load` reads TOML's spelling only
    validate_by_alias=True,
    hide_input_in_errors=True,  # a secret may stand where it does not belong
    allow_inf_nan=False,
)


def key(name: str) -> Any:
    return Field(validation_alias=name, serialization_alias=name)


# The key of the table itself, `[hosts.NAME]`; never a key inside it.
OwnName = Annotated[Name, Field(exclude=True)]


def _with_names(tables: object) -> object:
    if not isinstance(tables, Mapping):
        return tables
    return {key: {**table, "name": key} if isinstance(table, dict) else table for key, table in tables.items()}


NAMED = BeforeValidator(_with_names)
FROZEN = AfterValidator(MappingProxyType)
THAWED = WrapSerializer(lambda tables, serialize: serialize(dict(tables)))
