"""Whether the log of an XFS image holds nothing that its files still need: then a mount need not read the log.

Knows: where the log of an XFS lies, what its last records say.

A mount first looks for the log's end. Where records are padded to a stripe's unit, as on a striped volume, it walks
back over them sector by sector: some 480 reads, one after the other, each of them in the way of the server's writes (in
the lab on `hdd` disks, under load, 3.7 s in which the server did 44 % less). LVM has the file system frozen for the
instant of a snapshot, and a frozen XFS has written everything back, and then logged its superblock alone
(`xfs_log_quiesce`, `xfs_log_cover` in the kernel's fs/xfs/xfs_log.c). That is not taken on trust: it is read from the
image itself, with a few requests. From the record that the last one names as the tail of the log up to the last one,
every transaction has to be one of the superblock and of nothing else, whose counters no reader asks for. That is all
that XFS itself would replay. Whatever is not exactly so is no proof, and the log is replayed as ever.

All numbers are checked before they are used, for the image may be anybody's. Source of the layouts:
fs/xfs/libxfs/xfs_format.h (`struct xfs_dsb`) and xfs_log_format.h (`struct xlog_rec_header`, `struct xlog_op_header`,
`struct xfs_buf_log_format`), Linux 6.1 and 7.2. A block of the log is of 512 bytes, whatever a sector is.
"""

import errno
import logging
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from backupd.vocabulary.volumes import DeviceNumber

log = logging.getLogger(__name__)

BLOCK = 512
WINDOW_BLOCKS = 8192  # 4 MiB: what is read of the log at once
_OVERLAP = 2048  # of two windows, and of the first with what lies behind the end that the live file system tells
_MOST_WINDOWS = (
    4  # what the server has logged since the snapshot; one that is faster has disks on which replay is quick
)

_ELSEWHERE = "its end was not found where it should be"
_GOES_ON = "its last record is followed by a newer one"

_ALIGNMENT = 4096
_SYSFS = Path("/sys")

_SUPERBLOCK = struct.Struct(">4sI40x")  # of 48 bytes; the uuid lies at 32
_LOG_START, _ALLOCATION_GROUP, _LOG_BLOCKS, _GROUP_LOG = (48, ">Q"), (84, ">I"), (96, ">I"), (124, ">B")
_BLOCK_SIZES = range(512, 65536 + 1)
_LARGEST_OFFSET = 1 << 62  # of what can be read at all

_MAGIC = b"\xfe\xed\xba\xbe"
_HEADER = struct.Struct(">4sIIIQQIII")  # magic, cycle, version, length, lsn, tail lsn, crc, previous block, operations
_CYCLES = 44  # the first words of the first 64 blocks of data, which the cycle's number has replaced
_UUID, _SIZE = 304, (320, ">I")
_HEADER_DATA = 64 * BLOCK  # what one block of header has room for
_PADDED = 2  # the version whose records may have several blocks of header

_OPERATION = struct.Struct(">IIBBH")  # transaction, length, client, flags, nothing
_TRANSACTION_CLIENT = 0x69
_START, _REGION, _COMMIT = 0x01, 0x00, 0x02
_TRANSACTION = 0x5452414E  # "TRAN", in the byte order of the host that wrote it, as what follows
_BUFFER = struct.Struct("=HHHHqI")  # type, regions, flags, length in blocks, block, words of its map
_BUFFER_TYPE = 0x123C
_SUPERBLOCK_FLAGS = (_START, _REGION, _REGION, _REGION, _COMMIT)  # transaction, its header, what is logged, its bytes


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where an XFS has its log."""

    uuid: bytes
    offset: int  # bytes, on the device
    blocks: int  # of 512 bytes


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of the log, all of it in the window."""

    block: int  # of the log
    headers: int  # of its blocks
    blocks: int  # with those
    cycle: int
    lsn: int
    tail_lsn: int
    operations: int

    @property
    def end(self) -> int:
        return self.block + self.blocks


