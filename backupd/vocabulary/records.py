"""What is written down of a run: its phases, findings, holdings, errors, drills, and how it ended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from backupd.vocabulary.escaping import Prose
from backupd.vocabulary.penalty import Bill, Losses, PaceChange, Sample, Throughput, Verdict
from backupd.vocabulary.servers import LockReceipt, Position, Preflush
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout


class Phase(StrEnum):
    """Where a run stands. `snapshot` lies inside `lock_hold`; the others follow one another."""

    PREFLIGHT = "preflight"
    BASELINE = "baseline"
    PREFLUSH = "preflush"
    LOCK_WAIT = "lock_wait"
    LOCK_HOLD = "lock_hold"
    SNAPSHOT = "snapshot"
    SETTLE = "settle"
    COPY = "copy"
    RELEASE = "release"
    SEND = "send"  # what waited in the spool
    VERIFY = "verify"


DIED: Final = "died"  # the code of the error of a run whose process died without reporting one
DEATH: Final = "its process died"  # how a text of attention begins of such a run whose copy is a backup all the same
UNRECORDED: Final = "its run could not write to the catalogue"  # so of one that ended with that error, and left a copy
FINISHED_LATER: Final = (DEATH, UNRECORDED)

_ALMOST_A_SECOND: Final = timedelta(microseconds=999_999)
_AFTER_THE_SNAPSHOT: Final = (Phase.SETTLE, Phase.COPY, Phase.RELEASE, Phase.SEND, Phase.VERIFY)


def snapshot_by(
    ended_at: datetime, phases: Mapping[Phase, float] | Mapping[str, float], *, taken_at: datetime | None
) -> datetime:
    """When the snapshot was taken, or a little later, in whole seconds.

    Where nobody wrote that down (backupd did not at first) it is the end less the phases after the snapshot: hooks and
    the time until a dead run was found are in no phase, and a clock may have been set meanwhile.
    """
    if taken_at is not None:
        return (taken_at + _ALMOST_A_SECOND).replace(microsecond=0)
    later = sum(phases.get(phase, 0.0) for phase in _AFTER_THE_SNAPSHOT)
    return (ended_at - timedelta(seconds=later) + _ALMOST_A_SECOND).replace(microsecond=0)


def lasted(began: datetime, ended: datetime | None, error: "RunError | None" = None) -> float | None:
    """Seconds from the begin of a run to its end, which this error ended.

    None while it goes on, and where nobody knows: of one that died, `ended` is when it was found; and the clock may
    have been set back meanwhile.
    """
    died = error is not None and error.code == DIED
    return None if ended is None or ended < began or died else (ended - began).total_seconds()


class RunKind(StrEnum):
    """What a run is for."""

    BACKUP = "backup"
    PROBE = "probe"
    BENCH = "bench"


class RunStatus(StrEnum):
    """How a run ended, or that it has not."""

    RUNNING = "running"
    SUCCESS = "success"
    ATTENTION = "attention"
    FAILED = "failed"
    REFUSED = "refused"
    BUSY = "busy"
    CANCELLED = "cancelled"


GOOD = (RunStatus.SUCCESS, RunStatus.ATTENTION)  # there is a backup


class Level(StrEnum):
    """How grave a finding is. Only `refused` stops a run."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of the preflight, with what to do about it."""

    name: str
    level: Level
    detail: str
    hint: str = ""
    attention: bool = False  # a run goes on in spite of it, and then needs attention


RUN_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,60}")  # it goes into an LVM name, a tag and a path


class HoldingKind(StrEnum):
    """Kinds of things on the host that must be released."""

    SNAPSHOT = "snapshot"
    MOUNT = "mount"
    STAGING = "staging"
    PROBE_FILES = "probe-files"
    PARTIAL = "partial-objects"
    CHILD = "child-process"
    APPLIER = "replica-applier"
    FLUSH_SETTINGS = "flush-settings"  # of a server that was told to write its dirty pages
    UPLOAD = "upload"
    SPOOL = "spool"  # the folder of one run in it
    LOADING_SCHEMA = "loading-schema"  # in a running server, of tables that are not whole yet
    FILESYSTEM = "file-system"  # that a restore fills
    SCRATCH_VOLUME = "scratch-volume"
    SCRATCH_GROUP = "scratch-group"  # a volume group on disks that a person named
    SCRATCH_ARRAY = "scratch-array"  # an mdadm array on them


@dataclass(frozen=True, slots=True)
class Holding:
    """Something on the host that must be released, told so that a later process can find it."""

    kind: HoldingKind
    name: str  # VG/LV, VG, mount point, folder, backup id, array, schema, or pid
    detail: Mapping[str, str] = field(default_factory=dict)  # what proves it ours: tag, uuid, start time, target


