"""The doors through which a command's effects go, each patched so that what passes it comes under fire.

Knows: programs, the LVM shell, commits of the catalogue, claims; `server_doors`, `target_doors` and `file_doors` know
the others. A door fails as its contract says: the error that an adapter would raise, at the place where it would.
"""

import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from backupd.archive import tarchild
from backupd.host import claims, process
from backupd.host.ended_children import has_ended
from backupd.lvm import snapshots
from backupd.mysql import scratch
from backupd.vocabulary.errors import Busy, CommandError
from tests.fire.injecting import Fire, Passing, Refusal, where
from tests.fire.points import How, When
from tests.fire.undoing import Patches

HANGING_SECONDS = 3.0  # what a deadline is cut to where its program hangs: the wait itself is not what is tried
HUNG = "hung-as-told"  # among the words of a stand-in
_STAND_IN = ("sh", "-c", "trap '' TERM; while :; do sleep 3600; done", HUNG)
_SERVER_SECONDS = 20.0  # in which a drill's server starts that does not hang
_KILL_AFTER_SECONDS = 0.02  # it is to be killed at its work, and not before it has become its program
_WRITTEN = re.compile(r"\s*(INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM)\s+(\w+)")
_PLAIN = re.compile(r"-{0,2}[a-z][a-z-]*")


def programs(fire: Fire, patches: Patches) -> None:
    """Every program that is run to its end, spawned or detached."""
    run, start, end_group, end_stray = process._run, process._start, process._end_group, process.end_stray
    within = threading.local()

    def run_under_fire(argv: Sequence[str], timeout: float, *rest: Any, **named: Any) -> process.Completed:
        refusals: dict[When, Refusal] = {When.BEFORE: partial(_no_room, argv), When.AFTER: partial(_failed, argv)}
        name = f"process {spoken(argv)} < {where('backupd.host.process')}"
        with fire.passing(name, refusals=refusals, own=frozenset({How.HANG})) as passing:
            within.run = True
            try:
                if passing.fault is How.HANG:
                    fire.tell("hung", argv=list(argv), deadline=timeout)
                    return run([*_STAND_IN, *argv], min(timeout, HANGING_SECONDS), *rest, **named)
                return run(argv, timeout, *rest, **named)
            finally:
                within.run = False

    def start_under_fire(argv: Sequence[str], *rest: Any, **named: Any) -> subprocess.Popen[bytes]:
        if getattr(within, "run", False):
            return start(argv, *rest, **named)
        name = f"spawned {spoken(argv)} < {where('backupd.host.process')}"
        refusals: dict[When, Refusal] = {When.BEFORE: partial(_no_room, argv)}
        with fire.passing(name, refusals=refusals, own=frozenset({How.HANG, How.KILL})) as passing:
            return _spawned(fire, passing, argv, lambda words: start(words, *rest, **named))

    def end_group_told(ended: subprocess.Popen[bytes]) -> None:
        if not has_ended(ended, within_seconds=0):
            fire.tell("killed", argv=_words(ended.args), pid=ended.pid)
        end_group(ended)

    def end_stray_told(pid: int, born: int) -> bool:
        if process.start_time(pid) == born:
            told = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fire.tell("killed", argv=[word.decode() for word in told if word], pid=pid)
        return end_stray(pid, born)

    patches.set(process, "_run", run_under_fire)
    patches.set(process, "_start", start_under_fire)
    patches.set(process, "_end_group", end_group_told)
    patches.set(process, "end_stray", end_stray_told)


def shells(fire: Fire, patches: Patches) -> None:
    """Every line for the LVM shell: refused by LVM, or never answered."""
    from backupd.lvm import shell

    send = shell.LvmShell.send

    def send_under_fire(self: shell.LvmShell, command: str) -> None:
        name = f"lvm-shell {spoken(command.split())} < {where('backupd.lvm.shell')}"
        with fire.passing(name, own=frozenset({How.HANG, How.REFUSE})) as passing:
            if passing.fault is How.HANG:
                os.kill(self._process.pid, signal.SIGSTOP)
                fire.tell("hung", argv=["lvm"], pid=self._process.pid)
            send(self, "refused" if passing.fault is How.REFUSE else command)

    patches.set(shell.LvmShell, "send", send_under_fire)


def deadlines(fire: Fire, patches: Patches) -> None:
    """Those that are no program's own are cut as well, where something hangs."""
    if fire.hangs:
        patches.set(process, "_PARTING_SECONDS", HANGING_SECONDS * 2)
        patches.set(snapshots, "_REPORT_SECONDS", HANGING_SECONDS)
        patches.set(tarchild, "_STALLED_SECONDS", HANGING_SECONDS)
        patches.set(scratch, "recovery_seconds", lambda _redo: _SERVER_SECONDS)


