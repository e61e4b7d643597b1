"""Probes as they might have been: a striped volume on three disks, penalties that decay, every figure known."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp

from backupd.vocabulary.gauges import CurvePoint, Mode, Stage
from backupd.vocabulary.penalty import Reason
from backupd.vocabulary.probes import (
    Curve,
    Measurement,
    PhysicalCost,
    ProbedVolume,
    ProbeRecord,
    ProbeRow,
    ProbeSettings,
)
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.volumes import Layout

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PVS = ("/dev/sdb", "/dev/sdc", "/dev/sdd")
VOLUME = ProbedVolume(
    *("vg0/mysql", 30 << 30, Layout.STRIPED, 3, 64 << 10, PVS, "xfs", False, "6.1.0-26-amd64", "2.03.16", "1.0.20")
)
SETTINGS = ProbeSettings(5.0, 3, 16 << 10, 256 << 20, 8 << 20, 1.0, 64 << 10, (), 1 << 30, 1.25)
EVENLY = PhysicalCost(0.0, 1.02, 0.0, dict.fromkeys(PVS, 1 / 3))
COPYING = PhysicalCost(0.97, 2.9, 98.0, dict(zip(PVS, (0.2, 0.3, 0.5), strict=True)))
WINDOWS = 12  # of a curve


def rows(mode: Mode, *, chunk_size: int = 64 << 10, penalty: float = 4.0) -> tuple[ProbeRow, ...]:
    """Before, at first, and settled: 400 IOPS undisturbed."""
    base = ProbeRow(mode, 1, 16 << 10, None, (), 0, Stage.BASELINE, 400.0, 0.04, None, 3, physical=EVENLY)
    with_one = replace(base, chunk_size=chunk_size, snapshots=1)
    return (
        base,
        replace(with_one, phase=Stage.FIRST, iops=400 / penalty, penalty=penalty, spread=0.1, physical=COPYING),
        replace(with_one, phase=Stage.SETTLED, iops=320.0, penalty=1.25, physical=EVENLY),
    )


def curve(mode: Mode, *, chunk_size: int = 64 << 10, repeat: int = 1) -> Curve:
    """A decay from about four to about one, a point every five seconds."""
    points = [CurvePoint(5.0 * i, 400 / (1 + 3 * exp(-i / 3)), 1 + 3 * exp(-i / 3)) for i in range(1, WINDOWS + 1)]
    return Curve(mode, 1, chunk_size, (), 1, repeat, Reason.SETTLED, tuple(points))


def measurement(
    modes: Sequence[Mode] = (Mode.DIRECT, Mode.REWRITE), *, chunk_size: int = 64 << 10, penalty: float = 4.0
) -> Measurement:
    """Rows for each mode, and a curve for `rewrite`, under this default chunk size."""
    return Measurement(
        VOLUME,
        replace(SETTINGS, chunk_size=chunk_size),
        tuple(row for mode in modes for row in rows(mode, chunk_size=chunk_size, penalty=penalty)),
        tuple(curve(Mode.REWRITE, chunk_size=chunk_size, repeat=repeat) for repeat in (1, 2)),
        ("the server wrote meanwhile",),
    )


def record(run_id: str = "p1", found: Measurement | None = None) -> ProbeRecord:
    """A probe that went well."""
    ended = NOON + timedelta(minutes=3)
    return ProbeRecord(run_id, "nightly", RunStatus.SUCCESS, NOON, ended, measurement=found or measurement())
