"""What wakes the loop that decides: a signal, a child's end, the clock.

Knows: how a thread or a signal handler wakes a thread that waits, without a lock: `threading.Event.set` within a signal
handler waits for ever where the signal came while the same thread was on its way into `wait`.
"""

import contextlib
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Bell:
    """Rung by anybody, waited for by one thread."""

    def __init__(self) -> None:
        self._ear, self._rope = socket.socketpair()
        self._ear.setblocking(False)
        self._rope.setblocking(False)

    @property
    def rope(self) -> int:
        """A descriptor: whatever is written to it rings."""
        return self._rope.fileno()

    def ring(self) -> None:
        """The wait that goes on, or the next one, ends at once. Safe in a signal handler and after `close`."""
        with contextlib.suppress(OSError):  # full: it rings already
            self._rope.send(b".")

    def wait(self, seconds: float) -> None:
        """It has rung, or so much time has passed by the monotonic clock."""
        if select.select([self._ear], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                while self._ear.recv(4096):
                    pass

    def close(self) -> None:
        """Nobody waits any more."""
        self._ear.close()
        self._rope.close()


class Signals:
    """What the process was asked to do, as flags that its loop reads."""

    stop = False
    reload = False
    drain = False


@contextmanager
def signals(bell: Bell) -> Iterator[Signals]:
    """SIGTERM and SIGINT ask to stop, SIGHUP to reload, SIGUSR1 to drain; a child's end only rings. As before when the
    block ends.

    The kernel may give a signal to another thread, where the first one has one to deal with already. A handler runs in
    the first thread all the same, but not before that one is awake: so Python rings by itself (`signal.set_wakeup_fd`).
    """
    asked = Signals()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        asked.stop = asked.stop or number in (signal.SIGTERM, signal.SIGINT)
        asked.reload = asked.reload or number == signal.SIGHUP
        asked.drain = asked.drain or number == signal.SIGUSR1
        bell.ring()

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    woken = signal.set_wakeup_fd(bell.rope, warn_on_full_buffer=False)
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
