"""Keys for tests, in no file."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backupd.policy.signing import Signer


def signer() -> Signer:
    """A machine's key that is like no other."""
    key = Ed25519PrivateKey.generate()
    return Signer("backupd-ed25519:" + base64.b64encode(key.public_key().public_bytes_raw()).decode(), key.sign)
