"""A manifest as readable JSON, and back.

Knows: the document's shape (`schema`, the fields of `storage.Manifest`), how it may grow, and how to tell that it was
changed after it was written.

`digest` is the SHA-256 of the rest, serialised with sorted keys and no blanks: the order of keys and the blanks of the
file mean nothing, every value does, those that this backupd does not know too. `signature` is of the digest that the
document would have with `null` in its place, and so of everything else in it. A signature that is there is right, or
the document is not read; whether its key is believed is `trust`'s to say.

How it may grow, for as long as backups live:

- `schema` is `{"major": M, "minor": N}` and `digest` what it is now, in every document there will ever be.
- A minor only adds: keys anywhere, and words (phases, outcomes, layouts) where a field is a text. A reader ignores keys
  that it does not know and keeps such words as they are. A key that a minor adds gets a default for documents without.
- Within a major nothing is removed, renamed, re-meant or of another type, and no restore needs what a minor added.
- Anything else is a new major, as a new word for what a restore depends on is (`server.flavour`). A reader refuses a
  newer major as that, which is no damage.

What is there must be whole, in `run` too: see `typed_json`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import PurePosixPath
from typing import Any

from backupd.policy.signing import Signer, is_signed
from backupd.policy.typed_json import DocumentKind, digests, plain
from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.units import size_words

MAJOR, MINOR = 1, 3

MOST_BYTES = 32 << 20  # of a document: its reader holds it, and what was made of it, in memory
MOST_FRAMES = 1 << 17  # of a backup, and in each of its objects one more: they take three quarters of that
MOST_OBJECTS = 1 << 13  # of a backup
_MOST_VALUES = 1 << 20  # in it: five for each frame

_SIGNED = b"backupd manifest 1\0"  # before the digest that is signed: such a signature is of nothing else

_HINT = "it was damaged or changed on the target; restore another backup"
_UNKNOWN_HINT = "something other than backupd wrote it: restore another backup"

_KIND = DocumentKind(
    name="manifest",
    major=MAJOR,
    most_bytes=MOST_BYTES,
    most_values=_MOST_VALUES,
    damaged_hint=_HINT,
    unknown_hint=_UNKNOWN_HINT,
    newer_hint="use that newer backupd to restore or verify this backup; nothing is wrong with it",
)


def to_text(manifest: Manifest) -> str:
    """The document that is stored, ending with a line feed.

    Raises:
        VerificationError: nobody could read it back.
    """
    body = _body(manifest)
    text = StringIO()  # of a large backup's frames there are half a million lines: never a list of them
    text.writelines(json.JSONEncoder(indent=2, default=plain).iterencode({**body, "digest": _digest(body)}))
    text.write("\n")
    if text.tell() > MOST_BYTES:
        raise VerificationError(
            f"the manifest would be larger than the {size_words(MOST_BYTES)} that are read of one: the backup has"
            f" {len(manifest.objects)} objects",
            hint="raise copy.object_size where it is set",
        )
    return text.getvalue()


def signed(manifest: Manifest, signer: Signer) -> Manifest:
    """The same with its signature, and the digest that its document has with it."""
    unsigned = _digest(_body(replace(manifest, signature=None)))
    found = replace(manifest, signature=signer.sign(_SIGNED + bytes.fromhex(unsigned)))
    return replace(found, digest=_digest(_body(found)))


def to_publish(manifest: Manifest) -> Manifest:
    """A manifest that was read, as it is when this backupd writes it again; what was signed stays as it is.

    One that an earlier backupd did not sign has another digest then: it is unknown.

    Raises:
        Unreadable: a newer backupd wrote something into it that this one would lose, and its signature with it.
    """
    if manifest.signature is None:
        return replace(manifest, digest="")
    if _digest(_body(manifest)) != manifest.digest:
        raise Unreadable(
            f"the manifest of run {manifest.run_id} was written by a newer backupd: this one cannot write it unchanged",
            hint="use that newer backupd; nothing is wrong with the backup",
        )
    return manifest


def from_chunks(chunks: Iterable[bytes | memoryview]) -> Manifest:
    """What these bytes of a storage are; of more than any manifest has, no more than that is read. See `from_text`.

    Raises:
        VerificationError: there are more; or it is no manifest.
    """
    found = bytearray()
    for chunk in chunks:
        found += chunk
        _KIND.require_modest(len(found))
    return from_text(found)


def from_text(text: str | bytes | bytearray) -> Manifest:
    """What was written, as far as this backupd knows it.

    Raises:
        VerificationError: it is not JSON, or was changed after it was written or signed.
        Unreadable: it is as it was written, and a newer backupd wrote it, or it has a missing or mistyped key, or a
            name that is no single line; or it says that datadir or binlog lie outside of what is restored, where a live
            server's may be.
    """
    body = _KIND.parsed(text)
    digest = body.pop("digest", None)
    found, unsigned = digests(body)
    if digest != found:
        raise VerificationError("the manifest was changed after it was written: its digest differs", hint=_HINT)
    _KIND.require_major(body.pop("schema", None))
    manifest = _KIND.typed(Manifest, body, "manifest")
    assert isinstance(manifest, Manifest)
    _require_inside("datadir", manifest.datadir)
    _require_inside("binlog", manifest.binlog or "")
    if manifest.signature is not None and not is_signed(manifest.signature, _SIGNED + bytes.fromhex(unsigned)):
        raise VerificationError("the manifest was changed after it was signed: its signature is wrong", hint=_HINT)
    return replace(manifest, digest=found)


def _require_inside(key: str, path: str) -> None:
    named = PurePosixPath(path)
    if named.is_absolute() or ".." in named.parts:
        raise Unreadable(f"the manifest's {key} points outside of the backup: {path!r}", hint=_UNKNOWN_HINT)


def _body(manifest: Manifest) -> dict[str, Any]:
    """What the digest is of."""
    return {"schema": {"major": MAJOR, "minor": MINOR}, **plain(manifest)}


def _digest(body: Mapping[str, Any]) -> str:
    return digests(body)[0]
