"""What one pruning shares between its targets and has found by now, and what became of each backup and segment.

Read `PruneWork`. Values only: `prune_plan` and `whole_copies` decide by them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.operations.ownership import Ownership
from backupd.policy.retention import RetentionRule
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import RetentionDecision


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one backup on one target."""

    target: str
    decision: RetentionDecision
    at: datetime
    bytes_stored: int | None = None  # None: the catalogue does not know
    removed: bool = False  # it was to go, and has gone


@dataclass(frozen=True, slots=True)
class SegmentFate:
    """How many segments of the job's binlog archive go from one target for one reason; those that stay are not told."""

    target: str
    reason: str
    segments: int = 0
    bytes_stored: int = 0  # of their events
    removed: int = 0  # of these segments


@dataclass(slots=True)
class PruneWork:
    """What one pruning shares between its targets, and what it has found by now."""

    job: JobConfig
    catalogue: Catalogue
    ownership: Ownership
    now: datetime
    dry_run: bool
    configured: Collection[str] | None = None  # targets that can be restored from; None: all
    after: str | None = None  # the run that it is done after
    set_back: Mapping[str, datetime] = field(default_factory=dict)  # by run: see `Catalogue.set_back`
    rules: dict[str, RetentionRule] = field(default_factory=dict)  # by target
    uncertain: dict[tuple[str, str], str] = field(default_factory=dict)  # by target and run: why
    looked_at: set[str] = field(default_factory=set)  # targets: see `look_closely`
    again: dict[str, dict[str, RunDetails]] = field(default_factory=dict)  # by target: see `enter_again`
    going: set[tuple[str, str]] = field(default_factory=set)  # target and run: decided, carried out or not
    full: set[str] = field(default_factory=set)  # targets that had no room for an owner record
    fates: list[Fate] = field(default_factory=list)
    segments: dict[tuple[str, str], SegmentFate] = field(default_factory=dict)  # by target and reason
    vanished: list[tuple[str, str]] = field(default_factory=list)
    failures: list[tuple[str, TargetError]] = field(default_factory=list)
