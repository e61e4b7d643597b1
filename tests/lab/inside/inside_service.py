"""The whole service in a machine of its own: the daemon, its schedule, its pages, Prometheus, and systemd over all.

That nothing is left, of the daemon as of its runs, is asked by the fixture `host`, after every test.
"""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.host.process import start_time
from tests.lab.inside.host import GATE_OFF, RUN_FOLDER, SITE, Changes, Host, catalogue_rows
from tests.lab.inside.units import SHIPPED, drop_in, install, logged, shown, systemctl
from tests.service.prometheus import Prometheus, prometheus

ADDRESS = "127.0.0.1:9476"
TOKEN = "open-sesame"
_TOKEN_FILE = Path("/run/lab-pages.token")
SLOW_COPY: Changes = {
    **GATE_OFF,
    "jobs.nightly.copy.max_rate": "2MiB",  # of 50: a busy machine is to see it on its way
    "service.zone": "UTC",
    "service.token_file": str(_TOKEN_FILE),
}
UNIT = "backupd.service"
_BEFORE_DUE_SECONDS = 15.0  # in which the daemon reads its configuration anew
_PATIENCE_SECONDS = 200.0
_LOOK_SECONDS = 0.5


@pytest.fixture(autouse=True)
def token() -> Iterator[None]:
    """It is where the configuration says."""
    _TOKEN_FILE.touch(mode=0o600)
    _TOKEN_FILE.write_text(TOKEN)
    yield
    _TOKEN_FILE.unlink()


