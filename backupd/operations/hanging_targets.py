"""How long a target is waited for where others are left: storage that hangs, as a dead NFS server does, answers nobody.

Knows: that whoever stands in it cannot be killed, so that it is asked in a thread that is left behind; and that only
folders need this while bytes are written and read: the kernel waits for as long as it takes, and all others have
time-outs of their own.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from backupd.host.daemon_thread import TimeWaited, answered
from backupd.targets import Target
from backupd.vocabulary.errors import TargetAway
from backupd.vocabulary.units import format_duration

T = TypeVar("T")

_ANSWER_SECONDS = 120.0  # a store that fails says why before that, mostly: the reason is better than that it is late
_SILENT_SECONDS = 900.0  # in which a file server boots: what is half copied is worth the wait
_SLOWEST = 10 << 20  # bytes a second of a store that has not died


def answer_of(target: Target, ask: Callable[[], T]) -> T:
    """What `ask` has of this target, or raises. It does nothing that could not happen later as well, or never.

    Raises:
        TargetAway: it does not answer. If it ever does, what was asked is done then.
    """
    return _asked(target, ask, _ANSWER_SECONDS)


def read_from(target: Target, ask: Callable[[], T]) -> T:
    """The same of what has to be read there before anything else can be done: it may take as long as one call may.

    Raises:
        TargetAway: it does not answer.
    """
    return _asked(target, ask, silent_seconds(target))


def _asked(target: Target, ask: Callable[[], T], most: float) -> T:
    try:
        return answered(ask, within_seconds=most, name=f"backupd target {target.name}")
    except TimeoutError as error:
        raise no_answer(target, most) from error


class Silence:
    """Whether a target that a thread reads gives anything, for who waits for that thread and does nothing else."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._given = self._seen = 0
        self._waited: TimeWaited | None = None  # of who waits: a thread that had nothing to do is not silent

    def end(self) -> None:
        """It has given something, or is asked only now."""
        self._given += 1

    def require_end(self) -> None:
        """Called again and again while it is waited for.

        Raises:
            TargetAway: it has given nothing for too long.
        """
        most = silent_seconds(self._target)
        if self._waited is None or self._seen != self._given:
            self._seen, self._waited = self._given, TimeWaited()
        elif self._waited.seconds() > most:
            raise no_answer(self._target, most)


def silent_seconds(target: Target, at_once: int = 0) -> float:
    """For how long one call may last that writes to or reads from it; infinite where it ends by itself.

    `at_once` are bytes that may go only now: some file systems (FUSE) send a file where it is synced or closed.
    """
    return math.inf if target.folder is None else _SILENT_SECONDS + at_once / _SLOWEST


def no_answer(target: Target, seconds: float) -> TargetAway:
    """It was waited for so long."""
    return TargetAway(
        f"target {target.name} does not answer within {format_duration(seconds)}",
        hint="is its storage overloaded or down?",
    )
