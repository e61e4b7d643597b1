"""From windows to rows: medians, spreads, penalties, and what the kernel's counters say of them."""

from dataclasses import replace

import pytest

from backupd.load.tally import CounterLook, Measured, Tally
from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode, Stage
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.probes import Variant

DIRECT = FileLoad(Mode.DIRECT, 1, 16 << 10, 8 << 20)
PASSIVE = replace(DIRECT, mode=Mode.PASSIVE, block_size=0)
SNAPSHOT = Variant(4096)
NOTHING = DiskCounters()


def window(iops: float, *, latency_ms: float = 1.0) -> Window:
    return Window(1.0, iops, round(iops) * 16384, latency_ms, latency_ms * 2)


def measured(
    iops: float,
    *,
    origin: DiskCounters = NOTHING,
    pvs: dict[str, DiskCounters] | None = None,
    copied: int | None = None,
    latency_ms: float = 1.0,
) -> Measured:
    """A window of a second; the counters stood at nothing before it."""
    after = pvs or {}
    before = CounterLook(0.0, NOTHING, dict.fromkeys(after, NOTHING), None if copied is None else 0)
    return Measured(window(iops, latency_ms=latency_ms), before, CounterLook(1.0, origin, after, copied))


def test_a_row_is_the_median_of_its_windows_and_says_how_far_they_lay_apart() -> None:
    tally = Tally()
    for iops in (90.0, 100.0, 120.0):
        tally.add(DIRECT, None, Stage.BASELINE, measured(iops))
    for iops in (20.0, 25.0, 50.0):
        tally.add(DIRECT, SNAPSHOT, Stage.FIRST, measured(iops))
    baseline, first = tally.rows()
    assert (baseline.iops, baseline.spread, baseline.penalty, baseline.repeats) == (100, 0.3, None, 3)
    assert (first.iops, first.spread, first.penalty) == (25, 1.2, 4)
    assert (baseline.chunk_size, baseline.snapshots, first.chunk_size, first.snapshots) == (None, 0, 4096, 1)


def test_a_disk_that_did_nothing_gives_rows_without_a_penalty() -> None:
    tally = Tally()
    tally.add(DIRECT, None, Stage.BASELINE, measured(0.0))
    tally.add(DIRECT, SNAPSHOT, Stage.FIRST, measured(0.0))
    assert [(row.iops, row.spread, row.penalty) for row in tally.rows()] == [(0, 0, None), (0, 0, None)]
    assert tally.penalty(DIRECT, measured(10.0)) is None


def test_reads_of_a_snapshot_are_compared_with_reads_of_the_origin() -> None:
    tally = Tally()
    tally.add(replace(DIRECT, mode=Mode.READ), None, Stage.BASELINE, measured(100.0))
    tally.add(replace(DIRECT, mode=Mode.READ_SNAPSHOT), SNAPSHOT, Stage.FIRST, measured(50.0))
    assert [row.penalty for row in tally.rows()] == [None, 2]


def test_other_peoples_writes_are_compared_by_how_long_they_take() -> None:
    """They wrote less because fewer came; what each waited for doubled."""
    tally = Tally()
    tally.add(PASSIVE, None, Stage.BASELINE, measured(1000.0, latency_ms=5.0))
    tally.add(PASSIVE, SNAPSHOT, Stage.FIRST, measured(10.0, latency_ms=10.0))
    baseline, first = tally.rows()
    assert (baseline.penalty, first.penalty) == (None, 2)
    assert first.latency_p95_ms is None, "the kernel counts no percentiles"


def test_writes_that_the_kernel_split_at_chunks_are_counted_once() -> None:
    """100 writes of 16 KiB each; on a snapshot of 4 KiB chunks the origin has counted 400."""
    size = 100 * 16384
    plain = DiskCounters(writes=100, write_bytes=size)
    split = DiskCounters(writes=400, write_bytes=size)
    busy = {"/dev/a": DiskCounters(reads=60, writes=200), "/dev/b": DiskCounters(reads=40, writes=100)}
    tally = Tally()
    tally.add(DIRECT, None, Stage.BASELINE, measured(100, origin=plain, pvs={"/dev/a": plain, "/dev/b": NOTHING}))
    tally.add(DIRECT, SNAPSHOT, Stage.FIRST, measured(100, origin=split, pvs=busy, copied=400 * 4096))
    baseline, first = (row.physical for row in tally.rows())
    assert baseline is not None
    assert first is not None
    assert (baseline.reads_per_write, baseline.writes_per_write) == (0, 1)
    assert (first.reads_per_write, first.writes_per_write) == (1, 3)
    assert (baseline.cow_chunks_per_second, first.cow_chunks_per_second) == (None, 400)
    assert baseline.shares == {"/dev/a": 1, "/dev/b": 0}
    assert first.shares == {"/dev/a": 0.65, "/dev/b": 0.35}


def test_what_the_origin_was_asked_to_read_is_not_copying_on_write() -> None:
    asked = DiskCounters(reads=50, writes=100, write_bytes=100)
    tally = Tally()
    tally.add(DIRECT, None, Stage.BASELINE, measured(100, origin=asked, pvs={"/dev/a": DiskCounters(50, 0, 100)}))
    [row] = tally.rows()
    assert row.physical is not None
    assert row.physical.reads_per_write == 0


def test_a_copys_reads_are_not_called_the_writes() -> None:
    tally = Tally()
    origin = DiskCounters(writes=100, write_bytes=100)
    tally.add(DIRECT, None, Stage.BASELINE, measured(100, origin=origin))
    tally.add(DIRECT, SNAPSHOT, Stage.COPYING, measured(100, origin=origin, pvs={"/dev/a": DiskCounters(900, 0, 300)}))
    copying = tally.rows()[1].physical
    assert copying is not None
    assert copying.reads_per_write is None
    assert copying.writes_per_write == pytest.approx(3)
