"""Where backups live. The contract; `directory` implements it, and every target passes the same contract suite.

A backup's objects are written first under temporary names, the manifest last: a backup without a manifest is none.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from backupd.model import Manifest


class ObjectWriter(Protocol):
    """An object that is being written; nobody can see it yet."""

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            TargetError: no room, or the target failed.
        """


class Target(Protocol):
    """One place for backups. `backup_id` is the run's id; `job` groups backups."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""

    @property
    def folder(self) -> Path | None:
        """Where on this host it writes; None for a target elsewhere."""

    def location(self, job: str, backup_id: str) -> str:
        """Where a person finds the backup."""

    def require_usable(self) -> int:
        """Prove that the target is there and can be written; return its free bytes.

        Raises:
            TargetError: missing, full or read-only.
        """

    def writing(self, job: str, backup_id: str, name: str) -> AbstractContextManager[ObjectWriter]:
        """Write one object. When the block ends well it is durable under its name; otherwise nothing is left of it.

        Raises:
            TargetError: it could not be written or made durable.
        """

    def reading(self, job: str, backup_id: str, name: str) -> AbstractContextManager[Iterator[bytes]]:
        """The object's bytes as the storage has them, past any cache of this host.

        Raises:
            TargetError: it is not there or cannot be read.
        """

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; from now on the backup exists.

        Raises:
            TargetError: it could not be written or made durable.
        """

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back.

        Raises:
            TargetError: there is no such backup, or it is unfinished.
            VerificationError: the manifest cannot be understood.
        """

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, finished or not: its manifest first, so that half of it is never taken for a whole one.

        Nothing happens when there is nothing.

        Raises:
            TargetError: it could not be removed.
        """
