"""A warm parent of commands: `backupd` is loaded once, and each command is a child of its own that is watched.

Knows: how a command line is run in a forked child as `python -m backupd` would run it, what is known of a child at its
end (status, seconds, the most memory that it or one of its own had at a time), which programs it asked for (Python's
audit events, all of them) and which were seen to run below it, as whom (a look every few milliseconds). Refuses to
judge it.

It is a process without threads (a fork takes the forking thread alone), told of commands by lines of JSON on its
standard input, and answers with one for each. Started with `-P`, and not in the tests' own process.
"""

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 60.0

_LOOK_MILLISECONDS = 5
_STARTING = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.spawn"})
_WANTED = (
    *(
        "archive.encryption",
        "archive.unpack",
        "catalogue.imported",
        "operations.restore.clone",
        "operations.restore.drill",
        "operations.restore.tables_into_folder",
        "operations.restore.proofs",
        "operations.upkeep.rebuild",
    ),
    *("mysql.next_steps", "operations.restore.into_folder", "operations.restore.verify", "wiring"),
    *("cli.documents", "cli.metrics", "cli.progress", "cli.run_text"),
)
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): what loses its parent becomes ours
_MOST_ADDRESSES = 4 << 30  # bytes: a bomb hurts its own process before it hurts the machine


@dataclass
class Ended:
    """What is known of a command once it has ended."""

    status: int | None  # None: it had to be ended
    seconds: float
    peak: int  # bytes, of the largest of its processes
    asked: list[list[str]] = field(default_factory=list)  # command lines that Python was asked to start
    seen: list[tuple[str, int]] = field(default_factory=list)  # programs that ran below it, and as whom
    left: list[str] = field(default_factory=list)  # that were still there after it, and are not any more
    stdout: str = ""
    stderr: str = ""


class Runner:
    """The parent, as a test has it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, *arguments: str, cwd: Path, said: Path, environment: dict[str, str], seconds: float = SECONDS
    ) -> Ended:
        """`backupd ARGUMENTS…`, what it says is kept below `said` meanwhile."""
        job = {"arguments": arguments, "cwd": str(cwd), "said": str(said), "environment": environment}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return Ended(**{**told, "seen": [(str(name), int(uid)) for name, uid in told["seen"]]})


@contextmanager
def runner() -> Iterator[Runner]:
    """For the length of the block; it imports what the tests do, from the same folder."""
    root = Path(__file__).parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            f"import sys; sys.path.insert(0, {str(root)!r}); import {__name__} as it; it.serve()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield Runner(process)
        assert process.stdin is not None
        process.stdin.close()


def serve() -> None:
    """Until nobody has a command any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _load()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        print(json.dumps(asdict(_run(json.loads(line)))), file=answers, flush=True)


def _load() -> None:
    """All that the commands need, so that no child does it again."""
    from functools import cache
    from importlib import import_module

    import typer.main

    from backupd.cli.main import app

    for name in _WANTED:
        import_module(f"backupd.{name}")
    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(app)
    gc.collect()
    gc.freeze()  # no child's collector writes to what it shares with this process


def _run(job: dict[str, Any]) -> Ended:
    said = Path(job["said"])
    said.mkdir(exist_ok=True)
    asked = said / "asked"
    asked.unlink(missing_ok=True)  # another command's
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(job, said)  # does not return
    watch = _Watch(child)
    status, peak = watch.until(began + job["seconds"])
    seconds = time.monotonic() - began
    left = watch.end_what_is_left()
    return Ended(
        status,
        seconds,
        peak,
        asked=[json.loads(line) for line in asked.read_text().splitlines()] if asked.exists() else [],
        seen=sorted(watch.seen),
        left=left,
        stdout=(said / "stdout").read_bytes().decode(errors="surrogateescape"),
        stderr=(said / "stderr").read_bytes().decode(errors="surrogateescape"),
    )


def _be_the_command(job: dict[str, Any], said: Path) -> None:
    """In the child, to its end: as the interpreter runs a main module."""
    import resource

    status = 1
    try:
        os.setsid()
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["environment"])
        for number, name in enumerate(("/dev/null", str(said / "stdout"), str(said / "stderr"))):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            descriptor = os.open(name, flags, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = open(0)  # noqa: SIM115
        sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        sys.argv = ["backupd", *job["arguments"]]
        _tell_what_is_started(said / "asked")
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
        from backupd.cli.main import main

        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _tell_what_is_started(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def told(event: str, arguments: tuple[object, ...]) -> None:
        if event in _STARTING:
            words = arguments[1] if len(arguments) > 1 else arguments[0]
            line = words if isinstance(words, list | tuple) else [words]
            os.write(descriptor, json.dumps([str(word) for word in (event, *line)]).encode() + b"\n")

    sys.addaudithook(told)


class _Watch:
    """On one child and all below it."""

    def __init__(self, child: int) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._child = child
        self._descriptor = os.pidfd_open(child)

    def until(self, deadline: float) -> tuple[int | None, int]:
        """How it ended, None where it had to be ended at the deadline, and its peak in bytes."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        status: int | None = None
        while True:
            ended = poller.poll(_LOOK_MILLISECONDS)
            self._look()
            if ended or time.monotonic() > deadline:
                break
        if not ended:
            for pid in (self._child, *_below(self._child)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        os.close(self._descriptor)
        _, how, usage = os.wait4(self._child, 0)
        if ended:
            status = os.waitstatus_to_exitcode(how)
        return status, usage.ru_maxrss * 1024

    def end_what_is_left(self) -> list[str]:
        """Whatever has lost its parent is ours by now."""
        left = []
        while pids := _below(os.getpid()):
            for pid in pids:
                with suppress(OSError):  # one that has ended, and was not waited for, is nobody's harm
                    left.append(_named(pid)[0])
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, 0)[0]:
                    pass
        return left

    def _look(self) -> None:
        for pid in _below(self._child):
            with suppress(OSError):
                self.seen.add(_named(pid))


def _named(pid: int) -> tuple[str, int]:
    """The program's name, and as whom it runs; in this order: who becomes another user does it before it starts one.

    Raises:
        OSError: it is gone by now.
    """
    name = Path(f"/proc/{pid}/exe").readlink().name
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    if words == [b""]:
        raise ProcessLookupError(pid)
    if b"--version" in words:
        name += " --version"
    return name if "hostile" not in status["Name"] else f"{name}: {status['Name']}", int(status["Uid"].split()[1])


def _below(pid: int) -> Sequence[int]:
    """Its children and theirs."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with suppress(OSError):
                    children = [int(one) for one in (task / "children").read_text().split()]
                    found.extend(children)
                    waiting.extend(children)
    return found
