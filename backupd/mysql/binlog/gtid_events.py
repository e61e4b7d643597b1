"""The events that tell GTIDs: which transaction begins, and what was executed before a file's first one.

Knows: MariaDB's GTID and Gtid_list; MySQL's GTID, anonymous and tagged GTID (from 8.3, in the format of its
`libs/mysql/serialization`), and Previous_gtids with and without tags. Compared with what `mariadb-binlog` 10.11.19 and
`mysqlbinlog` 9.7.4 make of them.
"""

import struct
import uuid
from functools import lru_cache
from typing import NamedTuple

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent
from backupd.policy.gtid import BinlogGtids, ExecutedGtids, OneGtid

_MARIADB = struct.Struct("<QI")  # number, domain
_LIST_ENTRY = struct.Struct("<IIQ")  # domain, server, number
_LIST_FLAGS = 0x0FFF_FFFF  # the four bits above are flags of the list
_MYSQL = struct.Struct("<B16sqB8s8s")  # flags, uuid, number, kind of clock, two clocks
_INTERVAL = struct.Struct("<QQ")  # first, and the one behind the last
_TIME_BYTES = 7
_HAS_ORIGINAL_TIME = 1 << 55
_MOST_TAG = 32  # characters
_LATEST = 250_000_000_000_000_000  # microseconds since 1970: in the year 9892, and what follows cannot be told
_COMMITTED, _ORIGINALLY_COMMITTED = 6, 7  # fields of the GTID that may have a tag: times
_TAGGED_LIST = 1  # in the first and last byte of the count of MySQL's list that may have tags


class BegunGtid(NamedTuple):
    """What the first event of a transaction tells of it."""

    gtid: OneGtid | None  # None: the server gave it none
    # Microseconds since 1970, by the clock of the server that its client wrote to; None: not told, as of MariaDB's.
    committed_at: int | None


def begun(event: LogEvent) -> BegunGtid | None:
    """What this event tells of the transaction that it begins; None: it begins none.

    Raises:
        ImpossibleEvent: it is too short for what it says.
    """
    try:
        if event.kind == layout.MARIADB_GTID:
            number, domain = _MARIADB.unpack_from(event.body)
            return BegunGtid((domain, event.server_id, number), None)
        if event.kind in (layout.GTID, layout.ANONYMOUS_GTID):
            return _mysql(event)
        if event.kind == layout.TAGGED_GTID:
            return _tagged(event.body)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ImpossibleEvent(f"the GTID at {event.start} is too short or makes no sense") from error
    return None


def mariadb_list(event: LogEvent) -> BinlogGtids:
    """What was executed before a file of MariaDB's. Of one domain the last entry is its last transaction.

    Raises:
        ImpossibleEvent: it is too short for what it says.
    """
    body = event.body
    count = int.from_bytes(body[:4], "little") & _LIST_FLAGS
    if len(body) < 4 + count * _LIST_ENTRY.size:
        raise ImpossibleEvent(f"the list of GTIDs at {event.start} is too short")
    places = range(4, 4 + count * _LIST_ENTRY.size, _LIST_ENTRY.size)
    return BinlogGtids.of_list(_LIST_ENTRY.unpack_from(body, at) for at in places)


def mysql_list(event: LogEvent) -> ExecutedGtids:
    """What was executed before a file of MySQL's.

    Raises:
        ImpossibleEvent: it is too short for what it says.
    """
    found = ExecutedGtids()
    body = event.body
    try:
        count, tagged = int.from_bytes(body[:8], "little"), body[7] == _TAGGED_LIST
        at = 8
        for _ in range(count >> 8 & (1 << 48) - 1 if tagged else count):
            source, at = _uuid(body[at : at + 16]), at + 16
            if tagged:
                tag, at = _tag(body, at)
                source += f":{tag}" * bool(tag)
            (intervals,) = struct.unpack_from("<Q", body, at)
            at += 8
            for _ in range(intervals):
                first, behind = _INTERVAL.unpack_from(body, at)
                found.add(source, first, behind - 1)
                at += _INTERVAL.size
    except (struct.error, IndexError, ValueError) as error:
        raise ImpossibleEvent(f"the list of GTIDs at {event.start} is too short or makes no sense") from error
    return found


def _mysql(event: LogEvent) -> BegunGtid:
    body = event.body
    _, source, number, *_ = _MYSQL.unpack_from(body)
    at = _MYSQL.size
    when = int.from_bytes(body[at : at + _TIME_BYTES], "little")
    if when & _HAS_ORIGINAL_TIME:
        when &= ~_HAS_ORIGINAL_TIME
        when = int.from_bytes(body[at + _TIME_BYTES : at + 2 * _TIME_BYTES], "little") or when  # 0: it was not told
    gtid = (_uuid(source), number) if event.kind == layout.GTID else None
    return BegunGtid(gtid, when if len(body) > at else None)


def _tagged(body: memoryview) -> BegunGtid:
    """Fields have numbers, in their order; one that is not needed is left out, as an original time that is the same."""
    version, at = _varied(body, 0)
    if version != 1:
        raise IndexError
    size, at = _varied(body, at)
    _, at = _varied(body, at)
    source, tag, number, committed = b"", "", 0, None
    while at < min(size, len(body)):
        field, at = _varied(body, at)
        if field == 1:
            octets = []
            for _ in range(16):
                octet, at = _varied(body, at)
                octets.append(octet & 0xFF)
            source = bytes(octets)
        elif field == 3:
            tag, at = _tag(body, at)
        else:
            value, at = _varied(body, at)
            if field == 2:
                number = value >> 1  # the lowest bit is the sign
            elif field in (_COMMITTED, _ORIGINALLY_COMMITTED):
                if value > _LATEST:
                    raise IndexError
                committed = value or committed
            elif field > _ORIGINALLY_COMMITTED:
                break
    return BegunGtid((f"{_uuid(source)}:{tag}", number), committed)


def _varied(body: memoryview, at: int) -> tuple[int, int]:
    """A whole number, and where what follows begins: as many ones as end the first byte, so many bytes follow it."""
    more = (~body[at] & (body[at] + 1)).bit_length() - 1 if body[at] != 0xFF else 8
    end = at + 1 + more
    if end > len(body):
        raise IndexError
    return int.from_bytes(body[at:end], "little") >> (more + 1 if more < 8 else 8), end


def _tag(body: memoryview, at: int) -> tuple[str, int]:
    length, at = _varied(body, at)
    if length > _MOST_TAG or at + length > len(body):
        raise IndexError
    return bytes(body[at : at + length]).decode("ascii"), at + length


def _uuid(octets: bytes | memoryview) -> str:
    if len(octets) != 16:
        raise IndexError
    return _uuid_text(bytes(octets))


@lru_cache(maxsize=64)
def _uuid_text(octets: bytes) -> str:
    return str(uuid.UUID(bytes=octets))
