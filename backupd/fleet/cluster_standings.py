"""What a cluster has come to, by the newest and the last good of each of the backups that it owes."""

from collections.abc import Mapping
from datetime import datetime

from backupd.policy.fleet_standing import WatchedCluster
from backupd.vocabulary.fleet import ClusterStanding, FleetBackup, FleetState
from backupd.vocabulary.records import GOOD

_OfEach = Mapping[tuple[str, str, str], FleetBackup]  # by cluster, job, and the member that owes it, or ""


def standing(
    terms: WatchedCluster, *, newest: _OfEach, good: _OfEach, proven: Mapping[str, datetime | None]
) -> ClusterStanding:
    """Of this cluster, with what was last proven of each host. What is well hides nothing that is not."""
    owed = [(terms.cluster, *what) for what in terms.owes]
    last = [newest[one] for one in owed if one in newest]
    known = [(at, good[one]) for one in owed if one in good and (at := good_at(good[one])) is not None]
    lacking = next((what for what in terms.owes if (terms.cluster, *what) not in good), None)
    worst = min(known, key=lambda pair: (pair[0], pair[1].owed.id)) if known and lacking is None else None
    return ClusterStanding(
        terms.cluster,
        newest=max(last, key=lambda one: (one.owed.night, one.owed.id), default=None),
        last_good=None if worst is None else worst[1],
        last_good_at=None if worst is None else worst[0],
        last_proven_at=_proven_at([proven.get(host) for host in terms.members], every=terms.every_member),
        troubled=tuple(one for one in last if one.state in (FleetState.FAILED, FleetState.MISSED)),
        lacking=lacking,
    )


def _proven_at(proofs: list[datetime | None], *, every: bool) -> datetime | None:
    """The last proof of all; where each member owes one, the oldest of their last ones."""
    found = [at for at in proofs if at is not None]
    if every:
        return min(found, default=None) if len(found) == len(proofs) else None
    return max(found, default=None)


def good_at(backup: FleetBackup) -> datetime | None:
    """When the run of a backup that is done had ended well."""
    ended = (one.ended_at for one in reversed(backup.tries) if one.status in GOOD and one.ended_at)
    return next(ended, backup.changed_at)
