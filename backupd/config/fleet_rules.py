"""What takes more than one key of fleet.toml to see: members that must exist, hosts in two clusters, names too long.

Knows: the rules, on the TOML tables as they were written with the inventory's hosts among them, so that a fault in one
key hides none of these. What the inventory alone is to blame for is no fault: `listed_hosts` leaves it out before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backupd.config.fleet import (
    DEFAULT_JOB,
    DEFAULT_POLICY,
    HOST_NAME,
    MOST_RETRIES,
    NIGHTS,
    FleetConfiguration,
    MemberChoice,
)
from backupd.config.times import hours
from backupd.config.wording import unknown_key
from backupd.policy.inventory import ListedHost
from backupd.policy.night_times import never_open
from backupd.vocabulary.escaping import some
from backupd.vocabulary.faults import BadValue, Fault, dotted, nearest, quoted
from backupd.vocabulary.fleet import run_stem
from backupd.vocabulary.names import NAME
from backupd.vocabulary.records import RUN_ID

FleetTables = Mapping[str, Any]

_NIGHT = "20261126"  # any: all have so many digits
_KINDS = ("hosts", "clusters", "policies", "targets")
_SOURCES = ("password_file", "password_env", "password_credential")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class BadId:
    """Backups that cannot have run ids of their own, and why."""

    cluster: str
    only: str  # the member whose backups they are, where each owes its own
    fact: str
    hint: str


def clusters_of(document: FleetTables, listed: Sequence[ListedHost]) -> dict[str, list[str]]:
    """The members of every cluster: those that it lists, those that name it, and each host for which neither holds: it
    is of the cluster of its own name, whoever else is in that.
    """
    members = {
        name: [one for one in table.get("members", ()) if isinstance(one, str)]
        for name, table in named(document, "clusters")
        if isinstance(table.get("members", ()), list | tuple)
    }
    taken = {host for hosts in members.values() for host in hosts}
    for host, cluster in hosts_of(document, listed).items():
        if cluster is not None or host not in taken:
            there = members.setdefault(cluster or host, [])
            if host not in there:
                there.append(host)
    return members


def fleet_faults(document: FleetTables, listed: Sequence[ListedHost], *, inventory_known: bool) -> Iterator[Fault]:
    """Every rule that this document breaks. While nobody knows the inventory's hosts, nobody misses one of them."""
    for kind in _KINDS:
        for name, table in named(document, kind):
            if "name" in table:  # the schema's own field for the table's key
                yield unknown_key((kind, name, "name"), root=FleetConfiguration)
    yield from _control(document)
    yield from _inventory(document)
    clusters, hosts = clusters_of(document, listed), hosts_of(document, listed)
    if inventory_known:
        if not hosts:
            yield Fault("hosts", "there is no host", "add a table [hosts.NAME], or an [inventory] that lists hosts")
        yield from _members(clusters, hosts)
    if "inventory" not in document:  # else `listed_hosts` leaves it out: the inventory may have dropped its cluster
        yield from _alone(document, clusters, hosts)
    yield from _in_two(clusters)
    for name, table in named(document, "policies"):
        yield from _policy(name, table)
    for bad in bad_ids(document, clusters):
        yield Fault(dotted(("clusters", bad.cluster)), bad.fact, bad.hint)
    yield from _policies_of(document)
    if "inventory" not in document:  # else `listed_hosts` tells it: the inventory may have dropped the ones it names
        for name, fact in unnamed_members(document, clusters):
            yield Fault(dotted(("clusters", name, "policy")), fact, "name one of them in its key member")


def named(document: object, kind: str) -> Iterator[tuple[str, FleetTables]]:
    tables = document.get(kind) if isinstance(document, dict) else None
    if isinstance(tables, dict):
        yield from ((name, table) for name, table in tables.items() if isinstance(table, dict))


def hosts_of(document: FleetTables, listed: Sequence[ListedHost]) -> dict[str, str | None]:
    """Every host with the cluster that it names; what the file says goes before what the inventory does."""
    found = {host.name: host.cluster for host in listed}
    for name, table in named(document, "hosts"):
        cluster = table.get("cluster")
        found[name] = cluster if isinstance(cluster, str) else found.get(name)
    return found


def _control(document: FleetTables) -> Iterator[Fault]:
    control = document.get("control")
    sources = [key for key in _SOURCES if isinstance(control, dict) and key in control]
    if len(sources) > 1:
        yield Fault("control", f"has {len(sources)} sources for one password: {', '.join(sources)}", "keep one of them")
    if sources and str(control.get("database", "/")).startswith("/"):  # type: ignore[union-attr]
        yield Fault(f"control.{sources[0]}", "an SQLite file has no password", "remove it, or set database")


def _inventory(document: FleetTables) -> Iterator[Fault]:
    table = document.get("inventory")
    if isinstance(table, dict) and len({"command", "file"} & table.keys()) != 1:
        yield Fault("inventory", "needs either command or file", "keep one: a program to ask, or a file to read")


