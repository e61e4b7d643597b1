"""What the steps of one backup share: who takes part in it, and what follows from its job and its volume.

Knows: which probe, canary and limits this run goes by.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from backupd.catalogue import RunJournal
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.load import WriteProbe
from backupd.load.baseline import PassiveMeter
from backupd.mysql import Canary
from backupd.operations.backup.meter import CostMeter
from backupd.operations.backup.phases import RunPhases
from backupd.operations.backup.preflight import Ready
from backupd.operations.backup.probing import guessed_seconds, may_change_something
from backupd.operations.copies.fan_out import Copies
from backupd.operations.gate_limits import gate_limits
from backupd.operations.ownership import Ownership, Renewal
from backupd.operations.tools import Tools
from backupd.policy.settle_gate import SettleLimits
from backupd.policy.signing import Signer
from backupd.vocabulary.volumes import SnapshotPlan


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the steps of one run share."""

    job: JobConfig
    tools: Tools
    run: RunJournal
    ready: Ready
    plan: SnapshotPlan
    phases: RunPhases
    copy_seconds: float | None  # what the copy is expected to take; None: there is nothing to go by
    must_finish_by: float | None  # an instant of the monotonic clock
    copies: Copies
    ownership: Ownership
    signer: Signer
    renewal: Renewal  # of this machine's owner records on the targets
    cost_meter: CostMeter

    @property
    def canary(self) -> Canary | None:
        """None where the job wants none, and where the server takes no writes of ours."""
        return self.tools.canary if self.ready.takes_writes else None

    @property
    def meter(self) -> PassiveMeter:
        """Average latency of writes to the origin, by the kernel's counters."""
        device = self.ready.mount.device
        return PassiveMeter(lambda: self.tools.files.write_counters(device))

    @property
    def guess_seconds(self) -> float:
        """What the copy takes, by nothing but what the volume holds."""
        return guessed_seconds(self.tools.files.used_bytes(self.ready.mount.path))

    @property
    def settle_limits(self) -> SettleLimits:
        """What the gate goes by."""
        return gate_limits(self.job.settle, self.job.limits)

    @property
    def probe(self) -> WriteProbe | None:
        """None where the job wants none; and, unless it insists, where what a probe says would change nothing."""
        copy_seconds = self.copy_seconds if self.copy_seconds is not None else self.guess_seconds
        return self.tools.probe if may_change_something(self.job, copy_seconds) else None

    @property
    def probe_folder(self) -> Path:
        """On the volume itself: its chunks are to be copied on write as the server's are."""
        return self.tools.places.probe_folder(self.ready.mount.path, self.run.run_id)


def with_ceiling(job: JobConfig, max_rate: int | None) -> JobConfig:
    """The job as a run goes by it that may read so many bytes a second; the job's own limit counts where it is less."""
    if max_rate is None:
        return job
    limits = [rate for rate in (max_rate, job.copy.max_rate) if rate is not None]
    return replace(job, copy=replace(job.copy, max_rate=min(limits)))


def copy_forecast(job: JobConfig, tools: Tools, catalogue: Catalogue, ready: Ready) -> float | None:
    """Seconds, by the job's last copy and what the volume holds now. Never a guess: a forecast can cost a backup."""
    last = catalogue.last_copy(job.name)
    return None if last is None else last.expected_seconds(tools.files.used_bytes(ready.mount.path))
