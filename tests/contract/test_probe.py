"""What every write probe promises: the fake that stories are tested with, and sysbench on a disk."""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.errors import CommandError
from backupd.probe import WriteProbe
from backupd.probe.sysbench import FileioLoad, SysbenchProbe
from tests.fakes.probe import FakeProbe

SIZE = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder that takes direct I/O; an older kernel's tmpfs takes none, then it is one on the checkout's disk."""
    if _takes_direct_io(tmp_path):
        yield tmp_path
        return
    cache = Path(__file__).parents[2] / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        yield Path(folder)


@pytest.fixture
def folder(root: Path) -> Path:
    return root / ".backupd-run1"


@pytest.fixture(params=["fake", "sysbench"])
def probe(request: pytest.FixtureRequest) -> WriteProbe:
    return FakeProbe(file_size=SIZE) if request.param == "fake" else SysbenchProbe(FileioLoad(file_size=SIZE))


def test_prepare_makes_a_private_folder_with_every_block_written(probe: WriteProbe, folder: Path) -> None:
    assert probe.prepare(folder) == SIZE
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [entry.stat() for entry in folder.iterdir()]
    assert sum(file.st_size for file in files) == SIZE
    assert sum(file.st_blocks * 512 for file in files) >= SIZE, "a hole would be allocated by the window, not rewritten"


def test_a_window_writes_and_tells_how_fast(probe: WriteProbe, folder: Path) -> None:
    probe.prepare(folder)
    window = probe.window(folder, 1.0)
    assert 0.9 <= window.seconds < 30
    assert window.iops > 0
    assert window.latency_p95_ms >= 0
    assert window.bytes_written == pytest.approx(window.iops * window.seconds * (16 << 10))


def test_windows_leave_the_probe_file_as_large_as_it_was(probe: WriteProbe, folder: Path) -> None:
    probe.prepare(folder)
    probe.window(folder, 1.0)
    assert sum(entry.stat().st_size for entry in folder.iterdir()) == SIZE


def test_a_window_without_a_probe_file_is_an_error(probe: WriteProbe, folder: Path) -> None:
    with pytest.raises(CommandError):
        probe.window(folder, 1.0)
    folder.mkdir()
    with pytest.raises(CommandError):
        probe.window(folder, 1.0)
    assert list(folder.iterdir()) == []


def test_removing_twice_is_as_good_as_once(probe: WriteProbe, folder: Path, root: Path) -> None:
    probe.prepare(folder)
    probe.remove(folder)
    probe.remove(folder)
    assert list(root.iterdir()) == []


def test_a_folder_that_bears_no_name_of_ours_is_not_touched(probe: WriteProbe, root: Path) -> None:
    schema = root / "shop"
    schema.mkdir()
    (schema / "orders.ibd").write_text("rows")
    with pytest.raises(CommandError):
        probe.remove(schema)
    with pytest.raises(CommandError):
        probe.prepare(schema)
    assert (schema / "orders.ibd").read_text() == "rows"
    assert list(schema.iterdir()) == [schema / "orders.ibd"]


def test_a_folder_that_cannot_be_made_is_an_error(probe: WriteProbe, root: Path) -> None:
    with pytest.raises(CommandError):
        probe.prepare(root / "unmounted" / ".backupd-run1")
    assert list(root.iterdir()) == []


def test_an_interrupted_probe_is_usable_again_once_prepared(probe: WriteProbe, folder: Path) -> None:
    probe.prepare(folder)
    probe.window(folder, 1.0)
    probe.interrupt()
    with pytest.raises(CommandError, match="interrupted"):
        probe.window(folder, 1.0)
    probe.prepare(folder)
    assert probe.window(folder, 1.0).iops > 0


def test_an_interruption_ends_a_window_of_sysbench_long_before_its_time(folder: Path) -> None:
    probe = SysbenchProbe(FileioLoad(file_size=SIZE))
    probe.prepare(folder)
    began = time.monotonic()
    timer = threading.Timer(0.2, probe.interrupt)
    timer.start()
    with pytest.raises(CommandError, match="interrupted"):
        probe.window(folder, 50.0)
    timer.join()
    assert time.monotonic() - began < 10


def test_a_symlink_with_a_name_of_ours_is_neither_followed_nor_removed(folder: Path, root: Path) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    probe = SysbenchProbe(FileioLoad(file_size=SIZE))
    for attempt in (probe.prepare, probe.remove):
        with pytest.raises(CommandError, match="not ours"):
            attempt(folder)
    assert folder.is_symlink()
    assert list(elsewhere.iterdir()) == []


def test_a_host_without_sysbench_is_told_what_to_install(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    with pytest.raises(CommandError, match="not installed") as caught:
        SysbenchProbe().prepare(folder)
    assert caught.value.hint == "apt-get install sysbench"


def _takes_direct_io(folder: Path) -> bool:
    path = folder / "direct"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True
