"""SIGINT, SIGTERM and SIGHUP become `Cancelled`, but never in the middle of giving something back.

Knows: the process's stop signals and whether now is a bad moment. Signals belong to the process, so this module's
state is the process's too.

A bad moment is within a shield, and on the way to it: where a block ends, Python runs its `__exit__`, and in that of a
generator the code after `yield`. What a handler raises there, before the shield is reached, would skip the release.
Nobody can be told when such a moment is over, so the signal comes again a little later.
"""

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

from backupd.vocabulary.errors import Cancelled, Terminated

BY_A_PERSON = signal.SIGINT  # Ctrl-C and `backupd cancel`; systemd and a reboot send SIGTERM
_STOP_SIGNALS = (BY_A_PERSON, signal.SIGTERM, signal.SIGHUP)  # the last: its terminal is gone
_AGAIN_SECONDS = 0.005
# What is raised below the functions of these is only printed: by Python, at an object's end, and by logging's handlers.
_SWALLOWING = frozenset({"weakref", "_weakrefset", "logging"})
_ON_THE_WAY = frozenset({"contextlib", "threading", __name__})  # modules whose functions lead to a shield


class _State:
    """How deep we are in shields, and which signal has come."""

    shields = 0
    received: int | None = None
    raised = False
    again: int | None = None  # a pipe: whoever writes a signal's number gets it again


def _on_signal(number: int, frame: FrameType | None) -> None:
    _State.received = _State.received or number
    if _State.shields or _State.raised:
        return
    if not (_is_leaving(frame) or _is_below(_SWALLOWING, frame)):
        _raise_once()
    elif _State.again is not None:
        os.write(_State.again, bytes([number]))


def _is_leaving(frame: FrameType | None) -> bool:
    """Whether a block is being left, and its release has not begun: a shield would be there."""
    while frame is not None and frame.f_code.co_name != "__exit__" and frame.f_globals.get("__name__") in _ON_THE_WAY:
        frame = frame.f_back
    if frame is not None and frame.f_code.co_name != "__exit__":
        frame = frame.f_back if _is_of({"contextlib"}, frame.f_back) else None  # what `__exit__` has called
        while frame is not None and _is_of({"contextlib"}, frame) and frame.f_code.co_name != "__exit__":
            frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "__exit__"


def _is_of(modules: Collection[str], frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") in modules


def _is_below(modules: Collection[str], frame: FrameType | None) -> bool:
    while frame is not None and not _is_of(modules, frame):
        frame = frame.f_back
    return frame is not None


def _raise_once() -> None:
    if _State.received is not None and not _State.raised:
        _State.raised = True
        raise _cancelled(_State.received)


def _cancelled(number: int) -> Cancelled:
    kind, became = (Cancelled, "cancelled") if number == BY_A_PERSON else (Terminated, "terminated")
    return kind(
        f"{became} by {signal.Signals(number).name}",
        hint="only copies already published are kept; start it again when convenient",
    )


def require_going_on() -> None:
    """Nobody has asked for the end. For places that a cancelled run never reaches.

    Python only prints what is raised in a destructor or in a weak reference's callback (seen at the end of a thread,
    Python 3.11): a signal that comes just then would be lost.

    Raises:
        Cancelled: somebody has, and it was lost.
    """
    if _State.received is not None and _State.raised:
        raise _cancelled(_State.received)


@contextmanager
def cancellable() -> Iterator[None]:
    """Within it the first stop signal raises `Cancelled` in the main thread; later ones change nothing.

    What was started to outlive its terminal (`nohup`) goes on ignoring SIGHUP. Only one at a time and only in the main
    thread, as Python's signal handlers ask.
    """
    _State.shields, _State.received, _State.raised = 0, None, False
    asked, _State.again = os.pipe2(os.O_CLOEXEC)
    echo = threading.Thread(target=_send_again, args=(asked, threading.get_ident()), name="stop signals", daemon=True)
    echo.start()
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    stopping = [number for number in _STOP_SIGNALS if not (outlives and number == signal.SIGHUP)]
    before = {number: signal.signal(number, _on_signal) for number in stopping}
    try:
        yield
    finally:
        again, _State.again = _State.again, None
        os.close(again)
        echo.join()  # while the handlers are ours
        for number, handler in before.items():
            signal.signal(number, handler)
        _State.received, _State.raised = None, False


def _send_again(asked: int, thread: int) -> None:
    """Each signal whose number is written to the pipe comes to this thread again; until nobody can write any more."""
    with os.fdopen(asked, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            time.sleep(_AGAIN_SECONDS)
            signal.pthread_kill(thread, number[0])


@contextmanager
def shielded() -> Iterator[None]:
    """Within it no `Cancelled` is raised; one that came meanwhile is raised when the outermost shield ends well.

    Raises:
        Cancelled: at its end. Where the block itself raised, its error goes on and the signal waits for the next.

    In another thread than the main one it does nothing: signals are raised in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.shields += 1
    try:
        yield
    except BaseException:
        _State.shields -= 1
        raise
    _State.shields -= 1
    if not _State.shields:
        _raise_once()
