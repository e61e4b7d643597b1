"""Content is read in large requests, one at a time, past the page cache; and no disk can hold a copy up for ever."""

import errno
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.archive.packing import CopyManner
from backupd.archive.pipeline import BLOCK_BYTES, BLOCKS_PER_QUEUE
from backupd.archive.source_file import (
    REQUEST_BYTES,
    Content,
    Part,
    ReadingThread,
    ReadSpan,
    SourceFile,
    batches,
    size_of,
)
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import store_content, store_streams
from backupd.vocabulary.errors import GaveUp, SnapshotError
from tests.direct_io import folder_outside_memory, let_go, pages_in_memory
from tests.manners import usual_manner
from tests.unit.test_archive_streams import Objects

MIB = 1 << 20


class Disk:
    """Tells what was asked of it, and may answer otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, int]] = []  # offset and length
        self.before: Callable[[], object] = lambda: None
        self.in_flight = self.most_in_flight = 0
        self._read = os.preadv
        monkeypatch.setattr(os, "preadv", self.preadv)

    def preadv(self, file: int, buffers: Sequence[Any], offset: int) -> int:
        self.asked.append((offset, sum(len(buffer) for buffer in buffers)))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.before()
            return self._read(file, buffers, offset)
        finally:
            self.in_flight -= 1


class Pacing:
    def __init__(self, act: Callable[[int], None] = lambda _size: None) -> None:
        self.paced = 0
        self._act = act

    def pace(self, size: int) -> None:
        self.paced += size
        self._act(size)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")] == []


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    root = folder / "root"
    root.mkdir()
    (root / "large").write_bytes(os.urandom(9 * MIB + 77))
    for number in range(40):
        (root / f"small-{number:02}").write_bytes(os.urandom(number * 1000))
    let_go(root / "large")
    return root


def stored(root: Path, *, pacing: Pacing | None = None, streams: int = 1, manner: CopyManner | None = None) -> int:
    """How many plain bytes."""
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    manner = manner or usual_manner(pacing or Pacing())
    told = store_streams(root, listing, Objects().opening, streams=streams, manner=manner)
    return sum(each.plain_bytes for each in told.objects)


def test_nothing_that_was_read_is_in_the_page_cache(tmp_path: Path) -> None:
    with folder_outside_memory(tmp_path) as folder:
        large = filled(folder) / "large"
        assert pages_in_memory(large) == 0
        stored(large.parent)
        assert pages_in_memory(large) == 0


def refuses_to_open(monkeypatch: pytest.MonkeyPatch, _disk: Disk) -> None:
    opened = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)


def refuses_the_first_read(_monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    answers = iter([OSError(errno.EINVAL, "Invalid argument")])

    def refuse() -> None:
        if (error := next(answers, None)) is not None:
            raise error

    disk.before = refuse


@pytest.mark.parametrize("refuse", [refuses_to_open, refuses_the_first_read])
def test_where_direct_reads_are_refused_pages_are_given_back(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[pytest.MonkeyPatch, Disk], None]
) -> None:
    given_back: list[tuple[int, int]] = []

    def advise(_file: int, offset: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            given_back.append((offset, size))

    refuse(monkeypatch, disk)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    assert stored(root) > 9 * MIB
    assert {(0, 4 * MIB), (4 * MIB, 4 * MIB)} <= set(given_back)
    assert sum(size for _, size in given_back) >= 9 * MIB


def test_a_file_system_that_takes_no_direct_reads_is_told_once_in_a_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy has a reader for its binlog as well."""
    refuses_to_open(monkeypatch, disk)
    (root / "other").write_bytes(os.urandom(MIB))
    manner = usual_manner(Pacing())
    with caplog.at_level(logging.INFO):
        stored(root, streams=2, manner=manner)
        stored(root, manner=manner)
    told = [record for record in caplog.records if "takes no direct reads (Invalid argument)" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.INFO]


def test_requests_are_large_and_aligned_and_one_is_in_flight_for_all_streams(root: Path, disk: Disk) -> None:
    (root / "other").write_bytes(os.urandom(5 * MIB))
    stored(root, streams=3)
    assert all(offset % 4096 == 0 and size % 4096 == 0 for offset, size in disk.asked)
    assert sorted(size for _, size in disk.asked)[-3:] == [REQUEST_BYTES] * 3
    assert len(disk.asked) == 39 + 3 + 2  # an empty file is none
    assert disk.most_in_flight == 1


def test_governor_lets_every_byte_pass_once_and_before_it_is_read(root: Path, disk: Disk) -> None:
    pacing = Pacing()
    read_at: list[tuple[int, int]] = []
    disk.before = lambda: read_at.append((sum(size for _, size in disk.asked[:-1]), pacing.paced))
    assert stored(root, pacing=pacing, streams=2) == pacing.paced
    aligned = 4096 * len(disk.asked)
    assert all(before < paced + aligned for before, paced in read_at)
    assert all(earlier <= later for (_, earlier), (_, later) in pairwise(read_at))


