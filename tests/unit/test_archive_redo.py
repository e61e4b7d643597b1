"""The part of a redo log that recovery reads: never less than that, and the whole log wherever anything is unusual."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.archive.redo import HEAD_BYTES, NotCut, RedoLog, crc32c, redo_log
from tests.fakes.redo import FIRST_LSN as FIRST
from tests.fakes.redo import redo_head as head
from tests.fakes.redo import sealed

MIB = 1 << 20
SIZE = 64 * MIB
MTR_SIZE_MAX = 1 << 20  # recv_sys_t


def test_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_what_a_log_says_of_itself() -> None:
    log = redo_log(head((90 * MIB, 91 * MIB), (80 * MIB, 80 * MIB)), SIZE)
    assert log == RedoLog(SIZE, FIRST, (90 * MIB, 80 * MIB), 91 * MIB)


GOOD = head((90 * MIB, 91 * MIB), (80 * MIB, 80 * MIB))


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"", "is not a complete log"),
        (GOOD[:-1], "is not a complete log"),
        (head((9 * MIB, 9 * MIB), (8 * MIB, 8 * MIB), version=0x50485953), "format is 0x50485953"),
        (head((9 * MIB, 9 * MIB), (8 * MIB, 8 * MIB), version=0xD0687973), "format is 0xd0687973"),
        (head((9 * MIB, 9 * MIB), (8 * MIB, 8 * MIB), rest=b"\0\0\0\1"), "more than a plain one"),
        (head((9 * MIB, 9 * MIB), (8 * MIB, 8 * MIB), first_lsn=12287), "more than a plain one"),
        (GOOD[:4] + b"\1" + GOOD[5:], "more than a plain one"),
        (GOOD[:20] + b"x" + GOOD[21:], "checksum"),
        (head((9 * MIB, 9 * MIB), (8 * MIB, 8 * MIB - 1)), "checkpoint at 8192"),
        (head((FIRST - 1, 9 * MIB), (8 * MIB, 8 * MIB)), "checkpoint at 4096"),
        (head((9 * MIB, 9 * MIB)) + bytes(4096), "checkpoint at 8192"),
        (GOOD[:4100] + b"x" + GOOD[4101:], "checkpoint at 4096"),
        (GOOD[:8192] + sealed(GOOD[8192:8208] + b"\1" + bytes(43), 4096), "checkpoint at 8192"),
    ],
)
def test_log_that_is_not_as_a_running_server_writes_it_is_not_cut(damaged: bytes, why: str) -> None:
    with pytest.raises(NotCut, match=why):
        redo_log(damaged, SIZE)


@pytest.mark.parametrize("size", [0, 512, MIB - 512, SIZE + 1])
def test_file_that_cannot_be_a_log_is_not_cut(size: int) -> None:
    with pytest.raises(NotCut, match="is not a complete log"):
        redo_log(GOOD, size)


@pytest.mark.parametrize("told", [0, 91 * MIB - 1, 1 << 63, 90 * MIB + SIZE])
def test_lsn_that_cannot_be_of_this_log_cuts_nothing(told: int) -> None:
    with pytest.raises(NotCut, match="the server reported LSN"):
        redo_log(GOOD, SIZE).needed(told)


def test_log_that_is_almost_all_needed_is_not_cut() -> None:
    log = redo_log(GOOD, SIZE)
    with pytest.raises(NotCut, match="all of it"):
        log.needed(80 * MIB + SIZE - 2 * MIB)


def test_pieces_of_a_log_that_has_not_wrapped() -> None:
    log = RedoLog(SIZE, FIRST, (20 * MIB, 30 * MIB), 30 * MIB)
    assert log.needed(31 * MIB) == ((0, HEAD_BYTES), (20 * MIB - (64 << 10), 15 * MIB + (64 << 10)))


def test_pieces_of_a_log_that_ends_behind_its_wrap() -> None:
    log = RedoLog(SIZE, FIRST, (SIZE - 2 * MIB, SIZE - MIB), SIZE - MIB)
    begin = SIZE - 2 * MIB - (64 << 10)
    assert log.needed(SIZE + MIB) == ((0, 5 * MIB + HEAD_BYTES), (begin, SIZE - begin))


@st.composite
def logs(draw: st.DrawFn) -> tuple[RedoLog, int]:
    """Any log that a server may have, and an LSN that it may tell; often about a wrap."""
    size = draw(st.sampled_from([8 * MIB, 16 * MIB, 96 * MIB, 5 << 30])) + 512 * draw(st.integers(0, 16))
    capacity = size - HEAD_BYTES
    first = draw(st.integers(HEAD_BYTES, 1 << 40))
    place = draw(st.integers(0, 5)) * capacity + draw(
        st.one_of(st.integers(0, capacity), st.integers(-(6 * MIB), 6 * MIB), st.integers(-5000, 5000))
    )
    older = first + max(place, 0)
    newer = older + draw(st.integers(0, capacity // 2))
    ended = newer + draw(st.integers(0, 1 << 16))
    told = ended + draw(st.one_of(st.just(0), st.integers(0, capacity // 2), st.integers(0, 5000)))
    pair = draw(st.permutations([older, newer]))
    return RedoLog(size, first, (pair[0], pair[1]), ended), told


@given(logs(), st.data())
def test_every_byte_that_recovery_can_look_at_is_kept(drawn: tuple[RedoLog, int], data: st.DataObject) -> None:
    log, told = drawn
    try:
        pieces = log.needed(told)
    except NotCut:
        return
    kept = [range(begin, begin + size) for begin, size in pieces]
    assert pieces[0][0] == 0
    assert pieces[0][1] >= HEAD_BYTES
    assert all(one.stop < other.start for one, other in pairwise(kept))
    assert kept[-1].stop <= log.size
    assert all(size > 0 and begin % 4096 == 0 for begin, size in pieces)
    low, high = min(log.checkpoints), told + 4 * MTR_SIZE_MAX - 1
    edge = log.first_lsn + -(-(low - log.first_lsn) // log.capacity) * log.capacity  # the next wrap
    looked = {low, max(log.checkpoints), log.ended, told, high, min(edge, high), max(low, min(edge, high) - 1)}
    looked |= set(data.draw(st.lists(st.integers(low, high), max_size=20)))
    for lsn in looked:
        at = HEAD_BYTES + (lsn - log.first_lsn) % log.capacity
        assert any(at in piece for piece in kept), lsn


@given(logs())
def test_what_is_left_out_is_all_but_the_needed_part_and_its_margins(drawn: tuple[RedoLog, int]) -> None:
    log, told = drawn
    span = told - min(log.checkpoints)
    try:
        kept = sum(size for _, size in log.needed(told))
    except NotCut:
        assert span + 5 * MIB > log.capacity or told - max(log.checkpoints) > log.capacity
        return
    assert kept <= HEAD_BYTES + span + 5 * MIB
