"""What was due by schedule and what became of it, as steps of a transaction and queries.

Knows: that a slot is taken once.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, Update, delete, func, insert, select, update

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, told
from backupd.catalogue.columns import Instant, to_row
from backupd.policy.timetable import Timetable
from backupd.vocabulary.schedule import Activity, NoticeKind, Pause, Slot, SlotState

Timetables = Mapping[tuple[str, Activity], Timetable]  # by job and activity


def take(connection: Connection, slot: Slot) -> bool:
    """The slot has its row; False where it had one, and then nothing is changed.

    One that was found to be missed at an instant that has not come yet may still start: the machine's clock was ahead
    then, and would otherwise have silenced the job for as long.
    """
    added = insert(tables.slots).prefix_with("OR IGNORE").values(to_row(slot))
    if not connection.execute(added).rowcount and not _taken_back(connection, slot):
        return False
    if slot.state is SlotState.MISSED:
        told(Event.MISSED, slot.job, activity=slot.activity, due=slot.due_at.isoformat(), reason=slot.reason)(
            connection
        )
    return True


def _taken_back(connection: Connection, slot: Slot) -> bool:
    table = tables.slots
    ours = (table.c.job == slot.job) & (table.c.activity == slot.activity) & (table.c.due_at == slot.due_at)
    too_early = (table.c.state == SlotState.MISSED) & (table.c.decided_at > slot.decided_at)
    return slot.state is SlotState.STARTED and bool(
        connection.execute(update(table).where(ours, too_early).values(to_row(slot))).rowcount
    )


def slot_ended(job: str, activity: Activity, due_at: datetime, exit_status: int | None) -> Update:
    """What was started in the slot has ended; a slot that had ended stays as it is."""
    table = tables.slots
    ours = (table.c.job == job) & (table.c.activity == activity) & (table.c.due_at == due_at)
    values = {"state": SlotState.ENDED, "ended_at": datetime.now(UTC), "exit_status": exit_status}
    return update(table).where(ours, table.c.state == SlotState.STARTED).values(values)


def slots(job: str | None, activity: Activity | None, state: SlotState | None) -> Select[Any]:
    """Slots by what is told of them, the newest first."""
    table = tables.slots
    query = select(table).order_by(table.c.due_at.desc(), table.c.job, table.c.activity)
    for column, wanted in ((table.c.job, job), (table.c.activity, activity), (table.c.state, state)):
        if wanted is not None:
            query = query.where(column == wanted)
    return query


def due_within(query: Select[Any], since: datetime | None, until: datetime | None) -> Select[Any]:
    """Of these slots those that were due at these instants or between them."""
    due_at = tables.slots.c.due_at
    query = query if since is None else query.where(due_at >= since)
    return query if until is None else query.where(due_at <= until)


def paused(job: str, note: str) -> Callable[[Connection], None]:
    """Nothing of this job is to be started; a pause of before is replaced."""

    def step(connection: Connection) -> None:
        row = to_row(Pause(job, note, datetime.now(UTC)))
        connection.execute(insert(tables.pauses).prefix_with("OR REPLACE").values(row))
        told(Event.PAUSED, job, note=note)(connection)

    return step


def resumed(job: str) -> Callable[[Connection], None]:
    """It runs on schedule again; nothing happens where it was not paused."""

    def step(connection: Connection) -> None:
        if connection.execute(delete(tables.pauses).where(tables.pauses.c.job == job)).rowcount:
            told(Event.RESUMED, job)(connection)

    return step


def first_told(connection: Connection, kind: NoticeKind, job: str, subject: str) -> bool:
    """From now on this counts as told; False where it did before."""
    row = {"kind": kind, "job": job, "subject": subject, "at": datetime.now(UTC)}
    return bool(connection.execute(insert(tables.notices).prefix_with("OR IGNORE").values(row)).rowcount)


def newest_slots(connection: Connection, before: datetime) -> dict[tuple[str, Activity], datetime]:
    """The newest slot of each job and activity that was due up to then and has a row."""
    table = tables.slots
    query = select(table.c.job, table.c.activity, func.max(table.c.due_at, type_=Instant).label("due_at"))
    rows = connection.execute(query.where(table.c.due_at <= before).group_by(table.c.job, table.c.activity))
    return {(row.job, row.activity): row.due_at for row in rows}


def scheduled(connection: Connection) -> dict[tuple[str, Activity], tuple[Timetable, datetime]]:
    """By which timetable each job and activity goes, and since when, as the audit chain tells."""
    table = tables.audit
    query = select(table.c.event, table.c.subject, table.c.detail).order_by(table.c.number)
    found: dict[tuple[str, Activity], tuple[Timetable, datetime]] = {}
    for row in connection.execute(query.where(table.c.event.in_((Event.SCHEDULED, Event.UNSCHEDULED)))):
        detail = json.loads(row.detail)
        key = row.subject, Activity(detail["activity"])
        if row.event == Event.UNSCHEDULED:
            found.pop(key, None)
        else:
            timetable = Timetable(detail["cron"], detail["zone"], detail["offset_seconds"])
            found[key] = timetable, datetime.fromisoformat(detail["since"])
    return found


def rescheduled(connection: Connection, timetables: Timetables, since: datetime) -> None:
    """The audit chain tells what is new, what has changed and what is no more."""
    before = scheduled(connection)
    for (job, activity), timetable in timetables.items():
        if (job, activity) not in before or before[job, activity][0] != timetable:
            told(
                Event.SCHEDULED,
                job,
                activity=activity,
                cron=timetable.cron,
                zone=timetable.zone,
                offset_seconds=timetable.offset_seconds,
                since=since.isoformat(),
            )(connection)
    for job, activity in before.keys() - timetables.keys():
        told(Event.UNSCHEDULED, job, activity=activity)(connection)
