"""Who we are and who an SFTP server must be, as `host.ssh_trust` has it, of a target's configuration."""

from collections.abc import Sequence

import asyncssh

from backupd.config import SftpConfig
from backupd.host import ssh_trust
from backupd.host.ssh_trust import KnownHosts, KnownHostsFile, KnownServer
from backupd.vocabulary.errors import ConfigurationError, TargetError


def private_key(config: SftpConfig) -> asyncssh.SSHKey:
    """The private key, which nobody else may read.

    Raises:
        TargetError: it cannot be used.
    """
    try:
        return ssh_trust.private_key(config.key_file, named=f"targets.{config.name}.key_file")
    except ConfigurationError as error:
        raise TargetError(error.message, hint=error.hint) from error.__cause__


def known_hosts(config: SftpConfig) -> KnownHosts:
    """What the target's file says.

    Raises:
        TargetError: it cannot be read.
    """
    try:
        return _server(config).read()
    except ConfigurationError as error:
        raise TargetError(error.message, hint=error.hint) from error


def host_key_algorithms(config: SftpConfig, known: KnownHosts) -> Sequence[str]:
    """In which order its host keys are asked for."""
    return _server(config).algorithms(known)


def unknown_server(config: SftpConfig, known: KnownHosts, error: asyncssh.DisconnectError) -> TargetError:
    """The server's key is not one that we were told to trust."""
    fact, hint = _server(config).stranger(known, error)
    return TargetError(fact, hint=hint)


def _server(config: SftpConfig) -> KnownServer:
    file = KnownHostsFile(config.known_hosts)
    return KnownServer(config.address, config.port, file, f"targets.{config.name}.known_hosts")
