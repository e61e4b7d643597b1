"""Who we are and who an SFTP server must be: the keys of both, and what is said where they do not fit.

Knows: a private key file that nobody else may read, and a known_hosts file that was written by a person.
"""

from collections.abc import Sequence

import asyncssh

from backupd.config import SftpConfig
from backupd.config.secrets import private_text
from backupd.vocabulary.errors import ConfigurationError, TargetError

_HOST_KEYS = [
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
]


def private_key(config: SftpConfig) -> asyncssh.SSHKey:
    """The private key, which nobody else may read."""
    where = f"targets.{config.name}.key_file"
    try:
        return asyncssh.import_private_key(private_text(where, config.key_file, content="the private key"))
    except ConfigurationError as error:
        raise TargetError(error.message, hint=error.hint) from error
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower():
            fact, hint = (
                "is protected by a passphrase",
                "backupd cannot type it: create a key without a passphrase",
            )
        else:
            fact, hint = "has no private key", "ssh-keygen -t ed25519 makes one; the file without .pub is it"
    raise TargetError(f"{where}: {config.key_file} {fact}", hint=hint)  # not chained: a cause may quote the file


def known_hosts(config: SftpConfig) -> bytes:
    """Never empty: instead of nothing asyncssh would take the known_hosts of the user that we are."""
    try:
        known = config.known_hosts.read_bytes()
    except OSError as error:
        raise TargetError(
            f"targets.{config.name}.known_hosts: cannot read {config.known_hosts}: {error.strerror}",
            hint=_how_to_know(config),
        ) from error
    return known or b"\n"


def host_key_algorithms(config: SftpConfig, known: bytes) -> Sequence[str]:
    """Those of the keys that we know first, so that a server with several keys shows one of these.

    The others follow: a server that has none of ours is then seen to be another one, instead of hanging up.
    """
    keys, authorities, *_ = asyncssh.match_known_hosts(known, config.address, "", config.port)
    if authorities or not keys:
        return ()
    ours = {algorithm for key in keys for algorithm in key.sig_algorithms}
    return sorted(_HOST_KEYS, key=lambda algorithm: algorithm.encode() not in ours)


def unknown_server(config: SftpConfig, known: bytes, error: asyncssh.DisconnectError) -> TargetError:
    """The server's key is not one that we were told to trust."""
    where = f"{config.address}:{config.port}"
    if "revoked" in error.reason:
        return TargetError(
            f"the host key of {where} is revoked in {config.known_hosts}", hint="ask that machine's administrator"
        )
    keys, authorities, *_ = asyncssh.match_known_hosts(known, config.address, "", config.port)
    if not keys and not authorities:
        return TargetError(f"{config.known_hosts} does not know {where}", hint=_how_to_know(config))
    if isinstance(error, asyncssh.HostKeyNotVerifiable) or "host key" in error.reason:
        return TargetError(
            f"{where} shows a different host key than {config.known_hosts} has",
            hint="this may be an attack; ask that machine's administrator before you change the file",
        )
    return TargetError(f"could not agree on encryption with {where}: {error.reason}", hint="is its sshd too old?")


def _how_to_know(config: SftpConfig) -> str:
    port = "" if config.port == 22 else f"-p {config.port} "
    return (
        f"ssh-keyscan {port}{config.address} >> {config.known_hosts}, and compare `ssh-keygen -lf` of that file with"
        " `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on that machine"
    )
