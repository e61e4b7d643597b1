"""Hosts that are one machine, though a fleet takes them for several: whose data is in their backups?

Knows: what makes two hosts one machine, the name of its identity, and what shows that they are two all the same: a
clone has that name too, and mostly a server with an id of its own. Of one machine that stands for two clusters nobody
can tell here whose data it has, so that it makes no backup of either.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import SeenHost

ONE_MACHINE_HINT: Final = (
    "if one has the other's address: correct it in fleet.toml or the inventory; if one was cloned from the other: type"
    " `backupd identity new` on the clone"
)
_SHOWN: Final = 5

CountedAs = Mapping[str, tuple[str, str]]  # by host: whose backups it makes, and itself if they are its alone


class CountedCluster(Protocol):
    """A cluster, as far as it says whose backups its members make."""

    @property
    def cluster(self) -> str: ...
    @property
    def members(self) -> tuple[str, ...]: ...
    @property
    def every_member(self) -> bool: ...


def counted_as(clusters: Iterable[CountedCluster]) -> dict[str, tuple[str, str]]:
    """What the backups of each host count as."""
    return {host: (one.cluster, host if one.every_member else "") for one in clusters for host in one.members}


def hosts_by_machine(seen: Iterable[SeenHost]) -> dict[str, list[str]]:
    """The hosts that told the same machine last, where there are several; by name."""
    machines: dict[str, list[str]] = defaultdict(list)
    for one in seen:
        if one.described is not None:
            machines[one.described.machine].append(one.host)
    return {machine: sorted(hosts) for machine, hosts in sorted(machines.items()) if len(hosts) > 1}


def taken_for_another(seen: Mapping[str, SeenHost], counted: CountedAs) -> dict[str, str]:
    """The hosts that seem to be the machine of another one, whose backups count as others; with a sentence each.

    Within a cluster one machine under two names is no harm: there is one set of data, and one backup at a time.
    """
    found = {}
    ours = [one for one in seen.values() if one.host in counted]
    for machine, hosts in hosts_by_machine(ours).items():
        for host in hosts:
            others = [
                other for other in hosts if counted[other] != counted[host] and not _are_two(seen[host], seen[other])
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


def _are_two(one: SeenHost, other: SeenHost) -> bool:
    """A job of theirs is of two servers."""
    servers = [{job.job: job.server for job in each.described.jobs} for each in (one, other) if each.described]
    first, second = servers
    return any(first[job] != second[job] for job in first.keys() & second.keys() if first[job] and second[job])


def _named(hosts: Sequence[str], counted: CountedAs) -> str:
    return some([f"{host} of cluster {counted[host][0]}" for host in hosts], _SHOWN)
