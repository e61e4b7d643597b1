"""What a cluster has come to, by the newest and the last good backup of each of its jobs."""

from collections.abc import Sequence
from datetime import datetime

from backupd.vocabulary.fleet import ClusterStanding, FleetBackup, FleetState
from backupd.vocabulary.records import GOOD


def standing(
    cluster: str,
    *,
    newest: Sequence[FleetBackup | None],
    good: Sequence[FleetBackup | None],
    proven_at: datetime | None,
) -> ClusterStanding:
    """Of a cluster with these of each job. A job that is well hides none that is not."""
    last = max((one for one in newest if one is not None), key=lambda one: (one.owed.night, one.owed.id), default=None)
    known = [(at, one) for one in good if one is not None and (at := good_at(one)) is not None]
    worst = min(known, key=lambda pair: (pair[0], pair[1].owed.id)) if known and len(known) == len(good) else None
    bad = (FleetState.FAILED, FleetState.MISSED)
    return ClusterStanding(
        cluster,
        newest=last,
        last_good=None if worst is None else worst[1],
        last_good_at=None if worst is None else worst[0],
        last_proven_at=proven_at,
        troubled=tuple(one for one in newest if one is not None and one.state in bad),
    )


def good_at(backup: FleetBackup) -> datetime | None:
    """When the run of a backup that is done had ended well."""
    ended = (one.ended_at for one in reversed(backup.tries) if one.status in GOOD and one.ended_at)
    return next(ended, backup.changed_at)
