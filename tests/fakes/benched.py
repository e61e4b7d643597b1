"""A bench that nobody measured, with every table in it: for tests of what is kept of one and how it is shown."""

from datetime import UTC, datetime, timedelta

from backupd.vocabulary.benches import (
    LARGE_RECORD,
    RECORDS,
    SMALL_RECORD,
    BenchHost,
    BenchRecord,
    BenchSettings,
    CellResult,
    DiskSample,
    LayoutBench,
    SnapshotFigures,
)
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, Medium, Operation, ScratchLayout

PVS = ("/dev/nbd0", "/dev/nbd1", "/dev/nbd2")
THREADS = (1, 2, 6)
BEGAN = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)

_LINEAR_RATE = 40 * MIB  # bytes a second, one writer of large records
_IOPS = 240.0  # of one disk, small records


def striped(width: int, *, kind: LayoutKind = LayoutKind.STRIPED) -> ScratchLayout:
    """Over the first so many disks; 1 is linear."""
    if width == 1:
        return ScratchLayout(LayoutKind.LINEAR, PVS[:1])
    return ScratchLayout(kind, PVS[:width], 64 * KIB)


def result(
    layout: ScratchLayout,
    operation: Operation,
    record: int,
    *,
    threads: int = 1,
    medium: Medium = Medium.FILE,
    faster: float = 1.0,
    spread: float = 0.04,
) -> CellResult:
    """A plausible figure: large records scale with the width, small ones with the writers up to the width."""
    at_once = layout.width if operation.is_random is False and record >= LARGE_RECORD else min(threads, layout.width)
    iops = faster * 0.95 * at_once * (_LINEAR_RATE / record if record >= LARGE_RECORD else _IOPS)
    return CellResult(
        layout=layout.name,
        operation=operation,
        record=record,
        threads=threads,
        medium=medium,
        iops=iops,
        bytes_per_second=iops * record,
        spread=spread,
        repeats=3,
        latency_p95_ms=1200 * threads / iops,
        shares=dict.fromkeys(layout.disks, 1 / layout.width),
        system=0.12,
        iowait=0.6 / layout.width,
    )


def a_bench(*, arrays: bool = False, faster: float = 1.0, raw: bool = False) -> LayoutBench:
    """Linear and striped over two and three PVs with E2 to E4 and E5; or (`arrays`) E5 by stripes and by mdadm."""
    by_arrays = (striped(2), striped(2, kind=LayoutKind.RAID0))
    layouts = by_arrays if arrays else (striped(1), striped(2), striped(3))
    cells: list[CellResult] = []
    for layout in layouts:
        kept = []
        if not arrays:
            kept = [
                result(layout, operation, LARGE_RECORD, faster=faster)
                for operation in (Operation.WRITE, Operation.REWRITE, Operation.READ)
            ]
            kept += [result(layout, Operation.RANDOM_READ, SMALL_RECORD, faster=faster)]
            kept += [
                result(layout, operation, SMALL_RECORD, threads=threads, faster=faster)
                for operation in (Operation.WRITE, Operation.RANDOM_WRITE)
                for threads in THREADS
            ]
        if raw and not arrays:
            kept += [
                result(layout, operation, LARGE_RECORD, medium=Medium.RAW, faster=faster)
                for operation in (Operation.WRITE, Operation.READ)
            ]
        if layout in (layouts[0], layouts[-1]):
            kept += [
                result(layout, operation, record, threads=THREADS[-1], faster=faster)
                for record in RECORDS
                for operation in (Operation.WRITE, Operation.READ, Operation.RANDOM_READ, Operation.RANDOM_WRITE)
            ]
        cells += kept
    samples = tuple(
        DiskSample(
            at_seconds=float(number),
            layout=layouts[number // 10].name,
            step=f"write of 1 MiB records, 1 thread, round {number % 3 + 1}",
            read=dict.fromkeys(PVS, 0.0),
            written={pv: 38.0 * MIB if pv in layouts[number // 10].disks else 0.0 for pv in PVS},
            system=0.1,
            iowait=0.6 / layouts[number // 10].width,
        )
        for number in range(10 * len(layouts))
    )
    return LayoutBench(
        host=BenchHost(
            kernel="6.1.0",
            lvm="2.03.16(2)",
            sysbench="1.0.20",
            fio="3.33" if raw else None,
            mdadm="4.2" if arrays else None,
            memory=2 << 30,
            processors=1,
        ),
        settings=BenchSettings(
            vg="" if arrays else "labvg",
            disks=PVS[:2] if arrays else PVS,
            filesystem="xfs",
            file_size=256 * MIB,
            volume_size=384 * MIB,
            seconds=1.0,
            repeat=3,
            tables=("e5",) if arrays else ("e2", "e3", "e4", "e5"),
        ),
        layouts=layouts,
        cells=tuple(cells),
        samples=samples,
        snapshots=()
        if arrays
        else tuple(
            SnapshotFigures(
                layout=layout.name,
                probe_run_id=f"20261120T030000Z-be9c-{number}",
                chunk_size=64 * KIB,
                origin_read=_LINEAR_RATE * 1.3 * layout.width,
                snapshot_read=_LINEAR_RATE * 1.2 * layout.width,
                penalty=4.5 - number,
            )
            for number, layout in enumerate(layouts, start=1)
        ),
        notes=("load average at the start: 0.3",),
    )


def a_bench_record(bench: LayoutBench | None = None, *, run_id: str = "20261120T030000Z-be9c") -> BenchRecord:
    """As the catalogue keeps it."""
    return BenchRecord(run_id, RunStatus.SUCCESS, BEGAN, BEGAN + timedelta(minutes=4), bench=bench or a_bench())
