"""A daemon that lacks its catalogue or its port: people hear of it, and of its end.

Without the catalogue, what is due starts once that can be used again. Without the port all goes on but the pages.
"""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import CatalogueConfig, Configuration, HostConfig, PathsConfig, ServiceConfig
from backupd.notifications.words import title
from backupd.service.daemon import serve
from backupd.service.listening import WebProcess
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


def configured(folder: Path, *, port: int = 0) -> Configuration:
    """One job, which is due at night."""
    return Configuration(
        catalogue=CatalogueConfig(path=folder / "catalogue.sqlite"),
        paths=PathsConfig(run=folder / "run"),
        service=ServiceConfig(zone="UTC", port=port),
        hosts={"db1": HostConfig(name="db1")},
        jobs={"nightly": job("nightly", backup=NIGHTLY)},
    )


@pytest.mark.parametrize("at_start", [True, False])
def test_people_hear_that_the_catalogue_cannot_be_used_and_that_it_can_again(
    tmp_path: Path, at_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.service.trouble.PATIENCE_SECONDS", 0.0)
    configuration = configured(tmp_path)
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


def test_who_has_the_port_of_the_pages_keeps_no_backup_from_being_started_and_people_hear_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user of the machine can have it, in the moment in which a daemon is restarted."""
    monkeypatch.setattr("backupd.service.trouble.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("backupd.service.pages_process._LONGEST_PAUSE_SECONDS", 0.0)
    launcher, now, shown, said = FakeLauncher(), [MORNING], list[str](), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def hear(status: str) -> None:
            shown.append(status)
            now[0] = NIGHT
            if launcher.started:
                other.close()

        configuration, person = configured(tmp_path, port=port), Person(lambda: None)
        given = surroundings(configuration, hear, launcher=launcher, notifier=person, now=lambda: now[0])
        serve(configuration, replace(given, web=partial(WebProcess, say=said.append)))
    alarm, over = person.told
    assert [slot.due_at for slot in launcher.started] == [NIGHT]
    assert (alarm.kind, alarm.detail["severity"], over.kind) == (NoticeKind.ALARM, "warning", NoticeKind.OVER)
    assert alarm.text.startswith(f"there are no pages and no metrics: address 127.0.0.1:{port} is taken by another")
    assert title(alarm).endswith(": the web port has an alarm")
    assert shown[0].endswith(f"; no pages: address 127.0.0.1:{port} is taken by another program")
    assert said[0] == f"pages and metrics: http://127.0.0.1:{port}/"
