"""How a machine's manifests are signed and recorded.

Knows: what is signed of a document, and where the catalogue keeps which manifest it has recorded.
"""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from backupd.policy.signing import KEY_FILE, signer_at

Signer = Callable[[Mapping[str, Any]], dict[str, str]]  # the signature of a document, whatever it has for one

_SIGNED = b"backupd manifest 1\0"


def digest_of(body: Mapping[str, Any]) -> str:
    """As anybody can compute it."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def signer_in(folder: Path) -> Signer:
    """The machine's own, whose catalogue lies in this folder."""
    key = signer_at(folder / KEY_FILE)
    return lambda body: _signature(key.public, lambda said: base64.b64decode(key.sign(said).value), body)


def strangers() -> Signer:
    """A key that no machine of ours has."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = "backupd-ed25519:" + base64.b64encode(key.public_key().public_bytes_raw()).decode()
    return lambda body: _signature(public, key.sign, body)


def record(catalogue: Path, run: str, body: Mapping[str, Any]) -> None:
    """The catalogue has this manifest for the run's: as if the machine that made it had recorded it, too."""
    with closing(sqlite3.connect(catalogue)) as connection, connection:
        told = body.get("recipients")
        kept = "UPDATE backups SET manifest_digest = ?, recipients = ? WHERE run_id = ?"
        connection.execute(kept, (digest_of(body), json.dumps(told if isinstance(told, list) else []), run))


def _signature(public: str, sign: Callable[[bytes], bytes], body: Mapping[str, Any]) -> dict[str, str]:
    meaning = _SIGNED + bytes.fromhex(digest_of({**body, "signature": None}))
    return {"key": public, "value": base64.b64encode(sign(meaning)).decode()}
