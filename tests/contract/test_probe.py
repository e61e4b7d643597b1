"""What every probe, reader and counter promises: the fakes of the stories, and the real ones on a disk."""

import gc
import os
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backupd.load import Counters, FileProbe, SnapshotReader
from backupd.load.counters import KernelCounters
from backupd.load.direct_reader import DirectReader
from backupd.load.fileprobe import SysbenchProbe
from backupd.load.sysbench import SYSBENCH
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode
from backupd.vocabulary.volumes import DeviceNumber
from tests.direct_io import folder_for_direct_io
from tests.fakes.probe import FakeDisk

SIZE = 1 << 20
BLOCK = 16 << 10
MYSQL = 27031  # an account that has nothing else
LOAD = FileLoad(Mode.DIRECT, 1, BLOCK, area=SIZE)
MIXED = FileLoad(Mode.DIRECT, 1, BLOCK, area=SIZE, write_share=0.2)

ProbeOf = Callable[[FileLoad], FileProbe]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with folder_for_direct_io(tmp_path) as folder:
        yield folder


@pytest.fixture
def folder(root: Path) -> Path:
    return root / ".backupd-probe-run1"


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture(params=["fake", "sysbench"])
def probe_of(request: pytest.FixtureRequest, disk: FakeDisk) -> ProbeOf:
    return disk.probe if request.param == "fake" else SysbenchProbe


@pytest.fixture
def probe(probe_of: ProbeOf) -> FileProbe:
    return probe_of(LOAD)


@pytest.fixture(params=["fake", "direct"])
def reader(request: pytest.FixtureRequest, disk: FakeDisk) -> SnapshotReader:
    return disk.reader if request.param == "fake" else DirectReader()


@pytest.fixture(params=["fake", "kernel"])
def counters(request: pytest.FixtureRequest, disk: FakeDisk) -> Counters:
    return disk.counters if request.param == "fake" else KernelCounters()


@pytest.fixture
def file(root: Path) -> Path:
    """A file of 1 MiB and a bit that no probe has made, thus a snapshot's to the fake."""
    path = root / "test_file.0"
    path.write_bytes(os.urandom(SIZE + 100))
    return path


def test_prepare_makes_a_private_folder_with_every_block_written(probe: FileProbe, folder: Path) -> None:
    assert probe.prepare(folder) == SIZE
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [entry.stat() for entry in folder.iterdir()]
    assert sum(file.st_size for file in files) == SIZE
    assert sum(file.st_blocks * 512 for file in files) >= SIZE, "a hole would be allocated by the window, not rewritten"


