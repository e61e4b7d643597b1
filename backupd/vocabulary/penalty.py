"""What a snapshot and its copy cost: samples, the gate's verdict, throughput, and the bill."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Window:
    """One short sysbench run against the probe file."""

    seconds: float
    iops: float
    bytes_written: int
    latency_avg_ms: float
    latency_p95_ms: float
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known at one instant while the gate watched."""

    at_seconds: float  # since the snapshot was taken; negative before it
    stage: str  # baseline | settle | copy
    iops: float | None = None  # None: no probe window here, only the COW area was read
    ratio: float | None = None  # baseline iops ÷ iops
    latency_p95_ms: float | None = None
    probe_bytes: int = 0  # written by the probe's window
    cow_used: int | None = None  # bytes
    cow_rate: float | None = None  # bytes a second of first writes that were not the probe's
    replica_lag_seconds: float | None = None
    write_latency_ms: float | None = (
        None  # average of all writes to the origin since the last sample, by the kernel's counters
    )


@dataclass(frozen=True, slots=True)
class PaceChange:
    """A change of the speed at which the snapshot is read, and why."""

    at_seconds: float  # since the snapshot was taken
    share: float  # of full speed, 0 to 1
    bytes_per_second: int | None  # about; None before anything was read
    reason: str


class GateOutcome(StrEnum):
    """What the settle gate decided."""

    WAIT = "wait"
    START = "start"
    GIVE_UP = "give-up"


class Reason(StrEnum):
    """Why it decided so."""

    SETTLED = "settled"
    PLATEAU = "plateau"
    MAX_WAIT = "max-wait"
    COW_SHORT = "cow-short"
    LIMIT = "limit"
    DISABLED = "disabled"
    NO_DATA = "no-data"
    SETTLING = "settling"  # only with `wait`


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the settle gate decided, why, in which words, and how long that took."""

    outcome: GateOutcome
    reason: Reason
    detail: str = ""
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotLife:
    """What a run's snapshot filled of its COW area, for as long as it was used."""

    chunk_size: int
    filled: int  # bytes
    seconds: float


READ_BACK = "read-back:"  # begins the stage in which a target's copy is read back


SPOOL_STAGE = "spool"  # of a copy: writing what waits until the snapshot is gone


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one stage of a copy worked: bytes that it took, and the seconds in which it was neither idle nor waiting."""

    stage: str  # read, digest-spool, spool, read-spool, digest, compress, encrypt, digest-stored, write:TARGET, …
    bytes: int
    busy_seconds: float

    @property
    def rate(self) -> float | None:
        """Bytes a second that it could do by itself; None where that is unknown."""
        return self.bytes / self.busy_seconds if self.busy_seconds else None

    @property
    def of_copy(self) -> bool:
        """It worked while the snapshot was there; each target is read back afterwards."""
        return not self.stage.startswith(READ_BACK)


class Counted(StrEnum):
    """What stands for a transaction among a server's counters."""

    LOGGED = "logged"  # what went through the binlog's cache
    COMMITS = "commits"  # COMMIT statements: the binlog is off
    STATEMENTS = "statements"  # writing statements, where clients hardly ever send a COMMIT


@dataclass(frozen=True, slots=True)
class Losses:
    """Transactions that a server did while a backup was taken, and would have done, by its own counters."""

    counted: Counted
    seconds: float  # of the time from the lock to the snapshot's release, what the counters cover
    rate_before: float  # a second
    rate_after: float | None  # None: it was not looked at for long enough
    done: int
    noise: float  # transactions: a difference up to this may be chance

    @property
    def expected(self) -> float:
        """What it would have done."""
        return self.rate_before * self.seconds

    @property
    def lost(self) -> float:
        """What it did not do; 0 where that cannot be distinguished from chance."""
        difference = self.expected - self.done
        return difference if difference > self.noise else 0.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What the snapshot of one run cost, from the lock to its release. What could not be measured is None."""

    seconds: float
    penalty_seconds: float | None = None  # of writing: see `bill.penalty_seconds`
    copied_on_write: int | None = None  # bytes
    disks: int = 0  # that the origin is on
    disk_seconds: float | None = None  # that these were busy, summed, whoever used them
    disk_read_seconds: float | None = None  # that reads of them waited and were served, summed, whoever read
