"""A job's backups, as far as its binlog can be rolled forward from them."""

from collections.abc import Iterable

from backupd.policy.binlog_chain import PlacedBackup
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.records import GOOD, RunDetails


def placed_backups(runs: Iterable[RunDetails]) -> list[PlacedBackup]:
    """Of the runs that know where the server's log ended in them, in their order. A backup without a lock has no place
    until a drill has found it.
    """
    return [placed for run in runs if (placed := placed_backup(run)) is not None]


def placed_backup(run: RunDetails) -> PlacedBackup | None:
    """One of them; None where its place is not known."""
    position, taken_at = run.position, run.snapshot_by
    if position is None or position.binlog_file is None or position.binlog_offset is None or taken_at is None:
        return None
    place = BinlogPlace(position.binlog_file, position.binlog_offset)
    good = run.status in GOOD and run.backup is not None and not run.doubted
    return PlacedBackup(run.run_id, place, position.gtid or "", taken_at, good=good)
