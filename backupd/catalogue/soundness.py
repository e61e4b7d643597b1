"""Whether a catalogue's file is whole: its pages, its references, and whether every value can be read.

Knows: what of a damaged file shows. SQLite keeps no checksums, so that a digit or a letter that was changed within a
value shows nowhere here; where the audit chain tells of that value, `audit verify` finds it.
"""

from collections.abc import Iterator

from sqlalchemy import Boolean, Connection, Float, Integer, Table, func, literal_column, or_, select

from backupd.catalogue import tables
from backupd.catalogue.database import DAMAGED
from backupd.catalogue.file import CatalogueFile
from backupd.vocabulary.errors import CatalogueError, CatalogueUnavailable
from backupd.vocabulary.escaping import on_one_line

_MOST = 20  # faults that are told: where there is one, there are hundreds
_NUMBERS = (Boolean, Float, Integer)


class Soundness(CatalogueFile):
    """What can be said of the file as a whole."""

    def faults(self, *, values: bool = True) -> list[str]:
        """What is wrong with the file, in a line each; nothing where it is whole.

        With `values` every row is read, which takes five times as long as the rest.

        Raises:
            CatalogueUnavailable: it is locked by another process, or its disk failed.
        """
        found: list[str] = []
        try:
            with self._reading() as connection:
                found += _of_pages(connection) or _of_references(connection)
                for table in tables.metadata.sorted_tables if values and not found else ():
                    found += _of_values(connection, table)
        except CatalogueUnavailable:
            raise
        except CatalogueError as error:
            found.append(error.message)
        return [on_one_line(fault) for fault in found[:_MOST]]

    def require_whole(self) -> None:
        """Nothing is wrong with the file.

        Raises:
            CatalogueError: something is; it has the first fault, and how to get another catalogue.
        """
        found = self.faults()
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise CatalogueError(f"the catalogue {self._path} is damaged: {found[0]}{more}", hint=DAMAGED)

    def rows(self) -> int:
        """How many rows all tables have together."""
        with self._reading() as connection:
            counts = (select(func.count()).select_from(table) for table in tables.metadata.sorted_tables)
            return sum(connection.execute(count).scalar_one() for count in counts)


def _of_pages(connection: Connection) -> list[str]:
    """What SQLite's own check says of pages, of rows and their indexes, and of values that a column cannot have."""
    told = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})").scalars().all()
    return [] if told == ["ok"] else [str(line) for line in told]


def _of_references(connection: Connection) -> list[str]:
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return [f"{table}: row {row} is of no {of}" for table, row, of, _ in lost]


def _of_values(connection: Connection, table: Table) -> Iterator[str]:
    """Rows whose values are of another type than their column, and the first one that cannot be read."""
    numbers = [column for column in table.c if isinstance(column.type, _NUMBERS)]
    texts = [column for column in table.c if not isinstance(column.type, _NUMBERS)]
    kind = [func.typeof(literal_column(f'"{column.name}"')) for column in (*numbers, *texts)]
    odd = or_(
        *(one.not_in(("integer", "real", "null")) for one in kind[: len(numbers)]),
        *(one.not_in(("text", "null")) for one in kind[len(numbers) :]),
    )
    if count := connection.execute(select(func.count()).select_from(table).where(odd)).scalar_one():
        yield f"{table.name}: {count} rows have a value of another type"
        return
    try:
        for _ in connection.execute(select(table)):
            pass
    except CatalogueError as error:
        yield f"{table.name}: {error.message}"
