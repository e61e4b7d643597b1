"""Checks of one's own in a drill: those of a job, which its host asks, and those of a proof host, for whatever job.

Knows: their keys, which are the same, and which copies a proof host asks them of. What takes more than one key to see,
`rules` knows.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from backupd.config.fields import Bound, Name, PositiveDuration, Sql, Text
from backupd.config.table import FROZEN, NAMED, TABLE, THAWED, OwnName, key


class DrillMoment(StrEnum):
    """Which moment of the job's binlog archive is proven where no other is named."""

    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class DrillCheckConfig:
    """`[jobs.NAME.drill.checks.NAME]`: a question that each drill of the job's backups asks the restored server."""

    name: OwnName
    sql: Sql
    equals: Annotated[str, Strict()] | None = None
    at_least: Bound | None = None
    at_most: Bound | None = None
    newer_than_seconds: Annotated[PositiveDuration | None, key("newer_than")] = None
    timeout_seconds: Annotated[PositiveDuration, key("timeout")] = 300.0


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ProofCheckConfig(DrillCheckConfig):
    """`[prove.checks.NAME]`: a question that `backupd prove` asks of each copy of a job's backups that it drills."""

    job: Name
    machine: Text | None = None  # None: of every machine that has a job of that name

    def is_of(self, machine: str, job: str) -> bool:
        """Whether it is asked of this machine's backups by this job."""
        return job == self.job and self.machine in (None, machine)


DrillChecks = Annotated[Mapping[Name, DrillCheckConfig], NAMED, FROZEN, THAWED]
ProofChecks = Annotated[Mapping[Name, ProofCheckConfig], NAMED, FROZEN, THAWED]


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class DrillConfig:
    """`[jobs.NAME.drill]`: what a drill of the job proves, and what it asks beside what every drill asks."""

    moment: DrillMoment | None = None  # None: the backup alone
    checks: DrillChecks = Field(default_factory=dict)
