"""Disks that forget: what they hold, what is written down of them, and what a power cut leaves."""

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.power import nbd
from tests.power.cuts import SECTOR, Kept, Mode, Replay, kept
from tests.power.image import PAGE, Image
from tests.power.recording import Journal, Kind, Request, requests

SIZE = 64 * PAGE
MANY_WRITES = 300


def write(at: int, length: int = PAGE, *, offset: int = 0, durable: bool = False, disk: int = 0) -> Request:
    return Request(Kind.WRITE, disk, offset, length, durable, at)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "recording")


def test_an_image_holds_what_was_written_last_wherever_that_begins(journal: Journal) -> None:
    chance, model, image = random.Random(19), bytearray(SIZE), Image(SIZE, [journal.descriptor])
    for _ in range(MANY_WRITES):
        length = chance.randint(1, 24) * SECTOR
        offset = chance.randrange(0, SIZE - length, SECTOR)
        data = chance.randbytes(length)
        at = journal.append(Kind.WRITE, 0, offset, data)
        image.wrote(offset, length, (0, at))
        model[offset : offset + length] = data
        begin, count = chance.randrange(SIZE - PAGE), chance.randint(1, PAGE)
        assert image.read(begin, count) == model[begin : begin + count]
    assert image.read(0, SIZE) == model


def test_a_copy_of_an_image_goes_its_own_way(journal: Journal) -> None:
    image = Image(SIZE, [journal.descriptor])
    image.wrote(0, PAGE, (0, journal.append(Kind.WRITE, 0, 0, b"a" * PAGE)))
    other = image.copy()
    other.wrote(0, SECTOR, (0, journal.append(Kind.WRITE, 0, 0, b"b" * SECTOR)))
    assert image.read(0, PAGE) == b"a" * PAGE
    assert other.read(0, PAGE) == b"b" * SECTOR + b"a" * (PAGE - SECTOR)


def test_a_recording_is_read_as_it_was_written_and_ends_with_its_last_whole_request(journal: Journal) -> None:
    first = journal.append(Kind.WRITE, 1, 8192, b"x" * 512, durable=True)
    journal.append(Kind.FLUSH, 2)
    second = journal.append(Kind.WRITE, 0, 0, b"y" * 3_000_000)
    journal.append(Kind.WRITE, 0, 0, b"cut off")
    os.ftruncate(journal.descriptor, os.fstat(journal.descriptor).st_size - 1)
    assert list(requests(journal.descriptor)) == [
        write(first, 512, offset=8192, durable=True, disk=1),
        Request(Kind.FLUSH, 2),
        write(second, 3_000_000),
    ]
    assert journal.count == 4


def replayed(journal: Journal, *asked: tuple[str, bytes]) -> Replay:
    """A disk of one page per letter; `flush` or a letter's position, and what is written there."""
    for what, data in asked:
        if what == "flush":
            journal.append(Kind.FLUSH, 0)
        else:
            journal.append(Kind.WRITE, 0, int(what) * PAGE, data * PAGE)
    return Replay(list(requests(journal.descriptor)), {0: Image(SIZE, [journal.descriptor])})


def test_nothing_but_what_a_flush_came_after_is_left_where_the_cache_forgets(journal: Journal) -> None:
    replay = replayed(journal, ("0", b"a"), ("flush", b""), ("0", b"b"), ("1", b"c"))
    replay.advance(4)
    after, forgotten = replay.cut(Mode.NOTHING, random.Random(1))
    assert after[0].read(0, 2 * PAGE) == b"a" * PAGE + bytes(PAGE)
    assert (forgotten.kept_bytes, forgotten.lost_bytes) == (0, 2 * PAGE)


def test_a_replay_goes_on_after_a_cut_as_if_there_had_been_none(journal: Journal) -> None:
    replay = replayed(journal, ("0", b"a"), ("1", b"b"), ("flush", b""))
    replay.advance(2)
    replay.cut(Mode.NOTHING, random.Random(1))
    replay.advance(3)
    after, _ = replay.cut(Mode.NOTHING, random.Random(1))
    assert after[0].read(0, 2 * PAGE) == b"a" * PAGE + b"b" * PAGE


def test_a_flush_of_one_disk_makes_nothing_durable_on_another(journal: Journal) -> None:
    journal.append(Kind.WRITE, 0, 0, b"a" * PAGE)
    journal.append(Kind.FLUSH, 1)
    images = {disk: Image(SIZE, [journal.descriptor]) for disk in (0, 1)}
    replay = Replay(list(requests(journal.descriptor)), images)
    replay.advance(2)
    after, _ = replay.cut(Mode.NOTHING, random.Random(1))
    assert after[0].read(0, PAGE) == bytes(PAGE)


