"""A mounted snapshot to objects, a tar stream for each, with one thread that reads for all; binlog and small things.

Knows: that all streams are read by turns under one governor, who is asked before anything is read, and that a failure
of any of them fails the whole.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Self

from backupd.archive import Governor, Sink
from backupd.archive.governor import CHECK_SECONDS
from backupd.archive.index import MemberLines
from backupd.archive.listing import Listing, divide
from backupd.archive.packing import CopyManner, Packing, automatic_streams, require_files
from backupd.archive.source_file import Batch, Content, Part, ReadingThread, batches
from backupd.archive.sources import BinlogCut
from backupd.archive.spool import Spool, Spooled, Spooling
from backupd.archive.stopwatch import Stopwatch, totals
from backupd.archive.tarring import binlog_stream, tar_stream
from backupd.vocabulary.errors import SpoolError
from backupd.vocabulary.penalty import Throughput
from backupd.vocabulary.storage import StoredObject

BINLOG_OBJECT = "binlog.tar.zst"

_HEADERS_BYTES, _PADDING_BYTES = 4 << 10, 1 << 20  # of a member beside the usual ones; of an archive

OpenObject = Callable[[str], AbstractContextManager[Sink]]


def data_object(number: int) -> str:
    """What the object of that number, counted from 1 over all streams, is called."""
    return f"data-{number}.tar.zst"


@dataclass(frozen=True, slots=True)
class StoredStreams:
    """What became of a tree, or of a binlog."""

    objects: tuple[StoredObject, ...]
    members: Mapping[str, MemberLines]  # by the object's name without `.age`, as the index wants it
    throughput: tuple[
        Throughput, ...
    ] = ()  # read, digest, compress, encrypt, digest-stored, write: all streams together
    spooled: tuple[Spooled, ...] = ()  # what is to be sent yet


def store_streams(
    root: Path,
    listing: Listing,
    open_object: OpenObject,
    *,
    streams: int,
    manner: CopyManner,
    object_size: int = sys.maxsize,
    spool: Spool | None = None,
) -> StoredStreams:
    """Write the files of `listing`, which `sources.list_members` made of `root`, as objects `data-N.tar.zst`.

    At most `streams` are written at once, 0 for as many as suit the host; each continues with another object where
    `object_size` would be passed, or one has very many names (`listing.divide`). `open_object` is called by
    this thread once for each object, and ends in it; what it opens is written by a thread of the stream's. Holes stay
    holes. Nothing is left running, whether this returns or raises.

    An object that the spool has room for goes into it, to no sink yet. Where the spool fails in its middle it is read
    anew and goes to its sink.

    Raises:
        SnapshotError: a file could not be read, vanished or changed: on a snapshot each of them is a fault.
        TargetError: a sink failed.
        Anything that the governor raises.
    """
    parts = divide(listing, streams or automatic_streams(), object_size=object_size)
    with ExitStack() as owed:
        reader = owed.enter_context(_reader(manner))
        room = threading.Event()

        @contextmanager
        def flowing(number: int, part: Listing) -> Iterator[_Flow]:
            name = data_object(number)
            with _receiving(name, open_object, spool, part, manner=manner, on_room=room.set) as receiving:
                parts = tar_stream(root, part)
                yield _Flow(number, parts, reader, receiving, governor=manner.governor, files=part.files)

        begun = [owed.enter_context(_Stream(numbered, flowing, spool)) for numbered in _numbered(parts)]
        _read_all(begun, room, manner.governor)
        for stream in begun:
            stream.finish()
    done = sorted((each for stream in begun for each in stream.done), key=lambda each: each.number)
    return StoredStreams(
        objects=tuple(each.stored for each in done if isinstance(each.stored, StoredObject)),
        members={data_object(each.number): each.members for each in done if each.members is not None},
        throughput=totals(watch for each in done for watch in each.watches),
        spooled=tuple(each.stored for each in done if isinstance(each.stored, Spooled)),
    )


@contextmanager
def _receiving(
    plain_name: str,
    open_object: OpenObject,
    spool: Spool | None,
    part: Listing,
    *,
    manner: CopyManner,
    on_room: Callable[[], None],
) -> Iterator[Packing | Spooling]:
    """Whoever takes an object's plain bytes: the spool where it has room for them, else the object itself."""
    spooling = None
    if spool is not None:
        at_most = at_most_spooled(part.size, len(part.entries))
        spooling = spool.spooling(plain_name, at_most=at_most, files=part.files, manner=manner, on_room=on_room)
    if spooling is not None:
        with spooling:
            yield spooling
    else:
        name = manner.object_name(plain_name)
        with open_object(name) as sink, Packing(name, sink, manner, on_room=on_room) as packing:
            yield packing


