"""Whether the log of an XFS image has to be replayed: it has, unless its last records are exactly as they must be."""

import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.lvm import xfs_log
from backupd.lvm.xfs_log import BLOCK, WINDOW_BLOCKS, LogPlace, log_place, needs_no_replay, why_replay, windows
from backupd.vocabulary.volumes import DeviceNumber

UUID = bytes(range(16))
PLACE = LogPlace(UUID, offset=2157772800, blocks=131072)
FIRST, RECORD = 59008, 128  # the first block of what was read, and the blocks of a record padded to a stripe of 64 KiB
SUPERBLOCK, INODE = 0x123C, 0x123B


def superblock(**fields: int) -> bytes:
    """As `mkfs.xfs` wrote it in the lab: `xfs_db -c 'sb 0' -c p`."""
    values = {"blocksize": 4096, "logstart": 1048592, "agblocks": 131696, "logblocks": 16384, "agblklog": 18, **fields}
    sector = bytearray(4096)
    sector[:4], sector[32:48] = b"XFSB", UUID
    for at, form, name in ((4, ">I", "blocksize"), (48, ">Q", "logstart"), (84, ">I", "agblocks")):
        struct.pack_into(form, sector, at, values[name])
    struct.pack_into(">I", sector, 96, values["logblocks"])
    struct.pack_into(">B", sector, 124, values["agblklog"])
    return bytes(sector)


def operations(kind: int, block: int = 0, more: bytes = b"") -> list[tuple[int, bytes]]:
    """A transaction with one item, as Linux 6.1 and 7.2 were seen to log it."""
    header = struct.pack("=IiII", 0x5452414E, 40, 7, 2)
    what = struct.pack("=HHHHqI", kind, 2, 0x9000, 1, block, 1) + b"\1\0\0\0"
    return [(1, b""), (0, header), (0, what), (0, bytes(384) + more), (2, b"")]


