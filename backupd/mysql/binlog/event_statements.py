"""What the statements of a log make of a server's scheduled events: whether each of them runs there.

Knows: CREATE, ALTER and DROP EVENT, the end of a schema, and that a server leaves an event that it is told of by
another one to that one. Refuses to know what an event does, and when.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backupd.mysql.binlog.statement_words import END, SqlName, StatementOfAnotherForm, StatementWords


class EventStatus(StrEnum):
    """Whether a server runs an event."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    ELSEWHERE = "SLAVESIDE_DISABLED"  # only on the server that it comes from; newer MySQL: REPLICA_SIDE_DISABLED


@dataclass(frozen=True, slots=True)
class EventStatement:
    """One that makes, changes or ends an event, or all of a schema."""

    verb: str  # CREATE, ALTER, DROP
    event: SqlName  # schema and name; no name: all of the schema's
    status: EventStatus | None = None  # None: it does not say
    renamed: SqlName | None = None
    if_missing: bool = False  # what is there stays as it is


class EventStatuses:
    """Of one server, as its log tells; what it had before is `known`."""

    def __init__(self, known: Mapping[SqlName, EventStatus]) -> None:
        self._known = {_folded(name): status for name, status in known.items()}

    def of(self, event: SqlName) -> EventStatus | None:
        """Of this one; None where the server has none."""
        return self._known.get(_folded(event))

    def follow(self, statement: EventStatement, *, own: bool) -> None:
        """It was executed there: by its `own` clients, or as a replica."""
        name = _folded(statement.event)
        if statement.verb == "DROP":
            schema, event = name
            for one in [one for one in self._known if one == name or (not event and one[0] == schema)]:
                del self._known[one]
            return
        before = self._known.get(name)
        if statement.if_missing and before is not None:
            return
        self._known.pop(name, None)
        if not own:
            status = EventStatus.ELSEWHERE
        elif statement.status is not None:
            status = statement.status
        else:
            status = (before if statement.verb == "ALTER" else None) or EventStatus.ENABLED
        self._known[_folded(statement.renamed or statement.event)] = status


def event_statement(text: str, schema: str) -> EventStatement | None:
    """What this statement does to events where `schema` is the current one; None: nothing."""
    words = StatementWords(text, schema, cut=False)
    try:
        words.pass_variables()
        _, verb = words.take()
        match verb.upper():
            case "CREATE":
                return _made(words, "CREATE")
            case "ALTER":
                return _made(words, "ALTER")
            case "DROP":
                return _dropped(words)
    except StatementOfAnotherForm:
        pass
    return None


def _made(words: StatementWords, verb: str) -> EventStatement | None:
    words.passed("OR", "REPLACE")
    if words.passed("DEFINER", "="):
        words.take()
        if words.passed("@"):
            words.take()
        elif words.passed("("):
            words.require(")")
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
    if words.passed("DATABASE") or words.passed("SCHEMA"):
        words.passed("IF", "EXISTS")
        return EventStatement("DROP", words.schema_name())
    return None


def _folded(name: SqlName) -> SqlName:
    """Servers compare names of events without regard to case, and some those of schemas."""
    schema, event = name
    return schema.casefold(), event.casefold()
