"""What changes the rows of segments and of their archives' gaps: steps of the transactions in `binlog_segments`.

Private to this package.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Executable, and_, delete, exists, insert, literal, select, update

from backupd.catalogue import binlog_tables, identities
from backupd.catalogue.audit import Step
from backupd.catalogue.columns import to_row
from backupd.vocabulary.binlogs import ArchiveGap, numbered

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_table, _stored, _gaps = binlog_tables.segments, binlog_tables.stored, binlog_tables.gaps
_ours, _on = _table.c, _stored.c
_before = _table.alias("before").c


def gap_told(job: str, gap: ArchiveGap) -> Step:
    """What was said of the chain's end before is replaced."""

    def tell(connection: Connection) -> None:
        whose = {"machine": identities.current(connection).name, "job": job}
        connection.execute(insert(_gaps).prefix_with("OR REPLACE").values({**to_row(gap), **whose}))

    return tell


def forgotten(name: str) -> Executable:
    """It has no row any more where it does not wait and lies on no target."""
    nowhere = ~exists().where(_on.segment_id == _ours.id)
    return delete(_table).where(called(name), ~binlog_tables.WAITING, nowhere)


def unspooled(name: str) -> Executable:
    """It waits no longer."""
    return update(_table).where(called(name)).values(spooled=False)


def begins_row(name: str) -> Executable:
    """What comes after a segment that is gone."""
    chain, number = numbered(name)
    gone = ~exists().where(_before.chain == chain, _before.number == number)
    return update(_table).where(_ours.chain == chain, _ours.number == number + 1, gone).values(follows=False)


def lies(name: str, target: str, at: datetime, prefix: str) -> Executable:
    """It lies on the target since then; `prefix` says what happens where that was known."""
    row = select(_ours.id, literal(target), literal(at, _on.stored_at.type)).where(called(name))
    return insert(_stored).prefix_with(prefix).from_select(["segment_id", "target", "stored_at"], row)


def called(name: str) -> "ColumnElement[bool]":
    """Of the segment's row."""
    chain, number = numbered(name)
    return and_(_ours.chain == chain, _ours.number == number)


def on_target(name: str, target: str) -> "ColumnElement[bool]":
    """Of the row that says that the segment lies on the target."""
    return and_(_on.target == target, _on.segment_id == select(_ours.id).where(called(name)).scalar_subquery())