def commits(fire: Fire, patches: Patches) -> None:
    """Every transaction of a catalogue that writes, by what it writes."""
    do_commit: Callable[[DefaultDialect, Any], None] = DefaultDialect.do_commit
    open_now = threading.local()

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("BEGIN"):
            open_now.written = []
        elif found := _WRITTEN.match(statement):
            open_now.written = [*getattr(open_now, "written", []), " ".join(found.groups()).lower()]

    def commit_under_fire(self: DefaultDialect, connection: Any) -> None:
        written, open_now.written = getattr(open_now, "written", []), []
        if not written:
            do_commit(self, connection)
            return
        name = f"commit {', '.join(dict.fromkeys(written))} < {where('backupd.catalogue', deep=1)}"
        with fire.passing(name, refusals={When.BEFORE: _disk_full}):
            do_commit(self, connection)

    event.listen(Engine, "before_cursor_execute", note)
    patches.later(lambda: event.remove(Engine, "before_cursor_execute", note))
    patches.set(DefaultDialect, "do_commit", commit_under_fire)


def lock_files(fire: Fire, patches: Patches) -> None:
    """Every claim."""
    locked = claims.Claims._locked

    def locked_under_fire(self: claims.Claims, path: Path, how: int, hint: str) -> int:
        kind = path.stem.partition("-")[0]

        def refused() -> BaseException:
            return Busy(f"{kind} is held by another process, as told", hint=hint)

        name = f"claim {kind} < {where('backupd.host.claims')}"
        with fire.passing(name, refusals={When.BEFORE: refused}):
            return locked(self, path, how, hint)

    patches.set(claims.Claims, "_locked", locked_under_fire)


def spoken(argv: Sequence[str]) -> str:
    """The program and its first words, without the programs that only start it and without anything of one run."""
    words = list(argv)
    while words and (name := os.path.basename(words[0])) in _STARTERS:  # noqa: PTH119
        words = _STARTERS[name](words[1:])
    if not words:
        return os.path.basename(argv[0])  # noqa: PTH119
    plain = [word for word in words[1:3] if _PLAIN.fullmatch(word)]
    return " ".join([os.path.basename(words[0]), *plain])  # noqa: PTH119


def _after_dashes(words: list[str]) -> list[str]:
    return words[words.index("--") + 1 :] if "--" in words else words


def _after_settings(words: list[str]) -> list[str]:
    return [word for i, word in enumerate(words) if any(not _is_setting(each) for each in words[: i + 1])]


def _is_setting(word: str) -> bool:
    return "=" in word or word.startswith("-")


_STARTERS: dict[str, Callable[[list[str]], list[str]]] = {
    "setpriv": _after_dashes,
    "ionice": lambda words: words[2:],
    "nice": lambda words: words[2:],
    "env": _after_settings,
}


def _spawned(
    fire: Fire, passing: Passing, argv: Sequence[str], start: Callable[[Sequence[str]], "subprocess.Popen[bytes]"]
) -> "subprocess.Popen[bytes]":
    if passing.fault is How.HANG:
        fire.tell("hung", argv=list(argv))
        return start([*_starters_of(argv), *_STAND_IN, *argv])
    child = start(argv)
    if passing.fault is How.KILL:
        threading.Thread(target=_kill, args=(fire, child.pid), daemon=True).start()
    return child


def _starters_of(argv: Sequence[str]) -> Sequence[str]:
    """`setpriv --pdeathsig KILL --`, with which a child dies with us: a stand-in does so too."""
    return argv[: argv.index("--") + 1] if argv[0] == "setpriv" else ()


def _kill(fire: Fire, pid: int) -> None:
    time.sleep(_KILL_AFTER_SECONDS)
    fire.tell("ordered", pid=pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _words(args: Any) -> list[str]:
    return [args] if isinstance(args, str) else [os.fsdecode(word) for word in args]


def _no_room(argv: Sequence[str]) -> BaseException:
    return CommandError(
        f"{argv[0]} cannot be started: cannot allocate memory", hint="check its mode and the free memory (free -m)"
    )


def _failed(argv: Sequence[str]) -> BaseException:
    return CommandError(f"{' '.join(argv)} ended with status 5: failed as told, after its work")


def _disk_full() -> BaseException:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@contextmanager
def all_doors(fire: Fire) -> Iterator[None]:
    """Within the block every door is under fire."""
    from tests.fire.file_doors import files
    from tests.fire.server_doors import sessions
    from tests.fire.target_doors import targets

    with Patches() as patches:
        for door in (programs, shells, sessions, targets, commits, lock_files, files, deadlines):
            door(fire, patches)
        yield
