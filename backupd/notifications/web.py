"""One HTTP request to somebody who is to be told, and nothing that could go elsewhere.

Knows: POST, a deadline over all of it, which answers are good. Refuses to follow a redirection, to use a proxy, and to
show more of an address than the machine in it: many a service takes whoever knows the rest for its owner.
"""

import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from backupd import __version__
from backupd.config.fields import web_address
from backupd.config.secrets import line_in
from backupd.notifications.connection import ended_after, tls, undelivered
from backupd.vocabulary.errors import ConfigurationError, NotificationError
from backupd.vocabulary.faults import BadValue


def address_in(url: str | None, url_file: Path | None, *, named: str) -> str:
    """The address, as it is in the configuration or in the file.

    Raises:
        ConfigurationError: the file cannot be read, others can read it, or there is no address in it.
    """
    if url is not None:
        return url
    where = f"{named}.url_file"
    if url_file is None:
        raise ConfigurationError(f"{named} has no address", hint="add url or url_file")
    try:
        return web_address(line_in(url_file, named=where, content="the address"))
    except BadValue as bad:
        raise ConfigurationError(f"{where}: the content of the file is {bad.fact}", hint=bad.hint) from None


def post(
    address: str, body: bytes, *, headers: Mapping[str, str], ca: Path | None = None, deadline_seconds: float
) -> None:
    """It was answered with success (2xx); the answer itself is not read.

    Raises:
        PerhapsNotified: all was sent, and no answer came, or not in time.
        NotificationError: it was answered with something else, or could not be sent.
        ConfigurationError: `ca` cannot be used.
    """
    parts = urlsplit(address)
    where = f"{parts.scheme}://{parts.netloc}"
    connection = _connection(parts, ca, deadline_seconds)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    began, sent = time.monotonic(), False
    try:
        with ended_after(deadline_seconds, lambda: connection.sock):
            connection.connect()
            connection.request("POST", path, body, {"User-Agent": f"backupd/{__version__}", **headers})
            sent = True
            status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        took = time.monotonic() - began
        raise undelivered(where, error, took=took, deadline=deadline_seconds, sent=sent) from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotificationError(f"{where} answered {_words(status)}", hint=_hint(status))


def _connection(parts: SplitResult, ca: Path | None, seconds: float) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=seconds, context=tls(ca))
    return HTTPConnection(host, parts.port, timeout=seconds)


def _words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _hint(status: int) -> str:
    if 300 <= status < 400:
        return "redirects are not followed: configure the new address"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return "check the address and the token: they may have been changed or revoked"
    return "check its own log; nothing is sent twice"
