"""A process that shows pages: started as soon as its port is ours, again where it has ended, and gone when it is to be.

Knows: how it ends, how long its last word may take, how often it may start again, what of our environment it is given.
What it is started with is another's to say.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from backupd.service.web_port import ListenAddress, listen, token_of, url_of, without_token
from backupd.vocabulary.errors import BackupdError

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 1.2  # a little more than uvicorn has for what it is answering when we end
_STEADY_SECONDS = 60.0  # who has lived for so long is started again at once
_LONGEST_PAUSE_SECONDS = 60.0
_HANDED_ON = ("PATH", "TZ", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # of our environment, which may have passwords


@dataclass(slots=True)
class StartedPages:
    """One process, and our end of the socket by which it is told what it needs."""

    process: subprocess.Popen[bytes]
    window: socket.socket
    at: float  # monotonic

    def end(self) -> None:
        """It is asked to end: it answers nobody new, and has a second for the others."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def is_gone(self) -> bool:
        """Reaped when it is; then nothing of it is open."""
        if self.process.poll() is None:
            return False
        with contextlib.suppress(OSError):
            self.window.shutdown(socket.SHUT_RDWR)  # whoever answers at it ends
        self.window.close()
        self.end()
        return True

    def kill(self) -> None:
        """At once. Where we may not, its standard input's end and our own end are all that it gets."""
        with contextlib.suppress(OSError):
            self.process.kill()


class PagesProcess(ABC):
    """Pages in a process of their own that is started again where it has ended by itself. One thread only.

    `say` tells a person where they are, once they are; `table` is the one of the configuration that the place is from.
    """

    def __init__(self, place: ListenAddress, *, table: str, say: Callable[[str], None]) -> None:
        self._place, self._table, self._say = place, table, say
        self.listener: socket.socket | None = None
        self.token: str | None = None
        self.lacking: BackupdError | None = None  # why there is no port, as the newest try has found
        self._now: StartedPages | None = None
        self._leaving: list[StartedPages] = []
        self._pause_seconds = 0.0  # after the newest failure
        self._not_before = 0.0  # monotonic

    def open(self) -> None:
        """The port is ours, and whoever connects waits until somebody answers.

        Raises:
            Refused: the port is taken.
            ConfigurationError: the address cannot be had, or the token not be read.
            RuntimeError: there is no room for one more thread.
        """
        self.token = token_of(self._place, table=self._table)
        self.listener = listen(self._place, table=self._table)
        self.lacking, self._pause_seconds = None, 0.0
        self._say(f"pages and metrics: {url_of(self.listener)}")
        if self.token is None:
            self._say(f"pages: {without_token(self._table)}")

    @abstractmethod
    def start(self, listener: socket.socket) -> StartedPages:
        """A new one, which is told what it needs.

        Raises:
            OSError, RuntimeError: there is no room for one more process, its sockets or its thread.
        """

    @property
    def pid(self) -> int | None:
        """Of the process that answers; None while there is none."""
        return None if self._now is None else self._now.process.pid

    def keep_up(self) -> None:
        """It answers, or will in a moment; where it ends again and again, a minute later at most. Hardly ever waits.

        So it is with a port that is not ours: any user of this machine may have it first.
        """
        self._leaving = [one for one in self._leaving if not one.is_gone()]
        for one in self._leaving:
            if time.monotonic() - one.at > _PATIENCE_SECONDS:
                one.kill()
        if self._now is not None and self._now.is_gone():
            self._count(f"ended with status {self._now.process.returncode}", lived_since=self._now.at)
            self._now = None
        if self._now is None and time.monotonic() >= self._not_before:
            try:
                if self.listener is None:
                    self.open()
                assert self.listener is not None
                self._now = self.start(self.listener)
            except BackupdError as error:
                self.lacking = error
                self._wait_longer()
            except (OSError, RuntimeError) as error:  # the latter where there is no room for one more thread
                self._count(f"could not be started: {error}", lived_since=time.monotonic())

    def begin_anew(self) -> None:
        """Another process takes its place, while the one before says its last word."""
        if self._now is not None:
            self._now.end()
            self._leaving.append(replace(self._now, at=time.monotonic()))
            self._now = None
        self._not_before = 0.0
        self.keep_up()

    def stop(self) -> None:
        """It answers no more; what it was at has had a second."""
        started = [*self._leaving, *([self._now] if self._now is not None else [])]
        for one in started:
            one.end()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for one in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, deadline - time.monotonic()))
            one.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(_PATIENCE_SECONDS)
            one.is_gone()
        if self.listener is not None:
            self.listener.close()

    def _count(self, what: str, *, lived_since: float) -> None:
        """One more failure, unless it had lived well; the next try is later then."""
        if time.monotonic() - lived_since > _STEADY_SECONDS:
            self._pause_seconds = self._not_before = 0.0
        else:
            self._wait_longer()
        log.error("the pages' process %s; restarting it in %.0f s", what, self._pause_seconds)

    def _wait_longer(self) -> None:
        """The next try is twice as far away as this one was from the one before."""
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, self._pause_seconds * 2 or 1.0)
        self._not_before = time.monotonic() + self._pause_seconds


def start_module(module: str, listener: socket.socket) -> StartedPages:
    """`python -P -m MODULE LISTENER WINDOW`: it is handed the two by their numbers.

    Its window is open on our side; who fails to use it closes that, which ends the process.

    Raises:
        OSError: there is no room for one more process or its sockets.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            handed = (listener.fileno(), theirs.fileno())
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, handed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=handed,
                cwd="/",
                env={name: os.environ[name] for name in _HANDED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return StartedPages(process, ours, time.monotonic())
