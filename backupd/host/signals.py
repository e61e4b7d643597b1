"""SIGINT and SIGTERM become `Cancelled`, but never in the middle of giving something back.

Knows: the process's two stop signals and whether now is a bad moment. Signals belong to the process, so this module's
state is the process's too.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from backupd.vocabulary.errors import Cancelled

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _State:
    """How deep we are in shields, and which signal has come."""

    shields = 0
    received: int | None = None
    raised = False


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _State.received = _State.received or number
    if not _State.shields:
        _raise_once()


def _raise_once() -> None:
    if _State.received is not None and not _State.raised:
        _State.raised = True
        raise _cancelled(_State.received)


def _cancelled(number: int) -> Cancelled:
    return Cancelled(
        f"cancelled by {signal.Signals(number).name}",
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
    """Within it the first SIGINT or SIGTERM raises `Cancelled` in the main thread; later ones change nothing.

    Only one at a time and only in the main thread, as Python's signal handlers ask.
    """
    _State.shields, _State.received, _State.raised = 0, None, False
    before = {number: signal.signal(number, _on_signal) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _State.received, _State.raised = None, False


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
