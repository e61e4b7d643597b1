"""The catalogue's tables of binlog archives. Private to this package: others ask `store`."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, Table, Text, text

from backupd.catalogue.columns import InstantColumn, JsonColumn, ProseColumn
from backupd.catalogue.metadata import metadata
from backupd.vocabulary.binlogs import SegmentOrigin, TableChange
from backupd.vocabulary.storage import Signature

segments = Table(  # a `BinlogSegment` each
    "binlog_segments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("previous", Text, nullable=False),
    Column("origin", JsonColumn(SegmentOrigin, few=True), nullable=False),
    Column("file", Text, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("file_ended", Boolean, nullable=False),
    Column("format", Text, nullable=False),
    Column("gtid_start", Text, nullable=False),
    Column("gtid_end", Text, nullable=False),
    Column("transactions", Integer, nullable=False),
    Column("within_transaction", Boolean, nullable=False),
    Column("first_at", InstantColumn),
    Column("last_at", InstantColumn),
    Column("received_at", InstantColumn, nullable=False),
    Column("changes", JsonColumn(tuple[TableChange, ...]), nullable=False),
    Column("all_changes", Boolean, nullable=False),
    Column("plain_bytes", Integer, nullable=False),
    Column("plain_sha256", Text, nullable=False),
    Column("stored_bytes", Integer, nullable=False),
    Column("stored_sha256", Text, nullable=False),
    Column("recipients", JsonColumn(tuple[str, ...]), nullable=False),
    Column("signature", JsonColumn(Signature)),
    Column("digest", Text, nullable=False),
    Column("gtid_state", Text, nullable=False),
    Column("spooled", Boolean, nullable=False),  # its file is in the spool, for targets that lack it
    # It continues the segment of its chain that has the number before its own, and is there, in the same server's log.
    Column("follows", Boolean, nullable=False),
    Index(None, "chain", "number", unique=True),
    Index(None, "machine", "job", "received_at"),
    Index(None, "machine", "job", "file", "end", "start"),  # what has a backup's place
)
# The few that wait, among the many that are stored: the archive asks for them every few seconds.
# SQLite takes the index only where a query has its condition word for word.
WAITING = segments.c.spooled
Index("ix_binlog_segments_spooled", segments.c.machine, segments.c.job, segments.c.id, sqlite_where=text("spooled = 1"))
# And the few that begin a row without a gap, or another server's log in it, by which it is found what can be restored.
BEGINNING = ~segments.c.follows
Index(
    "ix_binlog_segments_beginning",
    *(segments.c.machine, segments.c.job, segments.c.chain, segments.c.number),
    sqlite_where=text("follows = 0"),
)

stored = Table(  # on which targets each lies
    "stored_segments",
    metadata,
    Column("segment_id", Integer, ForeignKey("binlog_segments.id"), primary_key=True),
    Column("target", Text, primary_key=True),
    Column("stored_at", InstantColumn, nullable=False),
    Column("leaving", Text),  # why retention removes it, from just before it does
)
LEAVING = stored.c.leaving.is_not(None)
Index("ix_stored_segments_leaving", stored.c.target, stored.c.segment_id, sqlite_where=text("leaving IS NOT NULL"))

gaps = Table(  # an `ArchiveGap` each
    "archive_gaps",
    metadata,
    Column("machine", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("chain", Text, primary_key=True),
    Column("reason", ProseColumn, nullable=False),
    Column("noticed_at", InstantColumn, nullable=False),
    Column("last_at", InstantColumn),
    Column("resumed_at", InstantColumn),
)

contacts = Table(  # when each job's archive last had all that its server had written, and what has kept it since
    "archive_contacts",
    metadata,
    Column("machine", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("at", InstantColumn, nullable=False),
    Column("refused", ProseColumn, nullable=False),
    Column("asked_at", InstantColumn),  # when the server was asked last, or could not be
    Column("behind_bytes", Integer),  # how much of its log was not archived then
)
