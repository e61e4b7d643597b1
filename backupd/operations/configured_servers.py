"""The servers that the configuration names, as whom it says that we are to them."""

import os

from backupd.config import Configuration, HostConfig
from backupd.config.secrets import credentials
from backupd.mysql.login import Login
from backupd.mysql.refusals import StatementError
from backupd.mysql.session import ANSWER_SECONDS, Connect, Session, connector
from backupd.vocabulary.errors import ConfigurationError, ServerError, UsageError


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


def connector_anew(host: HostConfig) -> Connect:
    """What opens sessions as whom the host's table says each time: a password is changed while an archive is at work.

    Raises, when it is called:
        ServerError: its file cannot be read, as while it is replaced.
        ConfigurationError: the password cannot be had, or is refused, and is as old as this process: the next one may
            have another.
    """

    def connect(*, answer_seconds: float = ANSWER_SECONDS) -> Session:
        login = login_anew(host)
        try:
            return Session.open(login, answer_seconds=answer_seconds)
        except StatementError as error:
            if error.login_refused and _is_the_process_s(host):
                raise ConfigurationError(error.message, hint=error.hint) from error
            raise

    return connect


def login_anew(host: HostConfig) -> Login:
    """Who we are to this server by now.

    Raises:
        ServerError: the file that has the password cannot be read, as while it is replaced.
        ConfigurationError: the password cannot be had, and is as old as this process.
    """
    try:
        return login_of(host)
    except ConfigurationError as error:
        if _is_the_process_s(host):
            raise
        raise ServerError(error.message, hint=error.hint) from error


def _is_the_process_s(host: HostConfig) -> bool:
    """The password is as old as this process, as a variable of the environment and a unit's credential are."""
    return host.password_env is not None or host.password_credential is not None
