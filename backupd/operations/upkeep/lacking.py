"""What a target lacks of what another one has, by the catalogue: what is to be copied there, and what no copy mends.

Knows: what counts as missing. What retention has given up does not; what it removed because it was broken does, and so
does what somebody else has taken away.
"""

from collections.abc import Sequence

from backupd.operations.upkeep.additional_copy import CopyRoute, are_same
from backupd.operations.upkeep.reappeared_backups import GONE
from backupd.vocabulary.records import GOOD, RunDetails
from backupd.vocabulary.storage import Backup


def missing(route: CopyRoute, jobs: Sequence[str]) -> list[RunDetails]:
    """The runs of these jobs of which the origin has a good backup, and the destination has none; the newest first.

    A restore wants the newest first, and so does a destination that has not room for all.
    """
    return [run for run in _good_on_origin(route, jobs) if _is_missing(run.backup_on(route.destination.name))]


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


def _is_missing(backup: Backup | None) -> bool:
    """It was never there, or somebody else has taken it away, or it has gone because it was broken."""
    return backup is None or (backup.removed_at is not None and (backup.removed_because == GONE or bool(backup.broken)))


def _is_in_the_way(backup: Backup | None) -> bool:
    return backup is not None and backup.removed_at is None and bool(backup.broken)
