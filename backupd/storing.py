"""What one run stores, in order: the archived folder in its streams, the binlog, the option files, the index.

Knows: which objects a backup has, and an upper bound of what each can take. Refuses to know where they go
(`open_object`) and what a snapshot is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backupd.archive import Sink, index
from backupd.archive.options import option_files
from backupd.archive.packing import CopyManner
from backupd.archive.sources import BinlogCut, Listing
from backupd.archive.stream import store_binlog, store_content, store_streams
from backupd.config import CopyConfig
from backupd.model import StoredObject, Throughput

OPTIONS_OBJECT = "options.tar.zst"

_HARDLY_LESS = 64  # what cannot be compressed grows by less than a part in so many: zstd's blocks, age's chunks
_BESIDE_FILES = 64 << 20  # headers and padding of the archive, and the index


class Opened(Protocol):
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
    def at_most(self) -> int:
        """Bytes that no object of them exceeds as it is stored, whichever files its stream takes."""
        plain = self.listing.size + (self.binlog.offset if self.binlog is not None else 0)
        return plain + plain // _HARDLY_LESS + _BESIDE_FILES


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of them."""

    objects: tuple[StoredObject, ...]
    throughput: tuple[Throughput, ...]  # of the streams, without the writing, which each target does for itself


def store(contents: Contents, opened: Opened, copy: CopyConfig, manner: CopyManner) -> Stored:
    """Write all objects of a backup but its manifest.

    Raises:
        SnapshotError: a file could not be read: on a snapshot each such is a fault.
        ConfigurationError: an option file could not be read.
        TargetError: no target is left.
        Anything that the governor raises.
    """

    def open_object(name: str) -> AbstractContextManager[Sink]:
        return opened(name, at_most=contents.at_most, idle=lambda: manner.governor.pace(0))

    streams = store_streams(contents.root, contents.listing, open_object, streams=copy.streams, manner=manner)
    objects = list(streams.objects)
    if contents.binlog is not None:
        objects.append(store_binlog(contents.binlog, open_object=open_object, manner=manner))
    if copy.option_files:
        archive = option_files(copy.option_files)
        objects.append(store_content(OPTIONS_OBJECT, archive, open_object=open_object, manner=manner))
    members = index.to_bytes(streams.members)
    objects.append(store_content(index.INDEX_OBJECT, members, open_object=open_object, manner=manner))
    return Stored(tuple(objects), tuple(stage for stage in streams.throughput if stage.stage != "write"))