def needs_no_replay(device: Path, origin: DeviceNumber) -> bool:
    """Whether the image on this device, a snapshot of `origin`, shows its files without a replay of its log.

    Two requests past the page cache. Of an image for which that cannot be told, the answer is no.
    """
    try:
        end = _live_end(origin)
        place = log_place(_read(device, 0, _ALIGNMENT))
        why = "its log is on another device" if place is None else _why_replay(device, end, place)
    except (OSError, ValueError, struct.error) as error:
        why = str(error)
    if why is not None:
        log.debug("the log of %s has to be replayed: %s", device, why)
    return why is None


def _why_replay(device: Path, end: int, place: LogPlace) -> str | None:
    """Looks for the end of the image's log from that of the live one backwards."""
    why: str | None = _ELSEWHERE
    for first in windows(end, place.blocks):
        count = min(WINDOW_BLOCKS, place.blocks - first)
        why = why_replay(_read(device, place.offset + first * BLOCK, count * BLOCK), first, place)
        if why not in (_ELSEWHERE, _GOES_ON):
            break
    return why


def windows(end: int, blocks: int) -> Iterator[int]:
    """Where the stretches begin that are read of a log of so many blocks, whose live end is there: the latest first.

    It is a ring: the live end may have come to its beginning since the snapshot.
    """
    first = min(end + _OVERLAP, blocks)
    for _ in range(_MOST_WINDOWS):
        first = max(0, first - WINDOW_BLOCKS)
        yield first
        if blocks <= WINDOW_BLOCKS:
            return
        first = first + _OVERLAP if first else blocks


