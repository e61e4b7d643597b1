"""A daemon that is asked to drain ends once people know what became of its last runs."""

import os
import signal
import time
from pathlib import Path

from backupd.catalogue.schema import prepare
from backupd.cli.failure_answers import failure_answers
from backupd.config import CatalogueConfig, Configuration, HostConfig, PathsConfig, ServiceConfig
from backupd.service.daemon import DaemonSurroundings, serve
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import MORNING, NIGHTLY, job
from tests.story.test_daemon_full_disk import NIGHT
from tests.story.test_daemon_moved import Manager


class SlowMail:
    """A mail server that takes its time, as most do."""

    def __init__(self) -> None:
        self.told: list[Notice] = []

    def tell(self, notice: Notice) -> None:
        """It is told a second later."""
        time.sleep(1.0)
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

    def hear(_status: str) -> None:
        now[0] = NIGHT
        for process in launcher.processes.values():
            process.end(9)
            os.kill(os.getpid(), signal.SIGUSR1)

    given = DaemonSurroundings(
        load=lambda: configuration,
        launcher=launcher,
        notifier=lambda _configuration: mail,
        answers=failure_answers,
        web=None,
        new_run_id=lambda: "r1",
        notify=Manager(hear),
        now=lambda: now[0],
    )
    serve(configuration, given)
    assert [notice.kind for notice in mail.told] == [NoticeKind.FAILED]
