"""The events of one binlog file, from its bytes in any pieces: as the file grows, or as a client receives it.

Knows: the header, the format description, checksums (CRC32, RFC 1952's), that positions are told in 32 bits and a file
may be longer. Refuses to know what the events mean: `grouping` and `transactions` do.

A client in raw mode that began at an offset wrote the magic, a format description that the server made for it (its end
position is 0), and then the events with the positions that they have in the server's own file.

Everything is a stranger's: a length is compared with what is possible before memory is taken.
"""

import io
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from backupd.mysql.binlog.layout import (
    ARTIFICIAL,
    BETWEEN_TRANSACTIONS,
    CHECKSUM_BYTES,
    FORMAT_DESCRIPTION,
    HEADER,
    HEADER_BYTES,
    HEARTBEATS,
    IN_USE,
    MAGIC,
    START_ENCRYPTION,
)
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.units import size_words

MOST_EVENT_BYTES = (1 << 30) + (64 << 20)  # both servers' largest max_allowed_packet, and what stands around a row

_LOW = 0xFFFF_FFFF  # what of a position a header has room for
_CRC32 = 1
_VERSION = 4  # of the format, since MySQL 5.0
_TYPES_AT = 2 + 50 + 4 + 1  # of the format description's body: behind version, server's version, time, header's length
_END_AT = HEADER_BYTES - 6
_FLAGS_AT = HEADER_BYTES - 2
_LEAST_CHECKSUMMED: Final = HEADER_BYTES + CHECKSUM_BYTES
_CRC32_OF_WHOLE: Final = 0x2144_DF1C  # of whatever its own CRC32 stands behind
_DAMAGED = "compare it with the server's own file: mysqlbinlog --verify-binlog-checksum, or mariadb-binlog"


class ImpossibleEvent(ValueError):
    """No server wrote this. The message says why, and not of which file."""


class LogEvent(NamedTuple):
    """One event as the server wrote it. A tuple, for a busy server writes 50,000 a second: none is made faster."""

    kind: int
    at_seconds: int  # by the server's clock, since 1970
    server_id: int
    flags: int
    start: int  # offset in the server's own file; of one that is in no file: where the next one begins
    end: int
    raw: bytes  # all of it, with header and checksum
    checksummed: bool

    @property
    def body(self) -> memoryview:
        """Without header and checksum. It is no copy."""
        return memoryview(self.raw)[HEADER_BYTES : len(self.raw) - CHECKSUM_BYTES * self.checksummed]

    @property
    def artificial(self) -> bool:
        """The server made it for this reader: it is in no file."""
        return self.start == self.end


class WholeEvents:
    """Whole events from bytes in any pieces. An event that is not whole yet is held once, however large it is."""

    def __init__(self, *, most: int = MOST_EVENT_BYTES) -> None:
        self._most = most
        self._held = io.BytesIO()  # hands over what was written to it without a copy
        self._size = 0
        self._length = 0  # of the event that is held; 0: its header is not whole

    @property
    def pending(self) -> int:
        """Bytes of an event that is not whole yet."""
        return self._size

    def feed(self, data: bytes, at: int = 0) -> Iterator[bytes]:
        """The events that end in these bytes, from that offset on. To be walked to its end.

        Raises:
            ImpossibleEvent: an event's length is impossible.
        """
        size = len(data)
        view = memoryview(data)
        while self._size and at < size:
            at += self._hold(view[at:])
            if self._length and self._size == self._length:
                yield self._released()
        most = self._most
        while size - at >= HEADER_BYTES:
            length = int.from_bytes(data[at + 9 : at + 13], "little")
            if not HEADER_BYTES <= length <= most:
                raise _impossible(length)
            behind = at + length
            if behind > size:
                break
            yield data[at:behind]
            at = behind
        if at < size:
            self._hold(view[at:])

    def _hold(self, view: memoryview) -> int:
        wanted = (self._length or HEADER_BYTES) - self._size
        taken = self._held.write(view[:wanted])
        self._size += taken
        if not self._length and self._size == HEADER_BYTES:
            self._length = int.from_bytes(self._held.getbuffer()[9:13], "little")
            if not HEADER_BYTES <= self._length <= self._most:
                raise _impossible(self._length)
            return taken + (self._hold(view[taken:]) if self._length > HEADER_BYTES else 0)
        return taken

    def _released(self) -> bytes:
        raw = self._held.getvalue()
        self._held, self._size, self._length = io.BytesIO(), 0, 0
        return raw


