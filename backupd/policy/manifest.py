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

What is there must be whole: a key that is missing or of another type is a fault, in `run` too. So is a text with a
control character, unless it is `Prose`: names go into lines of files that servers read, and of terminals. So is a name
longer than any path, and an instant of no year that has backups.
"""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any

from backupd.policy.signing import Signer, is_signed
from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.escaping import Prose, is_one_line
from backupd.vocabulary.storage import Manifest

MAJOR, MINOR = 1, 2

MOST_BYTES = 32 << 20  # of a document: frames of 11 TiB are as much
_MOST_VALUES = 1 << 20  # in it: five for each frame. They, and no text, are what costs memory once it is read

_LONGEST = 4096  # characters of a name: Linux's PATH_MAX
_YEARS = range(2000, 3000)  # of instants: whatever is reckoned with them stays one

_SIGNED = b"backupd manifest 1\0"  # before the digest that is signed: such a signature is of nothing else

_HINT = "it was damaged or changed on the target; restore another backup"
_UNKNOWN_HINT = "something other than backupd wrote it: restore another backup"


def to_text(manifest: Manifest) -> str:
    """The document that is stored, ending with a line feed."""
    body = _body(manifest)
    text = StringIO()  # of a large backup's frames there are half a million lines: never a list of them
    text.writelines(json.JSONEncoder(indent=2, default=_plain).iterencode({**body, "digest": _digest(body)}))
    text.write("\n")
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
        _require_modest(len(found))
    return from_text(found)


def _require_modest(size: int, values: int = 0) -> None:
    if size > MOST_BYTES or values > _MOST_VALUES:
        raise VerificationError(
            f"the manifest is larger than {MOST_BYTES >> 20} MiB, or has more than {_MOST_VALUES} values: backupd"
            f" never writes one that large",
            hint=_HINT,
        )


def from_text(text: str | bytes | bytearray) -> Manifest:
    """What was written, as far as this backupd knows it.

    Raises:
        VerificationError: it is not JSON, or was changed after it was written or signed.
        Unreadable: it is as it was written, and a newer backupd wrote it, or it has a missing or mistyped key, or a
            name that is no single line; or it says that datadir or binlog lie outside of what is restored, where a live
            server's may be.
    """
    body = _document(text)
    digest = body.pop("digest", None)
    found, unsigned = _digests(body)
    if digest != found:
        raise VerificationError("the manifest was changed after it was written: its digest differs", hint=_HINT)
    _require_major(body.pop("schema", None))
    manifest = _typed(Manifest, body, "manifest")
    assert isinstance(manifest, Manifest)
    _require_inside("datadir", manifest.datadir)
    _require_inside("binlog", manifest.binlog or "")
    if manifest.signature is not None and not is_signed(manifest.signature, _SIGNED + bytes.fromhex(unsigned)):
        raise VerificationError("the manifest was changed after it was signed: its signature is wrong", hint=_HINT)
    return replace(manifest, digest=found)


def _document(text: str | bytes | bytearray) -> dict[str, Any]:
    try:
        text = text if isinstance(text, str) else text.decode()
        _require_modest(len(text), sum(map(text.count, ",[{")))
        body = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: JSONDecodeError, UnicodeDecodeError, our own
        raise VerificationError(f"the manifest cannot be parsed: {error}", hint=_HINT) from error
    if not isinstance(body, dict):
        raise VerificationError("the manifest cannot be parsed: it is not a JSON object", hint=_HINT)
    return body


def _require_major(schema: object) -> None:
    """A newer minor only adds what can be ignored."""
    match schema:
        case {"major": int(major), "minor": int(minor)} if type(major) is type(minor) is int and major > MAJOR:
            raise Unreadable(
                f"the manifest was written by a newer backupd: its schema is {major}.{minor}, this one supports"
                f" {MAJOR}",
                hint="use that newer backupd to restore or verify this backup; nothing is wrong with it",
            )
        case {"major": int(major), "minor": int(minor)} if type(major) is type(minor) is int and major == MAJOR:
            return
        case _:
            raise Unreadable(f"the manifest has no valid schema: {schema!r:.80}", hint=_UNKNOWN_HINT)


def _require_inside(key: str, path: str) -> None:
    named = PurePosixPath(path)
    if named.is_absolute() or ".." in named.parts:
        raise Unreadable(f"the manifest's {key} points outside of the backup: {path!r}", hint=_UNKNOWN_HINT)


def _body(manifest: Manifest) -> dict[str, Any]:
    """What the digest is of."""
    return {"schema": {"major": MAJOR, "minor": MINOR}, **_plain(manifest)}


def _digest(body: Mapping[str, Any]) -> str:
    return _digests(body)[0]


def _digests(body: Mapping[str, Any]) -> tuple[str, str]:
    """Of the body in one line, of which never more than one object's part is made at a time; and with no signature."""
    found, unsigned = hashlib.sha256(b"{"), hashlib.sha256(b"{")
    for number, key in enumerate(sorted(body)):
        begin = f"{',' * (number > 0)}{_canonical(key)}:".encode()
        found.update(begin)
        unsigned.update(begin)
        for piece in _pieces(body[key]):
            found.update(encoded := piece.encode())
            if key != "signature":
                unsigned.update(encoded)
        if key == "signature":
            unsigned.update(b"null")
    found.update(b"}")
    unsigned.update(b"}")
    return found.hexdigest(), unsigned.hexdigest()


