"""What was due by schedule and what became of it.

Knows: that a slot is taken once, and so is each of its tries.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from backupd.catalogue import notice_tables, tables
from backupd.catalogue.audit import Event, audit_step
from backupd.catalogue.columns import InstantColumn, from_row, to_row
from backupd.catalogue.file import CatalogueFile
from backupd.policy.timetable import Timetable
from backupd.vocabulary.alarms import OpenAlarm
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.schedule import Activity, NoticeKind, Pause, Slot, SlotState

log = logging.getLogger(__name__)

Key = tuple[str, Activity]  # a job and an activity


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The timetable by which an activity of a job goes."""

    timetable: Timetable
    since: datetime  # what was due before is nobody's fault
    owed: datetime | None = None  # but for this, which was due by the timetable before it and had not been decided


class ScheduleRecords(CatalogueFile):
    """Slots, pauses, notices, alarms that stand, and by which timetables the daemon goes."""

    def take_slot(self, slot: Slot) -> bool:
        """The slot has its row, and nobody else acts for it; False where it had one, and then nothing is changed.

        One that was found to be missed at an instant that has not come yet may still start: the machine's clock was
        ahead then, and would otherwise have silenced the job for as long.
        """
        with self._writing() as connection:
            return _take(connection, slot)

    def pass_slots(self, slots: Sequence[Slot]) -> list[Slot]:
        """The same for slots that nobody here starts, in one transaction: those that had no row have one now."""
        with self._writing() as connection:
            return [slot for slot in slots if _take(connection, slot)]

    def slot_ended(self, slot: Slot, *, exit_status: int | None) -> datetime | None:
        """What was started in the slot has ended, with this status where it is known; an ended slot stays as it is.

        When it is tried again; None where it is not.
        """
        table = tables.slots.c
        ended = {"ended_at": datetime.now(UTC), "exit_status": exit_status}
        with self._writing() as connection:
            retry_at: datetime | None = connection.execute(select(table.retry_at).where(_is(slot))).scalar()
            state = SlotState.ENDED if retry_at is None else SlotState.RETRYING
            query = update(tables.slots).where(_is(slot), table.state == SlotState.STARTED)
            connection.execute(query.values(state=state, **ended))
        return retry_at

    def slot_ends(self, slot: Slot, *, exit_status: int) -> bool:
        """What was started in the slot is about to end with this, for whoever does not see it; False where it has."""
        return self._changed(slot, SlotState.STARTED, exit_status=exit_status)

    def plan_retry(self, slot: Slot, at: datetime) -> bool:
        """What was started in the slot, and is about to end, is to be started again then; False where it has ended."""
        return self._changed(slot, SlotState.STARTED, retry_at=at)

    def take_retry(self, slot: Slot, again: Slot) -> bool:
        """The next try has the slot's row, and nobody else acts for it; False where somebody did."""
        return self._changed(slot, SlotState.RETRYING, **to_row(again))

    def end_retry(self, slot: Slot) -> bool:
        """It is not started again after all, and has ended; False where somebody has acted for it."""
        return self._changed(slot, SlotState.RETRYING, state=SlotState.ENDED, retry_at=None)

    def slot_of(self, run_id: str, job: str) -> Slot | None:
        """That a backup of this job was started in, as it is now; None where no schedule has started it."""
        table = tables.slots.c
        query = select(tables.slots).where(table.job == job, table.activity == Activity.BACKUP, table.run_id == run_id)
        return next((from_row(Slot, row) for row in self._read(query.order_by(table.due_at.desc()).limit(1))), None)

    def _changed(self, slot: Slot, was: SlotState, **values: Any) -> bool:
        """Whether the slot's newest try was in this state; then the row has these values."""
        table = tables.slots.c
        query = update(tables.slots).where(_is(slot), table.state == was, table.run_id == slot.run_id)
        with self._writing() as connection:
            return bool(connection.execute(query.values(values)).rowcount)

    def go_by(
        self, timetables: Mapping[Key, Timetable], *, since: datetime, owed: Mapping[Key, datetime] | None = None
    ) -> dict[Key, Scheduled]:
        """These timetables count, each since the instant at which it was first gone by, however often the daemon was
        started since; one that is new or has changed since `since`, and the audit chain tells so, and what is `owed`.
        """
        known = self.gone_by()
        if {key: one.timetable for key, one in known.items()} != dict(timetables):
            with self._writing() as connection:
                _reschedule(connection, timetables, since, owed or {})
                known = _scheduled(connection)
        return known

    def gone_by(self) -> dict[Key, Scheduled]:
        """The timetables by which a daemon went last."""
        with self._reading() as connection:
            return _scheduled(connection)

    def newest_slots(self, *, before: datetime) -> dict[tuple[str, Activity], datetime]:
        """When the newest slot of each job and activity was due, of those that are not in the future."""
        table = tables.slots.c
        query = select(table.job, table.activity, func.max(table.due_at, type_=InstantColumn).label("due_at"))
        rows = self._read(query.where(table.due_at <= before).group_by(table.job, table.activity))
        return {(row["job"], row["activity"]): row["due_at"] for row in rows}

    def slots(
        self,
        *,
        job: str | None = None,
        activity: Activity | None = None,
        state: SlotState | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 50,
    ) -> list[Slot]:
        """What was due, the newest first; `until` leaves out what a clock that was ahead has left in the future."""
        table = tables.slots.c
        query = select(tables.slots).order_by(table.due_at.desc(), table.job, table.activity).limit(limit)
        for column, wanted in ((table.job, job), (table.activity, activity), (table.state, state)):
            if wanted is not None:
                query = query.where(column == wanted)
        if since is not None:
            query = query.where(table.due_at >= since)
        if until is not None:
            query = query.where(table.due_at <= until)
        return [from_row(Slot, row) for row in self._read(query)]

    def pauses(self) -> dict[str, Pause]:
        """The jobs of which nothing is started by schedule."""
        return {row["job"]: from_row(Pause, row) for row in self._read(select(tables.pauses))}

    def pause(self, job: str, note: str) -> None:
        """Nothing of this job is started by schedule; an earlier pause is replaced."""
        row = to_row(Pause(job, note, datetime.now(UTC)))
        self._write(
            insert(tables.pauses).prefix_with("OR REPLACE").values(row), audit_step(Event.PAUSED, job, note=note)
        )

    def resume(self, job: str) -> None:
        """It runs on schedule again; nothing happens where it was not paused."""
        with self._writing() as connection:
            if connection.execute(delete(tables.pauses).where(tables.pauses.c.job == job)).rowcount:
                audit_step(Event.RESUMED, job)(connection)

    def first_told(self, kind: NoticeKind, job: str, subject: str) -> bool:
        """From now on this counts as told; False where it did before."""
        row = {"kind": kind, "job": job, "subject": subject, "at": datetime.now(UTC)}
        with self._writing() as connection:
            return bool(connection.execute(insert(notice_tables.notices).prefix_with("OR IGNORE").values(row)).rowcount)

    def told(self, kind: NoticeKind, *, job: str) -> list[str]:
        """The subjects of what `first_told` was asked of this kind and job, in no order."""
        table = notice_tables.notices.c
        query = select(table.subject).where(table.kind == kind, table.job == job)
        return [row["subject"] for row in self._read(query)]

    def open_alarms(self) -> list[OpenAlarm]:
        """What is remembered of alarms that were not over at the last look."""
        return [from_row(OpenAlarm, row) for row in self._read(select(notice_tables.standing_alarms))]

    def remember_alarms(self, changed: Sequence[OpenAlarm], *, over: Sequence[OpenAlarm]) -> None:
        """These are remembered as they are now, and those not at all; nothing is written where there are none."""
        if not (changed or over):
            return
        table = notice_tables.standing_alarms
        with self._writing() as connection:
            for one in over:
                same = (table.c.job == one.job, table.c.kind == one.kind, table.c.about == one.about)
                connection.execute(delete(table).where(*same))
            for one in changed:
                connection.execute(insert(table).prefix_with("OR REPLACE").values(to_row(one)))


