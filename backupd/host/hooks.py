"""Programs of the job's owner, run before and after a run and its phases.

A program gets data, never a command line made of data: variables in its environment, and one JSON document on its
stdin. What it prints is thrown away but for the end, which is in the message where it fails.

One that fails before something ends the run: that is how it is asked not to go on. One that fails after something
needs attention, and the run goes on. None ever runs while the server is locked: nobody knows how long it would take,
and everything that the server's clients do would wait for it.

Knows: when which program runs, what it gets, and when it is ended.
"""

import json
import logging
import os
import select
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import IO, Protocol

from backupd.config import HookConfig, HookPoint
from backupd.host.ended_children import has_ended
from backupd.host.memory_file import memory_file
from backupd.host.process import ChildLedger, spawned
from backupd.vocabulary.errors import BackupdError, CommandError, GaveUp, Refused
from backupd.vocabulary.records import Phase, RunDetails, RunError

log = logging.getLogger(__name__)

SCHEMA = 1

_TOUCHES_NOTHING = {HookPoint.BEFORE_RUN, HookPoint.BEFORE_PREFLIGHT, HookPoint.BEFORE_BASELINE}
_HANDED_ON = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")  # no secret is in these
_TICK_SECONDS = 0.1
_TAIL_BYTES = 2000  # of what a program prints


def _nothing() -> None:
    """Nobody looks after anything yet, or any more."""


class CutShort(Exception):
    """Raised by `waiting`, with the reason in words: the hook is ended, no other begins, the run goes on."""


class Journal(ChildLedger, Protocol):
    """The run's record, as far as hooks need it."""

    @property
    def run_id(self) -> str:
        """The run's id."""

    def attention(self, text: str) -> None:
        """A person should look at this although the backup may be good."""

    def so_far(self) -> RunDetails:
        """All that is known of the run by now."""