def _pieces(value: Any) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield _canonical(value)
        return
    yield "["
    for number, item in enumerate(value):
        yield "," * (number > 0) + _canonical(item)
    yield "]"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no kind for, one level deep: the encoder asks for each as it comes to it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _sorted(getattr(value, field.name)) for field in _written(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a manifest cannot have a {type(value).__name__}")


def _sorted(value: Any) -> Any:
    return {str(key): value[key] for key in sorted(value)} if isinstance(value, Mapping) else value


def _typed(wanted: Any, value: Any, where: str) -> Any:
    """The value that the annotation `wanted` asks for, made of what JSON has."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _typed(next(a for a in arguments if a is not types.NoneType), value, where)
    if origin is tuple and isinstance(value, list):
        return _typed_tuple(arguments, value, where)
    if origin is Mapping and isinstance(value, dict):
        keys = {key: _typed(arguments[0], key, f"{where}'s key") for key in value}
        return {keys[key]: _typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(wanted) and isinstance(value, dict):
        return _typed_dataclass(wanted, value, where)
    if wanted == Prose and type(value) is str:
        return value
    if wanted in (str, int, bool, float) and type(value) is wanted and _is_proper(value):
        return value
    if wanted is float and type(value) is int:  # as other writers of JSON put a whole number
        return float(value)
    if isinstance(value, str) and isinstance(wanted, type):
        return _typed_text(wanted, value, where)
    raise Unreadable(f"the manifest has no valid {where}: {value!r:.80}", hint=_UNKNOWN_HINT)


def _is_proper(value: object) -> bool:
    """No catalogue keeps a larger number, and nothing is so large; no name is so long, or has several lines."""
    if isinstance(value, str):
        return len(value) <= _LONGEST and is_one_line(value)
    return not isinstance(value, int) or abs(value) < 1 << 63


def _typed_tuple(arguments: tuple[Any, ...], value: list[Any], where: str) -> tuple[Any, ...]:
    kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
    if len(kinds) != len(value):
        raise Unreadable(f"the manifest's {where} has {len(value)} parts instead of {len(kinds)}", hint=_UNKNOWN_HINT)
    return tuple(_typed(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _typed_dataclass(wanted: Any, value: dict[str, Any], where: str) -> Any:
    """Every field of the major's first minor must be there; what a minor after ours added is ignored."""
    hints = _hints_of(wanted)
    missing = hints.keys() - value.keys()
    if missing and (lacking := missing - _added_by_minors(wanted)):
        raise Unreadable(f"the manifest lacks {where}.{min(lacking)}", hint=_UNKNOWN_HINT)
    there = {name: _typed(hint, value[name], f"{where}.{name}") for name, hint in hints.items() if name in value}
    return wanted(**there)


def _added_by_minors(wanted: Any) -> set[str]:
    """Fields that have a default for documents without them."""
    return {field.name for field in dataclasses.fields(wanted) if "minor" in field.metadata}


@cache  # a large backup has thousands of frames
def _hints_of(wanted: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(wanted, include_extras=True)
    return {field.name: hints[field.name] for field in _written(wanted)}


def _written(of: Any) -> tuple["dataclasses.Field[Any]", ...]:
    """The fields that are in the document as keys of their own."""
    return tuple(field for field in dataclasses.fields(of) if "apart" not in field.metadata)


def _typed_text(wanted: type, value: str, where: str) -> Any:
    try:
        if wanted is datetime:
            instant = datetime.fromisoformat(value)
            if instant.tzinfo is not None and instant.year in _YEARS:
                return instant
        elif issubclass(wanted, Path | StrEnum) and _is_proper(value):
            return wanted(value)
    except ValueError:
        pass
    raise Unreadable(f"the manifest has no valid {where}: {value!r:.80}", hint=_UNKNOWN_HINT)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
