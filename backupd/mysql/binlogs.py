"""What binlog files themselves tell: which of them a crash recovery reads, and where the last whole transaction ends.

Knows: the index, and of MariaDB's events the checkpoint. `binlog.layout` knows their headers, and `binlog.grouping`
where a transaction ends. Both were compared with `mariadb-binlog` on 10.11.19 and 11.8.6. Whatever tells nothing of
that is passed by in the file without being read, however large it is: a binlog is of gigabytes, and a server waits.

A binlog that a power cut left may end in the middle of a transaction. MySQL's recovery cuts that end off. MariaDB's
leaves it there, so that the file's size is no position, and where it ends within an event (seen on 10.11.19: "Event
truncated") the server comes back with GTIDs of long ago. So a backup has such a binlog only up to its last whole
transaction.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backupd.host.filesystem import opened_plain, read_plain_or_linked
from backupd.mysql.binlog.grouping import TELLING, Grouping
from backupd.mysql.binlog.layout import BINLOG_CHECKPOINT, HEADER, HEADER_BYTES, MAGIC, START_ENCRYPTION
from backupd.vocabulary.errors import ServerError

_READ = TELLING | {BINLOG_CHECKPOINT}  # of the others the header says enough
_PREFIX = 64 << 10  # bytes of an event that are looked at: a COMMIT is shorter
_LARGEST_INDEX = 64 << 20  # bytes: a line for each binlog


@dataclass(frozen=True, slots=True)
class _Event:
    kind: int
    end: int  # offset of what follows
    body: bytes  # what of it was read, without the header


def listed(index: Path) -> tuple[str, ...]:
    """The names of the binlog files in an index, newest last.

    Raises:
        ServerError: it cannot be read or lists none.
    """
    return tuple(path.name for path in listed_paths(index))


def listed_paths(index: Path) -> tuple[Path, ...]:
    """The binlog files in an index as it has them, newest last: with an earlier log_bin, several may have one name.

    Raises:
        ServerError: it cannot be read or lists none.
    """
    try:
        text = read_plain_or_linked(index, at_most=_LARGEST_INDEX).decode(errors="surrogateescape")
    except OSError as error:
        raise ServerError(
            f"cannot read the binlog's index: {error}",
            hint="run backupd as root; is log_bin_index right? Behind a link it must belong to the owner of its folder",
        ) from error
    paths = tuple(Path(line) for line in text.splitlines() if line)
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
        if event.kind == START_ENCRYPTION:
            raise _encrypted(newest)
        if event.kind == BINLOG_CHECKPOINT:
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
    end = len(MAGIC)
    grouping = Grouping()
    for event in _events(file):
        if event.kind == START_ENCRYPTION:
            raise _encrypted(file.name)
        grouping.follow(event.kind, event.body)
        if not grouping.within:
            end = event.end
    return end


def _encrypted(name: str) -> ServerError:
    return ServerError(
        f"the binlog {name} is encrypted, and no position can be derived from it",
        hint="set lock.strategy to anything but none: the others read the position under the lock",
    )


def _events(file: Path) -> Iterator[_Event]:
    """Up to the end of the file, or to what is no whole event."""
    try:
        with opened_plain(file, beneath=file.parent) as binlog:
            if binlog.read(len(MAGIC)) != MAGIC:
                raise ServerError(f"{file.name} is not a binlog", hint="is it encrypted, or from another server?")
            yield from _walk(binlog, os.fstat(binlog.fileno()).st_size)
    except OSError as error:
        raise ServerError(f"cannot read the binlog {file.name}: {error}") from error


def _walk(binlog: BinaryIO, size: int) -> Iterator[_Event]:
    at = len(MAGIC)
    while len(header := binlog.read(HEADER_BYTES)) == HEADER_BYTES:
        _, kind, _, length, _, _ = HEADER.unpack(header)
        if length < HEADER_BYTES or at + length > size:
            return
        body = binlog.read(min(length - HEADER_BYTES, _PREFIX)) if kind in _READ else b""
        at += length
        yield _Event(kind, at, body)
        binlog.seek(at)
