"""The headers of a tar stream, in the pax format that every tar opens (pax(1), "pax Interchange Format").

Knows: what fits into a ustar header, and what needs a record before it: long and odd names, large numbers, parts of a
second, extended attributes as GNU tar and star name them, the holes of a file as GNU tar writes them since 1.15
("GNU. sparse", version 1.0). Owners are numbers.
"""

import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice
from typing import Protocol

BLOCK = 512
RECORD = 20 * BLOCK  # what `tar -x` reads at a time: it leaves more padding unread, and zstd a broken pipe

_USTAR = struct.Struct("100s8s8s8s12s12s8xc100s8s64x8s8s167x")  # without a checksum, names of owners and a prefix
_MAGIC = b"ustar\x0000"
_NO_DEVICE = b"0000000"
_BLANK = 8 * ord(" ")  # what a checksum counts itself as
_CHECKSUM = slice(148, 156)
_NAME_BYTES = 100
_ID_DIGITS, _SIZE_DIGITS = 7, 11  # octal ones, as wide as their fields
_EXTENDED = b"x"
_ONE_SECOND = 10**9
_LINES = 4096  # of a map, at a time


class HeaderType(Enum):
    """What a member is: the type in its header."""

    FILE = b"0"
    HARD_LINK = b"1"
    SYMLINK = b"2"
    FOLDER = b"5"


class StatFacts(Protocol):
    """Of an `os.stat_result` what is stored."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_gid(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Header:
    """What is stored of a member before its bytes."""

    name: bytes
    kind: HeaderType
    facts: StatFacts  # whose mode, owner and time it has
    size: int = 0  # of what follows the header
    target: bytes = b""  # of a link; a hard one's is a member's name
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)
    real_size: int | None = None  # of a file with holes, whose content begins with a `sparse_map`

    def encoded(self) -> bytes:
        """Whole blocks."""
        name = self.name + b"/" if self.kind is HeaderType.FOLDER else self.name
        records = b"".join(self._records(name))
        facts = self.facts
        own = _ustar(
            name if self.real_size is None else _aside(name, b"GNUSparseFile.0/"),
            stat.S_IMODE(facts.st_mode),
            (facts.st_uid, facts.st_gid, self.size, facts.st_mtime_ns // _ONE_SECOND),
            self.kind.value,
            self.target,
        )
        if not records:
            return own
        before = _ustar(_aside(name, b"PaxHeaders/"), 0o644, (0, 0, len(records), 0), _EXTENDED, b"")
        return before + records + padding(len(records)) + own

    def _records(self, name: bytes) -> Iterator[bytes]:
        if self.real_size is not None:
            yield _record(b"GNU.sparse.major", b"1")
            yield _record(b"GNU.sparse.minor", b"0")
            yield _record(b"GNU.sparse.name", name)
            yield _record(b"GNU.sparse.realsize", b"%d" % self.real_size)
        elif not _plain(name):
            yield _record(b"path", name)
        if not _plain(self.target):
            yield _record(b"linkpath", self.target)
        for keyword, number, digits in (
            (b"uid", self.facts.st_uid, _ID_DIGITS),
            (b"gid", self.facts.st_gid, _ID_DIGITS),
            (b"size", self.size, _SIZE_DIGITS),
        ):
            if not _fits(number, digits):
                yield _record(keyword, b"%d" % number)
        seconds, rest = divmod(self.facts.st_mtime_ns, _ONE_SECOND)
        if rest or not _fits(seconds, _SIZE_DIGITS):
            yield _record(b"mtime", _time(self.facts.st_mtime_ns))
        for keyword, value in self.xattrs.items():
            escaped = keyword.replace(b"%", b"%25").replace(b"=", b"%3D")  # it would end at a `=` (GNU tar, xheader.c)
            yield _record(b"SCHILY.xattr." + escaped, value)


def padding(size: int) -> bytes:
    """What follows so many bytes of content."""
    return bytes(-size % BLOCK)


def sparse_map(pieces: Iterable[tuple[int, int]], count: int) -> Iterator[bytes]:
    """Where the `count` pieces of a file with holes lie, offset and size of each; its content begins with it.

    In whole blocks when all is put together: there may be millions of pieces.
    """
    size = 0
    lines = chain((b"%d\n" % count,), (b"%d\n%d\n" % piece for piece in pieces))
    while text := b"".join(islice(lines, _LINES)):
        size += len(text)
        yield text
    yield padding(size)


def _ustar(name: bytes, mode: int, numbers: tuple[int, int, int, int], kind: bytes, target: bytes) -> bytes:
    """A header alone; `numbers` are owner, group, size and seconds. What does not fit a record has told before."""
    fields = map(_octal, numbers, (_ID_DIGITS, _ID_DIGITS, _SIZE_DIGITS, _SIZE_DIGITS))
    names = name[:_NAME_BYTES], target[:_NAME_BYTES]
    encoded = bytearray(_USTAR.pack(names[0], b"%07o" % mode, *fields, kind, names[1], _MAGIC, _NO_DEVICE, _NO_DEVICE))
    encoded[_CHECKSUM] = b"%06o\0 " % (sum(encoded.translate(None, b"\0")) + _BLANK)
    return bytes(encoded)


def _record(keyword: bytes, value: bytes) -> bytes:
    """`LENGTH KEYWORD=VALUE\\n`, LENGTH counting the whole record, itself too."""
    bare = len(keyword) + len(value) + 3
    size = bare + len(str(bare))
    size = bare + len(str(size))
    return b"%d %s=%s\n" % (size, keyword, value)


def _plain(name: bytes) -> bool:
    """Whether a ustar header alone tells it to everybody."""
    return len(name) <= _NAME_BYTES and name.isascii()


def _aside(name: bytes, folder: bytes) -> bytes:
    """What a tar that knows no records would call it."""
    around, slash, last = name.rstrip(b"/").rpartition(b"/")
    return around + slash + folder + last


def _fits(number: int, digits: int) -> bool:
    return 0 <= number < 1 << 3 * digits


def _octal(number: int, digits: int) -> bytes:
    """0 where a record has it."""
    return b"%0*o" % (digits, number if _fits(number, digits) else 0)


def _time(nanoseconds: int) -> bytes:
    seconds, rest = divmod(abs(nanoseconds), _ONE_SECOND)
    fraction = (b".%09d" % rest).rstrip(b"0").rstrip(b".")
    return b"%s%d%s" % (b"-" if nanoseconds < 0 else b"", seconds, fraction)
