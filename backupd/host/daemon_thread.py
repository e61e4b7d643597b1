"""Threads that may stand in the kernel for ever, as the storage behind a call hangs: nobody waits that long for one.

Knows: how such a thread is waited for. It is a daemon, so that it keeps nobody from ending: it ends with the process.
"""

import errno
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from backupd.host.signals import shielded

log = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_SECONDS = 0.1  # until a signal is looked for again
_MOMENT_SECONDS = 1.0  # between two looks at the most, on a busy host too: else nobody looked
_END_SECONDS = 5.0  # for what is half done when a signal comes


def begin(thread: threading.Thread, *, undo: Callable[..., object] = lambda *_raised: None) -> None:
    """The thread runs when this returns. Where a stop signal has come meanwhile, `undo` has told it to end; without it
    that is the caller's. It is called as an `__exit__`, which it should be: no signal is raised as one is entered.

    Shielded: where a signal raises within `start`, the thread is there and does not count as started: `join` raises.
    """
    try:
        with shielded():
            thread.start()
    except BaseException as error:
        undo(type(error), error, error.__traceback__)
        raise


def await_end(thread: threading.Thread, *, within_seconds: float | None) -> None:
    """A thread that was told to end has done so, or the log tells that it could not. None: however long it takes."""
    if thread.ident is not None:
        with shielded():
            thread.join(within_seconds)
    if thread.is_alive():
        log.error("%s is blocked in a call; it ends with this process", thread.name)


def goes_on(thread: threading.Thread, *, after_seconds: float) -> bool:
    """Whether it still runs then.

    Shielded: where a signal raises within `join`, CPython 3.11 takes the thread for ended (`_wait_for_tstate_lock`
    releases the lock that the thread itself holds), and nobody would wait for it any more.
    """
    with shielded():
        thread.join(after_seconds)
        return thread.is_alive()


class TimeWaited:
    """How long somebody has waited who looks several times a second. Where all of the process was stopped (SIGSTOP, a
    frozen cgroup), whoever was waited for was so as well: of what lies between two looks no more than a moment counts.
    """

    def __init__(self) -> None:
        self._looked_at = time.monotonic()
        self._seconds = 0.0

    def begin_again(self) -> None:
        """There was a sign of life."""
        self._seconds = 0.0

    def seconds(self) -> float:
        """Since it began, as of this look."""
        now = time.monotonic()
        self._seconds += min(now - self._looked_at, _MOMENT_SECONDS)
        self._looked_at = now
        return self._seconds


def answered(
    ask: Callable[[], T],
    *,
    within_seconds: float,
    name: str,
    last_sign: Callable[[], float] = lambda: -math.inf,
    idle: Callable[[], None] = lambda: None,
) -> T:
    """What `ask` returns, or raises, in a thread of this name. A signal ends the wait, and leaves `ask` some seconds.

    It may take so long from its last sign of life on, an instant of the monotonic clock; see `TimeWaited`. `idle` is
    called several times a second, and ends the wait as a signal does where it raises.

    Raises:
        TimeoutError: it has done neither in time, and may do so later.
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: whoever waits raises it
            errors.append(error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    waiting, seen = TimeWaited(), last_sign()

    def left() -> float:
        nonlocal seen
        waited = waiting.seconds()
        if (sign := last_sign()) != seen:
            seen, waited = sign, 0.0
            waiting.begin_again()
        return within_seconds - waited

    try:
        begin(thread)
        while (most := left()) > 0 and goes_on(thread, after_seconds=min(most, _TICK_SECONDS)):
            idle()
    except BaseException:
        await_end(thread, within_seconds=_END_SECONDS)
        raise
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer for {within_seconds:g} s")
    return answers[0]
