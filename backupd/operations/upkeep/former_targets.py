"""Targets that a job no longer names and that have backups of it: which ones, and the rule that holds there.

Knows: that a target which was taken out of a job keeps the last rule that it had, whatever became of the job's own.
Nothing is removed from one that has none: somebody has copied backups there, and said nothing of how long they stay.
"""

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.policy.retention import RetentionRule


def former_targets(job: JobConfig, catalogue: Catalogue) -> dict[str, int]:
    """How many backups of the job each of them has, by name; those that the configuration has not any more, too."""
    stored = sorted(catalogue.stored(), key=lambda one: one.target)
    return {one.target: one.backups for one in stored if one.job == job.name and one.target not in job.targets}


def rule_on(job: JobConfig, target: str, catalogue: Catalogue) -> RetentionRule | None:
    """What holds for this job on this target: what the job says, or else the last rule; None where there is none."""
    if target in job.targets or target in job.retention.targets:
        return job.retention.on(target)
    return catalogue.last_rule(job.name, target)
