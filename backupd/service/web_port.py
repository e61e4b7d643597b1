"""Where pages are shown, and who is let in: the address, the token.

Knows: that a port may be another program's, a name not resolved and a token not readable for now. Whoever only shows
pages may be told so; nothing else ends for it (`PagesProcess.keep_up`).
"""

import errno
import socket
from pathlib import Path
from typing import Protocol

from backupd.config.exposure import pages_unguarded
from backupd.config.secrets import password_in
from backupd.host.daemon_thread import answered
from backupd.vocabulary.errors import ConfigurationError, Refused

_NAME_SECONDS = 2.0  # that a name server is waited for


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

    @property
    def token_file(self) -> Path | None:
        """What has the token; None: there is none."""


def require_guarded(place: ListenAddress, *, table: str) -> None:
    """Other machines get in only with a token. `table`: the one of the configuration that the place is from.

    Raises:
        ConfigurationError: they would without one.
    """
    if unguarded := pages_unguarded(place.address, place.token_file, table=table):
        raise ConfigurationError(str(unguarded), hint=unguarded.hint)


def token_of(place: ListenAddress, *, table: str) -> str | None:
    """What a browser or Prometheus must show; None where nobody sees a page.

    Raises:
        ConfigurationError: it cannot be read, or others can read it.
    """
    return None if place.token_file is None else password_in(place.token_file, named=f"{table}.token_file")


def listen(place: ListenAddress, *, table: str) -> socket.socket:
    """The socket that the configuration names; whoever connects waits until somebody answers.

    A name server that does not answer holds nobody up for longer than a moment.

    Raises:
        Refused: the port is taken.
        ConfigurationError: it is none of this machine's, or we may not have it.
        RuntimeError: there is no room for one more thread.
    """
    where = f"{place.address}:{place.port}"
    try:
        family, kind, protocol, _, address = answered(
            lambda: socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE),
            within_seconds=_NAME_SECONDS,
            name=f"address of {place.address}",
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