def _numbered(parts: Sequence[Sequence[Listing]]) -> list[list[tuple[int, Listing]]]:
    """Each stream's objects with their numbers: first of all streams the first ones, then the second ones."""
    numbers = count(1)
    numbered: list[list[tuple[int, Listing]]] = [[] for _ in parts]
    for objects in zip_longest(*parts):
        for stream, part in zip(numbered, objects, strict=True):
            if part is not None:
                stream.append((next(numbers), part))
    return numbered


def store_tree(root: Path, listing: Listing, writer: Sink, *, manner: CopyManner) -> StoredObject:
    """`store_streams` with one stream to a writer that is open already."""
    return store_streams(root, listing, lambda _name: nullcontext(writer), streams=1, manner=manner).objects[0]


def store_content(name: str, content: Iterable[bytes], *, open_object: OpenObject, manner: CopyManner) -> StoredObject:
    """Write what comes in pieces, a tar if `name` says so, as one object.

    Raises:
        TargetError: the sink failed.
        Anything that the governor raises.
    """
    name = manner.object_name(name)
    with open_object(name) as sink, Packing(name, sink, manner, is_tar=".tar." in name) as packing:
        for piece in content:
            manner.governor.pace(len(piece))
            packing.write(piece)
        return packing.finish()


def store_binlog(
    cut: BinlogCut, *, open_object: OpenObject, manner: CopyManner, spool: Spool | None = None
) -> StoredStreams:
    """Write a binlog's first `offset` bytes, whole ones before it, and an index that ends with it, as one object.

    Their folder is in it where no other object has it. It waits in the spool where that has room for it.

    Raises:
        SnapshotError: the file cannot be read or is shorter than the position says.
        TargetError: the sink failed.
        Anything that the governor raises.
    """
    with _reader(manner) as reader:
        if spool is not None and (spooled := _spooled_binlog(cut, reader, spool, manner)) is not None:
            return StoredStreams((), {}, totals(spooled.watches), (spooled,))
        name = manner.object_name(BINLOG_OBJECT)
        with open_object(name) as sink, Packing(name, sink, manner) as packing:
            _read_binlog(cut, reader, packing, manner)
            return StoredStreams((packing.finish(),), {BINLOG_OBJECT: packing.lines})


def _spooled_binlog(cut: BinlogCut, reader: ReadingThread, spool: Spool, manner: CopyManner) -> Spooled | None:
    """None where the spool has no room for it, or failed."""
    at_most = at_most_spooled(cut.size, cut.files + 1)  # and their folder
    spooling = spool.spooling(BINLOG_OBJECT, at_most=at_most, files=cut.files, manner=manner)
    if spooling is None:
        return None
    try:
        with spooling:
            _read_binlog(cut, reader, spooling, manner)
            return spooling.finish()
    except SpoolError as error:
        spool.close(error)
        return None


def _read_binlog(cut: BinlogCut, reader: ReadingThread, packing: Packing | Spooling, manner: CopyManner) -> None:
    flow = _Flow(1, binlog_stream(cut), reader, packing, governor=manner.governor, files=cut.files)
    while flow.read():
        pass


def at_most_spooled(size: int, members: int) -> int:
    """Plain bytes that an archive of this estimate does not exceed: attributes and long names take headers more."""
    return size + members * _HEADERS_BYTES + _PADDING_BYTES


