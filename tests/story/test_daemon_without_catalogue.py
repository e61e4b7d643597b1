"""A daemon whose catalogue cannot be used: people hear of it, and what is due starts once it can be used again."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import CatalogueConfig, Configuration, HostConfig, PathsConfig, ServiceConfig
from backupd.service.daemon import serve
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import MORNING, NIGHTLY, job
from tests.story.serving import surroundings
from tests.story.test_daemon_full_disk import NIGHT


class Person:
    """Who ends what is in the way when told of it."""

    def __init__(self, unlock: Callable[[], None]) -> None:
        self.told: list[Notice] = []
        self._unlock = unlock

    def tell(self, notice: Notice) -> None:
        """The daemon is ended once all is well."""
        self.told.append(notice)
        if notice.kind is NoticeKind.OVER:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._unlock()


@pytest.mark.parametrize("at_start", [True, False])
def test_people_hear_that_the_catalogue_cannot_be_used_and_that_it_can_again(
    tmp_path: Path, at_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.service.catalogue_trouble.PATIENCE_SECONDS", 0.0)
    configuration = Configuration(
        catalogue=CatalogueConfig(path=tmp_path / "catalogue.sqlite"),
        paths=PathsConfig(run=tmp_path / "run"),
        service=ServiceConfig(zone="UTC"),
        hosts={"db1": HostConfig(name="db1")},
        jobs={"nightly": job("nightly", backup=NIGHTLY)},
    )
    launcher, now = FakeLauncher(), [MORNING]
    with Catalogue.open(configuration.catalogue.path) as other, ExitStack() as locked:

        def lock() -> None:
            locked.enter_context(other._engine.begin())
            now[0] = NIGHT

        def hear(_status: str) -> None:
            if now[0] == MORNING:
                lock()

        person = Person(locked.close)
        if at_start:
            lock()
        given = surroundings(configuration, hear, launcher=launcher, notifier=person, now=lambda: now[0])
        serve(configuration, given)
    alarm, over = person.told
    assert (alarm.kind, over.kind) == (NoticeKind.ALARM, NoticeKind.OVER)
    assert "is locked by another process" in alarm.text
    assert [slot.due_at for slot in launcher.started] == ([] if at_start else [NIGHT])