def test_a_file_that_is_large_enough_is_not_written_again(probe_of: ProbeOf, folder: Path) -> None:
    probe_of(LOAD).prepare(folder)
    assert probe_of(LOAD).prepare(folder) == 0
    assert probe_of(FileLoad(Mode.REWRITE, 1, BLOCK, area=SIZE // 2)).prepare(folder) == 0
    assert probe_of(FileLoad(Mode.DIRECT, 1, BLOCK, area=3 * SIZE)).prepare(folder) == 2 * SIZE


def test_one_file_serves_every_load(probe_of: ProbeOf, folder: Path) -> None:
    probe_of(LOAD).prepare(folder)
    loads = [
        FileLoad(Mode.SYNC, 2, BLOCK, area=SIZE // 2),
        FileLoad(Mode.FSYNC_100, 2, BLOCK, area=SIZE // 2),
        FileLoad(Mode.REWRITE, 1, BLOCK, area=SIZE // 4),
        FileLoad(Mode.READ, 1, BLOCK, area=SIZE),
        FileLoad(Mode.SCAN, 1, SIZE // 4, area=SIZE),
        FileLoad(Mode.DIRECT, 1, BLOCK, area=SIZE, write_share=0.2),
    ]
    with ThreadPoolExecutor(len(loads)) as pool:  # at once, for a window takes a second at least
        windows = list(pool.map(lambda load: probe_of(load).window(folder, 1.0), loads))
    for load, window in zip(loads, windows, strict=True):
        moved = window.bytes_read + window.bytes_written
        assert moved == pytest.approx(window.iops * window.seconds * load.block_size), load.mode
        share = load.write_share if load.mode.writes else 0.0
        assert window.bytes_written / moved == pytest.approx(share, abs=0.03), load.mode
    assert sum(entry.stat().st_size for entry in folder.iterdir()) == SIZE


def test_overwriting_writes_the_whole_area_and_nothing_beyond_it(probe_of: ProbeOf, folder: Path) -> None:
    probe_of(LOAD).prepare(folder)
    assert probe_of(LOAD).overwrite(folder) == SIZE
    assert probe_of(FileLoad(Mode.DIRECT, 1, BLOCK, area=3 * BLOCK)).overwrite(folder) == 3 * BLOCK
    assert sum(entry.stat().st_size for entry in folder.iterdir()) == SIZE


def test_a_file_that_is_too_small_for_the_load_is_an_error(probe_of: ProbeOf, folder: Path) -> None:
    probe_of(LOAD).prepare(folder)
    larger = probe_of(FileLoad(Mode.DIRECT, 1, BLOCK, area=2 * SIZE))
    for attempt in (lambda: larger.window(folder, 1.0), lambda: larger.overwrite(folder)):
        with pytest.raises(CommandError):
            attempt()
    assert sum(entry.stat().st_size for entry in folder.iterdir()) == SIZE


def test_a_window_writes_and_tells_how_fast(probe: FileProbe, folder: Path) -> None:
    probe.prepare(folder)
    window = probe.window(folder, 1.0)
    assert 0.9 <= window.seconds < 30
    assert window.iops > 0
    assert window.latency_p95_ms >= 0
    assert window.bytes_written == pytest.approx(window.iops * window.seconds * BLOCK)


def test_windows_leave_the_probe_file_as_large_as_it_was(probe: FileProbe, folder: Path) -> None:
    probe.prepare(folder)
    probe.window(folder, 1.0)
    assert sum(entry.stat().st_size for entry in folder.iterdir()) == SIZE


def test_a_window_without_a_probe_file_is_an_error(probe: FileProbe, folder: Path) -> None:
    with pytest.raises(CommandError):
        probe.window(folder, 1.0)
    folder.mkdir()
    with pytest.raises(CommandError):
        probe.window(folder, 1.0)
    assert list(folder.iterdir()) == []


def test_removing_twice_is_as_good_as_once(probe: FileProbe, folder: Path, root: Path) -> None:
    probe.prepare(folder)
    probe.remove(folder)
    probe.remove(folder)
    assert list(root.iterdir()) == []


def test_a_folder_that_bears_no_name_of_ours_is_not_touched(probe: FileProbe, root: Path) -> None:
    schema = root / "shop"
    schema.mkdir()
    (schema / "orders.ibd").write_text("rows")
    with pytest.raises(CommandError):
        probe.remove(schema)
    with pytest.raises(CommandError):
        probe.prepare(schema)
    assert (schema / "orders.ibd").read_text() == "rows"
    assert list(schema.iterdir()) == [schema / "orders.ibd"]


def test_a_folder_that_cannot_be_made_is_an_error(probe: FileProbe, root: Path) -> None:
    with pytest.raises(CommandError):
        probe.prepare(root / "unmounted" / ".backupd-probe-run1")
    assert list(root.iterdir()) == []


def test_an_interrupted_probe_is_usable_again_once_prepared(probe: FileProbe, folder: Path) -> None:
    probe.prepare(folder)
    probe.window(folder, 1.0)
    probe.interrupt()
    with pytest.raises(CommandError, match="interrupted"):
        probe.window(folder, 1.0)
    with pytest.raises(CommandError, match="interrupted"):
        probe.overwrite(folder)
    probe.prepare(folder)
    assert probe.window(folder, 1.0).iops > 0


def test_an_interruption_ends_a_window_of_sysbench_long_before_its_time(folder: Path) -> None:
    probe = SysbenchProbe(LOAD)
    probe.prepare(folder)
    began = time.monotonic()
    timer = threading.Timer(0.2, probe.interrupt)
    timer.start()
    with pytest.raises(CommandError, match="interrupted"):
        probe.window(folder, 50.0)
    timer.join()
    assert time.monotonic() - began < 40


def test_a_symlink_with_a_name_of_ours_is_neither_followed_nor_removed(folder: Path, root: Path) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    probe = SysbenchProbe(LOAD)
    for attempt in (probe.prepare, probe.remove):
        with pytest.raises(CommandError, match="not backupd"):
            attempt(folder)
    assert folder.is_symlink()
    assert list(elsewhere.iterdir()) == []


def test_a_host_without_sysbench_is_told_what_to_install(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    for ask in (lambda: SysbenchProbe(LOAD).prepare(folder), SYSBENCH.installed_version):
        with pytest.raises(CommandError, match="not installed") as caught:
            ask()
        assert caught.value.hint == "apt-get install sysbench"


def test_the_sysbench_that_is_installed_is_recent_enough() -> None:
    assert int(SYSBENCH.installed_version().partition(".")[0]) >= 1


# --- the reader ------------------------------------------------------------------------------------------------------


def test_a_random_window_reads_whole_blocks_and_tells_how_fast(reader: SnapshotReader, file: Path) -> None:
    window = reader.random(file, 0.2, block_size=BLOCK, threads=3)
    assert 0.2 <= window.seconds < 30
    assert window.bytes_written == 0
    assert window.bytes_read == pytest.approx(window.iops * window.seconds * BLOCK)
    assert window.bytes_read >= 3 * BLOCK
    assert 0 < window.latency_avg_ms < 1000


def test_a_scan_reads_a_file_again_and_again(reader: SnapshotReader, file: Path) -> None:
    window = reader.scan(file, 0.3, block_size=SIZE // 2)
    assert window.iops > 0
    assert window.bytes_read > 3 * SIZE
    assert window.bytes_read <= window.iops * window.seconds * SIZE // 2 + 1


def test_a_file_with_too_little_in_it_is_an_error(reader: SnapshotReader, root: Path) -> None:
    small, gone = root / "small", root / "gone"
    small.write_bytes(b"")
    for path in (small, gone):
        with pytest.raises(CommandError):
            reader.scan(path, 0.1)
    small.write_bytes(b"x" * (BLOCK - 1))
    for path in (small, gone):
        with pytest.raises(CommandError):
            reader.random(path, 0.1, block_size=BLOCK, threads=1)


def test_an_interrupted_reader_reads_no_more(reader: SnapshotReader, file: Path) -> None:
    reader.interrupt()
    with pytest.raises(CommandError, match="interrupted"):
        reader.random(file, 0.1, block_size=BLOCK, threads=1)
    with pytest.raises(CommandError, match="interrupted"):
        reader.scan(file, 0.1)


def test_an_interruption_ends_a_reading_long_before_its_time(file: Path) -> None:
    reader = DirectReader()
    began = time.monotonic()
    timer = threading.Timer(0.1, reader.interrupt)
    timer.start()
    with pytest.raises(CommandError, match="interrupted"):
        reader.random(file, 50.0, block_size=BLOCK, threads=2)
    timer.join()
    assert time.monotonic() - began < 40


def test_a_reader_leaves_neither_thread_nor_descriptor(file: Path) -> None:
    gc.collect()  # what tests before have left is no business of the reader's, and may end meanwhile
    before = set(threading.enumerate())
    DirectReader().random(file, 0.05, block_size=BLOCK, threads=4)
    assert set(threading.enumerate()) <= before
    assert file.resolve() not in {descriptor.resolve() for descriptor in Path("/proc/self/fd").iterdir()}


# --- the counters ----------------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_an_error(counters: Counters, tmp_path: Path) -> None:
    with pytest.raises(CommandError):
        counters.disk(DeviceNumber(4095, 1))
    with pytest.raises(CommandError):
        counters.number_of(tmp_path / "gone")
    with pytest.raises(CommandError):
        counters.number_of(tmp_path)


def test_the_fake_disk_counts_what_it_was_asked_and_what_that_cost(disk: FakeDisk, folder: Path) -> None:
    disk.physical = lambda load: (1.0, 2.0)
    disk.probe(LOAD).prepare(folder)
    window = disk.probe(MIXED).window(folder, 2.0)
    asked = disk.counters.disk(disk.origin)
    assert (asked.read_bytes, asked.write_bytes) == (window.bytes_read, window.bytes_written)
    assert asked.write_latency_ms == pytest.approx(window.latency_avg_ms)
    pvs = [disk.counters.disk(disk.counters.number_of(Path(pv))) for pv in disk.pvs]
    assert sum(pv.reads for pv in pvs) == pytest.approx(asked.reads + asked.writes, abs=2)
    assert sum(pv.writes for pv in pvs) == pytest.approx(2 * asked.writes, abs=2)


def test_the_fake_disk_tells_a_snapshots_file_from_the_origins(disk: FakeDisk, folder: Path, file: Path) -> None:
    asked: list[Mode] = []

    def speed(load: FileLoad) -> float:
        asked.append(load.mode)
        return 100.0

    disk.speed = speed
    disk.probe(LOAD).prepare(folder)
    origins = folder / "test_file.0"
    disk.reader.scan(file, 1.0)
    disk.reader.random(file, 1.0, block_size=BLOCK, threads=1)
    assert disk.counters.disk(disk.origin) == DiskCounters(), "a snapshot reads beneath the origin"
    disk.reader.scan(origins, 1.0)
    disk.reader.random(origins, 1.0, block_size=BLOCK, threads=1)
    assert asked == [Mode.SCAN_SNAPSHOT, Mode.READ_SNAPSHOT, Mode.SCAN, Mode.READ]


@pytest.fixture
def mysqls(root: Path) -> Path:
    """The root of a volume, which the database's account owns: it may put there what it likes."""
    folder = root / "volume"
    folder.mkdir()
    os.chown(folder, MYSQL, MYSQL)
    for above in (root, *root.parents[:-2]):
        above.chmod(stat.S_IMODE(above.stat().st_mode) | 0o055)
    return folder


def test_all_that_a_probe_writes_is_the_owner_s_of_the_volume_s_root(mysqls: Path) -> None:
    probe, folder = SysbenchProbe(LOAD), mysqls / ".backupd-probe-run1"
    assert probe.prepare(folder) == SIZE
    assert probe.window(folder, 1.0).bytes_written > 0
    assert probe.overwrite(folder) == SIZE
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {MYSQL}
    assert folder.stat().st_mode & 0o777 == 0o700
    probe.remove(folder)
    assert list(mysqls.iterdir()) == []


def test_a_folder_with_links_in_another_s_place_has_root_write_nothing_elsewhere(mysqls: Path, root: Path) -> None:
    """Whoever owns the folder above renames the probe's and puts his own there; its file leads to root's."""
    precious, probe, folder = root / "precious", SysbenchProbe(LOAD), mysqls / ".backupd-probe-run1"
    precious.write_bytes(b"root's" * SIZE)
    precious.chmod(0o600)
    probe.prepare(folder)
    folder.rename(mysqls / "away")
    folder.mkdir()
    (folder / "test_file.0").symlink_to(precious)
    os.chown(folder, MYSQL, MYSQL)
    for attempt in (lambda: probe.window(folder, 1.0), lambda: probe.prepare(folder), lambda: probe.overwrite(folder)):
        with pytest.raises(CommandError, match="Permission denied"):
            attempt()
    assert precious.read_bytes() == b"root's" * SIZE


def test_a_link_in_the_folder_s_place_is_not_followed(mysqls: Path, root: Path) -> None:
    elsewhere, probe, folder = root / "elsewhere", SysbenchProbe(LOAD), mysqls / ".backupd-probe-run1"
    elsewhere.mkdir(mode=0o755)
    probe.prepare(folder)
    (folder / "test_file.0").rename(elsewhere / "test_file.0")
    folder.rmdir()
    folder.symlink_to(elsewhere)
    before = (elsewhere / "test_file.0").read_bytes()
    for attempt in (lambda: probe.window(folder, 1.0), lambda: probe.overwrite(folder)):
        with pytest.raises(CommandError, match="cannot open the probe folder"):
            attempt()
    assert (elsewhere / "test_file.0").read_bytes() == before


def test_the_database_s_account_learns_nothing_from_sysbench_s_environment(
    mysqls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever a process runs as can read what it was started with: a password may be in ours."""
    monkeypatch.setenv("DB1_PASSWORD", "c4n4ry")
    folder, seen = mysqls / ".backupd-probe-run1", set[bytes]()
    probe = SysbenchProbe(LOAD)
    probe.prepare(folder)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(probe.window, folder, 1.0)
        while not running.done():
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if process.stat().st_uid == MYSQL:
                        seen.add((process / "environ").read_bytes())
                except OSError:
                    continue
    assert running.result().bytes_written > 0
    assert any(b"LC_ALL=C" in each for each in seen)
    assert not [each for each in seen if b"c4n4ry" in each]


def test_a_pipe_in_the_file_s_place_keeps_no_reader_waiting(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CommandError):
        DirectReader().scan(file, 1.0, block_size=BLOCK)


def test_a_folder_that_somebody_has_filled_as_deep_as_he_could_is_removed(root: Path) -> None:
    folder = root / ".backupd-probe-run1"
    deepest = folder.joinpath(*["d"] * 1200)
    for parent in (*reversed(deepest.parents), deepest):
        if parent.is_relative_to(folder):
            parent.mkdir()
    try:
        SysbenchProbe(LOAD).remove(folder)
        assert not folder.exists()
    finally:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=True)  # pytest's own removal would end as Python's does
