"""Who we are to an SSH server, and who it must be: a key file that nobody else may read, and a known_hosts file.

Knows: how each is read, and what is wrong where they do not fit. No agent, no password and no configuration of a
person's is used. A host key is never accepted because it is new: a person has written it into the file.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncssh

from backupd.config.secrets import private_text
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.escaping import on_one_line

CIPHERS = (  # AES-GCM first: it is in the processor and needs no MAC of its own. asyncssh would begin with ChaCha20
    *("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"),
    *("aes128-ctr", "aes192-ctr", "aes256-ctr"),
)
# The server would choose the group: one that is no group at all, or so large that it keeps us busy, before we know who
# it is. sshd of Debian 10 and RHEL 8, and of RHEL 8 in FIPS mode, have curves and fixed groups as well.
_KEY_EXCHANGES = "-diffie-hellman-group-exchange-*"
# Of every connection that asyncssh makes for us: a key file and nothing else, and nothing of a person's.
CONNECTION: Final[Mapping[str, Any]] = {
    "config": None,
    "agent_path": None,
    "gss_auth": False,
    "gss_kex": False,
    "preferred_auth": ["publickey"],
    "kex_algs": _KEY_EXCHANGES,
    "encryption_algs": CIPHERS,
    "compression_algs": ["none"],
}
_HOST_KEYS = [
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
]


class KnownHosts(asyncssh.SSHKnownHosts):
    """What a known_hosts file says. A server is looked for once: where names are hashed, every line is tried."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._found: dict[tuple[str, str, int | None], Any] = {}

    def match(self, host: str, addr: str, port: int | None) -> Any:
        """As asyncssh has it."""
        server = (host, addr, port)
        if server not in self._found:
            self._found[server] = super().match(host, addr, port)
        return self._found[server]


class KnownHostsFile:
    """A known_hosts file, which is parsed again when it has changed: a company's takes seconds. One thread at a time
    may read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parsed: tuple[tuple[int, ...], KnownHosts] | None = None  # with what it was parsed of

    def read(self) -> KnownHosts:
        """What it says now.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no known_hosts file.
        """
        with self.path.open("rb") as file:
            now = os.fstat(file.fileno())
            identity = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
            if self._parsed is None or self._parsed[0] != identity:
                self._parsed = identity, KnownHosts(file.read().decode())
        return self._parsed[1]


@dataclass(frozen=True, slots=True)
class KnownServer:
    """Where a server is, and the file that says which keys it has."""

    address: str
    port: int
    known_hosts: KnownHostsFile
    named: str  # the configuration's key of that file, for sentences

    def read(self) -> KnownHosts:
        """What the file says. True also where that is nothing: of what is false asyncssh would take the known_hosts of
        the user that we are.

        Raises:
            ConfigurationError: it cannot be read.
        """
        try:
            return self.known_hosts.read()
        except OSError as error:
            raise ConfigurationError(
                f"{self.named}: cannot read {self.known_hosts.path}: {error.strerror}", hint=self._how_to_know()
            ) from error
        except ValueError as error:
            raise ConfigurationError(
                f"{self.named}: cannot read {self.known_hosts.path}: {on_one_line(str(error))}",
                hint="correct that line, or remove it",
            ) from error

    def algorithms(self, known: KnownHosts) -> Sequence[str]:
        """Those of the keys that we know first, so that a server with several keys shows one of these.

        The others follow: a server that has none of ours is then seen to be another one, instead of hanging up.
        """
        keys, authorities, *_ = asyncssh.match_known_hosts(known, self.address, "", self.port)
        if authorities or not keys:
            return ()
        ours = {algorithm for key in keys for algorithm in key.sig_algorithms}
        return sorted(_HOST_KEYS, key=lambda algorithm: algorithm.encode() not in ours)

    def stranger(self, known: KnownHosts, error: asyncssh.DisconnectError) -> tuple[str, str]:
        """The server's key is not one that we were told to trust: what is wrong, and what to do."""
        where = f"{self.address}:{self.port}"
        if "revoked" in error.reason:
            return f"the host key of {where} is revoked in {self.known_hosts.path}", "ask that machine's administrator"
        keys, authorities, *_ = asyncssh.match_known_hosts(known, self.address, "", self.port)
        if not keys and not authorities:
            return f"{self.known_hosts.path} does not know {where}", self._how_to_know()
        if isinstance(error, asyncssh.HostKeyNotVerifiable) or "host key" in error.reason:
            return (
                f"{where} shows a different host key than {self.known_hosts.path} has",
                "this may be an attack; ask that machine's administrator before you change the file",
            )
        return f"could not agree on encryption with {where}: {error.reason}", "is its sshd too old?"

    def _how_to_know(self) -> str:
        port = "" if self.port == 22 else f"-p {self.port} "
        return (
            f"ssh-keyscan {port}{self.address} >> {self.known_hosts.path}, and compare `ssh-keygen -lf` of that file"
            " with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on that machine"
        )


def private_key(path: Path, *, named: str) -> asyncssh.SSHKey:
    """The private key in this file, which nobody else may read; `named` is the configuration's key of it.

    Raises:
        ConfigurationError: there is none, others can read it, or it has a passphrase.
    """
    try:
        return asyncssh.import_private_key(private_text(named, path, content="the private key"))
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower():
            fact, hint = (
                "is protected by a passphrase",
                "backupd cannot type it: create a key without a passphrase",
            )
        else:
            fact, hint = "has no private key", "ssh-keygen -t ed25519 makes one; the file without .pub is it"
    raise ConfigurationError(f"{named}: {path} {fact}", hint=hint)  # not chained: a cause may quote the file
