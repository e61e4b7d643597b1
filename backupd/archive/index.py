"""What a backup's tar streams hold and where: what lets a single table's files be fetched alone, and what was unpacked
be compared with what was stored.

Knows: the lines of the index object, and that a million of them fit nowhere but compressed. Refuses to know whether a
member's name is harmless: that is checked where a member is unpacked (`unpack`, `members`).

The first line is `{"index":{"major":1,"minor":0}}`. Then, for each object, `{"object":NAME}` and a line for each of its
members, in order. Within a major version a reader passes over lines, keys and kinds that it does not know.
"""

import base64
import binascii
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from backupd.archive.stations import Decompressor
from backupd.vocabulary.errors import Unreadable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INDEX_OBJECT = "index.jsonl.zst"
LARGEST_ID = (1 << 32) - 2  # the one after it means nobody (chown(2))
LARGEST_FILE = (1 << 63) - 1

_MAJOR, _MINOR = 1, 0
_LINE_BYTES = 8 << 20  # names and attributes of one member are 1 MiB at most (`members`), written as JSON
_LINE_VALUES = 1 << 17  # in one line: they cost memory, and an attribute has a name
_ALL_TIMES = 10**27  # ns: `members` takes seconds of up to 18 digits, and every `time_t` has room for those
_ALL_MODES = 0o7777
_Value = TypeVar("_Value")
_encoded = json.JSONEncoder(separators=(",", ":")).encode


class MemberKind(StrEnum):
    """What a member is."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symlink"
    HARD_LINK = "hardlink"


_KINDS = {kind.value: kind for kind in MemberKind}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What tar has stored of a member beside its bytes."""

    kind: MemberKind | None  # None: one that only a later backupd knows
    size: int = 0  # of a file, holes too
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""  # of a link; a hard one's is a member's name
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """A file, folder or link in a tar stream."""

    name: str  # as tar restores it
    offset: int  # of its first header block in the plain stream
    size: int  # bytes up to the next member: headers and padding are counted
    recorded: Recorded


class MemberLines:
    """The members of one object, kept as lines of the index, compressed."""

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(level=1)
        self._kept = bytearray()

    def add(self, member: Member) -> None:
        """Keep one more."""
        self._kept += self._zstd.compress(_line(_document(member)))

    def finish(self) -> None:
        """There are no more."""
        self._kept += self._zstd.flush()
        del self._zstd

    def __iter__(self) -> Iterator[bytes]:
        """The lines in pieces of some size, once finished."""
        return Decompressor(INDEX_OBJECT).take(self._kept)


