"""A manifest as readable JSON, and back.

Knows: the document's shape (`"schema": 1`, the fields of `model.Manifest`) and how to tell that it was changed after
it was written. Refuses to know where it lies.

`digest` is the SHA-256 of the rest, serialised with sorted keys and no blanks: the order of keys and the blanks of the
file mean nothing, every value does.
"""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from backupd.errors import VerificationError
from backupd.model import Manifest

SCHEMA = 1

_HINT = "it was damaged or changed on the target, or written by a newer backupd; restore another backup"


def to_text(manifest: Manifest) -> str:
    """The document that is stored, ending with a line feed."""
    body = {"schema": SCHEMA, **_plain(manifest)}
    return json.dumps({**body, "digest": _digest(body)}, indent=2) + "\n"


def from_text(text: str | bytes) -> Manifest:
    """What was written.

    Raises:
        VerificationError: it is not JSON, has an unknown schema, a missing, unknown or mistyped key, or was changed; or
            it says that datadir or binlog lie outside of what is restored, where a live server's may be.
    """
    try:
        body = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: JSONDecodeError, UnicodeDecodeError, our own
        raise VerificationError(f"the manifest cannot be understood: {error}", hint=_HINT) from error
    if not isinstance(body, dict):
        raise VerificationError("the manifest cannot be understood: it is no JSON object", hint=_HINT)
    schema, digest = body.get("schema"), body.pop("digest", None)
    if schema != SCHEMA or isinstance(schema, bool):
        raise VerificationError(f"the manifest has the unknown schema {schema!r}; this backupd knows 1", hint=_HINT)
    if digest != _digest(body):
        raise VerificationError("the manifest was changed after it was written: its digest differs", hint=_HINT)
    del body["schema"]
    manifest = _typed(Manifest, body, "manifest")
    assert isinstance(manifest, Manifest)
    _require_inside("datadir", manifest.datadir)
    _require_inside("binlog", manifest.binlog or "")
    return manifest


def _require_inside(key: str, path: str) -> None:
    named = PurePosixPath(path)
    if named.is_absolute() or ".." in named.parts:
        raise VerificationError(f"the manifest's {key} leads out of the backup: {path!r}", hint=_HINT)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A frozen value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path | StrEnum) else value


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
    if wanted in (str, int, bool, float) and type(value) is wanted:
        return value
    if wanted is float and type(value) is int:  # as other writers of JSON put a whole number
        return float(value)
    if isinstance(value, str) and isinstance(wanted, type):
        return _typed_text(wanted, value, where)
    raise VerificationError(f"the manifest has no proper {where}: {value!r:.80}", hint=_HINT)


def _typed_tuple(arguments: tuple[Any, ...], value: list[Any], where: str) -> tuple[Any, ...]:
    kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
    if len(kinds) != len(value):
        raise VerificationError(f"the manifest's {where} has {len(value)} parts instead of {len(kinds)}", hint=_HINT)
    return tuple(_typed(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _typed_dataclass(wanted: Any, value: dict[str, Any], where: str) -> Any:
    """Fields with a default may be missing, so that an older manifest can be read; unknown ones may not be there."""
    hints, needed = _fields_of(wanted)
    for fault, names in (("lacks", needed - set(value)), ("has the unknown key", set(value) - set(hints))):
        if names:
            raise VerificationError(f"the manifest {fault} {where}.{min(names)}", hint=_HINT)
    return wanted(**{name: _typed(hints[name], item, f"{where}.{name}") for name, item in value.items()})


@cache  # a large backup has thousands of frames
def _fields_of(wanted: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The annotations of a dataclass, and the names of the fields that have no default."""
    fields = dataclasses.fields(wanted)
    needed = (f for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
    return typing.get_type_hints(wanted), frozenset(field.name for field in needed)


def _typed_text(wanted: type, value: str, where: str) -> Any:
    try:
        if wanted is datetime:
            instant = datetime.fromisoformat(value)
            if instant.tzinfo is not None:
                return instant
        elif issubclass(wanted, Path | StrEnum):
            return wanted(value)
    except ValueError:
        pass
    raise VerificationError(f"the manifest has no proper {where}: {value!r:.80}", hint=_HINT)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
