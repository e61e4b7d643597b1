"""Fleets for tests: hosts that tell something, clusters of them, and a large fleet that is drawn from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from backupd.policy.fleet_plan import ClusterTerms, NightClock, SharedTarget
from backupd.policy.member_choice import MemberRule
from backupd.vocabulary.fleet import DescribedJob, HostDescription, Role, SeenHost
from backupd.vocabulary.schedule import Blackout

NIGHT = date(2026, 11, 26)
NOW = datetime(2026, 11, 26, 18, tzinfo=UTC)
CLOCK = NightClock("UTC", time(12))
ALL_DAYS = frozenset(range(7))
RULE = MemberRule(max_lag_seconds=600.0)
# A configuration of backupd whose notifications a fleet's control host uses.
TOLD_BY = """
[hosts.local]
user = "root"
socket = "/run/mysqld/mysqld.sock"
[targets.nas1]
type = "directory"
path = "/mnt/nas1"
[jobs.nightly]
host = "local"
targets = ["nas1"]
[notifications.ops]
type = "webhook"
url = "https://127.0.0.1:9/x"
"""
NIGHTS = (Blackout(ALL_DAYS, time(21), time(6)),)


def replica(lag_seconds: float | None = 0.0, **changed: object) -> DescribedJob:
    return replace(_JOB, role=Role.REPLICA, lag_seconds=lag_seconds, follows="db1:3306", **changed)  # type: ignore[arg-type]


def source(**changed: object) -> DescribedJob:
    return replace(_JOB, role=Role.SOURCE, **changed)  # type: ignore[arg-type]


_JOB = DescribedJob("nightly", ("nas1",), Role.SOURCE, expected_seconds=1800.0, expected_bytes=10 << 30)


def described(host: str, *jobs: DescribedJob, **changed: object) -> HostDescription:
    made = HostDescription(f"{host}-0a1b2c3d", "0.1.0", (1, 1), NOW, tuple(jobs), clock_ahead_seconds=0.0)
    return replace(made, **changed)  # type: ignore[arg-type]


def seen(host: str, *jobs: DescribedJob, **changed: object) -> SeenHost:
    return SeenHost(host, NOW, described(host, *jobs, **changed))


def known_for(hours: float, one: SeenHost) -> SeenHost:
    """The same, which has been its machine for so long."""
    assert one.described is not None
    return replace(one, described=replace(one.described, machine_since=NOW - timedelta(hours=hours)))


def away(host: str, problem: str = "it does not answer") -> SeenHost:
    return SeenHost(host, None, None, problem)


def terms(cluster: str, *members: str, **changed: object) -> ClusterTerms:
    return replace(ClusterTerms(cluster, ("nightly",), members, NIGHTS, RULE, 86_400.0, 0.0), **changed)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Fleet:
    clusters: Sequence[ClusterTerms]
    seen: Mapping[str, SeenHost]
    targets: Mapping[str, SharedTarget]


def large_fleet(seed: int, *, clusters: int, members: int, targets: int) -> Fleet:
    """Clusters of one source and replicas, each on one target, or a fifth of them on two; durations as in the field:
    many short ones and a few that take hours.
    """
    chance = random.Random(seed)
    shared = {f"nas{number}": SharedTarget(f"nas{number}", chance.randint(2, 8)) for number in range(targets)}
    made: list[ClusterTerms] = []
    hosts: dict[str, SeenHost] = {}
    for number in range(clusters):
        names = [f"db{number}-{member}" for member in range(members)]
        on = tuple(sorted(chance.sample(sorted(shared), 2 if chance.random() < 0.2 else 1)))
        last = NOW - timedelta(hours=chance.choice((18, 18, 18, 42)))
        takes = min(chance.lognormvariate(6.5, 0.8), 4 * 3600)
        base = {"targets": on, "last_good_at": last, "expected_seconds": takes, "expected_bytes": int(takes * 1e8)}
        for at, name in enumerate(names):
            job = source(**base) if at == 0 else replica(chance.random() * 30, **base)
            hosts[name] = away(name) if chance.random() < 0.02 else seen(name, job)
        made.append(terms(f"c{number}", *names))
    return Fleet(made, hosts, shared)
