"""The pages' process: it comes and goes without the daemon's noticing more than its end.

Knows: the address, who may be let in without a token, how the process is started, what it is handed, and how often it
may begin anew. What it is handed comes over a socket: neither its command line nor its environment has the token, and
of the configuration it gets nothing that tells where others are told.
"""

import contextlib
import errno
import ipaddress
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from backupd.config import Configuration, ServiceConfig
from backupd.config.effective import as_toml
from backupd.service.outlook import own_eyes
from backupd.service.window import answer
from backupd.vocabulary.errors import ConfigurationError, Refused

log = logging.getLogger(__name__)

NOBODY = "not served, because service.token_file is not set; /metrics and /healthz are open to every local user"

_PATIENCE_SECONDS = 1.2  # a little more than uvicorn has for what it is answering when we end
_STEADY_SECONDS = 60.0  # who has lived for so long is started again at once
_LONGEST_PAUSE_SECONDS = 60.0
_HANDED_ON = ("PATH", "TZ", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # of our environment, which may have passwords


def require_guarded(service: ServiceConfig, *, token: str | None) -> None:
    """Other machines get in only with a token.

    Raises:
        ConfigurationError: they would without one.
    """
    if token is None and not _is_loopback(service.address):
        raise ConfigurationError(
            f"service.address {service.address} can be reached from other machines, but no token is set",
            hint='set service.token_file, or address = "127.0.0.1"',
        )


def listen(service: ServiceConfig) -> socket.socket:
    """The socket that the configuration names; whoever connects waits until somebody answers.

    Raises:
        Refused: the port is taken.
        ConfigurationError: it is none of this machine's, or we may not have it.
    """
    where = f"{service.address}:{service.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            service.address, service.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as error:  # socket.gaierror is one
        if error.errno == errno.EADDRINUSE:
            raise Refused(
                f"address {where} is taken by another program",
                hint=f"see which: ss -ltnp 'sport = :{service.port}'; or set another service.port",
            ) from error
        raise ConfigurationError(
            f"address {where} cannot be used for listening: {(error.strerror or str(error)).lower()}",
            hint="set service.address and service.port to an address of this machine, or use serve --no-web",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"


@dataclass(slots=True)
class _Started:
    """One process, and our end of its window."""

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


class WebProcess:
    """The pages, in a process of their own that is started again where it has ended by itself. One thread only."""

    def __init__(self, listener: socket.socket, configuration: Configuration, *, token: str | None) -> None:
        self._listener = listener
        self._configuration = configuration
        self._token = token
        self._now: _Started | None = None
        self._leaving: list[_Started] = []
        self._failures = 0
        self._not_before = 0.0  # monotonic

    @property
    def pid(self) -> int | None:
        """Of the process that answers; None while there is none."""
        return None if self._now is None else self._now.process.pid

    def keep_up(self) -> None:
        """It answers, or will in a moment; where it ends again and again, a minute later at most. Never waits."""
        self._leaving = [one for one in self._leaving if not one.is_gone()]
        for one in self._leaving:
            if time.monotonic() - one.at > _PATIENCE_SECONDS:
                one.kill()
        if self._now is not None and self._now.is_gone():
            self._count(f"ended with status {self._now.process.returncode}", lived_since=self._now.at)
            self._now = None
        if self._now is None and time.monotonic() >= self._not_before:
            try:
                self._now = self._start()
            except (OSError, RuntimeError) as error:  # the latter where there is no room for one more thread
                self._count(f"could not be started: {error}", lived_since=time.monotonic())

    def show(self, configuration: Configuration) -> None:
        """From now on this is what is looked at: by another process, while the one before says its last word."""
        self._configuration = configuration
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
        self._listener.close()

    def _count(self, what: str, *, lived_since: float) -> None:
        """One more failure, unless it had lived well; the next try is later then."""
        self._failures = 0 if time.monotonic() - lived_since > _STEADY_SECONDS else self._failures + 1
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** (self._failures - 1)) if self._failures else 0.0
        log.error("the pages' process %s; restarting it in %.0f s", what, pause)
        self._not_before = time.monotonic() + pause

    def _start(self) -> _Started:
        """Its window is looked after by a thread, which hands it what it needs first: it may be slow to take it.

        Where that fails halfway, the process ends, for its window is closed.

        Raises:
            OSError, RuntimeError: there is no room for one more process, its sockets or its thread.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                handed = (self._listener.fileno(), theirs.fileno())
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "backupd.service.web", *map(str, handed)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=handed,
                    cwd="/",
                    env={name: os.environ[name] for name in _HANDED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"},
                    start_new_session=True,
                )
            started = _Started(process, ours, time.monotonic())
            window = Connection(os.dup(ours.fileno()))
            threading.Thread(target=self._attend, args=(started, window), name="window", daemon=True).start()
        except BaseException:
            ours.close()
            raise
        return started

    def _attend(self, started: _Started, window: Connection) -> None:
        shown = shown_of(self._configuration)
        with window:
            try:
                window.send_bytes(json.dumps({"configuration": as_toml(shown), "token": self._token}).encode())
                answer(window, own_eyes(shown))
            except ConnectionError:
                return  # it has ended, which `keep_up` sees
            except (ValueError, RecursionError) as error:
                log.error("stopped the pages' process, because it requested something that it may not: %s", error)
                started.kill()


def shown_of(configuration: Configuration) -> Configuration:
    """Without where others are told and what is run: the address of a webhook is a secret, a command may have one."""
    jobs = {name: replace(job, hooks={}) for name, job in configuration.jobs.items()}
    return replace(configuration, jobs=jobs, notifications={})


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
