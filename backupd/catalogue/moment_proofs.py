"""Which moments of jobs' binlog archives were last proven: by drills that rolled a backup forward.

Knows: that these drills are few, and found in an index of their own. Those that were undecided found nothing out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, select

from backupd.catalogue import tables
from backupd.vocabulary.records import DrilledMoment


@dataclass(frozen=True, slots=True)
class LastMomentDrill:
    """The newest drill of a moment of a job's that found anything out."""

    at: datetime  # when it ended
    moment: DrilledMoment
    ok: bool
    run_id: str  # of the backup that was rolled forward
    proven_at: datetime | None = None  # when the newest good one ended, which may be this one


def last_moment_drills(connection: Connection, *, at: datetime) -> Mapping[str, LastMomentDrill]:
    """By job, of those of this machine that have any up to this instant."""
    drills, runs = tables.drills, tables.runs
    query = select(runs.c.job, drills.c.at, drills.c.moment, drills.c.ok, drills.c.run_id)
    query = query.join_from(drills, runs, drills.c.run_id == runs.c.run_id)
    query = query.where(drills.c.moment.is_not(None), drills.c.undecided == "", drills.c.at <= at, tables.OURS)
    newest: dict[str, LastMomentDrill] = {}
    proven: dict[str, datetime] = {}
    for job, when, moment, ok, run_id in connection.execute(query.order_by(drills.c.at.desc(), drills.c.id.desc())):
        newest.setdefault(job, LastMomentDrill(when, moment, ok, run_id))
        if ok:
            proven.setdefault(job, when)
    return {job: replace(last, proven_at=proven.get(job)) for job, last in newest.items()}