def _reader(manner: CopyManner) -> ReadingThread:
    return ReadingThread(gently=manner.gently, idle=lambda: manner.governor.pace(0), buffered=manner.buffered)


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of a flow."""

    number: int
    stored: StoredObject | Spooled
    members: MemberLines | None  # of what is stored
    watches: tuple[Stopwatch, ...]


class _Flow:
    """One object on its way from files to its sink, or to the spool."""

    def __init__(
        self,
        number: int,
        parts: Iterator[Part],
        reader: ReadingThread,
        packing: Packing | Spooling,
        *,
        governor: Governor,
        files: int,
    ) -> None:
        self._number = number
        self._coming = batches(parts)
        self._batch = Batch((), 0)  # what comes first is not known before a disk was asked
        self._reader = reader
        self.packing = packing
        self._governor = governor
        self._files = files
        self.reading = Stopwatch("read")

    @property
    def has_room(self) -> bool:
        """All that is read next is taken without waiting. Raises what a stage raised."""
        return self.packing.room >= self._batch.blocks

    def read(self) -> bool:
        """Pass the next batch on, once the governor lets it be read; False when there is none any more.

        Raises:
            SnapshotError: a file could not be read.
        """
        batch = self._batch
        self._governor.pace(batch.size)

        def read_and_look_ahead(content: Content) -> tuple[list[bytes], Batch | None]:
            return content.blocks(batch), next(self._coming, None)

        with self.reading.over(batch.size):
            blocks, following = self._reader.do(read_and_look_ahead)
        for block in blocks:
            self.packing.write(block)
        if following is not None:
            self._batch = following
        return following is not None

    def finish(self) -> _Done:
        """It is stored, with as many files as were asked for."""
        if isinstance(self.packing, Spooling):
            spooled = self.packing.finish()
            return _Done(self._number, spooled, None, (self.reading, *spooled.watches))
        stored = self.packing.finish()
        require_files(stored, self._files)
        return _Done(self._number, stored, self.packing.lines, (self.reading, *self.packing.watches))


class _Stream:
    """One stream for the length of a `with`: its objects, one after the other."""

    def __init__(
        self,
        parts: Iterable[tuple[int, Listing]],
        flowing: Callable[[int, Listing], AbstractContextManager[_Flow]],
        spool: Spool | None,
    ) -> None:
        self.done: list[_Done] = []
        self._coming = deque(parts)
        self._flowing = flowing
        self._spool = spool
        self._scope = ExitStack()  # of the flow that is being read

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    def _begin(self) -> None:
        self.flow = self._scope.enter_context(self._flowing(*self._coming[0]))

    def _begin_anew(self, failed: SpoolError) -> None:
        """What was to wait in the spool is read once more, and streamed."""
        assert self._spool is not None
        self._scope.__exit__(type(failed), failed, failed.__traceback__)
        self._spool.close(failed)
        self._begin()

    @property
    def has_room(self) -> bool:
        """All that is read next is taken without waiting. Raises what a stage raised."""
        try:
            return self.flow.has_room
        except SpoolError as error:
            self._begin_anew(error)
            return self.flow.has_room

    def read(self) -> bool:
        """Pass a batch on; False where all objects have been read.

        One that ended is finished before the next one begins: a target has at most one open for each stream. The other
        streams wait for that, and their queues with them; the last one of each is finished when all are read, but for
        what waits in the spool.
        """
        try:
            if self.flow.read():
                return True
            if len(self._coming) == 1 and not isinstance(self.flow.packing, Spooling):
                return False
            self.finish()
        except SpoolError as error:
            self._begin_anew(error)
            return True
        self._scope.close()
        if not self._coming:
            return False
        self._begin()
        return True

    def finish(self) -> None:
        """The object that was read has all gone to its sink; nothing happens where there is none any more."""
        if self._coming:
            self.done.append(self.flow.finish())
            self._coming.popleft()


def _read_all(streams: Sequence[_Stream], room: threading.Event, governor: Governor) -> None:
    """Read by turns for whichever stream has room; the governor is asked when none has."""
    left = deque(streams)
    while left:
        room.clear()
        ready = next((stream for stream in left if stream.has_room), None)
        if ready is None:
            room.wait(CHECK_SECONDS)
            governor.pace(0)
            continue
        left.remove(ready)
        if ready.read():
            left.append(ready)
