"""The ends of the owner chains that this machine has written, as rows: one for each chain.

A chain is known by its last record alone, which nobody else can have written: not by what the configuration calls its
target, nor by where that is. A target may be renamed, be led elsewhere and back, or be a disk that is not mounted.
Knows: that a record is kept before it is written there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, Select, delete, insert, select

from backupd.catalogue import tables
from backupd.catalogue.columns import from_row, to_row


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """How far a chain is, by what this machine has done; records are kept as they are stored there."""

    record: str  # the one that was written last
    number: int  # its own
    follows: str  # the record before it; empty where that is not this machine's, or there is none
    target: str  # as the configuration called it when it was written
    boot_id: str  # of the boot in which nobody else has written since
    since_seconds: float  # of that boot


_ends = tables.owners.c


def end_of_chain(connection: Connection, machine: str, record: str) -> ChainEnd | None:
    """The chain that ends with this record; None where this machine has not written it."""
    return _first(connection, _of(machine).where(_ends.record == record))


def unconfirmed(connection: Connection, machine: str, target: str, *, follows: str, number: int) -> ChainEnd | None:
    """What a process that did not live to tell may have written there after that record."""
    which = (_ends.pending, _ends.target == target, _ends.follows == follows, _ends.number == number)
    return _first(connection, _of(machine).where(*which))


def newest_on(connection: Connection, machine: str, target: str) -> ChainEnd | None:
    """The end of the chain that was last gone on with under the target's name; None where none was."""
    return _first(connection, _of(machine).where(_ends.target == target, ~_ends.pending))


def are_several_on(connection: Connection, machine: str, target: str) -> bool:
    """Whether this machine has started another chain under the target's name than the one it continues with."""
    query = _of(machine).where(_ends.target == target, ~_ends.pending).limit(2)
    return len(connection.execute(query).all()) > 1


def pending(machine: str, end: ChainEnd) -> Callable[[Connection], None]:
    """The step after which this record may be written there."""
    return _kept(machine, end, pending=True)


def written(machine: str, end: ChainEnd) -> Callable[[Connection], None]:
    """The step after which the record is known to be there, as the end of its chain."""

    def step(connection: Connection) -> None:
        before = end_of_chain(connection, machine, end.follows)
        over = {end.follows} if before is None else {end.follows, before.follows}
        connection.execute(delete(tables.owners).where(_ends.machine == machine, _ends.record.in_(over)))
        _kept(machine, end, pending=False)(connection)

    return step


def adopted(machine: str, end: ChainEnd) -> Callable[[Connection], None]:
    """The step after which that is the only chain under the target's name."""

    def step(connection: Connection) -> None:
        connection.execute(delete(tables.owners).where(_ends.machine == machine, _ends.target == end.target))
        _kept(machine, end, pending=False)(connection)

    return step


def _kept(machine: str, end: ChainEnd, *, pending: bool) -> Callable[[Connection], None]:
    """The step after which this is the newest row."""

    def step(connection: Connection) -> None:
        connection.execute(delete(tables.owners).where(_ends.record == end.record))
        connection.execute(insert(tables.owners).values({**to_row(end), "machine": machine, "pending": pending}))

    return step


def _of(machine: str) -> Select[tuple[object, ...]]:
    return select(tables.owners).where(_ends.machine == machine).order_by(_ends.id.desc())


def _first(connection: Connection, query: Select[tuple[object, ...]]) -> ChainEnd | None:
    row = connection.execute(query.limit(1)).mappings().first()
    return None if row is None else from_row(ChainEnd, row)
