"""Who we are to which server, and what a connection is asked for so that it is safe and never waits for ever.

Knows: sockets, addresses, TLS, time limits.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymysql.constants import CLIENT
from pymysql.converters import conversions

from backupd.config.exposure import is_loopback
from backupd.host.authorities import system_tls
from backupd.mysql.authentication import WITHOUT_TLS

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
    tls_ca: Path | None = None  # certificates to trust beside the system's, on loopback instead of them; TCP only

    @property
    def where(self) -> str:
        """The server in words: its socket, or address and port."""
        return str(self.socket) if self.socket else f"{self.address or 'localhost'}:{self.port}"

    @property
    def needs_tls(self) -> bool:
        """Only the socket does without TLS, and loopback where no certificate is named."""
        return self.socket is None and (self.tls_ca is not None or not self._on_loopback)

    @property
    def _on_loopback(self) -> bool:
        return self.address is None or is_loopback(self.address)


def connection_options(login: Login, answer_seconds: float) -> dict[str, Any]:
    """What pymysql is asked for; pure but for reading certificates.

    TLS: pymysql 1.2 would otherwise "prefer" it, verifying nothing, and `ssl_verify_identity` without a CA does not
    check the host name; so it gets a context of ours where TLS is needed and none where it is not. Over TCP without it
    only a challenge is answered: see `authentication`.
    """
    options: dict[str, Any] = {
        "user": login.user,
        "password": login.password.encode(),
        "autocommit": True,
        "charset": "utf8mb4",
        "connect_timeout": min(CONNECT_SECONDS, answer_seconds),
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
    if login.needs_tls:
        return options | {"ssl": _trusted(login)}
    options["ssl_disabled"] = True
    return options if login.socket is not None else options | {"auth_plugin_map": WITHOUT_TLS}


def _trusted(login: Login) -> ssl.SSLContext:
    """On loopback the named authority alone is trusted, whatever name it vouches for: servers sign for themselves, and
    their certificates bear no name (MySQL's `MySQL_Server_9.7.4_Auto_Generated_Server_Certificate`).
    """
    if login._on_loopback:
        context = ssl.create_default_context(cafile=login.tls_ca)
        context.check_hostname = False
        return context
    context = system_tls()  # verifies the certificate and the host name
    if login.tls_ca is not None:
        context.load_verify_locations(cafile=login.tls_ca)
    return context
