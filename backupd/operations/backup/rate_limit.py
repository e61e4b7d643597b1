"""What `check` and a run say of `copy.max_rate`: whether the COW area lasts for as long as a copy at it takes.

Knows: how much of the area the job lets be filled, and what it can still be given.
"""

from collections.abc import Iterator, Sequence

from backupd.config import JobConfig
from backupd.lvm.extending import further_bytes
from backupd.operations.findings import ok
from backupd.policy.rate_limit import limited_copy
from backupd.policy.snapshot_plan import complete_cow_bytes
from backupd.report.words import duration, size
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.volumes import SnapshotPlan, VolumeGroup

_NAME = "rate limit"


def examine(
    job: JobConfig, plan: SnapshotPlan, group: VolumeGroup, past: Sequence[SnapshotLife], *, used_bytes: int
) -> Iterator[Finding]:
    """Nothing where there is no limit, and where no run has shown yet how fast the area fills."""
    limit, limits = job.copy.max_rate, job.limits
    if limit is None or plan.origin.pool is not None:
        return
    area = plan.size + (further_bytes(plan, group) if job.snapshot.extend else 0)
    copy = limited_copy(
        used_bytes,
        limit,
        past,
        chunk_size=plan.chunk_size,
        may_fill=int(limits.max_cow_fill * area),
        complete=complete_cow_bytes(plan.origin.size, plan.chunk_size),
    )
    if copy is None:
        return
    told = (
        f"at copy.max_rate ({size(limit)}/s) a copy of {size(used_bytes)} takes {duration(copy.seconds)}, in which"
        f" {size(copy.filled)} of the COW area fill up if it fills as fast as in the last run"
        f" ({size(round(copy.fill_rate))}/s)"
    )
    if not copy.is_too_slow:
        yield ok(_NAME, told)
        return
    yield Finding(
        _NAME,
        Level.WARNING,
        f"{told}; the limit is {size(copy.may_fill)}, and the copy will exceed copy.max_rate before that",
        f"raise copy.max_rate to {size(copy.least_rate)}/s or more, or raise snapshot.size",
    )
