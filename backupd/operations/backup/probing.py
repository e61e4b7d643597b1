"""Whether a run measures what writes cost with a probe, and whether this host lets it.

Knows: by which settings, and for how long a copy, a probe is worth what the server pays for it. What it measures, and
how, is in `settling`.
"""

from collections.abc import Iterator

from backupd.config import JobConfig
from backupd.operations.findings import ok
from backupd.operations.gate_limits import gate_limits
from backupd.operations.tools import Tools
from backupd.policy.settle_gate import waiting_may_pay
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.volumes import AUTO, MountPoint

_CAUTIOUS_COPY_RATE = 20 << 20  # bytes a second, to guess by: half of what three slow disks gave in the lab


def guessed_seconds(used_bytes: int) -> float:
    """What a copy takes, by nothing but what the volume holds."""
    return used_bytes / _CAUTIOUS_COPY_RATE


def may_change_something(job: JobConfig, copy_seconds: float) -> bool:
    """Whether what a probe says may change when a copy of so many seconds begins, or the job insists on it."""
    if job.settle.probe != AUTO or job.limits.max_penalty is not None:
        return True
    return waiting_may_pay(gate_limits(job.settle, job.limits), copy_seconds)


def of_program(job: JobConfig, tools: Tools) -> Iterator[Finding]:
    """Whether there is what a probe is made with."""
    if tools.probe is None and job.limits.max_penalty is not None:
        off = next((key for key in ("enabled", "probe") if not getattr(job.settle, key)), None)
        why = f"settle.{off} is false" if off else "sysbench is not installed"
        yield Finding(
            "sysbench",
            Level.WARNING,
            f"limits.max_penalty has no effect, because no probe measures the penalty: {why}",
            "let it probe, or remove that limit: max_latency and max_penalty_seconds need no probe",
            attention=True,
        )
    elif not (job.settle.enabled and job.settle.probe):
        yield ok("sysbench", f"not needed: settle.{'probe' if job.settle.enabled else 'enabled'} is false")
    elif tools.probe is None:
        yield Finding(
            "sysbench",
            Level.WARNING,
            "sysbench is not installed: the gate can only watch the COW area",
            "apt-get install sysbench, or set settle.probe = false",
        )
    else:
        yield ok("sysbench", "installed")


def of_room(job: JobConfig, tools: Tools, mount: MountPoint, *, copy_seconds: float) -> Iterator[Finding]:
    """Without room for its file there is no probe; a run that wanted one needs attention then."""
    if not job.settle.enabled or tools.probe is None or not may_change_something(job, copy_seconds):
        return
    if lack := tools.files.room(mount.path).lack_for_probe(job.settle.file_size, mount.path):
        yield Finding("probe file", Level.WARNING, lack, "free some space, or lower settle.file_size")
