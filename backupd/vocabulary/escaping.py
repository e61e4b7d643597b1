"""Words of strangers as they may be shown: nothing in them moves a cursor, ends a line or turns the way of writing.

What comes from a server, a storage, an archive, a file system or a program is data. It is escaped here, where it
leaves: terminal, log, mail, page, metrics. Where it enters, `is_one_line` says whether it can be a name.

Knows: which characters do more than be seen, and shows them as Python escapes them: `\\x1b`, `\\u202e`. Refuses to know
markup: HTML, JSON, SQL and roff have escapes of their own, which are needed as well.
"""

import logging
import re
from collections.abc import Sequence
from typing import Annotated

# Halves of surrogate pairs are no characters; those that stand for a byte of a file's name that is no text are left.
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udc7f\udd00-\udfff]")

Prose = Annotated[str, "of any characters"]  # in a document from outside: other texts there are names, of one line each


def on_one_line(text: str) -> str:
    """The same in characters that are seen; a line feed is escaped as well."""
    return text if text.isprintable() else "".join(map(_shown, text))


def plain(text: str) -> str:
    """The same for several lines: line feeds are kept, and nothing else that is not seen."""
    return text if text.isprintable() else "\n".join(map(on_one_line, text.split("\n")))


def indented(text: str) -> str:
    """The same where a line is written: what follows a line feed is indented, and cannot pass for a line of ours."""
    return plain(text).replace("\n", "\n    ")


def some(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """The first of them, and how many there are beside: a stranger may have made any number."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def encodable(text: str) -> str:
    """The same where every character must have an encoding: a byte of a file's name that is no text is escaped."""
    return text.encode(errors="backslashreplace").decode()


def is_one_line(text: str) -> bool:
    """Whether it can be a name: it has no control character, ends no line, and is written one way."""
    return text.isprintable() or not _ACTS.search(text)


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")


class PlainFormatter(logging.Formatter):
    """Of every log: what is logged is `indented`, tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return indented(super().format(record))
