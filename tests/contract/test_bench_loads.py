"""What every load of a bench promises: the fakes of the stories, and the real ones on a disk.

For fio a file stands for the device: whoever may run the tests has one. Real devices are in the lab.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.load import PROBE_FILE, BenchLoad
from backupd.load.fileload import FileLoads
from backupd.load.fio import FIO, FioLoads
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, Medium, Operation, ScratchLayout
from tests.direct_io import folder_for_direct_io
from tests.fakes.bench_loads import DISKS, FakeDisks

SIZE = 4 * MIB
THREE_STRIPES = ScratchLayout(LayoutKind.STRIPED, DISKS, 64 * KIB)
ONE_THREAD = Cell(Operation.WRITE, MIB)
READING = (Operation.READ, Operation.RANDOM_READ)


@dataclass(frozen=True)
class Place:
    """A load, and what it works on."""

    load: BenchLoad
    medium: Medium
    where: Path

    def can(self, operation: Operation) -> bool:
        return self.medium is Medium.FILE or operation is not Operation.REWRITE

    def cell(self, operation: Operation, record: int = 16 * KIB, threads: int = 1) -> Cell:
        return Cell(operation, record, threads, self.medium)

    def window(self, cell: Cell, seconds: float = 1.0) -> tuple[float, int, int]:
        """Its records a second, bytes read and bytes written."""
        window = self.load.window(self.where, cell, size=SIZE, seconds=seconds)
        assert window.seconds >= 0.9 * seconds
        return window.iops * window.seconds, window.bytes_read, window.bytes_written


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with folder_for_direct_io(tmp_path) as folder:
        yield folder


@pytest.fixture
def device(root: Path) -> Path:
    path = root / "device"
    with path.open("wb") as file:
        file.truncate(2 * SIZE)
    return path


@pytest.fixture(params=["fake file", "fake device", "sysbench", "fio"])
def place(request: pytest.FixtureRequest, root: Path, device: Path) -> Place:
    disks = FakeDisks(layout_at=_linear_if_there)
    return {
        "fake file": Place(disks.loads[Medium.FILE], Medium.FILE, root),
        "fake device": Place(disks.loads[Medium.RAW], Medium.RAW, device),
        "sysbench": Place(FileLoads(), Medium.FILE, root),
        "fio": Place(FioLoads(), Medium.RAW, device),
    }[str(request.param)]


def _linear_if_there(where: Path) -> ScratchLayout:
    if not where.exists():
        raise CommandError(f"no {where}")
    return ScratchLayout(LayoutKind.LINEAR, DISKS[:1])


@pytest.fixture
def prepared(place: Place) -> Place:
    place.load.prepare(place.where, SIZE)
    return place


def test_each_operation_moves_whole_records_one_way_and_a_rewrite_both(prepared: Place) -> None:
    cells = [
        prepared.cell(operation, record, threads)
        for operation in Operation
        if prepared.can(operation)
        for record, threads in ((16 * KIB, 1), (MIB, 3))
    ]
    with ThreadPoolExecutor(len(cells)) as pool:  # at once, for a window takes a second at least
        found = list(pool.map(prepared.window, cells))
    for cell, (records, read, written) in zip(cells, found, strict=True):
        assert records >= 1, cell
        moved = pytest.approx(records * cell.record)
        reads = cell.operation in (*READING, Operation.REWRITE)
        assert read == (moved if reads else 0), cell
        assert written == (0 if cell.operation in READING else moved), cell


def test_a_sequence_begins_again_at_the_end(prepared: Place) -> None:
    """Else the threads of a fast disk would have nothing to do, or go beyond what was prepared."""
    _, read, _ = prepared.window(prepared.cell(Operation.READ, MIB), seconds=2.0)
    assert read > SIZE


def test_the_length_of_a_record_that_does_not_fit_is_no_load(prepared: Place) -> None:
    for record in (3 * KIB, 2 * SIZE):
        with pytest.raises(ValueError, match="whole records"):
            prepared.window(prepared.cell(Operation.WRITE, record))


def test_a_load_on_the_other_medium_is_none(prepared: Place) -> None:
    other = Medium.RAW if prepared.medium is Medium.FILE else Medium.FILE
    with pytest.raises(ValueError, match="medium"):
        prepared.window(Cell(Operation.WRITE, MIB, medium=other))


def test_only_a_file_is_rewritten(prepared: Place) -> None:
    if prepared.can(Operation.REWRITE):
        assert prepared.window(prepared.cell(Operation.REWRITE), seconds=0.2)[2] > 0
    else:
        with pytest.raises(ValueError, match="rewritten"):
            prepared.window(prepared.cell(Operation.REWRITE))


def test_a_window_where_nothing_was_prepared_is_an_error(place: Place) -> None:
    for operation in Operation:
        if place.can(operation):
            with pytest.raises(CommandError):
                place.load.window(place.where / "gone", place.cell(operation), size=SIZE, seconds=1.0)
    assert not (place.where / "gone").exists()


def test_what_is_not_there_cannot_be_prepared(place: Place) -> None:
    with pytest.raises(CommandError):
        place.load.prepare(place.where / "gone", SIZE)
    assert not (place.where / "gone").exists()


def test_an_interrupted_load_is_usable_again_once_prepared(prepared: Place) -> None:
    prepared.load.interrupt()
    for operation in Operation:
        if prepared.can(operation):
            with pytest.raises(CommandError, match="interrupted"):
                prepared.window(prepared.cell(operation))
    prepared.load.prepare(prepared.where, SIZE)
    assert prepared.window(prepared.cell(Operation.WRITE))[2] > 0


# --- the real ones ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sysbench", "fio"])
def real(request: pytest.FixtureRequest, root: Path, device: Path) -> Place:
    by_fio = request.param == "fio"
    made = Place(FioLoads(), Medium.RAW, device) if by_fio else Place(FileLoads(), Medium.FILE, root)
    made.load.prepare(made.where, SIZE)
    return made


def test_every_block_of_what_was_prepared_is_on_the_disk(real: Place) -> None:
    path = real.where / PROBE_FILE if real.where.is_dir() else real.where
    found = path.stat()
    assert found.st_size >= SIZE
    assert found.st_blocks * 512 >= SIZE, "a hole would be allocated by the window, or read without the disk"


def test_the_file_is_as_large_as_before_and_alone(root: Path) -> None:
    place = Place(FileLoads(), Medium.FILE, root)
    before = set(root.iterdir())
    place.load.prepare(root, SIZE)
    for operation in (Operation.WRITE, Operation.REWRITE, Operation.RANDOM_WRITE):
        place.window(place.cell(operation))
    assert {path.name for path in set(root.iterdir()) - before} == {PROBE_FILE}
    assert (root / PROBE_FILE).stat().st_size == SIZE


def test_a_rewritten_file_holds_what_it_held(root: Path) -> None:
    place = Place(FileLoads(), Medium.FILE, root)
    place.load.prepare(root, SIZE)
    file = root / PROBE_FILE
    file.write_bytes(bytes(range(256)) * (SIZE // 256))
    records, _, _ = place.window(place.cell(Operation.REWRITE, 64 * KIB, 4), seconds=0.5)
    assert records > SIZE // (64 * KIB), "less than once through the file"
    assert file.read_bytes() == bytes(range(256)) * (SIZE // 256)


def test_nothing_beyond_what_was_asked_for_is_touched(real: Place, device: Path) -> None:
    device.write_bytes(b"\xff" * 2 * SIZE)
    if real.medium is Medium.RAW:
        real.load.prepare(device, SIZE)
        real.window(real.cell(Operation.WRITE, 64 * KIB))
        assert device.read_bytes()[SIZE:] == b"\xff" * SIZE
        assert device.read_bytes()[:SIZE] != b"\xff" * SIZE
    else:
        real.window(real.cell(Operation.WRITE, 64 * KIB))
        assert device.read_bytes() == b"\xff" * 2 * SIZE


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.REWRITE, Operation.RANDOM_READ])
def test_an_interruption_ends_a_window_long_before_its_time(real: Place, operation: Operation) -> None:
    operation = operation if real.can(operation) else Operation.READ
    began = time.monotonic()
    timer = threading.Timer(0.3, real.load.interrupt)
    timer.start()
    with pytest.raises(CommandError, match="interrupted"):
        real.window(real.cell(operation), seconds=50.0)
    timer.join()
    assert time.monotonic() - began < 40


def test_a_record_smaller_than_the_disks_sector_is_refused_with_the_sectors_size(
    real: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No direct request may be of 256 bytes; what the kernel says of the sector is in the tests of `sectors`."""
    monkeypatch.setattr("backupd.load.sectors.sector_size", lambda where: 512)
    for operation in Operation:
        if real.can(operation):
            with pytest.raises(CommandError) as caught:
                real.window(real.cell(operation, 256))
            assert "whole sectors of 512 bytes" in caught.value.hint


@pytest.mark.parametrize(("load", "name"), [(FileLoads(), "sysbench"), (FioLoads(), "fio")])
def test_a_host_without_the_program_is_told_what_to_install(
    load: BenchLoad,
    name: str,
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    with pytest.raises(CommandError, match=f"{name} is not installed") as caught:
        load.prepare(root, SIZE)
    assert caught.value.hint == f"apt-get install {name}"


def test_the_fio_that_is_installed_is_recent_enough() -> None:
    assert int(FIO.installed_version().partition(".")[0]) >= 3


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
