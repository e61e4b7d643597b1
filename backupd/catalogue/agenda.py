"""What was due by schedule and what became of it, as steps of a transaction and queries.

Knows: that a slot is taken once. Refuses to know transactions, and when anything is due.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, Update, delete, insert, select, update

from backupd.agenda import Activity, NoticeKind, Pause, Slot, SlotState
from backupd.catalogue import tables
from backupd.catalogue.audit import Event, told
from backupd.catalogue.columns import to_row


def take(connection: Connection, slot: Slot) -> bool:
    """The slot has its row; False where it had one, and then nothing is changed."""
    added = insert(tables.slots).prefix_with("OR IGNORE").values(to_row(slot))
    if not connection.execute(added).rowcount:
        return False
    if slot.state is SlotState.MISSED:
        told(Event.MISSED, slot.job, activity=slot.activity, due=slot.due_at.isoformat(), reason=slot.reason)(
            connection
        )
    return True


def slot_ended(job: str, activity: Activity, due_at: datetime, exit_status: int | None) -> Update:
    """What was started in the slot has ended; a slot that had ended stays as it is."""
    table = tables.slots
    ours = (table.c.job == job) & (table.c.activity == activity) & (table.c.due_at == due_at)
    values = {"state": SlotState.ENDED, "ended_at": datetime.now(UTC), "exit_status": exit_status}
    return update(table).where(ours, table.c.state == SlotState.STARTED).values(values)


def slots(job: str | None, activity: Activity | None, state: SlotState | None, since: datetime | None) -> Select[Any]:
    """Slots by what is told of them, the newest first."""
    table = tables.slots
    query = select(table).order_by(table.c.due_at.desc(), table.c.job, table.c.activity)
    for column, wanted in ((table.c.job, job), (table.c.activity, activity), (table.c.state, state)):
        if wanted is not None:
            query = query.where(column == wanted)
    return query if since is None else query.where(table.c.due_at >= since)


def paused(job: str, note: str) -> Callable[[Connection], None]:
    """Nothing of this job is to be started; a pause of before is replaced."""

    def step(connection: Connection) -> None:
        row = to_row(Pause(job, note, datetime.now(UTC)))
        connection.execute(insert(tables.pauses).prefix_with("OR REPLACE").values(row))
        told(Event.PAUSED, job, note=note)(connection)

    return step


def resumed(job: str) -> Callable[[Connection], None]:
    """It goes by its schedules again; nothing happens where it was not paused."""

    def step(connection: Connection) -> None:
        if connection.execute(delete(tables.pauses).where(tables.pauses.c.job == job)).rowcount:
            told(Event.RESUMED, job)(connection)

    return step


def first_told(connection: Connection, kind: NoticeKind, job: str, subject: str) -> bool:
    """From now on this counts as told; False where it did before."""
    row = {"kind": kind, "job": job, "subject": subject, "at": datetime.now(UTC)}
    return bool(connection.execute(insert(tables.notices).prefix_with("OR IGNORE").values(row)).rowcount)
