"""The daemon as a process: what it has started outlives it, and it outlives everything else."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from backupd.catalogue.store import Catalogue
from backupd.host.process import start_time
from backupd.policy.timetable import Timetable
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.schedule import Activity, Slot, SlotState

pytestmark = pytest.mark.thorough

Found = TypeVar("Found")

_SECONDS = 120.0  # patience with a busy machine
_AT_ONCE_SECONDS = 10.0  # the same; it is less than one where nothing else is at work


@dataclass(frozen=True)
class Site:
    """A machine's folder, with a job that was due a minute ago."""

    folder: Path
    catalogue: Catalogue
    configuration: Path

    @property
    def gate(self) -> Path:
        """Runs end when it is there."""
        return self.folder / "gate"

    def slot(self) -> Slot | None:
        """The only one there is."""
        found = self.catalogue.slots()
        assert len(found) < 2
        return found[0] if found else None

    def running(self) -> Slot | None:
        """The slot, once its run has its row."""
        slot = self.slot()
        return slot if slot is not None and slot.run_id in self.catalogue.unfinished() else None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The job's schedule has been gone by since yesterday, so that its slot of a minute ago is due."""
    now = datetime.now(UTC)
    due = now - timedelta(minutes=1)
    timetable = Timetable(f"{due.minute} {due.hour} * * *", "UTC")
    path = tmp_path / "backupd.toml"
    path.write_text(f"""
        [catalogue]
        path = "{tmp_path}/catalogue.sqlite"
        [paths]
        run = "{tmp_path}/run"
        staging = "{tmp_path}/staging"
        log = "{tmp_path}/log"
        [hosts.db1]
        socket = "{tmp_path}/none.sock"
        user = "backupd"
        [targets.vault]
        type = "directory"
        path = "{tmp_path}"
        [jobs.nightly]
        host = "db1"
        targets = ["vault"]
        [jobs.nightly.schedules.backup]
        cron = "{timetable.cron}"
        zone = "UTC"
    """)
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        catalogue.go_by({("nightly", Activity.BACKUP): timetable}, since=now - timedelta(hours=23))
        yield Site(tmp_path, catalogue, path)
        for run_id in catalogue.unfinished():  # whatever goes on still, ends; a dead one's pid may be another's by now
            pid, born = catalogue.process_of(run_id) or (0, 0)
            if pid and start_time(pid) == born:
                os.kill(pid, signal.SIGKILL)


@contextmanager
def serving(site: Site, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A daemon runs; it is killed at the end, if it has not ended."""
    argv = [sys.executable, "-m", "tests.fakes.daemon", str(site.configuration), str(site.gate)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        argv, cwd=root, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(look: Callable[[], Found | None]) -> Found:
    """What it finds, as soon as it finds something."""
    deadline = time.monotonic() + _SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.02)
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Its status, what it said, and how long it took."""
    began = time.monotonic()
    _, said = process.communicate(timeout=_SECONDS)
    return process.returncode, said, time.monotonic() - began


def test_a_daemon_that_is_killed_leaves_the_run_alive_and_the_next_one_sees_it_end(site: Site) -> None:
    with serving(site) as daemon:
        slot = until(site.running)
        daemon.kill()
        daemon.wait()
    pid, born = site.catalogue.process_of(slot.run_id) or (0, 0)
    assert start_time(pid) == born
    assert os.getsid(pid) == pid
    with serving(site) as daemon:
        assert daemon.stderr is not None
        assert any("watching it now" in line for line in iter(daemon.stderr.readline, ""))
        site.gate.touch()
        until(lambda: (now := site.slot()) and now.state is SlotState.ENDED)
        daemon.send_signal(signal.SIGTERM)
        status, said, _ = ended(daemon)
    assert (status, site.catalogue.run(slot.run_id).status) == (0, RunStatus.FAILED)
    assert f"ended with exit status {ExitStatus.SERVER}" in said
    assert site.slot() is not None
    assert (site.slot() or slot).exit_status == ExitStatus.SERVER


def test_sigterm_ends_the_daemon_at_once_and_not_the_run_and_systemd_is_told(site: Site) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"backupd-test-{os.getpid()}-{id(site)}"
        manager.bind(f"\0{address}")
        manager.settimeout(_SECONDS)
        with serving(site, NOTIFY_SOCKET=f"@{address}", WATCHDOG_USEC="3000000") as daemon:
            told = [manager.recv(4096).decode()]
            slot = until(site.running)
            while told[-1] != "STATUS=running: backup of nightly":
                told.append(manager.recv(4096).decode())
            assert told[0] == "READY=1"
            assert manager.recv(4096) == b"WATCHDOG=1"
            with serving(site) as second:
                status, said, _ = ended(second)
            assert status == 1  # `main` of the command line makes 4 of it
            assert "another `backupd serve`" in said
            site.configuration.write_text("[nonsense")
            daemon.send_signal(signal.SIGHUP)
            while not told[-1].startswith("RELOADING=1\nMONOTONIC_USEC="):
                told.append(manager.recv(4096).decode())
            daemon.send_signal(signal.SIGTERM)
            status, said, seconds = ended(daemon)
            while told[-1] != "STOPPING=1":
                told.append(manager.recv(4096).decode())
    assert status == 0
    assert seconds < _AT_ONCE_SECONDS
    assert "is not used, the old one stays in force: " in said
    assert (site.slot() or slot).state is SlotState.STARTED
    assert slot.run_id in site.catalogue.unfinished()
    environment = Path(f"/proc/{(site.catalogue.process_of(slot.run_id) or (0, 0))[0]}/environ").read_bytes()
    assert b"NOTIFY_SOCKET" not in environment
    assert b"BACKUPD_SLOT=nightly/backup/" in environment


def test_a_daemon_that_drains_ends_with_its_runs(site: Site) -> None:
    drain = [sys.executable, "-m", "backupd", "--config", str(site.configuration), "serve", "--drain"]
    with serving(site) as daemon:
        until(site.running)
        with subprocess.Popen(drain, stdout=subprocess.PIPE, text=True) as draining:
            assert daemon.stderr is not None
            assert any("waiting for backup of nightly" in line for line in iter(daemon.stderr.readline, ""))
            assert (daemon.poll(), draining.poll()) == (None, None)
            site.gate.touch()
            status, _, seconds = ended(daemon)
            said, _ = draining.communicate(timeout=_SECONDS)
    assert (status, draining.returncode, said) == (0, 0, "the daemon has ended\n")
    assert seconds < _AT_ONCE_SECONDS
    slot = site.slot()
    assert slot is not None
    assert slot.state is SlotState.ENDED
    done = subprocess.run(drain, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "no daemon is running\n")


@pytest.mark.exhaustive
def test_a_run_that_dies_is_written_down_and_the_daemon_goes_on(site: Site) -> None:
    with serving(site) as daemon:
        slot = until(site.running)
        os.kill((site.catalogue.process_of(slot.run_id) or (0, 0))[0], signal.SIGKILL)
        until(lambda: (now := site.slot()) and now.state is SlotState.ENDED)
        assert daemon.poll() is None
    assert (site.slot() or slot).exit_status == 128 + signal.SIGKILL


@pytest.mark.exhaustive
def test_a_locked_catalogue_is_waited_for(site: Site) -> None:
    with site.catalogue._engine.begin(), serving(site) as daemon:
        assert daemon.stderr is not None
        assert any("is locked by another process" in line for line in iter(daemon.stderr.readline, ""))
        assert daemon.poll() is None
    with serving(site):
        until(site.running)