def page(path: str) -> str:
    """What the daemon answers."""
    request = urllib.request.Request(f"http://{ADDRESS}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def live(run_id: str) -> dict[str, Any]:
    """How it gets on, as its page asks for it."""
    told: dict[str, Any] = json.loads(page(f"/api/runs/{run_id}/live"))
    return told


def targets_up() -> list[str]:
    """What the metrics say of each target that is a folder; nothing until they have been looked at."""
    return re.findall(r"^backupd_target_up\{.*\} (\S+)$", page("/metrics"), re.MULTILINE)


def answers() -> bool:
    """The daemon shows its pages. One that was killed may have taken the question, and answers no more."""
    try:
        return bool(page("/healthz"))
    except OSError:
        return False


def eventually(holds: Callable[[], bool]) -> None:
    """For what takes a minute or two, and what a page must be asked for: the copy has the lowest priority here."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(_LOOK_SECONDS)


def started_in_a_slot() -> str:
    """The run that the daemon has started last; empty where there is none."""
    found = catalogue_rows("SELECT run_id FROM slots WHERE state = 'started'")
    return str(found[0][0]) if found else ""


def slot_of(run_id: str) -> tuple[str, int | None]:
    """What became of the slot that it was started in."""
    [(state, status)] = catalogue_rows("SELECT state, exit_status FROM slots WHERE run_id = ?", run_id)
    return state, status


def status_of(run_id: str) -> str:
    """As the catalogue has it."""
    found = catalogue_rows("SELECT status FROM runs WHERE run_id = ?", run_id)
    return str(found[0][0]) if found else ""


def process_of(run_id: str) -> tuple[int, int]:
    """Pid and start of a run that is under way."""
    [(pid, born)] = catalogue_rows("SELECT pid, process_start FROM runs WHERE run_id = ?", run_id)
    return int(pid), int(born)


def alive(process: tuple[int, int]) -> bool:
    """Whether it is still there, and still the same."""
    return start_time(process[0]) == process[1]


def stand_still(process: tuple[int, int]) -> None:
    """It goes no further, however long daemons take to come and go, until `go_on`."""
    os.kill(process[0], signal.SIGSTOP)


def go_on(process: tuple[int, int]) -> None:
    """It has stood still all the time."""
    assert alive(process)
    os.kill(process[0], signal.SIGCONT)


def due_soon() -> Changes:
    """A schedule whose next time is the next full minute but one that is too near."""
    due = (datetime.now(UTC) + timedelta(seconds=60 + _BEFORE_DUE_SECONDS)).replace(second=0)
    return {**SLOW_COPY, "jobs.nightly.schedules.backup.cron": f"{due.minute} {due.hour} * * *"}


def started_by_schedule(host: Host, configuration: Path, reload: Callable[[], object]) -> str:
    """The daemon was told of a schedule, and has started the job when it was due: the run's id."""
    configuration.write_text(host.configured(due_soon()).read_text())
    reload()
    eventually(lambda: started_in_a_slot() != "")
    run_id = started_in_a_slot()
    eventually(lambda: status_of(run_id) == "running")
    eventually(lambda: (live(run_id)["share"] or 0) > 0)
    return run_id


@contextmanager
def daemon(configuration: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`backupd serve` as a person starts it, without systemd."""
    by_hand = {name: value for name, value in os.environ.items() if name != "INVOCATION_ID"}
    with subprocess.Popen(["backupd", "--config", str(configuration), "serve"], env=by_hand) as process:
        try:
            eventually(lambda: answers() or process.poll() is not None)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def series(scraped: Prometheus, expression: str) -> float | None:
    """The value of one series; None where there is none."""
    found = scraped.query(expression)
    return float(found[0]["value"][1]) if found else None


def test_a_scheduled_run_outlives_two_daemons_and_the_third_sees_it_end(host: Host, tmp_path: Path) -> None:
    configuration = tmp_path / "served.toml"
    configuration.write_text(host.configured(SLOW_COPY).read_text())
    known = {"credentials_file": str(_TOKEN_FILE)}
    scraping = {"job_name": "backupd", "authorization": known, "static_configs": [{"targets": [ADDRESS]}]}
    rules = SHIPPED.parent / "alerts.yml"
    # Where a scrape takes this machine's processor for longer than until the next one, nobody is answered any more.
    with prometheus(tmp_path, scraping=scraping, rules=rules, every="10s") as scraped:
        with daemon(configuration) as killed:
            run_id = started_by_schedule(host, configuration, lambda: killed.send_signal(signal.SIGHUP))
            run = process_of(run_id)
            stand_still(run)
            assert (live(run_id)["phase"], live(run_id)["alive"]) == ("copy", True)
            assert run_id in page("/")
            assert "Running now: " in page(f"/runs/{run_id}")
            eventually(lambda: series(scraped, 'backupd_running{backup_job="nightly"}') == 1)
            killed.kill()
        with daemon(configuration) as stopped:
            assert live(run_id)["alive"]
            stopped.terminate()
            assert stopped.wait(_PATIENCE_SECONDS) == 0
        with daemon(configuration) as last:
            go_on(run)
            eventually(lambda: slot_of(run_id) == ("ended", 0))
            assert live(run_id) == {**live(run_id), "status": "success", "alive": False}
            assert "Running now: " not in page(f"/runs/{run_id}")
            eventually(lambda: (series(scraped, "backupd_last_success_timestamp_seconds") or 0) > 0)
            assert series(scraped, 'backupd_running{backup_job="nightly"}') == 0
            last.terminate()
            assert last.wait(_PATIENCE_SECONDS) == 0
    assert not list((RUN_FOLDER / "live").iterdir())


@contextmanager
def under_systemd(host: Host) -> Iterator[Path]:
    """The shipped units over a configuration of our own where a package has it; its path. The watchdog waits less."""
    before = SITE.configuration.read_text()
    SITE.configuration.write_text(host.configured(SLOW_COPY).read_text())
    install()
    drop_in(UNIT, "watchdog", ["[Service]", "WatchdogSec=20"])
    systemctl("daemon-reload")
    try:
        yield SITE.configuration
    finally:
        systemctl("stop", UNIT)
        SITE.configuration.write_text(before)


def test_systemd_stops_the_daemon_and_kills_a_stuck_one_and_the_run_goes_on_in_a_unit_of_its_own(host: Host) -> None:
    with under_systemd(host) as configuration:
        systemctl("start", UNIT)
        assert answers(), "systemctl start returns when the daemon is ready"
        [pages] = Path(f"/proc/{shown(UNIT, 'MainPID')}/task/{shown(UNIT, 'MainPID')}/children").read_text().split()
        status = Path(f"/proc/{pages}/status").read_text()
        assert re.search(r"^Uid:(\s+65534){4}$", status, re.MULTILINE), "the lab has no account for them"
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        eventually(lambda: bool(targets_up()))
        assert set(targets_up()) == {"1.0"}, "its sandbox lets it write nowhere, and its runs may"
        sound = configuration.read_text()
        configuration.write_text(f"{sound}\n[jobs.nightly.retain]\n")
        systemctl("reload", UNIT, expect=1)
        assert "jobs.nightly.retain" in logged()
        configuration.write_text(sound)
        run_id = started_by_schedule(host, configuration, lambda: systemctl("reload", UNIT))
        run = process_of(run_id)
        stand_still(run)
        assert f"backupd-run-{run_id}.service" in Path(f"/proc/{run[0]}/cgroup").read_text()
        systemctl("stop", UNIT)
        assert not answers()
        systemctl("start", UNIT)
        stuck = int(shown(UNIT, "MainPID"))
        os.kill(stuck, signal.SIGSTOP)
        eventually(lambda: start_time(stuck) is None)
        go_on(run)
        eventually(lambda: slot_of(run_id) == ("ended", 0))
        assert (shown(UNIT, "NRestarts"), shown(UNIT, "ActiveState")) == ("1", "active")
        assert status_of(run_id) == "success"
        assert shown(f"backupd-run-{run_id}.service", "LoadState") == "not-found"
