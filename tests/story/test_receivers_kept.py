"""`backupd serve` keeps the archive of a job's binlog at work: over a real server, a folder, and whatever ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from backupd.catalogue.schema import prepare
from backupd.config import BinlogConfig, CatalogueConfig, Configuration, PathsConfig, ServiceConfig
from backupd.host.claims import Claims
from backupd.service.daemon import serve
from tests.contract.mariadb import MariadbServer, mysql_server  # noqa: F401 - a fixture
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import job
from tests.story.serving import surroundings

ROOT = Path(__file__).parents[2]
Found = TypeVar("Found")
_SECONDS = 120.0  # patience with a busy machine


def until(look: Callable[[], Found | None]) -> Found:
    """What it finds, as soon as it finds something."""
    deadline = time.monotonic() + _SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.05)
    return found


class Archived:
    """A machine with one job, whose binlog is archived."""

    def __init__(self, folder: Path, server: MariadbServer) -> None:
        self.folder, self.server = folder, server
        self.claims = Claims(folder / "run")
        self.path = folder / "backupd.toml"
        self.configure()

    def configure(self, *, archive: str = '[jobs.nightly.binlog]\nsegment_age = "1s"') -> None:
        """The configuration is this."""
        spool = f'spool = "{self.folder}/spool"' if archive else ""
        self.path.write_text(f"""
            [catalogue]
            path = "{self.folder}/catalogue.sqlite"
            [paths]
            run = "{self.folder}/run"
            staging = "{self.folder}/staging"
            log = "{self.folder}/log"
            [hosts.db1]
            socket = "{self.server.socket}"
            user = "root"
            [targets.vault]
            type = "directory"
            path = "{self.folder}/vault"
            [jobs.nightly]
            host = "db1"
            targets = ["vault"]
            {archive}
            {spool}
        """)

    def receiver(self) -> int | None:
        """The process that archives now."""
        return self.claims.archivers().get("nightly")

    def another(self, than: int) -> int:
        """The next one's."""
        return until(lambda: (now := self.receiver()) and (now if now != than else None))

    def stored(self) -> list[dict[str, object]]:
        """The descriptions of what is on the target, as the chain goes."""
        found = sorted((self.folder / "vault").rglob("*.binlog"))
        return [json.loads(file.open("rb").readline()) for file in found]

    def execute(self, statement: str) -> None:
        """Something for its binlog."""
        with self.server.session() as root:
            root.execute(statement)

    def begun(self) -> bool:
        """There is a chain: whatever is written from now on has to be in it. Before, it begins where the server is."""
        self.execute("INSERT INTO t.innodb (v) VALUES ('three')")
        return bool(self.stored())

    def backupd(self, *words: str) -> list[str]:
        """A command line."""
        return [sys.executable, "-m", "backupd", "--config", str(self.path), *words]

    @contextmanager
    def serving(self) -> Iterator["subprocess.Popen[bytes]"]:
        """A daemon runs; it is killed at the end, if it has not ended."""
        with subprocess.Popen(self.backupd("serve", "--no-web"), cwd=ROOT) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def archived(tmp_path: Path, mysql_server: MariadbServer) -> Iterator[Archived]:  # noqa: F811
    (tmp_path / "vault").mkdir()
    made = Archived(tmp_path, mysql_server)
    yield made
    made.execute("DROP TABLE IF EXISTS t.last_of_all")
    if (pid := made.receiver()) is not None:
        os.kill(pid, signal.SIGKILL)


def test_the_daemon_starts_one_for_each_job_with_an_archive_and_asks_for_it_again_after_a_reload(
    tmp_path: Path,
) -> None:
    archived = replace(job("nightly"), binlog=BinlogConfig())
    before = Configuration(
        catalogue=CatalogueConfig(path=tmp_path / "catalogue.sqlite"),
        paths=PathsConfig(run=tmp_path / "run"),
        service=ServiceConfig(zone="UTC"),
        jobs={"nightly": archived, "plain": job("plain")},
    )
    after = replace(before, jobs={**before.jobs, "plain": replace(archived, name="plain")})
    prepare(before.catalogue.path)
    launcher, looks = FakeLauncher(), [0]

    def hear(_status: str) -> None:
        looks[0] += 1
        if looks[0] == 1:
            assert set(launcher.receivers) == {"nightly"}
        os.kill(os.getpid(), signal.SIGTERM if looks[0] == 3 else signal.SIGHUP)

    serve(before, surroundings(after, hear, launcher=launcher))
    assert {name: len(begun) for name, begun in launcher.receivers.items()} == {"nightly": 1, "plain": 1}


def test_a_receiver_is_replaced_when_it_dies_or_its_settings_change_and_outlives_the_daemon(
    archived: Archived,
) -> None:
    with archived.serving() as daemon:
        first = until(archived.receiver)
        until(archived.begun)
        os.kill(first, signal.SIGKILL)
        second = archived.another(first)
        daemon.kill()
        daemon.wait()
    assert archived.receiver() == second
    archived.configure(archive='[jobs.nightly.binlog]\nsegment_age = "2s"')
    with archived.serving() as daemon:  # the change came while there was no daemon
        third = archived.another(second)
        archived.configure()
        daemon.send_signal(signal.SIGHUP)
        archived.another(third)
        archived.execute("CREATE TABLE t.last_of_all (id INT)")
        until(lambda: any("last_of_all" in json.dumps(each) for each in archived.stored()))
        drained = subprocess.run(archived.backupd("serve", "--drain"), cwd=ROOT, timeout=_SECONDS, check=False)
        assert (drained.returncode, daemon.wait(_SECONDS)) == (0, 0)
    assert archived.receiver() is None
    chain = archived.stored()
    assert len({each["chain"] for each in chain}) == 1
    assert len(chain) > 1
    assert all(before["end"] == after["start"] for before, after in pairwise(chain))
