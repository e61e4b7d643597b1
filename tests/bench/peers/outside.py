"""Compressing on a processor that the lab's machine does not have: `python -m tests.bench.peers.outside run nightly`.

That is `backupd run nightly`, but for who makes its zstd frames: a thread of the bench, outside, on another of the
host's processors. What is to be compressed goes there by a disk of the machine's, which outside is a file in memory,
and comes back by it, byte for byte what would have been made within. One question at a time: who asks waits.
"""

import mmap
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Self

from backupd.archive import packing
from backupd.archive.pipeline import BLOCK_BYTES
from backupd.archive.stations import FRAME_BYTES, Compressor
from backupd.lab.guest import SPARE
from backupd.vocabulary.errors import LabError
from tests.bench.memory import children_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DISK = SPARE[1]
_KERNEL, _WORD = "linux.uml", "ubdh"  # on whose command line the word names the file that the disk is outside
_PAGE = mmap.PAGESIZE  # what passes the page cache by is aligned like that
_QUESTION, _ANSWER = 0, 2 * BLOCK_BYTES  # where the note of each lies; what belongs to it comes after
CHANNEL_BYTES = 4 * BLOCK_BYTES
_LOOK_SECONDS = 0.001  # between two looks at the answer
_LOOK_OUTSIDE_SECONDS = 0.0002  # between two looks for a question
_SEARCH_SECONDS = 0.5
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Note:
    """What a question or an answer is about."""

    number: int
    stream: int = 0
    level: int = 0
    ends_frame: bool = False
    size: int = 0  # bytes that belong to it

    @classmethod
    def read(cls, raw: bytes) -> Self | None:
        """None where there is none, or not all of it yet."""
        [seal] = struct.unpack_from("<I", raw, _FORM.size)
        return cls(*_FORM.unpack_from(raw)) if seal == zlib.crc32(raw[: _FORM.size]) else None

    def page(self) -> bytes:
        """As it is written."""
        raw = _FORM.pack(*astuple(self))
        return (raw + struct.pack("<I", zlib.crc32(raw))).ljust(_PAGE, b"\0")


_FORM = struct.Struct("<QQi?Q")


class Channel:
    """The machine's end, a disk that is open to be read and written past the page cache."""

    def __init__(self, disk: int, *, longest_seconds: float = _LONGEST_SECONDS) -> None:
        self._disk = disk
        self._longest_seconds = longest_seconds
        self._buffer = mmap.mmap(-1, CHANNEL_BYTES)  # aligned
        self._lock = threading.Lock()
        self._number = time.time_ns()  # above those of whoever asked before

    def new_number(self) -> int:
        """One that no question and no stream has."""
        self._number += 1
        return self._number

    def ask(self, stream: int, level: int, block: bytes | memoryview, *, ends_frame: bool) -> bytes:
        """What is made of a block of a stream.

        Raises:
            LabError: nobody answers.
        """
        with self._lock:
            note = Note(self.new_number(), stream, level, ends_frame, len(block))
            self._buffer[: len(block)] = block
            self._write(len(block), _QUESTION + _PAGE)
            self._buffer[:_PAGE] = note.page()
            self._write(_PAGE, _QUESTION)
            deadline = time.monotonic() + self._longest_seconds
            while (answer := Note.read(self._read(_PAGE, _ANSWER))) is None or answer.number != note.number:
                if time.monotonic() > deadline:
                    raise LabError("nobody outside compresses", hint="start it by bench_peers")
                time.sleep(_LOOK_SECONDS)
            return self._read(answer.size, _ANSWER + _PAGE) if answer.size else b""

    def _write(self, size: int, at: int) -> None:
        if size:
            with memoryview(self._buffer) as view:
                os.pwrite(self._disk, view[: _whole_pages(size)], at)

    def _read(self, size: int, at: int) -> bytes:
        with memoryview(self._buffer) as view:
            os.preadv(self._disk, [view[: _whole_pages(size)]], at)
        return self._buffer[:size]


