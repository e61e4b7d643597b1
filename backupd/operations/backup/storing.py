"""What one run stores, in order: the archived folder in its streams, the binlog, the option files, the index.

Knows: which objects a backup has, and an upper bound of what each can take; that what waits in a spool is sent later,
and the index after it.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from backupd.archive import Sink, index
from backupd.archive.index import MemberLines
from backupd.archive.listing import Listing
from backupd.archive.options import option_files
from backupd.archive.packing import CopyManner
from backupd.archive.sending import store_spooled
from backupd.archive.sources import BinlogCut
from backupd.archive.spool import Spool, Spooled
from backupd.archive.stations import MOST_FRAME_BYTES
from backupd.archive.stopwatch import together
from backupd.archive.stream import at_most_spooled, store_binlog, store_content, store_streams
from backupd.config import CopyConfig
from backupd.policy.manifest import MOST_FRAMES, MOST_OBJECTS
from backupd.vocabulary.penalty import Throughput
from backupd.vocabulary.storage import StoredObject

OPTIONS_OBJECT = "options.tar.zst"
MOST_BYTES = MOST_FRAMES * MOST_FRAME_BYTES  # plain ones of a backup: its manifest has room for no more frames

_HARDLY_LESS = 64  # what cannot be compressed grows by less than a part in so many: zstd's blocks, age's chunks
_LEAST_SPOOLED = 16 << 20  # plain bytes of an object that is made small for the spool
_BESIDE_FILES = 64 << 20  # headers and padding of the archive, and the index


class _OpenObject(Protocol):
    """Opens an object on every target."""

    def __call__(
        self, name: str, *, at_most: int | None = None, idle: Callable[[], None] = ...
    ) -> AbstractContextManager[Sink]:
        """See `Copies.open_object`."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is to be stored."""

    root: Path  # of the listing
    listing: Listing
    binlog: BinlogCut | None

    @property
    def size(self) -> int:
        """Plain bytes of all of it, by an estimate of the archives' lengths."""
        return self.listing.size + (self.binlog.size if self.binlog is not None else 0)

    def at_most(self, object_size: int) -> int:
        """Bytes that no object of them exceeds as it is stored, whichever files it takes: the roll-over's, as a rule.

        One file is never parted, so that the largest one can be more.
        """
        plain = max(
            min(self.listing.size, object_size + self.listing.largest),
            self.binlog.size if self.binlog is not None else 0,
        )
        return plain + plain // _HARDLY_LESS + _BESIDE_FILES

    @property
    def at_most_spooled(self) -> int:
        """Bytes of a spool that has room for all of it."""
        binlog = at_most_spooled(self.binlog.size, len(self.binlog.whole) + 3) if self.binlog is not None else 0
        return at_most_spooled(self.listing.size, 2 * len(self.listing.entries)) + binlog


@dataclass(frozen=True, slots=True)
class StoredContents:
    """What became of them."""

    objects: tuple[StoredObject, ...]
    throughput: tuple[Throughput, ...] = ()  # of the streams, without the writing, which each target does for itself
    members: Mapping[str, MemberLines] = field(default_factory=dict)  # for the index, which is not written yet
    spooled: tuple[Spooled, ...] = ()  # what `send` is for

    @property
    def spooled_bytes(self) -> int:
        """Plain ones."""
        return sum(spooled.size for spooled in self.spooled)


@dataclass(frozen=True, slots=True)
class Storing:
    """How the contents become objects: opened by whom, as the job wants it, in which manner."""

    contents: Contents
    opened: _OpenObject
    copy: CopyConfig
    spool: Spool | None = None

    def store(self, manner: CopyManner) -> StoredContents:
        """Read everything; all objects of the backup but its manifest are written where no spool has any of them.

        Raises:
            SnapshotError: a file could not be read: on a snapshot each such is a fault.
            ConfigurationError: an option file could not be read.
            TargetError: no target is left.
            Anything that the governor raises.
        """
        manner = self._in_frames(manner)
        contents, open_object = self.contents, self._open_object(manner)
        streams = store_streams(
            contents.root,
            contents.listing,
            open_object,
            streams=self.copy.streams,
            object_size=self._object_size,
            manner=manner,
            spool=self.spool,
        )
        objects, members, spooled = streams.objects, dict(streams.members), streams.spooled
        throughput = streams.throughput
        if contents.binlog is not None:
            binlog = store_binlog(contents.binlog, open_object=open_object, manner=manner, spool=self.spool)
            objects += binlog.objects
            members |= binlog.members
            spooled += binlog.spooled
            throughput = together(throughput, binlog.throughput)
        stored = StoredContents(objects, _without_writing(throughput), members, spooled)
        return stored if spooled else self._rounded_off(stored, manner)

    def send(self, stored: StoredContents, manner: CopyManner) -> StoredContents:
        """The same with everything written that waited in the spool, whose files are gone.

        Raises:
            VerificationError: what was read back from the spool is not what was written to it.
            SpoolError: it could not be read.
            TargetError: no target is left.
            Anything that the governor raises.
        """
        manner = self._in_frames(manner)
        sent = store_spooled(stored.spooled, self._open_object(manner), streams=self.copy.streams, manner=manner)
        objects = sorted((*stored.objects, *sent.objects), key=lambda each: _place(each.name))
        throughput = together(stored.throughput, _without_writing(sent.throughput))
        whole = StoredContents(tuple(objects), throughput, {**stored.members, **sent.members})
        return self._rounded_off(whole, manner)

    def _rounded_off(self, stored: StoredContents, manner: CopyManner) -> StoredContents:
        """With the option files, and the index of them all."""
        objects, open_object = list(stored.objects), self._open_object(manner)
        if self.copy.option_files:
            archive = option_files(self.copy.option_files)
            objects.append(store_content(OPTIONS_OBJECT, [archive], open_object=open_object, manner=manner))
        lines = index.written(dict(sorted(stored.members.items(), key=lambda each: _place(each[0]))))
        objects.append(store_content(index.INDEX_OBJECT, lines, open_object=open_object, manner=manner))
        return StoredContents(tuple(objects), stored.throughput)

    def _open_object(self, manner: CopyManner) -> Callable[[str], AbstractContextManager[Sink]]:
        at_most = self.contents.at_most(self._as_allowed(self.copy.object_size))
        return lambda name: self.opened(name, at_most=at_most, idle=lambda: manner.governor.pace(0))

    @property
    def _object_size(self) -> int:
        """At most an eighth of a spool that has no room for everything: an object that does not fit is streamed."""
        size = self.copy.object_size
        if self.spool is not None and self.contents.at_most_spooled > (room := self.spool.room):
            size = min(size, max(_LEAST_SPOOLED, room // 8))
        return self._as_allowed(size)

    def _as_allowed(self, size: int) -> int:
        """The manifest has room for twice as many objects: one may end well before its size is reached."""
        return max(size, self.contents.size // (MOST_OBJECTS // 2))

    def _in_frames(self, manner: CopyManner) -> CopyManner:
        """The same with frames so large that the manifest has room for all of them."""
        least = min(-(-self.contents.size // MOST_FRAMES), MOST_FRAME_BYTES)
        return replace(manner, frame_bytes=max(manner.frame_bytes, least))


def _place(name: str) -> tuple[bool, int, str]:
    """Of an object among the others: data objects by their number, then the rest."""
    kind, _, number = name.partition(".")[0].partition("-")
    return (not number.isdecimal(), int(number) if number.isdecimal() else 0, kind)


def _without_writing(stages: tuple[Throughput, ...]) -> tuple[Throughput, ...]:
    return tuple(stage for stage in stages if stage.stage != "write")
