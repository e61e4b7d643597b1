"""What probes measured, to the tables and back.

Knows: which rows a measurement is taken apart into, and how a probe is put together from them.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, insert

from backupd.catalogue import measurement_tables as measured
from backupd.catalogue import tables
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.database import Write
from backupd.catalogue.details import rows_of, run_rows
from backupd.catalogue.tunings import row_of, tuning_of
from backupd.vocabulary.probes import (
    Curve,
    Measurement,
    PhysicalCost,
    ProbedVolume,
    ProbeRecord,
    ProbeRow,
    ProbeSettings,
)
from backupd.vocabulary.records import RunError

_NO_COST: dict[str, Any] = dict.fromkeys(field.name for field in fields(PhysicalCost))


def writes(run_id: str, measurement: Measurement) -> list[Write]:
    """The statements that keep the measurement of a run that has none yet."""
    probe = {**to_row(measurement.volume), **to_row(measurement.settings), "notes": measurement.notes}
    rows = [_apart(row) for row in measurement.rows]
    curves = [to_row(curve) for curve in measurement.curves]
    tunings = [] if measurement.tuning is None else [row_of(measurement.tuning)]
    of_tables = (
        *((measured.probes, [probe]), (measured.probe_rows, rows), (measured.probe_curves, curves)),
        (measured.tunings, tunings),
    )
    return [(insert(table), [{**row, "run_id": run_id} for row in rows]) for table, rows in of_tables if rows]


def records(connection: Connection, chosen: Select[str], *, curves: bool = True) -> list[ProbeRecord]:
    """The chosen probes, newest first; their curves are left out where they are not wanted."""
    probes, errors = (rows_of(connection, chosen, table) for table in (measured.probes, tables.errors))
    rows = rows_of(connection, chosen, measured.probe_rows)
    curved = rows_of(connection, chosen, measured.probe_curves) if curves else {}
    tuned = rows_of(connection, chosen, measured.tunings)
    return [
        ProbeRecord(
            run_id=run_id,
            job=run["job"] or None,
            status=run["status"],
            started_at=run["started_at"],
            ended_at=run["ended_at"],
            error=from_row(RunError, errors[run_id][0]) if run_id in errors else None,
            measurement=(
                _measurement(probes[run_id][0], rows.get(run_id, ()), curved.get(run_id, ()), tuned.get(run_id, ()))
                if run_id in probes
                else None
            ),
        )
        for run in run_rows(connection, chosen)
        for run_id in [run["run_id"]]
    ]


def _measurement(
    probe: RowMapping, rows: Sequence[RowMapping], curves: Sequence[RowMapping], tuned: Sequence[RowMapping]
) -> Measurement:
    return Measurement(
        volume=from_row(ProbedVolume, probe),
        settings=from_row(ProbeSettings, probe),
        rows=tuple(_together(row) for row in rows),
        curves=tuple(from_row(Curve, row) for row in curves),
        notes=probe["notes"],
        tuning=tuning_of(tuned[0]) if tuned else None,
    )


def _apart(row: ProbeRow) -> dict[str, Any]:
    """A table's line with its physical cost beside it, in columns that are all null where it has none."""
    flat = to_row(row)
    cost = flat.pop("physical")
    return {**flat, **(_NO_COST if cost is None else to_row(cost))}


def _together(row: RowMapping) -> ProbeRow:
    cost = None if row["shares"] is None else from_row(PhysicalCost, row)
    return from_row(ProbeRow, {**row, "physical": cost})
