"""What a transaction does to tables, as SQL and as sums: a witness computes by it what a server must have.

Knows: rows by their id, and of each table how many columns and rows it has and what their values sum up to. Whatever a
statement gives depends on the rows alone: played again in the order of commits it gives the same.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from backupd.mysql.session import Session

DATABASE = "w"
_COLUMNS = 3
Sums = tuple[int, ...]  # columns, rows, and the sums of n, of id times n, and of the checksums of v


@dataclass
class Table:
    """Its rows, and their sums as they are now."""

    columns: int = _COLUMNS
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)  # by id: n, the checksum of v
    _sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    @property
    def sums(self) -> Sums:
        return (self.columns, *self._sums)

    def put(self, id_: int, n: int, checksum: int) -> None:
        self.rows[id_] = (n, checksum)
        self._count(1, id_, n, checksum)

    def take(self, id_: int) -> tuple[int, int] | None:
        """The row is no more; None where there was none."""
        row = self.rows.pop(id_, None)
        if row is not None:
            self._count(-1, id_, *row)
        return row

    def _count(self, sign: int, id_: int, n: int, checksum: int) -> None:
        for at, value in enumerate((1, n, id_ * n, checksum)):
            self._sums[at] += sign * value


Tables = dict[str, Table]


class Change(Protocol):
    """One statement."""

    @property
    def sql(self) -> str:
        """As a server is told."""

    def play(self, tables: Tables) -> None:
        """As it changes the tables. Raises KeyError where there is no such one."""


@dataclass(frozen=True, slots=True)
class Insert:
    """So many rows, numbered on from an id."""

    table: str
    id: int
    text: str
    count: int = 1

    @property
    def sql(self) -> str:
        rows = ", ".join(f"({id_}, {n}, '{self.text}')" for id_, n in self._rows())
        return f"INSERT INTO {DATABASE}.{self.table} (id, n, v) VALUES {rows}"

    def play(self, tables: Tables) -> None:
        checksum = zlib.crc32(self.text.encode())
        for id_, n in self._rows():
            tables[self.table].put(id_, n, checksum)

    def _rows(self) -> Iterator[tuple[int, int]]:
        return ((id_, id_ % 97) for id_ in range(self.id, self.id + self.count))


@dataclass(frozen=True, slots=True)
class Add:
    """To a row, if it is there."""

    table: str
    id: int
    n: int

    @property
    def sql(self) -> str:
        return f"UPDATE {DATABASE}.{self.table} SET n = n + {self.n} WHERE id = {self.id}"

    def play(self, tables: Tables) -> None:
        row = tables[self.table].take(self.id)
        if row is not None:
            tables[self.table].put(self.id, row[0] + self.n, row[1])


@dataclass(frozen=True, slots=True)
class Delete:
    """A row, if it is there."""

    table: str
    id: int

    @property
    def sql(self) -> str:
        return f"DELETE FROM {DATABASE}.{self.table} WHERE id = {self.id}"

    def play(self, tables: Tables) -> None:
        tables[self.table].take(self.id)


@dataclass(frozen=True, slots=True)
class Create:
    """An empty table."""

    table: str
    engine: str = "InnoDB"

    @property
    def sql(self) -> str:
        columns = "id INT PRIMARY KEY, n INT NOT NULL, v TEXT NOT NULL"
        return f"CREATE TABLE {DATABASE}.{self.table} ({columns}) ENGINE = {self.engine}"

    def play(self, tables: Tables) -> None:
        tables[self.table] = Table()


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Another column, which the clients do not know."""

    table: str

    @property
    def sql(self) -> str:
        return f"ALTER TABLE {DATABASE}.{self.table} ADD COLUMN more INT NOT NULL DEFAULT 7"

    def play(self, tables: Tables) -> None:
        tables[self.table].columns += 1


@dataclass(frozen=True, slots=True)
class Swap:
    """A new table in the place of another one, which has another name then: in one statement."""

    new: str
    table: str
    old: str

    @property
    def sql(self) -> str:
        away, here = f"{DATABASE}.{self.table} TO {DATABASE}.{self.old}", f"{DATABASE}.{self.new} TO {DATABASE}."
        return f"RENAME TABLE {away}, {here}{self.table}"

    def play(self, tables: Tables) -> None:
        tables[self.old] = tables.pop(self.table)
        tables[self.table] = tables.pop(self.new)


@dataclass(frozen=True, slots=True)
class Truncate:
    """No row is left."""

    table: str

    @property
    def sql(self) -> str:
        return f"TRUNCATE TABLE {DATABASE}.{self.table}"

    def play(self, tables: Tables) -> None:
        tables[self.table] = Table(tables[self.table].columns)


@dataclass(frozen=True, slots=True)
class Drop:
    """The table is no more."""

    table: str

    @property
    def sql(self) -> str:
        return f"DROP TABLE {DATABASE}.{self.table}"

    def play(self, tables: Tables) -> None:
        del tables[self.table]


def sums_of(tables: Tables) -> Mapping[str, Sums]:
    """As they are now."""
    return {name: table.sums for name, table in tables.items()}


def sums_on(session: Session) -> Mapping[str, Sums]:
    """The same, as a server has it."""
    named = session.query(
        "SELECT TABLE_NAME AS n, COUNT(*) AS c FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s GROUP BY 1",
        DATABASE,
    )
    sums = "COUNT(*), COALESCE(SUM(n), 0), COALESCE(SUM(id * n), 0), COALESCE(SUM(CRC32(v)), 0)"
    found: dict[str, Sums] = {}
    for row in named:
        values = session.one(f"SELECT {sums} FROM {DATABASE}.`{row['n']}`") or {}
        found[str(row["n"])] = (int(row["c"] or 0), *(int(value or 0) for value in values.values()))
    return found
