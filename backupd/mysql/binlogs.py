"""What binlog files themselves tell: which of them a crash recovery reads, and where the last whole transaction ends.

Knows: the index, and of MariaDB's events their header, the few types that begin or end a group, and the checkpoint.
The layout is MariaDB's knowledge base's ("Replication Protocol: 2-Binlog Event", "GTID_EVENT",
"BINLOG_CHECKPOINT_EVENT"), and was compared with `mariadb-binlog` on 10.11.19 and 11.8.6.

A binlog that a power cut left may end in the middle of a transaction. MySQL's recovery cuts that end off. MariaDB's
leaves it there, so that the file's size is no position, and where it ends within an event (seen on 10.11.19: "Event
truncated") the server comes back with GTIDs of long ago. So a backup has such a binlog only up to its last whole
transaction.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backupd.vocabulary.errors import ServerError

_MAGIC = b"\xfebin"
_HEADER = struct.Struct("<IBIIIH")  # time, type, server id, length with this header, end position, flags
_CHECKSUM = 4  # bytes; may be there or not
_QUERY, _XID, _XA_PREPARE, _CHECKPOINT, _GTID, _ENCRYPTED, _COMPRESSED_QUERY = 2, 16, 38, 161, 162, 164, 165
_STANDALONE = 1  # flag of a group that is one statement without COMMIT: DDL
_WITHIN_GROUP = frozenset((*range(17, 27), *range(30, 33), 5, 13, 14, 160, *range(166, 172)))  # rows, maps, variables
_READ = frozenset((_QUERY, _COMPRESSED_QUERY, _CHECKPOINT, _GTID))  # of the others the header says enough
_PREFIX = 64 << 10  # bytes of an event that are looked at: a COMMIT is shorter


@dataclass(frozen=True, slots=True)
class _Event:
    kind: int
    end: int  # offset of what follows
    body: bytes  # what of it was read, without the header

    @property
    def ends_transaction(self) -> bool:
        """Whether what began with a GTID and is no DDL ends with this event."""
        if self.kind in (_XID, _XA_PREPARE):
            return True
        if self.kind not in (_QUERY, _COMPRESSED_QUERY) or len(self.body) < 13:
            return False
        schema, status = self.body[8], int.from_bytes(self.body[11:13], "little")
        said = self.body[13 + status + schema + 1 :]
        return said in (b"COMMIT", b"ROLLBACK") or said[:-_CHECKSUM] in (b"COMMIT", b"ROLLBACK")


def listed(index: Path) -> tuple[str, ...]:
    """The names of the binlog files in an index, newest last.

    Raises:
        ServerError: it cannot be read or lists none.
    """
    return tuple(path.name for path in listed_paths(index))


def listed_paths(index: Path) -> tuple[Path, ...]:
    """The binlog files in an index as it has them, newest last: with a log_bin of before, several may have one name.

    Raises:
        ServerError: it cannot be read or lists none.
    """
    try:
        paths = tuple(Path(line) for line in index.read_text(errors="surrogateescape").splitlines() if line)
    except OSError as error:
        raise ServerError(f"cannot read the binlog's index: {error}") from error
    if not paths:
        raise ServerError(f"the binlog's index {index} lists no binlog", hint="check it: is log_bin_index right?")
    return paths


def needed_by_recovery(folder: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """The newest of MariaDB's binlogs, and those before it that its checkpoints say recovery has still to read.

    MariaDB goes on to a new binlog while transactions of the one before it may not be in InnoDB's redo log yet; it says
    so in the new one, until it writes there that only the new one itself is needed.

    Raises:
        ServerError: the newest cannot be read, or is encrypted.
    """
    newest, oldest = names[-1], names[-1]
    for event in _events(folder / newest):
        if event.kind == _ENCRYPTED:
            raise _encrypted(newest)
        if event.kind == _CHECKPOINT:
            length = int.from_bytes(event.body[:4], "little")
            oldest = Path(event.body[4 : 4 + length].decode(errors="surrogateescape")).name
            if oldest == newest:
                break
    since = next((at for at in reversed(range(len(names))) if names[at] == oldest), -1)  # the last one of that name
    return names[since:]


def committed_end(file: Path) -> int:
    """The offset behind the last whole transaction of one of MariaDB's binlogs.

    Raises:
        ServerError: it cannot be read, is not a binlog, or is encrypted.
    """
    end = len(_MAGIC)
    in_group = standalone = False
    for event in _events(file):
        if event.kind == _ENCRYPTED:
            raise _encrypted(file.name)
        if event.kind == _GTID:
            in_group, standalone = True, bool(event.body[12] & _STANDALONE)
        elif not in_group or event.ends_transaction or (standalone and event.kind not in _WITHIN_GROUP):
            in_group, end = False, event.end
    return end


def _encrypted(name: str) -> ServerError:
    return ServerError(
        f"the binlog {name} is encrypted, and no position can be derived from it",
        hint="set lock.strategy to anything but none: the others read the position under the lock",
    )


def _events(file: Path) -> Iterator[_Event]:
    """Up to the end of the file, or to what is no whole event."""
    try:
        with file.open("rb") as binlog:
            if binlog.read(len(_MAGIC)) != _MAGIC:
                raise ServerError(f"{file.name} is not a binlog", hint="is it encrypted, or from another server?")
            yield from _walk(binlog, file.stat().st_size)
    except OSError as error:
        raise ServerError(f"cannot read the binlog {file.name}: {error}") from error


def _walk(binlog: BinaryIO, size: int) -> Iterator[_Event]:
    at = len(_MAGIC)
    while len(header := binlog.read(_HEADER.size)) == _HEADER.size:
        _, kind, _, length, _, _ = _HEADER.unpack(header)
        if length < _HEADER.size or at + length > size:
            return
        body = binlog.read(min(length - _HEADER.size, _PREFIX)) if kind in _READ else b""
        at += length
        yield _Event(kind, at, body)
        binlog.seek(at)
