"""A bench for machines: as JSON, and its figures as CSV.

Knows: the keys. Bytes, seconds, shares from 0 to 1. What was not measured, and what is no finite number, is null; in
CSV it is empty.
"""

from dataclasses import asdict

from backupd.report import words
from backupd.report.bench_contrast import Judgement
from backupd.report.bench_disks import hours_per_tebibyte
from backupd.report.bench_verdict import verdict
from backupd.report.json_document import Document, clean, iso
from backupd.vocabulary.benches import BenchRecord, CellResult, DiskSample, LayoutBench, SnapshotFigures
from backupd.vocabulary.scratch_layouts import Medium, Operation, ScratchLayout


def document(record: BenchRecord) -> Document:
    """What `bench layouts --json` and `bench show --json` print."""
    bench = record.bench
    plain: Document = clean(
        {
            "run_id": record.run_id,
            "status": record.status.value,
            "started_at": record.started_at.isoformat(),
            "ended_at": iso(record.ended_at),
            "host": None if bench is None else asdict(bench.host),
            "settings": None if bench is None else asdict(bench.settings),
            "layouts": [] if bench is None else [_layout(layout) for layout in bench.layouts],
            "cells": [] if bench is None else [cell_document(one) for one in bench.cells],
            "samples": [] if bench is None else [_sample(one) for one in bench.samples],
            "snapshots": [] if bench is None else [_snapshot(one) for one in bench.snapshots],
            "verdict": [] if bench is None else [_judgement(one) for one in verdict(bench)],
            "notes": [] if bench is None else list(bench.notes),
            "error": None if record.error is None else asdict(record.error),
        }
    )
    return plain


def cell_document(one: CellResult) -> Document:
    """One figure. `shares` is empty where the disks' counters were not read."""
    return {
        "layout": one.layout,
        "operation": one.operation.value,
        "record": one.record,
        "threads": one.threads,
        "medium": one.medium.value,
        "iops": one.iops,
        "bytes_per_second": one.bytes_per_second,
        "spread": one.spread,
        "repeats": one.repeats,
        "latency_p95_ms": one.latency_p95_ms,
        "system": one.system,
        "iowait": one.iowait,
        "shares": dict(one.shares),
    }


def csv_text(bench: LayoutBench) -> str:
    """A line per figure, the columns named as in the JSON; a disk's share is `DISK=SHARE`, joined by semicolons."""
    rows = []
    for row in (clean(cell_document(one)) for one in bench.cells):
        shares = ";".join(f"{disk}={part:.4g}" for disk, part in row["shares"].items() if part is not None)
        rows.append({**row, "shares": shares})
    return words.csv_text(list(cell_document(_NO_CELL)), rows)


_NO_CELL = CellResult("", Operation.WRITE, 0, 0, Medium.FILE, 0.0, 0.0, 0.0, 0)


def _layout(layout: ScratchLayout) -> Document:
    return {
        "name": layout.name,
        "kind": layout.kind.value,
        "stripes": layout.width,
        "stripe_size": layout.stripe_size or None,
        "disks": list(layout.disks),
    }


def _sample(one: DiskSample) -> Document:
    return {
        "at_seconds": one.at_seconds,
        "layout": one.layout,
        "step": one.step,
        "read": dict(one.read),
        "written": dict(one.written),
        "system": one.system,
        "iowait": one.iowait,
    }


def _snapshot(one: SnapshotFigures) -> Document:
    return {**asdict(one), "hours_per_tebibyte": hours_per_tebibyte(one.snapshot_read)}


def _judgement(one: Judgement) -> Document:
    return {"topic": one.topic.value, "finding": one.finding.value, "text": one.text, "evidence": list(one.evidence)}
