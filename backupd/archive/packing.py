"""The way of plain bytes to an object: SHA-256, zstd frames, age where somebody is to read it alone, SHA-256 again.

Knows: which stages share a thread, where frames end in what is stored, how long each stage worked.

An object opens without backupd: `age -d -i KEY data-1.tar.zst.age | zstd -d | tar -x`, and without age where it is not
encrypted.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Self

from backupd.archive import Governor, Sink
from backupd.archive.governor import Unhindered
from backupd.archive.index import MemberLines
from backupd.archive.members import Members
from backupd.archive.pipeline import Pipeline, Station, StationChain
from backupd.archive.stations import FRAME_BYTES, Compressor, Digest, FrameEnd
from backupd.archive.stopwatch import Stopwatch, Timed
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.storage import Frame, StoredObject

_MOST_STREAMS = 4  # by themselves; a copy that takes every core of a large host is for its owner to ask for


@dataclass(frozen=True, slots=True)
class CopyManner:
    """How a copy is made: what paces it, how hard it compresses, who can read it."""

    level: int  # of zstd
    threads: int  # of zstd, for each stream; 0: one per core
    governor: Governor = field(default_factory=Unhindered)
    gently: bool = True  # at a copy's priority, below the server's
    frame_bytes: int = FRAME_BYTES  # plain ones, in each frame
    recipients: tuple[str, ...] = ()  # age's public keys; empty: everybody can read it
    buffered: set[int] = field(default_factory=set)  # devices that were met, whose file systems refuse O_DIRECT
    give_up: Callable[[], None] = lambda: None  # called when it fails: ends whoever waits within a sink

    def object_name(self, plain: str) -> str:
        """What the object is called in this manner: one that is encrypted says so."""
        return f"{plain}.age" if self.recipients else plain


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def automatic_streams() -> int:
    """How many streams a copy has when nobody says."""
    return min(cores(), _MOST_STREAMS)


class Packing:
    """One object that is being written, for the length of a `with`. Its name is told by `name`.

    Hashing, compressing and storing have a thread each: of the three, compressing takes longest by far, so that more
    threads would only add to the cost of handing blocks over (measured with 1 MiB blocks on 2 cores: 20 to 50 µs each).
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        manner: CopyManner,
        *,
        is_tar: bool = True,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._manner = manner
        self._plain = Digest()
        self.lines = MemberLines()  # of its members, for the index
        self._members = Members(name, told=self.lines.add) if is_tar else None
        threads = manner.threads or cores()
        self._compressor = Compressor(level=manner.level, threads=threads, frame_bytes=manner.frame_bytes)
        self._sealing = _sealing(manner.recipients)
        self._storing = ObjectSink(self._compressor.ends, sink, self._sealing)
        first = StationChain(self._plain, self._members) if self._members is not None else self._plain
        self._digesting, self._compressing = Timed("digest", first), Timed("compress", self._compressor)
        stations: list[Station] = [self._digesting, self._compressing, self._storing]
        self._pipeline = Pipeline(stations, idle=lambda: manner.governor.pace(0), gently=manner.gently, on_news=on_room)

    def __enter__(self) -> Self:
        self._pipeline.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is not None:
            self._manner.give_up()
        self._pipeline.close()

    @property
    def room(self) -> int:
        """How many blocks are taken without waiting. Raises what a stage raised."""
        return self._pipeline.room

    def write(self, block: bytes) -> None:
        """Append what the governor has let pass."""
        self._pipeline.put(block)

    def finish(self) -> StoredObject:
        """What was stored, all of which the sink has now. Raises what a stage raised."""
        self._pipeline.finish()
        self.lines.finish()
        return StoredObject(
            name=self.name,
            plain_bytes=self._plain.size,
            stored_bytes=self._storing.whole.size,
            plain_sha256=self._plain.sha256,
            stored_sha256=self._storing.whole.sha256,
            files=self._members.files if self._members is not None else 0,
            frames=tuple(self._storing.frames),
        )

    @property
    def watches(self) -> Sequence[Stopwatch]:
        """The stages' work so far."""
        return (self._digesting.watch, self._compressing.watch, *self._storing.watches)


class ObjectSink:
    """The end of the way: zstd frames are encrypted, counted, hashed each and all, and written.

    `frames` tile what was written. age holds bytes back, and its own end comes after the last frame's: a frame of an
    encrypted object ends where the ciphertext stood when the zstd frame had been given to it, the last one at the end.
    """

    def __init__(self, ends: Sequence[FrameEnd], sink: Sink, sealing: Station | None = None) -> None:
        """`ends` are those of the frames that come: it may grow, but has a frame's before the last of it comes."""
        self.whole = Digest()
        self.frames: list[Frame] = []
        self._ends = ends
        self._sink = sink
        self._sealing = sealing
        self._taken = 0  # bytes
        self._ended = 0  # frames whose last compressed byte was taken
        self._plain = 0  # of these, plain bytes that no frame of ours tells of yet
        self._sha256, self._size = sha256(), 0  # of the frame that is being stored
        self._cut_due = False
        self._encrypt, self._digest, self._write = (Stopwatch(stage) for stage in ("encrypt", "digest-stored", "write"))

    @property
    def watches(self) -> tuple[Stopwatch, ...]:
        """The work of its three stages."""
        return (self._digest, self._write) if self._sealing is None else (self._encrypt, self._digest, self._write)

    def take(self, block: bytes) -> Iterator[bytes]:
        """Nothing: what it makes is written."""
        if self._cut_due:
            self._cut()
        if self._sealing is None:
            self._store(block)
        else:
            with self._encrypt.over(len(block)):
                sealed = list(self._sealing.take(block))
            for piece in sealed:
                self._store(piece)
        self._taken += len(block)
        ends = self._ends
        if self._ended < len(ends) and self._taken == ends[self._ended].stored_bytes:
            self._plain += ends[self._ended].plain_bytes
            self._ended += 1
            self._cut_due = self._size > 0  # of a small frame age may have given out nothing
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Nothing: the last frame is written."""
        if self._sealing is not None:
            with self._encrypt:
                sealed = list(self._sealing.end())
            for piece in sealed:
                self._store(piece)
        if self._size or not self.frames:
            self._cut()
        else:
            last = self.frames[-1]
            self.frames[-1] = replace(last, plain_bytes=last.plain_bytes + self._plain)
        yield from ()

    def _store(self, piece: bytes) -> None:
        with self._digest.over(len(piece)):
            self.whole.add(piece)
            self._sha256.update(piece)
        self._size += len(piece)
        with self._write.over(len(piece)):
            self._sink.write(piece)

    def _cut(self) -> None:
        self.frames.append(Frame(self._plain, self._size, self._sha256.hexdigest()))
        self._sha256, self._size, self._plain = sha256(), 0, 0
        self._cut_due = False


def require_files(stored: StoredObject, files: int) -> None:
    """It has as many files as were to be stored.

    Raises:
        SnapshotError: it has not.
    """
    if stored.files != files:
        raise SnapshotError(f"the archive has {stored.files} files where {files} were to be stored")


def _sealing(recipients: tuple[str, ...]) -> Station | None:
    if not recipients:
        return None
    from backupd.archive.sealing import Encryptor  # only who encrypts pays for loading it

    return Encryptor(recipients)
