"""Whether a binlog file is the one that was archived, or another of its name: after RESET, or of another server.

Knows: that a server writes its id, its version and the second into the event with which each file begins, and that it
sends this event first, from wherever in the file one receives. Its end, its flags and the time of the server's start
are others then (seen on MariaDB 10.11.19 and MySQL 9.7.4: the end is 0), and with them the checksum.

So nothing is asked beforehand, which could be another file by the time one receives: what arrives says it itself. The
layout is MariaDB's knowledge base's ("Replication Protocol: FORMAT_DESCRIPTION_EVENT"), MySQL's is the same.
"""

import struct
from dataclasses import dataclass

from backupd.mysql.binlog.layout import FORMAT_DESCRIPTION, HEADER, MAGIC
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.escaping import on_one_line

_BODY = struct.Struct("<H50sI")  # version of the format, of the server, time of the server's start
_LONGEST = 1 << 10  # bytes of this event; it has a length for each of less than 256 kinds


@dataclass(frozen=True, slots=True)
class FileBirth:
    """By what a binlog file is known again."""

    created_at: int  # seconds since 1970, by the server's clock
    server_id: int
    version: str  # of the server that began the file


def file_birth(event: bytes) -> FileBirth:
    """What a format description event says, with or without the magic before it.

    Raises:
        ServerError: it is none.
    """
    event = event.removeprefix(MAGIC)
    if len(event) < HEADER.size + _BODY.size:
        raise ServerError("the binlog does not begin with a format description event")
    created_at, kind, server_id, length, _, _ = HEADER.unpack_from(event)
    if kind != FORMAT_DESCRIPTION or not HEADER.size + _BODY.size <= length <= _LONGEST:
        raise ServerError("the binlog does not begin with a format description event", hint="is it encrypted?")
    _, version, _ = _BODY.unpack_from(event, HEADER.size)
    return FileBirth(created_at, server_id, on_one_line(version.rstrip(b"\0").decode("utf-8", "replace")))


def same_file(known: bytes, received: bytes) -> bool:
    """Whether both format description events are of one file.

    Raises:
        ServerError: one of them is none.
    """
    return file_birth(known) == file_birth(received)
