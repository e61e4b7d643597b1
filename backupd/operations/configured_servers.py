"""The servers that the configuration names, as whom it says that we are to them."""

import os

from backupd.config import Configuration, HostConfig
from backupd.config.secrets import credentials
from backupd.mysql.login import Login
from backupd.mysql.session import Connect, connector
from backupd.vocabulary.errors import UsageError


def connect_to(configuration: Configuration, host: str, *, became: str = "", hint: str = "") -> Connect:
    """The way to the server of this name. `became` says what it is to us where that is no longer plain.

    Raises:
        UsageError: the configuration has no host of this name (any more).
        ConfigurationError: its password cannot be had.
    """
    if host not in configuration.hosts:
        known = f"configured hosts: {', '.join(configuration.hosts)}; add a table [hosts.NAME] for another server"
        raise UsageError(f"no host {host!r}{became and ', '}{became}", hint=hint or known)
    return connector(login_of(configuration.hosts[host]))


def login_of(host: HostConfig) -> Login:
    """Who we are to this server.

    Raises:
        ConfigurationError: its password cannot be had.
    """
    found = credentials(host, os.environ)
    return Login(
        user=found.user,
        socket=found.socket,
        address=host.address,
        port=host.port,
        password=found.password or "",
        password_source=found.password_source,
        tls_ca=host.tls_ca,
    )
