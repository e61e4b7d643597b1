"""People are told what they are owed: all of it, in order, and no more often than the world forces."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from backupd.fleet.owed_notices import OwedNotices
from backupd.fleet.records import Records
from backupd.operations.fleet import telling
from backupd.operations.fleet.telling import OwedTelling
from backupd.vocabulary.errors import FleetDatabaseAway, FleetDatabaseError
from backupd.vocabulary.schedule import Notice, NoticeKind


class RefusedOnce(OwedNotices):
    """A database that refuses to be read, for the first time."""

    def __init__(self, records: Records) -> None:
        super().__init__(records.engine)
        self._refuses = True

    def waiting(self) -> list[tuple[str, Notice]]:
        """See `OwedNotices`."""
        if self._refuses:
            self._refuses = False
            raise FleetDatabaseError("the fleet's database refused a statement: permission denied", hint="grant it")
        return super().waiting()


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


def test_one_that_cannot_be_read_is_told_as_such_and_keeps_no_other_from_being_told(records: Records) -> None:
    owe(records, "a", "b", "c")
    newer = text("UPDATE fleet_notices SET notice = replace(notice, 'failed', 'of-a-newer-kind') WHERE subject = 'b'")
    with records.engine.begin() as connection:
        connection.execute(newer)
    told: list[Notice] = []
    with OwedTelling(records.notices, told.append):
        pass
    assert [one.subject for one in told] == ["a", "b", "c"]
    assert (told[1].kind, told[1].cluster) == (NoticeKind.ATTENTION, "")
    assert "there is something to tell of 'b', which cannot be read" in told[1].text
    assert records.notices.waiting() == []


def test_a_fault_of_the_database_or_in_telling_ends_nothing_and_is_tried_again(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_LOOK_SECONDS", 0.001)
    owe(records, "a", "b")
    tried, is_told = list[str](), threading.Event()

    def tell(notice: Notice) -> None:
        tried.append(notice.subject)
        if tried == ["a"]:
            raise KeyError("a bug")
        if len(tried) == 3:
            is_told.set()

    with OwedTelling(RefusedOnce(records), tell):
        assert is_told.wait(60)
    assert tried == ["a", "b", "a"]
    assert records.notices.waiting() == []
