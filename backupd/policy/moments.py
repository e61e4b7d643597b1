"""A moment of a server's history that somebody wants to have back, and where in the log it is.

Knows: before or after which transaction each kind of moment stops. Whoever reads the log asks that of one transaction
after another, in their order.
"""

from dataclasses import dataclass
from datetime import datetime

from backupd.policy.binlog_chain import order
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction
from backupd.vocabulary.instants import shown


@dataclass(frozen=True, slots=True)
class ToTime:
    """Everything before the first transaction, in the log's order, that was committed at this time or later."""

    at: datetime

    def stops_before(self, transaction: LoggedTransaction) -> bool:
        """Whether this one and all that follow are not wanted."""
        return transaction.committed_at >= self.at

    def stops_after(self, transaction: LoggedTransaction) -> bool:  # noqa: ARG002
        """Whether this one is the last that is wanted."""
        return False

    def __str__(self) -> str:
        return shown(self.at)


@dataclass(frozen=True, slots=True)
class ToGtid:
    """Everything up to this transaction, and with it."""

    gtid: str

    def stops_before(self, transaction: LoggedTransaction) -> bool:  # noqa: ARG002
        """Whether this one and all that follow are not wanted."""
        return False

    def stops_after(self, transaction: LoggedTransaction) -> bool:
        """Whether this one is the last that is wanted."""
        return (transaction.gtid or "").lower() == self.gtid.lower()

    def __str__(self) -> str:
        return f"GTID {self.gtid}"


@dataclass(frozen=True, slots=True)
class BeforeGtid:
    """Everything up to this transaction, and without it."""

    gtid: str

    def stops_before(self, transaction: LoggedTransaction) -> bool:
        """Whether this one and all that follow are not wanted."""
        return (transaction.gtid or "").lower() == self.gtid.lower()

    def stops_after(self, transaction: LoggedTransaction) -> bool:  # noqa: ARG002
        """Whether this one is the last that is wanted."""
        return False

    def __str__(self) -> str:
        return f"the moment before GTID {self.gtid}"


@dataclass(frozen=True, slots=True)
class ToPosition:
    """Everything that ends at this place of the server's binlog or before it."""

    place: BinlogPlace

    def stops_before(self, transaction: LoggedTransaction) -> bool:
        """Whether this one and all that follow are not wanted."""
        return order(transaction.end) > order(self.place)

    def stops_after(self, transaction: LoggedTransaction) -> bool:
        """Whether this one is the last that is wanted."""
        return order(transaction.end) == order(self.place)

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.offset}"


@dataclass(frozen=True, slots=True)
class Latest:
    """Everything that there is."""

    def stops_before(self, transaction: LoggedTransaction) -> bool:  # noqa: ARG002
        """Whether this one and all that follow are not wanted."""
        return False

    def stops_after(self, transaction: LoggedTransaction) -> bool:  # noqa: ARG002
        """Whether this one is the last that is wanted."""
        return False

    def __str__(self) -> str:
        return "the latest moment"


Moment = ToTime | ToGtid | BeforeGtid | ToPosition | Latest
