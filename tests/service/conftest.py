"""A daemon over a catalogue as it is after a while, and a Prometheus that scrapes it: once for all tests."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.host.claims import Claims
from backupd.host.live_progress import LiveRuns, Progress
from backupd.vocabulary.binlogs import ArchiveGap
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.penalty import Counted, Losses
from backupd.vocabulary.records import Drill, DrilledMoment, Phase
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import CHAIN, FIRST
from tests.many_runs import make_catalogue
from tests.service.prometheus import Prometheus, eventually, prometheus

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-32-characters-or-more"
CONFIGURATION = """
[catalogue]
path = "{folder}/catalogue.sqlite"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[service]
zone = "UTC"
port = 0
token_file = "{folder}/token"
[hosts.db1]
socket = "/run/mysqld/mysqld.sock"
user = "backup"
[targets.vault]
type = "directory"
path = "{folder}"
[targets.offsite]
type = "directory"
path = "{folder}/not-mounted"
[jobs.nightly]
host = "db1"
targets = ["vault"]
every = "1461d"
drill_within = "9d"
schedules.backup.cron = "0 0 29 2 *"
schedules.drill.cron = "0 0 29 2 *"
[jobs.shop]
host = "db1"
targets = ["vault", "offsite"]
[jobs.shop.binlog]
spool = "{folder}/binlog"
[jobs.weekly]
host = "db1"
targets = ["vault"]
"""  # nothing is due for years, so that nothing is started


LOSSES = Losses(Counted.COMMITS, seconds=10.0, rate_before=10.0, rate_after=10.0, done=60, noise=1.0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration, the catalogue and the token of one machine."""
    made = tmp_path_factory.mktemp("machine")
    make_catalogue(made / "catalogue.sqlite", 400, jobs=2)
    now, free = datetime.now(UTC), shutil.disk_usage(made).free
    with Catalogue.open(made / "catalogue.sqlite") as catalogue:  # a target that fills
        for ago in range(16, 0, -1):
            catalogue.remember_rooms({"vault": free + (ago << 30)}, at=now - timedelta(days=ago))
        gap = ArchiveGap(CHAIN, "the log was reset", now, None)
        (newest,) = catalogue.runs(job="shop", limit=1)
        catalogue.record_drill(Drill(newest.run_id, True, (), 60.0, now, moment=DrilledMoment("GTID 0-1-7", now)))
        catalogue.archive_contact("shop", at=now, behind_bytes=1)
        catalogue.archive_gap("shop", gap)
        catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name, job="shop", received_at=now))
    (made / "backupd.toml").write_text(CONFIGURATION.format(folder=made))
    (made / "token").write_text(TOKEN)
    (made / "token").chmod(0o600)
    return made


@pytest.fixture(scope="session")
def daemon(folder: Path) -> Iterator[str]:
    """Where `backupd serve` shows its pages: HOST:PORT."""
    with serving(folder) as address:
        yield address


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A daemon for the length of the block.

    A run of job `nightly` is going on meanwhile: it lives in this process, and its snapshot fills. One of `shop` has
    just failed; whose binlog nobody else may archive.
    """
    log = folder / "daemon.log"
    command = [sys.executable, "-m", "backupd", "--config", str(folder / "backupd.toml"), "serve"]
    with Claims(folder / "run").archiving("shop"), log.open("wb") as told:
        process = subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            found = eventually(lambda: re.search(r"http://([0-9.]+:\d+)/", log.read_text()))
            assert found is not None
            with (
                Catalogue.open(folder / "catalogue.sqlite") as catalogue,
                catalogue.open_run("nightly", "db1", run_id="going-on") as run,
            ):
                now = time.time()
                LiveRuns(folder / "run").tell("going-on", Progress(Phase.COPY, now, now, cow_fill=0.25))
                fail_run(catalogue, "lost")
                yield found[1]
                run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
        finally:
            process.terminate()
            process.wait(60)


def fail_run(catalogue: Catalogue, run_id: str) -> None:
    """A run of `shop` fails that has cost the server something."""
    with suppress(ServerError), catalogue.open_run("shop", "db1", run_id=run_id) as lost:
        lost.losses(LOSSES)
        raise ServerError("the server went away")


@pytest.fixture(scope="session")
def scraped(daemon: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the daemon twice, as the documentation says to."""
    scraping = {
        "job_name": "backupd",
        "authorization": {"credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [daemon]}],
    }
    rules = ROOT / "configs" / "alerts.yml"
    with prometheus(tmp_path_factory.mktemp("prometheus"), scraping=scraping, rules=rules) as found:
        eventually(lambda: found.value("count_over_time(backupd_catalogue_up[1m])"), accept=lambda count: count >= 2)
        yield found
