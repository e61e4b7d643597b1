"""Of a machine's owner records on one storage the highest counts, whatever others do to them at the same time."""

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from backupd.targets import chain
from backupd.targets.names import record_name
from backupd.vocabulary.errors import TargetError, VerificationError
from tests.fakes.target import MACHINE


@dataclass
class Records:
    """A folder of records in which the last one is succeeded as soon as it was listed; `until` this number is there."""

    until: int
    number: int = 1
    asked: list[str] = field(default_factory=list)

    where = "store:owner"

    def names(self) -> Collection[str]:
        listed = [record_name(self.number)]
        if self.number < self.until:
            self.number += 1
        return listed

    def content(self, name: str) -> bytes | None:
        self.asked.append(name)
        return b"[]" if name == record_name(self.number) else None

    def create(self, name: str, content: bytes) -> None:
        raise TargetError("nothing is written here")

    def remove(self, name: str) -> None:
        raise TargetError("nothing is removed here")


def test_records_that_change_faster_than_they_can_be_read_are_nobody_s_and_said_so() -> None:
    """Several machines work with one identity, and none may take the folder for its own."""
    with pytest.raises(TargetError, match="in store:owner change faster than they can be read") as told:
        chain.owner(Records(until=1_000), MACHINE)
    assert "backupd identity show" in (told.value.hint or "")


def test_a_record_that_was_succeeded_meanwhile_is_looked_for_once_more() -> None:
    records = Records(until=3)
    with pytest.raises(VerificationError, match=record_name(3)):  # read at last, and none as we write it
        chain.owner(records, MACHINE)
    assert records.asked == [record_name(1), record_name(2), record_name(3)]
