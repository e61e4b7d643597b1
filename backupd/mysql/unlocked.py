"""The lock that is none: the snapshot shows what a power cut would have left, and crash recovery makes it whole.

Knows: what can be said of the server before such a snapshot. Refuses to say where it stood: commits go on while the
snapshot is taken, so that only the image itself can tell, once it has been recovered (`derivation`).

Right only for a server whose tables are all InnoDB's and whose binlog is on the snapshotted volume; the preflight
sees to that. Nothing is flushed either: the file system's freeze writes back what the server has handed to the kernel.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.mysql import UNLOCKED, UNPROVEN, redo
from backupd.mysql.layout import require_server_of
from backupd.mysql.positions import lsn_statement
from backupd.mysql.session import Connect
from backupd.vocabulary.servers import LockReceipt, Position


class HeldNothing:
    """The contract's `HeldLock` where nothing is held: no position, and a redo log that is in the image at least."""

    def __init__(self, lsn: int | None) -> None:
        self.position = Position()
        self.reached_lsn: int | None = None
        self.receipt = LockReceipt(UNLOCKED, tries=0, wait_seconds=0.0, hold_seconds=0.0, proof=UNPROVEN, lsn=lsn)


class NoLock:
    """The contract's `Lock` for the strategy `none`."""

    strategy = UNLOCKED

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    @contextmanager
    def held(self, of: Path) -> Iterator[HeldNothing]:
        """Nothing is locked, and nobody waits. The LSN is what was on disk before the block: a recovery reaches it.

        Raises:
            ServerError: the server cannot be asked, is not that of the datadir `of`, or writes no redo log.
        """
        with self._connect() as session:
            require_server_of(session, of)
            redo.require_enabled(session)
            statement = lsn_statement(session)
            row = session.one(statement) if statement else None
        yield HeldNothing(int(row["Value"] or 0) if row else None)
