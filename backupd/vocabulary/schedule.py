"""The words of the service as frozen values: what is done by schedule, when it was due, and what a person is told.

Instants are aware `datetime` in UTC, durations float seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum


class Activity(StrEnum):
    """What a job's schedules start."""

    BACKUP = "backup"
    PROBE = "probe"
    DRILL = "drill"
    VERIFY = "verify"
    PRUNE = "prune"
    CHECK = "check"  # the preflight of a backup, and no backup


@dataclass(frozen=True, slots=True)
class Blackout:
    """A part of the day in which nothing is started; it goes on into the next day where it ends before it begins."""

    days: frozenset[int]  # on which it begins; Monday is 0
    begin: time
    end: time


@dataclass(frozen=True, slots=True)
class Deadline:
    """When what has started must be done: at a time of this machine's clock, or so long after it began.

    Either `clock` or `within_seconds` is set.
    """

    clock: time | None = None
    day: int | None = None  # of the week on which the clock shows it, Monday is 0; None: the next time that it does
    within_seconds: float = 0.0


class SlotState(StrEnum):
    """What became of a slot."""

    STARTED = "started"
    ENDED = "ended"
    MISSED = "missed"
    LEFT = "left"  # to the fleet, whose control host had asked this host not long before
    RETRYING = "retrying"  # what was started has failed, and is started again


@dataclass(frozen=True, slots=True)
class Slot:
    """One instant at which an activity of a job was due. The catalogue has each at most once, whatever its tries."""

    job: str
    activity: Activity
    due_at: datetime
    state: SlotState
    decided_at: datetime  # when it was started, or found to be missed
    run_id: str = ""  # of the run that was started; empty where there is none
    reason: str = ""  # why it was missed, late, or left to the fleet, in words
    ended_at: datetime | None = None
    exit_status: int | None = None  # None: unknown, or not ended
    tried: tuple[str, ...] = ()  # the runs of earlier tries, which failed; all else is of the newest try
    retry_at: datetime | None = field(default=None, compare=False)  # when the next try is planned; the run writes it

    @property
    def number(self) -> int:
        """Of the newest try, from 1."""
        return len(self.tried) + 1


@dataclass(frozen=True, slots=True)
class Pause:
    """A person wants nothing of this job to be started."""

    job: str
    note: str
    at: datetime


class NoticeKind(StrEnum):
    """What a person, or a program that watches for them, may want to hear of."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRYING = "retrying"  # failed, and tried again: `failed` comes after the last try
    ATTENTION = "attention"
    RECOVERED = "recovered"  # good again after a failed, missed or broken one
    MISSED = "missed"
    ALARM = "alarm"  # something is wrong that no run has told of, or still is a day later
    OVER = "over"  # what an alarm was told of is no more
    DIGEST = "digest"  # how all jobs stand, when service.digest says


@dataclass(frozen=True, slots=True)
class NoticeTable:
    """What is told in rows and columns."""

    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()
    right: tuple[int, ...] = ()  # columns of figures


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to be told, once."""

    kind: NoticeKind
    job: str  # empty where it is of a target, of the whole machine, or of a whole fleet
    at: datetime
    subject: str  # what tells it from another of its kind: a run's id, or the instant that a slot was due at
    text: str  # one sentence
    detail: Mapping[str, str] = field(default_factory=dict)
    target: str = ""  # that it is of
    cluster: str | None = None  # of a fleet, whose `job` it then is; empty: of the whole fleet; None: of this machine
    concerns: tuple[str, ...] = ()  # the jobs that should hear of it, where it is of none
    tables: Mapping[str, NoticeTable] = field(default_factory=dict)  # in cells, what `detail` has by these names
    backed_up: bool = False  # it tells of a backup that there is now: a test does not, nor does every `attention`
