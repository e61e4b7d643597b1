"""SQL as text for a file or a client: strings, names and comments of which no part is taken for a statement.

Knows: what a server in any mode and the client programs make of quotes, backslashes and lines. The client obeys more
than the server: outside of quotes a backslash begins a command of its own, and `\\!` runs a shell; so does a line that
begins with `system`, where a statement could begin. Hence no line of a comment is left without its dashes, and nothing
with a backslash is quoted as a string, which some modes read in another way.
"""

import re

from backupd.vocabulary.errors import ServerError

_STRING = r"'(?:[^'\\]|''|\\.)*'" + r'|"(?:[^"\\]|""|\\.)*"'
_NAME = r"`(?:[^`]|``)*`"
_FOR_SOME_VERSIONS = r"/\*M?!(?:[0-9]{5,6})?|\*/"  # MySQL tells partitions and newer words so, MariaDB COMPRESSED
_PLAIN = r"[^'\"`\\;#/*\-\x00-\x08\x0b-\x1f\x7f]|-(?!-)|/(?!\*)|\*(?!/)"
_DEFINITION = re.compile(rf"(?:{_STRING}|{_NAME}|{_FOR_SOME_VERSIONS}|{_PLAIN})*+", re.DOTALL)
# A terminal acts on these, or shows what follows in another order; editors begin a line at some; tags are not seen at
# all; halves of surrogate pairs have no encoding.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_DELIMITER = re.compile(r"^\s*delimiter\b", re.IGNORECASE | re.MULTILINE)


def literal(text: str) -> str:
    """A string that every SQL mode reads alike: no mode gives a doubled quote another meaning.

    Raises:
        ServerError: there is no such string, because it has a backslash, or more than one line.
    """
    if "\\" in text or not text.isprintable():
        raise ServerError(
            f"this cannot be quoted safely for every server: {text!r:.80}",
            hint="it has a backslash or a control character",
        )
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name of a schema, table or column."""
    return "`" + name.replace("`", "``") + "`"


def comment(text: str) -> str:
    """A comment of as many lines as the text has; what does not print is told by its number."""
    return "\n".join(f"-- {_printable(line)}".rstrip() for line in text.splitlines())


def typed(text: str) -> str:
    """Comment lines that are this text again once each has lost its first three characters, for a person who types it.

    A terminal acts on nothing in it: where a character that it could act on is told by its number, or lines ended with
    CR LF, a line before it says that it is not the same.
    """
    safe = _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
    told = (
        [] if safe == text else ["# this is not the same text: it had control characters, or lines that end with CR LF"]
    )
    return "\n".join(f"-- {line}" for line in (*told, *safe.split("\n")))


def require_definition(text: str) -> None:
    """What a server tells of a table is one statement, in which the client finds no command and no comment.

    Who made the server's files may have made its words: a dictionary keeps some of them as they were typed.

    Raises:
        ServerError: it is something else.
    """
    if _DEFINITION.fullmatch(text) is None or _DELIMITER.search(text) is not None:
        raise ServerError(
            f"the server returned a table definition that is unsafe to run: {text!r:.80}",
            hint="do not import this table; check who can write to the target, or could write to the server",
        )


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)