class Hooks:
    """The hooks of one run."""

    def __init__(self, hooks: Collection[HookConfig], journal: Journal) -> None:
        self._hooks = tuple(hooks)
        self._journal = journal

    def before_run(self) -> None:
        """Those that are to run before anything is looked at. Raises as `before`."""
        self._require(HookPoint.BEFORE_RUN, None, _nothing)

    def after_run(self, status: str, error: RunError | None) -> None:
        """Those that are to hear what became of the run, whatever it was. One that fails needs attention."""
        self._try(HookPoint.AFTER_RUN, None, _nothing, status=status, error=error)

    def before(self, phase: Phase, *, waiting: Callable[[], None] = _nothing) -> None:
        """Those of this phase. `waiting` is called before each and every now and then while it runs, and may raise: a
        hook that runs is ended then, and no other begins.

        Raises:
            Refused, GaveUp: one failed, and nothing has been touched, or something has: the run is to end.
        """
        self._require(HookPoint(f"before-{_name(phase)}"), phase, waiting)

    def after(self, phase: Phase, *, waiting: Callable[[], None] = _nothing) -> None:
        """Those that follow a phase which went well. One that fails needs attention. `waiting` as in `before`; the run
        outlives a `CutShort`.
        """
        self._try(HookPoint(f"after-{_name(phase)}"), phase, waiting)

    def _require(self, point: HookPoint, phase: Phase | None, waiting: Callable[[], None]) -> None:
        for hook in self._at(point):
            waiting()
            try:
                self._run(hook, point, self._document(hook, point, phase), waiting)
            except CommandError as error:
                kind: type[BackupdError] = Refused if point in _TOUCHES_NOTHING else GaveUp
                raise kind(
                    f"hook {hook.name} ended the run ({point}): {error.message}",
                    hint=f"a hook that fails at this point ends the run: check why {hook.command[0]} failed",
                ) from error

    def _try(
        self,
        point: HookPoint,
        phase: Phase | None,
        waiting: Callable[[], None],
        *,
        status: str = "running",
        error: RunError | None = None,
    ) -> None:
        hooks = self._at(point)
        for number, hook in enumerate(hooks):
            try:
                waiting()
            except CutShort as reason:
                self._journal.attention(f"{_names(hooks[number:])} not run ({point}): {reason}")
                return
            document = self._document(hook, point, phase, status=status, error=error)
            try:
                self._run(hook, point, document, waiting)
            except CutShort as reason:
                self._journal.attention(f"hook {hook.name} was ended early ({point}): {reason}")
            except CommandError as failed:
                self._journal.attention(f"hook {hook.name} failed ({point}): {failed.message}")

    def _at(self, point: HookPoint) -> list[HookConfig]:
        return [hook for hook in self._hooks if point in hook.when]

    def _document(
        self,
        hook: HookConfig,
        point: HookPoint,
        phase: Phase | None,
        *,
        status: str = "running",
        error: RunError | None = None,
    ) -> dict[str, object]:
        run = self._journal.so_far()
        return {
            "schema": SCHEMA,
            "hook": hook.name,
            "point": point.value,
            "job": run.job,
            "run_id": self._journal.run_id,
            "phase": _name(phase) if phase is not None else "",
            "status": status,
            "error": asdict(error) if error is not None else None,
            "run": asdict(run),
        }

    def _run(
        self, hook: HookConfig, point: HookPoint, document: dict[str, object], waiting: Callable[[], None]
    ) -> None:
        """It ended well.

        Raises:
            CommandError: it did not, or not in time, or could not be started.
        """
        told = {
            f"BACKUPD_{key.upper()}": str(document[key])
            for key in ("hook", "point", "job", "run_id", "phase", "status")
        }
        kept = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        began = time.monotonic()
        with (
            memory_file(json.dumps(document, default=str)) as stdin,  # a pipe would fill up where nobody reads it
            spawned(
                hook.command,
                stdin=stdin,
                stderr=subprocess.STDOUT,
                environment={**kept, **told},
                only_this_environment=True,
                ledger=self._journal,
            ) as process,
        ):
            said = _watched(process, hook, began + hook.timeout_seconds, waiting)
        log.info("hook %s (%s): ended after %.1f s", hook.name, point, time.monotonic() - began)
        if process.returncode != 0:
            raise CommandError(f"{hook.command[0]} ended with status {process.returncode}: {said or '(no output)'}")


def _watched(process: subprocess.Popen[bytes], hook: HookConfig, deadline: float, waiting: Callable[[], None]) -> str:
    """The end of what it printed, once it has ended; what it prints is read, or it would wait for that.

    What it leaves in the background ends with the block that it was spawned for: its end is not taken before.
    """
    assert process.stdout is not None
    tail, open_still = b"", True
    while not has_ended(process, within_seconds=0):
        waiting()
        if time.monotonic() > deadline:
            raise CommandError(f"{hook.command[0]} did not end within {hook.timeout_seconds:g} s")
        if open_still:
            tail, open_still = _read(process.stdout, tail, within_seconds=_TICK_SECONDS)
        else:
            has_ended(process, within_seconds=_TICK_SECONDS)
    if open_still:
        tail, _ = _read(process.stdout, tail, within_seconds=0)
    return tail.decode(errors="replace").strip()


def _read(stream: IO[bytes], tail: bytes, *, within_seconds: float) -> tuple[bytes, bool]:
    """What there is by now is added, and of all of it the end is kept; False where nothing more can come."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    if not poll.poll(within_seconds * 1000):
        return tail, True
    more = os.read(stream.fileno(), 64 << 10)
    return (tail + more)[-_TAIL_BYTES:], bool(more)


def _name(phase: Phase) -> str:
    """Of the three phases that the lock takes, hooks see one."""
    return "lock" if phase is Phase.LOCK_WAIT else phase.value


def _names(hooks: Sequence[HookConfig]) -> str:
    """Who was not run, with the verb."""
    names = ", ".join(hook.name for hook in hooks)
    return f"hook {names} was" if len(hooks) == 1 else f"hooks {names} were"
