"""What this machine's probes found best for each volume's COW area, to the table and back.

Apart from `probes`, because every run asks for it.
"""

from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from backupd.catalogue import measurement_tables as measured
from backupd.catalogue import tables
from backupd.catalogue.columns import from_row, to_row
from backupd.vocabulary.gauges import Tuning, VolumeLayout


def newest(connection: Connection) -> dict[str, Tuning]:
    """The newest of this machine's of each volume, by the volume's uuid."""
    latest = func.max(measured.tunings.c.made_at)  # SQLite takes the other columns from the row that has it
    query = (
        select(measured.tunings, latest)
        .join(tables.runs, tables.runs.c.run_id == measured.tunings.c.run_id)
        .where(tables.OURS)
        .group_by(measured.tunings.c.volume_uuid)
    )
    return {row["volume_uuid"]: tuning_of(row) for row in connection.execute(query).mappings()}


def tuning_of(row: RowMapping) -> Tuning:
    """The tuning of one row."""
    return Tuning(row["made_at"], from_row(VolumeLayout, row), row["cells"])


def row_of(tuning: Tuning) -> dict[str, Any]:
    """The row of one tuning."""
    return {**to_row(tuning.layout), "made_at": tuning.made_at, "cells": tuning.cells}
