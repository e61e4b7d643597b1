"""A machine's signing key: by its public half anybody tells what that machine wrote, and nobody else can write so.

Knows: the key's file, the text of a public key, how something is signed.
"""

import base64
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from backupd.policy.drafts import draft_of, remove_abandoned_drafts
from backupd.vocabulary.errors import Refused, UsageError
from backupd.vocabulary.storage import Signature

KEY_FILE = "signing.key"  # beside the catalogue

_KIND = "backupd-ed25519:"
_KEY_BYTES = 32
_LARGEST_FILE = 4 << 10
_PRIME = 2**255 - 19
_SIDE = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
# Points of small order, by their y (RFC 8032, 5.1): OpenSSL takes a signature of anything that anybody made for them.
_WEAK = frozenset({0, 1, _PRIME - 1, _PRIME, _PRIME + 1, _SIDE, _PRIME - _SIDE})
_HINT = (
    "whoever has this key can forge this machine's backups if its catalogue is lost: if nobody can have read it,"
    " chown it to root and chmod it to 600; otherwise remove it, and backupd creates a new one"
)


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key. Nothing of it is in its `repr`."""

    public: str  # `backupd-ed25519:…`, to be shown to everybody
    _sign: Callable[[bytes], bytes] = field(repr=False)

    def sign(self, meaning: bytes) -> Signature:
        """Of these bytes, which begin with what they are: no signature then passes for one of something else."""
        return Signature(self.public, base64.b64encode(self._sign(meaning)).decode())


def signer_at(path: Path) -> Signer:
    """The key in this file, which is made where there is none; of several processes that make it, one succeeds.

    What one that was killed has left of it, a second name of the key at worst, is gone.

    Raises:
        Refused: somebody else can read it, or it is not ours, or it is no such key; or it could not be made.
    """
    remove_abandoned_drafts(path)
    try:
        try:
            return _signer(path, _read(path))
        except FileNotFoundError:
            _make(path, replacing=False)
            return _signer(path, _read(path))
    except OSError as error:
        raise _unusable(path, error) from error


def new_signer_at(path: Path) -> Signer:
    """A new key is in this file, in the place of what was there.

    Raises:
        Refused: it could not be written.
    """
    try:
        _make(path, replacing=True)
        return _signer(path, _read(path))
    except OSError as error:
        raise _unusable(path, error) from error


def is_signed(signature: Signature, meaning: bytes) -> bool:
    """Whether the holder of the key that the signature names has signed these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = _bytes_of(signature.key)
    try:
        value = base64.b64decode(signature.value, validate=True)
        if public is None:
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(value, meaning)
    except (ValueError, InvalidSignature):  # ValueError: no base64, no point of the curve
        return False
    return True


def require_public(text: str) -> str:
    """The public key, if it is one.

    Raises:
        UsageError: it is none.
    """
    key = text.strip()
    if _bytes_of(key) is None:
        raise UsageError(
            f"{text!r:.100} is not a public key of a machine",
            hint=f"as `backupd identity show` prints it on that machine: {_KIND}…",
        )
    return key


def _bytes_of(public: str) -> bytes | None:
    """None where it is no such key, or is not written as we write it."""
    try:
        found = base64.b64decode(public.removeprefix(_KIND), validate=True)
    except ValueError:
        return None
    if len(found) != _KEY_BYTES or public != _text_of(found):
        return None
    return None if int.from_bytes(found, "little") % 2**255 in _WEAK else found


def _text_of(public: bytes) -> str:
    return f"{_KIND}{base64.b64encode(public).decode()}"


def _signer(path: Path, pem: bytes) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        # Not chained: the cause may carry bytes of the file.
        raise Refused(f"{path} is not a backupd signing key", hint=_HINT) from None
    return Signer(_text_of(key.public_key().public_bytes_raw()), key.sign)


def _read(path: Path) -> bytes:
    """The mode is asked of the file that was opened, not of the name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"the signing key {path} is not a regular file", hint=_HINT)
        if status.st_uid != os.geteuid():
            raise Refused(f"the signing key {path} belongs to user {status.st_uid}, not to backupd's user", hint=_HINT)
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise Refused(f"the signing key {path} can be read or written by others (mode {mode:04o})", hint=_HINT)
        return file.read(_LARGEST_FILE)


def _make(path: Path, *, replacing: bool) -> None:
    """The whole key is durable in the file, or there is none of ours."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with draft_of(path) as (file, draft):
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
        if replacing:
            draft.replace(path)
        else:
            _link_unless_there(draft, path)
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _link_unless_there(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path, follow_symlinks=False)
    except FileExistsError:
        return  # another process was faster: its key counts


def _unusable(path: Path, error: OSError) -> Refused:
    return Refused(
        f"the signing key {path} cannot be used: {(error.strerror or str(error)).lower()}",
        hint="it is stored next to the catalogue, and backups are signed with it: run backupd as root",
    )
