"""The web application's thread: it comes and goes without the clock's noticing.

Knows: the address, who may be let in without a token, and how uvicorn is run beside something more important. Refuses
to know what is shown.
"""

import errno
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from backupd.config import ServiceConfig
from backupd.errors import ConfigurationError, Refused
from backupd.service.site import Site

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 1.2  # a little more than uvicorn has for what it is answering when we end


class Pages(Protocol):
    """An ASGI application over a site."""

    def show(self, site: Site) -> None:
        """From now on over this one."""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""


def require_guarded(service: ServiceConfig, *, token: str | None) -> None:
    """Other machines get in only with a token.

    Raises:
        ConfigurationError: they would without one.
    """
    if token is None and not _is_loopback(service.address):
        raise ConfigurationError(
            f"service.address {service.address} can be reached by other machines, and there is no token",
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
            f"address {where} cannot be listened on: {(error.strerror or str(error)).lower()}",
            hint="set service.address and service.port to what this machine has, or serve --no-web",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"


class WebThread:
    """The application, answered by uvicorn in a thread; started again where it has ended by itself.

    It is made in the thread as well: loading what it takes would keep the clock waiting for half a second.
    """

    def __init__(self, listener: socket.socket, site: Site, make: Callable[[Site], "Pages"]) -> None:
        self._listener = listener
        self._site = site
        self._make = make
        self._application: Pages | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def keep_up(self) -> None:
        """It answers, or will in a moment."""
        if self._thread is None or not self._thread.is_alive():
            if self._thread is not None:
                log.error("the web pages had ended; they are started again")
            self._thread = threading.Thread(target=self._serve, name="web", daemon=True)
            self._thread.start()

    def show(self, site: Site) -> None:
        """From the next request on this is what is looked at."""
        self._site = site
        if self._application is not None:
            self._application.show(site)

    def stop(self) -> None:
        """It answers no more; what it was at has had a second."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        import uvicorn

        from backupd.service.web.serving import settings

        self._application = application = self._make(self._site)
        application.show(self._site)  # another, where `show` came while it was made
        self._server = uvicorn.Server(settings(application))
        self._server.run(sockets=[self._listener.dup()])  # it closes what it is given, whatever became of it


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
