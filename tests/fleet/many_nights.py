"""A fleet's records as they are after years: made in seconds, the same every time.

Knows: what a fleet's nights look like, and how often which of them goes wrong. Refuses to know what is asked of it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from backupd.fleet.records import Records
from backupd.policy.cluster_status import FleetShape, WatchedCluster
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.fleet import (
    Control,
    DescribedJob,
    FleetBackup,
    FleetState,
    FleetTry,
    HostDescription,
    OwedBackup,
    PauseScope,
    Role,
    SeenHost,
    try_id,
)
from backupd.vocabulary.records import Phase, RunDetails, RunError, RunStatus
from backupd.vocabulary.servers import Flavour, LockReceipt
from backupd.vocabulary.storage import Backup

NEWEST = date(2026, 11, 25)  # the last night that is over; the next one goes on at `NOW`
NOW = datetime(2026, 11, 27, 0, 30, tzinfo=UTC)
TONIGHT = date(2026, 11, 26)
HOSTS, NIGHTS = 500, 3 * 365  # of a fleet of years
TARGETS = {"nas1": 4, "nas2": 4, "nas3": 2, "s3-west": 8, "s3-east": 8, "tape": 2}
_OUTCOMES = {FleetState.DONE: 970, FleetState.FAILED: 12, FleetState.MISSED: 15, FleetState.CANCELLED: 3}
_GIB = 1 << 30


@dataclass
class MadeFleet:
    """A fleet whose clusters have one to five hosts, three on average."""

    hosts: int = HOSTS
    nights: int = NIGHTS
    newest: date = NEWEST
    now: datetime = NOW
    chance: random.Random = field(default_factory=lambda: random.Random(18))

    def __post_init__(self) -> None:
        self.members: dict[str, tuple[str, ...]] = {}
        left, number = self.hosts, 0
        while left:
            count = min(left, self.chance.choice((1, 2, 3, 3, 3, 4, 4)))
            name = f"shop-{number:03d}"
            self.members[name] = tuple(f"db{number:03d}-{letter}" for letter in "abcde"[:count])
            left, number = left - count, number + 1
        names = list(TARGETS)
        self.target_of = {name: names[at % len(names)] for at, name in enumerate(self.members)}

    @property
    def shape(self) -> FleetShape:
        """As its configuration says."""
        terms = [
            WatchedCluster(name, hosts, ("nightly",), every_seconds=86_400.0, drill_within_seconds=30 * 86_400.0)
            for name, hosts in self.members.items()
        ]
        return FleetShape(tuple(terms), tuple(sorted(sum(self.members.values(), ()))), TARGETS, "UTC", time(12))

    def fill(self, records: Records) -> int:
        """All nights are in the records, and one that goes on; how many backups that were."""
        backups = 0
        for ago in reversed(range(self.nights)):
            night = self.newest - timedelta(days=ago)
            made = list(self.night(night))
            records.plan_night(night, made)
            backups += len(made)
        tonight = list(self.night(self.newest + timedelta(days=1), until=self.now))
        records.plan_night(self.newest + timedelta(days=1), tonight)
        for backup in (one for one in made if one.state is FleetState.DONE):
            records.keep_result(backup.owed.cluster, backup.tries[-1].host, _result(backup))
        for seen in self.seen():
            records.saw(seen)
        records.pause(PauseScope.CLUSTER, "shop-001", "the disks are replaced")
        records.at_work(Control("control1", 4711, self.now - timedelta(days=3), self.now - timedelta(seconds=4)))
        return backups + len(tonight)

    def night(self, night: date, *, until: datetime | None = None) -> Iterator[FleetBackup]:
        """What this night owes each cluster: what became of it, or, `until` an instant, how far it is."""
        free = {target: [datetime.combine(night, time(22), UTC)] * slots for target, slots in TARGETS.items()}
        for number, (cluster, members) in enumerate(self.members.items()):
            target, begin = self.target_of[cluster], min(free[self.target_of[cluster]])
            seconds = 1200 * self.chance.lognormvariate(0, 0.4)
            owed = OwedBackup(
                night=night,
                cluster=cluster,
                job="nightly",
                members=members,
                targets=(target,),
                not_before=datetime.combine(night, time(22), UTC),
                not_after=datetime.combine(night + timedelta(days=1), time(6), UTC),
                priority=number,
                expected_seconds=1200.0,
                expected_bytes=30 * _GIB,
            )
            state = self.chance.choices(list(_OUTCOMES), list(_OUTCOMES.values()))[0]
            backup = self._became(owed, state, begin, seconds)
            if backup.tries:
                free[target].remove(begin)
                free[target].append(backup.tries[-1].ended_at or begin)
            yield backup if until is None else _as_of(backup, until)

    def _became(self, owed: OwedBackup, state: FleetState, begin: datetime, seconds: float) -> FleetBackup:
        end = begin + timedelta(seconds=seconds)
        if state is FleetState.MISSED:
            return FleetBackup(owed, state, changed_at=owed.not_after, said="no member answered in time")
        if state is FleetState.CANCELLED:
            tried = FleetTry(owed.members[0], try_id(owed, 1), begin, end, RunStatus.CANCELLED, "somebody cancelled it")
            return FleetBackup(owed, state, (tried,), changed_at=end, said="cancelled: maintenance")
        good = state is FleetState.DONE
        tries = []
        if not good or self.chance.random() < 0.04:
            middle = begin + timedelta(seconds=90)
            said = "not enough free extents on vg0: need 512, have 40"
            tries.append(FleetTry(owed.members[0], try_id(owed, 1), begin, middle, RunStatus.FAILED, said))
            begin = middle + timedelta(minutes=5)
            end = begin + timedelta(seconds=seconds)
        status = RunStatus.SUCCESS if good else RunStatus.FAILED
        said = "" if good else "the lock was not granted within 60 s"
        tries.append(FleetTry(owed.members[-1], try_id(owed, len(tries) + 1), begin, end, status, said))
        return FleetBackup(
            owed,
            state,
            tuple(tries),
            changed_at=end,
            stored_bytes=int(30 * _GIB * self.chance.lognormvariate(0, 0.3)) if good else None,
            lost_transactions=self.chance.randrange(4000) if good else None,
            said=said,
        )

    def seen(self) -> Iterator[SeenHost]:
        """Each host: one in fifty is away, one in a hundred has a clock that is off."""
        for number, (_, host) in enumerate((name, host) for name, hosts in self.members.items() for host in hosts):
            at = self.now - timedelta(seconds=number % 300)
            off = timedelta(hours=1) if number % 100 == 7 else timedelta(milliseconds=20)
            role = Role.SOURCE if host.endswith("-a") else Role.REPLICA
            job = DescribedJob(
                "nightly",
                ("nas1",),
                role,
                Flavour.MARIADB,
                server=f"{number}",
                lag_seconds=None if role is Role.SOURCE else number % 7 / 2,
                last_proven_at=None if number % 9 == 0 else self.now - timedelta(days=number % 40),
            )
            away = number % 50 == 3
            at -= timedelta(hours=7) * away
            described = HostDescription(
                f"{host}-0123abcd", "0.1.0", (1, 1), at + off, (job,), clock_ahead_seconds=off.total_seconds()
            )
            yield SeenHost(host, at, described)
            if away:
                yield SeenHost(host, None, None, "no route to host")


def _as_of(backup: FleetBackup, until: datetime) -> FleetBackup:
    """How far it was at this instant."""
    tries = tuple(one for one in backup.tries if one.began_at <= until)
    if not tries:
        waiting = "waits for a slot of " + backup.owed.targets[0]
        return FleetBackup(backup.owed, FleetState.WAITING, changed_at=until, said=waiting)
    last = tries[-1]
    if last.ended_at is not None and last.ended_at > until:
        going = FleetTry(last.host, last.run_id, last.began_at)
        return FleetBackup(
            backup.owed, FleetState.RUNNING, (*tries[:-1], going), until, phase="copy", copied_bytes=7 * _GIB
        )
    return backup if len(tries) == len(backup.tries) else FleetBackup(backup.owed, FleetState.WAITING, tries, until)


def _result(backup: FleetBackup) -> RunDetails:
    """What the host's catalogue has of the last try."""
    tried, stored = backup.tries[-1], backup.stored_bytes or 0
    assert tried.ended_at is not None
    seconds = (tried.ended_at - tried.began_at).total_seconds()
    copies = tuple(
        Backup(target, f"/{target}/{tried.run_id}", stored * 3, stored, 12, "ab" * 32) for target in backup.owed.targets
    )
    return RunDetails(
        tried.run_id,
        backup.owed.job,
        "db",
        f"{tried.host}-0123abcd",
        RunStatus.SUCCESS,
        tried.began_at,
        tried.ended_at,
        phases={Phase.PREFLIGHT: 2.0, Phase.LOCK_WAIT: 0.2, Phase.LOCK_HOLD: 0.03, Phase.COPY: seconds - 3},
        lock=LockReceipt("backup-stage", 1, 0.2, 0.031, "metadata-locks", stalled=6),
        backups=copies,
    )


def failed_result(backup: FleetBackup, error: str, hint: str) -> RunDetails:
    """What it has of one that failed with these words."""
    tried = backup.tries[-1]
    wrong = RunError("target-error", error, hint, ExitStatus.TARGET)
    return RunDetails(
        tried.run_id, backup.owed.job, "db", tried.host, RunStatus.FAILED, tried.began_at, tried.ended_at, error=wrong
    )
