"""The one door to other programs: deadlines, groups, and children that die with us."""

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.host import process as programs
from backupd.host.ended_children import has_ended
from backupd.host.marked_processes import marked
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled, CatalogueError, CommandError, HostExhausted
from tests.fakes.ledger import Ledger
from tests.processes import children


def gone(pid: int, *, within_seconds: float = 20.0) -> bool:
    """Whether a process ends in time; a zombie has ended."""
    deadline = time.monotonic() + within_seconds
    while programs.start_time(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_a_program_prints_comes_back_as_text() -> None:
    done = programs.run(["sh", "-c", "echo out; echo err >&2"], timeout_seconds=10)
    assert (done.stdout, done.stderr, done.status) == ("out\n", "err\n", 0)


def test_a_program_speaks_english_to_us() -> None:
    assert programs.run(["sh", "-c", "echo $LC_ALL"], timeout_seconds=10).stdout == "C\n"


def test_a_failing_program_is_an_error_with_its_words() -> None:
    with pytest.raises(CommandError, match="status 3: no such thing"):
        programs.run(["sh", "-c", "echo no such thing >&2; exit 3"], timeout_seconds=10)


def test_a_status_that_the_caller_accepts_is_no_error() -> None:
    assert programs.run(["sh", "-c", "exit 3"], timeout_seconds=10, accept=(0, 3)).status == 3


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match="program not found: no-such-program"):
        programs.run(["no-such-program"], timeout_seconds=10)


def test_a_deadline_ends_the_program_and_what_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(CommandError, match=r"did not end within 2 s"):
        programs.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], timeout_seconds=2)
    assert gone(int(pid_file.read_text()))


def test_a_command_that_must_finish_is_not_killed_at_its_deadline(tmp_path: Path) -> None:
    witness, goes_on = tmp_path / "witness", tmp_path / "goes on"
    script = f"until [ -e '{goes_on}' ]; do sleep 0.01; done; touch {witness}"
    with pytest.raises(CommandError, match="did not end") as caught:
        programs.run(["sh", "-c", script], timeout_seconds=0.1, must_finish=True)
    assert "left running" in caught.value.hint
    goes_on.touch()
    deadline = time.monotonic() + 20
    while not witness.exists():
        assert time.monotonic() < deadline, "it was killed"
        time.sleep(0.01)


def test_a_command_that_must_finish_is_in_the_ledger_for_as_long_as_it_runs(tmp_path: Path) -> None:
    """Who cleans up after us waits for it: what it makes can be removed only once it is there."""
    ledger, goes_on = Ledger(), tmp_path / "goes on"
    script = ["sh", "-c", f"until [ -e '{goes_on}' ]; do sleep 0.01; done"]
    with pytest.raises(CommandError, match="did not end"):
        programs.run(script, timeout_seconds=0.1, must_finish=True, ledger=ledger)
    assert [(program, must_finish) for _, program, must_finish in ledger.alive] == [("sh", True)]
    goes_on.touch()
    ledger = Ledger()
    programs.run(script, timeout_seconds=60, must_finish=True, ledger=ledger)
    assert (ledger.alive, ledger.told) == ([], ["sh"])


