"""What benches found, to the tables and back.

Knows: which rows a bench is taken apart into, and how it is put together from them.
"""

from collections.abc import Mapping, Sequence
from math import isfinite

from sqlalchemy import Connection, RowMapping, Select, insert

from backupd.catalogue import measurement_tables as measured
from backupd.catalogue import tables
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.database import Write
from backupd.catalogue.details import rows_of, run_rows
from backupd.vocabulary.benches import (
    BenchHost,
    BenchRecord,
    BenchSettings,
    CellResult,
    DiskSample,
    LayoutBench,
    SnapshotFigures,
)
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.records import RunError


def writes(run_id: str, bench: LayoutBench) -> list[Write]:
    """The statements that keep the bench of a run that has none yet.

    Raises:
        CatalogueError: a figure for a disk is no number. Of the others SQLite itself says so.
    """
    for cell in bench.cells:
        _require_numbers(cell.shares, f"shares of {cell.layout}")
    for sample in bench.samples:
        _require_numbers({**sample.read, **sample.written}, f"rates of {sample.layout}")
    kept = {**to_row(bench.host), **to_row(bench.settings), "layouts": bench.layouts, "notes": bench.notes}
    of_tables = (
        (measured.benches, [kept]),
        (measured.bench_cells, [to_row(cell) for cell in bench.cells]),
        (measured.bench_samples, [to_row(sample) for sample in bench.samples]),
        (measured.bench_snapshots, [to_row(figures) for figures in bench.snapshots]),
    )
    return [(insert(table), [{**row, "run_id": run_id} for row in rows]) for table, rows in of_tables if rows]


def records(connection: Connection, chosen: Select[str], *, samples: bool = True) -> list[BenchRecord]:
    """The chosen benches, newest first; their samples are left out where they are not wanted."""
    benches, errors = (rows_of(connection, chosen, table) for table in (measured.benches, tables.errors))
    cells, snapshots = (
        rows_of(connection, chosen, table) for table in (measured.bench_cells, measured.bench_snapshots)
    )
    sampled = rows_of(connection, chosen, measured.bench_samples) if samples else {}
    return [
        BenchRecord(
            run_id=run_id,
            status=run["status"],
            started_at=run["started_at"],
            ended_at=run["ended_at"],
            error=from_row(RunError, errors[run_id][0]) if run_id in errors else None,
            bench=(
                _bench(benches[run_id][0], *(of.get(run_id, ()) for of in (cells, sampled, snapshots)))
                if run_id in benches
                else None
            ),
        )
        for run in run_rows(connection, chosen)
        for run_id in [run["run_id"]]
    ]


def _bench(
    bench: RowMapping, cells: Sequence[RowMapping], samples: Sequence[RowMapping], snapshots: Sequence[RowMapping]
) -> LayoutBench:
    return LayoutBench(
        host=from_row(BenchHost, bench),
        settings=from_row(BenchSettings, bench),
        layouts=bench["layouts"],
        cells=tuple(from_row(CellResult, row) for row in cells),
        samples=tuple(from_row(DiskSample, row) for row in samples),
        snapshots=tuple(from_row(SnapshotFigures, row) for row in snapshots),
        notes=bench["notes"],
    )


def _require_numbers(figures: Mapping[str, float], what: str) -> None:
    """They become JSON, which has no word for what is no number, and SQLite would not see it."""
    for disk, figure in figures.items():
        if not isfinite(figure):
            raise CatalogueError(
                f"the bench has {figure} for {disk} among the {what}",
                hint="this is a bug in backupd; please report it",
            )
