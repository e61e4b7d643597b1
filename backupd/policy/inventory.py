"""Hosts that somebody else lists, as values: what Ansible's inventories say of them.

Knows: which hosts, addresses and clusters a tree of groups means, and which names are none. How a text becomes a tree
is in `inventory_text`. All of it is a stranger's: what cannot be used is left out and told, and the others go on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backupd.vocabulary.escaping import some
from backupd.vocabulary.faults import quoted

MOST_HOSTS = 20_000
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}", re.ASCII)
_PLACE = re.compile(r"[A-Za-z0-9_.:%-]{1,253}", re.ASCII)  # a name, or an IP address
_DEEPEST = 50  # groups within groups
_SHOWN = 5
EVERYTHING = ("all", "ungrouped")


class BadInventory(ValueError):
    """Nothing can be made of it: a lower-case fact."""


@dataclass(frozen=True, slots=True)
class ListedHost:
    """A host as an inventory has it; None where that does not say."""

    name: str
    address: str | None = None
    port: int | None = None
    user: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it is written: its own hosts, the groups in it, and the variables of each host of it."""

    hosts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InventoryReading:
    """Which of it are our hosts, and what says in which cluster one is."""

    group: str | None  # only its hosts
    cluster_variable: str
    cluster_prefix: str  # of a group's name


@dataclass(frozen=True, slots=True)
class ListedHosts:
    """What could be used of an inventory, and a sentence for each kind of thing that could not."""

    hosts: tuple[ListedHost, ...]
    problems: tuple[str, ...] = ()


def listed_hosts(groups: Mapping[str, Group], reading: InventoryReading) -> ListedHosts:
    """The hosts of these groups, in the order of their names.

    Raises:
        BadInventory: there is no host, no such group, or too many of them.
    """
    members = {name: _hosts_of(groups, name) for name in groups}
    if reading.group is not None and reading.group not in groups:
        raise BadInventory(f"has no group {quoted(reading.group)}")
    names = (
        members[reading.group] if reading.group is not None else {host for all_ in members.values() for host in all_}
    )
    if not names:
        raise BadInventory("lists no host")
    if len(names) > MOST_HOSTS:
        raise BadInventory(f"lists {len(names)} hosts, and more than {MOST_HOSTS} are not read")
    bad: dict[str, list[str]] = {}
    variables = _variables(groups, members)
    clusters = _clusters_by_group(groups, members, reading.cluster_prefix)
    found = tuple(_usable(sorted(names), variables, clusters, reading, bad))
    if not found:
        raise BadInventory(f"lists no host that can be used: {some(_told(bad), 1)}")
    return ListedHosts(found, tuple(_told(bad)))


def _usable(
    names: Sequence[str],
    variables: Mapping[str, Mapping[str, str]],
    clusters: Mapping[str, Sequence[str]],
    reading: InventoryReading,
    bad: dict[str, list[str]],
) -> Iterator[ListedHost]:
    for name in names:
        if not _HOST.fullmatch(name):
            bad.setdefault("names that no host can have", []).append(name)
            continue
        own = variables.get(name, {})
        said = own.get(reading.cluster_variable)
        of_host = [said] if said else list(clusters.get(name, ()))
        if len(of_host) > 1:
            bad.setdefault("hosts that are in two clusters", []).append(f"{name} ({', '.join(of_host)})")
            continue
        if of_host and not _CLUSTER.fullmatch(of_host[0]):
            bad.setdefault("hosts of a cluster that cannot be called so", []).append(f"{name} ({of_host[0]})")
            continue
        host = _reached(ListedHost(name, cluster=of_host[0] if of_host else None), own)
        if host is None:
            bad.setdefault("hosts with an address, port or user that cannot be one", []).append(name)
        else:
            yield host


def _reached(host: ListedHost, variables: Mapping[str, str]) -> ListedHost | None:
    """With where it is reached (Ansible's connection variables); None where that makes no sense."""
    address, port = variables.get("ansible_host"), variables.get("ansible_port")
    user = variables.get("ansible_user") or None
    if (address and not _PLACE.fullmatch(address)) or (user and not _HOST.fullmatch(user)):
        return None
    if port and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        return None
    return replace(host, address=address or None, port=int(port) if port else None, user=user)


def _told(bad: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"it has {what}, which are left out: {some([quoted(one) for one in names], _SHOWN)}"
        for what, names in bad.items()
    ]


def _hosts_of(groups: Mapping[str, Group], name: str) -> frozenset[str]:
    """Its own, and those of the groups in it.

    Raises:
        BadInventory: the groups lead in a circle, or too deep.
    """
    found: set[str] = set()
    seen: set[str] = set()
    level = [name]
    for _ in range(_DEEPEST):
        if not level:
            return frozenset(found)
        seen.update(level)
        found.update(host for group in level for host in groups[group].hosts)
        level = list(
            dict.fromkeys(
                child for group in level for child in groups[group].children if child in groups and child not in seen
            )
        )
    raise BadInventory(f"has groups within groups more than {_DEEPEST} deep")


def _variables(groups: Mapping[str, Group], members: Mapping[str, frozenset[str]]) -> dict[str, dict[str, str]]:
    """Of each host: its own before its groups', those of a small group before those of a large one."""
    found: dict[str, dict[str, str]] = {}
    for name in sorted(groups, key=lambda name: (-len(members[name]), name)):
        if groups[name].variables:
            for host in members[name]:
                found.setdefault(host, {}).update(groups[name].variables)
    for name in sorted(groups):
        for host, own in groups[name].hosts.items():
            if own:
                found.setdefault(host, {}).update(own)
    return found


def _clusters_by_group(
    groups: Mapping[str, Group], members: Mapping[str, frozenset[str]], prefix: str
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(groups):
        if name.startswith(prefix) and len(name) > len(prefix) and name not in EVERYTHING:
            for host in members[name]:
                found.setdefault(host, []).append(name.removeprefix(prefix))
    return found