class EventStream:
    """The events of one file. `start` is about where its first event of the server's is: only a file of more than 4 GiB
    that is not read from its beginning has to be told it, and any offset less than 4 GiB before it does.
    """

    def __init__(self, file: str, *, start: int = 0) -> None:
        self._file = file
        self._whole = WholeEvents()
        self._magic = b""
        self._at = max(start, len(MAGIC))
        self._placed = False  # `_at` is where the next event begins, and not only at most there
        self._checksummed: bool | None = None  # None: no format description has been read yet
        self._encrypted = False

    @property
    def pending(self) -> int:
        """Bytes of an event, or of the magic, that is not whole yet."""
        return self._whole.pending + (len(self._magic) if len(self._magic) < len(MAGIC) else 0)

    def feed(self, data: bytes) -> Iterator[LogEvent]:
        """The events that end in these bytes, which go on where the earlier ones ended. To be walked to its end.

        Raises:
            ServerError: it is no binlog, is encrypted, is damaged, or has an event that is longer than any can be.
        """
        at = len(MAGIC) - len(self._magic)
        if at:
            self._magic += data[:at]
            if not MAGIC.startswith(self._magic):
                raise ServerError(f"{self._file} is not a binlog", hint="is it encrypted, or from another server?")
        crc32, unpack, made = zlib.crc32, HEADER.unpack_from, tuple.__new__
        checksummed = bool(self._checksummed)
        try:
            # Most of what an archive costs its host is spent here and in `TransactionReader.ends`: what has its place
            # in the file, as all but a few events have, takes no call of a function of ours.
            for raw in self._whole.feed(data, at):
                at_seconds, kind, server_id, length, end, flags = unpack(raw)
                if not self._placed or flags & ARTIFICIAL or kind in BETWEEN_TRANSACTIONS:
                    yield self._event(raw)
                    checksummed = bool(self._checksummed)
                    continue
                start = self._at
                if checksummed and (length < _LEAST_CHECKSUMMED or crc32(raw) != _CRC32_OF_WHOLE):
                    raise _changed(start)
                behind = start + length
                if end and behind & _LOW != end:
                    raise _misplaced(start, behind, end)
                self._at = behind
                yield made(LogEvent, (kind, at_seconds, server_id, flags, start, behind, raw, checksummed))
        except ImpossibleEvent as error:
            raise self._refusal(str(error)) from error

    def _event(self, raw: bytes) -> LogEvent:
        """Any event: by the first of a file is known how others are read, and where they are."""
        at_seconds, kind, server_id, length, end, flags = HEADER.unpack_from(raw)
        if kind == FORMAT_DESCRIPTION:
            self._checksummed = has_checksums(raw)
        elif self._checksummed is None:
            raise ServerError(
                f"the binlog {self._file} does not begin with a format description", hint="is it from another server?"
            )
        # MySQL and MariaDB write a checksum behind a format description whatever it says of other events.
        checksummed = self._checksummed or kind == FORMAT_DESCRIPTION
        if checksummed and not _is_whole(raw, kind):
            raise _changed(self._at)
        start, behind = self._placed_at(kind, length, end, flags)
        self._encrypted = self._encrypted or kind == START_ENCRYPTION
        return LogEvent(kind, at_seconds, server_id, flags, start, behind, raw, checksummed)

    def _placed_at(self, kind: int, length: int, end: int, flags: int) -> tuple[int, int]:
        """MariaDB, from 11.4 on, tells no place of what is within a transaction (MDEV-31273; seen on 11.8.9)."""
        if flags & ARTIFICIAL or kind in HEARTBEATS or (end == 0 and kind in BETWEEN_TRANSACTIONS):
            return self._at, self._at
        if end and not self._placed:
            self._at += (end - length - self._at) & _LOW
            self._placed = True
        start = self._at
        behind = start + length
        if end and behind & _LOW != end:
            raise _misplaced(start, behind, end)
        self._at = behind
        return start, behind

    def _refusal(self, why: str) -> ServerError:
        """What a client received through the server says that it is encrypted, and is not: so nothing is refused before
        an event cannot be read.
        """
        if self._encrypted:
            return ServerError(
                f"the binlog {self._file} is encrypted",
                hint="read it through the server, which decrypts it: --read-from-remote-server",
            )
        return ServerError(f"the binlog {self._file} is damaged: {why}", hint=_DAMAGED)


def detached(described: bytes) -> bytes:
    """A format description event as a server sends it to who begins behind it: with no place in the file."""
    head = described[:_END_AT] + bytes(4) + described[_END_AT + 4 : -CHECKSUM_BYTES]
    return head + zlib.crc32(head).to_bytes(CHECKSUM_BYTES, "little")


def has_checksums(format_event: bytes) -> bool:
    """Whether the events behind this format description have checksums.

    Raises:
        ImpossibleEvent: it is none that is known here.
    """
    types = len(format_event) - HEADER_BYTES - _TYPES_AT - CHECKSUM_BYTES - 1
    if types < FORMAT_DESCRIPTION or int.from_bytes(format_event[19:21], "little") != _VERSION:
        raise ImpossibleEvent("its format description is not of version 4")
    algorithm = format_event[-CHECKSUM_BYTES - 1]
    if algorithm > _CRC32:
        raise ImpossibleEvent(f"its checksums are of an unknown kind, {algorithm}")
    return algorithm == _CRC32


def _is_whole(raw: bytes, kind: int) -> bool:
    if len(raw) < _LEAST_CHECKSUMMED:
        return False
    if kind == FORMAT_DESCRIPTION and raw[_FLAGS_AT] & IN_USE:
        raw = raw[:_FLAGS_AT] + bytes([raw[_FLAGS_AT] & ~IN_USE]) + raw[_FLAGS_AT + 1 :]
    return zlib.crc32(raw) == _CRC32_OF_WHOLE


def _impossible(length: int) -> ImpossibleEvent:
    return ImpossibleEvent(f"an event of {size_words(length)} cannot be")


def _changed(at: int) -> ImpossibleEvent:
    return ImpossibleEvent(f"the checksum of the event at {at} is wrong")


def _misplaced(start: int, behind: int, end: int) -> ImpossibleEvent:
    return ImpossibleEvent(f"the event at {start} should end at {behind}, and says {end}")
