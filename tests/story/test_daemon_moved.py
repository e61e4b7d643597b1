"""A daemon whose machine is given another time zone: it goes by that one, as its pages do, and never ends of it."""

import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.catalogue.schema import prepare
from backupd.config import CatalogueConfig, Configuration, HostConfig, JobConfig, PathsConfig, ServiceConfig
from backupd.service.daemon import serve
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import NIGHTLY, job
from tests.story.serving import surroundings

MORNING = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on the machine goes by this zone."""
    monkeypatch.delenv("TZ", raising=False)
    return lambda zone: monkeypatch.setattr("backupd.service.timetables._linked", lambda localtime: zone)


def statuses(folder: Path, move: Callable[[int], None], *, looks: int, drill_within: float | None = None) -> list[str]:
    """What the daemon said at each of so many looks; before each the machine may be moved."""
    nightly: JobConfig = replace(job("nightly", backup=NIGHTLY), drill_within_seconds=drill_within)
    configuration = Configuration(
        catalogue=CatalogueConfig(path=folder / "catalogue.sqlite"),
        paths=PathsConfig(run=folder / "run"),
        service=ServiceConfig(),
        hosts={"db1": HostConfig(name="db1")},
        jobs={"nightly": nightly},
    )
    prepare(configuration.catalogue.path)
    heard: list[str] = []

    def hear(status: str) -> None:
        heard.append(status)
        if len(heard) == looks:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            move(len(heard))

    given = surroundings(configuration, hear, launcher=FakeLauncher(), now=lambda: MORNING)
    move(0)
    serve(configuration, given)
    return heard


def test_the_schedules_follow_the_machines_zone(tmp_path: Path, moved: Callable[[str], None]) -> None:
    said = statuses(tmp_path, lambda look: moved("Asia/Tokyo" if look else "Europe/Berlin"), looks=2)
    assert said == [
        "next: backup of nightly at 2026-11-22 02:00 UTC",
        "next: backup of nightly at 2026-11-21 18:00 UTC",
    ]


def test_a_zone_that_cannot_be_told_any_more_leaves_that_of_before_and_ends_nothing(
    tmp_path: Path, moved: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("backupd.service.reminders.EVERY_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING):
        said = statuses(tmp_path, lambda look: moved("Mars" if look else "Europe/Berlin"), looks=3, drill_within=86400)
    assert said == ["next: backup of nightly at 2026-11-22 02:00 UTC"] * 3
    assert '"Mars" is not an IANA time zone' in caplog.text
