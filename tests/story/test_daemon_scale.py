"""A thousand jobs: soon begun, and idle while nothing is due."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

_JOBS = 1000
_IDLE_SECONDS = 25.0  # a beat of the clock is among them
_TICKS = 100  # of a second: proc(5), `utime` and `stime`


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand jobs, each with a schedule of its own hour and minute; none is due within the next hour."""
    folder = tmp_path_factory.mktemp("thousand")
    text = [
        f'[catalogue]\npath = "{folder}/catalogue.sqlite"',
        f'[paths]\nrun = "{folder}/run"\nstaging = "{folder}/staging"\nlog = "{folder}/log"',
        '[service]\nzone = "Europe/Berlin"\nport = 0',
        f'[hosts.db1]\nsocket = "{folder}/none.sock"\nuser = "backupd"',
        f'[targets.vault]\ntype = "directory"\npath = "{folder}"',
    ]
    hour = (datetime.now(UTC) + timedelta(hours=8)).hour
    for number in range(_JOBS):
        text += [
            f'[jobs.job-{number}]\nhost = "db1"\ntargets = ["vault"]\n[jobs.job-{number}.schedules.backup]',
            f'cron = "{number % 60} {(hour + number // 60 % 8) % 24} * * *"\nspread = "{number % 7}m"',
        ]
    path = folder / "backupd.toml"
    path.write_text("\n".join(text))
    return path


@pytest.fixture(scope="module")
def daemon(configuration: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """One that is ready, and the seconds of processor time that it took until then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = str(configuration.parent / "notify")
        manager.bind(address)
        manager.settimeout(60)
        argv = [sys.executable, "-m", "backupd", "--config", str(configuration), "serve", "--no-web"]
        with subprocess.Popen(argv, env={"NOTIFY_SOCKET": address, "PATH": "/usr/bin:/bin"}) as process:
            try:
                while not manager.recv(4096).startswith(b"STATUS=next"):
                    pass
                yield process, cpu_seconds(process)
            finally:
                process.kill()


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What the process has used of a processor so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def test_a_thousand_jobs_are_scheduled_within_two_seconds(daemon: tuple[subprocess.Popen[bytes], float]) -> None:
    """Of processor time: what else the machine does is not backupd's. It includes what every command takes to load."""
    assert daemon[1] < 2.0


def test_a_thousand_jobs_leave_the_processor_idle(daemon: tuple[subprocess.Popen[bytes], float]) -> None:
    process, _ = daemon
    began, used = time.monotonic(), cpu_seconds(process)
    time.sleep(_IDLE_SECONDS)
    ratio = (cpu_seconds(process) - used) / (time.monotonic() - began)
    assert ratio < 0.01
