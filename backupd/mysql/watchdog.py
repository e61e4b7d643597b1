"""Ends another session of ours when it lasts too long, whatever the main thread does.

Knows: a deadline, and two ways of ending a session.

It has a connection of its own that was opened beforehand: at the moment it is needed, a stalled server may let nobody
in. KILL works even when the session waits inside the server; breaking its socket works even when the KILL does not. So
`own` must give up on an answer soon.
"""

import threading
import time
from types import TracebackType
from typing import Self

from backupd.host.daemon_thread import await_end, begin
from backupd.host.signals import shielded
from backupd.mysql.session import Session, StatementError

_GONE_SECONDS = 2.0  # how long to look whether a killed session has gone; it takes milliseconds
_LOOK_EVERY = 0.01


class Watchdog:
    """Guards one session within a `with` block. `own` is for its use alone meanwhile."""

    def __init__(self, guarded: Session, own: Session) -> None:
        self._guarded = guarded
        self._own = own
        self._change = threading.Condition()
        self._speaking = threading.Lock()  # one thread at a time may use `own`
        self._deadline: float | None = None
        self._over = False
        self._fired = False
        self._ended_at: float | None = None
        self._thread = threading.Thread(target=self._watch, name="lock-watchdog", daemon=True)

    @property
    def fired(self) -> bool:
        """The guarded session was ended because its deadline passed."""
        with self._change:
            return self._fired

    @property
    def ended_at(self) -> float | None:
        """When it had ended the guarded session because its deadline passed, by the monotonic clock; None before."""
        with self._change:
            return self._ended_at

    def allow(self, seconds: float) -> None:
        """From now on the guarded session has this long."""
        with self._change:
            self._deadline = time.monotonic() + seconds
            self._change.notify()

    def relax(self) -> None:
        """The guarded session may last as long as it likes."""
        with self._change:
            self._deadline = None
            self._change.notify()

    def end(self) -> None:
        """End the guarded session now; returns when the server has released what it held, or after 2 s.

        Never raises: it is called where something has failed already.
        """
        self.relax()
        self._end()
        deadline = time.monotonic() + _GONE_SECONDS
        while self._still_there() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)

    def __enter__(self) -> Self:
        begin(self._thread, undo=self.__exit__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with shielded():
            with self._change:
                self._over = True
                self._change.notify()
            await_end(self._thread, within_seconds=None)

    def _watch(self) -> None:
        while self._deadline_passed():
            self._end()
            with self._change:
                self._ended_at = time.monotonic()

    def _deadline_passed(self) -> bool:
        """Wait for it. False: the block is over."""
        with self._change:
            while not self._over:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._fired, self._deadline = True, None
                    return True
                self._change.wait(left)
            return False

    def _end(self) -> None:
        try:
            with self._speaking:
                self._own.kill(self._guarded.connection_id)
        except StatementError:
            pass  # the socket is the second way
        finally:
            self._guarded.sever()

    def _still_there(self) -> bool:
        try:
            with self._speaking:
                found = self._own.value(
                    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s", self._guarded.connection_id
                )
        except StatementError:
            return False
        return found != "0"
