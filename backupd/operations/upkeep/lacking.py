"""What a target lacks of what another one has, by the catalogue: what is to be copied there, and what no copy mends.

Knows: what counts as missing. What retention has given up does not; what it removed because it was broken does for as
long as it would keep that if it were whole, and so does what somebody else has taken away.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from backupd.config import JobConfig
from backupd.operations.upkeep.additional_copy import CopyRoute, are_same
from backupd.operations.upkeep.prune_work import PruneWork
from backupd.operations.upkeep.reappeared_backups import GONE
from backupd.operations.upkeep.whole_copies import wanted_on
from backupd.vocabulary.records import GOOD, RunDetails
from backupd.vocabulary.storage import Backup


def missing(route: CopyRoute, jobs: Sequence[JobConfig]) -> list[RunDetails]:
    """The runs of these jobs of which the origin has a good backup, and the destination has none; the newest first.

    A restore wants the newest first, and so does a destination that has not room for all.
    """
    lost = {job.name: _lost_there(route, job) for job in jobs}
    good = _good_on_origin(route, tuple(lost))
    return [run for run in good if _is_missing(run, run.backup_on(route.destination.name), lost[run.job])]


def broken_there(route: CopyRoute, jobs: Sequence[str]) -> list[RunDetails]:
    """Those of which the origin has a good backup, and the destination a broken one, which is in the way of a copy."""
    return [run for run in _good_on_origin(route, jobs) if _is_in_the_way(run.backup_on(route.destination.name))]


def for_others(route: CopyRoute, jobs: Sequence[str]) -> list[RunDetails]:
    """The runs of these jobs of which both have a good backup, and the destination's is for others than the route's.

    There is none where the route names nobody.
    """
    if not route.recipients:
        return []
    catalogue, origin, destination = route.ownership.catalogue, route.origin.name, route.destination.name
    found = [run for job in jobs for run in catalogue.on_target(job, destination).values()]
    there = [(run, run.backup_on(destination)) for run in found if _is_there(run.backup_on(origin))]
    return [run for run, backup in there if backup is not None and not are_same(backup.recipients, route.recipients)]


def _good_on_origin(route: CopyRoute, jobs: Sequence[str]) -> list[RunDetails]:
    catalogue, origin = route.ownership.catalogue, route.origin.name
    found = [run for job in jobs for run in catalogue.on_target(job, origin).values() if run.status in GOOD]
    there = [run for run in found if _is_there(run.backup_on(origin))]
    return sorted(there, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _is_there(backup: Backup | None) -> bool:
    return backup is not None and backup.is_there


def _lost_there(route: CopyRoute, job: JobConfig) -> set[str] | None:
    """What the destination would have still, had none of it been lost there; None: all of it."""
    now, catalogue = datetime.now(UTC), route.ownership.catalogue
    set_back = catalogue.set_back(job.name, until=now)
    work = PruneWork(job, catalogue, route.ownership, now, dry_run=True, set_back=set_back)
    return wanted_on(work, route.destination.name)


def _is_missing(run: RunDetails, backup: Backup | None, lost: set[str] | None) -> bool:
    """It was never there, or somebody else has taken it away, or it has gone for nothing but that it was broken."""
    if backup is None or (backup.removed_at is not None and backup.removed_because == GONE):
        return True
    return backup.removed_at is not None and bool(backup.broken) and (lost is None or run.run_id in lost)


def _is_in_the_way(backup: Backup | None) -> bool:
    return backup is not None and backup.removed_at is None and bool(backup.broken)
