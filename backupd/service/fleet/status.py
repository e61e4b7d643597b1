"""How a fleet stands at one instant: clusters, hosts, slots, tonight, the control host. For pages, metrics, commands.

Knows: which records it takes. Every face asks here, so that none says something else than another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

from backupd.policy.cluster_status import AWAY, ClusterStatus, cluster_statuses, is_at_work
from backupd.policy.fleet_slots import holding
from backupd.policy.member_choice import MOST_CLOCK_SECONDS, host_faults
from backupd.policy.one_machine import counted_as, taken_for_another
from backupd.service.fleet.site import FleetSite
from backupd.vocabulary.alarms import Severity, gravest
from backupd.vocabulary.fleet import ASKED_EVERY_SECONDS, Control, FleetBackup, FleetPause, FleetState, SeenHost
from backupd.vocabulary.instants import to_the_minute

_DAYS = timedelta(days=3)
_UNASKED = timedelta(seconds=ASKED_EVERY_SECONDS) + AWAY  # to ask all hosts of a large fleet takes minutes


class HostState(StrEnum):
    """Whether a host answers."""

    ANSWERS = "answers"
    AWAY = "away"  # or nobody has asked it for so long that nobody knows
    NEVER = "never"  # it has not answered yet, or was not asked


@dataclass(frozen=True, slots=True)
class HostStatus:
    """How a host stands."""

    host: str
    cluster: str  # empty: the configuration does not have it any more
    seen: SeenHost | None
    state: HostState
    clock_off_seconds: float | None  # how far its clock was ahead of ours when it answered
    running: tuple[str, ...]  # ids of live runs
    apart: str = ""  # the sentence that says that it is the machine of another host

    @property
    def is_unasked(self) -> bool:
        """It answered when it was asked last, and that is too long ago: no control host has contact with it."""
        return self.state is HostState.AWAY and self.seen is not None and not self.seen.problem

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it did not answer when it was asked last, and what keeps it, or a job of it, from being used."""
        described = None if self.seen is None else self.seen.described
        away = (self.seen.problem,) if self.seen is not None and self.seen.problem else ()
        if self.is_unasked and self.seen is not None and self.seen.answered_at is not None:
            away = (f"no control host has asked it since {to_the_minute(self.seen.answered_at)}",)
        if described is None:
            return away
        of_jobs = (f"{job.job}: {job.problem}" for job in described.jobs if job.problem)
        return (*away, *((self.apart,) if self.apart else ()), *host_faults(described), *of_jobs)

    @property
    def clock_is_off(self) -> bool:
        """By more than a slow answer explains."""
        return self.clock_off_seconds is not None and abs(self.clock_off_seconds) > MOST_CLOCK_SECONDS


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """How many slots of a target are taken."""

    target: str
    used: int
    limit: int | None  # None: the configuration does not have it


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All of it."""

    now: datetime
    night: date  # that it is
    planned: bool  # it was planned
    counts: Mapping[FleetState, int]  # of the backups that it owes
    clusters: tuple[ClusterStatus, ...]  # the one that needs somebody most first
    hosts: tuple[HostStatus, ...]
    slots: tuple[SlotStatus, ...]
    going: tuple[FleetBackup, ...]
    pauses: tuple[FleetPause, ...]
    control: Control | None
    leads: bool  # the control host that is asked is the one at work

    @property
    def severity(self) -> Severity:
        """Of the gravest alarm; a fleet that no control host looks after, or asks, is one that nobody backs up."""
        found = gravest(alarm.severity for one in self.clusters for alarm in one.alarms)
        well = self.is_looked_after and not self.unasked
        return found if well or found is Severity.CRITICAL else Severity.WARNING

    @property
    def is_looked_after(self) -> bool:
        """A control host is running."""
        return is_at_work(self.control, self.now)

    @property
    def alarmed(self) -> tuple[ClusterStatus, ...]:
        """Those that need somebody."""
        return tuple(one for one in self.clusters if one.alarms)

    @property
    def away(self) -> tuple[HostStatus, ...]:
        """Hosts that do not answer."""
        return tuple(one for one in self.hosts if one.state is HostState.AWAY)

    @property
    def unasked(self) -> tuple[HostStatus, ...]:
        """Those of them that no control host has asked for too long."""
        return tuple(one for one in self.hosts if one.is_unasked)


def fleet_status(site: FleetSite) -> FleetStatus:
    """The fleet as it stands.

    Raises:
        FleetDatabaseAway, FleetDatabaseError: the records cannot be read.
    """
    now, night, records = site.now(), site.tonight(), site.records
    going, control = records.going(), records.control()
    summaries = records.summaries(site.shape.clusters, at=now, night=night)
    return FleetStatus(
        now,
        night,
        planned=night in records.planned_nights(since=night - _DAYS),
        counts=Counter(state for _, _, _, state in records.outcomes(night, night)),
        clusters=tuple(cluster_statuses(site.shape.clusters, summaries, now=now)),
        hosts=tuple(host_statuses(site)),
        slots=tuple(_slots(site.shape.slots, going)),
        going=tuple(going),
        pauses=tuple(records.pauses()),
        control=control,
        leads=site.leads(control),
    )


def host_statuses(site: FleetSite) -> list[HostStatus]:
    """Each host of the configuration and each that was ever asked; by state, those that are away first, then by name.

    Raises:
        FleetDatabaseAway, FleetDatabaseError: the records cannot be read.
    """
    now, seen = site.now(), {one.host: one for one in site.records.seen()}
    clusters = {host: cluster for cluster, hosts in site.shape.members.items() for host in hosts}
    apart = taken_for_another(seen, counted_as(site.shape.clusters))
    found = [
        replace(_host(host, clusters.get(host, ""), seen.get(host), now), apart=apart.get(host, ""))
        for host in {*site.shape.hosts, *clusters, *(seen if not site.shape.hosts else ())}
    ]
    order = [HostState.AWAY, HostState.NEVER, HostState.ANSWERS]
    return sorted(found, key=lambda one: (order.index(one.state), not one.clock_is_off, one.host))


def _host(host: str, cluster: str, seen: SeenHost | None, now: datetime) -> HostStatus:
    described = None if seen is None else seen.described
    off = None if described is None else described.clock_ahead_seconds
    running = () if described is None else tuple(job.running for job in described.jobs if job.running)
    return HostStatus(host, cluster, seen, _host_state(seen, now), off, running)


def _host_state(seen: SeenHost | None, now: datetime) -> HostState:
    """What it did when it was asked last; one short failure says little of a host that has just answered."""
    if seen is None or seen.answered_at is None:
        return HostState.NEVER if seen is None or not seen.problem else HostState.AWAY
    return HostState.AWAY if abs(now - seen.answered_at) > (AWAY if seen.problem else _UNASKED) else HostState.ANSWERS


def _slots(limits: Mapping[str, int], going: Sequence[FleetBackup]) -> list[SlotStatus]:
    used = {target: len(holding(going, target)) for one in going for target in one.owed.targets}
    known = sorted({*limits, *(target for target, number in used.items() if number)})
    return [SlotStatus(target, used.get(target, 0), limits.get(target)) for target in known]
