"""The pages' process: it comes and goes without the daemon's noticing more than its end.

Knows: the address, who may be let in without a token, and what the process is handed. That comes over a socket:
neither its command line nor its environment has the token, and of the configuration it gets nothing that tells where
others are told.
"""

import errno
import ipaddress
import json
import logging
import os
import socket
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Protocol

from backupd.config import Configuration
from backupd.config.effective import as_toml
from backupd.service.machine_view import own_eyes
from backupd.service.pages_channel import answer
from backupd.service.pages_process import PagesProcess, StartedPages, start_module
from backupd.vocabulary.errors import ConfigurationError, Refused

log = logging.getLogger(__name__)


def without_token(table: str) -> str:
    """What is said of pages that nobody sees, because this table of the configuration names no token."""
    return f"not served, because {table}.token_file is not set; /metrics and /healthz are open to every local user"


class ListenAddress(Protocol):
    """Where pages are shown, as the configuration has it."""

    @property
    def address(self) -> str:
        """A name or an address of this machine."""

    @property
    def port(self) -> int:
        """0: any that is free."""


def require_guarded(place: ListenAddress, *, token: str | None, table: str = "service") -> None:
    """Other machines get in only with a token. `table`: the one of the configuration that the place is from.

    Raises:
        ConfigurationError: they would without one.
    """
    if token is None and not _is_loopback(place.address):
        raise ConfigurationError(
            f"{table}.address {place.address} can be reached from other machines, but no token is set",
            hint=f'set {table}.token_file, or address = "127.0.0.1"',
        )


def listen(place: ListenAddress, *, table: str = "service") -> socket.socket:
    """The socket that the configuration names; whoever connects waits until somebody answers.

    Raises:
        Refused: the port is taken.
        ConfigurationError: it is none of this machine's, or we may not have it.
    """
    where = f"{place.address}:{place.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            place.address, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
                hint=f"see which: ss -ltnp 'sport = :{place.port}'; or set another {table}.port",
            ) from error
        raise ConfigurationError(
            f"address {where} cannot be used for listening: {(error.strerror or str(error)).lower()}",
            hint=f"set {table}.address and {table}.port to an address of this machine, or use serve --no-web",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"


class WebProcess(PagesProcess):
    """The pages of the daemon."""

    def __init__(self, listener: socket.socket, configuration: Configuration, *, token: str | None) -> None:
        super().__init__(listener)
        self._configuration = configuration
        self._token = token

    def show(self, configuration: Configuration) -> None:
        """From now on this is what is looked at: by another process, while the one before says its last word."""
        self._configuration = configuration
        self.begin_anew()

    def start(self) -> StartedPages:
        """Its window is looked after by a thread, which hands it what it needs first: it may be slow to take it.

        Where that fails halfway, the process ends, for its window is closed.

        Raises:
            OSError, RuntimeError: there is no room for one more process, its sockets or its thread.
        """
        started = start_module("backupd.service.web", self._listener)
        try:
            window = Connection(os.dup(started.window.fileno()))
            threading.Thread(target=self._attend, args=(started, window), name="window", daemon=True).start()
        except BaseException:
            started.window.close()
            raise
        return started

    def _attend(self, started: StartedPages, window: Connection) -> None:
        shown = shown_of(self._configuration)
        with window:
            try:
                window.send_bytes(json.dumps({"configuration": as_toml(shown), "token": self._token}).encode())
                answer(window, own_eyes(shown))
            except ConnectionError:
                return  # it has ended, which `keep_up` sees
            except (ValueError, RecursionError) as error:
                log.error("stopped the pages' process, because it made a request that is not allowed: %s", error)
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