def written(objects: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """The index as it is stored, in pieces. Objects are named without `.age`: an index tells of plain streams."""
    yield _line({"index": {"major": _MAJOR, "minor": _MINOR}})
    for name, lines in objects.items():
        yield _line({"object": name})
        yield from lines


class Index:
    """The index of a backup that was read back, compressed. It can be gone through again and again."""

    def __init__(self, packed: bytes | bytearray) -> None:
        """`packed` is the index object as zstd frames.

        Raises:
            Unreadable: it is no index, or one of a later backupd's.
        """
        self._packed = packed
        _require_known(next(self._lines(), None))

    def members(self) -> Iterator[tuple[str, Member]]:
        """Each with its object's name.

        Raises:
            Unreadable: a line tells of a member that cannot be.
        """
        lines = self._lines()
        next(lines)
        name = ""
        for line in lines:
            if "object" in line:
                name = _typed(str, line, "object")
            elif "name" in line:
                yield name, _member(line)

    def _lines(self) -> Iterator[dict[str, Any]]:
        rest = bytearray()
        for piece in Decompressor(INDEX_OBJECT).take(self._packed):
            rest += piece
            if b"\n" in piece:
                *lines, rest = rest.split(b"\n")
                yield from map(_object, lines)
            if len(rest) > _LINE_BYTES:
                raise _refusal("a line is not terminated")
        if rest:
            raise _refusal("its last line has no end")


def _document(member: Member) -> dict[str, object]:
    recorded = member.recorded
    document: dict[str, object] = {
        **{"name": member.name, "offset": member.offset, "bytes": member.size},
        **{"kind": recorded.kind, "mode": f"{recorded.mode:04o}", "uid": recorded.uid, "gid": recorded.gid},
        "mtime_ns": recorded.mtime_ns,
    }
    if recorded.kind is MemberKind.FILE:
        document["size"] = recorded.size
    if recorded.target:
        document["target"] = recorded.target
    if recorded.xattrs:
        document["xattrs"] = {name: base64.b64encode(value).decode() for name, value in recorded.xattrs.items()}
    return document


def _member(line: dict[str, Any]) -> Member:
    name, offset, size = _typed(str, line, "name"), _typed(int, line, "offset"), _typed(int, line, "bytes")
    if not name or not 0 <= offset <= LARGEST_FILE or not 0 < size <= LARGEST_FILE:
        raise _refusal(f"{name!r:.80} cannot lie at {offset!r:.80} with {size!r:.80} bytes")
    kind = _typed(str, line, "kind")
    target = _typed(str, line, "target") if "target" in line else ""
    xattrs = _typed(dict, line, "xattrs") if "xattrs" in line else {}
    try:
        recorded = Recorded(
            kind=_KINDS.get(kind),
            size=_bounded(0, _typed(int, line, "size"), LARGEST_FILE) if "size" in line else 0,
            mode=_bounded(0, int(_typed(str, line, "mode"), 8), _ALL_MODES),
            uid=_bounded(0, _typed(int, line, "uid"), LARGEST_ID),
            gid=_bounded(0, _typed(int, line, "gid"), LARGEST_ID),
            mtime_ns=_bounded(1 - _ALL_TIMES, _typed(int, line, "mtime_ns"), _ALL_TIMES - 1),
            target=_nameable(target),
            xattrs={_nameable(key): base64.b64decode(_typed(str, xattrs, key), validate=True) for key in xattrs},
        )
        return Member(_nameable(name), offset, size, recorded)
    except (ValueError, binascii.Error) as error:
        raise _refusal(f"the entry of {name!r:.80} is invalid: {error}") from error


def _bounded(least: int, found: int, most: int) -> int:
    """The number, which the kernel would not take, or Python not hand on to it, outside of these bounds.

    Raises:
        ValueError: it lies outside.
    """
    if not least <= found <= most:
        raise ValueError(f"{found!r:.80} is not between {least} and {most}")
    return found


def _nameable(text: str) -> str:
    """The text, which the kernel can be given as a name.

    Raises:
        ValueError: it has a NUL, or half a character that stands for no byte.
    """
    if b"\0" in os.fsencode(text):
        raise ValueError(f"{text!r:.80} has a NUL in it")
    return text


def _typed(wanted: type[_Value], line: dict[str, Any], key: str) -> _Value:
    value = line.get(key)
    if type(value) is not wanted:
        raise _refusal(f"a line of it has no proper {key}: {value!r:.80}")
    return value


def _require_known(first: dict[str, Any] | None) -> None:
    version = (first or {}).get("index")
    if not isinstance(version, dict):
        raise _refusal("its first line is not the header of an index")
    if version.get("major") != _MAJOR:
        raise Unreadable(
            f"the index of the members has the format {version.get('major')!r}, this backupd supports {_MAJOR}",
            hint="it was written by a newer backupd: restore with that version",
        )


def _object(line: bytes | bytearray) -> dict[str, Any]:
    if sum(map(line.count, (b",", b"[", b"{"))) > _LINE_VALUES:
        raise _refusal("a line of it has more than one member can have")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _refusal(str(error)) from error
    if not isinstance(found, dict):
        raise _refusal("a line of it is not a JSON object")
    return found


def _line(document: Mapping[str, object]) -> bytes:
    return _encoded(document).encode() + b"\n"


def _refusal(why: str) -> Unreadable:
    """As nothing but what was compared is parsed, it is as it was written."""
    return Unreadable(
        f"the index of the members cannot be parsed: {why}",
        hint="use the backupd that wrote it; restore --to without --tables keeps the files, not compared (status 9)",
    )