def test_a_command_that_must_finish_and_cannot_be_recorded_has_ended_when_that_is_told(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    script = ["sh", "-c", f"sleep 0.2; touch {witness}"]
    with pytest.raises(CatalogueError, match="no room"):
        programs.run(script, timeout_seconds=60, must_finish=True, ledger=Ledger(full=True))
    assert witness.exists()


def test_a_command_that_must_finish_does_not_die_of_what_it_prints_when_we_were_killed(tmp_path: Path) -> None:
    """LVM does: nobody reads a dead backupd's pipe, and its volumes would stay suspended."""
    begun, witness = tmp_path / "begun", tmp_path / "witness"
    line = f"touch {begun}; sleep 0.5; echo out; echo err >&2; touch {witness}"
    run = f"process.run(['sh', '-c', {line!r}], timeout_seconds=60, must_finish=True)"
    script = f"from backupd.host import process; {run}"
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        deadline = time.monotonic() + 20
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        parent.kill()
    deadline = time.monotonic() + 20
    while not witness.exists():
        assert time.monotonic() < deadline, "it died of SIGPIPE"
        time.sleep(0.01)


@pytest.mark.parametrize("must_finish", [True, False])
def test_no_command_is_killed_because_no_descriptor_is_free(must_finish: bool, tmp_path: Path) -> None:
    """LVM would be killed in mid-suspend for a table of descriptors that is full for a moment."""
    witness = tmp_path / "witness"
    script = textwrap.dedent(f"""
        import os, resource
        from backupd.host import process
        start = process._start
        def start_and_fill(*given, **named):
            child = start(*given, **named)
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
            return child
        process._start = start_and_fill
        process.run(["sh", "-c", "sleep 0.5; touch {witness}"], timeout_seconds=60, must_finish={must_finish})
    """)
    subprocess.run([sys.executable, "-c", script], check=True)
    assert witness.exists()


def test_a_program_for_whose_output_there_is_no_room_is_a_sentence() -> None:
    script = textwrap.dedent("""
        import os, resource
        from backupd.host import process
        from backupd.vocabulary.errors import CommandError
        process.run(["true"], timeout_seconds=60)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        try:
            process.run(["true"], timeout_seconds=60)
        except CommandError as error:
            print(error.message)
    """)
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert said == "no program can be started: too many open files\n"


def test_a_command_that_must_finish_is_left_running_whatever_happens_to_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object, **_named: object) -> bool:
        raise MemoryError

    monkeypatch.setattr("select.poll", fail)
    witness = tmp_path / "witness"
    with pytest.raises(MemoryError):
        programs.run(["sh", "-c", f"sleep 0.5; touch {witness}"], timeout_seconds=60, must_finish=True)
    deadline = time.monotonic() + 20
    while not witness.exists():
        assert time.monotonic() < deadline, "it was killed"
        time.sleep(0.01)


OOM_SCORE = Path("/proc/self/oom_score_adj")


@pytest.fixture
def first_to_go() -> Iterator[None]:
    """Where memory runs out, this process is to go first, as a run is by its unit."""
    usual = OOM_SCORE.read_text()
    OOM_SCORE.write_text("500")
    yield
    OOM_SCORE.write_text(usual)


@pytest.mark.usefixtures("first_to_go")
def test_what_must_finish_is_not_what_goes_first_where_memory_runs_out() -> None:
    """Any other child is: LVM may be in mid-suspend, and then the database would stand still for good."""
    look = ["sh", "-c", f"sleep 0.2; cat {OOM_SCORE}"]
    assert int(programs.run(look, timeout_seconds=60).stdout) == 500
    spared = f"for look in $(seq 1000); do [ $(cat {OOM_SCORE}) -gt 0 ] || break; sleep 0.01; done; cat {OOM_SCORE}"
    look = ["sh", "-c", spared]  # it begins with our score
    assert int(programs.run(look, timeout_seconds=60, must_finish=True).stdout) <= 0
    with programs.spawned(look, dies_with_us=False) as child:
        assert child.stdout is not None
        assert int(child.stdout.read()) <= 0


def test_a_child_ends_with_its_block() -> None:
    with programs.spawned(["sleep", "60"]) as child:
        assert programs.start_time(child.pid) is not None
    assert gone(child.pid)


def test_what_a_child_has_started_ends_with_it_although_it_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.host.process._GRACE_SECONDS", 0.2)
    pid_file, deaf = tmp_path / "pid", tmp_path / "deaf"
    script = f"(trap '' TERM; touch {deaf}; exec sleep 60) & echo $! >{pid_file}; wait"
    with programs.spawned(["sh", "-c", script]) as child:
        while not (deaf.exists() and pid_file.exists() and pid_file.read_text()):
            assert child.poll() is None
            time.sleep(0.01)
    assert gone(int(pid_file.read_text()))