def _members(clusters: Mapping[str, Sequence[str]], hosts: Mapping[str, object]) -> Iterator[Fault]:
    for name, members in clusters.items():
        path = dotted(("clusters", name))
        if not members:
            yield Fault(path, "has no members", f'list them: members = ["HOST"], or write cluster = "{name}" at hosts')
        for member in members:
            if member not in hosts:
                meant = nearest(member, hosts)
                hint = f"did you mean {meant}?" if meant else f"add a table [{dotted(('hosts', member))}]"
                yield Fault(f"{path}.members", f"there is no host {quoted(member)}", hint)


def _alone(
    document: FleetTables, clusters: Mapping[str, Sequence[str]], hosts: Mapping[str, str | None]
) -> Iterator[Fault]:
    """A host that no cluster has is one by itself, under its own name."""
    for name, _ in named(document, "hosts"):
        if hosts[name] is None and name in clusters and HOST_NAME.fullmatch(name) and not NAME.fullmatch(name):
            hint = 'write cluster = "NAME" there: 1 to 41 of a-z, 0-9, _ and -'
            yield Fault(dotted(("hosts", name)), "is in no cluster, and no cluster can have its name", hint)


def _in_two(clusters: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    found: dict[str, list[str]] = {}
    for name, members in clusters.items():
        for member in members:
            found.setdefault(member, []).append(name)
    for host, names in found.items():
        if len(names) > 1:
            fact = f"is in {len(names)} clusters: {some(names, _SHOWN)}"
            yield Fault(dotted(("hosts", host)), fact, "a host has the data of one: keep it in one of them")


def _policy(name: str, table: FleetTables) -> Iterator[Fault]:
    path = dotted(("policies", name))
    try:
        windows = hours(table["windows"]) if "windows" in table else (NIGHTS,)
        blackout = hours(table.get("blackout", ()))
    except BadValue:  # of which the schema tells
        return
    if windows and blackout and never_open(windows, blackout):
        yield Fault(f"{path}.blackout", "covers all windows", "no backup could ever begin: shorten one")


def bad_ids(document: FleetTables, clusters: Mapping[str, Sequence[str]]) -> Iterator[BadId]:
    """Each backup has an id of its own, which its host takes for a run's. Of two that have one, the later is told."""
    stems: dict[str, str] = {}
    for name, members in clusters.items():
        for job in _jobs(document, name):
            for only in members if _all_owe(document, name) else ("",):
                stem = run_stem(name, job, only)
                whose = f"job {job} of cluster {name}" + (f" on {only}" if only else "")
                if not RUN_ID.fullmatch(f"{_NIGHT}-{stem}.{MOST_RETRIES + 1}"):
                    yield BadId(
                        *(name, only),
                        f"the run ids of {whose} would be longer than 61 characters, or contain characters that a run"
                        " id must not have",
                        f"{_NIGHT}-{stem}.{MOST_RETRIES + 1} must be one: give it a shorter name",
                    )
                if stem in stems:
                    fact = f"the backups of {whose} would have the ids of those of {stems[stem]}"
                    yield BadId(name, only, fact, "rename one of them: a run id is started once")
                stems[stem] = whose


def _jobs(document: FleetTables, cluster: str) -> Sequence[str]:
    jobs = _of(document, "clusters", cluster).get("jobs", (DEFAULT_JOB,))
    return [job for job in jobs if isinstance(job, str)] if isinstance(jobs, list | tuple) else []


def _all_owe(document: FleetTables, cluster: str) -> bool:
    policy = _of(document, "clusters", cluster).get("policy", DEFAULT_POLICY)
    return bool(_of(document, "policies", policy).get("member") == MemberChoice.ALL)


def _policies_of(document: FleetTables) -> Iterator[Fault]:
    """Those that clusters name exist."""
    policies = dict(named(document, "policies"))
    for name, table in named(document, "clusters"):
        policy = table.get("policy", DEFAULT_POLICY)
        if isinstance(policy, str) and policy not in policies and policy != DEFAULT_POLICY:
            meant = nearest(policy, policies)
            hint = f"did you mean {meant}?" if meant else f"add a table [{dotted(('policies', policy))}]"
            yield Fault(dotted(("clusters", name, "policy")), f"there is no policy {quoted(policy)}", hint)


def unnamed_members(document: FleetTables, clusters: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The clusters whose policy names members, and none of theirs; each with the sentence that says so."""
    policies = dict(named(document, "policies"))
    for name, table in named(document, "clusters"):
        policy, members = table.get("policy", DEFAULT_POLICY), clusters.get(name, ())
        wanted = policies.get(policy, {}).get("member") if isinstance(policy, str) else None
        if members and isinstance(wanted, list) and not set(map(str, wanted)) & set(members):
            yield name, f"policy {policy} names none of its members: {some(list(members), _SHOWN)}"


def _of(document: FleetTables, kind: str, name: object) -> FleetTables:
    return dict(named(document, kind)).get(str(name), {})
