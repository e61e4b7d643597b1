"""A host in a fleet: what is due is left to the fleet while its control host is there, and else starts by itself."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.vocabulary.schedule import NoticeKind, SlotState
from tests.story.daemon_world import HOURLY, NIGHTLY, Machine, job, machine

LEFT, STARTED, MISSED = SlotState.LEFT, SlotState.STARTED, SlotState.MISSED
NIGHT, DAY = datetime(2026, 11, 22, 3, tzinfo=UTC), timedelta(days=1)
IN_FLEET = replace(NIGHTLY, fallback_after_seconds=36 * 3600.0)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        made.start(job("nightly", backup=IN_FLEET))
        yield made


def asked(host: Machine, at: datetime) -> None:
    host.catalogue.control_host_asked(["nightly"], at=at, backupd="0.9")


def test_what_is_due_is_left_to_the_fleet_while_its_control_host_is_there(host: Machine) -> None:
    for day in range(3):
        asked(host, NIGHT + day * DAY - timedelta(minutes=5))
        host.at(NIGHT + day * DAY)
    assert host.slots() == [(NIGHT + day * DAY, LEFT) for day in range(3)]
    assert host.newest().reason == (
        "left to the fleet, whose control host last asked this host for this job at 2026-11-24 02:55 UTC"
    )
    assert host.launcher.started == []
    assert host.told == []


def test_a_host_whose_control_host_is_away_for_longer_goes_on_alone_and_says_so_once(host: Machine) -> None:
    asked(host, NIGHT - timedelta(hours=1))
    for day in range(4):
        host.at(NIGHT + day * DAY)
        if day > 1:
            host.fail_run(f"r{day - 1}")
            host.process().end(0)
    assert host.slots() == [
        *((NIGHT, LEFT), (NIGHT + DAY, LEFT)),
        *((NIGHT + 2 * DAY, SlotState.ENDED), (NIGHT + 3 * DAY, STARTED)),
    ]
    (notice,) = [one for one in host.told if one.kind is NoticeKind.ATTENTION]
    assert notice.text == (
        "job nightly: this host starts backups itself: the fleet's control host last asked it for this job at"
        " 2026-11-22 02:00 UTC, over 36h ago"
    )
    assert host.newest().reason == notice.text.removeprefix("job nightly: ")


def test_when_the_control_host_is_back_backups_are_the_fleets_again(host: Machine) -> None:
    host.at(NIGHT)
    assert "no control host has ever contacted this host" in host.newest().reason
    host.fail_run("r1")
    host.process().end(0)
    asked(host, NIGHT + timedelta(hours=5))
    host.at(NIGHT + DAY)
    assert host.slots()[-1] == (NIGHT + DAY, LEFT)


def test_slots_that_passed_while_no_daemon_ran_are_left_and_not_missed(host: Machine) -> None:
    asked(host, NIGHT + 2 * DAY + timedelta(hours=20))
    host.now = NIGHT + 3 * DAY - timedelta(hours=1)
    host.start()
    assert host.slots() == [(NIGHT + day * DAY, LEFT) for day in range(3)]
    assert host.told == []


def test_a_daemon_that_is_started_anew_does_not_take_up_what_was_left(host: Machine) -> None:
    asked(host, NIGHT - timedelta(hours=35, minutes=50))
    host.at(NIGHT)
    host.now = NIGHT + timedelta(hours=1)  # by now the control host has been away for too long
    host.start()
    assert host.slots() == [(NIGHT, LEFT)]
    assert host.launcher.started == []


def test_a_job_that_the_control_host_does_not_see_to_is_never_left(host: Machine) -> None:
    host.schedule(job("nightly", backup=IN_FLEET), job("weekly", host="db2", backup=IN_FLEET))
    asked(host, NIGHT - timedelta(minutes=5))
    host.at(NIGHT)
    assert host.newest("nightly").state is LEFT
    assert host.newest("weekly").state is STARTED


def test_a_job_without_a_fallback_goes_by_its_own_schedule_whoever_asks(host: Machine) -> None:
    host.schedule(job("nightly", backup=IN_FLEET), job("hourly", host="db2", backup=HOURLY))
    asked(host, NIGHT)
    host.at(NIGHT)
    assert host.newest("nightly").state is LEFT
    assert host.newest("hourly").state is STARTED
    assert host.newest("hourly").reason == ""
