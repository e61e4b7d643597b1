"""Every face shows the same alarms: pages, API, `status`, Nagios, metrics, notifications and the digest."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import httpx
import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig, Configuration, DirectoryConfig, HostConfig, TargetKind
from backupd.host.run_log import RunLogs
from backupd.service.digest import digest
from backupd.service.machine_view import LiveHere, MachineView
from backupd.service.metrics import Metrics
from backupd.service.plugin import PluginStatus, plugin_answer
from backupd.service.reminders import remind
from backupd.service.site import Site
from backupd.service.site_status import site_status
from backupd.service.status_report import StatusReport, status_report, status_text
from backupd.service.target_rooms import LookTimes, SeenTarget, TargetRooms
from backupd.service.web.application import application
from backupd.vocabulary.binlogs import ArchiveGap
from backupd.vocabulary.schedule import Notice
from tests.binlog_segments import CHAIN, FIRST
from tests.story.daemon_world import MORNING, job
from tests.web.conftest import served

GIB = 1 << 30
AWAY = SeenTarget(up=False)
FILLS = "it will be full in about 6 days: 60.0 GiB of 1000.0 GiB are free"
GONE = "/srv/backups is missing, not mounted or read-only, or does not answer"


@dataclass
class Faces:
    """One machine with a job that never ran and a target; each face is asked by itself."""

    site: Site
    folder: Path
    found: SeenTarget
    hangs: bool = False
    released: Event = field(default_factory=Event)

    def view(self) -> MachineView:
        return MachineView(LiveHere(self.folder), RunLogs(self.folder), self.rooms())

    def rooms(self) -> TargetRooms:
        """As a process that has just begun has them; a look that does not hang has ended."""
        rooms = TargetRooms(self.site.configuration, look=self.look, pace=LookTimes())
        if not self.hangs:
            rooms.seen(within_seconds=60)
        return rooms

    def look(self, _target: DirectoryConfig) -> SeenTarget:
        if self.hangs:
            self.released.wait()
        return self.found

    def at(self, now: datetime) -> None:
        self.site = replace(self.site, now=lambda: now)

    def notices(self) -> list[Notice]:
        told: list[Notice] = []
        remind(self.site, LiveHere(self.folder), self.rooms(), told.append)
        return told

    def report(self) -> StatusReport:
        return status_report(self.site, replace(self.view(), rooms=self.quick()))

    def quick(self) -> TargetRooms:
        """Two seconds of patience are for a machine, not for a test."""
        rooms = self.rooms()
        return _Impatient(rooms) if self.hangs else rooms  # type: ignore[return-value]


@dataclass
class _Impatient:
    rooms: TargetRooms

    def seen(self, *, within_seconds: float) -> object:
        return self.rooms.seen(within_seconds=min(within_seconds, 0.01))


def shown(faces: Faces, path: str) -> str:
    """The page, without its tags."""
    with ExitStack() as closing:
        address = closing.enter_context(served(application(faces.site, faces.view(), token="sésame")))
        browser = closing.enter_context(httpx.Client(base_url=address, auth=("dba", "sésame"), timeout=20))
        text = browser.get(path).text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def _page(faces: Faces) -> str:
    return shown(faces, "/")


def _page_of_targets(faces: Faces) -> str:
    return shown(faces, "/targets")


def _api(faces: Faces) -> str:
    return shown(faces, "/api/targets")


def _status(faces: Faces) -> str:
    return status_text(faces.report())


def _nagios(faces: Faces) -> str:
    status, line = plugin_answer(faces.report())
    assert status is PluginStatus.CRITICAL  # the job has no backup
    return line


def _digest(faces: Faces) -> str:
    rooms = faces.rooms().seen(within_seconds=0.01)
    return "\n".join(digest(faces.site, site_status(faces.site, LiveHere(faces.folder), rooms)).detail.values())


def _api_of_jobs(faces: Faces) -> str:
    return shown(faces, "/api/jobs")


FACES = (_page, _page_of_targets, _api, _status, _nagios, _digest)


def alarms_of_targets(faces: Faces) -> dict[str, float]:
    text = Metrics(faces.site, live=LiveHere(faces.folder), rooms=faces.rooms()).exposition().decode()
    found = re.findall(r'^backupd_target_alarms\{kind="(.+)",target="vault"\} (.+)$', text, re.MULTILINE)
    return {kind: float(value) for kind, value in found}


@pytest.fixture
def faces(tmp_path: Path) -> Iterator[Faces]:
    vault = DirectoryConfig(name="vault", type=TargetKind.DIRECTORY, path=Path("/srv/backups"))
    configuration = Configuration(
        hosts={"db1": HostConfig(name="db1")},
        targets={"vault": vault},
        jobs={"nightly": replace(job("nightly"), binlog=BinlogConfig())},
    )
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        for day in range(20):
            catalogue.remember_rooms({"vault": (260 - 10 * day) * GIB}, at=MORNING + timedelta(days=day - 20))
        site = Site(configuration, catalogue, lambda: MORNING)
        made = Faces(site, tmp_path, SeenTarget(up=True, free=60 * GIB, size=1000 * GIB))
        yield made
        made.released.set()


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__.strip("_"))
def test_a_target_that_fills_is_an_alarm_of_every_face(faces: Faces, face: Callable[[Faces], str]) -> None:
    said = face(faces)
    assert FILLS in said
    assert ("backupd prune --dry-run" in said) is (face in {_page, _status, _digest})
    assert alarms_of_targets(faces) == {"storage-fills": 1, "storage-unreachable": 0}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__.strip("_"))
def test_what_people_were_told_stands_for_every_face_that_cannot_look(
    faces: Faces, face: Callable[[Faces], str]
) -> None:
    """The mount hangs by now: that a process which has just begun has seen nothing does not make it well."""
    faces.found = AWAY
    faces.notices()
    faces.at(MORNING + timedelta(minutes=16))
    (told,) = [one for one in faces.notices() if one.target]
    assert GONE in told.text
    faces.hangs = True
    assert GONE in face(faces)
    assert alarms_of_targets(faces) == {"storage-unreachable": 1}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__.strip("_"))
def test_a_target_that_is_well_is_no_alarm_of_any_face(faces: Faces, face: Callable[[Faces], str]) -> None:
    faces.found = SeenTarget(up=True, free=900 * GIB, size=1000 * GIB)
    said = face(faces)
    assert FILLS not in said
    assert GONE not in said
    assert alarms_of_targets(faces) == {"storage-fills": 0, "storage-unreachable": 0}


@pytest.mark.parametrize(
    "face", [_page, _api_of_jobs, _status, _nagios, _digest], ids=lambda face: face.__name__.strip("_")
)
def test_a_binlog_archive_with_a_gap_that_is_behind_as_well_is_an_alarm_of_every_face(
    faces: Faces, face: Callable[[Faces], str]
) -> None:
    catalogue, hour = faces.site.catalogue, timedelta(hours=1)
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", MORNING - hour, None))
    catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name, received_at=MORNING - hour))
    said = face(faces)
    assert f"the binlog archive has a gap since {MORNING - hour:%Y-%m-%d %H:%M} UTC: the log was reset" in said
    assert "the binlog archive is behind: a target has lacked segments for 60 min" in said
    text = Metrics(faces.site, live=LiveHere(faces.folder), rooms=faces.rooms()).exposition().decode()
    assert 'backupd_alarms{backup_job="nightly",kind="binlog-gap"} 1.0' in text
    assert 'backupd_alarms{backup_job="nightly",kind="binlog-behind"} 1.0' in text
    assert 'backupd_binlog_gaps{backup_job="nightly"} 1.0' in text
