"""A file of SQL statements, as a person wrote it for the client program: where each of them begins and ends.

Knows: quotes, comments and the client's DELIMITER. Every other command of the client (`source`, `system`, `\\!`, `tee`)
is passed to the server like a statement, which refuses it: nothing here opens a file or starts a program. Refuses to
know what a statement does.

A backslash in quotes is an escape, as it is to the client and to every server whose sql_mode does not say otherwise.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.units import size_words

MOST_BYTES = 8 << 20  # of a file: a server takes statements of 16 MiB, unless it is told otherwise

# `/*!` and `/*M!` begin no comment: what stands in them, a server carries out.
_COMMENT = r"--(?=[\s\x00-\x1f]|\Z)[^\n]*+|\#[^\n]*+|/\*(?!M?!).*?\*/"
_QUOTED = r"'[^'\\]*+(?:\\.[^'\\]*+)*'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*\"|`[^`]*+`"
_BLANK = re.compile(rf"\s++|{_COMMENT}", re.ASCII | re.DOTALL)
_DELIMITER = re.compile(r"delimiter[ \t]++(\S++)[^\n]*+", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, without its delimiter."""

    text: str
    line: int  # of the file, on which it begins; the first is 1


@dataclass(frozen=True, slots=True)
class SqlFile:
    """What was read of a file, once: what its digest is of is what is run."""

    path: Path
    sha256: str
    statements: tuple[Statement, ...]

    @property
    def name(self) -> str:
        """Its path as text: the name of a file may have bytes that are none."""
        return str(self.path).encode(errors="surrogateescape").decode(errors="replace")


def read_sql_file(path: Path) -> SqlFile:
    """The statements in a file.

    Raises:
        UsageError: it cannot be read, is no plain file, is too large, changed while it was read, or is not UTF-8; it
            has no statement, or one whose end is missing.
    """
    path = path.absolute()
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: byte {error.start + 1} is not", hint="convert it: iconv -f latin1 -t utf-8"
        ) from error
    if "\0" in text:
        raise UsageError(f"{path} has a zero byte", hint="pass a file of SQL statements")
    found = tuple(_statements(text, path))
    if not found:
        raise UsageError(f"{path} has no SQL statement", hint="pass a file of SQL statements")
    return SqlFile(path, hashlib.sha256(content).hexdigest(), found)


def _content(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise UsageError(f"{path} is not a plain file", hint="pass a file of SQL statements")
            content = file.read(MOST_BYTES + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="pass a file of SQL statements") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {size_words(MOST_BYTES)}", hint="split it: --scrub can be repeated")
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(content) != after.st_size:
        raise UsageError(f"{path} changed while it was read", hint="run the command again when nothing writes to it")
    return content


def _statements(text: str, path: Path) -> Iterator[Statement]:
    at, line, counted, delimiter = 0, 1, 0, ";"
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        if changed := _DELIMITER.match(text, at):
            delimiter, at = changed[1], changed.end()
            continue
        line, counted = line + text.count("\n", counted, at), at
        end = _end(text, at, delimiter, path)
        if end > at:
            yield Statement(text[at:end].rstrip(), line)
        at = end + len(delimiter)


def _end(text: str, at: int, delimiter: str, path: Path) -> int:
    """Where the delimiter stands that ends the statement; the end of the text where there is none."""
    tokens = _tokens(delimiter)
    while at < len(text):
        found = tokens.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise UsageError(
                f"a quote or comment that begins on line {line} of {path} has no end",
                hint="close it; a quote within quotes is doubled",
            )
        if found.lastgroup == "delimiter":
            return at
        at = found.end()
    return at


@cache
def _tokens(delimiter: str) -> re.Pattern[str]:
    """What a statement consists of: the delimiter comes before all else, as it does for the client."""
    plain = rf"[^'\"`\#/\-{re.escape(delimiter[0])}]++|/\*M?!|/(?!\*)|-|{re.escape(delimiter[0])}"
    return re.compile(rf"(?P<delimiter>{re.escape(delimiter)})|{_COMMENT}|{_QUOTED}|{plain}", re.ASCII | re.DOTALL)
