"""Whether hosts are what fleet.toml says: same data in a cluster, no identity twice, jobs and targets that there are.

Knows: what is wrong, how grave it is, and what to do about it. A fault of one member is a warning while another one is
fit; a cluster that nobody can back up is refused, and so is what could take one host for another.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from backupd.policy.fleet_plan import ClusterTerms
from backupd.policy.member_choice import choose_member, described_job, host_faults, owing, own_clock_fault, roughly
from backupd.policy.one_machine import ONE_MACHINE_HINT, alike, counted_as, hosts_by_machine
from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import ASKED_EVERY_SECONDS, FALLBACK_SECONDS, DescribedJob, Role, SeenHost
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import Flavour

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FleetClaims:
    """What the file says, as far as hosts can contradict it."""

    clusters: Sequence[ClusterTerms]
    addresses: Mapping[str, str]  # of hosts
    targets: frozenset[str]
    drill_within: Mapping[str, float]  # seconds, of the clusters whose policy says it


def check_fleet(
    claims: FleetClaims, seen: Mapping[str, SeenHost], hints: Mapping[str, str], *, now: datetime
) -> tuple[Finding, ...]:
    """All that differs, the gravest first; `hints` say of a host that did not answer what to do."""
    found = [
        *_own_clock(seen),
        *_hosts(seen, hints),
        *_identities(claims.clusters, seen),
        *_servers(claims.clusters, seen),
        *(one for terms in claims.clusters for one in _cluster(claims, terms, seen, now)),
        *_targets(claims, seen),
        *_left_to_nobody(claims.clusters, seen),
    ]
    return tuple(sorted(found, key=lambda one: (one.level is not Level.REFUSED, one.name)))


def _own_clock(seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    if fault := own_clock_fault(seen.values()):
        yield _refused("this control host", f"its clock seems to be {fault}", "set it by NTP here, not on the hosts")


def _hosts(seen: Mapping[str, SeenHost], hints: Mapping[str, str]) -> Iterator[Finding]:
    for host, one in seen.items():
        if one.described is None:
            yield _warning(f"host {host}", one.problem or "it has not been asked yet", hints.get(host, ""))
            continue
        for fault in host_faults(one.described):
            hint = "set it by NTP: run ids, windows and ages depend on it" if "clock" in fault else ""
            yield _warning(f"host {host}", fault, hint)


def _identities(clusters: Sequence[ClusterTerms], seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    of_several = alike(seen, counted_as(clusters))
    for machine, hosts in hosts_by_machine(seen.values()).items():
        fact = f"hosts {some(hosts, _SHOWN)} have one identity, {machine}: they write into one folder"
        if machine in of_several:
            fact += "; where they have one server as well, only the one that had it first makes backups"
        yield _refused(f"host {hosts[0]}", fact, ONE_MACHINE_HINT)


def _servers(clusters: Sequence[ClusterTerms], seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    """MySQL's uuid belongs to one server of all; of MariaDB's ids only those of one cluster must differ."""
    everywhere: dict[str, set[str]] = defaultdict(set)
    for terms in clusters:
        within: dict[str, set[str]] = defaultdict(set)
        for host, job in _told(terms, seen):
            if job.server:
                (within if job.flavour is Flavour.MARIADB else everywhere)[job.server].add(host)
        yield from (_same_server(server, hosts) for server, hosts in sorted(within.items()) if len(hosts) > 1)
    yield from (_same_server(server, hosts) for server, hosts in sorted(everywhere.items()) if len(hosts) > 1)


def _same_server(server: str, hosts: set[str]) -> Finding:
    return _refused(
        f"host {min(hosts)}",
        f"the servers of hosts {some(sorted(hosts), _SHOWN)} have one id, {server}: replication takes them for one",
        "MySQL: remove auto.cnf from the datadir of the copy and restart it; MariaDB: give each its own server_id",
    )


def _told(terms: ClusterTerms, seen: Mapping[str, SeenHost]) -> Iterator[tuple[str, DescribedJob]]:
    """Each member with what it says of the cluster's jobs."""
    for host in terms.members:
        for name in terms.jobs:
            if (job := described_job(seen.get(host), name)) is not None:
                yield host, job


