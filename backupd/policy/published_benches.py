"""The published tables that a bench repeats: which loads each of them needs. Pure.

Knows: E2 to E5 as loads.
"""

from backupd.vocabulary.benches import LARGE_RECORD, SMALL_RECORD, BenchRequest, Cell, PublishedTable
from backupd.vocabulary.scratch_layouts import Medium, Operation

_TRANSFERS = (Operation.WRITE, Operation.READ)
_EVERY_WAY = (Operation.WRITE, Operation.READ, Operation.RANDOM_READ, Operation.RANDOM_WRITE)


def tables_of(request: BenchRequest) -> tuple[PublishedTable, ...]:
    """Those that were asked for, or else the usual ones: arrays are compared by record sizes."""
    usual = (PublishedTable.E5,) if request.array_disks else (PublishedTable.E2, PublishedTable.E3, PublishedTable.E4)
    return tuple(table for table in PublishedTable if table in (request.tables or usual))


def cells_of(table: PublishedTable, request: BenchRequest, threads: tuple[int, ...]) -> tuple[Cell, ...]:
    """What a table needs of one layout. `threads` are those of E4, in ascending order; E5 has the most of them."""
    match table:
        case PublishedTable.E2:
            ways = (Operation.WRITE, Operation.REWRITE, Operation.READ)
            return (*(Cell(way, LARGE_RECORD) for way in ways), Cell(Operation.RANDOM_READ, SMALL_RECORD))
        case PublishedTable.E3:
            media = (Medium.RAW, Medium.FILE) if request.raw else (Medium.FILE,)
            return tuple(Cell(way, LARGE_RECORD, medium=medium) for medium in media for way in _TRANSFERS)
        case PublishedTable.E4:
            writes = (Operation.WRITE, Operation.RANDOM_WRITE)
            return tuple(Cell(way, SMALL_RECORD, count) for way in writes for count in threads)
        case PublishedTable.E5:
            records = sorted(set(request.records))
            return tuple(Cell(way, record, threads[-1]) for record in records for way in _EVERY_WAY)
