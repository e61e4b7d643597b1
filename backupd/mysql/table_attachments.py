"""What hangs on a table beside its rows: its triggers, its foreign keys, and those of other tables that refer to it.

Knows: what a server tells an account of them. One without the privilege TRIGGER is told of no trigger.
"""

from dataclasses import dataclass

from backupd.mysql.session import Session
from backupd.mysql.sqltext import comment, quoted
from backupd.mysql.tablefiles import Table

_TRIGGERS = """
    SELECT trigger_name AS name, action_timing AS timing, event_manipulation AS event, definer AS definer,
        sql_mode AS sql_mode, action_statement AS body
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


@dataclass(frozen=True, slots=True)
class TableTrigger:
    """A trigger, and what makes it again. Its words are whoever's who made the server's files."""

    name: str
    timing: str  # BEFORE or AFTER
    event: str
    definer: str
    sql_mode: str
    body: str

    def to_be_typed(self, table: Table) -> str:
        """Comment lines for a person to read, and to type without their dashes; a client needs the delimiter."""
        user, _, host = self.definer.rpartition("@") if "@" in self.definer else (self.definer, "", "")
        definer = f"{quoted(user)}@{quoted(host)}" if host else quoted(user)
        mode = self.sql_mode.replace("'", "''")
        event = self.event.replace(",", " OR ")
        text = (
            "DELIMITER //\n"
            f"SET @backupd_mode = @@SESSION.sql_mode, SESSION sql_mode = '{mode}'//\n"
            f"CREATE DEFINER={definer} TRIGGER {quoted(table.schema)}.{quoted(self.name)} {self.timing} {event}"
            f" ON {table.in_sql} FOR EACH ROW {self.body}\n//\n"
            "SET SESSION sql_mode = @backupd_mode//\n"
            "DELIMITER ;"
        )
        return comment(text)


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
        triggers_of(session, table),
        tuple(str(row["name"]) for row in session.query(_FOREIGN_KEYS, *names)),
        tuple(
            (Table(str(row["its_schema"]), str(row["its_table"])), str(row["name"]))
            for row in session.query(_REFERRING, *names)
        ),
    )


def triggers_of(session: Session, table: Table) -> tuple[TableTrigger, ...]:
    """In the order in which they run.

    Raises:
        ServerError: the session is over.
    """
    return tuple(
        TableTrigger(*(str(row[name] or "") for name in ("name", "timing", "event", "definer", "sql_mode", "body")))
        for row in session.query(_TRIGGERS, table.schema, table.name)
    )
