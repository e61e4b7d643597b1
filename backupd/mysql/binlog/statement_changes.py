"""Which tables a statement in a binlog changes, from its text: DDL, and the plain forms of what changes rows.

Knows: names in quotes, comments, the schema that a name without one is in. Refuses to parse SQL: what it does not
understand is `ChangeKind.OTHER`, of no table, and of a temporary table nothing is told. What a trigger or a function
changes beside is not seen.
"""

import re
from typing import Final

from backupd.vocabulary.binlogs import ChangeKind, TableChange

MOST_READ = 64 << 10  # bytes of a statement that are looked at

_TOKENS: Final = re.compile(
    r"""(?P<blank>\s++ | --(?=\s|\Z)[^\n]*+ | \#[^\n]*+ | /\*(?!M?!)(?:.*?\*/|.*) | /\*M?!\d*+ | \*/)
      | (?P<quoted>`[^`]*+(?:``[^`]*+)*(?:`|\Z))
      | (?P<doubled>"[^"\\]*+(?:(?:""|\\.)[^"\\]*+)*(?:"|\\?\Z))
      | (?P<string>'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*(?:'|\\?\Z))
      | (?P<word>[\w$]++)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_TELLS_PASSWORD: Final = re.compile(r"\bIDENTIFIED\b|PASSWORD", re.IGNORECASE)
_LITERAL: Final = re.compile(
    r"""'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*(?:'|\\?\Z)|"[^"\\]*+(?:(?:""|\\.)[^"\\]*+)*(?:"|\\?\Z)""", re.DOTALL
)
_CONTROL: Final = frozenset(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"))  # of a transaction itself
_SCHEMAS: Final = frozenset(("DATABASE", "SCHEMA"))
_TABLES: Final = frozenset(("TABLE", "TABLES"))
_ROW_WORDS: Final = frozenset(("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE"))
_BEFORE_TABLE: Final = frozenset(("OR", "REPLACE", "ONLINE", "OFFLINE", "IGNORE"))
_BEFORE_INDEX: Final = frozenset(("OR", "REPLACE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE"))
_NO_NEW_NAME: Final = frozenset(("COLUMN", "INDEX", "KEY"))  # that ALTER TABLE renames within the table
_NOBODY = ("", "")

_Token = tuple[str, str]  # what it is, and its text; of a quoted name what is in the quotes
_Name = tuple[str, str]  # schema, table


class _NotUnderstood(Exception):
    """The statement is of another form."""


def changes_of(statement: str, schema: str, *, cut: bool = False) -> tuple[TableChange, ...]:
    """What this statement changes where `schema` is the current one. Nothing: it is of the transaction itself.

    Of a statement whose end was cut off, no list of tables is understood.
    """
    words = _Words(statement, schema, cut=cut)
    try:
        found = _read(words)
    except _NotUnderstood:
        return (TableChange(schema, "", ChangeKind.OTHER),)
    return tuple(TableChange(schema, table, kind) for kind, (schema, table) in found)


def without_passwords(statement: str) -> str:
    """What a person may see of it: MariaDB logs CREATE USER … IDENTIFIED BY as it was typed (seen on 10.11.19)."""
    return _LITERAL.sub("'…'", statement) if _TELLS_PASSWORD.search(statement) else statement


class _Words:
    """A statement, word by word, without blanks and comments."""

    def __init__(self, statement: str, schema: str, *, cut: bool) -> None:
        self._tokens = [_token(found) for found in _TOKENS.finditer(statement) if found["blank"] is None]
        if cut:
            self._tokens[-1:] = [("cut", "")]
        self._schema = schema
        self._at = 0

    def take(self) -> _Token:
        """The next one; empty behind the last."""
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else _NOBODY

    def next_is(self, *words: str) -> bool:
        """Whether one of these words comes next."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else _NOBODY
        return (kind == "word" and text.upper() in words) or (kind == "sign" and text in words)

    def passed(self, *words: str) -> bool:
        """These words came, and are behind us; none of them is where they did not all come."""
        at = self._at
        for word in words:
            if not self.next_is(word):
                self._at = at
                return False
            self._at += 1
        return True

    def pass_any(self, words: frozenset[str]) -> None:
        """Whatever comes of these words is behind us."""
        while self.next_is(*words):
            self._at += 1

    def require(self, *words: str) -> None:
        """One of these words comes."""
        if not self.next_is(*words):
            raise _NotUnderstood
        self._at += 1

    def name(self) -> _Name:
        """A table's, with its schema."""
        first = self._part()
        return (first, self._part()) if self.passed(".") else (self._schema, first)

    def schema_name(self) -> _Name:
        """A schema's."""
        return self._part(), ""

    @property
    def at_end(self) -> bool:
        """Nothing follows but a delimiter."""
        return self._at >= len(self._tokens) or self.next_is(";")

    def _part(self) -> str:
        kind, text = self.take()
        if kind not in ("word", "quoted", "doubled") or not text:
            raise _NotUnderstood
        return text


def _token(found: re.Match[str]) -> _Token:
    kind, text = found.lastgroup or "", found[0]
    if kind in ("quoted", "doubled"):
        inner = text[1:-1].replace(text[0] * 2, text[0])
        return (kind, inner) if len(text) > 1 and text.endswith(text[0]) else ("open", text)
    return kind, text


_Found = list[tuple[ChangeKind, _Name]]


def _read(words: _Words) -> _Found:
    if words.passed("SET", "STATEMENT"):  # MariaDB's: variables for one statement
        while not words.next_is("FOR"):
            if words.take() == _NOBODY:
                raise _NotUnderstood
        words.take()
    kind, text = words.take()
    verb = text.upper()
    if kind == "word" and verb in _CONTROL:
        return []
    reader = _READERS.get(verb)
    if kind != "word" or reader is None:
        raise _NotUnderstood
    return reader(words)


def _create(words: _Words) -> _Found:
    words.passed("OR", "REPLACE")
    if words.passed("TEMPORARY"):
        words.require("TABLE")
        return []
    if words.passed("TABLE"):
        words.passed("IF", "NOT", "EXISTS")
        return [(ChangeKind.CREATE, words.name())]
    if words.next_is(*_SCHEMAS):
        words.take()
        words.passed("IF", "NOT", "EXISTS")
        return [(ChangeKind.CREATE, words.schema_name())]
    return _index(words)


def _index(words: _Words) -> _Found:
    """CREATE INDEX and DROP INDEX: they alter a table."""
    words.pass_any(_BEFORE_INDEX)
    words.require("INDEX")
    while not words.passed("ON"):
        if words.take() == _NOBODY:
            raise _NotUnderstood
    return [(ChangeKind.ALTER, words.name())]


def _alter(words: _Words) -> _Found:
    if words.next_is(*_SCHEMAS):
        words.take()
        return [(ChangeKind.ALTER, words.schema_name())]
    words.pass_any(_BEFORE_TABLE)
    words.require("TABLE")
    words.passed("IF", "EXISTS")
    table = words.name()
    found: _Found = [(ChangeKind.ALTER, table)]
    while not words.at_end:
        if not words.passed("RENAME"):
            words.take()
        elif not words.next_is(*_NO_NEW_NAME):
            _ = words.passed("TO") or words.passed("AS") or words.passed("=")
            found += [(ChangeKind.RENAME, table), (ChangeKind.RENAME, words.name())]
    return found


def _drop(words: _Words) -> _Found:
    if words.passed("TEMPORARY"):
        words.require(*_TABLES)
        return []
    if words.next_is(*_SCHEMAS):
        words.take()
        words.passed("IF", "EXISTS")
        return [(ChangeKind.DROP, words.schema_name())]
    if not words.next_is(*_TABLES):
        return _index(words)
    words.take()
    words.passed("IF", "EXISTS")
    found = [(ChangeKind.DROP, words.name())]
    while words.passed(","):
        found.append((ChangeKind.DROP, words.name()))
    if not words.at_end and not words.next_is("RESTRICT", "CASCADE", "WAIT", "NOWAIT"):
        raise _NotUnderstood
    return found


def _truncate(words: _Words) -> _Found:
    words.passed("TABLE")
    return [(ChangeKind.TRUNCATE, words.name())]


def _rename(words: _Words) -> _Found:
    words.require(*_TABLES)
    words.passed("IF", "EXISTS")
    found: _Found = []
    while True:
        old = words.name()
        words.require("TO")
        found += [(ChangeKind.RENAME, old), (ChangeKind.RENAME, words.name())]
        if not words.passed(","):
            break
    if not words.at_end:
        raise _NotUnderstood
    return found


def _insert(words: _Words) -> _Found:
    words.pass_any(_ROW_WORDS)
    words.passed("INTO")
    return [(ChangeKind.INSERT, words.name())]


def _update(words: _Words) -> _Found:
    words.pass_any(_ROW_WORDS)
    table = words.name()
    words.require("SET")
    return [(ChangeKind.UPDATE, table)]


def _delete(words: _Words) -> _Found:
    words.pass_any(_ROW_WORDS)
    words.require("FROM")
    table = words.name()
    if not words.at_end and not words.next_is("WHERE", "ORDER", "LIMIT", "RETURNING"):
        raise _NotUnderstood
    return [(ChangeKind.DELETE, table)]


_READERS: Final = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "INSERT": _insert,
    "REPLACE": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
}
