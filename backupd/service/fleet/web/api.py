"""The same as JSON, for programs: `/api/…`, told by `/openapi.json`. Sizes are bytes, times seconds, instants UTC.

Knows: the shapes. What is told here only ever gets more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from backupd.policy.cluster_status import ClusterStatus, FleetAlarm
from backupd.policy.fleet_slots import slot_uses
from backupd.service.fleet.status import HostState, HostStatus, SlotStatus, fleet_status, host_statuses
from backupd.service.fleet.web.asked import AskedFleet, Night, backup_named
from backupd.service.web.api import NAME, NOT_FOUND, REFUSALS
from backupd.vocabulary.fleet import FleetBackup, FleetPause, FleetState
from backupd.vocabulary.records import RunDetails

router = APIRouter(prefix="/api", responses=REFUSALS)


@dataclass(frozen=True)
class BackupNow:
    """A backup that a night owes, and what became of it."""

    id: str
    backup: FleetBackup


@dataclass(frozen=True)
class ClusterNow:
    """How a cluster stands."""

    cluster: str
    members: Sequence[str]
    last_good: str | None  # the backup's id
    last_good_at: datetime | None
    last_proven_at: datetime | None
    overdue_at: datetime | None  # when the last good backup becomes too old
    due_at: datetime | None  # when the next one is owed; null: at once
    newest: str | None
    newest_state: FleetState | None
    alarms: Sequence[FleetAlarm]


@dataclass(frozen=True)
class FleetNow:
    """How the fleet stands."""

    now: datetime
    night: date  # that it is
    planned: bool
    counts: Mapping[FleetState, int]  # of that night's backups
    clusters: Sequence[ClusterNow]  # the one that needs somebody most first
    slots: Sequence[SlotStatus]
    hosts: Mapping[HostState, int]
    pauses: Sequence[FleetPause]
    control: str | None  # the host that is at work, or was last
    control_seen_at: datetime | None
    leads: bool  # the control host that answers is the one at work


@dataclass(frozen=True)
class HostNow:
    """How a host stands."""

    host: str
    cluster: str
    state: HostState
    answered_at: datetime | None
    version: str | None
    clock_off_seconds: float | None
    running: Sequence[str]
    problems: Sequence[str]  # why it does not answer, and what keeps it or a job of it from being used


@dataclass(frozen=True)
class Hosts:
    """Every host."""

    now: datetime
    hosts: Sequence[HostNow]


@dataclass(frozen=True)
class Taken:
    """A slot of a target that a try took."""

    slot: int
    begin: datetime
    end: datetime
    backup: str
    run_id: str


@dataclass(frozen=True)
class NightNow:
    """What a night owes, and who took which slots."""

    night: date
    backups: Sequence[BackupNow]
    slots: Mapping[str, Sequence[Taken]]  # by target


@dataclass(frozen=True)
class BackupsPage:
    """One page of backups, newest first."""

    backups: Sequence[BackupNow]
    before: str | None  # ask for the next page with it; null on the last one


@dataclass(frozen=True)
class BackupDocument:
    """One backup, with what was pulled of its runs."""

    id: str
    backup: FleetBackup
    results: Mapping[str, RunDetails]  # by run id; without those that were not pulled


@router.get("/fleet")
def fleet(site: AskedFleet) -> FleetNow:
    """How every cluster stands, what is overdue first."""
    status = fleet_status(site)
    states = [one.state for one in status.hosts]
    return FleetNow(
        status.now,
        status.night,
        status.planned,
        status.counts,
        [_cluster(one) for one in status.clusters],
        status.slots,
        {state: states.count(state) for state in HostState},
        status.pauses,
        None if status.control is None else status.control.host,
        None if status.control is None else status.control.seen_at,
        status.leads,
    )


@router.get("/hosts")
def hosts(site: AskedFleet) -> Hosts:
    """When each host was last seen, and what is wrong with it."""
    return Hosts(site.now(), [_host(one) for one in host_statuses(site)])


@router.get("/nights/{night}")
def night(site: AskedFleet, night: Night) -> NightNow:
    """All that a night owed, and the slots that its tries took."""
    backups = site.records.night(night)
    taken = {
        target: [Taken(use.slot, use.begin, use.end, use.backup.owed.id, use.tried.run_id) for use in uses]
        for target, uses in slot_uses(backups, now=site.now()).items()
    }
    return NightNow(night, [BackupNow(one.owed.id, one) for one in backups], taken)


@router.get("/backups", responses=NOT_FOUND)
def backups(
    site: AskedFleet,
    *,
    cluster: Annotated[str | None, Query(min_length=1, max_length=200, description="Only of this cluster.")] = None,
    host: Annotated[str | None, Query(min_length=1, max_length=200, description="Only by this host.")] = None,
    state: Annotated[FleetState | None, Query(description="Only with this outcome.")] = None,
    before: Annotated[str | None, Query(pattern=NAME, description="Continue after this backup.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> BackupsPage:
    """Backups of every night, newest first."""
    found = site.records.history(cluster=cluster, host=host, state=state, before=before, limit=limit + 1)
    shown = [BackupNow(one.owed.id, one) for one in found[:limit]]
    return BackupsPage(shown, shown[-1].id if len(found) > limit else None)


@router.get("/backups/{backup_id}", responses=NOT_FOUND)
def backup(site: AskedFleet, backup_id: Annotated[str, Path(pattern="^[^\\x00-\\x1f/\\\\]{1,500}$")]) -> BackupDocument:
    """One backup, its tries, and what was pulled of their runs."""
    found = backup_named(site, backup_id)
    results = {one.run_id: site.records.result(one.run_id) for one in found.tries}
    return BackupDocument(backup_id, found, {run_id: run for run_id, run in results.items() if run is not None})


def _cluster(status: ClusterStatus) -> ClusterNow:
    summary = status.summary
    return ClusterNow(
        status.cluster,
        status.terms.members,
        None if summary.last_good is None else summary.last_good.owed.id,
        summary.last_good_at,
        summary.last_proven_at,
        status.overdue_at,
        status.due_at,
        None if summary.newest is None else summary.newest.owed.id,
        None if summary.newest is None else summary.newest.state,
        status.alarms,
    )


def _host(status: HostStatus) -> HostNow:
    seen = status.seen
    described = None if seen is None else seen.described
    return HostNow(
        status.host,
        status.cluster,
        status.state,
        None if seen is None else seen.answered_at,
        None if described is None else described.version,
        status.clock_off_seconds,
        status.running,
        status.problems,
    )