def test_small_objects_are_paced_once_too() -> None:
    pacing = Pacing()
    store_content("index.jsonl.zst", [b"x" * 1000, b"y"], open_object=Objects().opening, manner=usual_manner(pacing))
    assert pacing.paced == 1001


def test_read_that_fails_names_the_file_and_what_to_look_at(root: Path, disk: Disk) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk.before = fail
    with pytest.raises(
        SnapshotError, match=r"^(large|small-\d\d) could not be read from the snapshot: Input/output"
    ) as failed:
        stored(root)
    assert "intact (lvs)" in (failed.value.hint or "")


def test_governor_ends_a_copy_whose_disk_does_not_answer(root: Path, disk: Disk) -> None:
    answers = threading.Event()
    disk.before = lambda: answers.wait(20)
    asked: list[int] = []

    def give_up(size: int) -> None:
        asked.append(size)
        if asked[-3:] == [0, 0, 0]:
            answers.set()
            raise GaveUp("nothing moves")

    with pytest.raises(GaveUp):
        stored(root, pacing=Pacing(give_up))


def test_disk_that_never_answers_does_not_keep_a_copy_from_ending(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("backupd.archive.source_file._JOIN_SECONDS", 0.1)
    answers = threading.Event()
    disk.before = lambda: answers.wait(20)

    def give_up(_size: int) -> None:
        if disk.asked:
            raise GaveUp("nothing moves")

    with pytest.raises(GaveUp):
        stored(root, pacing=Pacing(give_up))
    assert "is blocked in a call; it ends with this process" in caplog.text
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("backupd"):
            thread.join(60)


# --- batches ---------------------------------------------------------------------------------------------------------

SOURCE = SourceFile(b"/nowhere", b"nowhere", os.stat("/"))  # noqa: PTH116 - as `SourceFile` has it
PARTS = st.lists(
    st.sampled_from([1, 512, 3000, 9 * MIB]).map(bytes)
    | st.integers(1, REQUEST_BYTES).map(lambda size: ReadSpan(SOURCE, [(0, size)])),
    min_size=1,
    max_size=60,
)


@given(PARTS)
def test_batches_are_the_stream_and_fit_into_an_empty_queue(parts: list[Part]) -> None:
    made = list(batches(iter(parts)))
    assert [part for batch in made for part in batch.parts] == parts
    for batch in made:
        assert batch.size == sum(map(size_of, batch.parts))
        assert 1 <= batch.blocks <= BLOCKS_PER_QUEUE
        large = [part for part in batch.parts if size_of(part) > BLOCK_BYTES]
        assert large in ([], [batch.parts[-1]]) or len(batch.parts) == 1


def test_small_files_do_not_cost_a_batch_each(root: Path) -> None:
    small = [ReadSpan(SOURCE, [(0, 1000)]) for _ in range(1000)]
    assert len(list(batches(iter(small)))) == 1


def test_blocks_of_a_batch_are_about_as_large_as_each_other(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content := os.urandom(REQUEST_BYTES))
    source = SourceFile(bytes(tmp_path / "t"), b"t", (tmp_path / "t").stat())
    [batch] = batches(iter([b"header", ReadSpan(source, [(0, REQUEST_BYTES)])]))
    blocks = Content(lambda: None).blocks(batch)
    assert len(blocks) == batch.blocks == 4
    assert b"".join(blocks) == b"header" + content
    assert max(map(len, blocks)) <= BLOCK_BYTES + 2


def test_thread_that_reads_is_not_in_the_idle_class_where_the_servers_writes_would_wait_for_it() -> None:
    def look(_content: Content) -> str:
        argv = ["ionice", "-p", str(threading.get_native_id())]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    with ReadingThread(gently=True, idle=lambda: None) as reader:
        assert reader.do(look) == "best-effort: prio 7"


def test_file_that_a_server_appends_to_is_read_through_its_pages_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A direct read would hold its lock until the disk has answered, and a commit would wait for that."""
    (tmp_path / "binlog").write_bytes(content := os.urandom(1 << 20))
    flags: set[int] = set()
    sizes: list[int] = []
    opened, read = os.open, os.preadv

    def noted(path: bytes, how: int) -> int:
        flags.add(how & os.O_DIRECT)
        return opened(path, how)

    def counted(file: int, into: Sequence[memoryview], at: int) -> int:
        sizes.append(sum(map(len, into)))
        return read(file, into, at)

    monkeypatch.setattr("os.open", noted)
    monkeypatch.setattr("os.preadv", counted)
    source = SourceFile(bytes(tmp_path / "binlog"), b"binlog", (tmp_path / "binlog").stat(), live=True)
    [batch] = batches(iter([ReadSpan(source, [(0, len(content))])]))
    assert b"".join(Content(lambda: None).blocks(batch)) == content
    assert (flags, max(sizes)) == ({0}, 256 << 10)