@pytest.mark.parametrize("mode", Mode)
def test_a_write_that_asked_to_be_durable_is_always_left(mode: Mode) -> None:
    durable = write(16, durable=True)
    for seed in range(50):
        assert Kept(durable, 0, PAGE) in list(kept([write(0), durable, write(99)], mode, random.Random(seed)))


def test_of_what_was_not_flushed_any_may_be_left_and_parts_of_it_and_in_order() -> None:
    pending = [write(at, 8 * SECTOR) for at in range(20)]
    seen_whole = seen_torn = seen_gone = False
    for seed in range(100):
        found = list(kept(pending, Mode.SOME, random.Random(seed)))
        order = [part.request.at for part in found]
        assert order == sorted(order)
        whole = {part.request.at for part in found if part.length == 8 * SECTOR}
        torn = set(order) - whole
        seen_whole, seen_torn = seen_whole or bool(whole), seen_torn or bool(torn)
        seen_gone = seen_gone or len(whole | torn) < len(pending)
    assert (seen_whole, seen_torn, seen_gone) == (True, True, True)


def test_where_the_cache_was_empty_only_the_last_write_is_torn_and_from_its_end() -> None:
    pending = [write(at, 8 * SECTOR) for at in range(5)]
    lengths = set()
    for seed in range(100):
        found = list(kept(pending, Mode.ALL_BUT_THE_LAST, random.Random(seed)))
        assert found[:4] == [Kept(request, 0, 8 * SECTOR) for request in pending[:4]]
        lengths |= {part.length for part in found[4:]}
        assert all(part.begin == 0 for part in found)
    assert lengths == {count * SECTOR for count in range(1, 9)}


class Memory:
    """A disk, and what was asked of it."""

    def __init__(self) -> None:
        self.size = SIZE
        self.data = bytearray(SIZE)
        self.asked: list[str] = []

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes, *, durable: bool) -> None:
        if offset == SIZE - SECTOR:
            raise OSError("no room")
        self.data[offset : offset + len(data)] = data
        self.asked.append("durable write" if durable else "write")

    def flush(self) -> None:
        self.asked.append("flush")


Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def disk() -> Memory:
    return Memory()


@pytest.fixture(params=["export-name", "go"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, disk: Memory) -> Iterator[Ask]:
    """A client that has agreed with the server, by the option of old or by the one of today, after a refused one."""
    path = tmp_path / "disk"
    nbd.serve(path, disk)
    with closing(socket.socket(socket.AF_UNIX)) as client, client.makefile("rb") as answers:
        client.connect(str(path))
        magic, options, flags = struct.unpack(">QQH", answers.read(18))
        assert (magic, options, flags) == (0x4E42444D41474943, 0x49484156454F5054, 3)
        client.sendall(struct.pack(">I", 3))
        client.sendall(struct.pack(">QII", options, 3, 0))  # a list of the exports
        assert struct.unpack(">QIII", answers.read(20))[2] == 2**31 + 1
        if request.param == "go":
            client.sendall(struct.pack(">QII", options, 7, 6) + bytes(6))
            assert struct.unpack(">QIII", answers.read(20))[1:] == (7, 3, 12)
            assert struct.unpack(">HQH", answers.read(12)) == (0, SIZE, 13)
            assert struct.unpack(">QIII", answers.read(20))[2] == 1
        else:
            client.sendall(struct.pack(">QII", options, 1, 0))
            assert struct.unpack(">QH", answers.read(10)) == (SIZE, 13)

        def asking(kind: int, offset: int, length: int, data: bytes = b"", *, flags: int = 0) -> tuple[int, bytes]:
            client.sendall(struct.pack(">IHHQQI", 0x25609513, flags, kind, 77, offset, length) + data)
            magic, error, handle = struct.unpack(">IIQ", answers.read(16))
            assert (magic, handle) == (0x67446698, 77)
            return error, answers.read(length if kind == 0 and not error else 0)

        yield asking


def test_a_disk_over_nbd_reads_writes_and_flushes_and_tells_which_writes_must_last(ask: Ask, disk: Memory) -> None:
    assert ask(1, PAGE, 4, b"abcd") == (0, b"")
    assert ask(1, PAGE + 4, 4, b"efgh", flags=1) == (0, b"")
    assert ask(3, 0, 0) == (0, b"")
    assert ask(0, PAGE, 8) == (0, b"abcdefgh")
    assert disk.asked == ["write", "durable write", "flush"]


def test_a_disk_over_nbd_refuses_what_it_has_not_and_tells_a_failure(ask: Ask) -> None:
    assert ask(0, SIZE, 1) == (22, b"")
    assert ask(4, 0, PAGE) == (22, b""), "a discard was not offered"
    assert ask(1, SIZE - SECTOR, SECTOR, bytes(SECTOR)) == (5, b"")
    assert ask(0, 0, 4) == (0, bytes(4)), "and goes on"
