"""How many backups a job keeps, and what is different on one of its targets, as frozen values.

Knows: that a target's table stands beside the keys, `[jobs.NAME.retention.TARGET]`, and what it does not say is as the
job says.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.dataclasses import dataclass

from backupd.config.fields import Name, WholeNumber
from backupd.config.table import FROZEN, TABLE, THAWED
from backupd.policy.retention import RetentionRule

TARGETS = "targets"  # the field; no key of TOML

_AtLeastOne = Annotated[WholeNumber, Field(ge=1)]
_Count = Annotated[WholeNumber, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class TargetRetentionConfig:
    """`[jobs.NAME.retention.TARGET]`: how many are kept on one target; what is left out is as for the job."""

    keep_last: _AtLeastOne | None = None
    daily: _Count | None = None
    weekly: _Count | None = None
    monthly: _Count | None = None
    yearly: _Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class RetentionConfig:
    """`[jobs.NAME.retention]`: how many backups are kept, and of which kind."""

    keep_last: _AtLeastOne = 7
    daily: _Count = 0
    weekly: _Count = 0
    monthly: _Count = 0
    yearly: _Count = 0
    targets: Annotated[Mapping[Name, TargetRetentionConfig], FROZEN, THAWED] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_targets(cls, given: Any) -> Any:
        """Tables among the keys are targets'."""
        if not isinstance(given, dict):
            return given
        tables = {name: table for name, table in given.items() if isinstance(table, dict)}
        return {key: value for key, value in given.items() if key not in tables} | ({TARGETS: tables} if tables else {})

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it is read."""
        values: dict[str, Any] = serialize(self)
        tables: dict[str, Any] = values.pop(TARGETS)
        return values | tables

    def on(self, target: str) -> RetentionRule:
        """What holds on this target."""
        own = self.targets.get(target, TargetRetentionConfig())
        said = {field.name: getattr(own, field.name) for field in fields(RetentionRule)}
        return RetentionRule(**{k: getattr(self, k) if value is None else value for k, value in said.items()})
