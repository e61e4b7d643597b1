"""What servers compress in their logs: MariaDB's statements and rows (zlib), MySQL's whole transactions (zstd).

Knows: both formats, and how much is expanded at most. A part that says that it is larger, or is, is not expanded.
"""

import sys
import zlib
from collections.abc import Iterator

from backupd.mysql.binlog.events import MOST_EVENT_BYTES, ImpossibleEvent, WholeEvents

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MOST_PLAIN_BYTES = 64 << 20  # of MariaDB's parts: it makes rows events of 8 KiB, and larger ones of one row only
_PIECE_BYTES = 1 << 20  # of MySQL's transactions, which are never held whole

_ZLIB = 0x80  # the highest bit is always set, and the three below tell the method: 0 is zlib
_METHOD = 0xF0
_LENGTH_BYTES = 0x07

_END, _METHOD_FIELD = 0, 2
_ZSTD, _PLAIN = 0, 255


def mariadb_part(stored: memoryview, most: int = MOST_PLAIN_BYTES, *, cut: bool = False) -> bytes | None:
    """What a compressed statement or the rows of an event were; None: more than `most`, or damaged.

    With `cut`, the first `most` bytes of what is longer.
    """
    if not stored or stored[0] & _METHOD != _ZLIB:
        return None
    behind = 1 + (stored[0] & _LENGTH_BYTES)
    size = int.from_bytes(stored[1:behind], "big")
    if size > most and not cut:
        return None
    try:
        plain = zlib.decompressobj().decompress(stored[behind:], min(size, most) or 1)
    except zlib.error:
        return None
    return plain if len(plain) == min(size, most) else None


def mysql_events(body: memoryview) -> Iterator[bytes]:
    """The events in a Transaction_payload event, without checksums; one at a time.

    Raises:
        ImpossibleEvent: it is damaged, expands to more than is possible, has an event that is too large to be expanded,
            or is compressed by a method that is not known.
    """
    method, payload = _payload(body)
    whole = WholeEvents(most=MOST_PLAIN_BYTES)
    for piece in _parts(payload) if method == _PLAIN else _expanded(payload):
        yield from whole.feed(piece)
    if whole.pending:
        raise ImpossibleEvent("a compressed transaction ends within an event")


def _parts(payload: memoryview) -> Iterator[bytes]:
    for at in range(0, len(payload), _PIECE_BYTES):
        yield bytes(payload[at : at + _PIECE_BYTES])


def _expanded(payload: memoryview) -> Iterator[bytes]:
    unpack, size = zstd.ZstdDecompressor(), 0
    parts = _parts(payload)
    while not unpack.eof:
        stored = next(parts, None) if unpack.needs_input else b""
        if stored is None:
            raise ImpossibleEvent("a compressed transaction is cut off")
        try:
            piece = unpack.decompress(stored, _PIECE_BYTES)
        except zstd.ZstdError as error:
            raise ImpossibleEvent(f"a compressed transaction is damaged: {str(error).lower()}") from error
        size += len(piece)
        if size > MOST_EVENT_BYTES:
            raise ImpossibleEvent("a compressed transaction expands to more than is possible")
        yield piece


def packed(body: bytes | memoryview, at: int) -> tuple[int, int]:
    """A length as both servers write it, in 1, 3, 4 or 9 bytes, and where what follows begins.

    Raises:
        IndexError: there is none.
    """
    first = body[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size or at + 1 + size > len(body):
        raise IndexError
    return int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size


def _payload(body: memoryview) -> tuple[int, memoryview]:
    method, at = _ZSTD, 0
    try:
        while True:
            field, at = packed(body, at)
            if field == _END:
                break
            length, at = packed(body, at)
            if field == _METHOD_FIELD:
                method, _ = packed(body, at)
            at += length
    except IndexError as error:
        raise ImpossibleEvent("a compressed transaction's head is cut off") from error
    if method not in (_ZSTD, _PLAIN):
        raise ImpossibleEvent(f"a transaction is compressed by an unknown method, {method}")
    return method, body[at:]
