"""How the binlog archives of many jobs stand by what is recorded of them: the newest, what waits longest, the gaps.

Knows: that each is found at an end of an index, however many segments there are. Gaps are few: of a job all are read.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, TableValuedAlias, and_, func, select

from backupd.catalogue import binlog_tables, identities, tables
from backupd.catalogue.columns import from_row
from backupd.vocabulary.binlogs import ArchiveGap
from backupd.vocabulary.records import GOOD, RunKind


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """What the catalogue knew of the archive of one job's binlog at one instant."""

    waiting_since: datetime | None = None  # when the oldest segment that waits in the spool was received
    received_at: datetime | None = None  # when the newest segment was
    last_at: datetime | None = None  # when the last transaction was committed that is archived
    gaps: tuple[ArchiveGap, ...] = ()  # as they were noticed
    reached_at: datetime | None = None  # when the archive last had all that the server had written
    refused: str = ""  # what has kept it from that since; empty: nothing was told
    asked_at: datetime | None = None  # when its receiver asked the server last, or could not
    behind_bytes: int | None = None  # of the server's log that were not archived then; None: not known
    waiting: int = 0  # segments that wait in the spool
    waiting_bytes: int = 0  # of them, without their descriptions
    placed_at: datetime | None = None  # when the newest good backup was started whose place in the binlog is known


def archive_records(connection: Connection, listed: TableValuedAlias, *, at: datetime) -> dict[str, ArchiveRecord]:
    """By job, of the jobs that are the one column of `listed`: by what was received and noticed up to this instant."""
    machine = identities.current(connection).name
    gaps: dict[str, list[ArchiveGap]] = defaultdict(list)
    for row in connection.execute(_gaps(listed, machine, at)).mappings():
        gaps[row["job"]].append(from_row(ArchiveGap, row))
    return {
        row["job"]: ArchiveRecord(
            row["waiting_since"],
            row["received_at"],
            row["last_at"],
            tuple(gaps[row["job"]]),
            row["reached_at"],
            row["refused"] or "",
            asked_at=row["asked_at"],
            behind_bytes=row["behind_bytes"],
            waiting=row["waiting"],
            waiting_bytes=row["waiting_bytes"] or 0,
            placed_at=row["placed_at"],
        )
        for row in connection.execute(_ends(listed, machine, at)).mappings()
    }


def _ends(listed: TableValuedAlias, machine: str, at: datetime) -> Select[Any]:
    segments = binlog_tables.segments.c
    ours = and_(segments.machine == machine, segments.job == listed.c.value)
    waiting = select(segments.received_at).where(binlog_tables.WAITING, ours, segments.received_at <= at)
    waits = select(func.count()).where(binlog_tables.WAITING, ours)
    waits_bytes = select(func.sum(segments.stored_bytes)).where(binlog_tables.WAITING, ours)
    newest = (segments.received_at.desc(), segments.id.desc())
    received = select(segments.received_at).where(ours, segments.received_at <= at).order_by(*newest)
    # A transaction of many segments ends in the last of them.
    last = select(segments.last_at).where(ours, segments.received_at <= at, segments.last_at.is_not(None))

    runs, positions = tables.runs, tables.positions.c
    good = and_(runs.c.job == listed.c.value, runs.c.kind == RunKind.BACKUP, tables.OURS, runs.c.status.in_(GOOD))
    placed = select(runs.c.started_at).join(tables.positions, positions.run_id == runs.c.run_id)
    placed = placed.where(good, runs.c.started_at <= at, positions.binlog_offset.is_not(None))
    contacts = binlog_tables.contacts.c
    met = and_(contacts.machine == machine, contacts.job == listed.c.value)

    def one(query: Select[Any]) -> Any:
        return query.limit(1).correlate(listed).scalar_subquery()

    return select(
        listed.c.value.label("job"),
        one(waiting.order_by(segments.id)).label("waiting_since"),
        one(received).label("received_at"),
        one(last.order_by(*newest)).label("last_at"),
        one(select(contacts.at).where(met)).label("reached_at"),
        one(select(contacts.refused).where(met)).label("refused"),
        one(select(contacts.asked_at).where(met)).label("asked_at"),
        one(select(contacts.behind_bytes).where(met)).label("behind_bytes"),
        one(placed.order_by(runs.c.started_at.desc())).label("placed_at"),
        one(waits).label("waiting"),
        one(waits_bytes).label("waiting_bytes"),
    )


def _gaps(listed: TableValuedAlias, machine: str, at: datetime) -> Select[Any]:
    gaps = binlog_tables.gaps
    query = select(gaps).join_from(listed, gaps, and_(gaps.c.machine == machine, gaps.c.job == listed.c.value))
    return query.where(gaps.c.noticed_at <= at).order_by(gaps.c.noticed_at, gaps.c.chain)
