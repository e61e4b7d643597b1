"""Where backups live. The contract; every target passes the same contract suite.

A storage holds the backups of any number of machines, each in a folder of its own: MACHINE/JOB/RUN/OBJECT. A target is
bound to one of them: it neither sees nor touches what is another's.

A backup's objects are written first under temporary names, the manifest last: a backup without a manifest is none.

The segments of a job's binlog archive lie beside its backups: MACHINE/JOB/binlog/SEGMENT (`names.BINLOG`). They are
written and read as the objects of a backup that is called so, which no backup is: `backups` does not tell of it, and
`remove` refuses it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Protocol

from backupd.policy.owner_record import OwnerRecord
from backupd.policy.trust import Trust
from backupd.vocabulary.errors import BackupdError, Unreadable, Untrusted, VerificationError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup


class ObjectWriter(Protocol):
    """An object that is being written; nobody can see it yet."""

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            TargetError: no room, or the target failed.
        """


class UploadLedger(Protocol):
    """Where an upload is written down before it begins, as a holding of kind UPLOAD: a run's journal is one."""

    def hold(self, holding: Holding) -> None:
        """Durable when it returns."""

    def released(self, holding: Holding) -> None:
        """The upload is complete, or has been given up."""


class Target(Protocol):
    """One place for one machine's backups. `backup_id` is the run's id; `job` groups backups."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""

    @property
    def machine(self) -> str:
        """Whose backups these are."""

    def of_machine(self, machine: str) -> "Target":
        """The same storage, as the target of another machine.

        Raises:
            TargetError: no machine can be called so.
        """

    def machines(self) -> Sequence[str]:
        """The machines that have a folder there, this one among them where it has. Unordered.

        Raises:
            TargetError: it cannot be read.
        """

    @property
    def folder(self) -> Path | None:
        """Where on this host it writes; None for a target elsewhere."""

    @property
    def access_ends(self) -> datetime | None:
        """When what it was last used with (a key, a signature) lets nobody in any more; None where nobody can tell."""

    def location(self, job: str, backup_id: str) -> str:
        """Where a person finds the backup."""

    def require_usable(self) -> int | None:
        """Prove that the target is there and can be written; return its free bytes, None where nobody can tell.

        Raises:
            TargetError: missing, full or read-only.
        """

    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,
        ledger: UploadLedger | None = None,
        unwanted: Event | None = None,
    ) -> AbstractContextManager[ObjectWriter]:
        """Write one object. When the block ends well it is durable under its name; otherwise nothing is left of it,
        and an object of the name that is another's stays.

        A segment is never overwritten: of two writers of one name one succeeds, and the other is told `AlreadyThere`,
        when it ends at the latest, even where its bytes are the same; what is there is durable then. A writer that died
        after the end and before it wrote that down finds out by reading. What it left of an unfinished one is in
        nobody's way, and removed by `remove_segments`.

        `at_most` is an upper bound of its bytes, where one is known. Several objects may be written at once, each by a
        thread of its own. A target that is reached over a network waits until an outage ends, but no longer than until
        another thread sets `unwanted`.

        Raises:
            AlreadyThere: a segment of this name is there.
            TargetError: it could not be written or made durable, or nobody wants it; no segment is called so.
        """

    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The object's bytes as the storage has them, past any cache of this host: from `offset`, `size` of them.

        Without a size, all to the end. An object that ends before is a TargetError of the iterator's. A piece may be a
        `memoryview` that the next one overwrites. Several threads may read at once.

        Raises:
            TargetError: it is not there or cannot be read.
        """

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; from now on the backup exists. What a process that died left of it is in nobody's way.

        Raises:
            TargetError: it could not be written or made durable.
        """

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back.

        Raises:
            TargetError: there is no such backup, or it is unfinished.
            VerificationError: the manifest cannot be parsed.
        """

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """The names of a backup's objects and their bytes, as the storage tells them; the manifest is none of them.

        What somebody else has put beside them is told as well: a folder by its name with a slash at the end, as 0
        bytes. Empty where there is no such backup. What is still being written need not be told.

        Raises:
            TargetError: it cannot be read.
        """

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there of this machine, finished or not; of every job where none is named. Unordered.

        Raises:
            TargetError: it cannot be read.
        """

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, finished or not: its manifest first, so that half of it is never taken for a whole one.

        What backupd gives no such name is somebody else's, and stays: `objects` tells of it afterwards. Nothing
        happens when there is nothing.

        Raises:
            TargetError: it could not be removed.
        """

    def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
        """The names of a job's segments and their bytes, as the storage tells them, unordered; those behind `after`.

        What somebody else has put beside them is told as `objects` tells it: `names.is_segments` says which is which.
        There may be half a million; a storage that can begin behind a name does so.

        Raises:
            TargetError: it cannot be read.
        """

    def archived_jobs(self) -> Sequence[str]:
        """The jobs of this machine that have a folder of segments there. Unordered.

        Raises:
            TargetError: it cannot be read.
        """

    def remove_segments(self, job: str, names: Sequence[str]) -> None:
        """Remove these segments, in this order where the storage removes one at a time; one that is not there is fine.

        With them goes what dead writers have left of these and of all that come before the last of them by name.

        Raises:
            TargetError: one could not be removed; some of those before it may be. Or one is no segment's name: then
                nothing has happened.
        """

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup: the result of a drill, by its name (`names.is_proof`).

        `objects` tells of it, `reading` reads it, and `remove` removes it with its backup.

        Raises:
            TargetError: it could not be written, the backup is not finished, or the name is taken or no such name.
        """

    def abandon(self, upload: Holding) -> None:
        """Give back an upload that was written down and not completed; nothing where the target has no such thing.

        Nothing happens when it is gone already.

        Raises:
            TargetError: it could not be given up.
        """

    def owner(self) -> OwnerRecord | None:
        """Who wrote the machine's last owner record; None where nobody has ever written one.

        Raises:
            VerificationError: what lies there is none, or not this machine's.
            TargetError: it cannot be read.
        """

    def last_owner_number(self) -> int:
        """The number of the last owner record, whatever is written in it; 0 where there is none.

        Raises:
            TargetError: it cannot be read.
        """

    def succeed(self, record: OwnerRecord) -> bool:
        """Write an owner record where there is none of its number; whether it is the last one now.

        Of several writers of one number one succeeds. Where this one does not, nothing is left of its record. What is
        older than the record before it is removed, where the storage allows that. An answer that was lost is looked up.

        Raises:
            TargetError: nobody knows whether it was written.
        """


@dataclass(frozen=True, slots=True)
class BackupSource:
    """Where a backup is read from: the target is that of the machine whose backup it is."""

    target: Target
    job: str
    run_id: str
    trust: Trust  # by which its manifest is believed
    was_read: Event = field(default_factory=Event, compare=False, repr=False)  # set once something was taken from it
    gave: set[str] = field(default_factory=set, compare=False, repr=False)  # the objects that were taken from it, whole
    failures: list[BackupdError] = field(default_factory=list, compare=False, repr=False)  # why it did not give it all
    damage_told: Event = field(default_factory=Event, compare=False, repr=False)  # set once that it is broken was told

    @property
    def damage(self) -> VerificationError | None:
        """What shows that the copy is not what was stored, as `verify` would find; None where nothing does."""
        return next(
            (
                error
                for error in self.failures
                if isinstance(error, VerificationError) and not isinstance(error, Unreadable | Untrusted)
            ),
            None,
        )


def targets_read(sources: Sequence[BackupSource]) -> list[str]:
    """The names of those from which something was taken, in their order."""
    return [source.target.name for source in sources if source.was_read.is_set()]
