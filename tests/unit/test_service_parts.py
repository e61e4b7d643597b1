"""The daemon's small parts: what systemd is told, what wakes the loop, and the command lines of what is started."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.host.claims import Claims
from backupd.host.launching import unit_argv
from backupd.host.process import is_alive, start_time
from backupd.policy.timetable import Timetable
from backupd.service.clock import Clock
from backupd.service.launch import Detached, FoundChild, OurChild, arguments, ourselves
from backupd.service.notification_thread import told_by_a_thread
from backupd.service.systemd import Notify
from backupd.service.wakeup import Bell, signals
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, Slot, SlotState

DUE = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


def slot(activity: Activity = Activity.BACKUP, run_id: str = "") -> Slot:
    """One of job `nightly`."""
    return Slot("nightly", activity, DUE, SlotState.STARTED, DUE, run_id)


# --- systemd ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["abstract", "in the file system"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and how the environment names it."""
    named = f"@backupd-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(named.replace("@", "\0"))
        listening.settimeout(5)
        yield listening, named


def test_systemd_is_told_in_its_own_words(manager: tuple[socket.socket, str]) -> None:
    listening, named = manager
    notify = Notify({"NOTIFY_SOCKET": named, "WATCHDOG_USEC": "60000000"})
    notify.ready()
    notify.status("next: nightly\nSTOPPING=1")  # a job's name cannot hold a line's end; a message must not either
    notify.status("next: nightly\nSTOPPING=1")
    notify.alive()
    notify.reloading()
    notify.stopping()
    told = [listening.recv(200).decode() for _ in range(5)]
    assert told[:3] == ["READY=1", "STATUS=next: nightly\\nSTOPPING=1", "WATCHDOG=1"]
    assert told[3].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert told[4] == "STOPPING=1"
    assert notify.watchdog_seconds == 60


