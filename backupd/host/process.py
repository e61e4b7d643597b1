"""The only door to other programs: run one to its end, or keep one as a child.

Knows: argv lists, `LC_ALL=C`, deadlines, process groups, how a child dies with us or lives on. Adapters build an argv
and parse what comes back; nothing else in backupd starts a process.
"""

import contextlib
import errno
import logging
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Protocol

from backupd.host.ended_children import has_ended
from backupd.host.memory_file import memory_file, written
from backupd.host.own_files import is_our_process
from backupd.host.priority import spare
from backupd.host.signals import shielded
from backupd.vocabulary.errors import CommandError, HostExhausted

log = logging.getLogger(__name__)

_EXHAUSTED = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})  # of the host, not the program

_PARTING_SECONDS = 300.0  # for a child that must not be killed to end
_GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL of a process group
_PROMPT_SECONDS = 0.5

TypeOfStream = int | IO[bytes] | None


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ran to its end with a status that its caller accepts."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float


class ChildLedger(Protocol):
    """Who must know of children that outlive a call, so that a later process ends strays, or waits for them."""

    def started(self, pid: int, start_time: int, program: str, *, must_finish: bool) -> None:
        """A child runs. `start_time` is the kernel's, in clock ticks since boot (proc(5), field 22 of `stat`)."""

    def ended(self, pid: int, start_time: int) -> None:
        """It does so no more."""


class _Child(subprocess.Popen[bytes]):
    """A child that can be asked for its state at any moment.

    Popen takes a lock for that, and only then enters its `try` (Python 3.11): a stop signal raised in between would
    leave the lock taken, and a child that has ended would be reported as running, or waited for, for ever.
    """

    parts_by: float | None = None  # by the monotonic clock: until then one that must not be killed is waited for

    def poll(self) -> int | None:
        with shielded():
            return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None and self.poll() is None and not has_ended(self, within_seconds=max(0.0, timeout)):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return super().wait()


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    accept: Sequence[int] = (0,),
    stdin: str | None = None,
    must_finish: bool = False,
    ledger: ChildLedger | None = None,
) -> Completed:
    """Run a program to its end and return what it printed, as text.

    `must_finish` is for commands that change the world half-way when killed (LVM in a suspend): a cancellation waits
    for them, and at the deadline they are left to end by themselves rather than killed; so they are when we die. Those
    that make what has to be released are told to a `ledger`: whoever releases it waits for them first.

    Raises:
        CommandError: not found, not to be started, ended with a status outside `accept`, or passed its deadline.
    """
    with shielded() if must_finish else contextlib.nullcontext():
        return _run(argv, timeout_seconds, accept, stdin or "", ledger, kill=not must_finish)


def _run(
    argv: Sequence[str], timeout: float, accept: Sequence[int], given: str, ledger: ChildLedger | None, *, kill: bool
) -> Completed:
    """What it prints goes to memory rather than to pipes: it would die of SIGPIPE when we end before it (LVM does)."""
    log.debug("run: %s", shlex.join(argv))
    began = time.monotonic()
    with memory_file(given) as stdin, memory_file() as output, memory_file() as complaints:
        process = _start(argv, stdin, output, complaints)
        if not kill:
            spare(process.pid)
        born = 0
        try:
            try:
                if ledger is not None:
                    born = _born(process, argv)
                    ledger.started(process.pid, born, argv[0], must_finish=not kill)
            finally:  # it runs, whether or not that could be written down
                ended = has_ended(process, within_seconds=timeout)
        except BaseException:
            if kill:
                _end_group(process)
            raise
        if not ended:
            if kill:
                _end_group(process)
            raise CommandError(
                f"{argv[0]} did not end within {timeout:g} s: {shlex.join(argv)}",
                hint="" if process.poll() is not None else f"it was left running as {_left(process, kill=kill)}",
            )
        if ledger is not None:
            ledger.ended(process.pid, born)
        status, out, err = process.wait(), written(output), written(complaints)
    completed = Completed(tuple(argv), status, out, err, seconds=time.monotonic() - began)
    log.debug("run: status %d after %.3f s", completed.status, completed.seconds)
    if completed.status not in accept:
        said = completed.stderr.strip() or completed.stdout.strip() or "(no output)"
        raise CommandError(f"{shlex.join(argv)} ended with status {completed.status}: {said}")
    return completed


