"""People are told what they are owed: all of it, in order, and no more often than the world forces."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import text

from backupd.fleet.owed_notices import OwedNotices
from backupd.fleet.records import Records
from backupd.notifications import NotificationChannel
from backupd.notifications.fanout import Fanout, Subscriber
from backupd.notifications.words import title
from backupd.operations.fleet import telling
from backupd.operations.fleet.telling import OwedTelling
from backupd.vocabulary.errors import FleetDatabaseAway, FleetDatabaseError, NotificationError, PerhapsNotified
from backupd.vocabulary.schedule import Notice, NoticeKind


class Taking:
    """A channel that takes everything."""

    def __init__(self) -> None:
        self.taken: list[Notice] = []

    def deliver(self, notice: Notice) -> None:
        """See `NotificationChannel`."""
        self.taken.append(notice)


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
    assert "there is something to tell of 'b', which cannot be read" in told[1].text
    assert title(told[1]).endswith(": a notice of the fleet failed")
    assert records.notices.waiting() == []


def test_one_that_cannot_be_read_reaches_who_hears_of_failures_only_and_stays_for_who_can_read_it(
    records: Records,
) -> None:
    def changed(old: str, new: str) -> None:
        with records.engine.begin() as connection:
            connection.execute(text(f"UPDATE fleet_notices SET notice = replace(notice, '{old}', '{new}')"))

    owe(records, "a")
    changed("failed", "of-a-newer-kind")
    channel = Taking()
    fanout = Fanout([Subscriber("pager", frozenset([NoticeKind.FAILED]), frozenset(), channel)])
    for _start in range(2):
        with OwedTelling(records.notices, fanout.tell_somebody):
            pass
        (substitute,) = channel.taken
    assert "cannot be read" in substitute.text
    changed("of-a-newer-kind", "failed")
    with OwedTelling(records.notices, fanout.tell_somebody):
        pass
    assert [one.text for one in channel.taken[1:]] == ["it failed"]
    assert records.notices.waiting() == []


def test_a_fault_of_the_database_or_in_telling_ends_nothing_and_is_tried_again(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(telling, "_FIRST_WAIT_SECONDS", 0.0)
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


def test_what_nobody_has_heard_of_is_told_again_and_again_for_a_day_and_holds_up_no_other(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by five minutes at each look at it."""
    monkeypatch.setattr(telling, "_LOOK_SECONDS", 0.001)
    times = count(0.0, 300.0)
    monkeypatch.setattr(telling, "monotonic", lambda: next(times))
    owe(records, "a", "b")
    told, is_back, is_over = list[str](), threading.Event(), threading.Event()
    keep = records.notices.told

    def over(about: str) -> None:
        keep(about)
        if about == "never":
            is_over.set()

    monkeypatch.setattr(records.notices, "told", over)

    class MailServer:
        """It refuses one notice thrice, and another for ever."""

        def deliver(self, notice: Notice) -> None:
            """See `NotificationChannel`."""
            told.append(notice.subject)
            if notice.subject == "a" and told.count("a") <= 3:
                raise NotificationError("connection refused", hint="start it")
            if notice.subject == "never":
                raise NotificationError("the address is refused", hint="see it")
            if notice.subject == "a":
                is_back.set()

    channel = Subscriber("mail", frozenset(NoticeKind), frozenset(), MailServer())
    with OwedTelling(records.notices, Fanout([channel]).tell_somebody):
        assert is_back.wait(60)
        owe(records, "never")
        assert is_over.wait(60)
    assert told[:2] == ["a", "b"]
    assert (told.count("a"), told.count("b")) == (4, 1)
    assert 24 <= told.count("never") <= 35


def test_what_one_of_several_has_taken_and_what_nobody_wants_is_told(records: Records) -> None:
    class Refusing:
        """A channel that takes nothing."""

        def deliver(self, notice: Notice) -> None:
            """See `NotificationChannel`."""
            raise NotificationError(f"{notice.subject} is refused", hint="see it")

    failed, none = frozenset([NoticeKind.FAILED]), frozenset[str]()
    some = [Subscriber("refusing", failed, none, Refusing()), Subscriber("good", failed, none, Taking())]
    owe(records, "a")
    with OwedTelling(records.notices, Fanout(some).tell_somebody):
        pass
    assert records.notices.waiting() == []
    missed = Notice(NoticeKind.MISSED, "nightly", datetime.now(UTC), "b", "it was missed")
    assert records.notices.owe(missed, "b")
    with OwedTelling(records.notices, Fanout(some[:1]).tell_somebody):
        pass
    assert records.notices.waiting() == []


def test_what_somebody_may_have_heard_of_is_not_told_again(records: Records) -> None:
    tried = list[str]()
    let_go = threading.Event()

    class PartlyRefused:
        """A mail server that refuses one recipient of two."""

        def deliver(self, notice: Notice) -> None:
            """See `NotificationChannel`."""
            tried.append(f"partly {notice.subject}")
            raise PerhapsNotified("refused one", hint="the other recipients got the mail")

    class Slow:
        """A relay that takes every mail, after all patience."""

        def deliver(self, notice: Notice) -> None:
            """See `NotificationChannel`."""
            tried.append(f"slow {notice.subject}")
            assert let_go.wait(60)

    channels: dict[str, NotificationChannel] = {"partly": PartlyRefused(), "slow": Slow()}
    for name, channel in channels.items():
        owe(records, name)
        alone = Subscriber(name, frozenset(NoticeKind), frozenset(), channel)
        with OwedTelling(records.notices, Fanout([alone], within_seconds=0.01).tell_somebody):
            pass
        assert records.notices.waiting() == []
    let_go.set()
    assert tried == ["partly partly", "slow slow"]
