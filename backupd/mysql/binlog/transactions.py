"""The transactions in a binlog file: where each is, its GTID, when it was committed, what it changes.

Knows: what the server had executed, by the log itself, and whether the file has ended. When a transaction was committed
is MySQL's own word, on a replica that of the server where it was committed first; MariaDB tells no more than the second
in which the committing statement began there, which is also what `mariadb-binlog --stop-datetime` goes by.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from backupd.mysql.binlog import gtid_events, layout
from backupd.mysql.binlog.changes import COUNTED, ChangeTally
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent
from backupd.mysql.binlog.grouping import MORE_OF_ONE, TELLING, Grouping
from backupd.policy.gtid import BinlogGtids, ExecutedGtids, written
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction, Where
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS: Final = 1_000_000  # of a second


class TransactionReader:
    """Follows the events of one file, from between two transactions on.

    `gtids` is what had been executed where the first event is, and `state` the last of each server of MariaDB's. A file
    that is read from its beginning tells them itself; MySQL's only what was ever logged, which is not what the server
    was given by `SET GLOBAL gtid_purged` (`MYSQL_BIN_LOG::open_binlog`, sql/binlog.cc).
    """

    def __init__(self, flavour: Flavour, file: str, *, gtids: str = "", state: str = "") -> None:
        self._flavour = flavour
        self._file = file
        self._gtids: BinlogGtids | ExecutedGtids = (
            BinlogGtids(gtids, state=state) if flavour is Flavour.MARIADB else ExecutedGtids(gtids)
        )
        self.told = ""  # what the file itself says to have been executed before it
        self._grouping = Grouping()
        self._tally = ChangeTally()
        self._begun: gtid_events.BegunGtid | None = None
        self._start = 0  # of the transaction that is open
        self.format_event = b""  # the format description event, by which the others are read
        self.file_ended = False  # the server wrote that nothing follows in this file

    @property
    def within(self) -> bool:
        """A transaction is open."""
        return self._grouping.within

    @property
    def gtids(self) -> str:
        """What had been executed behind the last whole transaction, as the server writes it, on one line."""
        return str(self._gtids)

    @property
    def state(self) -> str:
        """Of MariaDB's each domain's every server's last transaction there; empty where it is not known."""
        return self._gtids.state if isinstance(self._gtids, BinlogGtids) else ""

    def behind_backup(self, gtids: str) -> "TransactionReader":
        """The reader that goes on from a backup's place, by the backup's own set: a reader whose first segment begins
        within a transaction lacks that one. Itself where the backup tells no set.
        """
        return TransactionReader(self._flavour, self._file, gtids=gtids) if gtids else self

    def feed(self, event: LogEvent) -> LoggedTransaction | None:
        """The transaction that ends with this event, if one does. The next event is the one that follows it.

        Raises:
            ServerError: the event makes no sense.
        """
        return self._logged(event) if self.ends(event) else None

    def ends(self, event: LogEvent) -> bool:
        """Whether a transaction ends with this event. Until the next one, `gtid`, `rows` and `committed_at` tell of it:
        an archive sums them up, and a `LoggedTransaction` for each would cost it more than reading the events does.

        Raises:
            ServerError: the event makes no sense.
        """
        kind = event.kind
        try:
            if not (kind in MORE_OF_ONE and self._grouping.within):
                return self._follow(event)
            if kind in COUNTED:
                raw = event.raw
                self._tally.add(kind, raw, len(raw) - layout.CHECKSUM_BYTES * event.checksummed)
        except ImpossibleEvent as error:
            raise ServerError(
                f"the binlog {self._file} is damaged: {error}", hint="compare it with the server's own file"
            ) from error
        return False

    @property
    def gtid(self) -> str | None:
        """Of the transaction that ended with the last event."""
        return None if self._begun is None or self._begun.gtid is None else written(self._begun.gtid)

    @property
    def rows(self) -> Mapping[Where, int | None]:
        """What that one did to which table, with the rows; None: not all of them could be counted."""
        return self._tally.rows

    def committed_at(self, event: LogEvent) -> int:
        """When that one was committed that ended with this event; in microseconds since 1970."""
        told = None if self._begun is None else self._begun.committed_at
        return event.at_seconds * _MICROSECONDS if told is None else told

    def _follow(self, event: LogEvent) -> bool:
        kind = event.kind
        if kind in layout.BETWEEN_TRANSACTIONS:
            self._note(event)
            return False
        begun = gtid_events.begun(event) if kind in layout.BEGINNINGS else None
        if begun is not None or not self._grouping.within:
            self._begun, self._start, self._tally = begun, event.start, ChangeTally()
        ended = self._grouping.follow(kind, event.body if kind in TELLING else b"")
        if kind in COUNTED:
            raw = event.raw
            self._tally.add(kind, raw, len(raw) - layout.CHECKSUM_BYTES * event.checksummed)
        if ended and self._begun is not None and self._begun.gtid is not None:
            self._gtids.add_gtid(self._begun.gtid)
        return ended

    def _note(self, event: LogEvent) -> None:
        if event.kind == layout.FORMAT_DESCRIPTION:
            self.format_event = event.raw
        elif event.kind == layout.GTID_LIST:
            self._gtids = gtid_events.mariadb_list(event)
            self.told = str(self._gtids)
        elif event.kind == layout.PREVIOUS_GTIDS and isinstance(self._gtids, ExecutedGtids):
            self.told = str(gtid_events.mysql_list(event))
            self._gtids.include(self.told)
        elif event.kind in (layout.ROTATE, layout.STOP) and not event.artificial:
            self.file_ended = True

    def _logged(self, event: LogEvent) -> LoggedTransaction:
        return LoggedTransaction(
            start=BinlogPlace(self._file, self._start),
            end=BinlogPlace(self._file, event.end),
            gtid=self.gtid,
            committed_at=moment(self.committed_at(event)),
            changes=self._tally.changes,
            statement=self._tally.statement,
            unclear=self._tally.unclear,
        )


def moment(microseconds: int) -> datetime:
    """So many since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)