@contextmanager
def spawned(
    argv: Sequence[str],
    *,
    stdin: TypeOfStream = subprocess.DEVNULL,
    stdout: TypeOfStream = subprocess.PIPE,
    stderr: TypeOfStream = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
    only_this_environment: bool = False,
    ledger: ChildLedger | None = None,
    dies_with_us: bool = True,
    lowest_priority: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child for the length of the block; when the block ends, so does the child with its whole process group.

    What it has started outlives it only where it has ended by itself, and `poll` or `wait` has told so: `has_ended`
    keeps the group's number.

    `dies_with_us` also has the kernel kill it when the thread that started it is gone (SIGKILL of backupd): never for
    LVM, which must not be killed in mid-suspend: such a child sees its stdin end and is waited for, so it must not
    write more to a pipe than is read. One that hangs is left running after five minutes, and stays in the ledger.
    `environment` is added to ours, or all that there is of it. `lowest_priority` is the idle I/O class and nice 19.

    Raises:
        CommandError: the program was not found, or could not be started.
    """
    full = [*_prefix(dies_with_us=dies_with_us, lowest_priority=lowest_priority), *argv]
    log.debug("spawn: %s", shlex.join(full))
    process: subprocess.Popen[bytes] | None = None
    born = 0
    try:
        with shielded():  # a signal in its middle, be it of the child's own making, would leave a child behind
            process = _start(full, stdin, stdout, stderr, environment or {}, only=only_this_environment)
            born = _born(process, argv)
            if not dies_with_us:
                spare(process.pid)
        if ledger is not None:  # within: where it cannot be written down it must not go on
            ledger.started(process.pid, born, argv[0], must_finish=not dies_with_us)
        yield process
    finally:
        with shielded():
            if process is not None and _part_with(process, dies_with_us=dies_with_us) and ledger is not None:
                ledger.ended(process.pid, born)


def part_from(process: subprocess.Popen[bytes], waiting: Callable[[], None]) -> None:
    """A `spawned` child that must not be killed sees its stdin end now, and has ended, or hangs for five minutes.

    `waiting` is called meanwhile, every half second. What it raises goes on; the block's end waits for the rest then.
    """
    _close(process.stdin)
    while (left := _parting_seconds(process)) > 0 and process.poll() is None:
        waiting()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _PROMPT_SECONDS))


def detached(
    argv: Sequence[str], *, output: TypeOfStream, environment: Mapping[str, str], without: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """A child that goes on when we end, in a session of its own; its caller polls it, or init inherits it.

    It works in `/`: it keeps no mount busy, and finds nothing there that somebody has put in its way.
    `environment` is added to ours, `without` is taken out of it. `output` takes stdout and stderr: a file, for a pipe
    would break with our end.

    Raises:
        CommandError: the program was not found, or could not be started.
    """
    log.debug("start: %s", shlex.join(argv))
    return _start(argv, subprocess.DEVNULL, output, output, environment, without=without, cwd="/")


def start_time(pid: int) -> int | None:
    """When a process was born, in clock ticks since boot; None when there is no such process (or it is a zombie).

    proc(5): field 22 of `stat`, counted behind the parenthesised name, which may hold spaces.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def start_of_ours(pid: int) -> int | None:
    """The same, of a process of this user's only: after a boot pid and start may come round to somebody else's."""
    return start_time(pid) if is_our_process(pid) else None


def was_sent(pid: int, number: signal.Signals) -> bool:
    """Whether there was still such a process to get the signal."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def is_alive(process: tuple[int, int] | None, born: Callable[[int], int | None] = start_of_ours) -> bool:
    """Whether a process that was recorded, by its pid and its start, is still there; `born` looks for us."""
    return process is not None and born(process[0]) == process[1]


def end_stray(pid: int, born: int) -> bool:
    """End a process and its group, but only if it is still the one that was recorded. True when there was one."""
    if start_time(pid) != born:
        return False
    deadline = time.monotonic() + _GRACE_SECONDS
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        while start_time(pid) == born and time.monotonic() < deadline:
            time.sleep(0.02)
        deadline += _GRACE_SECONDS
    return True


def ended_by_itself(pid: int, born: int, *, within_seconds: float) -> bool:
    """Wait for a process that must not be killed; True when it is gone, or is another than the one recorded."""
    deadline = time.monotonic() + within_seconds
    while start_time(pid) == born:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def found(program: str) -> bool:
    """Whether a program can be started; `/sbin` counts even where PATH lacks it, as it does for plain users."""
    return where(program) is not None


def where(program: str) -> str | None:
    """The path of a program, as `found` looks for it; None: it cannot be started."""
    return shutil.which(program, path=_environment()["PATH"])


def _start(
    argv: Sequence[str],
    stdin: TypeOfStream,
    stdout: TypeOfStream,
    stderr: TypeOfStream = subprocess.PIPE,
    environment: Mapping[str, str] = MappingProxyType({}),
    without: Sequence[str] = (),
    only: bool = False,
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    given = {name: value for name, value in _environment().items() if not only and name not in without}
    try:
        return _Child(  # its own session: the terminal's Ctrl-C is for us to pass on, in our order
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**given, **environment},
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:  # it may not be executed, or the machine has no room for one more process
        refused = _not_found(argv) if isinstance(error, FileNotFoundError) else _not_started(argv, error)
        refused.never_began = True
        raise refused from error


def _born(process: subprocess.Popen[bytes], argv: Sequence[str]) -> int:
    """Its start, for a ledger; 0: it has ended already."""
    try:
        return start_time(process.pid) or 0
    except OSError as error:  # no descriptor is free
        raise _not_started(argv, error) from error


def _not_found(argv: Sequence[str]) -> CommandError:
    return CommandError(f"program not found: {argv[0]}", hint=f"install the package that has {argv[0]}")


def _not_started(argv: Sequence[str], error: OSError) -> CommandError:
    reason = (error.strerror or str(error)).lower()
    kind = HostExhausted if error.errno in _EXHAUSTED else CommandError
    return kind(f"{argv[0]} cannot be started: {reason}", hint="check its mode and the free memory (free -m)")


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with contextlib.suppress(BrokenPipeError):
            stream.close()


def _part_with(process: subprocess.Popen[bytes], *, dies_with_us: bool) -> bool:
    """Nothing of ours is open towards it. Whether it has ended, of itself or by us."""
    _close(process.stdin)
    if dies_with_us:
        _end_group(process)
    else:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_parting_seconds(process))
    ended = process.poll() is not None
    if not ended:
        log.error("left running: %s", _left(process, kill=dies_with_us))
    _close(process.stdout)
    _close(process.stderr)
    return ended


def _parting_seconds(process: subprocess.Popen[bytes]) -> float:
    """What is left of the time that it has to end by itself, since this was asked first."""
    assert isinstance(process, _Child)
    process.parts_by = process.parts_by or time.monotonic() + _PARTING_SECONDS
    return max(0.0, process.parts_by - time.monotonic())


def _left(process: subprocess.Popen[bytes], *, kill: bool) -> str:
    """Which process hangs, and why it was not ended, in words."""
    killed = "which was killed and hangs in the kernel: see dmesg and the disks"
    return f"process {process.pid}, {killed if kill else 'because killing it could do damage'}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """A child ends, unless it has by itself, and whatever is left of its group; both have a while to tidy up.

    One that stands in the kernel, as behind a dead disk, cannot be ended by anybody: it is not waited for. Where its
    end was taken before (`poll`, `wait`), nothing is done: the group's number may be a stranger's by now.
    """
    if process.returncode is None:
        over = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter: what is left has another user
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < over:
                process.poll()
                os.killpg(process.pid, 0)  # until nobody is left: the child may go before what it has started
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)


def _prefix(*, dies_with_us: bool, lowest_priority: bool) -> list[str]:
    prefix = ["setpriv", "--pdeathsig", "KILL", "--"] if dies_with_us else []
    return [*prefix, "ionice", "-c", "3", "nice", "-n", "19"] if lowest_priority else prefix


def _environment() -> Mapping[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {
        **os.environ,
        "LC_ALL": "C",
        "PATH": f"{path}:/usr/sbin:/sbin",
        "LVM_SUPPRESS_FD_WARNINGS": "1",  # LVM complains of descriptors that CPython keeps for itself
    }
