"""People hear of a target that fills or is away as of any alarm: its start, each day and its end, once for all jobs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, DirectoryConfig, HostConfig, TargetKind
from backupd.notifications.fanout import Subscriber
from backupd.notifications.words import body, title
from backupd.service.machine_view import LiveHere
from backupd.service.metrics import Metrics
from backupd.service.reminders import remind
from backupd.service.site import Site
from backupd.service.target_rooms import LookTimes, SeenTarget, TargetRooms
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.story.daemon_world import MORNING, job

GIB = 1 << 30
DAY = timedelta(days=1)
MINUTES = timedelta(minutes=1)
AWAY = SeenTarget(up=False)


def room(free: float) -> SeenTarget:
    return SeenTarget(up=True, free=int(free * GIB), size=1000 * GIB)


@dataclass
class Storage:
    """A machine with two jobs on one target; each look is one of a daemon that has just been started."""

    folder: Path
    configuration: Configuration
    found: SeenTarget = field(default_factory=lambda: room(500))
    hangs: bool = False
    released: Event = field(default_factory=Event)

    def look(self, later: timedelta) -> list[Notice]:
        """What is told then of the target."""
        told: list[Notice] = []
        with Catalogue.open(self.folder / "catalogue.sqlite") as catalogue:
            remind(self._site(catalogue, later), LiveHere(self.folder), self._rooms(), told.append)
        return [notice for notice in told if notice.target or not notice.job]

    def days(self, *free: float) -> None:
        """What looks have found, one each day; the last is found at the first of `look`'s times."""
        with Catalogue.open(self.folder / "catalogue.sqlite") as catalogue:
            for number, count in enumerate(free[:-1]):
                at = MORNING + (number + 1 - len(free)) * DAY
                catalogue.remember_rooms({"vault": int(count * GIB)}, at=at)
        self.found = room(free[-1])
        assert self.look(0 * DAY) == []

    def metrics(self, later: timedelta) -> str:
        """What Prometheus is told then."""
        with Catalogue.open(self.folder / "catalogue.sqlite") as catalogue:
            site = self._site(catalogue, later)
            told = Metrics(site, live=LiveHere(self.folder), rooms=self._rooms(), patience_seconds=5).exposition()
        return told.decode()

    def _site(self, catalogue: Catalogue, later: timedelta) -> Site:
        return Site(self.configuration, catalogue, lambda: MORNING + later)

    def _rooms(self) -> TargetRooms:
        rooms = TargetRooms(self.configuration, look=self._look, pace=LookTimes())
        if not self.hangs:
            rooms.seen(within_seconds=60)  # however busy this machine is, the look has ended
        return rooms

    def _look(self, _target: DirectoryConfig) -> SeenTarget:
        if self.hangs:
            self.released.wait()
        return self.found


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    vault = DirectoryConfig(name="vault", type=TargetKind.DIRECTORY, path=Path("/srv/backups"))
    jobs = {name: job(name) for name in ("nightly", "shop")}
    storage = Storage(
        tmp_path, Configuration(hosts={"db1": HostConfig(name="db1")}, targets={"vault": vault}, jobs=jobs)
    )
    yield storage
    storage.released.set()


def kinds(notices: list[Notice]) -> list[tuple[str, str]]:
    return [(notice.kind.value, notice.detail["alarm"]) for notice in notices]


def test_a_target_that_is_away_is_told_once_for_all_jobs_each_day_and_when_it_is_back(storage: Storage) -> None:
    storage.found = AWAY
    assert storage.look(0 * DAY) == []
    assert storage.look(14 * MINUTES) == []  # it may be mounted anew at this moment
    (began,) = storage.look(16 * MINUTES)
    assert title(began).endswith(": target vault has an alarm")
    assert began.text == "target vault: /srv/backups is missing, not mounted or read-only, or does not answer"
    assert "severity: warning\njobs: nightly, shop\ntype now: backupd check nightly\n" in body(began)
    assert storage.look(20 * MINUTES) == []
    (again,) = storage.look(DAY + 16 * MINUTES)
    assert "(seen for 24 h, since 2026-11-21 08:00 UTC)" in again.text
    storage.found = room(500)
    (over,) = storage.look(DAY + 26 * MINUTES)
    assert (over.kind, over.subject) == (NoticeKind.OVER, began.subject)
    assert storage.look(2 * DAY) == []


