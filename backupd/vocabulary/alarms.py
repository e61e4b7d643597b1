"""What is not as it should be with a job or a target, as frozen values: at one instant, and as people know of it.

Knows: how grave each kind is, and how long it has to last before anybody is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class AlarmKind(StrEnum):
    """Why somebody should look at a job, or at a target."""

    FAILED = "failed"
    DIED = "died"
    BROKEN = "broken"
    OVERDUE = "overdue"
    MISSED = "missed"
    DRILL_OVERDUE = "drill-overdue"
    ATTENTION = "attention"
    BINLOG_GAP = "binlog-gap"
    BINLOG_BEHIND = "binlog-behind"
    BINLOG_SPOOL = "binlog-spool"
    STORAGE_UNREACHABLE = "storage-unreachable"
    STORAGE_FILLS = "storage-fills"


OF_TARGETS = frozenset({AlarmKind.STORAGE_UNREACHABLE, AlarmKind.STORAGE_FILLS})  # once, however many jobs write there


class Severity(StrEnum):
    """How grave it is, as in the shipped rules for Prometheus (`configs/alerts.yml`)."""

    OK = "ok"
    WARNING = "warning"  # check it in the morning
    CRITICAL = "critical"  # a restore would lose too much, or the server suffers


_CRITICAL = frozenset({AlarmKind.DIED, AlarmKind.BROKEN, AlarmKind.OVERDUE})


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that is not as it should be."""

    kind: AlarmKind
    text: str  # one sentence, without the job's name or the target's
    run_id: str = ""  # where to look; empty where there is no run
    about: str = ""  # what tells it from another of its kind and job: an activity, a run, a copy; it does not change

    @property
    def severity(self) -> Severity:
        """By its kind alone."""
        return Severity.CRITICAL if self.kind in _CRITICAL else Severity.WARNING

    @property
    def patience(self) -> timedelta:
        """How long it has to last before people are told, as `for` in the shipped rules for Prometheus.

        The daemon cleans up after a dead run within minutes, a new job has no backup before its first night, a proof
        that a proof host has left is read within an hour, and a file system that is mounted anew is away for a moment.
        """
        if self.kind is AlarmKind.DIED:
            return timedelta(minutes=5)
        if self.kind is AlarmKind.OVERDUE and not self.run_id:
            return timedelta(days=1)
        if self.kind is AlarmKind.DRILL_OVERDUE:
            return timedelta(hours=2)
        if self.kind in OF_TARGETS:
            return timedelta(minutes=15)
        return timedelta()


def gravest(severities: Iterable[Severity]) -> Severity:
    """Of these; where there is none, all is well."""
    found = set(severities)
    return next((one for one in (Severity.CRITICAL, Severity.WARNING) if one in found), Severity.OK)


@dataclass(frozen=True, slots=True)
class OpenAlarm:
    """An alarm that has been seen and is not over, as the catalogue remembers it."""

    job: str  # empty where it is of a target
    kind: AlarmKind
    about: str  # as `Alarm.about`; of a target its name
    text: str  # of when people were last told; before that, of when it was first seen
    since: datetime  # when it was first seen
    told_at: datetime | None  # when people were last told; None: not yet
    run_id: str = ""  # as `Alarm.run_id`, of when the text is of
