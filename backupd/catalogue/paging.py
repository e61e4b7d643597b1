"""How a long list of runs is cut into pages, and how a long time is thinned: what either costs does not grow.

Knows: where a page begins, and which runs stand for many.

A page goes on after a run rather than after a number of runs, so that page 1,000 costs what page 1 does. A time with
more runs than can be drawn is thinned by seeking the first run after each of evenly spaced instants: nothing is
counted or averaged, and what lies between is in the list.
"""

from datetime import datetime

from sqlalchemy import Connection, Select, or_, select

from backupd.catalogue import tables
from backupd.catalogue.columns import InstantColumn, as_table
from backupd.catalogue.details import Filter, chosen
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunKind

_RUNS = tables.runs.c


def page(
    connection: Connection, wanted: Filter, *, kind: RunKind | None, before: str | None, limit: int
) -> Select[str]:
    """The newest of the wanted runs, or those that began before the run `before`.

    Raises:
        UsageError: there is no run `before`.
    """
    query = chosen(wanted, kind=kind)
    if before is not None:
        began = connection.execute(select(_RUNS.started_at).where(_RUNS.run_id == before)).scalar()
        if began is None:
            raise UsageError(f"no run {before} to continue after", hint="start at the first page")
        query = query.where(_RUNS.started_at <= began, or_(_RUNS.started_at < began, _RUNS.run_id < before))
    return query.limit(limit)


def over_time(connection: Connection, wanted: Filter, *, points: int) -> Select[str]:
    """The wanted backups: all, or where they are more than `points`, at most so many, spread over their time."""
    newest = chosen(wanted).limit(points + 1)
    found = list(connection.execute(newest).scalars())
    if len(found) <= points:
        return newest
    oldest = chosen(wanted).order_by(None).order_by(_RUNS.started_at).limit(1)
    first, last = _began(connection, connection.execute(oldest).scalar_one()), _began(connection, found[0])
    step = (last - first) / (points - 1)  # rounded to microseconds: the end is taken as it is
    instants = [*(first + step * number for number in range(points - 1)), last]
    listed = as_table("listed", [InstantColumn.text(instant) for instant in instants])
    later = chosen(wanted).where(_RUNS.started_at >= listed.c.value).order_by(None)
    seek = later.order_by(_RUNS.started_at, _RUNS.run_id).limit(1).correlate(listed).scalar_subquery()
    standing_for_many = connection.execute(select(seek).select_from(listed)).scalars()
    named = as_table("named", list({run_id for run_id in standing_for_many if run_id is not None}))
    return select(_RUNS.run_id).join(named, named.c.value == _RUNS.run_id)


def _began(connection: Connection, run_id: str) -> datetime:
    began: datetime = connection.execute(select(_RUNS.started_at).where(_RUNS.run_id == run_id)).scalar_one()
    return began
