"""JSON documents from strangers as typed values, and values as the documents that they are written as.

Knows: the types that documents are made of (dataclasses of texts, numbers, instants and each other), what is refused in
each, what of a document its digest is of. Refuses to know which documents there are: each is a `DocumentKind`.

What is there must be whole: a key that is missing or of another type is a fault. So is a text with a control
character, unless it is `Prose`: names go into lines of files that servers read, and of terminals. So is a name longer
than any path, and an instant of no year that the document can have. Keys that are not known are ignored. An instant is
in UTC once it is read: what else Python takes as an offset, one with seconds, others cannot read again.
"""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.escaping import Prose, is_one_line
from backupd.vocabulary.instants import is_reckonable
from backupd.vocabulary.units import size_words

_LONGEST = 4096  # characters of a name: Linux's PATH_MAX


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """What all documents of one kind have in common, and how people are told of a fault in one."""

    name: str  # in sentences: "manifest"
    major: int  # of its schema
    most_bytes: int
    most_values: int  # they, and no text, are what costs memory once it is read
    damaged_hint: str
    unknown_hint: str  # where something other than backupd wrote it
    newer_hint: str  # where a newer backupd did
    years: range = range(2000, 3000)  # of instants: those that have backups
    with_defaults: bool = False  # a field that has a default may be missing: of documents that nobody keeps

    def require_modest(self, size: int, values: int = 0) -> None:
        """Raise where a document of so many bytes and values is none that was ever written.

        Raises:
            VerificationError: it is not.
        """
        if size > self.most_bytes or values > self.most_values:
            large = f"{size_words(self.most_bytes)}, or has more than {self.most_values} values"
            raise VerificationError(
                f"the {self.name} is larger than {large}: backupd never writes one that large", hint=self.damaged_hint
            )

    def parsed(self, text: str | bytes | bytearray) -> dict[str, Any]:
        """The object that the text is, no key of which occurs twice.

        Raises:
            VerificationError: it is none, or too large.
        """
        try:
            text = text if isinstance(text, str) else text.decode()
            self.require_modest(len(text), sum(map(text.count, ",[{")))
            body = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:  # ValueError: JSONDecodeError, UnicodeDecodeError, our own
            raise VerificationError(f"the {self.name} cannot be parsed: {error}", hint=self.damaged_hint) from error
        if not isinstance(body, dict):
            raise VerificationError(
                f"the {self.name} cannot be parsed: it is not a JSON object", hint=self.damaged_hint
            )
        return body

    def require_major(self, schema: object) -> None:
        """Raise where the document's `schema` is of another major. A newer minor only adds what can be ignored.

        Raises:
            Unreadable: it is of a newer one; or it is no schema.
        """
        match schema:
            case {"major": int(major), "minor": int(minor)} if type(major) is type(minor) is int:
                if major > self.major:
                    raise Unreadable(
                        f"the {self.name} was written by a newer backupd: its schema is {major}.{minor}, this one"
                        f" supports {self.major}",
                        hint=self.newer_hint,
                    )
                if major == self.major:
                    return
        raise Unreadable(f"the {self.name} has no valid schema: {schema!r:.80}", hint=self.unknown_hint)

    def typed(self, wanted: Any, value: Any, where: str) -> Any:
        """The value that the annotation `wanted` asks for, made of what JSON has; `where` names it in sentences.

        Raises:
            Unreadable: something is missing, of another type, or no proper name.
        """
        origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
        if origin in (types.UnionType, typing.Union):
            inner = next(argument for argument in arguments if argument is not types.NoneType)
            return None if value is None else self.typed(inner, value, where)
        if origin is tuple and isinstance(value, list):
            return self._tuple(arguments, value, where)
        if origin is Mapping and isinstance(value, dict):
            keys = {key: self.typed(arguments[0], key, f"{where}'s key") for key in value}
            return {keys[key]: self.typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
        if dataclasses.is_dataclass(wanted) and isinstance(value, dict):
            return self._dataclass(wanted, value, where)
        if wanted == Prose and type(value) is str:
            return value
        if wanted in (str, int, bool, float) and type(value) is wanted and _is_proper(value):
            return value
        if wanted is float and type(value) is int and _is_proper(value):  # as other writers of JSON put a whole number
            return float(value)
        if isinstance(value, str) and isinstance(wanted, type):
            return self._text(wanted, value, where)
        raise self.invalid(value, where)

    def invalid(self, value: object, where: str) -> Unreadable:
        """The fault of a value that cannot be there, to be raised."""
        return Unreadable(f"the {self.name} has no valid {where}: {value!r:.80}", hint=self.unknown_hint)

    def _tuple(self, arguments: tuple[Any, ...], value: list[Any], where: str) -> tuple[Any, ...]:
        kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
        if len(kinds) != len(value):
            raise Unreadable(
                f"the {self.name}'s {where} has {len(value)} parts instead of {len(kinds)}", hint=self.unknown_hint
            )
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(self.typed(kind, item, f"{where}[{i}]") for i, (kind, item) in pairs)

    def _dataclass(self, wanted: Any, value: dict[str, Any], where: str) -> Any:
        """Every field of the major's first minor must be there; what a minor after ours added is ignored."""
        hints = _hints_of(wanted)
        missing = hints.keys() - value.keys()
        if missing and (lacking := missing - self._may_lack(wanted)):
            raise Unreadable(f"the {self.name} lacks {where}.{min(lacking)}", hint=self.unknown_hint)
        return wanted(
            **{key: self.typed(hint, value[key], f"{where}.{key}") for key, hint in hints.items() if key in value}
        )

    def _may_lack(self, wanted: Any) -> set[str]:
        return _with_defaults(wanted) if self.with_defaults else _added_by_minors(wanted)

    def _text(self, wanted: type, value: str, where: str) -> Any:
        try:
            if wanted is datetime:
                instant = datetime.fromisoformat(value)
                if is_reckonable(instant, years=self.years):
                    return instant.astimezone(UTC)
            elif issubclass(wanted, Path | StrEnum) and _is_proper(value):
                return wanted(value)
        except ValueError:
            pass
        raise self.invalid(value, where)


def plain(value: Any) -> Any:
    """What JSON has no kind for, one level deep: an encoder asks for each as it comes to it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _sorted(getattr(value, field.name)) for field in _written(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a document cannot have a {type(value).__name__}")


def canonical(value: Any) -> str:
    """In one line, the same whatever the order of keys: what digests are of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=plain)


