"""Tar members as somebody writes them who wants them to do harm: any header, any record, true or not.

Knows: the fields of a header (pax(1), "ustar Interchange Format") and what the index of a backup says of a member.
Refuses to know which of it is an attack.
"""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

BLOCK = 512
MTIME = 1_700_000_000
OWNER = 64999 if os.geteuid() == 0 else os.geteuid()  # a root that is nobody's friend: not root, and no user's
GROUP = 64999 if os.geteuid() == 0 else os.getegid()

END = bytes(2 * BLOCK)
MAGIC = b"ustar\x0000"

Record = tuple[bytes, bytes]


@dataclass(frozen=True)
class Entry:
    """A member's bytes in the stream, and what the index says of it; an index may keep silent."""

    headers: bytes
    content: bytes = b""
    told: Mapping[str, Any] | None = None

    @property
    def raw(self) -> bytes:
        return self.headers + padded(self.content)

    @property
    def is_file(self) -> bool:
        return self.told is None or self.told["kind"] != "folder"

    def telling(self, **changes: Any) -> "Entry":
        """The same bytes, and another line of the index."""
        return replace(self, told={**(self.told or {}), **changes})

    def silent(self) -> "Entry":
        """The same bytes, which no index tells of."""
        return replace(self, told=None)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def ustar(
    name: bytes,
    kind: bytes = b"0",
    *,
    size: int = 0,
    link: bytes = b"",
    mode: int = 0o644,
    mtime: int = MTIME,
    fields: Mapping[tuple[int, int], bytes] | None = None,
) -> bytes:
    """One header block with a good checksum; `fields` are bytes that stand elsewhere than a writer puts them."""
    header = bytearray(BLOCK)
    header[0:100] = name[:100].ljust(100, b"\0")
    header[100:108] = b"%07o\0" % mode
    header[108:116] = b"%07o\0" % OWNER
    header[116:124] = b"%07o\0" % GROUP
    header[124:136] = b"%011o\0" % size
    header[136:148] = b"%011o\0" % mtime
    header[156:157] = kind
    header[157:257] = link[:100].ljust(100, b"\0")
    header[257:265] = MAGIC
    for (begin, end), value in (fields or {}).items():
        header[begin:end] = value.ljust(end - begin, b"\0")[: end - begin]
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def record(keyword: bytes, value: bytes) -> bytes:
    """`LENGTH KEYWORD=VALUE\\n`, with the right length."""
    bare = len(keyword) + len(value) + 3
    size = bare + len(str(bare))
    return b"%d %s=%s\n" % (bare + len(str(size)), keyword, value)


def extended(records: Sequence[Record] | bytes, kind: bytes = b"x") -> bytes:
    """An extended header of these records, or of these very bytes."""
    data = records if isinstance(records, bytes) else b"".join(record(*one) for one in records)
    return ustar(b"PaxHeaders/x", kind, size=len(data)) + padded(data)


def file(name: str, content: bytes = b"hostile", *, mode: int = 0o644, records: Sequence[Record] = ()) -> Entry:
    """A file, told of as it is; records go before its header."""
    before = extended(records) if records else b""
    header = ustar(os.fsencode(name), size=len(content), mode=mode)
    xattrs = {
        os.fsdecode(keyword.removeprefix(b"SCHILY.xattr.")): base64.b64encode(value).decode()
        for keyword, value in records
        if keyword.startswith(b"SCHILY.xattr.")
    }
    told = {**_told(name, "file", mode), "size": len(content), **({"xattrs": xattrs} if xattrs else {})}
    return Entry(before + header, content, told)


def folder(name: str, *, mode: int = 0o755) -> Entry:
    return Entry(ustar(os.fsencode(name) + b"/", b"5", mode=mode), told=_told(name, "folder", mode))


def symlink(name: str, target: str) -> Entry:
    """With the target in a record where it does not fit."""
    before = extended([(b"linkpath", os.fsencode(target))]) if len(target) > 100 else b""
    header = ustar(os.fsencode(name), b"2", link=os.fsencode(target), mode=0o777)
    return Entry(before + header, told={**_told(name, "symlink", 0o777), "target": target})


def hard_link(name: str, target: str) -> Entry:
    before = extended([(b"linkpath", os.fsencode(target))]) if len(target) > 100 else b""
    header = ustar(os.fsencode(name), b"1", link=os.fsencode(target))
    return Entry(before + header, told={**_told(name, "hardlink", 0o644), "target": target})


def stream(entries: Sequence[Entry], end: bytes = END) -> tuple[bytes, bytes, int]:
    """The tar stream, the index's lines of it, and how many of its members are no folders."""
    out, lines = bytearray(), []
    for entry in entries:
        if entry.told is not None:
            lines.append({"offset": len(out), "bytes": len(entry.raw), **entry.told})
        out += entry.raw
    return bytes(out + end), b"".join(map(line, lines)), sum(entry.is_file for entry in entries)


def line(document: object) -> bytes:
    """One of the index."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _told(name: str, kind: str, mode: int) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "mode": f"{mode:04o}",
        "uid": OWNER,
        "gid": GROUP,
        "mtime_ns": MTIME * 10**9,
    }
