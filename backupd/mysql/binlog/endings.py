"""Why a receiver ended, by what the client program said last: in its words, and as what the archive is to do about it.

Knows: the sentences of the server and of the programs; those of MariaDB 10.11.19 and MySQL 9.7.4 were provoked one by
one, but for purged GTIDs and what a disk says. What is not known is `FAILED`, and tried again.

A program that says nothing was told by the server that the log ends: MySQL's does so when it shuts down, MariaDB's when
a log that was RESET has outgrown the one that was sent. Which of these it was shows when one receives again.
"""

from dataclasses import dataclass
from enum import StrEnum


class EndKind(StrEnum):
    """What the end of a receiver means."""

    PLACE_GONE = "place gone"  # the server no longer has this binlog, or never sends what is in it: a gap
    OTHER_LOG = "other log"  # it has the file, but not with an event there: RESET, or another server. A gap
    SERVER_AWAY = "server away"  # passes by itself
    NOT_ALLOWED = "not allowed"  # somebody must grant, or trust, or set a password
    ID_TAKEN = "id taken"  # another receiver or replica has registered with the same id
    BINLOG_OFF = "binlog off"
    DISK_FULL = "disk full"
    TOO_MUCH_UNREAD = "too much unread"  # we ended it: what it received was not read, and reached its limit
    PROGRAM_TOO_OLD = "program too old"  # the server was upgraded, and the program here was not
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReceiverEnd:
    """How a receiver ended."""

    kind: EndKind
    said: str  # one line, escaped

    @property
    def ends_chain(self) -> bool:
        """It cannot go on where it was: what the server has there is gone, or is something else."""
        return self.kind in (EndKind.PLACE_GONE, EndKind.OTHER_LOG)


_SAYINGS = (  # the first that is found counts; in lower case
    ("could not find first log file name", EndKind.PLACE_GONE),
    ("could not find next log", EndKind.PLACE_GONE),  # RESET, or purged by hand in front of it
    ("purged required binary logs", EndKind.PLACE_GONE),
    ("impossible position", EndKind.OTHER_LOG),  # behind the end
    ("truncated in the middle of event", EndKind.OTHER_LOG),  # within an event: its length leads behind the end
    ("position > file size", EndKind.OTHER_LOG),
    ("exceeded max_allowed_packet", EndKind.OTHER_LOG),  # or is impossible
    ("bogus data in log event", EndKind.OTHER_LOG),
    ("cannot replicate anonymous transaction", EndKind.PLACE_GONE),  # gtid_mode was set ON behind it (MySQL 9.7.4)
    ("cannot replicate gtid-transaction", EndKind.PLACE_GONE),  # or OFF
    ("could not find server version", EndKind.PROGRAM_TOO_OLD),  # MariaDB 10.11.19's, of 11.8.9
    ("already connected", EndKind.ID_TAKEN),
    ("as this replica has connected", EndKind.ID_TAKEN),
    ("same server_uuid/server_id", EndKind.ID_TAKEN),
    ("binary log is not open", EndKind.BINLOG_OFF),
    ("access denied", EndKind.NOT_ALLOWED),
    ("is not allowed to connect", EndKind.NOT_ALLOWED),
    ("account is locked", EndKind.NOT_ALLOWED),
    ("certificate", EndKind.NOT_ALLOWED),
    ("ssl connection error", EndKind.NOT_ALLOWED),
    ("tls/ssl error", EndKind.NOT_ALLOWED),
    ("no space left", EndKind.DISK_FULL),
    ("error writing", EndKind.DISK_FULL),
    ("lost connection", EndKind.SERVER_AWAY),
    ("can't connect", EndKind.SERVER_AWAY),
    ("gone away", EndKind.SERVER_AWAY),
    ("too many connections", EndKind.SERVER_AWAY),
    ("shutdown in progress", EndKind.SERVER_AWAY),
    ("connection was killed", EndKind.SERVER_AWAY),
)


STREAM_ENDED = ReceiverEnd(EndKind.SERVER_AWAY, "the server ended the stream")


def judged_end(said: str) -> ReceiverEnd:
    """What this last line of the program's stderr means."""
    lower = said.lower()
    kind = next((kind for words, kind in _SAYINGS if words in lower), EndKind.FAILED)
    if kind is EndKind.PROGRAM_TOO_OLD:
        said = f"the client program is older than the server: {said}"
    return ReceiverEnd(kind, said)
