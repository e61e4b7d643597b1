"""What hangs on a table beside its rows: its triggers, its foreign keys, and those of other tables that refer to it.

Knows: what a server tells an account of them. One without the privilege TRIGGER is told of no trigger.
"""

import re
from dataclasses import dataclass

from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.mysql.sqltext import comment, quoted, typed
from backupd.mysql.tablefiles import Table

_TRIGGERS = """
    SELECT trigger_name AS name, event_manipulation AS event
    FROM information_schema.triggers WHERE event_object_schema = %s AND event_object_table = %s
    ORDER BY action_order, trigger_name
"""
_FOREIGN_KEYS = """
    SELECT constraint_name AS name FROM information_schema.referential_constraints
    WHERE constraint_schema = %s AND table_name = %s ORDER BY constraint_name
"""
_REFERRING = """
    SELECT constraint_schema AS its_schema, table_name AS its_table, constraint_name AS name
    FROM information_schema.referential_constraints
    WHERE unique_constraint_schema = %s AND referenced_table_name = %s
        AND NOT (constraint_schema = unique_constraint_schema AND table_name = referenced_table_name)
    ORDER BY constraint_schema, table_name, constraint_name
"""
_WORD = re.compile(r"[0-9A-Za-z_]+")
_OURS = "utf8mb4"  # in which T.sql is written, and what backupd prints


@dataclass(frozen=True, slots=True)
class TableTrigger:
    """A trigger, and what makes it again. Its words are whoever's who made the server's files."""

    name: str
    event: str
    definition: str = ""  # the statement that made it, in its schema; empty: not asked for, or not told
    sql_mode: str = ""
    client: str = ""  # the character set in which the statement was sent
    collation: str = ""  # of the connection: how it compares its literals, and in which character set they are

    def to_be_typed(self, table: Table) -> str:
        """Comment lines for a person to read, and to type without their dashes; a client needs the delimiter.

        Words beyond ASCII are sent in UTF-8 here, whatever they were sent in once. They mean the same to the server,
        which converts literals to the connection's character set, but for those behind an introducer.
        """
        if not self.definition:
            return comment(f"# the server did not tell the statement of the trigger {quoted(self.name)}")
        mode = self.sql_mode.replace("'", "''")
        plain = self.definition.isascii()
        settings = {"character_set_client": self.client if plain else _OURS, "collation_connection": self.collation}
        known = {name: value for name, value in settings.items() if _WORD.fullmatch(value)}
        kept = "".join(f", @backupd_{name} = @@SESSION.{name}" for name in known)
        lines = [
            "DELIMITER //",
            f"USE {quoted(table.schema)}//",
            f"SET @backupd_mode = @@SESSION.sql_mode{kept}//",
            f"SET SESSION sql_mode = '{mode}'{''.join(f', {name} = {value}' for name, value in known.items())}//",
            f"{self.definition}\n//",
            f"SET SESSION sql_mode = @backupd_mode{''.join(f', {name} = @backupd_{name}' for name in known)}//",
            "DELIMITER ;",
        ]
        if not plain and not self.client.startswith("utf8"):
            lines.insert(
                0,
                f"# it was sent in {self.client}, and is in UTF-8 here: a literal like _{self.client}'é' would differ",
            )
        return typed("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Attachments:
    """What a table in a running server has, as far as the account may see it."""

    triggers: tuple[TableTrigger, ...] = ()
    foreign_keys: tuple[str, ...] = ()  # names
    referring: tuple[tuple[Table, str], ...] = ()  # other tables, and the name of the foreign key


def attachments_of(session: Session, table: Table) -> Attachments:
    """Of the table of this name; nothing where there is none.

    Raises:
        ServerError: the session is over.
    """
    names = (table.schema, table.name)
    return Attachments(
        _named_triggers(session, table),
        tuple(str(row["name"]) for row in session.query(_FOREIGN_KEYS, *names)),
        tuple(
            (Table(str(row["its_schema"]), str(row["its_table"])), str(row["name"]))
            for row in session.query(_REFERRING, *names)
        ),
    )


def triggers_of(session: Session, table: Table) -> tuple[TableTrigger, ...]:
    """In the order in which they run, with their statements.

    Raises:
        ServerError: the session is over.
    """
    return tuple(_told(session, table, trigger) for trigger in _named_triggers(session, table))


def _named_triggers(session: Session, table: Table) -> tuple[TableTrigger, ...]:
    return tuple(
        TableTrigger(str(row["name"]), str(row["event"])) for row in session.query(_TRIGGERS, table.schema, table.name)
    )


def _told(session: Session, table: Table, trigger: TableTrigger) -> TableTrigger:
    """`information_schema` has other words: of MariaDB 10.11.19 and MySQL 9.7.4 without the backslashes that
    were doubled and without introducers, of MySQL without the quotes that were doubled.
    """
    try:
        row = session.one(f"SHOW CREATE TRIGGER {quoted(table.schema)}.{quoted(trigger.name)}") or {}
    except StatementError as error:
        if not error.number:
            raise
        return trigger  # broken: a table is restored without it
    columns = ("SQL Original Statement", "sql_mode", "character_set_client", "collation_connection")
    return TableTrigger(trigger.name, trigger.event, *(str(row.get(column) or "") for column in columns))