@dataclass(frozen=True, slots=True)
class RunError:
    """The error that ended a run, for machines and for people."""

    code: str
    message: Prose
    hint: Prose
    exit_status: int

    @property
    def first_line(self) -> str:
        """Of the message: what follows it are the words of a program, or of a server."""
        return next(iter(self.message.splitlines()), "")


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What the catalogue keeps of a snapshot. `layout`, `stripes` and `stripe_size` describe the origin."""

    name: str
    volume: str
    layout: Layout
    stripes: int
    stripe_size: int | None
    chunk_size: int
    cow_size: int
    cow_used_peak: int | None = None
    pool: str | None = None  # VG/POOL of a thin origin: sizes are the pool's then; None: a COW area of its own
    chunk_reason: str = ""  # why the chunks are of this size
    cow_extended: int = 0  # bytes of `cow_size` that were added while the snapshot was used
    size_reason: str = ""  # why the COW area was as large as it was at first; empty where the job said it
    redo_left_out: int = 0  # bytes of the redo log that are a hole in the backup: no recovery looks at them
    taken_at: datetime | None = None  # when the snapshot had just been made; None: an earlier backupd did not record it


CLEAN_SHUTDOWN: Final = "clean shutdown"  # the last check of every drill that nothing has stopped


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of a drill."""

    name: Prose
    ok: bool
    expected: Prose
    found: Prose
    asked: Prose = ""  # the SQL of one of the job's own checks


@dataclass(frozen=True, slots=True)
class DrilledMoment:
    """To which moment of the binlog archive a drill rolled its backup forward."""

    name: Prose  # a time, a GTID or a place, as sentences have it
    at: datetime | None = None  # what is told of when that was, by the server's clock; None: nothing


@dataclass(frozen=True, slots=True)
class Drill:
    """A proof, or its failure: the backup was restored and a server was started on it."""

    run_id: str
    ok: bool
    checks: tuple[Check, ...]
    seconds: float
    at: datetime
    position: Position | None = None  # where the recovered server stood, of a backup that was taken without a lock
    # The limit of its own that it ran into, or what its checks cannot tell. Empty: it has an answer.
    undecided: Prose = ""
    moment: DrilledMoment | None = None  # that was proven, or not; None: that of the backup itself

    @property
    def to_moment(self) -> str:
        """`to` that moment, as sentences have it; empty where it is the backup's own."""
        return "" if self.moment is None else f"to {self.moment.name}"

    @property
    def failed(self) -> bool:
        """It has an answer, and that is no proof."""
        return not self.ok and not self.undecided

    @property
    def only_own_checks_failed(self) -> bool:
        """The backup restores and starts, and its data is not what somebody's own checks expect."""
        wrong = [check for check in self.checks if not check.ok]
        return self.failed and bool(wrong) and all(check.asked for check in wrong)


@dataclass(frozen=True, slots=True)
class Pin:
    """A person wants this backup to be kept whatever retention says."""

    note: Prose
    at: datetime


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything that the catalogue knows of one run."""

    run_id: str
    job: str
    host: str
    machine: str  # that took it: the name of its identity, and of its folder on every target
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    pid: int | None = None
    phases: Mapping[Phase, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    position: Position | None = None
    lock: LockReceipt | None = None
    snapshot: SnapshotFacts | None = None
    samples: tuple[Sample, ...] = ()
    backups: tuple[Backup, ...] = ()  # one for each target that has it, in the job's order
    error: RunError | None = None
    attention: tuple[Prose, ...] = ()  # what a person should look at although the backup is good
    drills: tuple[Drill, ...] = ()
    kind: RunKind = RunKind.BACKUP
    derived: bool = False  # the position was found by a drill: nothing was locked
    throughput: tuple[Throughput, ...] = ()  # of the copy
    pace: tuple[PaceChange, ...] = ()  # how fast the snapshot was read; without those of no consequence
    pin: Pin | None = None
    max_rate: int | None = None  # bytes a second: a ceiling that this run alone was given
    bill: Bill | None = None  # of a run that asked for its lock, whatever became of it
    losses: Losses | None = None
    preflush: Preflush | None = None  # of a run whose job has `lock.preflush`

    @property
    def backup(self) -> Backup | None:
        """The one to read first: the first that is still there; None where there is none."""
        return next((backup for backup in self.backups if backup.is_there), None)

    def backup_on(self, target: str) -> Backup | None:
        """The one on this target, whatever became of it; None where there never was one."""
        return next((backup for backup in self.backups if backup.target == target), None)

    @property
    def snapshot_by(self) -> datetime | None:
        """The snapshot was taken then or a little earlier, in whole seconds; None while the run goes on."""
        taken_at = None if self.snapshot is None else self.snapshot.taken_at
        return None if self.ended_at is None else snapshot_by(self.ended_at, self.phases, taken_at=taken_at)

    @property
    def seconds(self) -> float | None:
        """From its begin to its end; see `lasted`."""
        finished_later = any(text.startswith(FINISHED_LATER) for text in self.attention)
        return None if finished_later else lasted(self.started_at, self.ended_at, self.error)

    @property
    def proven_at(self) -> datetime | None:
        """When a drill last proved it."""
        return max((drill.at for drill in self.drills if drill.ok), default=None)

    @property
    def doubted(self) -> bool:
        """The last drill of the backup itself that had an answer failed. What a moment lacks may be the log's."""
        own = (drill for drill in reversed(self.drills) if not drill.undecided and drill.moment is None)
        return next((drill.failed for drill in own), False)