def log_place(superblock: bytes) -> LogPlace | None:
    """Where the log is, by an image's first 4 KiB; None where it is on a device of its own.

    Raises:
        ValueError: that is no superblock.
    """
    magic, block_size = _SUPERBLOCK.unpack_from(superblock)
    start, per_group, blocks, shift = (
        struct.unpack_from(form, superblock, at)[0]
        for at, form in (_LOG_START, _ALLOCATION_GROUP, _LOG_BLOCKS, _GROUP_LOG)
    )
    if magic != b"XFSB" or block_size not in _BLOCK_SIZES or block_size % BLOCK or shift > 31 or not blocks:
        raise ValueError("it does not begin with a superblock of XFS")
    if start == 0:
        return None
    offset = ((start >> shift) * per_group + (start & ((1 << shift) - 1))) * block_size
    if offset > _LARGEST_OFFSET:
        raise ValueError("its superblock has an impossible log location")
    return LogPlace(bytes(superblock[32:48]), offset, blocks * block_size // BLOCK)


def why_replay(window: bytes, first: int, place: LogPlace) -> str | None:
    """Why the log has to be replayed, by a stretch of it that begins with block `first`; None: it need not be."""
    records = {record.lsn: record for record in _records(window, first, place)}
    if not records:
        return _ELSEWHERE
    last = records[max(records)]
    after = (last.end - first) * BLOCK
    if after >= len(window):
        return _ELSEWHERE
    if _cycle_of(window, after) >= last.cycle:
        return _GOES_ON
    chain = [records[lsn] for lsn in sorted(records) if lsn >= last.tail_lsn]
    if not chain or chain[0].lsn != last.tail_lsn:
        return "what is not written back yet begins before what was read"
    if any(before.end != after.block or before.cycle != after.cycle for before, after in pairwise(chain)):
        return "its last records do not follow one another"
    if not all(_is_the_superblock(record, _logged(record, window, first)) for record in chain):
        return "more than the superblock is not written back yet"
    return None


def _records(window: bytes, first: int, place: LogPlace) -> Iterator[_Record]:
    """The whole records in the window. No block of data begins as a header does: it begins with its cycle's number."""
    at = window.find(_MAGIC)
    while at >= 0:
        if at % BLOCK == 0:
            record = _record(memoryview(window)[at:], first + at // BLOCK, place)
            if record is not None:
                yield record
        at = window.find(_MAGIC, at + 1)


def _record(rest: memoryview, block: int, place: LogPlace) -> _Record | None:
    """What begins here; None where it is another file system's, is not where it says it is, or is not whole."""
    _, cycle, version, length, lsn, tail_lsn, _, _, operations = _HEADER.unpack_from(rest)
    if rest[_UUID : _UUID + 16] != place.uuid or lsn != cycle << 32 | block or length % BLOCK:
        return None
    size = struct.unpack_from(_SIZE[1], rest, _SIZE[0])[0]
    headers = max(1, -(-size // _HEADER_DATA)) if version & _PADDED else 1
    blocks = headers + length // BLOCK
    if blocks * BLOCK > len(rest) or length > headers * _HEADER_DATA:
        return None
    return _Record(block, headers, blocks, cycle, lsn, tail_lsn, operations)


def _logged(record: _Record, window: bytes, first: int) -> bytes | None:
    """What was logged with it; None where a block of it was written in another cycle."""
    begin = (record.block - first) * BLOCK
    headers = window[begin : begin + record.headers * BLOCK]
    data = bytearray(window[begin + len(headers) : begin + record.blocks * BLOCK])
    for index in range(record.blocks - record.headers):
        word = slice(index * BLOCK, index * BLOCK + 4)
        if int.from_bytes(data[word]) != record.cycle:
            return None
        header, entry = divmod(index, 64)
        replaced = (_CYCLES if header == 0 else header * BLOCK + 4) + 4 * entry
        data[word] = headers[replaced : replaced + 4]
    return bytes(data)


def _cycle_of(window: bytes, at: int) -> int:
    """The cycle in which the block there was written."""
    word = window[at : at + 4]
    return int.from_bytes(window[at + 4 : at + 8] if word == _MAGIC else word)


def _is_the_superblock(record: _Record, data: bytes | None) -> bool:
    """Whether it is one whole transaction, which changes the superblock and nothing else."""
    regions: list[tuple[int, bytes]] = []
    transactions: set[int] = set()
    at = 0
    if data is None or record.operations != len(_SUPERBLOCK_FLAGS):
        return False
    for _ in range(record.operations):
        if at + _OPERATION.size > len(data):
            return False
        transaction, length, client, flags, _ = _OPERATION.unpack_from(data, at)
        at += _OPERATION.size
        if client != _TRANSACTION_CLIENT or at + length > len(data):
            return False
        transactions.add(transaction)
        regions.append((flags, data[at : at + length]))
        at += length
    if len(transactions) != 1 or tuple(flags for flags, _ in regions) != _SUPERBLOCK_FLAGS:
        return False
    return _is_superblock_buffer([region for _, region in regions])


def _is_superblock_buffer(regions: Sequence[bytes]) -> bool:
    begun, head, what, _, committed = regions
    if begun or committed or len(head) != 16 or len(what) < _BUFFER.size:
        return False
    kind, _, _, length, block, _ = _BUFFER.unpack_from(what)
    is_transaction = struct.unpack_from("=I", head)[0] == _TRANSACTION
    return bool(is_transaction and (kind, length, block) == (_BUFFER_TYPE, 1, 0))


def _live_end(origin: DeviceNumber) -> int:
    """The block at which the log of the mounted file system ends by now: behind where its snapshot's ends.

    Raises:
        OSError: the kernel does not report.
        ValueError: it tells something else.
    """
    name = (_SYSFS / "dev" / "block" / f"{origin.major}:{origin.minor}").resolve(strict=True).name
    return int((_SYSFS / "fs" / "xfs" / name / "log" / "log_head_lsn").read_text().partition(":")[2])


def _read(device: Path, offset: int, size: int) -> bytes:
    """From the disk itself: of the page cache's pages none are taken.

    Raises:
        OSError: it cannot be read so, or ends before.
    """
    before = offset % _ALIGNMENT
    whole = -(-(before + size) // _ALIGNMENT) * _ALIGNMENT
    with mmap.mmap(-1, whole) as buffer:
        file = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            if os.preadv(file, [buffer], offset - before) < before + size:
                raise OSError(errno.EIO, "it ends before its log does")
        finally:
            os.close(file)
        return buffer[before : before + size]
