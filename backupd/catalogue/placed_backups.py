"""The good backups of a job by where the server's binlog ended in them, as the catalogue alone tells them.

Knows: the same as `RunDetails` does, of many jobs at once and without reading all of each run.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, exists, func, select

from backupd.catalogue import tables
from backupd.catalogue.columns import as_table
from backupd.policy.binlog_chain import PlacedBackup
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.records import GOOD, RunKind, snapshot_by


def good_backups(connection: Connection, jobs: Sequence[str]) -> Mapping[str, list[PlacedBackup]]:
    """By job the good ones whose place in the binlog is known, as `placed_backups` tells them, the oldest first."""
    runs, positions, backups, drills = tables.runs, tables.positions.c, tables.backups.c, tables.drills.c
    listed, phases = as_table("jobs", jobs), tables.phases.c
    there = exists().where(backups.run_id == runs.c.run_id, tables.THERE, backups.broken == "")
    # As `RunDetails.doubted`: what a drill of a moment found missing may be the log's.
    of_backup = (drills.run_id == runs.c.run_id, drills.undecided == "", drills.moment.is_(None))
    answered = select(drills.ok).where(*of_backup).order_by(drills.at.desc(), drills.id.desc())
    answer = answered.limit(1).scalar_subquery()
    place = (positions.binlog_file, positions.binlog_offset, positions.gtid)
    query = select(runs.c.run_id, runs.c.job, runs.c.ended_at, *place, tables.snapshots.c.taken_at)
    query = query.select_from(listed).join(runs, runs.c.job == listed.c.value)
    query = query.join(tables.positions, positions.run_id == runs.c.run_id)
    query = query.outerjoin(tables.snapshots, tables.snapshots.c.run_id == runs.c.run_id)
    query = query.where(runs.c.kind == RunKind.BACKUP, runs.c.status.in_(GOOD), tables.OURS, there)
    query = query.where(positions.binlog_file.is_not(None), positions.binlog_offset.is_not(None))
    query = query.where(func.coalesce(answer, True)).order_by(runs.c.started_at, runs.c.run_id)
    found = connection.execute(query).all()
    took: dict[str, dict[str, float]] = {run.run_id: {} for run in found}
    of_runs = as_table("runs", list(took))
    spent = select(phases.run_id, phases.phase, phases.seconds).join(of_runs, of_runs.c.value == phases.run_id)
    for run_id, phase, seconds in connection.execute(spent):
        took[run_id][phase] = seconds
    placed: dict[str, list[PlacedBackup]] = {job: [] for job in jobs}
    for run in found:
        if run.ended_at is not None:
            at = BinlogPlace(run.binlog_file, run.binlog_offset)
            taken_at = snapshot_by(run.ended_at, took[run.run_id], taken_at=run.taken_at)
            placed[run.job].append(PlacedBackup(run.run_id, at, run.gtid or "", taken_at))
    return placed
