"""Pieces of a source's binlog as relay logs beside a restored copy, from which the copy's own server applies them.

Knows: a relay log is the magic, a format description, a rotation that names the source's file and offset, and the
source's events as they are (MariaDB's knowledge base, "Replication Protocol": 2-Binlog Event, FORMAT_DESCRIPTION_EVENT,
ROTATE_EVENT). Of an event only its header is read: kind, time, length and end. What is in it nobody reads but the
server, which is confined and verifies its checksum. Refuses a file that has something else than whole events.

The logs are written before the server starts, while nothing but us can write there.
"""

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from backupd.host.filesystem import MORE_ROOM, explained_write, remove_tree
from backupd.mysql.binlog.layout import ARTIFICIAL, FORMAT_DESCRIPTION, HEADER, MAGIC, PREVIOUS_GTIDS, ROTATE
from backupd.mysql.recorded import is_binlog
from backupd.mysql.relocation import Relocation, owner_of
from backupd.mysql.startup import RELAY_FOLDER
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.servers import Flavour

_LONGEST_FORMAT = 4096  # bytes; servers write about 250
_SMALLEST_FORMAT = HEADER.size + 2 + 50 + 4 + 1 + 5  # version, server's version, time, header's length, checksum
_CRC32 = 1
_TOLD_EVERY = 1 << 20  # bytes of log between two times that are kept

_CHANGED = "the archive is damaged, or was put together from pieces that do not belong together"


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole events of one of the source's binlog files, in one row."""

    file: str
    start: int  # offset of the first of its events
    format: bytes  # the file's format description event, by which they are read
    events: Iterable[bytes]  # their bytes, however they are divided
    flavour: Flavour
    begins_log: bool = False  # of another server than the piece before it, if there is one


@dataclass(slots=True)
class RelayLogs:
    """What was written: the logs in order, where they begin and end in the source's log, and when what was logged."""

    start: BinlogPlace | None = None  # None: there was no event
    end: BinlogPlace | None = None
    of_last_log: int = 1  # the number of the first that is of the server in whose log they end
    sizes: list[int] = field(default_factory=list)  # bytes of each
    times: list[tuple[int, int]] = field(default_factory=list)  # bytes of all before an event, and its time

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(self.sizes)

    def done(self, number: int, offset: int) -> int:
        """Bytes of all before this offset of that log; all of them behind the last log."""
        return min(self.size, sum(self.sizes[: number - 1]) + (offset if number <= len(self.sizes) else 0))

    def time_at(self, done: int) -> datetime | None:
        """When the source had logged what lies that far in the logs, to the mebibyte; None where nothing tells."""
        at = bisect_right(self.times, done, key=lambda known: known[0])
        return datetime.fromtimestamp(self.times[at - 1][1], UTC) if at else None


def relay_log_name(number: int) -> str:
    """What the server calls the log of this number, from 1."""
    return f"relay.{number:06}"


@contextmanager
def laid_down(pieces: Iterable[LogPiece], copy: Relocation) -> Iterator[RelayLogs]:
    """The pieces lie in a folder of their own in the copy, for a server that is started with `applying`.

    The folder is gone at the end of the block, in which that server has to end.

    Raises:
        VerificationError: a piece is not made of whole events from its start on, or the copy has such a folder.
        UsageError: they could not be written, for want of room above all.
    """
    folder = copy.folder / RELAY_FOLDER
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise VerificationError(
            f"the restored files already have something called {RELAY_FOLDER}", hint="restore into an empty folder"
        ) from error
    try:
        with explained_write(folder, hint=MORE_ROOM):
            logs = _written(pieces, folder)
            owner = owner_of(copy)
            if os.geteuid() == 0:
                for path in (folder, *folder.iterdir()):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        yield logs
    finally:
        remove_tree(folder)


def _written(pieces: Iterable[LogPiece], folder: Path) -> RelayLogs:
    logs = RelayLogs()
    for piece in pieces:
        name = relay_log_name(len(logs.sizes) + 1)
        logs.of_last_log = len(logs.sizes) + 1 if piece.begins_log else logs.of_last_log
        with (folder / name).open("xb") as file:
            _write(piece, file, logs)
    index = "".join(f"./{relay_log_name(number)}\n" for number in range(1, len(logs.sizes) + 1))
    (folder / "relay.index").write_text(index)
    return logs


