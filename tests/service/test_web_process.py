"""The pages' process as it really runs: what it is, what it can do, and that nothing done to it reaches the daemon."""

import os
import pwd
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from backupd.catalogue.store import Catalogue
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.process import start_time
from backupd.policy.timetable import Timetable
from backupd.service.web.powerless import ACCOUNTS
from backupd.vocabulary.records import Phase, RunStatus
from backupd.vocabulary.schedule import Activity, SlotState
from tests.service.conftest import ROOT, TOKEN

Found = TypeVar("Found")

_SECONDS = 60.0  # patience with a busy machine
_STOP_SECONDS = 30.0  # that systemd has: TimeoutStopSec of backupd.service
_IDLE, _SLOW = 2000, 100
_ANSWERED_AGAIN_SECONDS = 10.0
_FEW = 64  # descriptors; the daemon has some thirty
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
socket = "{folder}/none.sock"
user = "backupd"
[notifications.chat]
type = "webhook"
url = "https://127.0.0.1:1/a-secret-room"
on = ["missed"]
[targets.vault]
type = "directory"
path = "{folder}"
[jobs.nightly]
host = "db1"
targets = ["vault"]
[jobs.nightly.schedules.backup]
cron = "{cron}"
"""


@dataclass
class Machine:
    """A daemon with pages, over a folder that is root's alone."""

    folder: Path
    catalogue: Catalogue
    process: "subprocess.Popen[bytes]"
    address: str = ""

    @property
    def pages(self) -> int:
        """The process that answers, once there is one."""
        return until(lambda: next(iter(self.children()), None))

    def children(self) -> list[int]:
        """Processes of pages that there are."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [pid for pid in map(int, found) if b"backupd.service.web" in cmdline(pid)]

    def get(self, path: str, *, token: str = TOKEN, seconds: float = _SECONDS) -> httpx.Response:
        """What the pages answer."""
        known = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"http://{self.address}{path}", headers=known, timeout=seconds)

    def connected(self) -> socket.socket:
        """One more visitor."""
        host, _, port = self.address.partition(":")
        return socket.create_connection((host, int(port)), timeout=_SECONDS)

    def is_listening(self) -> bool:
        """Somebody would answer."""
        try:
            with self.connected():
                return True
        except OSError:
            return False

    def said(self) -> str:
        """By the daemon and by the pages."""
        return (self.folder / "said").read_text()


def cmdline(pid: int) -> bytes:
    """What it was started with."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def until(look: Callable[[], Found | None], seconds: float = _SECONDS) -> Found:
    """What it finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.02)
    return found


def looker() -> pwd.struct_passwd:
    """Whom the pages' process of this machine is to be."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in ACCOUNTS if name in known)


