"""What a cluster has come to, by the newest and the last good of each of the backups that it owes."""

from collections.abc import Mapping
from datetime import UTC, date, datetime

from backupd.policy.cluster_status import WatchedCluster
from backupd.vocabulary.fleet import ClusterSummary, DescribedJob, FleetBackup, FleetState, Role
from backupd.vocabulary.records import GOOD

_EVER = datetime.min.replace(tzinfo=UTC)

_OfEach = Mapping[tuple[str, str, str], FleetBackup]  # by cluster, job, and the member that owes it, or ""
_Told = Mapping[tuple[str, str], DescribedJob]  # by host and job


def summary(terms: WatchedCluster, *, newest: _OfEach, ended: _OfEach, good: _OfEach, told: _Told) -> ClusterSummary:
    """Of this cluster, with what its hosts told last of their jobs. What is well hides nothing that is not."""
    keys = {what: (terms.cluster, *what) for what in terms.owes}
    last = [newest[key] for key in keys.values() if key in newest]
    made = {what: at for what, key in keys.items() if key in good and (at := good_at(good[key])) is not None}
    lacking = next((what for what, key in keys.items() if key not in good), None)
    counts = lacking if lacking is not None else min(made, key=lambda what: (made[what], what), default=None)
    return ClusterSummary(
        terms.cluster,
        newest=max(last, key=_changed, default=None),
        last_good=None if counts is None else good.get(keys[counts]),
        last_good_at=None if counts is None else made.get(counts),
        last_proven_at=_proven_at(terms, told),
        troubled=tuple(ended[key] for key in keys.values() if key in ended and ended[key].state is not FleetState.DONE),
        lacking=lacking,
        alone=None if counts is None else _alone(terms, counts, made.get(counts), told),
    )


def _alone(
    terms: WatchedCluster, what: tuple[str, str], made_at: datetime | None, told: _Told
) -> tuple[str, datetime] | None:
    """The host that told of the newest good one of these, and of when that is, where the fleet made none since."""
    job, _ = what
    found = [(at, host) for host in _hosts(terms, what) if (at := _told_of(told, host, job).last_good_at) is not None]
    newest = max(found, default=None)
    if newest is None or (made_at is not None and newest[0] <= made_at):
        return None
    return newest[1], newest[0]


def _proven_at(terms: WatchedCluster, told: _Told) -> datetime | None:
    """The oldest of the last proofs of all that it owes; None: one of them was never proven."""
    found = []
    for what in terms.owes:
        proofs = [_told_of(told, host, what[0]).last_proven_at for host in _hosts(terms, what)]
        found.append(max((at for at in proofs if at is not None), default=None))
    known = [at for at in found if at is not None]
    return min(known, default=None) if len(known) == len(found) else None


def _hosts(terms: WatchedCluster, what: tuple[str, str]) -> tuple[str, ...]:
    """Those that may make it."""
    return (what[1],) if what[1] else terms.members


def _told_of(told: _Told, host: str, job: str) -> DescribedJob:
    """What the host said of the job; nothing where it did not."""
    return told.get((host, job)) or DescribedJob(job, (), Role.UNKNOWN)


def _changed(backup: FleetBackup) -> tuple[date, datetime, str]:
    """By which the newest is found, as in the records."""
    return backup.owed.night, backup.changed_at or _EVER, backup.owed.id


def good_at(backup: FleetBackup) -> datetime | None:
    """When the run of a backup that is done had ended well."""
    ended = (one.ended_at for one in reversed(backup.tries) if one.status in GOOD and one.ended_at)
    return next(ended, backup.changed_at)
