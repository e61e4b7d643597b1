"""A job's backups, as far as its binlog can be rolled forward from them, and where that is looked for."""

from collections.abc import Collection, Iterable

from backupd.catalogue.store import Catalogue
from backupd.policy.binlog_chain import PlacedBackup
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.records import GOOD, RunDetails, RunStatus


def placed_backups(runs: Iterable[RunDetails]) -> list[PlacedBackup]:
    """Of the runs that know where the server's log ended in them, in their order. A backup without a lock has no place
    until a drill has found it; a run that goes on has one from its lock on.
    """
    return [placed for run in runs if (placed := placed_backup(run)) is not None]


def placed_backup(run: RunDetails) -> PlacedBackup | None:
    """One of them; None where its place is not known."""
    position, live = run.position, run.status is RunStatus.RUNNING
    taken_at = run.snapshot.taken_at if live and run.snapshot is not None else run.snapshot_by
    if position is None or position.binlog_file is None or position.binlog_offset is None or taken_at is None:
        return None
    place = BinlogPlace(position.binlog_file, position.binlog_offset)
    good = run.status in GOOD and run.backup is not None and not run.doubted
    return PlacedBackup(run.run_id, place, position.gtid or "", taken_at, good=good, live=live)


def looked_on(
    catalogue: Catalogue, job: str, configured: Collection[str], *, target: str | None
) -> Collection[str] | None:
    """The targets whose backups and segments lead to a moment: the one that is named, or those that are configured;
    None where the job has nothing on another one.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    if target is not None:
        return (target,)
    there = {one.target for one in catalogue.stored() if one.job == job} | catalogue.stored_segments(job).keys()
    return None if there.issubset(configured) else configured
