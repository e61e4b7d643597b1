"""Which part of MariaDB's redo log a crash recovery reads: by what the log says itself, and an LSN that was told later.

Knows: `ib_logfile0` as MariaDB writes it from 10.8 on (MDEV-14425): a header, two checkpoints and a ring of mini-
transactions. All of it is in MariaDB's source: offsets in storage/innobase/include/log0log.h (`log_t`), what recovery
reads in storage/innobase/log/log0recv.cc (`recv_sys_t::find_checkpoint`, `recv_scan_log`, `recv_sys_t::parse`).

Why what is left out cannot matter: recovery begins at the newest valid checkpoint and parses one mini-transaction after
the other. Where none begins, or its end has the wrong sequence bit or CRC-32C, the log has ended (`GOT_EOF`). `parse`
gives up a mini-transaction whose records have 1 MiB (`MTR_SIZE_MAX`, in which the first byte of each does not count),
so that it looks at no byte further than about 2 MiB from where it began. The log has not been written beyond an LSN
that the server told after the snapshot was taken: so up to there and `_BEYOND` bytes further recovery finds what was
there, and decides as it would have decided, whatever is in the rest.
"""

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 12288  # `START_OFFSET`: header and checkpoints; the ring is all that follows

_FORMAT = 0x50687973  # `FORMAT_10_8`
_HEADER = struct.Struct(">IIQ32s")  # format, always 0, the LSN with which the ring began, who made it
_CRC_AT = 508  # of the header, in its last four bytes
_CHECKPOINTS = (4096, 8192)
_CHECKPOINT = struct.Struct(">QQ44sI")  # its LSN, that of its FILE_CHECKPOINT record, zeros, CRC-32C
_LEAST_BYTES = 1 << 20
_LSN_MOST = 1 << 63

_BEFORE = 64 << 10  # bytes before the older checkpoint that are kept as well: a block is read from its beginning
_BEYOND = 4 << 20  # bytes past the told LSN: twice what recovery can look at
_PAGE = 4096

Piece = tuple[int, int]  # where it begins, and its bytes


@dataclass(frozen=True, slots=True)
class RedoCut:
    """A log of which only these pieces are stored; the rest becomes a hole."""

    name: bytes  # relative to the archive's root
    size: int  # bytes of the file
    pieces: tuple[Piece, ...]

    @property
    def kept(self) -> int:
        """Bytes of the pieces."""
        return sum(size for _, size in self.pieces)

    @property
    def left_out(self) -> int:
        """Bytes of the rest, also of what was never written."""
        return self.size - self.kept

    def kept_of(self, begin: int, size: int) -> Iterator[Piece]:
        """What of this stretch is kept."""
        for at, length in self.pieces:
            first, last = max(begin, at), min(begin + size, at + length)
            if first < last:
                yield first, last - first


class NotCut(ValueError):
    """Why a log is stored whole."""


@dataclass(frozen=True, slots=True)
class RedoLog:
    """What the log's first bytes say of it."""

    size: int  # bytes of the file
    first_lsn: int  # the ring began with it, at `HEAD_BYTES`
    checkpoints: tuple[int, int]  # LSNs, in no order
    ended: int  # an LSN that the log had surely reached when its checkpoints were written

    @property
    def capacity(self) -> int:
        """Bytes of the ring."""
        return self.size - HEAD_BYTES

    def needed(self, told_lsn: int) -> tuple[Piece, ...]:
        """What recovery can look at, and much around it, if the log had not been written beyond `told_lsn`.

        Raises:
            NotCut: that is all of it, or the LSN cannot be one of this log.
        """
        if not self.ended <= told_lsn < _LSN_MOST:
            raise NotCut(f"the server reported LSN {told_lsn}, but the log had reached {self.ended}")
        if told_lsn - max(self.checkpoints) > self.capacity:
            raise NotCut(f"the server reported LSN {told_lsn}, more than the log's length past the checkpoint")
        begin = min(self.checkpoints) - self.first_lsn - _BEFORE
        end = told_lsn - self.first_lsn + _BEYOND
        if end - begin + 2 * _PAGE >= self.capacity:
            raise NotCut("recovery may need all of it")
        first = self._offset(max(begin, 0)) // _PAGE * _PAGE
        last = min(-(-self._offset(end) // _PAGE) * _PAGE, self.size)
        if first < last:
            return _joined((0, HEAD_BYTES), (first, last - first))
        return _joined((0, HEAD_BYTES), (HEAD_BYTES, last - HEAD_BYTES), (first, self.size - first))

    def _offset(self, place: int) -> int:
        """Of a byte of the log, counted from its first one, in the file (`calc_lsn_offset`)."""
        return HEAD_BYTES + place % self.capacity


def redo_log(head: bytes, size: int) -> RedoLog:
    """What the first `HEAD_BYTES` bytes of a log say, of a file of `size` bytes.

    Raises:
        NotCut: it is encrypted, of another format, or anything in it is not as a running server writes it.
    """
    if len(head) < HEAD_BYTES or size < _LEAST_BYTES or size % 512:
        raise NotCut(f"a file of {size} bytes is not a complete log")
    version, zero, first_lsn, _creator = _HEADER.unpack_from(head)
    if version != _FORMAT:
        raise NotCut(f"its format is {version:#010x}, not {_FORMAT:#010x}")
    if zero or first_lsn < HEAD_BYTES or any(head[_HEADER.size : _CRC_AT]):  # what an encrypted one has there
        raise NotCut("its header has more than a plain one")
    if crc32c(head[:_CRC_AT]) != int.from_bytes(head[_CRC_AT : _CRC_AT + 4], "big"):
        raise NotCut("its header's checksum is wrong")
    found = [_checkpoint(head, at, first_lsn) for at in _CHECKPOINTS]
    one, other = (lsn for lsn, _ in found)
    return RedoLog(size, first_lsn, (one, other), max(end for _, end in found))


def redo_cut(root: Path, name: str, *, told_lsn: int) -> RedoCut:
    """Of the log `name` in `root`, what recovery needs; it had not been written beyond `told_lsn`.

    Raises:
        NotCut: it is to be stored whole.
    """
    try:
        file = os.open(root / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            facts, head = os.fstat(file), os.pread(file, HEAD_BYTES, 0)
        finally:
            os.close(file)
    except OSError as error:
        raise NotCut(f"it cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        raise NotCut("it is not a regular file with a single name")
    return RedoCut(os.fsencode(name), facts.st_size, redo_log(head, facts.st_size).needed(told_lsn))


def _checkpoint(head: bytes, at: int, first_lsn: int) -> tuple[int, int]:
    """Its LSN, and that of the record that names it."""
    lsn, end_lsn, zeros, crc = _CHECKPOINT.unpack_from(head, at)
    if any(zeros) or crc32c(head[at : at + 60]) != crc or not first_lsn <= lsn <= end_lsn < _LSN_MOST:
        raise NotCut(f"its checkpoint at {at} is not valid")
    return lsn, end_lsn


def _joined(*pieces: Piece) -> tuple[Piece, ...]:
    """Those that touch are one; none is empty."""
    joined: list[Piece] = []
    for begin, size in pieces:
        if joined and sum(joined[-1]) == begin:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        elif size:
            joined.append((begin, size))
    return tuple(joined)


def crc32c(data: bytes) -> int:
    """The checksum of RFC 3720 (Castagnoli), of a few hundred bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