def _write(piece: LogPiece, file: BinaryIO, logs: RelayLogs) -> None:
    head = _head(piece)
    file.write(head)
    before = logs.size
    walk = _Walk(piece)
    for chunk in piece.events:
        for passed, time in walk.headers(chunk):
            at = before + len(head) + passed
            if time and (not logs.times or at >= logs.times[-1][0] + _TOLD_EVERY):
                logs.times.append((at, time))
        file.write(chunk)
    walk.require_whole()
    end = BinlogPlace(piece.file, piece.start + walk.passed)
    file.write(_rotation(end, piece.format))
    logs.start = logs.start or BinlogPlace(piece.file, piece.start)
    logs.end = end
    logs.sizes.append(file.tell())


class _Walk:
    """Through the headers of events whose bytes come in chunks; memory for one header."""

    def __init__(self, piece: LogPiece) -> None:
        self._piece = piece
        self._header = b""
        self._ahead = 0  # bytes of the present event that are still to come
        self.passed = 0  # bytes of whole events and of headers' events begun

    def headers(self, chunk: bytes) -> Iterator[tuple[int, int]]:
        """For each event whose header ends in this chunk: its offset from the piece's start, and its time."""
        at = 0
        while at < len(chunk):
            if self._ahead:
                step = min(self._ahead, len(chunk) - at)
                self._ahead -= step
            else:
                step = min(HEADER.size - len(self._header), len(chunk) - at)
                self._header += chunk[at : at + step]
                if len(self._header) == HEADER.size:
                    yield self.passed, self._begun(self._header)
                    self._header = b""
            at += step

    def _begun(self, header: bytes) -> int:
        time, _, _, length, end, _ = HEADER.unpack(header)
        start = self._piece.start + self.passed
        if length < HEADER.size or end not in (0, (start + length) % (1 << 32)):  # 0: see `EventStream`
            raise VerificationError(f"no event of the binlog begins at {self._piece.file}:{start}", hint=_CHANGED)
        self._ahead = length - HEADER.size
        self.passed += length
        return int(time)

    def require_whole(self) -> None:
        """The last event has ended."""
        if self._ahead or self._header:
            end = self._piece.start + self.passed
            raise VerificationError(f"the event before {self._piece.file}:{end} is not whole", hint=_CHANGED)


def _head(piece: LogPiece) -> bytes:
    """What stands in a relay log before the source's events."""
    if not is_binlog(piece.file) or piece.start < len(MAGIC):
        raise VerificationError(f"{piece.file!r:.80}:{piece.start} is not a position in a binlog", hint=_CHANGED)
    found = piece.format
    if not _SMALLEST_FORMAT <= len(found) <= _LONGEST_FORMAT or found[4] != FORMAT_DESCRIPTION:
        raise VerificationError(f"the archive's format description of {piece.file} is not valid", hint=_CHANGED)
    if int.from_bytes(found[9:13], "little") != len(found):
        raise VerificationError(f"the archive's format description of {piece.file} is not whole", hint=_CHANGED)
    rotation = _rotation(BinlogPlace(piece.file, piece.start), found)
    return MAGIC + found + (_no_gtids_before(found) if _lacks_gtids_before(piece) else b"") + rotation


def _lacks_gtids_before(piece: LogPiece) -> bool:
    """MySQL refuses logs of which none says which GTIDs came before it; one that begins with its file says it itself.

    "The first global transaction identifier was read, but no other information regarding identifiers existing on the
    previous log files was found" (9.7.4).
    """
    return piece.flavour is Flavour.MYSQL and piece.start > len(MAGIC)


def _no_gtids_before(described: bytes) -> bytes:
    """A list of no source: of what came before this log, no log has anything. The server goes by it for what it calls
    retrieved, not for what is executed.
    """
    return _made_up(PREVIOUS_GTIDS, 0, bytes(8), described)


def _rotation(place: BinlogPlace, described: bytes) -> bytes:
    """Tells the server in which file of the source, and where in it, it is now: before its first event, and at its end.

    At the end, because not every event moves the place that the server says it has executed: MariaDB's Stop does not.
    """
    return _made_up(ROTATE, place.offset, place.offset.to_bytes(8, "little") + os.fsencode(place.file), described)


def _made_up(kind: int, end: int, body: bytes, described: bytes) -> bytes:
    """An event that is in no log of the source, in the format of those that are."""
    summed = described[-5] == _CRC32
    length = HEADER.size + len(body) + (4 if summed else 0)
    server_id = int.from_bytes(described[5:9], "little")
    event = HEADER.pack(0, kind, server_id, length, end % (1 << 32), ARTIFICIAL) + body
    return event + zlib.crc32(event).to_bytes(4, "little") if summed else event
