"""Which hosts of an inventory a fleet.toml can use; what it cannot use is left out, and told.

Knows: that an inventory is somebody else's, who does not read fleet.toml: a host that has come into it, or has left it,
costs no other host its backups. What fleet.toml itself is to blame for stays, and is a fault.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backupd.config.fleet import HOST_NAME
from backupd.config.fleet_rules import FleetTables, bad_ids, clusters_of, hosts_of, named, unnamed_members
from backupd.policy.inventory import ListedHost
from backupd.vocabulary.escaping import some
from backupd.vocabulary.faults import nearest, quoted
from backupd.vocabulary.names import NAME

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class UsableHosts:
    """The file's tables and the inventory's hosts that go together, and a sentence for each kind of thing left out."""

    document: FleetTables
    hosts: tuple[ListedHost, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """What is left of both."""

    document: FleetTables
    listed: tuple[ListedHost, ...]

    @property
    def placed_by_inventory(self) -> frozenset[str]:
        """The hosts that it lists and whose cluster no table of theirs in the file says."""
        placed = {name for name, table in named(self.document, "hosts") if isinstance(table.get("cluster"), str)}
        return frozenset(one.name for one in self.listed) - placed

    @property
    def clusters(self) -> dict[str, list[str]]:
        """Those first of which the file says anything: where two cannot both be, the inventory's is left out."""
        found, ours = clusters_of(self.document, self.listed), dict(named(self.document, "clusters"))
        placed = self.placed_by_inventory
        of_inventory = {name for name, hosts in found.items() if name not in ours and placed.issuperset(hosts)}
        return {name: found[name] for name in sorted(found, key=lambda one: one in of_inventory)}

    def without(self, hosts: Collection[str]) -> "_Known":
        """The same without these hosts."""
        document = _with_members(_kept(self.document, "hosts", hosts), lambda host: host not in hosts)
        return _Known(document, tuple(one for one in self.listed if one.name not in hosts))


def usable_hosts(document: FleetTables, listed: Sequence[ListedHost] | None) -> UsableHosts:
    """All that can be used together of this file and of the hosts that its inventory lists; None: nobody knows them.
    Without an inventory all of the file: who is missing then is a fault of its own.
    """
    if "inventory" not in document:
        return UsableHosts(document, tuple(listed or ()))
    known, problems = _Known(document, tuple(listed or ())), []
    for what, find in (
        ("hosts that are in two clusters", _in_another),
        ("hosts in no cluster whose names no cluster can have (1 to 41 of a-z, 0-9, _ and -)", _nameless),
        ("hosts whose backups could have no run ids of their own", _without_ids),
    ):
        if left_out := find(known):
            names = some([left_out[name] for name in sorted(left_out)], _SHOWN)
            problems.append(f"{what} are left out: {names}")
            known = known.without(left_out)
    if listed is None:
        return UsableHosts(known.document, (), tuple(problems))
    known, lacking = _present(known, all_listed={one.name for one in listed})
    unnamed = [
        f"cluster {name} has no backups: {fact}" for name, fact in unnamed_members(known.document, known.clusters)
    ]
    return UsableHosts(known.document, known.listed, (*problems, *lacking, *unnamed))


def _in_another(known: _Known) -> dict[str, str]:
    """Those that the inventory puts into a cluster, and a list of the file's into another; each as it is told."""
    lists = {
        name: table["members"]
        for name, table in named(known.document, "clusters")
        if isinstance(table.get("members"), list)
    }
    tables = dict(named(known.document, "hosts"))
    found: dict[str, str] = {}
    for one in known.listed:
        by_list = [name for name, members in lists.items() if one.name in members]
        if one.cluster is None or isinstance(tables.get(one.name, {}).get("cluster"), str):
            continue
        if len(by_list) == 1 and by_list != [one.cluster]:
            found[one.name] = quoted(f"{one.name} ({', '.join(sorted([one.cluster, *by_list]))})")
    return found


def _nameless(known: _Known) -> dict[str, str]:
    """Those that would be a cluster by themselves, under a name that none can have; each as it is told. So may be one
    that the file has as well, such as for its address: its cluster is the inventory's to say.
    """
    clusters, of_hosts = known.clusters, hosts_of(known.document, known.listed)
    alone = (host for host, cluster in of_hosts.items() if cluster is None and host in clusters)
    return {host: quoted(host) for host in alone if HOST_NAME.fullmatch(host) and not NAME.fullmatch(host)}


def _without_ids(known: _Known) -> dict[str, str]:
    """Those because of which a backup would have no id, or another's; each as it is told."""
    clusters, ours, placed = known.clusters, dict(named(known.document, "clusters")), known.placed_by_inventory
    found: dict[str, str] = {}
    for bad in bad_ids(known.document, clusters):
        blamed = [bad.only] if bad.only else clusters[bad.cluster]
        if placed.issuperset(blamed) and (bad.only or bad.cluster not in ours):
            found |= {host: quoted(host) for host in blamed}
    return found


def _present(known: _Known, *, all_listed: set[str]) -> tuple[_Known, list[str]]:
    """Without members that there are not, and without clusters of which no member is left; each is told."""
    hosts = hosts_of(known.document, known.listed)
    lacking = list(_lacking(known.document, hosts, all_listed))
    document = _with_members(known.document, lambda host: host in hosts)
    empty = {name for name, members in clusters_of(document, known.listed).items() if not members}
    lacking += [f"cluster {name} has no members, and no backups" for name in sorted(empty)]
    return _Known(_kept(document, "clusters", empty), known.listed), lacking


def _lacking(document: FleetTables, hosts: Mapping[str, object], all_listed: set[str]) -> Iterator[str]:
    """The members that neither the file nor the inventory has."""
    for name, table in named(document, "clusters"):
        members = table.get("members")
        for member in members if isinstance(members, list) else ():
            if isinstance(member, str) and member not in hosts and member not in all_listed:
                meant = nearest(member, hosts)
                hint = f"; did you mean {meant}?" if meant else ""
                yield f"cluster {name} lists {quoted(member)}, which is no host of the file or the inventory{hint}"


def _kept(document: FleetTables, kind: str, left_out: Collection[str]) -> FleetTables:
    """The same without these tables."""
    tables = document.get(kind)
    if not isinstance(tables, dict):
        return document
    return {**document, kind: {name: table for name, table in tables.items() if name not in left_out}}


def _with_members(document: FleetTables, is_kept: Callable[[str], bool]) -> FleetTables:
    """The same, of whose clusters only these members are listed."""
    clusters = document.get("clusters")
    if not isinstance(clusters, dict):
        return document
    kept = {
        name: {**table, "members": [one for one in table["members"] if not isinstance(one, str) or is_kept(one)]}
        if isinstance(table, dict) and isinstance(table.get("members"), list)
        else table
        for name, table in clusters.items()
    }
    return {**document, "clusters": kept}
