"""Hosts that are one machine, though a fleet takes them for several: whose data is in their backups?

Knows: what makes two hosts one machine, the name of its identity, and that this alone says little: a clone has that
name too, one machine may have several servers, and a host may lie. Only where jobs that they owe are of one server as
well would a backup be of the other's data. Then whoever was that machine first keeps its backups: else any host could
end another's by telling its name. A name that has not answered since is likely to be retired, and stops nobody.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import SeenHost

ONE_MACHINE_HINT: Final = (
    "if one has the other's address: correct it in fleet.toml or the inventory; if one was cloned from the other: type"
    " `backupd identity new` on the clone; if it was renamed: remove the old name from the inventory"
)
_SHOWN: Final = 5
_AT_ONCE: Final = timedelta(hours=1)  # who told one machine first within it: neither was first


class CountedCluster(Protocol):
    """A cluster, as far as it says whose backups its members make."""

    @property
    def cluster(self) -> str: ...
    @property
    def members(self) -> tuple[str, ...]: ...
    @property
    def jobs(self) -> tuple[str, ...]: ...
    @property
    def every_member(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CountsAs:
    """Whose backups those of a host are."""

    cluster: str
    jobs: tuple[str, ...]
    only: str = ""  # the host itself, where they are its alone


CountedAs = Mapping[str, CountsAs]  # by host


def counted_as(clusters: Iterable[CountedCluster]) -> dict[str, CountsAs]:
    """What the backups of each host count as."""
    return {
        host: CountsAs(one.cluster, one.jobs, host if one.every_member else "")
        for one in clusters
        for host in one.members
    }


def hosts_by_machine(seen: Iterable[SeenHost]) -> dict[str, list[str]]:
    """The hosts that told the same machine last, where there are several; by name."""
    machines: dict[str, list[str]] = defaultdict(list)
    for one in seen:
        if one.described is not None and one.described.machine:
            machines[one.described.machine].append(one.host)
    return {machine: sorted(hosts) for machine, hosts in sorted(machines.items()) if len(hosts) > 1}


def alike(seen: Mapping[str, SeenHost], counted: CountedAs) -> dict[str, list[str]]:
    """The hosts of one machine whose backups count as several: whoever of them may be right."""
    found = hosts_by_machine(one for one in seen.values() if one.host in counted)
    return {machine: hosts for machine, hosts in found.items() if len({counted[host] for host in hosts}) > 1}


def taken_for_another(seen: Mapping[str, SeenHost], counted: CountedAs) -> dict[str, str]:
    """The hosts whose backups would be of another's data, by their machine and its server, where the other still
    answers and was not that machine after them; with a sentence each.

    Within a cluster one machine under two names is no harm: there is one set of data, and one backup at a time.
    """
    found = {}
    for machine, hosts in alike(seen, counted).items():
        for host in hosts:
            others = [
                other
                for other in hosts
                if counted[other] != counted[host]
                and _servers(seen[host], counted[host].jobs) & _servers(seen[other], counted[other].jobs)
                and not _was_first(seen[host], seen[other])
                and _answers_since(seen[other], _first_told(seen[host]))
            ]
            if others:
                found[host] = (
                    f"it is the same machine, {machine}, as {_named(others, counted)}: nobody knows whose data a backup"
                    " would have (see `backupd fleet check`)"
                )
    return found


def set_apart(seen: Mapping[str, SeenHost], counted: CountedAs) -> dict[str, SeenHost]:
    """The same, of which those that seem to be another's machine are not fit, and have made no backup."""
    apart = taken_for_another(seen, counted)
    return {host: _apart(one, apart[host]) if host in apart else one for host, one in seen.items()}


def _apart(one: SeenHost, said: str) -> SeenHost:
    if one.described is None:
        return one
    jobs = tuple(replace(job, last_good_at=None, last_proven_at=None) for job in one.described.jobs)
    return replace(one, described=replace(one.described, jobs=jobs), problem=said)


def _servers(one: SeenHost, owed: Collection[str]) -> set[str]:
    """Those of the jobs that its cluster owes, where they are known."""
    told = () if one.described is None else one.described.jobs
    return {job.server for job in told if job.server and job.job in owed}


def _was_first(one: SeenHost, other: SeenHost) -> bool:
    """It was this machine when the other was not yet, or nobody knows since when one of them has been it."""
    first, second = _first_told(one), _first_told(other)
    return first is None or second is None or first + _AT_ONCE < second


def _first_told(one: SeenHost) -> datetime | None:
    """When it told first that it is the machine that it is now, whatever it was in between."""
    told = one.described
    return None if told is None else told.machines.get(told.machine, told.machine_since)


def _answers_since(one: SeenHost, then: datetime | None) -> bool:
    """It answered when it was asked last, or has answered since then."""
    return not one.problem or (one.answered_at is not None and then is not None and one.answered_at >= then)


def _named(hosts: Sequence[str], counted: CountedAs) -> str:
    return some([f"{host} of cluster {counted[host].cluster}" for host in hosts], _SHOWN)
