"""What the statements of a log make of a server's scheduled events: whether each of them runs there.

Knows: CREATE, ALTER and DROP EVENT, the end of a schema, and that a server leaves an event that it is told of by
another one to that one; that servers compare names of events by a collation, for which "é" is "e" (tried on MySQL
9.7.4). Refuses to know what an event does, and when; and to guess: of an event of which no statement was understood
nothing is known, nor of any that a statement may mean that was not, or by a name that is not ASCII.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backupd.mysql.binlog.statement_words import END, SqlName, StatementOfAnotherForm, StatementWords

_OTHERS_WITH_DEFINER: Final = ("AGGREGATE", "FUNCTION", "PACKAGE", "PROCEDURE", "SQL", "TRIGGER", "VIEW")


class EventStatus(StrEnum):
    """Whether a server runs an event."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    ELSEWHERE = "SLAVESIDE_DISABLED"  # only on the server that it comes from; newer MySQL: REPLICA_SIDE_DISABLED


@dataclass(frozen=True, slots=True)
class EventStatement:
    """One that makes, changes or ends an event, or all of a schema."""

    verb: str  # CREATE, ALTER, DROP; empty: it was not understood
    event: SqlName  # schema and name; no name: all of the schema's
    status: EventStatus | None = None  # None: it does not say
    renamed: SqlName | None = None
    if_missing: bool = False  # what is there stays as it is


NOT_UNDERSTOOD = EventStatement("", ("", ""))


class EventStatuses:
    """Of one server, as its log tells; what it had before is `known`.

    `folds_schemas` where that server takes names of schemas without regard to case.
    """

    def __init__(self, known: Mapping[SqlName, EventStatus], *, folds_schemas: bool) -> None:
        self._folds_schemas = folds_schemas
        self._known = {self._folded(name): status for name, status in known.items()}
        self._told: set[SqlName] = set()
        self._all_known = True  # else it may have others

    def of(self, event: SqlName) -> EventStatus | None:
        """Of this one, of which statements told; None where they did not, or what it has is not known."""
        name = self._folded(event)
        return self._known.get(name) if name in self._told else None

    def follow(self, statement: EventStatement, *, own: bool) -> None:
        """It was executed there: by its `own` clients, or as a replica."""
        if statement == NOT_UNDERSTOOD:  # it may have disabled any
            self._known.clear()
            self._all_known = False
            return
        named = list(filter(None, (statement.event, statement.renamed)))
        meant = [one for one in self._known if any(_may_mean(name, one) for name in named)]
        if not all(map(_is_ascii, [*named, *meant])):  # nobody knows which of them it changed
            for one in meant:
                del self._known[one]
            self._all_known = False
            return
        name = self._folded(statement.event)
        if statement.verb == "DROP":
            schema, event = name
            for one in [one for one in self._known if one == name or (not event and one[0] == schema)]:
                del self._known[one]
            return
        if statement.if_missing and (name in self._known or not self._all_known):
            return
        before = self._known.pop(name, None)
        status = statement.status or (before if statement.verb == "ALTER" else EventStatus.ENABLED)
        now = self._folded(statement.renamed or statement.event)
        self._told.add(now)
        if status is not None:
            self._known[now] = status if own else EventStatus.ELSEWHERE

    def _folded(self, name: SqlName) -> SqlName:
        schema, event = name
        return schema.casefold() if self._folds_schemas else schema, event.casefold()


def event_statement(text: str, schema: str) -> EventStatement | None:
    """What this statement does to events where `schema` is the current one; None: nothing."""
    words = StatementWords(text, schema, cut=False)
    try:
        words.pass_variables()
        _, verb = words.take()
        match verb.upper():
            case "CREATE":
                found = _made(words, "CREATE")
            case "ALTER":
                found = _made(words, "ALTER")
            case "DROP":
                found = _dropped(words)
            case _:
                return None
    except StatementOfAnotherForm:
        return NOT_UNDERSTOOD
    return NOT_UNDERSTOOD if found is not None and any(map(_is_garbled, _names(found))) else found


def _made(words: StatementWords, verb: str) -> EventStatement | None:
    replacing = words.passed("OR", "REPLACE")
    if words.next_is("DATABASE", "SCHEMA"):
        return _schema_dropped(words) if replacing else None
    if words.passed("DEFINER"):
        words.require("=")
        words.pass_account()
        if not words.next_is("EVENT", *_OTHERS_WITH_DEFINER):
            raise StatementOfAnotherForm
    if not words.passed("EVENT"):
        return None
    if_missing = words.passed("IF", "NOT", "EXISTS")
    event, renamed, status = words.name(), None, None
    while not words.next_is("DO") and words.next_word != END:
        if words.passed("RENAME", "TO"):
            renamed = words.name()
        elif words.passed("ENABLE"):
            status = EventStatus.ENABLED
        elif words.passed("DISABLE"):
            elsewhere = words.passed("ON", "SLAVE") or words.passed("ON", "REPLICA")
            status = EventStatus.ELSEWHERE if elsewhere else EventStatus.DISABLED
        else:
            words.take()
    return EventStatement(verb, event, status, renamed, if_missing)


def _dropped(words: StatementWords) -> EventStatement | None:
    if words.passed("EVENT"):
        words.passed("IF", "EXISTS")
        return EventStatement("DROP", words.name())
    return _schema_dropped(words) if words.next_is("DATABASE", "SCHEMA") else None


def _schema_dropped(words: StatementWords) -> EventStatement:
    words.take()
    words.passed("IF", "EXISTS")
    return EventStatement("DROP", words.schema_name())


def _names(statement: EventStatement) -> tuple[str, ...]:
    return (*statement.event, *(statement.renamed or ()))


def _is_garbled(name: str) -> bool:
    """Its client's character set was another one: it is an event, but nobody knows which."""
    return "\N{REPLACEMENT CHARACTER}" in name


def _is_ascii(name: SqlName) -> bool:
    return all(word.isascii() for word in name)


def _may_mean(name: SqlName, other: SqlName) -> bool:
    """By any collation of names, which compare letter by letter; without an event it means all of the schema's."""
    (schema, event), (other_schema, other_event) = name, other
    return _may_be(schema, other_schema) and (not event or _may_be(event, other_event))


def _may_be(word: str, other: str) -> bool:
    return len(word) == len(other) and all(
        one.casefold() == another.casefold() or not (one.isascii() and another.isascii())
        for one, another in zip(word, other, strict=True)
    )