def digests(body: Mapping[str, Any]) -> tuple[str, str]:
    """SHA-256 of the body in one line, of which never more than one object's part is made at a time; and unsigned.

    The second is the one that it would have with `null` as its `signature`.
    """
    found, unsigned = hashlib.sha256(b"{"), hashlib.sha256(b"{")
    for number, key in enumerate(sorted(body)):
        begin = f"{',' * (number > 0)}{canonical(key)}:".encode()
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
        yield canonical(value)
        return
    yield "["
    for number, item in enumerate(value):
        yield "," * (number > 0) + canonical(item)
    yield "]"


def _sorted(value: Any) -> Any:
    return {str(key): value[key] for key in sorted(value)} if isinstance(value, Mapping) else value


def _is_proper(value: object) -> bool:
    """No catalogue keeps a larger number, and nothing is so large; no name is so long, or has several lines.

    A number with a point is finite: what JSON calls `1e999` is read as infinity, which nobody can reckon with.
    """
    if isinstance(value, str):
        return len(value) <= _LONGEST and is_one_line(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < 1 << 63


def _added_by_minors(wanted: Any) -> set[str]:
    """Fields that have a default for documents without them."""
    return {field.name for field in dataclasses.fields(wanted) if "minor" in field.metadata}


def _with_defaults(wanted: Any) -> set[str]:
    none = dataclasses.MISSING
    fields = dataclasses.fields(wanted)
    return {one.name for one in fields if one.default is not none or one.default_factory is not none}


@cache  # a large backup has thousands of frames
def _hints_of(wanted: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(wanted, include_extras=True)
    return {field.name: hints[field.name] for field in _written(wanted)}


def _written(of: Any) -> tuple["dataclasses.Field[Any]", ...]:
    """The fields that are in the document as keys of their own."""
    return tuple(field for field in dataclasses.fields(of) if "apart" not in field.metadata)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
