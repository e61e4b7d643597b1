"""People are told what they are owed: all of it, in order, and no more often than the world forces."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.fleet.owed_notices import OwedNotices
from backupd.fleet.records import Records
from backupd.operations.fleet import telling
from backupd.operations.fleet.telling import OwedTelling
from backupd.vocabulary.errors import FleetDatabaseAway
from backupd.vocabulary.schedule import Notice, NoticeKind


class FullDisk(OwedNotices):
    """A database that answers, and takes nothing until its disk has room again."""

    def __init__(self, records: Records, *, refused: int) -> None:
        super().__init__(records.engine)
        self._left = refused
        self.has_taken = threading.Event()

    def told(self, about: str) -> None:
        """See `OwedNotices`."""
        self._left -= 1
        if self._left >= 0:
            raise FleetDatabaseAway("the fleet's database does not answer: database or disk is full", hint="make room")
        super().told(about)
        self.has_taken.set()


@pytest.fixture
def records(path_in_memory: Path) -> Iterator[Records]:
    made = Records.open(f"sqlite:///{path_in_memory}/fleet.db")
    yield made
    made.engine.dispose()


def owe(records: Records, *about: str) -> None:
    for one in about:
        assert records.notices.owe(Notice(NoticeKind.FAILED, "nightly", datetime.now(UTC), one, "it failed"), one)


def test_all_that_is_owed_when_it_ends_was_told_in_order(records: Records) -> None:
    told: list[Notice] = []
    with OwedTelling(records.notices, told.append):
        owe(records, "c", "a", "b")
    assert [one.subject for one in told] == ["c", "a", "b"]
    assert records.notices.waiting() == []


def test_while_the_database_takes_nothing_nobody_is_told_the_same_over_and_over(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_LOOK_SECONDS", 0.001)
    told: list[Notice] = []
    owe(records, "a")
    full = FullDisk(records, refused=5)
    with OwedTelling(full, told.append):
        assert full.has_taken.wait(60)
    assert [one.subject for one in told] == ["a"]
    assert records.notices.waiting() == []
