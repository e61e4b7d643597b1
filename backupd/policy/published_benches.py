"""The published tables that a bench repeats: which loads each of them needs. Pure.

Knows: E2 to E5 as loads. Refuses to know on which layouts, and what is made of the figures.
"""

from backupd.benchmark import LARGE_RECORD, SMALL_RECORD, BenchRequest, Cell, Table
from backupd.layouts import Medium, Operation

_TRANSFERS = (Operation.WRITE, Operation.READ)
_EVERY_WAY = (Operation.WRITE, Operation.READ, Operation.RANDOM_READ, Operation.RANDOM_WRITE)


def tables_of(request: BenchRequest) -> tuple[Table, ...]:
    """Those that were asked for, or else the usual ones: arrays are compared by record sizes."""
    usual = (Table.E5,) if request.array_disks else (Table.E2, Table.E3, Table.E4)
    return tuple(table for table in Table if table in (request.tables or usual))


def cells_of(table: Table, request: BenchRequest, threads: tuple[int, ...]) -> tuple[Cell, ...]:
    """What a table needs of one layout. `threads` are those of E4, in ascending order; E5 has the most of them."""
    match table:
        case Table.E2:
            ways = (Operation.WRITE, Operation.REWRITE, Operation.READ)
            return (*(Cell(way, LARGE_RECORD) for way in ways), Cell(Operation.RANDOM_READ, SMALL_RECORD))
        case Table.E3:
            media = (Medium.RAW, Medium.FILE) if request.raw else (Medium.FILE,)
            return tuple(Cell(way, LARGE_RECORD, medium=medium) for medium in media for way in _TRANSFERS)
        case Table.E4:
            writes = (Operation.WRITE, Operation.RANDOM_WRITE)
            return tuple(Cell(way, SMALL_RECORD, count) for way in writes for count in threads)
        case Table.E5:
            records = sorted(set(request.records))
            return tuple(Cell(way, record, threads[-1]) for record in records for way in _EVERY_WAY)