def test_a_target_that_fills_is_told_with_the_days_that_are_left(storage: Storage) -> None:
    storage.days(*(400 - 10 * day for day in range(26)))
    assert 'backupd_target_alarms{kind="storage-fills",target="vault"} 0.0' in storage.metrics(0 * DAY)
    storage.found = room(130)
    assert storage.look(DAY) == []
    assert 'backupd_target_alarms{kind="storage-fills",target="vault"} 1.0' in storage.metrics(DAY)
    (full,) = re.findall(r'^backupd_target_full_in_seconds\{target="vault"\} (.*)$', storage.metrics(DAY), re.MULTILINE)
    assert float(full) == pytest.approx(13 * 86400, rel=0.02)
    (began,) = storage.look(DAY + 16 * MINUTES)
    assert began.text == "target vault: it will be full in about 13 days: 130.0 GiB of 1000.0 GiB are free"
    assert began.detail["type now"] == "backupd prune --dry-run"
    storage.found = room(160)  # 16 days: beyond the limit, but not so far that it is over for good
    assert storage.look(DAY + 26 * MINUTES) == []
    storage.found = room(400)
    assert kinds(storage.look(DAY + 36 * MINUTES)) == [("over", "storage-fills")]


def test_how_soon_is_too_soon_is_configured(storage: Storage) -> None:
    service = replace(storage.configuration.service, storage_full_within_seconds=30 * 86400.0)
    storage.configuration = replace(storage.configuration, service=service)
    storage.days(*(400 - 10 * day for day in range(15)))  # 26 days are left
    assert kinds(storage.look(16 * MINUTES)) == [("alarm", "storage-fills")]


def test_what_was_not_looked_at_yet_is_neither_away_nor_back(storage: Storage) -> None:
    storage.hangs = True
    assert storage.look(0 * DAY) == storage.look(DAY) == []
    storage.hangs, storage.found = False, AWAY
    storage.look(2 * DAY)
    assert kinds(storage.look(2 * DAY + 16 * MINUTES)) == [("alarm", "storage-unreachable")]
    storage.hangs = True
    assert storage.look(2 * DAY + 26 * MINUTES) == []
    storage.hangs = False
    assert kinds(storage.look(3 * DAY + 16 * MINUTES)) == [("alarm", "storage-unreachable")]


def test_without_room_for_one_more_thread_a_look_is_missed_and_no_alarm_is_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    storage.found = AWAY
    storage.look(0 * DAY)
    assert kinds(storage.look(16 * MINUTES)) == [("alarm", "storage-unreachable")]
    with monkeypatch.context() as full:
        full.setattr(Thread, "start", start)
        assert storage.look(26 * MINUTES) == []
    storage.found = room(500)
    assert kinds(storage.look(36 * MINUTES)) == [("over", "storage-unreachable")]


def test_a_target_that_is_away_has_not_ceased_to_fill(storage: Storage) -> None:
    storage.days(*(300 - 10 * day for day in range(15)), 130)
    assert kinds(storage.look(16 * MINUTES)) == [("alarm", "storage-fills")]
    storage.found = AWAY
    assert storage.look(26 * MINUTES) == []
    storage.found = room(500)
    assert kinds(storage.look(36 * MINUTES)) == [("over", "storage-fills")]


def test_a_target_that_is_not_configured_any_more_is_forgotten_and_nobody_hears_that_it_is_back(
    storage: Storage,
) -> None:
    storage.found = AWAY
    storage.look(0 * DAY)
    storage.look(16 * MINUTES)
    configured = storage.configuration
    storage.configuration = replace(configured, targets={})
    assert storage.look(26 * MINUTES) == []
    storage.configuration = configured
    assert storage.look(36 * MINUTES) == []  # it is new, and is told when it has lasted
    assert kinds(storage.look(52 * MINUTES)) == [("alarm", "storage-unreachable")]


@pytest.mark.parametrize(("jobs", "hears"), [((), True), (("shop", "other"), True), (("other",), False)])
def test_who_hears_of_jobs_hears_of_the_targets_that_they_write_to(
    storage: Storage, jobs: tuple[str, ...], hears: bool
) -> None:
    storage.found = AWAY
    storage.look(0 * DAY)
    (began,) = storage.look(16 * MINUTES)
    channel: object = None
    subscriber = Subscriber("dba", frozenset({NoticeKind.ALARM}), frozenset(jobs), channel)  # type: ignore[arg-type]
    assert subscriber.wants(began) is hears


def test_looks_are_kept_six_hours_apart_and_for_thirty_days_whatever_the_clock(storage: Storage) -> None:
    with Catalogue.open(storage.folder / "catalogue.sqlite") as catalogue:
        catalogue.remember_rooms({"vault": 1}, at=MORNING + 3650 * DAY)  # the clock was ahead
        for hours in range(0, 40 * 24, 2):
            catalogue.remember_rooms({"vault": hours}, at=MORNING + timedelta(hours=hours))
        kept = catalogue.room_points(until=MORNING + 4000 * DAY)
        assert kept == {}  # nothing of the years ahead is left
        points = catalogue.room_points(until=MORNING + 40 * DAY)["vault"]
    assert {later.at - earlier.at for earlier, later in pairwise(points)} == {6 * 3600.0}
    assert len(points) == pytest.approx(30 * 4, abs=4)
