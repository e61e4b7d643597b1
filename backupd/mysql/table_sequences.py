"""A SEQUENCE of MariaDB's, which looks like a table, as the statements that make it again and give it its next value.

No server imports its file, and a sequence in a running server has that open: it is made anew instead. It goes on with
the first value that the server had not kept in memory yet, as it does after a crash: none is given twice.
"""

import re
from dataclasses import dataclass

from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted, require_definition
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import ServerError

SEQUENCE = "SEQUENCE"  # its kind among the tables

_CREATE = re.compile(r"CREATE SEQUENCE (?P<name>`(?:[^`]|``)*`)(?P<before>.*?) start with -?[0-9]+\b", re.DOTALL)
_NO_LITERAL = -(1 << 63)  # what follows the lowest BIGINT that a sequence gives; SETVAL does not parse it
_KIND = "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass(frozen=True, slots=True)
class TableSequence:
    """A sequence as a server with its files knows it."""

    table: Table
    definition: str  # as SHOW CREATE SEQUENCE tells it
    start: int
    increment: int
    following: int  # the value that it gives next
    rounds: int  # how often it started over

    def made_in(self, schema: str) -> tuple[str, ...]:
        """The statements that make it in a schema which has none of its name. The last one alone moves one that is
        there, and only forward.

        Raises:
            ServerError: its definition is not a sequence's.
        """
        found = _CREATE.match(self.definition)
        if found is None:
            raise ServerError(f"{self.table} has the definition {self.definition[:80]!r}", hint="it is not a sequence")
        name = f"{quoted(schema)}.{quoted(self.table.name)}"
        # ALTER SEQUENCE … RESTART can lead behind the start, where SETVAL leads only one that started over
        behind = not self.rounds and (self.following - self.start) * (self.increment or 1) < 0
        first = self.following if behind else self.start
        created = f"CREATE SEQUENCE {name}{found['before']} start with {first}{self.definition[found.end() :]};"
        used = self.following == _NO_LITERAL
        value = self.following + 1 if used else self.following
        return (
            created,
            *([f"ALTER SEQUENCE {name} START WITH {self.start};"] if behind else ()),
            f"SELECT SETVAL({name}, {value}, {used:d}, {self.rounds});",
        )


def is_sequence(session: Session, table: Table) -> bool:
    """Whether the server has a sequence of this name.

    Raises:
        ServerError: the session is over.
    """
    return session.value(_KIND, table.schema, table.name) == SEQUENCE


def sequence_of(session: Session, table: Table) -> TableSequence:
    """What the server knows of a sequence that it has.

    Raises:
        ServerError: the session is over, or the definition cannot be run safely.
    """
    definition = (session.one(f"SHOW CREATE SEQUENCE {table.in_sql}") or {}).get("Create Table") or ""
    require_definition(definition)
    columns = ("start_value", "increment", "next_not_cached_value", "cycle_count")
    row = session.one(f"SELECT {', '.join(columns)} FROM {table.in_sql}") or {}  # noqa: S608 - a quoted name
    return TableSequence(table, definition, *(int(row[name] or 0) for name in columns))
