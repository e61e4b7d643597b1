"""How a cluster of a fleet stands: whether its last good backup or its last proof is too old, and what is wrong.

Knows: the terms that a cluster is held to, and when they are broken. What it is held to comes from the configuration,
what became of it from the records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum

from backupd.policy.member_choice import owing
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.escaping import Prose
from backupd.vocabulary.fleet import ClusterSummary, Control, FleetBackup, FleetState
from backupd.vocabulary.instants import to_the_minute

TOO_OLD = 1.5  # intervals: as of a single host's job
AWAY = timedelta(minutes=15)  # a host that is restarted is away for a moment
AT_WORK = timedelta(seconds=60)  # a control host says every few seconds that it is


def is_at_work(control: Control | None, now: datetime) -> bool:
    """Whether a control host has said so just now; what lies ahead was written by a clock that was."""
    return control is not None and abs(now - control.seen_at) < AT_WORK


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """What a cluster is to have."""

    cluster: str
    members: tuple[str, ...]
    jobs: tuple[str, ...]  # of each of which it is to have a backup
    every_seconds: float
    drill_within_seconds: float | None = None  # None: nobody asks for proofs
    every_member: bool = False  # each member is to have backups and proofs of its own

    @property
    def owes(self) -> tuple[tuple[str, str], ...]:
        """The jobs of which it is to have backups, each with the member whose they are; "": whichever makes them."""
        owed_by = owing(self.members, every_member=self.every_member)
        return tuple((job, only) for job in self.jobs for only in owed_by)


@dataclass(frozen=True, slots=True)
class FleetShape:
    """What a fleet consists of, as far as those need to know it who only look on."""

    clusters: tuple[WatchedCluster, ...]
    hosts: tuple[str, ...]
    slots: Mapping[str, int]  # of each target
    zone: str
    night_begins: time

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """The hosts of each cluster."""
        return {one.cluster: one.members for one in self.clusters}


class FleetAlarmKind(StrEnum):
    """Why somebody should look at a cluster."""

    NEVER = "never"  # the fleet has made no good backup
    OVERDUE = "overdue"
    FAILED = "failed"
    MISSED = "missed"
    PROOF_OVERDUE = "proof-overdue"


_BAD = {FleetState.FAILED: FleetAlarmKind.FAILED, FleetState.MISSED: FleetAlarmKind.MISSED}


@dataclass(frozen=True, slots=True)
class FleetAlarm:
    """One thing that is not as it should be with a cluster."""

    kind: FleetAlarmKind
    text: Prose  # one sentence, without the cluster's name

    @property
    def severity(self) -> Severity:
        """By its kind alone."""
        grave = self.kind in (FleetAlarmKind.NEVER, FleetAlarmKind.OVERDUE)
        return Severity.CRITICAL if grave else Severity.WARNING


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How a cluster stands at one instant."""

    terms: WatchedCluster
    summary: ClusterSummary
    overdue_at: datetime | None  # when its last good backup becomes too old; None: there is none
    proof_overdue_at: datetime | None  # None: there is no proof, or nobody asks for one
    due_at: datetime | None  # when the next backup is owed; None: at once
    alarms: tuple[FleetAlarm, ...]

    @property
    def cluster(self) -> str:
        """Its name."""
        return self.terms.cluster

    @property
    def going(self) -> FleetBackup | None:
        """The one that waits or runs."""
        newest = self.summary.newest
        return newest if newest is not None and newest.state in (FleetState.WAITING, FleetState.RUNNING) else None


def cluster_statuses(
    terms: Sequence[WatchedCluster], summaries: Mapping[str, ClusterSummary], *, now: datetime
) -> list[ClusterStatus]:
    """Each cluster, the one that needs somebody most first.

    First those that were never backed up, then those that are overdue for longest, then other alarms; of those that are
    well the one that becomes overdue first.
    """
    found = [_status(one, summaries.get(one.cluster) or _nothing(one.cluster), now) for one in terms]
    return sorted(found, key=_urgency)


def _status(terms: WatchedCluster, summary: ClusterSummary, now: datetime) -> ClusterStatus:
    every = timedelta(seconds=terms.every_seconds)
    good, proven = summary.last_good_at, summary.last_proven_at
    overdue_at = None if good is None else good + every * TOO_OLD
    within = terms.drill_within_seconds
    proof_overdue_at = None if proven is None or within is None else proven + timedelta(seconds=within)
    return ClusterStatus(
        terms,
        summary,
        overdue_at=overdue_at,
        proof_overdue_at=proof_overdue_at,
        due_at=None if good is None else good + every,
        alarms=tuple(_alarms(terms, summary, overdue_at, proof_overdue_at, now)),
    )


def _alarms(
    terms: WatchedCluster,
    summary: ClusterSummary,
    overdue_at: datetime | None,
    proof_overdue_at: datetime | None,
    now: datetime,
) -> Iterator[FleetAlarm]:
    alone = _made_alone(summary)
    if overdue_at is None:
        of = _of(terms, *summary.lacking) if summary.lacking else ""
        yield FleetAlarm(FleetAlarmKind.NEVER, f"the fleet has made no good backup{of}{alone}")
    elif overdue_at < now:
        yield FleetAlarm(FleetAlarmKind.OVERDUE, f"the fleet's last good backup is too old{alone}")
    newest = () if summary.newest is None else (summary.newest,)
    for state, kind in _BAD.items():
        bad = next((one for one in (*newest, *summary.troubled) if one.state is state), None)
        if bad is not None:
            of = _of(terms, bad.owed.job, bad.owed.only)
            yield FleetAlarm(kind, f"the backup of {bad.owed.night}{of} {_became(bad)}")
    if terms.drill_within_seconds is not None and summary.last_good_at is not None:
        if summary.last_proven_at is None:
            of = " of each member" if len(terms.members) > 1 and terms.every_member else ""
            yield FleetAlarm(FleetAlarmKind.PROOF_OVERDUE, f"no drill has ever proven a backup{of}")
        elif proof_overdue_at is not None and proof_overdue_at < now:
            yield FleetAlarm(FleetAlarmKind.PROOF_OVERDUE, "the last proof is too old")


def _made_alone(summary: ClusterSummary) -> str:
    """What a host has, though nobody of the fleet asked for it: a fallback, or a person's."""
    if summary.alone is None:
        return ""
    host, at = summary.alone
    return f"; {host} made one without it at {to_the_minute(at)}"


def _of(terms: WatchedCluster, job: str, only: str) -> str:
    """Which of its backups is meant, as far as it has several."""
    of_job = f" of job {job}" if len(terms.jobs) > 1 else ""
    return of_job + (f" of {only}" if only and len(terms.members) > 1 else "")


def _became(backup: FleetBackup) -> str:
    word = "failed" if backup.state is FleetState.FAILED else "was missed"
    return f"{word}: {backup.said}" if backup.said else word


def _nothing(cluster: str) -> ClusterSummary:
    return ClusterSummary(cluster, newest=None, last_good=None, last_good_at=None, last_proven_at=None)


def _urgency(status: ClusterStatus) -> tuple[int, float, str]:
    kinds = {alarm.kind for alarm in status.alarms}
    at = 0.0 if status.overdue_at is None else status.overdue_at.timestamp()
    if FleetAlarmKind.NEVER in kinds:
        return 0, at, status.cluster
    if FleetAlarmKind.OVERDUE in kinds:
        return 1, at, status.cluster
    return 2 if kinds else 3, at, status.cluster
