"""The cache of prepared disks: what makes two sets the same, and who may touch one when."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.lab import images
from backupd.lab.options import Filesystem, LabLayout, LabOptions, ServerKind
from backupd.lab.sizes import SPARE_DISK, Sizes, sizes_for

SMALL = Sizes(volume=12 * 2**20, disk=8 * 2**20, scratch=4 * 2**20)


def _key(
    *,
    layout: LabLayout = LabLayout.STRIPED,
    filesystem: Filesystem = Filesystem.XFS,
    rows: int = 1000,
    thin: bool = False,
    kind: ServerKind = ServerKind.MARIADB_10,
    spare_disks: int = 0,
    server: str = "10.11.19",
    sources: str = "abc",
) -> str:
    options = LabOptions(layout=layout, filesystem=filesystem, rows=rows, thin=thin, server=kind)
    options = replace(options, spare_disks=spare_disks)
    return images.cache_key(options, server=server, sizes=sizes_for(rows), sources=sources)


def test_the_same_options_have_the_same_key() -> None:
    assert _key() == _key()


@pytest.mark.parametrize(
    "other",
    [
        _key(layout=LabLayout.LINEAR),
        _key(filesystem=Filesystem.EXT4),
        _key(rows=1001),
        _key(thin=True),
        _key(kind=ServerKind.MARIADB_11),
        _key(server="10.11.20"),
        _key(sources="abd"),
    ],
)
def test_everything_that_matters_changes_the_key(other: str) -> None:
    assert other != _key()


def test_spare_disks_do_not_change_the_key() -> None:
    assert _key(spare_disks=2) == _key()


def test_spare_disks_are_empty_and_take_no_room_yet(tmp_path: Path) -> None:
    assert images.make_spares(tmp_path, 0) == []
    spares = images.make_spares(tmp_path, 2)
    assert not {path.name for path in spares} & set(images.DISKS)
    assert [path.stat().st_size for path in spares] == [SPARE_DISK] * 2
    assert [path.stat().st_blocks for path in spares] == [0, 0]


def test_the_cache_follows_the_xdg_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert images.cache_folder() == tmp_path / "backupd" / "lab"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert images.cache_folder() == tmp_path / ".cache" / "backupd" / "lab"


def _prepare(folder: Path) -> None:
    for path in images.make_blank(folder, SMALL):
        with path.open("r+b") as file:
            file.write(path.name.encode())


def test_copies_are_equal_and_still_sparse(tmp_path: Path) -> None:
    with images.kept(tmp_path / "cache", "a-1", _prepare) as prepared:
        copies = images.copy_disks(prepared, tmp_path)
        assert [path.read_bytes() for path in copies] == [(prepared / path.name).read_bytes() for path in copies]
    assert [path.stat().st_size for path in copies] == [SMALL.disk] * 4 + [SMALL.scratch]
    assert all(path.stat().st_blocks * 512 < 2**20 for path in copies)


def test_a_second_lab_prepares_nothing(tmp_path: Path) -> None:
    with images.kept(tmp_path, "a-1", _prepare) as first:
        inode = first.stat().st_ino

    def never(_: Path) -> None:
        pytest.fail("prepared again")

    with images.kept(tmp_path, "a-1", never) as second:
        assert second.stat().st_ino == inode


def test_of_two_labs_at_once_one_prepares_and_the_other_waits_for_it(tmp_path: Path) -> None:
    preparing, go_on, seen = threading.Event(), threading.Event(), []

    def slowly(folder: Path) -> None:
        preparing.set()
        assert go_on.wait(60)
        _prepare(folder)

    def lab() -> None:
        with images.kept(tmp_path, "a-1", slowly) as prepared:
            seen.append(sorted(path.name for path in prepared.iterdir()))

    labs = [threading.Thread(target=lab) for _ in range(2)]
    labs[0].start()
    assert preparing.wait(60)
    preparing.clear()
    labs[1].start()
    go_on.set()
    for thread in labs:
        thread.join(60)
    assert seen == [sorted(images.DISKS)] * 2
    assert not preparing.is_set()


def test_who_uses_what_is_kept_holds_up_nobody_who_wants_the_same(tmp_path: Path) -> None:
    """A server's root is used for as long as its lab runs, by the lab that fetched it too."""
    with images.kept(tmp_path, "a-1", _prepare) as first, images.kept(tmp_path, "a-1", _prepare) as second:
        assert second == first


def test_labs_that_wait_while_one_prepares_are_all_let_in(tmp_path: Path) -> None:
    """And not one after the other's end: each is in its block until all are."""
    preparing, inside = threading.Semaphore(0), threading.Barrier(4)

    def slowly(folder: Path) -> None:
        assert preparing.acquire(timeout=10)
        _prepare(folder)

    def lab() -> None:
        with images.kept(tmp_path, "a-1", slowly):
            inside.wait(10)

    labs = [threading.Thread(target=lab, daemon=True) for _ in range(3)]
    for thread in labs:
        thread.start()
    lock = tmp_path / "a-1.lock"
    _wait_until(lambda: lock.exists() and _waiters(lock) == 2)
    preparing.release()
    inside.wait(10)
    for thread in labs:
        thread.join(60)


def _waiters(lock: Path) -> int:
    """Who waits for it, as the kernel tells."""
    inode = f":{lock.stat().st_ino} "
    return sum("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_disks_of_one_server_do_not_replace_those_of_another(tmp_path: Path) -> None:
    keys = [_key(kind=kind) for kind in ServerKind]
    for key in keys:
        with images.kept(tmp_path, key, _prepare):
            pass
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted(keys)


def test_a_preparation_that_failed_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        _prepare(folder)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"), images.kept(tmp_path, "a-1", fail):
        pytest.fail("there is nothing to use")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_preparation_that_was_blocked_is_no_lock_that_somebody_holds(tmp_path: Path) -> None:
    def blocked(_: Path) -> None:
        raise BlockingIOError("a pipe that nobody reads")

    with pytest.raises(BlockingIOError, match="a pipe"), images.kept(tmp_path, "a-1", blocked):
        pytest.fail("there is nothing to use")


def test_clean_removes_what_nobody_uses_and_leaves_what_somebody_does(tmp_path: Path) -> None:
    with images.kept(tmp_path, "a-1", _prepare), images.kept(tmp_path, "b-1", _prepare):
        pass
    with images.kept(tmp_path, "a-1", _prepare):
        assert images.clean(tmp_path) == ["b-1"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1", "a-1.lock"]
    assert images.clean(tmp_path) == ["a-1"]
    assert list(tmp_path.iterdir()) == []


def test_new_disks_replace_those_of_older_sources_and_no_others(tmp_path: Path) -> None:
    for key in ("striped-xfs-1-old", "striped-xfs-10-old", "striped-xfs-1-new"):
        with images.kept(tmp_path, key, _prepare):
            pass
    kept = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert kept == ["striped-xfs-1-new", "striped-xfs-10-old"]


def test_cleaning_a_cache_that_was_never_made_is_no_error(tmp_path: Path) -> None:
    assert images.clean(tmp_path / "none") == []
