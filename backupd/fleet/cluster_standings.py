"""What a cluster has come to, by the newest and the last good of each of the backups that it owes."""

from collections.abc import Mapping
from datetime import UTC, date, datetime

from backupd.policy.fleet_standing import WatchedCluster
from backupd.vocabulary.fleet import ClusterStanding, FleetBackup, FleetState
from backupd.vocabulary.records import GOOD

_EVER = datetime.min.replace(tzinfo=UTC)

_OfEach = Mapping[tuple[str, str, str], FleetBackup]  # by cluster, job, and the member that owes it, or ""
_Proofs = Mapping[tuple[str, str], datetime | None]  # the last of each host and job


def standing(
    terms: WatchedCluster, *, newest: _OfEach, ended: _OfEach, good: _OfEach, proven: _Proofs
) -> ClusterStanding:
    """Of this cluster, with what was last proven of each host's jobs. What is well hides nothing that is not."""
    owed = [(terms.cluster, *what) for what in terms.owes]
    last = [newest[one] for one in owed if one in newest]
    known = [(at, good[one]) for one in owed if one in good and (at := good_at(good[one])) is not None]
    lacking = next((what for what in terms.owes if (terms.cluster, *what) not in good), None)
    worst = min(known, key=lambda pair: (pair[0], pair[1].owed.id)) if known and lacking is None else None
    return ClusterStanding(
        terms.cluster,
        newest=max(last, key=_changed, default=None),
        last_good=None if worst is None else worst[1],
        last_good_at=None if worst is None else worst[0],
        last_proven_at=_proven_at(terms, proven),
        troubled=tuple(ended[one] for one in owed if one in ended and ended[one].state is not FleetState.DONE),
        lacking=lacking,
    )


def _proven_at(terms: WatchedCluster, proven: _Proofs) -> datetime | None:
    """The oldest of the last proofs of all that it owes; None: one of them was never proven."""
    found = []
    for job, only in terms.owes:
        proofs = [proven.get((host, job)) for host in ((only,) if only else terms.members)]
        found.append(max((at for at in proofs if at is not None), default=None))
    known = [at for at in found if at is not None]
    return min(known, default=None) if len(known) == len(found) else None


def _changed(backup: FleetBackup) -> tuple[date, datetime, str]:
    """By which the newest is found, as in the records."""
    return backup.owed.night, backup.changed_at or _EVER, backup.owed.id


def good_at(backup: FleetBackup) -> datetime | None:
    """When the run of a backup that is done had ended well."""
    ended = (one.ended_at for one in reversed(backup.tries) if one.status in GOOD and one.ended_at)
    return next(ended, backup.changed_at)
