"""The words of a fleet as frozen values: hosts, clusters of them, what a night owes, what an agent answers.

A *fleet* is many hosts, each of which backs itself up. A *replication cluster* is a group of them that hold the same
data: one backup of it is enough, and no two of its members are backed up at the same time. A *control host* decides
when and which; it reaches each host's *agent*. A *night* is the day, in the fleet's time zone, on which its backups are
due.

Instants are aware `datetime` in UTC, durations float seconds, sizes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Final

from backupd.vocabulary.escaping import Prose
from backupd.vocabulary.records import RunError, RunStatus
from backupd.vocabulary.servers import Flavour

PROTOCOLS: Final = range(1, 2)  # of control host and agent: all that this backupd speaks
ASKED_EVERY_SECONDS: Final = 6 * 3600.0  # each host at least, by a control host that serves
FALLBACK_SECONDS: Final = 2 * ASKED_EVERY_SECONDS  # a shorter wait would end when a single question has failed


class Role(StrEnum):
    """What a server is within its cluster."""

    SOURCE = "source"  # it is not a replica
    REPLICA = "replica"
    UNKNOWN = "unknown"  # it could not be asked


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """A job of a host, and its server, as its agent tells them."""

    job: str
    targets: tuple[str, ...]
    role: Role
    flavour: Flavour | None = None  # None: the server could not be asked
    server: str = ""  # MySQL's `server_uuid`, MariaDB's server id; the same twice in a cluster is a fault
    follows: Prose = ""  # a replica's source, as HOST:PORT
    lag_seconds: float | None = None  # None: it is no replica, or does not know
    paused: bool = False
    running: str = ""  # the id of its live run
    last_good_at: datetime | None = None
    last_proven_at: datetime | None = None
    expected_seconds: float | None = None  # of its next backup, by its last good ones; None: there are none
    expected_bytes: int | None = None  # that it stores
    problem: Prose = ""  # why its server could not be asked
    # So long without a control host, and it runs its own schedule; 0: it always does, None: it has no schedule.
    fallback_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HostDescription:
    """What an agent tells of its host."""

    machine: str  # the name of its identity
    version: str  # of its backupd
    protocols: tuple[int, int]  # the oldest and the newest that it speaks
    clock: datetime  # when it answered
    jobs: tuple[DescribedJob, ...]
    clock_ahead_seconds: float | None = None  # of the control host's, which fills it in when it has the answer
    # Of the fleet's records, no agent's: since when its host has been this machine without a break, which one it was
    # until then, and when it told each of its machines first.
    machine_since: datetime | None = None
    machine_before: str = ""
    machines: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartOrder:
    """What an agent is told to start."""

    job: str
    run_id: str
    max_rate: int | None = None  # bytes a second: the run's share of what its targets take; None: no limit


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is that an agent was told to start."""

    run_id: str
    status: RunStatus | None  # None: no run of this id was ever started there
    phase: str = ""
    copied_bytes: int | None = None
    expected_bytes: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stored_bytes: int | None = None  # of the backup, once there is one
    lost_transactions: int | None = None  # by the run's own estimate
    error: RunError | None = None


class FleetState(StrEnum):
    """What became of a cluster's backup in a night."""

    WAITING = "waiting"  # for its cluster, a slot of its target, its window, or its next try
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"  # it could not begin in time
    CANCELLED = "cancelled"


OVER: Final = (FleetState.DONE, FleetState.FAILED, FleetState.MISSED, FleetState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of time: up to `end`, and without it."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class OwedBackup:
    """One backup that a night owes a cluster."""

    night: date
    cluster: str
    job: str
    members: tuple[str, ...]  # hosts that may do it, the preferred first
    targets: tuple[str, ...]  # of the fleet: a slot of each is taken
    not_before: datetime
    not_after: datetime  # the last moment at which it may begin
    priority: int  # the lowest goes first: who is most overdue, and of these the longest
    expected_seconds: float
    expected_bytes: int
    only: str = ""  # the one member whose backup this is, where every member of the cluster owes one
    closed: tuple[Span, ...] = ()  # between the two, when it may not begin; in order, and apart from each other
    max_rate: int | None = None  # bytes a second: what its targets take of one backup; None: no limit
    asked_for: int = 0  # the how many-th that a person has asked for in this night; 0: it is by plan

    @property
    def id(self) -> str:
        """Of the workflow, and of the run that its first try is."""
        by_hand = f".r{self.asked_for}" if self.asked_for else ""
        return f"{self.night:%Y%m%d}-{run_stem(self.cluster, self.job, self.only)}{by_hand}"


@dataclass(frozen=True, slots=True)
class FleetTry:
    """One attempt at a backup that is owed."""

    host: str
    run_id: str
    began_at: datetime
    ended_at: datetime | None = None
    status: RunStatus | None = None  # None: it goes on, or the host never answered
    said: Prose = ""  # why it was none, in a sentence
    asked: bool = False  # its host was told to start it, and may have heard that
    taken: bool = False  # its host has said that it goes on


@dataclass(frozen=True, slots=True)
class FleetBackup:
    """A backup that is owed, and what became of it so far."""

    owed: OwedBackup
    state: FleetState
    tries: tuple[FleetTry, ...] = ()
    changed_at: datetime | None = None
    phase: str = ""
    copied_bytes: int | None = None
    stored_bytes: int | None = None
    lost_transactions: int | None = None
    said: Prose = ""  # what it waits for, or why it ended as it did


@dataclass(frozen=True, slots=True)
class SeenHost:
    """The last that the control host knows of a host."""

    host: str
    answered_at: datetime | None  # None: it never has
    described: HostDescription | None
    problem: Prose = ""  # why it did not answer when it was asked last; empty: it did


def run_stem(cluster: str, job: str, only: str = "") -> str:
    """What the ids of all its runs have behind the night."""
    return "-".join(part for part in (cluster, job, only) if part)


def try_id(owed: OwedBackup, number: int) -> str:
    """The run id of this try, from 1: a host refuses to start one of these twice."""
    return owed.id if number == 1 else f"{owed.id}.{number}"


class PauseScope(StrEnum):
    """What a pause is of."""

    FLEET = "fleet"
    CLUSTER = "cluster"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class FleetPause:
    """No backup of it begins; what runs goes on."""

    scope: PauseScope
    name: str  # of the cluster or the host; empty: the fleet
    note: Prose
    at: datetime


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """What a cluster has come to, over all nights.

    Of several jobs, and of members that each owe backups, the one that has been good least recently counts.
    """

    cluster: str
    newest: FleetBackup | None  # of the newest night, whichever job's it is
    last_good: FleetBackup | None  # None: a job or a member has none
    last_good_at: datetime | None
    last_proven_at: datetime | None
    troubled: tuple[FleetBackup, ...] = ()  # of each job and member the last that ended, where it failed or was missed
    lacking: tuple[str, str] | None = None  # a job without any good one, and the member that owes it, or ""
    alone: tuple[str, datetime] | None = None  # who told of a newer good one of what counts, and of when that is


@dataclass(frozen=True, slots=True)
class Control:
    """The control host that is at work, or was last."""

    host: str
    pid: int
    since: datetime
    seen_at: datetime  # it says every few seconds that it is at work
