"""What the pages say of a bench: that it goes on, what became of it, and nowhere that it is a backup."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape

import httpx
import pytest

from backupd.catalogue.store import Catalogue
from backupd.host.run_log import RunLogs
from backupd.service.site import Site
from backupd.vocabulary.errors import ProbeError
from backupd.vocabulary.records import RunKind
from tests.fakes.benched import a_bench
from tests.fakes.measured import measurement
from tests.web.conftest import configured, served, shown
from tests.web.test_pages import seen

DIES = """
import os, sys
from pathlib import Path
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.records import RunKind
with Catalogue.open(Path(sys.argv[1])) as catalogue, catalogue.open_run("", "", run_id="b0", kind=RunKind.BENCH):
    os._exit(0)
"""


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A site whose only runs are benches: one that died, one that is done, one that failed, and one at its probe."""
    folder = tmp_path_factory.mktemp("benches")
    logs = RunLogs(folder / "log").path("b1")
    logs.parent.mkdir()
    logs.write_text("04:00:00 INFO building linear\n")
    path = folder / "catalogue.sqlite"
    subprocess.run([sys.executable, "-c", DIES, str(path)], check=True)
    with Catalogue.open(path) as catalogue:
        with catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as run:
            run.attention("somebody else used the disks")
            run.benched(a_bench())
        with suppress(ProbeError), catalogue.open_run("", "", run_id="b2", kind=RunKind.BENCH):
            raise ProbeError("sysbench failed", hint="see the kernel's log")
        with (
            catalogue.open_run("", "", run_id="b3", kind=RunKind.BENCH) as bench,
            catalogue.open_run("", "", run_id="b3-1", kind=RunKind.PROBE) as probe,
        ):
            site = Site(configured(folder), catalogue, lambda: datetime.now(UTC))
            with served(shown(site)) as url, httpx.Client(base_url=url, timeout=20) as client:
                yield client
            probe.measured(measurement())
            bench.benched(a_bench())


def test_the_page_of_a_bench_has_what_became_of_it_and_its_log(benches: httpx.Client) -> None:
    words = seen(benches, "/runs/b1").words
    assert "attention bench of layouts, started" in words
    for said in ("somebody else used the disks", "Job none on host this one", "building linear"):
        assert said in unescape(words)
    assert "sysbench failed" in seen(benches, "/runs/b2").words
    for absent in ("Copies", "Drills", "Timeline"):
        assert absent not in words


def test_a_bench_that_goes_on_is_at_work_on_its_page_and_on_the_overview(benches: httpx.Client) -> None:
    assert "Running now: in progress" in seen(benches, "/runs/b3").words
    told = benches.get("/api/runs/b3/live").json()
    assert (told["status"], told["alive"], told["words"]) == ("running", True, "in progress")
    overview = seen(benches, "/")
    assert "Also running b3-1 probe, started" in overview.words
    assert "b3 bench, started" in overview.words
    assert {"/runs/b3", "/runs/b3-1"} <= set(overview.links)
    assert "/runs/b1" not in overview.links


def test_no_job_has_a_backup_or_an_alarm_because_of_a_bench(benches: httpx.Client) -> None:
    jobs = benches.get("/api/jobs").json()["jobs"]
    assert {(job["last_run"], job["last_good_run"], len(job["running"])) for job in jobs} == {(None, None, 0)}
    assert {alarm["text"] for job in jobs for alarm in job["alarms"]} == {"there is no good backup"}
    assert benches.get("/api/impact").json()["runs"] == []
    metrics = benches.get("/metrics").text
    assert 'backupd_running{backup_job="nightly"} 0.0' in metrics
    assert "b1" not in metrics


def test_the_history_says_which_runs_are_benches(benches: httpx.Client) -> None:
    words = seen(benches, "/history").words
    for run_id, what in (("b3-1", "probe"), ("b3", "bench"), ("b2", "bench"), ("b1", "bench"), ("b0", "bench")):
        assert f"{run_id} - {what}" in words
    listed = {run["run_id"]: run["kind"] for run in benches.get("/api/runs").json()["runs"]}
    assert listed == {"b0": "bench", "b1": "bench", "b2": "bench", "b3": "bench", "b3-1": "probe"}


def test_a_bench_whose_process_is_gone_is_said_to_be_so(benches: httpx.Client) -> None:
    assert "b0 the process of this bench has died : backupd recover cleans up" in seen(benches, "/").words
    assert "Its process has died" in seen(benches, "/runs/b0").words
    told = benches.get("/api/runs/b0/live").json()
    assert (told["status"], told["alive"]) == ("running", False)
