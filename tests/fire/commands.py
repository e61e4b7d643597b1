"""A command of backupd as a child of ours that has all of backupd loaded already, and what became of it.

Knows: how long it may take, that it is continued when a fault has stopped it, that what hangs is given up by the
operator once the command has ended, and that processes which it leaves behind become ours, so that how they end is
seen.
"""

import ctypes
import importlib
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fire.doors import HUNG
from tests.fire.judging import Ended
from tests.fire.points import Fault, parsed
from tests.fire.under_fire import Order, Planted, started
from tests.fire.world import HOLD_BUDGET_SECONDS

PATIENCE_SECONDS = 60.0
_STOPPED_SECONDS = HOLD_BUDGET_SECONDS + 1.5
_ORPHANS_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen of one command."""

    ended: Ended
    output: str
    began: float  # monotonic
    events: Sequence[Mapping[str, Any]] = ()
    killed: tuple[tuple[str, ...], ...] = ()  # by the command itself or with it

    def event(self, name: str) -> Mapping[str, Any] | None:
        """The first of this name."""
        return next(iter(self.named(name)), None)

    def named(self, name: str) -> list[Mapping[str, Any]]:
        """All of this name."""
        return [event for event in self.events if event["event"] == name]


@dataclass(slots=True)
class Commands:
    """Children of this process, one at a time. `others` are children that are none of them."""

    folder: Path
    configuration: Path
    planted: Planted | None = None
    others: frozenset[int] = frozenset()
    count: int = 0

    def __post_init__(self) -> None:
        if ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")

    def done(
        self,
        words: Sequence[str],
        *,
        fault: Fault | None = None,
        record: Path | None = None,
        modules: Path | None = None,
        configuration: Path | None = None,
        stopped_after: float | None = None,
    ) -> Outcome:
        """The command has ended, and so has all that it left behind or was left behind with it.

        Where it is `stopped_after` so many seconds, that is by SIGTERM.
        """
        self.count += 1
        output = self.folder / f"command-{self.count}"
        log = record or output.with_suffix(".log")
        order = Order(
            *(("--config", str(configuration or self.configuration), *words), log, fault),
            recording=record is not None,
            planted=self.planted,
            modules=modules,
        )
        began = time.monotonic()
        status, in_time = _waited(started(order, output), began, stopped_after)
        seconds = time.monotonic() - began
        events = [told for told in parsed(_text(log).splitlines(keepends=True)) if "event" in told]
        ended = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        # A command that died leaves LVM at work: the next one, its recovery, meets that.
        signalled = () if ended is None and in_time else self._tidied(events)
        outcome = Outcome(
            Ended(ended, _text(output.with_suffix(".err")), seconds, in_time=in_time),
            _text(output.with_suffix(".out")),
            began,
            events,
            (*(tuple(event["argv"]) for event in events if event["event"] == "killed"), *signalled),
        )
        for suffix in (".out", ".err", ".log"):
            output.with_suffix(suffix).unlink(missing_ok=True)
        return outcome

    def _tidied(self, events: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
        """What the command left behind has ended; the words of what a signal ended that was not ours.

        An operator ends what hangs: stand-ins are killed, a stopped shell goes on.
        """
        for event in events:
            if event["event"] == "hung" and "pid" in event:
                with suppress(ProcessLookupError):
                    os.kill(event["pid"], signal.SIGCONT)
        signalled: list[tuple[str, ...]] = []
        ended_by_us = {int(event["pid"]) for event in events if event["event"] == "ordered"}
        deadline = time.monotonic() + _ORPHANS_SECONDS
        while left := [(pid, words) for pid, words in _children() if pid not in self.others]:
            for pid, words in left:
                if HUNG in words or "3600" in words or time.monotonic() > deadline:
                    ended_by_us.add(pid)
                    os.kill(pid, signal.SIGKILL)
                found, status = os.waitpid(pid, os.WNOHANG)
                if found and os.WIFSIGNALED(status) and pid not in ended_by_us:
                    signalled.append(words)
            time.sleep(_LOOK_SECONDS)
        return tuple(signalled)


def _waited(pid: int, began: float, stopped_after: float | None) -> tuple[int, bool]:
    """Its wait status, and whether it ended by itself. What has stopped goes on when the lock's budget is over."""
    in_time, stopping = True, math.inf if stopped_after is None else began + stopped_after
    while True:
        found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if found and os.WIFSTOPPED(status):
            time.sleep(_STOPPED_SECONDS)
            os.kill(pid, signal.SIGCONT)
        elif found:
            return status, in_time
        if not found and time.monotonic() > stopping:
            stopping = math.inf
            os.kill(pid, signal.SIGTERM)
        if in_time and time.monotonic() - began > PATIENCE_SECONDS:
            in_time = False
            os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def load(names: Sequence[str]) -> None:
    """These modules are loaded in this process, and so in the children that it starts from now on."""
    for name in names:
        if name.startswith(("backupd.", "sqlalchemy.", "pymysql.", "boto", "typer.", "pydantic", "alembic")):
            with suppress(ImportError):
                importlib.import_module(name)


def children() -> frozenset[int]:
    """Our own, by their pids."""
    return frozenset(pid for pid, _ in _children())


def _children() -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each with its words; of one that has ended its name alone is left."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            before, _, behind = (folder / "stat").read_text().rpartition(")")
            if int(behind.split()[1]) == os.getpid():
                words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
                name = before.partition("(")[2]
                yield int(folder.name), tuple(word.decode(errors="replace") for word in words) or (name,)