class _Stream:
    """What `zstd.ZstdCompressor` is to a `Compressor`."""

    CONTINUE, FLUSH_FRAME = zstd.ZstdCompressor.CONTINUE, zstd.ZstdCompressor.FLUSH_FRAME

    def __init__(self, channel: Channel, level: int) -> None:
        self._channel, self._level = channel, level
        self._stream = channel.new_number()

    def compress(self, block: bytes | memoryview, mode: int) -> bytes:
        return self._channel.ask(self._stream, self._level, block, ends_frame=mode == self.FLUSH_FRAME)

    def flush(self, mode: int) -> bytes:
        return self.compress(b"", mode)


class CompressedOutside(Compressor):
    """A `Compressor` whose frames come from outside."""

    def __init__(self, channel: Channel, *, level: int, frame_bytes: int = FRAME_BYTES) -> None:
        super().__init__(level=level, threads=1, frame_bytes=frame_bytes)
        self._zstd = _Stream(channel, level)  # type: ignore[assignment]


def answer_questions(memory: mmap.mmap, ended: threading.Event) -> None:
    """The other end: every question is answered until the end. `memory` is what the disk holds."""
    frames: dict[int, zstd.ZstdCompressor] = {}  # that have begun, by stream
    answered = 0
    while not ended.wait(_LOOK_OUTSIDE_SECONDS):
        asked = Note.read(memory[_QUESTION : _QUESTION + _PAGE])
        if asked is None or asked.number == answered:
            continue
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: asked.level,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        frame = frames.pop(asked.stream, None) or zstd.ZstdCompressor(options=options)
        block = memory[_QUESTION + _PAGE : _QUESTION + _PAGE + asked.size]
        made = frame.compress(block, frame.FLUSH_FRAME if asked.ends_frame else frame.CONTINUE)
        if not asked.ends_frame:
            frames[asked.stream] = frame
        memory[_ANSWER + _PAGE : _ANSWER + _PAGE + len(made)] = made
        memory[_ANSWER : _ANSWER + _PAGE] = Note(asked.number, size=len(made)).page()
        answered = asked.number


@contextmanager
def compressing_for(lab: int) -> Iterator[None]:
    """The machine that this process starts is answered for the length of the block, once it is there.

    Raises:
        LabError: this host has no processor beside the machine's.
    """
    ended = threading.Event()
    with ThreadPoolExecutor(1, "compressing") as pool:
        work = pool.submit(_attend, lab, ended)
        try:
            yield
        finally:
            ended.set()
        work.result()


def _attend(lab: int, ended: threading.Event) -> None:
    while not ended.wait(_SEARCH_SECONDS):
        for pid in _descendants(lab):
            if disk := _disk_of(pid):
                others = os.sched_getaffinity(lab) - os.sched_getaffinity(pid)
                if not others:
                    raise LabError("no processor is left beside the machine's", hint="a host with two is needed")
                os.sched_setaffinity(0, others)  # of this thread
                with disk.open("r+b") as file, mmap.mmap(file.fileno(), CHANNEL_BYTES) as memory:
                    answer_questions(memory, ended)
                return


def _descendants(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants(child)


def _disk_of(pid: int) -> Path | None:
    """The file that is the machine's disk, where this process is its kernel."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return None
    if Path(words[0]).name != _KERNEL:
        return None
    return next((Path(word.partition("=")[2]) for word in words if word.startswith(_WORD)), None)


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def main() -> None:
    """Be `backupd`."""
    from backupd.cli.main import main as backupd

    channel = Channel(os.open(DISK, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))

    def compressor(*, level: int, threads: int, frame_bytes: int) -> Compressor:
        return CompressedOutside(channel, level=level, frame_bytes=frame_bytes)

    packing.Compressor = compressor  # type: ignore[assignment, attr-defined]
    backupd()


if __name__ == "__main__":
    main()
