"""The database server, as the stories need it. The contract.

`server`, `counting`, `locks`, `unlocked`, `replication`, `flushing` and `canary` implement it.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from backupd.policy.bill import Count
from backupd.vocabulary.servers import (
    Blocker,
    DataPath,
    LockReceipt,
    Membership,
    Position,
    Preflush,
    Replication,
    ServerFacts,
)

UNLOCKED = "none"  # the strategy that locks nothing: what a snapshot shows is what a power cut would have left
UNPROVEN = "none"  # the proof of a lock that was lost, or whose block failed, and of none at all

# Roles of data paths that mean something to the preflight.
ABSOLUTE_LINK = "absolute symlink"  # a copy of the link leads to the live files
DATA_DIRECTORY = "DATA DIRECTORY"  # MariaDB's redo log names it by its absolute path: recovery opens the live file
KEYS = "encryption keys"
LASTING = frozenset({"datadir", "system tablespace", "redo", "undo"})  # what no server replaces while it runs


def confirmed_words(proof: str) -> str:
    """What confirmed that a lock was held to its end, or that nothing did."""
    return "not confirmed" if proof == UNPROVEN else f"confirmed by {proof}"


class HeldLock(Protocol):
    """The server stands still: no commit, no write to a non-transactional table. Unless the strategy is `none`."""

    @property
    def position(self) -> Position:
        """Where it stands; empty where nothing is locked, because a position would be wrong as soon as it is read."""

    @property
    def receipt(self) -> LockReceipt:
        """What the lock cost. Complete only after the lock has been released, and then whatever the block raised."""

    @property
    def reached_lsn(self) -> int | None:
        """After the block: an LSN beyond which InnoDB had written nothing when it ended, told by the server that was
        locked; None where it tells none, and where nothing was locked.
        """


class Lock(Protocol):
    """One way of making the server stand still."""

    @property
    def strategy(self) -> str:
        """`ftwrl`, `backup-stage` or `none`."""

    def held(self, of: Path) -> AbstractContextManager[HeldLock]:
        """Hold it for the length of the block. Leaving the block proves that it was never lost.

        It is the server whose datadir `of` is that is locked, as it named it itself, and no other that answers by now.

        Raises:
            LockNotGranted: not within the retry budget; nothing is locked.
            LockLost: on leaving the block: the session or the position changed, or the budget was passed; before it:
                the budget was passed while the engines wrote their logs.
            ServerError: the server failed, writes no redo log, or another one answers than that of `of`; its session is
                closed, and so nothing is locked.
        """


class Server(Protocol):
    """What the preflight and the gate ask of the server. Each call uses a session of its own."""

    def facts(self) -> ServerFacts:
        """What kind of server it is.

        Raises:
            ServerError: it cannot be reached, or does not let us in.
        """

    def data_paths(self, facts: ServerFacts) -> tuple[DataPath, ...]:
        """Every file and folder that a backup must think of, symlinks in the datadir included."""

    def tablespaces(self, facts: ServerFacts) -> Mapping[str, int]:
        """The file of every InnoDB table and general tablespace as it is now, with its space id.

        A file is named relative to the datadir, or absolutely. There may be hundreds of thousands.

        Raises:
            ServerError: it cannot be asked, or by now is not that of the datadir here, or sees other files there.
        """

    def unsafe_tables(self, facts: ServerFacts) -> tuple[str, ...]:
        """Tables that no crash recovery makes whole, as `schema/table (ENGINE)`; the server's own schemas included.

        Raises:
            ServerError: its datadir cannot be read.
        """

    def missing_grants(self, strategy: str, *, stop_applier: bool = False, preflush: bool = False) -> tuple[str, ...]:
        """The privileges that this lock strategy needs and the user lacks, as GRANT spells them."""

    def blockers(self, older_than_seconds: float) -> tuple[Blocker, ...]:
        """Statements of others that a lock would wait behind."""

    def replica_lag_seconds(self) -> float | None:
        """The largest lag over all channels; None when it is no replica or the lag is unknown.

        Raises:
            ServerError: it cannot be asked, or does not answer soon: whoever asks watches a snapshot.
        """

    def replication(self) -> Replication:
        """Every channel and how it is applied; none where it is no replica."""

    def membership(self) -> Membership | None:
        """How it is in its cluster; None where it is in none.

        Raises:
            ServerError: it is in one, and the account may not ask how it stands.
        """


class WorkCounters(Protocol):
    """What the server counts of its own work, for whoever looks again and again."""

    def look(self) -> Count:
        """What it has counted by now.

        Raises:
            ServerError: it does not answer soon, or cannot be reached.
        """

    def close(self) -> None:
        """Nothing is held open any more; another look may follow."""


class Applier(Protocol):
    """What writes to a replica besides its clients: the SQL threads of its channels."""

    def running(self) -> tuple[str, ...]:
        """The names of the channels whose applier runs now."""

    def server(self) -> Mapping[str, str]:
        """What tells this server from another."""

    def stop(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        """They stand still, and no temporary table of theirs is open. `of`: as `server` told it before.

        Raises:
            ServerError: a temporary table was open for too long, or the server failed; some may stand still then. Or
                another server answers.
        """

    def start(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        """They run, whether they had stood still or not. A channel that is no more is no error. `of`: likewise.

        Raises:
            ServerError: at least one could not be started; the others run. Or another server answers.
        """


class Flusher(Protocol):
    """What makes the server write its dirty pages."""

    def settings(self) -> Mapping[str, str]:
        """What `put_back` needs to know, asked for before `flush`.

        Raises:
            ServerError: it cannot be asked, or has no such settings.
        """

    def flush(self) -> Preflush:
        """The server writes whatever is dirty, now and until `put_back`; and most of what was is written.

        Raises:
            ServerError: the server refused or failed; its settings may be changed then.
        """

    def put_back(self, saved: Mapping[str, str]) -> None:
        """Its settings are what they were, but where somebody else has changed them since. Again is no error.

        Raises:
            ServerError: it failed, or another server answers.
        """


class Canary(Protocol):
    """Two rows around the lock: the first must be in the backup, the second must not."""

    @property
    def table(self) -> str:
        """`schema.table`."""

    def before(self, run_id: str) -> None:
        """Commit the row that must be in the backup.

        Raises:
            ServerError: it could not be written.
        """

    def after(self, run_id: str) -> None:
        """Commit the row that must not be in it; and forget rows of runs long past."""