def _is(slot: Slot) -> ColumnElement[bool]:
    table = tables.slots.c
    return and_(table.job == slot.job, table.activity == slot.activity, table.due_at == slot.due_at)


def _take(connection: Connection, slot: Slot) -> bool:
    added = insert(tables.slots).prefix_with("OR IGNORE").values(to_row(slot))
    if not connection.execute(added).rowcount and not _taken_back(connection, slot):
        return False
    if slot.state is SlotState.MISSED:
        audit_step(Event.MISSED, slot.job, activity=slot.activity, due=slot.due_at.isoformat(), reason=slot.reason)(
            connection
        )
    return True


def _taken_back(connection: Connection, slot: Slot) -> bool:
    table = tables.slots
    too_early = (table.c.state == SlotState.MISSED) & (table.c.decided_at > slot.decided_at)
    return slot.state is SlotState.STARTED and bool(
        connection.execute(update(table).where(_is(slot), too_early).values(to_row(slot))).rowcount
    )


def _scheduled(connection: Connection) -> dict[Key, Scheduled]:
    """By which timetable each job and activity goes, and since when, as the audit chain tells."""
    table = tables.audit
    query = select(table.c.event, table.c.subject, table.c.detail).order_by(table.c.number)
    found: dict[Key, Scheduled] = {}
    for row in connection.execute(query.where(table.c.event.in_((Event.SCHEDULED, Event.UNSCHEDULED)))):
        try:
            detail = json.loads(row.detail)
            key = row.subject, Activity(detail["activity"])
            found.pop(key, None)  # what the row has replaced comes back in no case
            if (scheduled := _told(row.event, detail)) is not None:
                found[key] = scheduled
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, UsageError):
            # A damaged row of years ago ends no schedule: of what it told, the daemon tells again.
            log.warning(
                "the audit chain has a damaged row about job %s: see `backupd audit verify`; what was due by it while"
                " the daemon was down may be missing",
                row.subject,
            )
    return found


def _told(event: str, detail: Any) -> Scheduled | None:
    """How the activity goes from then on; None: it does not. Raises whatever a damaged row makes raise."""
    if event == Event.UNSCHEDULED:
        return None
    scheduled = Scheduled(
        Timetable(str(detail["cron"]), str(detail["zone"]), float(detail["offset_seconds"])),
        _instant(detail["since"]),
        _instant(detail["owed"]) if "owed" in detail else None,
    )
    replace(scheduled.timetable, zone="UTC").after(scheduled.since)  # of an unknown zone others tell: it may come back
    return scheduled


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"an instant needs a time zone: {text}")
    return instant


def _reschedule(
    connection: Connection, timetables: Mapping[Key, Timetable], since: datetime, owed: Mapping[Key, datetime]
) -> None:
    """The audit chain tells what is new, what has changed and what is no more."""
    before = _scheduled(connection)
    for (job, activity), timetable in timetables.items():
        if (job, activity) not in before or before[job, activity].timetable != timetable:
            due_still = owed.get((job, activity))
            audit_step(
                Event.SCHEDULED,
                job,
                activity=activity,
                cron=timetable.cron,
                zone=timetable.zone,
                offset_seconds=timetable.offset_seconds,
                since=since.isoformat(),
                **({"owed": due_still.isoformat()} if due_still is not None else {}),
            )(connection)
    for job, activity in before.keys() - timetables.keys():
        audit_step(Event.UNSCHEDULED, job, activity=activity)(connection)
