"""Which tables a statement in a binlog changes, from its text: DDL, and the plain forms of what changes rows.

Knows: names in quotes, comments, the schema that a name without one is in. Refuses to parse SQL: what it does not
understand is `ChangeKind.OTHER`, of no table, and of a temporary table nothing is told. What a trigger or a function
changes beside is not seen.
"""

import re
from typing import Final

from backupd.mysql.binlog.statement_words import SqlName, StatementOfAnotherForm, StatementWords
from backupd.vocabulary.binlogs import ChangeKind, TableChange

MOST_READ = 64 << 10  # bytes of a statement that are looked at

# The CONNECTION of a FEDERATED or CONNECT table is a URL with a password, or has ODBC's PWD; older FEDERATED tables
# have the URL in their COMMENT. FEDERATED takes no password with `/` or `@`. What was cut off may end before the `@`.
_TELLS_PASSWORD: Final = re.compile(
    r"\bIDENTIFIED\b|PASSWORD|\bCONNECTION\b|://[^/@:]*+:[^/@]*+(?:@|\Z)", re.IGNORECASE
)
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

# A server writes the same statement again and again, with other values behind what was read of it: by the schema and
# the first words, how it began, and what it changes.
_KNOWN: Final[dict[tuple[str, ...], tuple[str, tuple[TableChange, ...]]]] = {}
_MOST_KNOWN = 1000
_LONGEST_HEAD = 200  # characters of a statement that are remembered
_ENDING_WORDS: Final = frozenset(" \n\t(")  # behind them the same words are the same, whatever follows


def changes_of(statement: str, schema: str, *, cut: bool = False) -> tuple[TableChange, ...]:
    """What this statement changes where `schema` is the current one. Nothing: it is of the transaction itself.

    Of a statement whose end was cut off, no list of tables is understood.
    """
    head = statement[:_LONGEST_HEAD]
    key = (schema, *head.split(None, 3)[:3])
    known = _KNOWN.get(key)
    if known is not None and head.startswith(known[0]) and not cut:
        return known[1]
    words = StatementWords(statement, schema, cut=cut)
    try:
        found = tuple(TableChange(schema, table, kind) for kind, (schema, table) in _read(words))
    except StatementOfAnotherForm:
        found = (TableChange(schema, "", ChangeKind.OTHER),)
    if (end := words.read_to) is not None and end < _LONGEST_HEAD and head[end : end + 1] in _ENDING_WORDS:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = head[: end + 1], found
    return found


def without_passwords(statement: str) -> str:
    """What a person may see of it: MariaDB logs CREATE USER … IDENTIFIED BY as it was typed (seen on 10.11.19), and
    every server what a table says of another one's account.
    """
    return _LITERAL.sub("'…'", statement) if _TELLS_PASSWORD.search(statement) else statement


_Found = list[tuple[ChangeKind, SqlName]]


def _read(words: StatementWords) -> _Found:
    words.pass_variables()
    kind, text = words.take()
    verb = text.upper()
    if kind == "word" and verb in _CONTROL:
        return []
    reader = _READERS.get(verb)
    if kind != "word" or reader is None:
        raise StatementOfAnotherForm
    return reader(words)


def _create(words: StatementWords) -> _Found:
    replacing = words.passed("OR", "REPLACE")
    if words.passed("TEMPORARY"):
        words.require("TABLE")
        return []
    if words.passed("TABLE"):
        words.passed("IF", "NOT", "EXISTS")
        table = words.name()
        return [(kind, table) for kind in ([ChangeKind.DROP] * replacing + [ChangeKind.CREATE])]
    if words.next_is(*_SCHEMAS):
        words.take()
        words.passed("IF", "NOT", "EXISTS")
        schema = words.schema_name()
        return [(kind, schema) for kind in ([ChangeKind.DROP] * replacing + [ChangeKind.CREATE])]
    return _index(words)


def _index(words: StatementWords) -> _Found:
    """CREATE INDEX and DROP INDEX: they alter a table."""
    words.pass_any(_BEFORE_INDEX)
    words.require("INDEX")
    words.pass_until("ON")
    return [(ChangeKind.ALTER, words.name())]


def _alter(words: StatementWords) -> _Found:
    if words.next_is(*_SCHEMAS):
        words.take()
        return [(ChangeKind.ALTER, words.schema_name())]
    words.pass_any(_BEFORE_TABLE)
    words.require("TABLE")
    words.passed("IF", "EXISTS")
    table = words.name()
    found: _Found = [(ChangeKind.ALTER, table)]
    while not words.at_end:
        if words.passed("RENAME"):
            if not words.next_is(*_NO_NEW_NAME):
                _ = words.passed("TO") or words.passed("AS") or words.passed("=")
                found += [(ChangeKind.RENAME, table), (ChangeKind.RENAME, words.name())]
        elif rows_gone := _rows_gone(words, table):
            found += rows_gone
        else:
            words.take()
    return found


def _rows_gone(words: StatementWords, table: SqlName) -> _Found:
    """What takes all rows out of a table, or of its partitions: whoever looks for an accident asks for these kinds."""
    if words.passed("DROP", "PARTITION"):
        return [(ChangeKind.DROP, table)]
    if words.passed("TRUNCATE", "PARTITION") or words.passed("DISCARD"):
        return [(ChangeKind.TRUNCATE, table)]
    if words.passed("EXCHANGE", "PARTITION"):
        words.take()
        words.require("WITH")
        words.require("TABLE")
        other = words.name()
        return [(ChangeKind.TRUNCATE, table), (ChangeKind.ALTER, other), (ChangeKind.TRUNCATE, other)]
    if words.passed("CONVERT", "PARTITION"):
        words.take()
        words.require("TO")
        words.require("TABLE")
        return [(ChangeKind.TRUNCATE, table), (ChangeKind.CREATE, words.name())]
    if words.passed("CONVERT", "TABLE"):
        return [(ChangeKind.DROP, words.name())]
    return []


def _drop(words: StatementWords) -> _Found:
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
        raise StatementOfAnotherForm
    return found


def _truncate(words: StatementWords) -> _Found:
    words.passed("TABLE")
    return [(ChangeKind.TRUNCATE, words.name())]


def _rename(words: StatementWords) -> _Found:
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
        raise StatementOfAnotherForm
    return found


def _insert(words: StatementWords) -> _Found:
    words.pass_any(_ROW_WORDS)
    words.passed("INTO")
    return [(ChangeKind.INSERT, words.name())]


def _update(words: StatementWords) -> _Found:
    words.pass_any(_ROW_WORDS)
    table = words.name()
    words.require("SET")
    return [(ChangeKind.UPDATE, table)]


def _delete(words: StatementWords) -> _Found:
    words.pass_any(_ROW_WORDS)
    words.require("FROM")
    table = words.name()
    if not words.at_end and not words.next_is("WHERE", "ORDER", "LIMIT", "RETURNING"):
        raise StatementOfAnotherForm
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
