"""A command's passes through its doors: counted, recorded, and at one of them the fault.

Knows: what each kind of fault does to the process. Refuses to know the doors: they tell their name, and how they fail.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from tests.fire.points import ALWAYS, Fault, How, Passed, Point, When, to_line

_SOON_SECONDS = 0.02  # an effect has begun by then, and a program or a request has not ended yet
SLOW_SECONDS = 3.0  # above the lock's budget in the campaigns' machines, 2 s
_OURS = "backupd."
_DEPTH = 60  # frames
_INLINED = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})  # of which later Pythons make no frame

Refusal = Callable[[], BaseException | None]  # what is raised; None: it has seen to it that the effect itself fails


@dataclass(frozen=True, slots=True)
class Passing:
    """One pass that goes on."""

    fault: How | None  # what the door itself is to do


class Fire:
    """What a process under fire counts and does. Threads may share it."""

    def __init__(self, *, fault: Fault | None = None, log: int | None = None, recording: bool = False) -> None:
        self._fault = fault
        self._log = log
        self._recording = recording
        self._passes: Counter[str] = Counter()
        self._counting = threading.Lock()
        self.locked = False

    @contextmanager
    def passing(
        self, name: str, *, refusals: Mapping[When, Refusal] | None = None, own: frozenset[How] = frozenset()
    ) -> Iterator[Passing]:
        """The block is the effect; a fault may come before and after it. `own` are those that the door itself does.

        A block that raises has no after.
        """
        refusals = refusals or {}
        ordinal = self._count(name)
        passing = self._passing(name, ordinal, own)
        self._reach(Point(name, ordinal, When.BEFORE), refusals.get(When.BEFORE), own)
        yield passing
        self._reach(Point(name, ordinal, When.AFTER), refusals.get(When.AFTER))

    @property
    def hangs(self) -> bool:
        """The fault is that a program hangs: then deadlines are cut, for the wait itself is not what is tried."""
        return self._fault is not None and self._fault.how is How.HANG

    def tell(self, event: str, **more: object) -> None:
        """It is in the log, with the monotonic clock's time, before this returns."""
        self._write(json.dumps({"event": event, "at": time.monotonic(), **more}))

    def _count(self, name: str) -> int:
        with self._counting:
            self._passes[name] += 1
            return self._passes[name]

    def _passing(self, name: str, ordinal: int, own: frozenset[How]) -> Passing:
        fault = self._fault
        if fault is None or (fault.point.name, fault.point.ordinal) != (name, ordinal) or fault.how not in own:
            return Passing(None)
        self.tell("fired", fault=str(fault), locked=self.locked)
        return Passing(fault.how)

    def _reach(self, point: Point, refusal: Refusal | None, own: frozenset[How] = frozenset()) -> None:
        if self._recording:
            hows = ALWAYS | own | ({How.REFUSE} if refusal is not None else frozenset())
            self._write(to_line(Passed(point, hows, self.locked)))
        fault = self._fault
        if fault is None or fault.point != point or fault.how in own:
            return
        self.tell("fired", fault=str(fault), locked=self.locked)
        match fault.how:
            case How.DIE:
                os.kill(os.getpid(), signal.SIGKILL)
            case How.DIE_SOON:
                threading.Thread(target=_die_soon, daemon=True).start()
            case How.CANCEL:
                os.kill(os.getpid(), signal.SIGTERM)
            case How.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case How.SLOW:
                time.sleep(SLOW_SECONDS)
            case How.REFUSE if refusal is not None:
                error = refusal()
                if error is not None:
                    raise error
            case _:
                raise ValueError(f"{fault} cannot be there")

    def _write(self, line: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{line}\n".encode())


def _die_soon() -> None:
    time.sleep(_SOON_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def where(*hidden: str, deep: int = 2) -> str:
    """On whose behalf a door is passed: the innermost functions of backupd's own, without those of hidden modules."""
    frame: FrameType | None = sys._getframe(1)
    found: list[str] = []
    for _ in range(_DEPTH):
        if frame is None or len(found) == deep:
            break
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_OURS) and not module.startswith(hidden) and frame.f_code.co_name not in _INLINED:
            function = f"{module.removeprefix(_OURS)}.{frame.f_code.co_name}"
            if not found or found[-1] != function:
                found.append(function)
        frame = frame.f_back
    return " < ".join(found)