def record(block: int, *, tail: int, cycle: int = 2, logged: list[tuple[int, bytes]] | None = None) -> bytes:
    """A whole record: two blocks of header, and data whose every block begins with the cycle's number."""
    logged = operations(SUPERBLOCK) if logged is None else logged
    data = bytearray(126 * BLOCK)
    at = 0
    for flags, region in logged:
        struct.pack_into(">IIBBH", data, at, 7, len(region), 0x69, flags, 0)
        data[at + 12 : at + 12 + len(region)] = region
        at += 12 + len(region)
    headers = bytearray(2 * BLOCK)
    numbers = (cycle, 2, len(data), cycle << 32 | block, cycle << 32 | tail, 0, 0, len(logged))
    struct.pack_into(">4sIIIQQIII", headers, 0, b"\xfe\xed\xba\xbe", *numbers)
    headers[304:320] = UUID
    struct.pack_into(">I", headers, 320, 65536)
    struct.pack_into(">I", headers, BLOCK, cycle)
    for index in range(len(data) // BLOCK):
        word = slice(index * BLOCK, index * BLOCK + 4)
        replaced = 44 + 4 * index if index < 64 else BLOCK + 4 + 4 * (index - 64)
        headers[replaced : replaced + 4] = data[word]
        data[word] = struct.pack(">I", cycle)
    return bytes(headers + data)


def older(blocks: int, cycle: int = 1) -> bytes:
    return struct.pack(">I", cycle).ljust(BLOCK, b"\xff") * blocks


COVERED = record(FIRST, tail=FIRST) + record(FIRST + RECORD, tail=FIRST)  # what freezing a file system leaves
FROZEN = COVERED + older(RECORD)


def why(window: bytes) -> str:
    said = why_replay(window, FIRST, PLACE)
    assert said is not None
    return said


def test_the_log_of_a_frozen_file_system_needs_no_replay() -> None:
    assert why_replay(FROZEN, FIRST, PLACE) is None


def test_a_whole_window_is_as_good_as_its_last_records() -> None:
    before = record(FIRST - RECORD, tail=FIRST - 5 * RECORD, logged=operations(INODE))
    assert why_replay(before + FROZEN, FIRST - RECORD, PLACE) is None


@pytest.mark.parametrize(
    "logged",
    [
        operations(INODE),
        operations(SUPERBLOCK, block=8),
        operations(SUPERBLOCK)[:-1],  # not committed yet
        [*operations(SUPERBLOCK), *operations(SUPERBLOCK)],
        [*operations(SUPERBLOCK)[:4], *operations(INODE)[2:]],
        [(0x20, b"")],
        [],
    ],
)
def test_anything_but_the_superblock_is_replayed(logged: list[tuple[int, bytes]]) -> None:
    for window in (
        record(FIRST, tail=FIRST, logged=logged) + record(FIRST + RECORD, tail=FIRST) + older(RECORD),
        record(FIRST, tail=FIRST) + record(FIRST + RECORD, tail=FIRST, logged=logged) + older(RECORD),
    ):
        assert why(window) == "more than the superblock is not written back yet"


def test_what_was_logged_long_before_and_not_written_back_is_replayed() -> None:
    assert "begins before" in why(record(FIRST, tail=FIRST - RECORD) + older(RECORD))


def test_a_newer_block_behind_the_last_record_is_replayed() -> None:
    assert "newer" in why(COVERED + older(RECORD, cycle=2))
    foreign = bytearray(record(FIRST + 2 * RECORD, tail=FIRST))
    foreign[304] ^= 1
    assert "newer" in why(COVERED + bytes(foreign) + older(1))


def test_records_that_do_not_follow_one_another_are_replayed() -> None:
    gap = record(FIRST, tail=FIRST) + older(RECORD) + record(FIRST + 2 * RECORD, tail=FIRST) + older(1)
    assert "do not follow" in why(gap)


def test_a_block_of_another_cycle_in_the_middle_of_a_record_is_replayed() -> None:
    torn = bytearray(FROZEN)
    torn[40 * BLOCK : 40 * BLOCK + 4] = struct.pack(">I", 1)
    assert "superblock" in why(bytes(torn))


@pytest.mark.parametrize("window", [b"", older(RECORD), COVERED, COVERED[: -3 * BLOCK] + b""])
def test_where_the_end_was_not_read_nothing_is_proven(window: bytes) -> None:
    assert why_replay(window, FIRST, PLACE) is not None


def test_another_file_systems_records_prove_nothing() -> None:
    assert why_replay(FROZEN, FIRST, replace(PLACE, uuid=bytes(16))) is not None


def test_records_that_say_they_are_elsewhere_prove_nothing() -> None:
    assert why_replay(FROZEN, FIRST + 1, PLACE) is not None


@given(st.integers(0, len(COVERED) // BLOCK - 1), st.integers(0, 64), st.integers(1, 255))
def test_no_damage_is_a_proof_of_anything_else_nor_an_error(block: int, at: int, change: int) -> None:
    """Of the words that decide none can be changed unnoticed: all of a block's head, wherever it lies."""
    damaged = bytearray(FROZEN)
    where = block * BLOCK + at
    damaged[where] ^= change
    said = why_replay(bytes(damaged), FIRST, PLACE)
    is_word_of_data = at < 4 and block % RECORD > 1
    assert said is not None or not is_word_of_data


@given(st.binary(max_size=4 * BLOCK), st.integers(0, 2 * RECORD * BLOCK))
def test_whatever_is_read_there_is_an_answer(some: bytes, at: int) -> None:
    window = (FROZEN[:at] + some + FROZEN[at + len(some) :])[: len(FROZEN)]
    why_replay(window[: len(window) // BLOCK * BLOCK], FIRST, PLACE)


def test_the_log_lies_where_the_superblock_says() -> None:
    """4214400 sectors, says `xfs_logprint` of that file system."""
    assert log_place(superblock()) == LogPlace(UUID, 4214400 * BLOCK, 131072)


def test_a_log_on_a_device_of_its_own_is_none_of_the_images() -> None:
    assert log_place(superblock(logstart=0)) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"blocksize": 0},
        {"blocksize": 1000},
        {"blocksize": 1 << 31},
        {"agblklog": 200},
        {"logblocks": 0},
        {"logstart": (1 << 64) - 1, "agblocks": (1 << 32) - 1, "agblklog": 1},
    ],
)
def test_what_cannot_be_a_superblock_is_an_error(damage: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="superblock"):
        log_place(superblock(**damage))


def test_the_logs_end_is_looked_for_from_the_live_one_backwards_and_not_for_long() -> None:
    found = list(windows(100_000, 131_072))
    assert len(found) == 4
    assert found[0] <= 100_000 <= found[0] + WINDOW_BLOCKS
    assert all(later < earlier + WINDOW_BLOCKS and later > earlier for later, earlier in pairwise(found))
    assert list(windows(3, WINDOW_BLOCKS)) == [0]
    assert next(windows(131_071, 131_072)) + WINDOW_BLOCKS == 131_072


def test_a_log_that_has_begun_anew_since_the_snapshot_is_looked_at_from_its_other_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The live end is at its third block by now; the image's is where the ring closes."""
    end = 131_072 - 3 * RECORD
    begins = record(0, tail=0, logged=operations(INODE)) + record(RECORD, tail=0, logged=operations(INODE))
    covered = record(end - 2 * RECORD, tail=end - 2 * RECORD) + record(end - RECORD, tail=end - 2 * RECORD)
    image = begins + older(end - 4 * RECORD, cycle=2) + covered + older(3 * RECORD)
    monkeypatch.setattr(xfs_log, "_live_end", lambda _origin: 3)
    monkeypatch.setattr(
        xfs_log, "_read", lambda _device, at, size: superblock() if at == 0 else image[at - PLACE.offset :][:size]
    )
    assert needs_no_replay(Path("/dev/image"), DeviceNumber(254, 0))
