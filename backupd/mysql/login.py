"""Who we are to which server, and what a connection is asked for so that it is safe and never waits for ever.

Knows: sockets, addresses, TLS, time limits. Refuses to know where a password came from, beyond words for a hint.
"""

import contextlib
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymysql.constants import CLIENT
from pymysql.converters import conversions

CONNECT_SECONDS = 10.0

_ENCODERS = {kind: convert for kind, convert in conversions.items() if isinstance(kind, type)}


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are to which server. The password is never shown; `password_source` is, so that a hint can name it."""

    user: str
    socket: Path | None = None
    address: str | None = None
    port: int = 3306
    password: str = field(default="", repr=False)
    password_source: str = ""  # "file /etc/backupd/password", "systemd credential db", …
    tls_ca: Path | None = None  # certificates to trust beside the system's; TCP only

    @property
    def where(self) -> str:
        """The server in words: its socket, or address and port."""
        return str(self.socket) if self.socket else f"{self.address or 'localhost'}:{self.port}"

    @property
    def needs_tls(self) -> bool:
        """A password never crosses a network in the clear: only the socket and loopback do without TLS."""
        if self.socket is not None or self.address in (None, "localhost"):
            return False
        with contextlib.suppress(ValueError):
            return not ipaddress.ip_address(str(self.address)).is_loopback
        return True


def connection_options(login: Login, answer_seconds: float) -> dict[str, Any]:
    """What pymysql is asked for; pure but for reading certificates.

    TLS: pymysql 1.2 would otherwise "prefer" it, verifying nothing, and `ssl_verify_identity` without a CA does not
    check the host name; so it gets a context of ours where TLS is needed and none where it is not.
    """
    options: dict[str, Any] = {
        "user": login.user,
        "password": login.password.encode(),
        "autocommit": True,
        "charset": "utf8mb4",
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": answer_seconds,
        "write_timeout": answer_seconds,
        "program_name": "backupd",
        "client_flag": CLIENT.MULTI_STATEMENTS,
        "conv": _ENCODERS,  # no decoders: every value stays text
    }
    if login.socket is not None:
        options["unix_socket"] = str(login.socket)
    else:
        options |= {"host": login.address or "localhost", "port": login.port}
    return options | ({"ssl": _trusted(login.tls_ca)} if login.needs_tls else {"ssl_disabled": True})


def _trusted(ca: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()  # verifies the certificate and the host name
    if ca is not None:
        context.load_verify_locations(cafile=ca)
    return context
