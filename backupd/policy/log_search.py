"""What somebody looks for in a binlog archive: which segments may have it, and which transactions are it.

Knows: what of a segment is told without opening it, so that most are not fetched. When in doubt a segment may have it.
Names are compared without regard to case: some servers keep them so. Pure values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from backupd.policy import gtid
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, LoggedTransaction, TableChange


@dataclass(frozen=True, slots=True)
class LogSearch:
    """All of it has to be true of a transaction; what is empty or None is true of every one."""

    tables: tuple[tuple[str, str], ...] = ()  # schema and table; one of them
    kinds: frozenset[ChangeKind] = frozenset()  # one of them, of one of the tables; OTHER that may be of one as well
    since: datetime | None = None  # committed then or later
    until: datetime | None = None  # committed before
    gtid: str | None = None

    def may_be_in(self, segment: BinlogSegment) -> bool:
        """Whether one of the transactions that end in the segment may be wanted."""
        first, last = segment.first_at, segment.last_at
        if first is None or last is None:
            return False
        if (self.since is not None and last < self.since) or (self.until is not None and first >= self.until):
            return False
        if self.gtid is not None and not _brings(segment, self.gtid):
            return False
        return not segment.all_changes or not (self.tables or self.kinds) or self._may_be_among(segment.changes)

    def matches(self, transaction: LoggedTransaction) -> bool:
        """Whether it is wanted."""
        at = transaction.committed_at
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        if self.gtid is not None and (transaction.gtid or "").lower() != self.gtid.lower():
            return False
        said = None if transaction.unclear else transaction.statement
        return not (self.tables or self.kinds) or any(
            self._is_kind(change) and self._is_of_table(change, said) for change in transaction.changes
        )

    def _may_be_among(self, changes: Iterable[TableChange]) -> bool:
        return any(self._is_kind(change) and self._is_of_table(change, None) for change in changes)

    def _is_kind(self, change: TableChange) -> bool:
        """What was not understood may be of any kind; with a table, its words tell whether it may be meant."""
        unknown = bool(self.tables) and change.kind is ChangeKind.OTHER
        return not self.kinds or unknown or change.kind in self.kinds

    def _is_of_table(self, change: TableChange, statement: str | None) -> bool:
        """A schema's end is that of its tables. Of a statement that was not understood nothing is known
        but its words, and without a statement nothing at all: it may be.
        """
        if not self.tables:
            return True
        if change.kind is ChangeKind.OTHER and not change.table:
            said = (statement or "").casefold()
            return not said or any(table.casefold() in said for _, table in self.tables)
        schema, name = change.schema.casefold(), change.table.casefold()
        if not name and change.kind is not ChangeKind.DROP:
            return False
        return any(schema == one.casefold() and name in ("", table.casefold()) for one, table in self.tables)


def _brings(segment: BinlogSegment, one: str) -> bool:
    """Whether the log has this transaction behind it at the segment's end, and not at its start."""
    return gtid.holds(segment.gtid_end, one) and not gtid.holds(segment.gtid_start, one)