def _cluster(
    claims: FleetClaims, terms: ClusterTerms, seen: Mapping[str, SeenHost], now: datetime
) -> Iterator[Finding]:
    subject = f"cluster {terms.cluster}"
    yield from _same_data(claims, terms, seen)
    for job in terms.jobs:
        missing = [host for host in terms.members if _answered(seen, host) and described_job(seen[host], job) is None]
        if missing and len(missing) < len(terms.members):
            fact = f"job {job} is not on {some(missing, _SHOWN)}: no other try can go there"
            yield _warning(subject, fact, f"add [jobs.{job}] there, or remove the host from the cluster")
        for only in owing(terms.members, every_member=terms.every_member):
            yield from _fit(terms, job, only, seen)
        yield from _fallback(terms, job, seen)
    yield from _proven(claims, terms, seen, now)


def _answered(seen: Mapping[str, SeenHost], host: str) -> bool:
    one = seen.get(host)
    return one is not None and one.described is not None


def _fit(terms: ClusterTerms, job: str, only: str, seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    """A run that goes on there just now is no fault."""
    members = (only,) if only else terms.members
    running = next(
        (told.running for host in members if (told := described_job(seen.get(host), job)) and told.running), ""
    )
    chosen = choose_member(members, job, seen, terms.rule, of_its_own=running)
    if chosen.host is None:
        with_source = choose_member(members, job, seen, replace(terms.rule, allow_source=True), of_its_own=running)
        yield _refused(
            f"cluster {terms.cluster}",
            f"no member can make the backup of job {job}: {chosen.said}",
            "the reason is listed after each member; one usable member is enough"
            if with_source.host is None
            else "allow_source = true in its policy lets the source do it where no replica is fit",
        )


def _same_data(claims: FleetClaims, terms: ClusterTerms, seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    """Replicas follow a member, and one member is not a replica: else it is not one set of data."""
    told = dict(reversed(list(_told(terms, seen))))  # by its first job: they are of one server
    sources = [host for host in terms.members if host in told and told[host].role is Role.SOURCE]
    if len(sources) > 1:
        meant = terms.rule.allow_source or terms.rule.names or terms.every_member
        yield Finding(
            f"cluster {terms.cluster}",
            Level.WARNING if meant else Level.REFUSED,
            f"{some(sources, _SHOWN)} are not replicas of anything: do they hold the same data?",
            "put them into clusters of their own, or repair replication; of Galera's and group replication's servers"
            " that is right: write allow_source = true in the policy",
        )
    known = {name for host in terms.members for name in _names_of(host, claims.addresses.get(host, host))}
    for host in terms.members:
        job = told.get(host)
        if job is None or job.role is not Role.REPLICA or not job.follows:
            continue
        followed = job.follows.rpartition(":")[0].strip("[]").lower()
        if followed not in known:
            yield _warning(
                f"cluster {terms.cluster}",
                f"{host} follows {job.follows}, which is the name or the address of no member",
                "its source may be missing in the cluster; or write that as the member's address",
            )


def _names_of(host: str, address: str) -> set[str]:
    """As a replica may call it; a name without its domain as well."""
    names = {host.lower(), address.lower()}
    return names | {name.partition(".")[0] for name in names if not name.replace(".", "").isdigit()}


def _fallback(terms: ClusterTerms, job: str, seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    subject, schedule = f"cluster {terms.cluster}", f"[jobs.{job}.schedules.backup]"
    told = {host: found for host in terms.members if (found := described_job(seen.get(host), job)) is not None}
    if told and all(one.fallback_after_seconds is None for one in told.values()):
        fact = f"no member backs up job {job} by itself when the control host is away"
        yield _warning(subject, fact, f"on one member at least, add {schedule} with a cron and fallback_after")
    if always := [host for host, one in told.items() if one.fallback_after_seconds == 0]:
        fact = f"job {job} is also backed up by its own schedule on {some(always, _SHOWN)}, whatever the fleet does"
        yield _warning(subject, fact, f"add fallback_after to {schedule} there")
    if short := {
        host: one.fallback_after_seconds
        for host, one in told.items()
        if one.fallback_after_seconds and one.fallback_after_seconds < FALLBACK_SECONDS
    }:
        fact = (
            f"fallback_after of job {job} is only {roughly(min(short.values()))} on {some(list(short), _SHOWN)}:"
            " when the control host is away for so long, backups begin there beside the fleet's"
        )
        yield _warning(
            subject,
            fact,
            f"write {FALLBACK_SECONDS / 3600:g}h or more as fallback_after in {schedule} there: a host is asked every"
            f" {ASKED_EVERY_SECONDS / 3600:g} hours",
        )


def _left_to_nobody(clusters: Sequence[ClusterTerms], seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    """A job that is left to a fleet which does not have it."""
    owed: dict[str, set[str]] = defaultdict(set)
    for terms in clusters:
        for host in terms.members:
            owed[host].update(terms.jobs)
    for host, one in seen.items():
        for job in one.described.jobs if one.described is not None else ():
            if job.fallback_after_seconds and job.job not in owed[host]:
                yield _refused(
                    f"host {host}",
                    f"job {job.job} has fallback_after, and its cluster has no such job: nobody would make its backups",
                    f"add {job.job} to `jobs` of its cluster in fleet.toml, or remove fallback_after from"
                    f" [jobs.{job.job}.schedules.backup] there",
                )


def _proven(claims: FleetClaims, terms: ClusterTerms, seen: Mapping[str, SeenHost], now: datetime) -> Iterator[Finding]:
    within = claims.drill_within.get(terms.cluster)
    told = list(_told(terms, seen))
    if within is None or not told:
        return
    proofs: dict[tuple[str, str], list[datetime]] = defaultdict(list)  # of each job, and each member that owes its own
    for host, job in told:
        proofs[job.job, host if terms.every_member else ""] += [job.last_proven_at] if job.last_proven_at else []
    last = None if [] in proofs.values() else min(max(each) for each in proofs.values())
    if last is None or (now - last).total_seconds() > within:
        has = "has ever proven a backup"
        if last is not None:
            has = f"has proven a backup for {roughly((now - last).total_seconds())}"
        fact = f"no drill {has}; one is required every {roughly(within)}"
        yield _warning(
            f"cluster {terms.cluster}", fact, "type `backupd drill --job JOB` on a member, or use a proof host"
        )


def _targets(claims: FleetClaims, seen: Mapping[str, SeenHost]) -> Iterator[Finding]:
    used: dict[str, list[str]] = defaultdict(list)
    for terms in claims.clusters:
        for host, job in _told(terms, seen):
            for target in job.targets:
                used[target].append(host)
    for target in sorted(claims.targets - used.keys()):
        if any(one.described is not None for one in seen.values()):
            yield _warning(f"target {target}", "no job of a host that answered uses this target", "is the name right?")
    for target in sorted(used.keys() - claims.targets):
        hosts = some(sorted(set(used[target])), _SHOWN)
        fact = f"it is used by {hosts}, but has no table: the number of backups at a time is not limited"
        yield _warning(f"target {target}", fact, f"add [targets.{target}] with its slots")


def _warning(name: str, detail: str, hint: str = "") -> Finding:
    return Finding(name, Level.WARNING, detail, hint)


def _refused(name: str, detail: str, hint: str = "") -> Finding:
    return Finding(name, Level.REFUSED, detail, hint)
