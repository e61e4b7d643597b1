"""What a drill's result changes in the catalogue.

Knows: its row, what the audit chain says of it, and by what one is told from another.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, select

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, Step, audit_step
from backupd.catalogue.columns import spelt, to_row
from backupd.vocabulary.records import Drill

Told = Mapping[str, str | list[str]]  # what else the audit chain says of a drill


def is_kept(connection: Connection, drill: Drill) -> bool:
    """Whether the run has a drill of that instant."""
    drills = tables.drills.c
    known = select(drills.id).where(drills.run_id == drill.run_id, drills.at == drill.at)
    return connection.execute(known).first() is not None


def kept(drill: Drill, told: Told) -> Sequence[Step]:
    """The result has its row, and the chain tells of it."""
    moment = {} if drill.moment is None else {"moment": drill.moment.name}
    return (
        insert(tables.drills).values(spelt(to_row(drill))),
        audit_step(Event.DRILLED, drill.run_id, ok=drill.ok, undecided=drill.undecided, **moment, **told),
    )


def drilled(drill: Drill, told: Told) -> Sequence[Step]:
    """As `kept`; a position that a good drill found is the run's from now on."""
    if not drill.ok or drill.position is None:
        return kept(drill, told)
    row = {**to_row(drill.position), "run_id": drill.run_id, "derived": True}
    return (*kept(drill, told), insert(tables.positions).prefix_with("OR REPLACE").values(row))
