"""What the words of the binlog archive mean: a transaction in the log, a segment of it, a chain of segments, a gap.

A *segment* is a piece of one binlog file between two events. A *chain* is a row of segments without a gap: each begins
where the one before it ended. Whatever interrupts the archive ends its chain, and another one begins.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from backupd.vocabulary.escaping import Prose
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.storage import Signature


class ChangeKind(StrEnum):
    """What a transaction does to a table, or to a schema as a whole."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    CREATE = "create"
    ALTER = "alter"
    RENAME = "rename"
    TRUNCATE = "truncate"
    DROP = "drop"
    OTHER = "other"  # a statement that only a server's parser would understand


Where = tuple[str, str, ChangeKind]  # schema, table and what is done there: as of a `TableChange`


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a transaction, or all of a segment's, did to one table in one way."""

    schema: Prose  # servers take names with control characters too
    table: Prose  # empty: the schema as a whole, or a statement of which no table is known
    kind: ChangeKind
    rows: int = 0  # 0 where they are not in the log: of DDL, and of what was logged as a statement


@dataclass(frozen=True, slots=True, order=True)
class BinlogPlace:
    """Between two events of a server's binlog. Places of one server are in order where their files' names are."""

    file: str
    offset: int  # bytes


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A transaction, or a statement that commits by itself, as it is in the log."""

    start: BinlogPlace  # of its first event
    end: BinlogPlace  # behind its last one
    gtid: str | None  # None where the server gives none
    # In UTC, by the clock of the server that its client wrote to: on a replica its source's. Of MariaDB the second in
    # which the statement began that committed it.
    committed_at: datetime
    changes: tuple[TableChange, ...]
    statement: Prose = ""  # the beginning of what was logged as a statement, DDL above all
    unclear: bool = False  # something was not understood of which that does not tell all: it may change any table


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """Which server wrote a binlog."""

    flavour: Flavour
    version: str
    server_id: int
    uuid: str  # MySQL's `server_uuid`; of MariaDB, which has none, empty
    # IANA's name of the zone that `time_zone = SYSTEM` means on it; empty: it is not known.
    zone: str = field(default="", metadata={"minor": 2})
    # From when on its log had all changes, where it lacked some before: no backup from before is rolled forward by it.
    whole_since: datetime | None = field(default=None, metadata={"minor": 3})


@dataclass(frozen=True, slots=True)
class BinlogSegment:
    """A piece of a binlog as it is archived: all that is told of it without opening it."""

    machine: str
    job: str
    chain: str
    number: int  # in its chain, from 1
    previous: str  # digest of the segment before it; empty of the first
    origin: SegmentOrigin
    file: str
    start: int  # offset of its first byte in that file; 4 where it begins with the file's first event
    end: int  # and of the byte behind its last one
    file_ended: bool  # the server wrote nothing behind it in this file
    format: str  # base64 of the format description event, by which its events are read
    gtid_start: Prose  # what the log had executed before its first byte, as the server writes sets; empty: nothing
    gtid_end: Prose  # and behind its last whole transaction
    transactions: int  # that end in it
    within_transaction: bool  # its last one ends in a later segment
    first_at: datetime | None  # when the first of those that end in it was committed, and the last; None: none does
    last_at: datetime | None
    received_at: datetime  # when its last byte had been received
    changes: tuple[TableChange, ...]  # of all of its transactions, summed up by table and kind
    all_changes: bool  # False: they were too many, and some are not told
    plain_bytes: int
    plain_sha256: str
    stored_bytes: int
    stored_sha256: str
    recipients: tuple[str, ...]  # who can open it; empty: stored unencrypted
    signature: Signature | None = None
    digest: str = field(default="", metadata={"apart": True})  # of its description as it is stored
    # Of MariaDB's the last transaction of each domain's every server at its end; empty: it is not known.
    gtid_state: Prose = field(default="", metadata={"minor": 1})

    @property
    def name(self) -> str:
        """What it is called on every target."""
        return segment_name(self.chain, self.number)


def segment_name(chain: str, number: int) -> str:
    """What that segment of that chain is called on every target."""
    return f"{chain}-{number:010}.binlog"


def lost_from(chain: str, number: int) -> str:
    """By what a gap is known within a chain, of which segments from this one on were lost."""
    return segment_name(chain, number).removesuffix(".binlog")


def numbered(name: str) -> tuple[str, int]:
    """Chain and number, by `segment_name` or `lost_from`."""
    chain, _, number = name.removesuffix(".binlog").rpartition("-")
    return chain, int(number)


#: Why a chain ended of which a catalogue that was rebuilt knows only what lies on targets.
CATALOGUE_LOST: Final = "the catalogue was lost: it is not known whether this chain went on"


#: What is told of segments that nobody has as they were recorded.
LOST_EVERYWHERE: Final = "lost on every target"


#: How the reason begins for which a rebuilt catalogue lacks what a target may have; that target's name ends it.
NOT_READ: Final = "`backupd catalogue rebuild` could not read all segments on target "


#: How the reason begins for which a chain ended where the server's log lacked changes.
NOT_LOGGED: Final = "changes were not logged: "


@dataclass(frozen=True, slots=True)
class ArchiveGap:
    """Why a chain ended, and from when to when nothing can be restored to."""

    chain: str  # that ended; of segments that were lost, as `lost_from` names that
    reason: Prose
    # Or when the next chain began since, where that was at the end of the log; just before the run that it began with,
    # where that was still going on.
    noticed_at: datetime
    last_at: datetime | None  # the last transaction that the chain has; None where it had none
    resumed_at: datetime | None = None  # from when on the server logged all changes again; None: not known, or not yet

    @property
    def not_logged(self) -> bool:
        """The server's log lacked changes: what it has since then continues nothing from before."""
        return self.reason.startswith(NOT_LOGGED)

    def is_closed_by(self, placed_at: datetime | None) -> bool:
        """By the newest good backup with a place, which was started then. Where the log lacked changes, one counts from
        when that was over.
        """
        over_at = self.resumed_at if self.not_logged else self.noticed_at
        return placed_at is not None and over_at is not None and max(over_at, self.noticed_at) < placed_at

    @property
    def not_read_on(self) -> str:
        """The target that may have what is missing, where the catalogue was rebuilt without that; else empty."""
        return self.reason.removeprefix(NOT_READ) if self.reason.startswith(NOT_READ) else ""
