"""Everything that was asked of several disks, in the order in which it reached them: writes with their bytes, flushes.

Knows: the file. A record is a head of 16 bytes, and of a write its bytes. The order is that of all disks together, so
that an instant of the machine is a number: how many requests had been answered by then.
"""

import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_HEAD = struct.Struct("<BBHIQ")  # kind, disk, whether it is durable by itself, bytes, offset
_LOOK_BYTES = 64 << 10


class Kind(IntEnum):
    """What was asked of a disk."""

    WRITE = 1
    FLUSH = 2


@dataclass(frozen=True, slots=True)
class Request:
    """One of them. `at` is where the bytes of a write are in the file."""

    kind: Kind
    disk: int
    offset: int = 0
    length: int = 0
    durable: bool = False  # FUA: answered once it is on the medium
    at: int = 0


class Journal:
    """A recording that goes on; threads may append at once."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._end = self._count = 0

    @property
    def count(self) -> int:
        """How many requests it has: the instant of now."""
        with self._lock:
            return self._count

    def append(self, kind: Kind, disk: int, offset: int = 0, data: bytes = b"", *, durable: bool = False) -> int:
        """One more; where its bytes begin in the file."""
        head = _HEAD.pack(kind, disk, durable, len(data), offset)
        with self._lock:
            at = self._end
            done = os.pwritev(self.descriptor, [head, data], at)
            if done != len(head) + len(data):
                raise OSError(f"the recording could not be written: {done} of {len(head) + len(data)} bytes")
            self._end += done
            self._count += 1
        return at + len(head)

    def empty(self) -> None:
        """It begins anew."""
        with self._lock:
            os.ftruncate(self.descriptor, 0)
            self._end = self._count = 0


def requests(descriptor: int) -> Iterator[Request]:
    """All that an open recording has, in order. One that was cut off in the middle ends with the last whole request."""
    end, at = os.fstat(descriptor).st_size, 0
    window, begin = b"", 0
    while at + _HEAD.size <= end:
        if not begin <= at <= begin + len(window) - _HEAD.size:
            window, begin = os.pread(descriptor, _LOOK_BYTES, at), at
        kind, disk, durable, length, offset = _HEAD.unpack_from(window, at - begin)
        at += _HEAD.size
        if at + length > end:
            return
        yield Request(Kind(kind), disk, offset, length, bool(durable), at if length else 0)
        at += length