def test_without_systemd_nothing_is_told_and_nothing_breaks(tmp_path: Path) -> None:
    Notify({}).ready()
    Notify({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert Notify({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watchdog_seconds == 0  # another process's


# --- bell and clock --------------------------------------------------------------------------------------------------


def test_a_bell_that_rang_before_the_wait_ends_it_at_once_and_rings_once() -> None:
    bell = Bell()
    for _ in range(1_000):
        bell.ring()
    began = time.monotonic()
    bell.wait(60)
    assert time.monotonic() - began < 40
    bell.wait(0.05)
    assert time.monotonic() - began >= 0.05
    bell.close()
    bell.ring()


def test_signals_are_flags_that_wake_the_loop_and_go_with_the_block() -> None:
    bell, before = Bell(), signal.getsignal(signal.SIGHUP)
    with signals(bell) as asked:
        os.kill(os.getpid(), signal.SIGHUP)
        bell.wait(60)
        assert (asked.stop, asked.reload) == (False, True)
        os.kill(os.getpid(), signal.SIGTERM)
        bell.wait(60)
        assert asked.stop
    assert signal.getsignal(signal.SIGHUP) is before
    bell.close()


def test_a_signal_that_another_thread_was_given_wakes_the_loop_too() -> None:
    """As the kernel does where the first thread has one to deal with already: no system call of its is interrupted."""
    bell, over = Bell(), threading.Event()
    other = threading.Thread(target=over.wait, args=(90,))
    other.start()
    with signals(bell) as asked:
        began = time.monotonic()
        threading.Timer(0.2, signal.pthread_kill, (other.ident, signal.SIGTERM)).start()
        bell.wait(60)
        assert (asked.stop, time.monotonic() - began < 40) == (True, True)
    over.set()
    other.join()
    bell.close()


def test_the_clock_rings_when_something_is_due_and_is_silent_once_it_is_stopped() -> None:
    rung = threading.Event()
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    clock = Clock(rung.set)
    clock.start()
    offset = (soon - soon.replace(second=0, microsecond=0)).total_seconds()
    clock.go_by([Timetable("* * * * *", "UTC", offset)] * 3)
    assert rung.wait(90)  # at once, or a minute later where the clock was set too late
    assert datetime.now(UTC) >= soon
    assert clock.alive
    clock.stop()


# --- what is started -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activity", "typed"),
    [
        (Activity.BACKUP, "run nightly --run-id r1"),
        (Activity.PROBE, "probe nightly --run-id r1"),
        (Activity.DRILL, "drill --job nightly"),
        (Activity.VERIFY, "verify --job nightly"),
        (Activity.PRUNE, "prune nightly"),
        (Activity.CHECK, "check nightly --notify"),
    ],
)
def test_what_is_started_is_what_a_person_would_type(activity: Activity, typed: str) -> None:
    assert " ".join(arguments(slot(activity, "r1"))) == typed


def test_a_transient_unit_is_waited_for_marked_and_forgotten() -> None:
    argv = unit_argv("r1", "BACKUPD_SLOT=nightly/backup/now", ["backupd", "run", "nightly"])
    assert argv[: argv.index("--")] == [
        *("systemd-run", "--quiet", "--collect", "--wait", "--unit=backupd-run-r1"),
        *("--description=backupd r1", "--setenv=BACKUPD_SLOT=nightly/backup/now"),
    ]
    assert argv[argv.index("--") + 1 :] == ["backupd", "run", "nightly"]


def test_a_detached_child_has_a_session_and_a_file_of_its_own_and_is_found_by_its_mark(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo said; while [ ! -e {gate} ]; do sleep 0.02; done; exit 7"
    child = Detached(("sh", "-c", script), tmp_path / "log").start(slot(run_id="r1"))
    found = Detached((), tmp_path).find(slot(run_id="r1"))
    assert isinstance(child, OurChild)
    assert os.getsid(child.process.pid) == child.process.pid
    file = tmp_path / "log" / "r1.out.log"
    while not file.read_text():  # the kernel shows no environment until a program has really begun
        assert child.process.poll() is None
        time.sleep(0.01)
    assert (child.ended(), found.ended(), child.exit_status) == (False, False, None)
    gate.touch()
    child.process.wait(60)
    assert (child.ended(), found.ended(), child.exit_status, found.exit_status) == (True, True, 7, None)
    assert file.read_text() == "said\n"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_child_that_a_signal_has_killed_ends_as_a_shell_tells_it(tmp_path: Path) -> None:
    child = Detached(("sh", "-c", "kill -9 $$"), tmp_path).start(slot())
    assert isinstance(child, OurChild)
    child.process.wait(60)
    assert child.exit_status == 137


def test_where_the_log_folder_cannot_be_written_the_work_is_done_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    child = Detached(("sh", "-c", "exit 0"), tmp_path / "file" / "log").start(slot())
    assert isinstance(child, OurChild)
    assert child.process.wait(60) == 0


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="program not found"):
        Detached(("/nowhere/backupd",), tmp_path).start(slot())


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "backupd").touch(0o644)
    with pytest.raises(CommandError, match="backupd cannot be started: permission denied"):
        Detached((str(tmp_path / "backupd"),), tmp_path).start(slot())


def test_a_mark_that_nobody_bears_has_ended() -> None:
    assert FoundChild("no/such/slot").ended()


# --- claims that are only looked at ----------------------------------------------------------------------------------


def test_looking_at_a_claim_tells_its_holder_and_claims_nothing(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    assert claims.holder_of_job("nightly") is None
    with claims.job("nightly", "r1"), claims.volume_group("vg0", "r1"):
        assert (claims.holder_of_job("nightly") or "").startswith("run r1 of job nightly")
        assert (claims.holder_of_volume_group("vg0") or "").startswith("run r1 (process")
        assert claims.holder_of_volume_group("vg1") is None
    assert claims.holder_of_job("nightly") is None  # the file is still there


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from backupd.host.claims import Claims\n"
    script += "with Claims(Path(sys.argv[1])).job('nightly', 'r1'): os._exit(1)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / "lock" / "job-nightly.lock").read_text()
    assert Claims(tmp_path).holder_of_job("nightly") is None


# --- telling ---------------------------------------------------------------------------------------------------------


def test_telling_keeps_nobody_waiting_and_keeps_the_order() -> None:
    told: list[str] = []
    go_on = threading.Event()

    class Slow:
        def tell(self, notice: Notice) -> None:
            assert go_on.wait(60)
            told.append(notice.text)

    with told_by_a_thread(Slow()) as tell:
        for text in ("first", "second"):
            tell(Notice(NoticeKind.MISSED, "nightly", DUE, text, text))
        assert told == []
        go_on.set()
    assert told == ["first", "second"]


def test_what_lies_in_the_folder_that_the_daemon_was_started_in_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in ("backupd", "typer", "json"):
        (planted / f"{name}.py").write_text(f"open({str(tmp_path / 'witness')!r}, 'w').close()\n")
    monkeypatch.chdir(planted)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    child = Detached(ourselves(tmp_path / "none.toml"), tmp_path / "log").start(slot(run_id="r1"))
    assert isinstance(child, OurChild)
    child.process.wait(60)
    said = (tmp_path / "log" / "r1.out.log").read_text()
    assert "none.toml" in said, said
    assert not (tmp_path / "witness").exists()


def test_what_is_started_works_in_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    child = Detached(("sh", "-c", "pwd"), tmp_path / "log").start(slot(run_id="r1"))
    assert isinstance(child, OurChild)
    child.process.wait(60)
    assert (tmp_path / "log" / "r1.out.log").read_text() == "/\n"


def test_a_link_in_the_place_of_what_is_printed_is_not_written_through(tmp_path: Path) -> None:
    precious, log = tmp_path / "precious", tmp_path / "log"
    precious.write_text("root's\n")
    log.mkdir()
    (log / "r1.out.log").symlink_to(precious)
    child = Detached(("sh", "-c", "echo said"), log).start(slot(run_id="r1"))
    assert isinstance(child, OurChild)
    assert child.process.wait(60) == 0
    assert precious.read_text() == "root's\n"


def test_a_process_of_somebody_else_s_is_no_run_of_ours() -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "sh", "-c", "echo; exec sleep 60"]
    for prefix, ours in ((as_nobody[:-3], False), ([], True)):
        with subprocess.Popen([*prefix, *as_nobody[-3:]], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            found = is_alive((process.pid, start_time(process.pid) or 0))
            process.kill()
        assert found is ours
