"""Which stored bytes are fetched for which bytes of a tar stream, and that they are what was stored.

Knows: that an object's frames tile it, that one which is not encrypted can be read from any frame on, and one which
is from its beginning only (age through pyrage has no random access).

A frame is handed on only once all of it has been compared: nothing that a damaged copy holds reaches zstd, tar or a
folder.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate

from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.storage import Frame, StoredObject

LARGEST_FRAME = 160 << 20  # as stored: it is held in memory; what does not compress grows a little, never to this

DAMAGED = "this copy is damaged: do not rely on it; read the run's copy on another target, or take a new backup"

Reading = Callable[[int, int | None], AbstractContextManager[Iterator[bytes]]]  # offset and size, as a target reads
Range = tuple[int, int]  # begin and end
Block = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of one object and where they lie."""

    stored: StoredObject
    all: tuple[Frame, ...]
    plain_at: tuple[int, ...]  # where each begins in the tar stream; the stream's end comes last
    stored_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What is fetched, and what of it is wanted."""

    frames: Frames
    runs: tuple[range, ...]  # numbers of frames that follow one another: one request each
    cuts: tuple[Range, ...]  # what is wanted of the plain bytes of these frames, as if nothing lay between them

    @property
    def plain_bytes(self) -> int:
        """Of the frames that are fetched."""
        return sum(self.frames.all[number].plain_bytes for run in self.runs for number in run)

    @property
    def whole(self) -> bool:
        """Every frame is fetched: the object's own digests can be compared as well."""
        return sum(map(len, self.runs)) == len(self.frames.all)


def frames_of(stored: StoredObject) -> Frames:
    """The object's frames, proven to tile it.

    Raises:
        Unreadable: they do not, there is none, or one is larger than any that backupd writes.
    """
    frames = stored.frames
    plain = (0, *accumulate(frame.plain_bytes for frame in frames))
    bytes_stored = (0, *accumulate(frame.stored_bytes for frame in frames))
    least = min((min(frame.plain_bytes, frame.stored_bytes) for frame in frames), default=-1)
    most = max((frame.stored_bytes for frame in frames), default=0)
    if (plain[-1], bytes_stored[-1]) != (stored.plain_bytes, stored.stored_bytes) or least < 0 or most > LARGEST_FRAME:
        raise Unreadable(f"the frames of {stored.name} do not add up to its size", hint=DAMAGED)
    return Frames(stored, frames, plain, bytes_stored)


def select(frames: Frames, wanted: Sequence[Range]) -> Selection:
    """The frames that hold these ranges of the tar stream, which are ordered and do not overlap; none of them empty."""
    if frames.stored.encrypted or tuple(wanted) == ((0, frames.plain_at[-1]),):
        return Selection(frames, (range(len(frames.all)),), tuple(wanted))
    fetched_at: dict[int, int] = {}  # where each chosen frame begins, as if nothing lay between them
    cuts: list[Range] = []
    fetched = 0
    for begin, end in wanted:
        first = bisect_right(frames.plain_at, begin) - 1
        last = bisect_right(frames.plain_at, end - 1) - 1
        for number in range(first, last + 1):
            if number not in fetched_at:
                fetched_at[number] = fetched
                fetched += frames.all[number].plain_bytes
        at = fetched_at[first] + begin - frames.plain_at[first]
        cuts.append((at, at + end - begin))
    return Selection(frames, tuple(_runs(tuple(fetched_at))), tuple(cuts))


def proven(selection: Selection, reading: Reading, *, pace: Callable[[int], None]) -> Iterator[Block]:
    """The chosen frames, each in one piece and compared. `pace` is called with the size of what was just read.

    Raises:
        VerificationError: one is not what was stored, or the object is longer or shorter; names object and bytes.
        TargetError: it cannot be read.
    """
    frames = selection.frames
    for run in selection.runs:
        to_the_end = run.stop == len(frames.all)
        begin = frames.stored_at[run.start]
        size = None if to_the_end else frames.stored_at[run.stop] - begin
        with reading(begin, size) as chunks:
            pieces = Pieces(chunks, pace)
            for number in run:
                yield _held(frames, number, pieces)
            if to_the_end and pieces.more():
                raise VerificationError(
                    f"{frames.stored.name} as stored is longer than recorded: expected {frames.stored.stored_bytes}"
                    " bytes, found more",
                    hint=DAMAGED,
                )


def compare(
    frames: Frames, number: int, chunks: "Pieces", *, also: Callable[[memoryview], None] = lambda _part: None
) -> None:
    """One frame is read and is what was stored; each part of it is given to `also` before that is known."""
    digest = hashlib.sha256()
    for part in chunks.of(frames, number):
        digest.update(part)
        also(part)
    _require_frame(frames, number, digest.hexdigest())


def _require_frame(frames: Frames, number: int, found: str) -> None:
    """The digest is that of this frame.

    Raises:
        VerificationError: it is not.
    """
    expected = frames.all[number].stored_sha256
    if found != expected:
        raise VerificationError(
            f"{_named(frames, number)}: expected stored sha256 {expected}, found {found}", hint=DAMAGED
        )


class Pieces:
    """Chunks of any size, taken as parts that do not reach over a frame's end. A part is valid until the next one."""

    def __init__(self, chunks: Iterator[Block], pace: Callable[[int], None]) -> None:
        self._chunks = iter(chunks)
        self._pace = pace
        self._left = memoryview(b"")

    def of(self, frames: Frames, number: int) -> Iterator[memoryview]:
        """The parts of this frame, which is the next one."""
        missing = frames.all[number].stored_bytes
        while missing:
            if not self.more():
                found = frames.all[number].stored_bytes - missing
                raise VerificationError(
                    f"{_named(frames, number)}: expected {frames.all[number].stored_bytes} stored bytes, found {found}",
                    hint=DAMAGED,
                )
            part, self._left = self._left[:missing], self._left[missing:]
            missing -= len(part)
            yield part

    def more(self) -> bool:
        """Whether anything is left."""
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._pace(len(chunk))
            self._left = memoryview(chunk)
        return True


def _held(frames: Frames, number: int, chunks: Pieces) -> Block:
    digest, block, at = hashlib.sha256(), bytearray(frames.all[number].stored_bytes), 0
    for part in chunks.of(frames, number):
        digest.update(part)
        block[at : at + len(part)] = part
        at += len(part)
    _require_frame(frames, number, digest.hexdigest())
    return block


def _named(frames: Frames, number: int) -> str:
    begin, end = frames.stored_at[number : number + 2]
    return f"{frames.stored.name}, frame {number + 1} of {len(frames.all)} (bytes {begin} to {end})"


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield range(numbers[begin], numbers[i - 1] + 1)
            begin = i
