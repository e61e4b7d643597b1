"""The ends of the owner chains that this machine has written, as rows: one for each chain.

A chain is known by its last record alone, which nobody else can have written: not by what the configuration calls its
target, nor by where that is. A target may be renamed, be led elsewhere and back, or be a disk that is not mounted.
Knows: that a record is kept before it is written there.
"""

from dataclasses import dataclass

from sqlalchemy import Executable, Select, delete, insert, select

from backupd.catalogue import tables
from backupd.catalogue.audit import carry_out
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.file import CatalogueFile


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


class OwnerChains(CatalogueFile):
    """What this machine knows of the chains that it has written."""

    def end_of_chain(self, machine: str, record: str) -> ChainEnd | None:
        """The owner chain that ends with this record; None where this machine has not written it."""
        return self._first(_of(machine).where(_ends.record == record))

    def unconfirmed_owner(self, machine: str, target: str, *, follows: str, number: int) -> ChainEnd | None:
        """The owner record that a process which did not live to tell may have written there after that one."""
        which = (_ends.pending, _ends.target == target, _ends.follows == follows, _ends.number == number)
        return self._first(_of(machine).where(*which))

    def newest_chain(self, machine: str, target: str) -> ChainEnd | None:
        """The owner chain that was last gone on with under the target's name; None where none was."""
        return self._first(_of(machine).where(_ends.target == target, ~_ends.pending))

    def has_several_chains(self, machine: str, target: str) -> bool:
        """Whether the machine has started another owner chain under the target's name than the newest one."""
        return len(self._read(_of(machine).where(_ends.target == target, ~_ends.pending).limit(2))) > 1

    def owner_pending(self, machine: str, end: ChainEnd) -> None:
        """This owner record may be written into the machine's folder there: now somebody may try."""
        self._write(*_kept(machine, end, pending=True))

    def owner_written(self, machine: str, end: ChainEnd) -> None:
        """The chain ends with this record, and no longer with the one before."""
        with self._writing() as connection:
            before = connection.execute(_of(machine).where(_ends.record == end.follows)).mappings().first()
            over = {end.follows} if before is None else {end.follows, before["follows"]}
            gone = delete(tables.owners).where(_ends.machine == machine, _ends.record.in_(over))
            carry_out(connection, [gone, *_kept(machine, end, pending=False)])

    def owner_adopted(self, machine: str, end: ChainEnd) -> None:
        """The chain ends with this record; of any other one under the target's name nothing is known any more."""
        gone = delete(tables.owners).where(_ends.machine == machine, _ends.target == end.target)
        self._write(gone, *_kept(machine, end, pending=False))

    def _first(self, query: Select[tuple[object, ...]]) -> ChainEnd | None:
        return next((from_row(ChainEnd, row) for row in self._read(query.limit(1))), None)


def _kept(machine: str, end: ChainEnd, *, pending: bool) -> list[Executable]:
    """The statements after which this is the newest row."""
    row = {**to_row(end), "machine": machine, "pending": pending}
    return [delete(tables.owners).where(_ends.record == end.record), insert(tables.owners).values(row)]


def _of(machine: str) -> Select[tuple[object, ...]]:
    return select(tables.owners).where(_ends.machine == machine).order_by(_ends.id.desc())
