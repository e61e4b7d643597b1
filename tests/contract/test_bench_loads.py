"""What every load of a bench promises: the fakes of the stories, and the real ones on a disk."""

from pathlib import Path

import pytest

from backupd.benchmark import KIB, MIB, Cell, LayoutKind, Medium, Operation, ScratchLayout
from backupd.errors import CommandError
from backupd.measurement import DiskCounters
from tests.fakes.bench_loads import DISKS, FakeDisks

SIZE = 4 * MIB
THREE_STRIPES = ScratchLayout(LayoutKind.STRIPED, DISKS, 64 * KIB)
ONE_THREAD = Cell(Operation.WRITE, MIB)


# --- the fake --------------------------------------------------------------------------------------------------------


def counted(disks: FakeDisks) -> DiskCounters:
    """By all disks together."""
    each = [disks.counters.disk(disks.counters.number_of(Path(name))) for name in disks.names]
    return DiskCounters(
        read_bytes=sum(one.read_bytes for one in each), write_bytes=sum(one.write_bytes for one in each)
    )


@pytest.mark.parametrize("layout", [ScratchLayout(LayoutKind.LINEAR, DISKS[:1]), THREE_STRIPES])
def test_the_fake_disks_count_what_the_load_moved(tmp_path: Path, layout: ScratchLayout) -> None:
    disks = FakeDisks(layout_at=lambda where: layout)
    load = disks.loads[Medium.FILE]
    load.prepare(tmp_path, SIZE)
    assert counted(disks).write_bytes == SIZE
    for operation in Operation:
        before = counted(disks)
        window = load.window(tmp_path, Cell(operation, 16 * KIB, 2), size=SIZE, seconds=1.0)
        delta = counted(disks).since(before)
        assert (delta.read_bytes, delta.write_bytes) == (window.bytes_read, window.bytes_written)


def test_on_the_fake_disks_striping_pays_as_it_does_on_real_ones(tmp_path: Path) -> None:
    disks = FakeDisks()
    gain = {
        cell: disks.records_per_second(THREE_STRIPES, cell)
        / disks.records_per_second(ScratchLayout(LayoutKind.LINEAR, DISKS[:1]), cell)
        for operation in Operation
        for record in (16 * KIB, MIB)
        for cell in (Cell(operation, record, 1), Cell(operation, record, 6))
    }
    assert 2.3 < gain[Cell(Operation.WRITE, MIB, 1)] < 3.1
    assert 2.3 < gain[Cell(Operation.RANDOM_WRITE, 16 * KIB, 6)] < 3.1
    assert gain[Cell(Operation.RANDOM_WRITE, 16 * KIB, 1)] == pytest.approx(1)


def test_the_fakes_file_is_not_there_on_another_layout(tmp_path: Path) -> None:
    disks = FakeDisks()
    load = disks.loads[Medium.FILE]
    load.prepare(tmp_path, SIZE)
    disks.layout_at = lambda where: THREE_STRIPES
    with pytest.raises(CommandError):
        load.window(tmp_path, ONE_THREAD, size=SIZE, seconds=1.0)


def test_the_fake_fails_at_the_call_that_it_was_told(tmp_path: Path) -> None:
    disks = FakeDisks(fail_at_call=2)
    load = disks.loads[Medium.FILE]
    load.prepare(tmp_path, SIZE)
    with pytest.raises(CommandError, match="call 2"):
        load.window(tmp_path, ONE_THREAD, size=SIZE, seconds=1.0)
    assert load.window(tmp_path, ONE_THREAD, size=SIZE, seconds=1.0).iops > 0
