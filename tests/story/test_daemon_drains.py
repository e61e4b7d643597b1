"""A daemon that is asked to drain ends once people know what became of its last runs."""

import os
import signal
import threading
from pathlib import Path

from backupd.catalogue.schema import prepare
from backupd.config import CatalogueConfig, Configuration, HostConfig, PathsConfig, ServiceConfig
from backupd.service.daemon import serve
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import MORNING, NIGHTLY, job
from tests.story.serving import surroundings
from tests.story.test_daemon_full_disk import NIGHT


class SlowMail:
    """A mail server that takes its time, as most do: until the daemon says that it waits for that."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.waited_for = threading.Event()

    def tell(self, notice: Notice) -> None:
        """It is told once somebody waits for it."""
        assert self.waited_for.wait(60)
        self.told.append(notice)


def test_what_failed_last_is_told_before_a_daemon_that_drains_ends(tmp_path: Path) -> None:
    configuration = Configuration(
        catalogue=CatalogueConfig(path=tmp_path / "catalogue.sqlite"),
        paths=PathsConfig(run=tmp_path / "run"),
        service=ServiceConfig(zone="UTC"),
        hosts={"db1": HostConfig(name="db1")},
        jobs={"nightly": job("nightly", verify=NIGHTLY)},
    )
    prepare(configuration.catalogue.path)
    launcher, mail, now = FakeLauncher(), SlowMail(), [MORNING]

    def hear(status: str) -> None:
        now[0] = NIGHT
        if status.endswith("waiting for notifications"):
            mail.waited_for.set()
        for process in launcher.processes.values():
            process.end(9)
            os.kill(os.getpid(), signal.SIGUSR1)

    serve(configuration, surroundings(configuration, hear, launcher=launcher, notifier=mail, now=lambda: now[0]))
    assert [notice.kind for notice in mail.told] == [NoticeKind.FAILED]
