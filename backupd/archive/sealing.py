"""Bytes to an age file that its recipients can read: the writing half of age-encryption.org/v1, X25519 recipients.

Knows: the format's header and its chunks of 64 KiB (C2SP's age.md). Refuses to know a key that opens anything: pyrage
does the reading, so every restore checks this half against another implementation. No cryptography is done here:
X25519, ChaCha20-Poly1305 and HKDF are OpenSSL's, by the `cryptography` package.

Why not pyrage here too: measured (pyrage 1.4.0, cryptography 50.0.2, CPython 3.11, one AMD EPYC core), it encrypts
280 MB/s while it holds the interpreter's lock, for which the threads that read, hash and compress must wait, and two
streams are no faster than one. OpenSSL's does 4300 MB/s in calls of 64 KiB, for which the lock is given up.
"""

import hmac
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from backupd.vocabulary.errors import ConfigurationError

_CHUNK_BYTES = 64 << 10
_COUNTER_BYTES = 11
_NONCE_BYTES = _TAG_BYTES = 16
LARGEST_HEADER = 128 << 10  # bytes, of 1,300 recipients: who reads it tries its own key on each
_FIRST_LINE = b"age-encryption.org/v1\n"


class Encryptor:
    """Plain bytes in, one age file out that each of these recipients can read. A station.

    Raises:
        ConfigurationError: one of them is no recipient, or they are too many.
    """

    def __init__(self, recipients: Sequence[str]) -> None:
        if not recipients:
            raise ValueError("nobody could read it")
        file_key, nonce = os.urandom(16), os.urandom(_NONCE_BYTES)
        header = _header(file_key, [_key(text) for text in recipients])
        if len(header) > LARGEST_HEADER:
            raise ConfigurationError(
                f"{len(recipients)} recipients are more than the 1,300 that one backup may have",
                hint="name a few: whoever has one of their identities can encrypt a copy for others",
            )
        self._ready = [header, nonce]
        self._cipher = ChaCha20Poly1305(_derived(file_key, salt=nonce, info=b"payload"))
        self._held = b""  # the last chunk says that it is: a whole one waits for what follows
        self._chunks = 0

    def take(self, block: bytes) -> Iterator[bytes]:
        """What the block becomes, but for its last bytes."""
        view = memoryview(self._held + block)
        done, ready = 0, self._ready
        while done + _CHUNK_BYTES < len(view):
            ready.append(self._sealed(view[done : done + _CHUNK_BYTES], last=False))
            done += _CHUNK_BYTES
        self._held, self._ready = bytes(view[done:]), []
        if ready:
            yield b"".join(ready)

    def end(self) -> Iterator[bytes]:
        """The last chunk; empty only where the whole was."""
        yield b"".join([*self._ready, self._sealed(self._held, last=True)])

    def _sealed(self, chunk: bytes | memoryview, *, last: bool) -> bytes:
        nonce = self._chunks.to_bytes(_COUNTER_BYTES, "big") + bytes([last])
        self._chunks += 1
        return self._cipher.encrypt(nonce, chunk, None)


def at_most_sealed(size: int) -> int:
    """Bytes that an age file of so many does not exceed, whoever reads it."""
    return LARGEST_HEADER + _NONCE_BYTES + size + (size // _CHUNK_BYTES + 1) * _TAG_BYTES


def _header(file_key: bytes, recipients: Sequence[bytes]) -> bytes:
    """The file's key, once for each recipient, and a code that nobody changed the list."""
    lines = b"".join([_FIRST_LINE, *(_stanza(file_key, recipient) for recipient in recipients), b"---"])
    code = hmac.digest(_derived(file_key, salt=b"", info=b"header"), lines, "sha256")
    return lines + b" " + _base64(code) + b"\n"


def _stanza(file_key: bytes, recipient: bytes) -> bytes:
    ours = X25519PrivateKey.generate()
    share = ours.public_key().public_bytes_raw()
    secret = ours.exchange(X25519PublicKey.from_public_bytes(recipient))
    wrapping = _derived(secret, salt=share + recipient, info=b"age-encryption.org/v1/X25519")
    wrapped = ChaCha20Poly1305(wrapping).encrypt(bytes(12), file_key, None)
    return b"-> X25519 " + _base64(share) + b"\n" + _base64(wrapped) + b"\n"


def _key(recipient: str) -> bytes:
    from backupd.config.recipients import is_anybodys, public_key

    key = public_key(recipient)
    if key is None or is_anybodys(key):  # not quoted: somebody may have named an identity
        raise ConfigurationError("this is not an age recipient", hint="see `backupd config check`")
    return key


def _derived(key: bytes, *, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(key)


def _base64(content: bytes) -> bytes:
    return b64encode(content).rstrip(b"=")
