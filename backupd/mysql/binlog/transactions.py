"""The transactions in a binlog file: where each is, its GTID, when it was committed, what it changes.

Knows: what the server had executed, by the log itself, and whether the file has ended. When a transaction was committed
is MySQL's own word; MariaDB tells no more than the second in which the committing statement began, which is also what
`mariadb-binlog --stop-datetime` goes by.
"""

from datetime import UTC, datetime

from backupd.mysql.binlog import gtid_events, layout
from backupd.mysql.binlog.changes import ChangeTally
from backupd.mysql.binlog.events import ImpossibleEvent, LogEvent
from backupd.mysql.binlog.grouping import Grouping
from backupd.policy.gtid import BinlogGtids, ExecutedGtids
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour


class TransactionReader:
    """Follows the events of one file, from between two transactions on.

    `gtids` is what had been executed where the first event is, and `state` the last of each server of MariaDB's. A file
    that is read from its beginning tells them itself.
    """

    def __init__(self, flavour: Flavour, file: str, *, gtids: str = "", state: str = "") -> None:
        self._file = file
        self._gtids: BinlogGtids | ExecutedGtids = (
            BinlogGtids(gtids, state=state) if flavour is Flavour.MARIADB else ExecutedGtids(gtids)
        )
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

    def feed(self, event: LogEvent) -> LoggedTransaction | None:
        """The transaction that ends with this event, if one does. The next event is the one that follows it.

        Raises:
            ServerError: the event makes no sense.
        """
        try:
            return self._follow(event)
        except ImpossibleEvent as error:
            raise ServerError(
                f"the binlog {self._file} is damaged: {error}", hint="compare it with the server's own file"
            ) from error

    def _follow(self, event: LogEvent) -> LoggedTransaction | None:
        kind = event.kind
        if kind in layout.BETWEEN_TRANSACTIONS:
            self._note(event)
            return None
        begun = gtid_events.begun(event)
        if begun is not None or not self._grouping.within:
            self._begun, self._start, self._tally = begun, event.start, ChangeTally()
        ended = self._grouping.follow(kind, event.body)
        self._tally.add(kind, event.body)
        return self._ended(event) if ended else None

    def _note(self, event: LogEvent) -> None:
        if event.kind == layout.FORMAT_DESCRIPTION:
            self.format_event = event.raw
        elif event.kind == layout.GTID_LIST:
            self._gtids = gtid_events.mariadb_list(event)
        elif event.kind == layout.PREVIOUS_GTIDS:
            self._gtids = gtid_events.mysql_list(event)
        elif event.kind in (layout.ROTATE, layout.STOP) and not event.artificial:
            self.file_ended = True

    def _ended(self, event: LogEvent) -> LoggedTransaction:
        begun = self._begun
        gtid = None if begun is None else begun.gtid
        if gtid is not None:
            self._gtids.add_gtid(gtid)
        told = None if begun is None else begun.committed_at
        return LoggedTransaction(
            start=BinlogPlace(self._file, self._start),
            end=BinlogPlace(self._file, event.end),
            gtid=gtid,
            committed_at=told or datetime.fromtimestamp(event.at_seconds, UTC),
            changes=self._tally.changes,
            statement=self._tally.statement,
        )
