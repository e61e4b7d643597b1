"""A machine's owner records on one storage: each written only where there is none of its number, the highest counts.

Two writers that both read record N both write N + 1: the storage lets one of them. One that was so slow that N + 1 is
removed already finds a higher one, and takes its own away again. So nobody but the writer of the highest record has
been told that he owns the folder. Knows: that order.
"""

import logging
from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from backupd.policy import owner_record
from backupd.policy.owner_record import OwnerRecord
from backupd.targets.names import record_name, record_number
from backupd.vocabulary.errors import TargetError

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 10  # of a record; what is longer is none
_LOOKS = 5  # a record may be taken away between a listing and its reading


class OwnerRecords(Protocol):
    """The folder of a machine's owner records."""

    @property
    def where(self) -> str:
        """As a person knows it."""

    def names(self) -> Collection[str]:
        """Of all that lies there; nothing where there is not a folder."""

    def content(self, name: str) -> bytes | None:
        """All of it, or of more than `MOST_BYTES` the beginning; None where it is not there."""

    def create(self, name: str, content: bytes) -> None:
        """It is there, durably; whatever is there already under this name stays what it is.

        Raises:
            TargetError: it is not, or nobody knows.
        """

    def remove(self, name: str) -> None:
        """It is not there.

        Raises:
            TargetError: it is, or nobody knows.
        """


class OwnedFolder:
    """A machine's folder on a storage, and whose it is by the records there: a part of the contract `Target`."""

    def __init__(self, machine: str, records: OwnerRecords) -> None:
        self._machine, self._records = machine, records

    @property
    def machine(self) -> str:
        """Whose backups these are."""
        return self._machine

    @property
    def access_ends(self) -> datetime | None:
        """Of most kinds nobody can tell; see the contract."""
        return None

    def owner(self) -> OwnerRecord | None:
        """Who wrote last; see the contract."""
        return owner(self._records, self._machine)

    def last_owner_number(self) -> int:
        """The number of the last owner record; see the contract."""
        return last(self._records)

    def succeed(self, record: OwnerRecord) -> bool:
        """Write an owner record; see the contract."""
        return succeed(self._records, record)


def last(records: OwnerRecords) -> int:
    """The highest number there, whatever is written under it; 0 where nobody has ever written."""
    return max((number for name in records.names() if (number := record_number(name)) is not None), default=0)


def owner(records: OwnerRecords, machine: str) -> OwnerRecord | None:
    """Who wrote last; None where nobody has ever written.

    Raises:
        VerificationError: what lies there is not as we write it.
        TargetError: it cannot be read.
    """
    for _ in range(_LOOKS):
        number = last(records)
        if not number:
            return None
        name = record_name(number)
        content = records.content(name)
        if content is not None:
            return owner_record.from_text(content, machine=machine, number=number, where=f"{records.where}/{name}")
    raise TargetError(
        f"the owner records in {records.where} change faster than they can be read",
        hint="several machines are writing there with one identity: see `backupd identity show` on each",
    )


def succeed(records: OwnerRecords, record: OwnerRecord) -> bool:
    """Whether this record is the last one now. Where it is not, nothing is left of it.

    Raises:
        TargetError: nobody knows. What was written then is of this incarnation.
    """
    name, content = record_name(record.number), owner_record.to_text(record).encode()
    try:
        records.create(name, content)
    except TargetError as error:
        if records.content(name) is None:
            raise
        log.debug("%s/%s exists anyway: %s", records.where, name, error.message)
    ours = records.content(name) == content
    if ours and last(records) == record.number:
        _tidy(records, below=record.number - 1)
        return True
    if ours:
        records.remove(name)
    return False


def _tidy(records: OwnerRecords, *, below: int) -> None:
    """What older writers left is gone, oldest first, as far as the storage lets us: Object Lock may not."""
    try:
        numbered = [(record_number(name, or_part=True), name) for name in records.names()]
        for number, name in sorted((number, name) for number, name in numbered if number is not None):
            if number < below:
                records.remove(name)
    except TargetError as error:
        log.info("older owner records were not removed: %s", error.message)
