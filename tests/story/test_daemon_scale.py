"""A thousand jobs: soon begun, and idle while nothing is due."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.matrix

_JOBS = 1000
_IDLE_SECONDS = 25.0  # a beat of the clock is among them
_TICKS = 100  # of a second: proc(5), `utime` and `stime`


def configuration(folder: Path, jobs: int) -> Path:
    """Jobs with a schedule of its own hour and minute each; none is due within the next hour."""
    text = [
        f'[catalogue]\npath = "{folder}/catalogue.sqlite"',
        f'[paths]\nrun = "{folder}/run"\nstaging = "{folder}/staging"\nlog = "{folder}/log"',
        '[service]\nzone = "Europe/Berlin"\nport = 0',
        f'[hosts.db1]\nsocket = "{folder}/none.sock"\nuser = "backupd"',
        f'[targets.vault]\ntype = "directory"\npath = "{folder}"',
    ]
    hour = (datetime.now(UTC) + timedelta(hours=8)).hour
    for number in range(jobs):
        text += [
            f'[jobs.job-{number}]\nhost = "db1"\ntargets = ["vault"]\n[jobs.job-{number}.schedules.backup]',
            f'cron = "{number % 60} {(hour + number // 60 % 8) % 24} * * *"\nspread = "{number % 7}m"',
        ]
    path = folder / "backupd.toml"
    path.write_text("\n".join(text))
    return path


@contextmanager
def daemon(folder: Path, jobs: int) -> Iterator[subprocess.Popen[bytes]]:
    """One that is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = str(folder / "notify")
        manager.bind(address)
        manager.settimeout(60)
        argv = [sys.executable, "-m", "backupd", "--config", str(configuration(folder, jobs)), "serve", "--no-web"]
        with subprocess.Popen(argv, env={"NOTIFY_SOCKET": address, "PATH": "/usr/bin:/bin"}) as process:
            try:
                while not manager.recv(4096).startswith(b"STATUS=next"):
                    pass
                yield process
            finally:
                process.kill()


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What the process has used of a processor so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def started_cpu_seconds(folder: Path, jobs: int) -> float:
    """The least of three starts, until it is ready."""
    took = []
    for start in range(3):
        place = folder / f"{jobs}-{start}"
        place.mkdir()
        with daemon(place, jobs) as process:
            took.append(cpu_seconds(process))
    return min(took)


def test_a_thousand_jobs_are_scheduled_in_twice_the_time_of_one(tmp_path: Path) -> None:
    """1.7 times where nothing else runs; the margin is for what other work does to a processor's caches."""
    one, thousand = (started_cpu_seconds(tmp_path, jobs) for jobs in (1, _JOBS))
    assert thousand < 2.5 * one


def test_a_thousand_jobs_leave_the_processor_idle(tmp_path: Path) -> None:
    with daemon(tmp_path, _JOBS) as process:
        began, used = time.monotonic(), cpu_seconds(process)
        time.sleep(_IDLE_SECONDS)
        ratio = (cpu_seconds(process) - used) / (time.monotonic() - began)
    assert ratio < 0.01
