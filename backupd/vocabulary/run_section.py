"""What a manifest tells of the run that took the backup: enough to list it, show it and judge it without its catalogue.

Knows: the fields of the document's `run`, in words and numbers of its own. Refuses to know `records.RunDetails`: what
the catalogue keeps may change from release to release, and what is on a target may only grow.

Nothing is restored by it. Words (phases, outcomes, layouts) are texts here, because a later backupd may have more of
them; whoever wants one of today's words asks for it, and leaves out what it does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backupd.vocabulary.escaping import Prose


@dataclass(frozen=True, slots=True)
class VerdictSection:
    """What the settle gate decided."""

    outcome: str
    reason: str
    detail: Prose
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class LockSection:
    """What the lock cost, and how it was proven."""

    strategy: str
    tries: int
    wait_seconds: float
    hold_seconds: float
    proof: str
    lsn: int | None
    position_seconds: float = 0.0  # of the hold, as are those that follow
    flush_seconds: float = 0.0
    proof_seconds: float = 0.0
    unlock_seconds: float = 0.0
    stalled: int | None = None  # statements that had waited behind it


@dataclass(frozen=True, slots=True)
class SnapshotSection:
    """The snapshot; `layout`, `stripes` and `stripe_size` describe the origin."""

    name: str
    volume: str
    layout: str
    stripes: int
    stripe_size: int | None
    chunk_size: int
    cow_size: int
    cow_used_peak: int | None
    pool: str | None
    chunk_reason: Prose
    cow_extended: int
    size_reason: Prose
    redo_left_out: int = field(default=0, metadata={"minor": 1})  # which added it: documents before have none
    taken_at: datetime | None = field(default=None, metadata={"minor": 3})


@dataclass(frozen=True, slots=True)
class BillSection:
    """What the snapshot cost, from the lock to its release."""

    seconds: float
    penalty_seconds: float | None
    copied_on_write: int | None
    disks: int
    disk_seconds: float | None
    disk_read_seconds: float | None


@dataclass(frozen=True, slots=True)
class LossesSection:
    """Transactions that the server did meanwhile, and its rate before; told before it could be watched any longer."""

    counted: str
    seconds: float
    rate_before: float
    rate_after: float | None
    done: int
    noise: float


@dataclass(frozen=True, slots=True)
class StageSection:
    """What one stage of the copy worked."""

    stage: str
    bytes: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class RunSection:
    """The run, when its manifest was written: without its samples, its process and its end."""

    started_at: datetime
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, by phase
    verdict: VerdictSection | None = None
    lock: LockSection | None = None
    snapshot: SnapshotSection | None = None
    attention: tuple[Prose, ...] = ()  # what programs said may be in it
    throughput: tuple[StageSection, ...] = ()
    bill: BillSection | None = None
    losses: LossesSection | None = None
