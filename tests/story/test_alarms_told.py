"""People hear of alarms from the daemon, by what the catalogue remembers: once, whatever restarts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig, Configuration, HostConfig
from backupd.notifications.words import body
from backupd.service.job_status import job_statuses
from backupd.service.machine_view import LiveHere
from backupd.service.reminders import remind
from backupd.service.site import Site
from backupd.service.target_rooms import TargetRooms
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.binlogs import ArchiveGap
from backupd.vocabulary.records import Drill
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, Slot, SlotState
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import CHAIN
from tests.story.daemon_world import NIGHTLY, VAULT, job

COPY = Backup("vault", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
DAY = timedelta(days=1)
AT = datetime(2026, 11, 20, 5, tzinfo=UTC)

Look = Callable[[timedelta], list[Notice]]


def back_up(path: Path, run_id: str, broken: str = "") -> None:
    with Catalogue.open(path) as catalogue, catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.position(Position(binlog_file="bin.000001", binlog_offset=500))
        run.complete((replace(COPY, broken=broken),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.sqlite"


@pytest.fixture
def look(path: Path) -> Look:
    """What a daemon tells that is started so much later, looks once, and ends."""
    nightly = replace(
        job("nightly", check=NIGHTLY, drill=NIGHTLY), drill_within_seconds=86400 * 2.5, binlog=BinlogConfig()
    )
    hosts, targets = {"db1": HostConfig(name="db1")}, {VAULT.name: VAULT}
    configuration = Configuration(hosts=hosts, targets=targets, jobs={"nightly": nightly})
    began = datetime.now(UTC)

    def looked(later: timedelta) -> list[Notice]:
        told: list[Notice] = []
        with Catalogue.open(path) as catalogue:
            site = Site(configuration, catalogue, lambda: began + later)
            remind(site, LiveHere(path.parent), TargetRooms(configuration), told.append)
            # What people hear of is what pages and metrics show.
            standing = {alarm.kind for status in job_statuses(site, LiveHere(path.parent)) for alarm in status.alarms}
            assert {AlarmKind(notice.detail["alarm"]) for notice in told if notice.kind is NoticeKind.ALARM} <= standing
        return told

    return looked


def told(notices: list[Notice]) -> list[tuple[str, str]]:
    return [(notice.kind.value, notice.detail["alarm"]) for notice in notices]


def test_an_old_backup_and_an_old_proof_are_told_by_one_daemon_and_not_by_the_next(path: Path, look: Look) -> None:
    back_up(path, "r1")
    assert told(look(DAY)) == []
    assert told(look(2 * DAY)) == [("alarm", "overdue")]
    assert told(look(2 * DAY)) == []
    assert told(look(2.51 * DAY)) == told(look(2.59 * DAY)) == []  # a proof host's may not have been read yet
    (proof,) = look(2.6 * DAY)
    assert proof.text == "job nightly: no drill has ever proven a backup"
    (again,) = look(3 * DAY)
    assert "the last good backup is 72 hours old (seen for 24 h, since " in again.text
    assert told(look(3.1 * DAY)) == []


def test_the_end_is_told_with_what_it_was_and_since_when(path: Path, look: Look) -> None:
    back_up(path, "r1", broken="sha256 differs")
    (began,) = look(timedelta())
    assert began.text == "job nightly: the copy on vault cannot be restored: sha256 differs"
    assert "severity: critical\n" in body(began)
    assert "run: r1\ntype now: backupd verify r1\n" in body(began)
    with Catalogue.open(path) as catalogue:
        catalogue.removed("r1", "vault", because="a person")
    (over,) = look(timedelta(hours=1))
    assert (over.kind, over.subject) == (NoticeKind.OVER, began.subject)
    assert over.text.startswith("job nightly: over since ")
    assert "the copy on vault cannot be restored: sha256 differs (first seen " in over.text
    assert told(look(timedelta(hours=2))) == []


def test_what_a_check_refuses_is_over_when_the_next_one_finds_nothing(path: Path, look: Look) -> None:
    back_up(path, "r1")
    check(path, ago=timedelta(minutes=2), exit_status=5)
    assert told(look(timedelta())) == []  # the check has told it
    check(path, ago=timedelta(minutes=1), exit_status=5)
    assert told(look(23.9 * timedelta(hours=1))) == []
    check(path, ago=timedelta(seconds=20), exit_status=None)
    assert told(look(23.95 * timedelta(hours=1))) == []  # it goes on: nobody knows yet
    check(path, ago=timedelta(seconds=10), exit_status=11)
    assert told(look(23.97 * timedelta(hours=1))) == []  # somebody has ended it
    check(path, ago=timedelta(), exit_status=0)
    (over,) = look(24 * timedelta(hours=1))
    assert (over.kind, over.detail["alarm"]) == (NoticeKind.OVER, "failed")
    assert "UTC failed (refused" in over.text


def test_what_a_check_wants_attention_for_is_an_alarm_until_one_finds_nothing(path: Path, look: Look) -> None:
    """Such as a PV that is gone: the backup goes elsewhere, and nobody else would know by day."""
    back_up(path, "r1")
    check(path, ago=timedelta(minutes=2), exit_status=3)
    assert told(look(timedelta())) == []  # the check has told it
    check(path, ago=timedelta(minutes=1), exit_status=None)
    assert told(look(timedelta(hours=1))) == []  # it goes on: nobody knows yet
    check(path, ago=timedelta(seconds=30), exit_status=3)
    assert told(look(timedelta(hours=2))) == []
    (again,) = look(timedelta(hours=27))
    assert "job nightly: the next backup would need attention, as the check of " in again.text
    assert again.detail["type now"] == "backupd check nightly"
    check(path, ago=timedelta(), exit_status=0)
    assert told(look(timedelta(hours=28))) == [("over", "attention")]


def test_a_failed_drill_is_over_with_the_next_good_one_whoever_did_it(path: Path, look: Look) -> None:
    hour = timedelta(hours=1)
    back_up(path, "r1")
    with Catalogue.open(path) as catalogue:
        catalogue.record_drill(Drill("r1", False, (), 60.0, datetime.now(UTC)))
    assert told(look(hour)) == []  # the drill has told it
    with Catalogue.open(path) as catalogue:
        catalogue.pause("nightly", "new disks")
        due_at = datetime.now(UTC) + 2 * hour
        catalogue.take_slot(Slot("nightly", Activity.DRILL, due_at, SlotState.MISSED, due_at, reason="a pause"))
    assert told(look(3 * hour)) == []
    (again,) = look(25 * hour)
    assert "failed, and none has proven a backup since (seen for 24 h" in again.text
    assert again.detail["type now"] == "backupd show r1"
    with Catalogue.open(path) as catalogue:
        catalogue.record_drill(Drill("r1", True, (), 60.0, datetime.now(UTC) + 26 * hour))
    assert told(look(27 * hour)) == [("over", "failed")]
    assert told(look(28 * hour)) == []


def check(path: Path, *, ago: timedelta, exit_status: int | None) -> None:
    at = datetime.now(UTC) - ago
    slot = Slot("nightly", Activity.CHECK, at, SlotState.STARTED, at)
    with Catalogue.open(path) as catalogue:
        assert catalogue.take_slot(slot)
        if exit_status is not None:
            catalogue.slot_ended(slot, exit_status=exit_status)


def test_a_gap_in_the_binlog_archive_is_told_again_each_day_until_a_backup_has_followed_it(
    path: Path, look: Look
) -> None:
    back_up(path, "r1")
    with Catalogue.open(path) as catalogue:
        catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the spool was full", datetime.now(UTC), AT))
    (began,) = look(timedelta(hours=1))
    assert began.text == "job nightly: the binlog archive has a gap since 2026-11-20 05:00 UTC: the spool was full"
    assert "severity: warning\ntype now: backupd run nightly\n" in body(began)
    assert told(look(timedelta(hours=2))) == []
    (again,) = look(timedelta(hours=26))
    assert again.text.startswith(f"{began.text} (seen for 25 h, since ")
    back_up(path, "r2")
    (over,) = look(timedelta(hours=27))
    assert (over.kind, over.detail["alarm"], over.subject) == (NoticeKind.OVER, "binlog-gap", began.subject)
    assert told(look(timedelta(hours=28))) == []
