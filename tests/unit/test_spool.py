"""Plain bytes through a file on another disk: what comes back, what it may take, and in how much memory."""

import errno
import os
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path

import pytest

from backupd.archive import pipeline
from backupd.archive import spool as spool_module
from backupd.archive.pipeline import BLOCK_BYTES
from backupd.archive.sending import store_spooled
from backupd.archive.spool import Spool, Spooled, read_back
from backupd.vocabulary.errors import SpoolError
from tests.manners import usual_manner

MIB = 1 << 20


class Nowhere:
    """A sink that keeps nothing."""

    def write(self, data: bytes) -> None:
        """Take it."""


@pytest.fixture(params=["past the page cache", "through it"])
def folder(request: pytest.FixtureRequest, path_in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a file system that knows direct I/O, and on one that refuses it."""
    really = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if not flags & os.O_DIRECT:
            return really(path, flags, mode)
        if flags & os.O_CREAT:  # the kernel makes the file before it refuses
            os.close(really(path, flags & ~os.O_DIRECT, mode))
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    if request.param == "through it":
        monkeypatch.setattr(os, "open", refuse)
    return path_in_memory


def spool(folder: Path, *, size: int | None = None, room: int = 1 << 30) -> Spool:
    return Spool(folder, size=size, room=lambda: room)


def spooled(into: Spool, name: str, blocks: Iterator[bytes], *, at_most: int) -> Spooled:
    spooling = into.spooling(name, at_most=at_most, manner=usual_manner(gently=False))
    assert spooling is not None
    with spooling:
        for block in blocks:
            spooling.write(block)
        return spooling.finish()


@pytest.mark.parametrize("sizes", [[], [1], [4096], [MIB] * 4, [MIB] * 4 + [513], [100_000] * 100])
def test_what_is_read_back_is_what_was_written_whatever_the_blocks(folder: Path, sizes: list[int]) -> None:
    content = b"".join(os.urandom(size) for size in sizes)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    pieces = (content[start : start + size] for start, size in zip(starts, sizes, strict=True))
    found = spooled(spool(folder), "data-1.tar.zst", pieces, at_most=16 * MIB)
    assert (found.size, found.sha256) == (len(content), sha256(content).hexdigest())
    assert found.path.stat().st_blocks * 512 <= len(content) + MIB
    assert b"".join(read_back(found)) == content


def test_an_object_has_its_room_to_itself_and_gives_back_what_it_did_not_take(folder: Path) -> None:
    into = spool(folder, size=64 * MIB)
    first = into.spooling("data-1.tar.zst", at_most=40 * MIB, manner=usual_manner())
    assert first is not None
    assert into.spooling("data-2.tar.zst", at_most=40 * MIB, manner=usual_manner()) is None
    with first:
        first.write(bytes(MIB))
        first.finish()
    assert into.room == 63 * MIB
    assert into.trouble == []


def test_what_was_not_finished_leaves_no_file_and_no_quota_behind(folder: Path) -> None:
    into = spool(folder, size=64 * MIB)
    spooling = into.spooling("data-1.tar.zst", at_most=40 * MIB, manner=usual_manner())
    assert spooling is not None
    with spooling:
        spooling.write(bytes(MIB))
    assert ([*folder.iterdir()], into.room) == ([], 64 * MIB)


def test_more_than_was_reserved_is_not_written(folder: Path) -> None:
    with pytest.raises(SpoolError, match="larger than the 1048576 bytes that were reserved"):
        spooled(spool(folder), "data-1.tar.zst", iter([bytes(MIB), b"x"]), at_most=MIB)


def test_a_file_that_somebody_has_put_there_is_not_written_through(folder: Path) -> None:
    (folder / "data-1.tar.zst").symlink_to(folder / "elsewhere")
    with pytest.raises(SpoolError, match="the spool could not be written: File exists"):
        spooled(spool(folder), "data-1.tar.zst", iter([b"x"]), at_most=MIB)
    assert [file.name for file in folder.iterdir()] == ["data-1.tar.zst"]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT])
def test_a_disk_that_does_not_tell_its_room_takes_nothing_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    answer = threading.Event()

    def room() -> int:
        if number == errno.ETIMEDOUT:
            answer.wait()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(spool_module, "_PATIENCE_SECONDS", 0.01)
    into = Spool(folder, size=None, room=room)
    assert (into.room, into.room) == (0, 0)
    assert into.spooling("data-1.tar.zst", at_most=MIB, manner=usual_manner()) is None
    answer.set()
    assert len(into.trouble) == 1
    assert into.trouble[0].startswith("the spool could not be asked for its room: ")


def test_what_is_reserved_is_nobody_else_s_where_the_file_system_allocates_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "_allocate", lambda _file, _size: False)
    into = spool(folder, room=100 * MIB)
    first = into.spooling("data-1.tar.zst", at_most=80 * MIB, manner=usual_manner())
    assert first is not None
    assert into.room == 20 * MIB
    with first:
        first.write(bytes(MIB))
        first.finish()
    assert into.room == 100 * MIB


def test_what_others_need_meanwhile_is_left_to_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_LOOK_BYTES", 4 * MIB)
    left = [64 * MIB, 4 * MIB]
    into = Spool(folder, size=None, room=lambda: left.pop(0) if left else -1)
    with pytest.raises(SpoolError, match="the spool's file system has run out of free space"):
        spooled(into, "data-1.tar.zst", (bytes(MIB) for _ in range(32)), at_most=32 * MIB)
    assert [*folder.iterdir()] == []


def test_a_disk_that_hangs_at_the_first_byte_keeps_nobody_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_JOIN_SECONDS", 0.01)
    goes_on, hung, really = threading.Event(), threading.Event(), os.open

    def hang(path: Path, flags: int, mode: int = 0o777) -> int:
        hung.set()
        goes_on.wait()
        return really(path, flags, mode)

    monkeypatch.setattr(os, "open", hang)
    spooling = spool(folder).spooling("data-1.tar.zst", at_most=MIB, manner=usual_manner(gently=False))
    assert spooling is not None
    with pytest.raises(KeyboardInterrupt), spooling:
        spooling.write(b"x")
        hung.wait()
        raise KeyboardInterrupt
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("backupd")]
    goes_on.set()
    for thread in threads:
        thread.join()
    assert [*folder.iterdir()] == []


@pytest.mark.thorough
def test_bytes_cost_no_memory_on_either_way(folder: Path) -> None:
    def opened(_name: str) -> AbstractContextManager[Nowhere]:
        return nullcontext(Nowhere())

    def way(count: int) -> int:
        tracemalloc.start()
        found = spooled(spool(folder), f"plain-{count}", (bytes(BLOCK_BYTES) for _ in range(count)), at_most=256 * MIB)
        store_spooled([found], opened, streams=1, manner=usual_manner(gently=False))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert way(32) < way(8) + 4 * MIB