def test_what_a_child_that_has_ended_by_itself_has_started_ends_with_the_block(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with programs.spawned(["sh", "-c", f"sleep 60 & echo $! >{pid_file}; exit 3"]) as child:
        assert has_ended(child, within_seconds=20)
        assert child.returncode is None  # its number, and its group's, is still its own
    assert child.returncode == 3
    assert gone(int(pid_file.read_text()))


def test_no_group_is_ended_whose_number_may_be_a_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    with programs.spawned(["true"]) as child:
        child.wait()
        monkeypatch.setattr(os, "killpg", lambda group, _number: sent.append(group))
    assert sent == []


def test_what_is_left_of_a_group_and_is_not_ours_to_end_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that has changed its user, for one that is not root."""

    def refuse(_group: int, _number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with programs.spawned(["true"]) as child:
        assert has_ended(child, within_seconds=20)
        monkeypatch.setattr(os, "killpg", refuse)
    assert child.returncode == 0


def test_that_a_child_has_ended_is_seen_without_taking_its_end_where_no_descriptor_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_free(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", none_free)
    with programs.spawned(["cat"], stdin=subprocess.PIPE) as child:
        assert not has_ended(child, within_seconds=0.1)
        assert child.stdin is not None
        child.stdin.close()
        assert has_ended(child, within_seconds=20)
        assert child.returncode is None
        child.wait()
        assert has_ended(child, within_seconds=0)


def test_a_child_whose_start_cannot_be_read_is_ended_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_free(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = children()
    monkeypatch.setattr(programs, "start_time", none_free)
    with pytest.raises(HostExhausted, match="sleep cannot be started: too many open files"):
        programs.spawned(["sleep", "60"]).__enter__()
    with pytest.raises(HostExhausted, match="true cannot be started: too many open files"):
        programs.run(["true"], timeout_seconds=60, ledger=Ledger())
    assert children() <= before


def test_a_child_that_must_not_be_killed_is_waited_for(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with programs.spawned(["sh", "-c", f"cat; touch {witness}"], stdin=subprocess.PIPE, dies_with_us=False):
        pass
    assert witness.exists()


def test_a_child_that_must_not_be_killed_and_hangs_is_left_and_stays_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    ledger = SimpleNamespace(started=lambda *_, **_how: None, ended=lambda pid, _: ended.append(pid))
    monkeypatch.setattr(programs, "_PARTING_SECONDS", 0.1)
    with programs.spawned(["sleep", "60"], dies_with_us=False, ledger=ledger) as child:
        pass
    assert ended == []
    assert f"left running: process {child.pid}, because killing it could do damage" in caplog.text
    child.kill()
    child.wait()


@pytest.fixture
def unending(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """No signal ends a process, as where it stands in the kernel before a dead disk; what ends this one after all."""
    monkeypatch.setattr(programs, "_GRACE_SECONDS", 0.1)
    killpg = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, _number: killpg(group, 0))
    return lambda pid: killpg(pid, signal.SIGKILL)


@pytest.mark.timeout(30)
def test_a_program_that_cannot_be_killed_is_not_waited_for(unending: Callable[[int], None]) -> None:
    with pytest.raises(CommandError, match=r"sleep did not end within 0\.1 s") as caught:
        programs.run(["sleep", "60"], timeout_seconds=0.1)
    left = re.search(r"left running as process (\d+), which was killed and hangs in the kernel", caught.value.hint)
    assert left is not None
    unending(int(left[1]))


@pytest.mark.timeout(30)
def test_a_child_that_cannot_be_killed_is_left_and_stays_in_the_ledger(
    unending: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    ledger = SimpleNamespace(started=lambda *_, **_how: None, ended=lambda pid, _: ended.append(pid))
    with programs.spawned(["sleep", "60"], ledger=ledger) as child:
        pass
    assert ended == []
    assert f"left running: process {child.pid}, which was killed and hangs in the kernel" in caplog.text
    unending(child.pid)
    child.wait()


class StoppedAsItIsTaken:
    """Popen's own lock, and a stop signal that comes at the worst moment: it is taken, and no `try` has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False

    def acquire(self, blocking: bool = True) -> bool:
        taken = self._lock.acquire(blocking)
        if not self._told:
            self._told = True
            signal.raise_signal(signal.SIGTERM)
        return taken

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.mark.parametrize("ask", [lambda child: child.poll(), lambda child: child.wait(60)], ids=["poll", "wait"])
@pytest.mark.timeout(30)
@pytest.mark.parametrize("dies_with_us", [True, False])
def test_a_signal_while_a_child_is_asked_leaves_neither_the_child_nor_its_row(
    ask: Callable[["subprocess.Popen[bytes]"], int | None], dies_with_us: bool
) -> None:
    alive: list[int] = []
    ledger = SimpleNamespace(started=lambda pid, *_, **_how: alive.append(pid), ended=lambda pid, _: alive.remove(pid))
    with (
        pytest.raises(Cancelled),
        cancellable(),
        programs.spawned(["cat"], stdin=subprocess.PIPE, dies_with_us=dies_with_us, ledger=ledger) as child,
    ):
        child._waitpid_lock = StoppedAsItIsTaken()  # type: ignore[attr-defined]
        ask(child)
    assert child.returncode is not None
    assert alive == []


@pytest.mark.timeout(30)
def test_a_child_is_not_waited_for_when_time_is_up() -> None:
    with programs.spawned(["sleep", "60"]) as child, pytest.raises(subprocess.TimeoutExpired):
        child.wait(-1)


def test_a_child_dies_when_we_are_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = textwrap.dedent(f"""
        import pathlib, time
        from backupd.host import process as command
        with command.spawned(["sleep", "60"]) as child:
            while pathlib.Path(f"/proc/{{child.pid}}/comm").read_text() != "sleep\\n":
                time.sleep(0.01)  # what starts it asks for the signal first
            pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))
            time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    assert gone(int(pid_file.read_text()))


def test_a_stray_is_ended_only_when_it_is_the_one_that_was_recorded() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        born = programs.start_time(process.pid)
        assert born is not None
        assert not programs.end_stray(process.pid, born + 1)
        assert programs.start_time(process.pid) == born
        assert programs.end_stray(process.pid, born)
        assert process.wait() == -signal.SIGTERM


def test_no_child_inherits_a_descriptor_of_ours(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        listed = programs.run(["ls", "-l", "/proc/self/fd"], timeout_seconds=10).stdout
    finally:
        os.close(descriptor)
    assert str(tmp_path) not in listed


def test_a_child_is_told_to_the_ledger_before_and_after() -> None:
    ledger = Ledger()
    with programs.spawned(["sleep", "60"], ledger=ledger) as child:
        assert ledger.alive == [(child.pid, "sleep", False)]
    assert ledger.alive == []


def test_a_child_that_cannot_be_recorded_does_not_go_on() -> None:
    class FullDisk:
        def __init__(self) -> None:
            self.pid = 0

        def started(self, pid: int, start_time: int, program: str, *, must_finish: bool) -> None:
            self.pid = pid
            raise CommandError("no room for a row")

        def ended(self, pid: int, start_time: int) -> None:
            assert programs.start_time(pid) is None

    ledger = FullDisk()
    with pytest.raises(CommandError, match="no room"), programs.spawned(["sleep", "60"], ledger=ledger):
        pytest.fail("it went on")
    assert gone(ledger.pid)


def test_a_process_of_somebody_else_s_bears_no_mark_of_ours() -> None:
    """Anybody may put a slot's mark into the environment of a process of his own."""
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    for prefix, ours in (([], True), (as_nobody, False)):
        argv = [*prefix, "sh", "-c", "echo; exec sleep 60"]
        with programs.spawned(argv, environment={"BACKUPD_TEST_MARK": str(ours)}) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"\n"
            assert marked("BACKUPD_TEST_MARK", str(ours)) is ours
