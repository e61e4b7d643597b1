"""By which rule each target of a job was last pruned: what holds there once the job no longer names it.

Knows: one row for each. Refuses to decide which rule holds.
"""

from sqlalchemy import Column, Integer, Table, Text, insert, select

from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.file import CatalogueFile
from backupd.catalogue.metadata import metadata
from backupd.policy.retention import RetentionRule

rules = Table(
    "retention_rules",
    metadata,
    Column("job", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("keep_last", Integer, nullable=False),
    Column("daily", Integer, nullable=False),
    Column("weekly", Integer, nullable=False),
    Column("monthly", Integer, nullable=False),
    Column("yearly", Integer, nullable=False),
)


class RetentionRules(CatalogueFile):
    """The rules that jobs' targets were pruned by."""

    def last_rule(self, job: str, target: str) -> RetentionRule | None:
        """The one that was remembered last; None where there is none."""
        query = select(rules).where(rules.c.job == job, rules.c.target == target)
        return next((from_row(RetentionRule, row) for row in self._read(query)), None)

    def remember_rule(self, job: str, target: str, rule: RetentionRule) -> None:
        """This is the last one now."""
        if self.last_rule(job, target) != rule:
            row = {**to_row(rule), "job": job, "target": target}
            self._write(insert(rules).prefix_with("OR REPLACE").values(row))
