"""What a stream passes through: digests and zstd frames.

Knows: SHA-256, the frame format (RFC 8878; concatenated frames are one stream to every zstd).
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from backupd.archive.pipeline import BLOCK_BYTES
from backupd.vocabulary.errors import HostExhausted, VerificationError
from backupd.vocabulary.storage import StoredObject

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME_BYTES = 64 << 20  # plain bytes in a frame: where reading may begin, once an index says where frames are
MOST_FRAME_BYTES = 152 << 20  # of a backup that would have too many frames: as stored it is less than `LARGEST_FRAME`

_SMALL_JOB_LEVEL = 3  # up to this level small jobs cost nothing and save 30 MiB; above, they cost most of the speed
_SMALL_JOB_BYTES = 2 << 20

_LEAST_FRAME_BYTES = 4 << 10  # plain ones, in a frame that another follows: ours hold 64 MiB, all but a stream's last
_FIRST_STEP_BYTES = 256  # that a new frame is given; each step is twice the one before

_NO_MEMORY = "Allocation error"  # how libzstd tells of it, in whichever function: zstd 1.5, `ERR_getErrorString`
_DAMAGED = "this copy is damaged: do not rely on it, take a new backup"


class Digest:
    """Counts and hashes what passes; with `at_most`, refuses to pass more."""

    def __init__(self, *, at_most: int | None = None, what: str = "the stream") -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._at_most = at_most
        self._what = what

    @property
    def sha256(self) -> str:
        """Of what has passed so far, in hexadecimal."""
        return self._sha256.hexdigest()

    def take(self, block: bytes) -> Iterator[bytes]:
        """The block itself, counted."""
        self.add(block)
        yield block

    def add(self, block: bytes) -> None:
        """Count and hash.

        Raises:
            VerificationError: more has passed than was recorded.
        """
        self.size += len(block)
        if self._at_most is not None and self.size > self._at_most:
            raise VerificationError(
                f"{self._what} is longer than recorded: expected {self._at_most} bytes, found more", hint=_DAMAGED
            )
        self._sha256.update(block)

    def end(self) -> Iterator[bytes]:
        """Nothing more."""
        yield from ()


@dataclass(frozen=True, slots=True)
class FrameEnd:
    """Where a zstd frame ends."""

    plain_bytes: int  # in this frame
    stored_bytes: int  # in this and all before it


class Compressor:
    """Plain bytes in, zstd frames out: a new frame every `frame_bytes`, each with its checksum.

    No piece that it makes holds bytes of two frames, and `ends` tells of a frame before its last piece is handed over.
    """

    def __init__(self, *, level: int, threads: int, frame_bytes: int = FRAME_BYTES) -> None:
        option = zstd.CompressionParameter
        most = option.nb_workers.bounds()[1]  # 0 where libzstd was built without threads
        options: dict[int, int] = {
            option.compression_level: level,
            option.checksum_flag: 1,
            option.nb_workers: min(threads, most) if threads > 1 else 0,
        }
        if options[option.nb_workers] and level <= _SMALL_JOB_LEVEL:
            options[option.job_size] = _SMALL_JOB_BYTES
        self._zstd = zstd.ZstdCompressor(options=options)
        self._frame_bytes = frame_bytes
        self._in_frame = 0
        self._made = 0
        self.ends: list[FrameEnd] = []

    def take(self, block: bytes) -> Iterator[bytes]:
        """What is compressed by now; often nothing."""
        view = memoryview(block)
        while view:
            part, view = view[: self._frame_bytes - self._in_frame], view[self._frame_bytes - self._in_frame :]
            self._in_frame += len(part)
            full = self._in_frame == self._frame_bytes
            out = self._zstd.compress(part, self._zstd.FLUSH_FRAME if full else self._zstd.CONTINUE)
            self._made += len(out)
            if full:
                self._ended()
            if out:
                yield out

    def end(self) -> Iterator[bytes]:
        """The rest of the last frame; an empty stream is one empty frame."""
        if self._in_frame or not self.ends:
            out = self._zstd.flush(self._zstd.FLUSH_FRAME)
            self._made += len(out)
            self._ended()
            yield out

    def _ended(self) -> None:
        self.ends.append(FrameEnd(self._in_frame, self._made))
        self._in_frame = 0


class Decompressor:
    """zstd frames in, plain bytes out, at most a block at a time however much a frame expands.

    A frame costs a decompressor of its own, and what it was given beyond its end is copied: so small frames are refused
    where another follows, and none is given much more than it has taken already. Else who fills an object with them
    would keep whoever proves it busy for days.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        self._ended: int | None = None  # plain bytes of the frame before

    def _begin(self) -> None:
        try:
            self._frame = zstd.ZstdDecompressor()
        except (MemoryError, zstd.ZstdError) as error:  # the latter: "Unable to create ZSTD_DCtx instance"
            raise self._no_memory() from error
        self._between_frames = True
        self._step = _FIRST_STEP_BYTES
        self._plain = 0  # bytes of this frame

    def take(self, block: bytes | bytearray) -> Iterator[bytes]:
        """What these bytes expand to.

        Raises:
            VerificationError: they are no zstd frames, or frames that backupd never writes.
            HostExhausted: there is no memory for it here.
        """
        view, at = memoryview(block), 0
        while at < len(view) or not self._frame.needs_input:
            given = view[at : at + self._step] if self._frame.needs_input else view[:0]
            if given and self._between_frames:
                self._require_large_before()
            self._between_frames = self._between_frames and not given
            try:
                piece = self._frame.decompress(given, BLOCK_BYTES)
            except (MemoryError, zstd.ZstdError) as error:
                if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
                    raise self._no_memory() from error
                raise VerificationError(f"{self._name} is damaged: {str(error).lower()}", hint=_DAMAGED) from error
            at += len(given)
            self._step = min(self._step * 2, BLOCK_BYTES)
            self._plain += len(piece)
            if piece:
                yield piece
            if self._frame.eof:
                at -= len(self._frame.unused_data)
                self._ended = self._plain
                self._begin()

    def _no_memory(self) -> HostExhausted:
        return HostExhausted(
            f"there is not enough memory to expand {self._name}",
            hint="free memory or raise the limit (free -m, ulimit -v), and try again",
        )

    def _require_large_before(self) -> None:
        if self._ended is not None and self._ended < _LEAST_FRAME_BYTES:
            raise VerificationError(
                f"{self._name} is damaged: a zstd frame of {self._ended} bytes is not its last one", hint=_DAMAGED
            )

    def end(self) -> Iterator[bytes]:
        """Nothing more.

        Raises:
            VerificationError: the last frame is not whole.
        """
        if not self._between_frames:
            raise VerificationError(f"{self._name} is damaged: it ends in the middle of a frame", hint=_DAMAGED)
        yield from ()


def require_same(found: Digest, *, name: str, size: int, sha256: str, which: str) -> None:
    """What passed is what was recorded.

    Raises:
        VerificationError: it is not; names the object, what was expected and what was found.
    """
    if found.size != size:
        raise VerificationError(f"{name}: expected {size} {which} bytes, found {found.size}", hint=_DAMAGED)
    if found.sha256 != sha256:
        raise VerificationError(f"{name}: expected {which} sha256 {sha256}, found {found.sha256}", hint=_DAMAGED)


def require_plain(found: Digest, expected: StoredObject) -> None:
    """`require_same` for an object's tar stream."""
    require_same(found, name=expected.name, size=expected.plain_bytes, sha256=expected.plain_sha256, which="plain")
