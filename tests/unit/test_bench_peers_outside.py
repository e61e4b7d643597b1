"""Compressing outside the lab's machine: what comes back is what would have been made within."""

import mmap
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.archive.pipeline import BLOCK_BYTES
from backupd.archive.stations import Compressor
from backupd.vocabulary.errors import LabError
from tests.bench.peers.outside import CHANNEL_BYTES, Channel, CompressedOutside, Note, answer_questions

FRAME = 3 << 19  # a frame ends within a block
WORDS = [b"snapshot", b"backup", b"restore", bytes(300)]


def blocks_of(seed: int) -> list[bytes]:
    """Some compress, some do not, the last one is short."""
    dice = random.Random(seed)
    text = b"".join(dice.choices(WORDS, k=30_000))
    return [text[:BLOCK_BYTES], dice.randbytes(BLOCK_BYTES), text[-BLOCK_BYTES:], b"the end"]


def made_by(compressor: Compressor, blocks: list[bytes]) -> bytes:
    return b"".join([*(piece for block in blocks for piece in compressor.take(block)), *compressor.end()])


@contextmanager
def disk(folder: Path) -> Iterator[int]:
    """The machine's end of one; the other is whatever maps the file."""
    (folder / "disk").write_bytes(bytes(CHANNEL_BYTES))
    opened = os.open(folder / "disk", os.O_RDWR)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def answered(channel: int) -> Iterator[None]:
    ended = threading.Event()
    with mmap.mmap(channel, CHANNEL_BYTES) as memory:
        thread = threading.Thread(target=answer_questions, args=(memory, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def test_frames_from_outside_are_byte_for_byte_those_that_would_have_been_made_within(tmp_path: Path) -> None:
    with disk(tmp_path) as opened, answered(opened):
        for seed in (1, 2):  # a second backup, of another process
            channel = Channel(opened)
            outside = CompressedOutside(channel, level=seed, frame_bytes=FRAME)
            within = Compressor(level=seed, threads=1, frame_bytes=FRAME)
            assert made_by(outside, blocks_of(seed)) == made_by(within, blocks_of(seed))
            assert outside.ends == within.ends
            assert len(outside.ends) == 3


def test_two_streams_at_once_do_not_mix(tmp_path: Path) -> None:
    with disk(tmp_path) as opened, answered(opened):
        channel = Channel(opened)
        both = [CompressedOutside(channel, level=1) for _ in range(2)]
        made = [b"", b""]
        for turn in zip(blocks_of(1), blocks_of(2), strict=True):
            for number, block in enumerate(turn):
                made[number] += b"".join(both[number].take(block))
        made = [one + b"".join(compressor.end()) for one, compressor in zip(made, both, strict=True)]
    assert made == [made_by(Compressor(level=1, threads=1), blocks_of(seed)) for seed in (1, 2)]


def test_a_machine_that_nobody_compresses_for_says_so(tmp_path: Path) -> None:
    with disk(tmp_path) as opened:
        channel = Channel(opened, longest_seconds=0.0)
        with pytest.raises(LabError, match="nobody outside compresses"):
            channel.ask(1, 1, b"a block", ends_frame=False)


def test_a_note_that_is_not_all_there_is_none() -> None:
    page = Note(7, 6, 1, ends_frame=True, size=5).page()
    assert Note.read(page) == Note(7, 6, 1, ends_frame=True, size=5)
    assert Note.read(bytes(len(page))) is None
    assert all(Note.read(page[:cut] + bytes(len(page) - cut)) is None for cut in (8, 16, 21, 29))
