"""A document's signature by OpenSSH: `ssh-keygen -Y sign` makes it, and the reader's own `-Y verify` checks it.

Knows: a private key file that nobody else may read, and what is typed to check a signature (ssh-keygen(1)). Refuses to
know a key's text: the program reads it.
"""

import base64
import binascii
import hashlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from backupd.config.secrets import private_text
from backupd.host.process import run
from backupd.vocabulary.errors import CommandError, ConfigurationError

NAMESPACE = "backupd-evidence"  # so that no signature by the same key of something else passes for one of these
PRINCIPAL = "backupd"
_SECONDS = 60.0
_PUBLIC = re.compile(r"(?P<key>[a-z0-9@.-]+ (?P<blob>[A-Za-z0-9+/]+={0,2}))( .*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DocumentKey:
    """A key that signs; `public` is its public half as OpenSSH writes it, without a comment."""

    path: Path
    public: str
    fingerprint: str  # as `ssh-keygen -l` shows it

    def sign(self, text: str) -> str:
        """The signature of this text in UTF-8, to be kept in a file of its own.

        Raises:
            ConfigurationError: ssh-keygen made none.
        """
        argv = ["ssh-keygen", "-Y", "sign", "-f", str(self.path), "-n", NAMESPACE]
        try:
            return run(argv, timeout_seconds=_SECONDS, stdin=text).stdout
        except CommandError as error:
            raise ConfigurationError(f"{self.path} did not sign: {error.message}", hint=_HINT) from error


_HINT = 'ssh-keygen -t ed25519 -N "" -f FILE makes a key; the file without .pub is it'


def document_key(path: Path, *, named: str) -> DocumentKey:
    """The key in this file; `named` is what a person calls the file's place.

    Raises:
        ConfigurationError: it is missing, no regular file, readable by others, protected by a passphrase or no key.
    """
    private_text(named, path, content="the private key")
    try:  # -P "": a key that has a passphrase is refused, and nobody is asked for it
        said = run(["ssh-keygen", "-y", "-P", "", "-f", str(path)], timeout_seconds=_SECONDS).stdout
    except CommandError as error:
        if "passphrase" in error.message:
            fact, hint = "is protected by a passphrase", "backupd cannot type it: make a key without a passphrase"
            raise ConfigurationError(f"{named}: {path} {fact}", hint=hint) from error
        if error.hint:
            raise ConfigurationError(f"{named}: {error.message}", hint=error.hint) from error
        raise ConfigurationError(f"{named}: {path} has no private key that ssh-keygen can read", hint=_HINT) from error
    match = _PUBLIC.fullmatch(said.strip())
    try:
        blob = base64.b64decode(match["blob"] if match else "", validate=True)
    except binascii.Error:
        blob = b""
    if match is None or not blob:
        raise ConfigurationError(f"{named}: ssh-keygen printed no public key of {path}", hint=_HINT)
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return DocumentKey(path, match["key"], f"SHA256:{digest}")


def check_command(document: str) -> str:
    """What is typed to check the signature of a document of this name, beside which it lies."""
    name = shlex.quote(document)
    signature = shlex.quote(f"{document}.sig")
    verify = f"ssh-keygen -Y verify -f allowed_signers -I {PRINCIPAL} -n {NAMESPACE}"
    return f"{verify} -s {signature} < {name}"
