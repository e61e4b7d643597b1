"""How far backups can be rolled forward by their job's binlog archive."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.catalogue.store import Catalogue
from backupd.operations.binlog.placed_backups import placed_backup
from backupd.policy.reach import followed_until
from backupd.vocabulary.records import RunDetails


@dataclass(frozen=True, slots=True)
class RolledForward:
    """Which moments a backup leads to: from its own to the last transaction that follows it without a gap."""

    since: datetime
    until: datetime
    targets: tuple[tuple[str, datetime | None], ...]  # up to when by what is on each alone; None: it has nothing of it
    to_the_end: bool  # of all that is archived


def rolled_forward(catalogue: Catalogue, jobs: Collection[str]) -> dict[str, datetime]:
    """By run, up to when each good backup of these jobs that segments follow can be rolled forward.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    found = {}
    for outline in catalogue.archive_outlines(jobs).values():
        for backup in outline.backups:
            until, following = followed_until(backup, outline.rows)
            if following:
                found[backup.run_id] = until
    return found


def leads_to(run: RunDetails, catalogue: Catalogue, targets: Sequence[str]) -> RolledForward | None:
    """Which moments this run's backup leads to, also by what is on each of these targets alone; None where to none.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    backup, outline = placed_backup(run), catalogue.archive_outlines([run.job]).get(run.job)
    if backup is None or not backup.good or outline is None:
        return None
    until, following = followed_until(backup, outline.rows)
    if not following:
        return None
    on_each = tuple((target, catalogue.followed_on(following[0], following[-1], target)) for target in targets)
    newest = max((row.segments[-1] for row in outline.rows), key=lambda segment: (segment.chain, segment.number))
    return RolledForward(backup.taken_at, until, on_each, to_the_end=following[-1].name == newest.name)
