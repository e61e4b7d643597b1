"""The digest is told once a week, by one daemon or the next. What it says the documentation shows."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, HostConfig, ServiceConfig
from backupd.notifications.words import body, title
from backupd.service.digest import digest
from backupd.service.machine_view import LiveHere
from backupd.service.reminders import remind
from backupd.service.site import Site
from backupd.service.site_status import site_status
from backupd.service.target_rooms import SeenTarget, TargetRooms
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.story.daemon_world import job
from tests.web.sample import sample_site

GIB = 1 << 30
MONDAY = datetime(2026, 11, 23, 7, 0, tzinfo=UTC)  # 08:00 in Berlin
DAY = timedelta(days=1)


@dataclass
class Daemons:
    """One machine; each look is of a daemon that has just been started."""

    folder: Path
    service: ServiceConfig = field(default_factory=lambda: ServiceConfig(zone="Europe/Berlin", digest="0 8 * * Mon"))

    def look(self, now: datetime) -> list[Notice]:
        """The digests that are told then."""
        told: list[Notice] = []
        jobs = {"nightly": job("nightly")}
        configuration = Configuration(service=self.service, hosts={"db1": HostConfig(name="db1")}, jobs=jobs)
        with Catalogue.open(self.folder / "catalogue.sqlite") as catalogue:
            site = Site(configuration, catalogue, lambda: now)
            remind(site, LiveHere(self.folder), TargetRooms(configuration), told.append)
        return [notice for notice in told if notice.kind is NoticeKind.DIGEST]


@pytest.fixture
def daemons(tmp_path: Path) -> Daemons:
    return Daemons(tmp_path)


def test_it_is_told_once_a_week_whoever_looks(daemons: Daemons) -> None:
    assert daemons.look(MONDAY - 3 * DAY) == []
    assert daemons.look(MONDAY - timedelta(seconds=1)) == []
    (told,) = daemons.look(MONDAY + timedelta(minutes=9))
    assert told.text == "1 of 1 job needs attention"
    assert told.concerns == ("nightly",)
    assert "due" not in told.detail
    for later in (timedelta(minutes=10), DAY, 6.9 * DAY):
        assert daemons.look(MONDAY + later) == []
    assert len(daemons.look(MONDAY + 7 * DAY)) == 1


def test_a_new_configuration_owes_none_of_before(daemons: Daemons) -> None:
    assert daemons.look(MONDAY + DAY) == []
    assert daemons.look(MONDAY + 2 * DAY) == []
    assert len(daemons.look(MONDAY + 7 * DAY)) == 1


def test_those_that_were_due_while_no_daemon_ran_are_told_as_one_by_the_next(daemons: Daemons) -> None:
    daemons.look(MONDAY - DAY)
    (told,) = daemons.look(MONDAY + 16 * DAY)
    assert told.detail["due"] == "2026-12-07 07:00 UTC"
    assert daemons.look(MONDAY + 16 * DAY) == []
    assert len(daemons.look(MONDAY + 21 * DAY)) == 1


def test_nobody_gets_one_that_is_not_configured(daemons: Daemons) -> None:
    daemons.service = ServiceConfig(zone="UTC")
    assert daemons.look(MONDAY - DAY) == daemons.look(MONDAY + 70 * DAY) == []


@pytest.mark.parametrize(
    ("due", "before"),
    [
        (datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "the clock skips 02:30"),
        (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "the clock shows 02:30 twice"),
    ],
)
def test_a_clock_that_changes_neither_skips_nor_doubles_it(daemons: Daemons, due: datetime, before: str) -> None:
    daemons.service = replace(daemons.service, digest="30 2 * * Sun")
    daemons.look(due - 2 * DAY)
    looks = [due + timedelta(minutes=30 * number) for number in range(-3, 4)]
    assert [now for now in looks if daemons.look(now)] == [due], before


def test_a_clock_that_was_years_ahead_silences_none(daemons: Daemons) -> None:
    daemons.look(MONDAY - DAY)
    assert len(daemons.look(MONDAY + 3650 * DAY)) == 1
    assert len(daemons.look(MONDAY)) == 1
    assert daemons.look(MONDAY + DAY) == []


# --- what it says ----------------------------------------------------------------------------------------------------


def sample_digest(folder: Path, *, well: bool) -> Notice:
    """Of the made-up weeks that the pages are shown with, where targets are well or are not."""
    with sample_site(folder) as site:
        for day in range(30):
            free = {"vault": 3000 * GIB} if well else {"vault": (400 - 10 * day) * GIB}
            site.catalogue.remember_rooms(free, at=site.now() + (day - 30) * DAY)
        vault = SeenTarget(up=True, free=100 * GIB, size=4000 * GIB)
        seen = {"vault": vault, "offsite": vault if well else SeenTarget(up=False)}
        status = site_status(site, LiveHere(site.configuration.paths.run), seen)
        if well:
            status = replace(status, jobs=tuple(replace(one, alarms=(), pause=None) for one in status.jobs))
        return digest(site, status)


def test_where_all_is_well_the_subject_says_so_and_nothing_stands_before_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "db1")
    notice = sample_digest(tmp_path, well=True)
    assert title(notice) == "backupd on db1: digest: all is well with 2 jobs and 2 targets"
    assert next(iter(notice.detail)) == "newest good copies"
    assert "100.0 GiB  3.9 TiB  does not fill" in body(notice)
