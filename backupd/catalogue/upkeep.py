"""What becomes of backups after their run, as steps of a transaction; each is told in the audit chain as well.

Knows: which rows a later finding changes. A step about a backup that the catalogue does not have changes nothing and
tells nothing.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, told
from backupd.catalogue.columns import to_row
from backupd.catalogue.details import newest_first, our_newest
from backupd.vocabulary.records import Pin

_FROM_THE_BEGINNING = {"read_frames": 0, "reading_since": None}


def verified(run_id: str, target: str, at: datetime) -> Callable[[Connection], None]:
    """It was read back and found equal; what had been found wrong with it before is so no more."""
    values = {"verified_at": at, "broken": "", **_FROM_THE_BEGINNING}
    return _changed(run_id, target, values, told(Event.VERIFIED, run_id, target=target))


def read_on(run_id: str, target: str, frames: int, since: datetime) -> Callable[[Connection], None]:
    """Its first so many frames were read back and found equal, by rounds of which the first began then."""
    return _changed(run_id, target, {"read_frames": frames, "reading_since": since}, lambda _connection: None)


def found_broken(run_id: str, target: str, reason: str) -> Callable[[Connection], None]:
    """It cannot be restored."""
    event = told(Event.FOUND_BROKEN, run_id, target=target, reason=reason)
    return _changed(run_id, target, {"broken": reason, **_FROM_THE_BEGINNING}, event)


def removed(run_id: str, target: str, because: str) -> Callable[[Connection], None]:
    """It is no longer on its target; one that was removed before keeps what was said then."""
    event = told(Event.REMOVED, run_id, target=target, because=because)
    return _changed(run_id, target, {"removed_at": datetime.now(UTC), "removed_because": because}, event)


def pinned(run_id: str, note: str) -> Callable[[Connection], None]:
    """It is kept whatever retention says; a pin of before is replaced."""

    def step(connection: Connection) -> None:
        row = {**to_row(Pin(note, datetime.now(UTC))), "run_id": run_id}
        connection.execute(insert(tables.pins).prefix_with("OR REPLACE").values(row))
        told(Event.PINNED, run_id, note=note)(connection)

    return step


def unpinned(run_id: str) -> Callable[[Connection], None]:
    """Retention decides again; nothing happens where there is no pin."""

    def step(connection: Connection) -> None:
        if connection.execute(delete(tables.pins).where(tables.pins.c.run_id == run_id)).rowcount:
            told(Event.UNPINNED, run_id)(connection)

    return step


def with_backup(job: str | None, target: str | None = None) -> Select[str]:
    """This machine's runs of which a backup is there, of one job and on one target where they are named, newest first.

    What is there is found first, by the index of what was not removed: that is little, even where runs are many.
    """
    table = tables.backups
    there = select(table.c.run_id).where(table.c.removed_at.is_(None), table.c.broken == "")
    if target is not None:
        there = there.where(table.c.target == target)
    return our_newest(job).where(tables.runs.c.run_id.in_(there))


def stored_or_named(machine: str, job: str, target: str, names: Collection[str]) -> Select[str]:
    """A machine's runs of the job that have a backup on the target, broken or not, and those named; newest first."""
    table = tables.backups
    there = select(table.c.run_id).where(table.c.removed_at.is_(None), table.c.target == target)
    meant = tables.runs.c.run_id.in_(there) | tables.runs.c.run_id.in_(names)
    return newest_first(job).where(tables.runs.c.machine == machine, meant)


def _changed(
    run_id: str, target: str, values: dict[str, Any], event: Callable[[Connection], None]
) -> Callable[[Connection], None]:
    table = tables.backups

    def step(connection: Connection) -> None:
        ours = (table.c.run_id == run_id) & (table.c.target == target) & table.c.removed_at.is_(None)
        if connection.execute(update(table).where(ours).values(values)).rowcount:
            event(connection)

    return step
