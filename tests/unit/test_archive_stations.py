"""Frames that nobody but a stranger writes: they cost no more than what is stored, or are refused."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from backupd.archive import stations
from backupd.archive.stations import Compressor, Decompressor
from backupd.vocabulary.errors import HostExhausted, VerificationError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME = zstd.compress(bytes(4096))


def expanded(stored: bytes, *, at_once: int) -> bytes:
    station = Decompressor("data-1.tar.zst")
    blocks = [stored[at : at + at_once] for at in range(0, len(stored), at_once)]
    return b"".join([piece for block in blocks for piece in station.take(block)] + list(station.end()))


class CountingZstd:
    """The library; counts the bytes that its decompressors are given, and those that they hand back."""

    ZstdError = zstd.ZstdError

    def __init__(self) -> None:
        self.copied = 0

    def ZstdDecompressor(self) -> "CountingDecompressor":
        return CountingDecompressor(self._count)

    def _count(self, size: int) -> None:
        self.copied += size


class CountingDecompressor:
    def __init__(self, count: Callable[[int], None]) -> None:
        self._frame, self._count = zstd.ZstdDecompressor(), count

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._count(len(data))
        return self._frame.decompress(data, max_length)

    @property
    def unused_data(self) -> bytes:
        self._count(len(self._frame.unused_data))
        return self._frame.unused_data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


@pytest.mark.parametrize(
    "error",
    [
        zstd.ZstdError("Unable to decompress Zstandard data: Allocation error : not enough memory"),
        MemoryError(),
    ],
    ids=["zstd", "python"],
)
def test_a_host_without_memory_has_found_no_damage(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Its words are libzstd's own of `ZSTD_error_memory_allocation`, as 1.5.7 says them under RLIMIT_AS."""

    class NoRoom(CountingDecompressor):
        def decompress(self, data: bytes, max_length: int) -> bytes:
            raise error

    without_room = CountingZstd()
    monkeypatch.setattr(without_room, "ZstdDecompressor", lambda: NoRoom(lambda _size: None))
    monkeypatch.setattr(stations, "zstd", without_room)
    with pytest.raises(HostExhausted, match="not enough memory to expand"):
        expanded(FRAME, at_once=100)


@pytest.mark.parametrize("error", [zstd.ZstdError("Unable to create ZSTD_DCtx instance."), MemoryError()])
def test_a_host_without_memory_for_the_next_frame_has_found_no_damage(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    without_room = CountingZstd()
    made: list[CountingDecompressor] = []

    def make() -> CountingDecompressor:
        if made:
            raise error
        made.append(CountingDecompressor(lambda _size: None))
        return made[0]

    monkeypatch.setattr(without_room, "ZstdDecompressor", make)
    monkeypatch.setattr(stations, "zstd", without_room)
    with pytest.raises(HostExhausted, match="not enough memory to expand"):
        expanded(FRAME * 2, at_once=100)


def test_many_small_frames_cost_as_much_as_is_stored_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(frames: int) -> int:
        counting = CountingZstd()
        monkeypatch.setattr(stations, "zstd", counting)
        expanded(FRAME * frames, at_once=1 << 20)
        return counting.copied

    assert copied(800) < 2.2 * copied(400)


def test_a_frame_of_nothing_is_refused_where_another_follows() -> None:
    for small in (zstd.compress(b""), zstd.compress(bytes(4095)), b"\x50\x2a\x4d\x18" + bytes(4)):
        for at_once in (1, 1 << 20):
            with pytest.raises(VerificationError, match=r"a zstd frame of \d+ bytes is not its last one"):
                expanded(FRAME + small + FRAME, at_once=at_once)
            assert expanded(FRAME + small, at_once=at_once).startswith(bytes(4096))


@pytest.mark.parametrize("at_once", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("plain_bytes", [0, 1, 4096, 3 * 4096 + 1])
def test_what_backupd_writes_is_read_however_it_is_cut(plain_bytes: int, at_once: int) -> None:
    plain = bytes(range(256)) * 49
    compressor = Compressor(level=1, threads=1, frame_bytes=4096)
    stored = b"".join([*compressor.take(plain[:plain_bytes]), *compressor.end()])
    assert expanded(stored, at_once=at_once) == plain[:plain_bytes]


def test_a_frame_that_expands_a_lot_comes_a_block_at_a_time() -> None:
    pieces = list(Decompressor("data-1.tar.zst").take(zstd.compress(bytes(5 << 20)) + FRAME))
    assert max(map(len, pieces)) <= 1 << 20
    assert sum(map(len, pieces)) == (5 << 20) + 4096