@contextmanager
def served(folder: Path, *, due: datetime, descriptors: int = 1024) -> Iterator[Machine]:
    """A daemon whose job is due then; its runs end when there is a file `gate`. No process has more descriptors."""
    folder.chmod(0o700)
    timetable = Timetable(f"{due.minute} {due.hour} * * *", "UTC")
    (folder / "backupd.toml").write_text(CONFIGURATION.format(folder=folder, cron=timetable.cron))
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(TOKEN)
    program = [sys.executable, "-m", "tests.fakes.daemon", str(folder / "backupd.toml"), str(folder / "gate")]
    argv = ["prlimit", f"--nofile={descriptors}", *program]
    secret = {**os.environ, "DB1_PASSWORD": "a-password-of-the-environment"}
    with Catalogue.open(folder / "catalogue.sqlite") as catalogue, (folder / "said").open("wb") as said:
        catalogue.go_by({("nightly", Activity.BACKUP): timetable}, since=due - timedelta(hours=1))
        process = subprocess.Popen(argv, cwd=ROOT, env=secret, stdout=said, stderr=said)
        machine = Machine(folder, catalogue, process)
        try:
            found = until(lambda: re.search(r"http://([0-9.]+:\d+)/", machine.said()))
            machine.address = found[1]
            yield machine
        finally:
            (folder / "gate").touch()
            process.kill()
            process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Nothing is due for hours."""
    with served(tmp_path, due=datetime.now(UTC) + timedelta(hours=6)) as made:
        assert made.get("/").status_code == 200
        yield made


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# --- what it is ------------------------------------------------------------------------------------------------------


def test_the_pages_process_is_nobody_and_has_no_capability(machine: Machine) -> None:
    account, status = looker(), status_of(machine.pages)

    assert status["Uid"].split() == [str(account.pw_uid)] * 4
    assert status["Gid"].split() == [str(account.pw_gid)] * 4
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert account.pw_uid != 0
    assert Path(f"/proc/{machine.pages}/cwd").readlink() == Path("/")


def test_it_has_nothing_open_for_writing_but_sockets_and_where_it_complains(machine: Machine) -> None:
    writable = set()
    for descriptor in Path(f"/proc/{machine.pages}/fd").iterdir():
        with suppress(FileNotFoundError):
            info = Path(f"/proc/{machine.pages}/fdinfo/{descriptor.name}").read_text()
            found = re.search(r"^flags:\s*([0-7]+)", info, re.MULTILINE)
            if found is not None and int(found[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                writable.add(str(descriptor.readlink()).partition(":")[0])

    if os.geteuid() != 0:  # then it is the catalogue's owner, of whom SQLite has more
        writable -= {f"{machine.folder}/catalogue.sqlite-{part}" for part in ("wal", "shm")}
    assert writable == {"socket", "anon_inode", "/dev/null", str(machine.folder / "said")}


@pytest.mark.parametrize("name", ["catalogue.sqlite", "backupd.toml", "token", "run/live"])
def test_its_account_opens_none_of_our_files(machine: Machine, name: str) -> None:
    """Where it is an account of its own; whoever runs a daemon as themselves has pages as themselves."""
    account, path = looker(), machine.folder / name
    LiveRuns(machine.folder / "run").tell("r1", Progress(Phase.COPY, 1, 1))
    as_it = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    tried = subprocess.run(["test", "-e", str(path)], check=False, **as_it)  # type: ignore[call-overload]

    assert path.exists()
    assert tried.returncode == (1 if as_it else 0)


def test_neither_its_command_line_nor_its_environment_tells_a_secret(machine: Machine) -> None:
    environment = Path(f"/proc/{machine.pages}/environ").read_bytes()

    for secret in (TOKEN, "a-password-of-the-environment", "a-secret-room"):
        assert secret.encode() not in environment + cmdline(machine.pages)


def test_every_page_is_there_without_a_file_to_be_opened(machine: Machine) -> None:
    for path in (
        *("/", "/history", "/history?job=nightly&from=2026-01-01", "/schedule", "/targets", "/api", "/healthz"),
        *("/metrics", "/openapi.json", "/api/jobs", "/api/runs", "/api/impact?job=nightly", "/api/schedule"),
        *("/static/style.css", "/static/colours.css", "/static/plots.js", "/static/icon.svg"),
    ):
        answer = machine.get(path)
        assert answer.status_code == 200, (path, answer.text, machine.said())
        assert machine.get("/runs/nothing").status_code == 404


def test_what_is_recorded_and_told_meanwhile_is_seen_through_the_window(machine: Machine) -> None:
    (machine.folder / "log").mkdir(exist_ok=True)
    (machine.folder / "log" / "r1.log").write_text("what the run said\n")
    with suppress(RuntimeError), machine.catalogue.open_run("nightly", "db1", run_id="r1"):
        LiveRuns(machine.folder / "run").tell("r1", Progress(Phase.COPY, 1, 2, done=25, total=100))
        assert machine.get("/api/runs/r1/live").json()["share"] == 0.25
        assert "what the run said" in machine.get("/runs/r1").text
        raise RuntimeError
    assert machine.get("/api/runs/r1").json()["status"] == "failed"
    assert 'backupd_target_up{target="vault"} 1.0' in machine.get("/metrics").text


# --- what becomes of it, and not of the daemon -----------------------------------------------------------------------


def test_when_it_is_killed_another_one_answers(machine: Machine) -> None:
    for _ in range(2):
        killed = machine.pages
        os.kill(killed, signal.SIGKILL)
        until(lambda: killed not in machine.children())  # noqa: B023  # it is looked for at once
        assert machine.get("/").status_code == 200
    assert machine.process.poll() is None
    assert "the pages' process ended with status -9" in machine.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_the_daemon(machine: Machine, number: int) -> None:
    pid = machine.pages
    born = start_time(pid)
    machine.process.send_signal(number)
    machine.process.wait(_SECONDS)
    until(lambda: start_time(pid) != born)
    until(lambda: not machine.is_listening())  # its threads may end a moment later


def test_one_that_hangs_does_not_keep_the_daemon_from_ending(machine: Machine) -> None:
    pid = machine.pages
    os.kill(pid, signal.SIGSTOP)
    machine.process.terminate()
    assert machine.process.wait(_STOP_SECONDS) == 0
    until(lambda: start_time(pid) is None)


def test_a_new_configuration_is_shown_and_nobody_is_refused_meanwhile(machine: Machine) -> None:
    path, before = machine.folder / "backupd.toml", machine.pages
    path.write_text(f'{path.read_text()}\n[jobs.another]\nhost = "db1"\ntargets = ["vault"]\n')
    machine.process.send_signal(signal.SIGHUP)
    until(lambda: "another" in machine.get("/").text)
    until(lambda: machine.children() != [] and before not in machine.children())
    assert machine.get("/healthz").text == "ok\n"
    assert "ended with status" not in machine.said()


def test_without_descriptors_it_refuses_a_visitor_and_goes_on(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=6)
    with served(tmp_path, due=later, descriptors=48) as machine, ExitStack() as held:
        assert machine.get("/").status_code == 200
        pid = machine.pages
        visitors = [held.enter_context(machine.connected()) for _ in range(60)]
        until(lambda: "out of system resource" in machine.said())
        for visitor in visitors:
            visitor.close()
        assert machine.get("/", seconds=_ANSWERED_AGAIN_SECONDS).status_code == 200
        assert machine.pages == pid
        assert machine.said().count("out of system resource") == 1


@pytest.mark.timeout(180)
@pytest.mark.parametrize("held_seconds", [15.0, pytest.param(60.0, marks=pytest.mark.matrix)])
def test_two_thousand_connections_and_a_hundred_slow_heads_cost_no_run_and_no_daemon(
    tmp_path: Path, held_seconds: float
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    (tmp_path / "gate").write_text("good")
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        catalogue.pause("nightly", "until there are visitors")
    with ExitStack() as held, served(tmp_path, due=datetime.now(UTC) - timedelta(minutes=1)) as machine:
        idle = [held.enter_context(machine.connected()) for _ in range(_IDLE)]
        slow = [held.enter_context(machine.connected()) for _ in range(_SLOW)]
        machine.catalogue.resume("nightly")
        over = time.monotonic() + held_seconds
        while time.monotonic() < over:
            for number, visitor in enumerate(slow):
                try:
                    visitor.sendall(b"G")
                except OSError:  # it has been ended, and comes again
                    slow[number] = held.enter_context(machine.connected())
            assert len(list(Path(f"/proc/{machine.process.pid}/fd").iterdir())) < _FEW
            time.sleep(1)
        began = time.monotonic()
        assert machine.get("/", seconds=_ANSWERED_AGAIN_SECONDS).status_code == 200
        assert time.monotonic() - began < _ANSWERED_AGAIN_SECONDS
        assert len(idle) == _IDLE
        until(lambda: [slot.state for slot in machine.catalogue.slots()] == [SlotState.ENDED])
        (slot,) = machine.catalogue.slots()
        assert (slot.exit_status, machine.catalogue.run(slot.run_id).status) == (0, RunStatus.SUCCESS)
        assert machine.process.poll() is None
