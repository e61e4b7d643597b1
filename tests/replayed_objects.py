"""What a server has beside rows, some of it made before a backup, some later: a restore to a moment has all of it."""

from collections.abc import Mapping

from backupd.mysql.session import Session
from backupd.vocabulary.servers import Flavour

_EACH_DAY = "ON SCHEDULE EVERY 1 DAY STARTS '2026-01-01 00:00:00'"
_BEFORE = (
    "CREATE SCHEMA IF NOT EXISTS t",
    "CREATE TABLE t.bills (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)",
    f"CREATE EVENT t.kept {_EACH_DAY} DO DELETE FROM t.bills",
    f"CREATE EVENT t.kept_off {_EACH_DAY} DISABLE DO DELETE FROM t.bills",
    f"CREATE EVENT t.changed {_EACH_DAY} DO DELETE FROM t.bills",
    f"CREATE EVENT t.changed_off {_EACH_DAY} DISABLE DO DELETE FROM t.bills",
    f"CREATE EVENT t.turned_on {_EACH_DAY} DISABLE DO DELETE FROM t.bills",
    f"CREATE EVENT t.turned_off {_EACH_DAY} DO DELETE FROM t.bills",
    f"CREATE EVENT t.left_to_others {_EACH_DAY} DISABLE ON SLAVE DO DELETE FROM t.bills",
    "SET SESSION timestamp = UNIX_TIMESTAMP('2026-01-01 00:00:00')",
    # Its time is over by now.
    "CREATE EVENT t.once ON SCHEDULE EVERY 1 HOUR STARTS NOW() ENDS '2026-01-02 00:00:00' DO DELETE FROM t.bills",
    "SET SESSION timestamp = DEFAULT",
)
_LATER = (
    f"CREATE DEFINER = 'nobody'@'%' EVENT t.`a purge``s` {_EACH_DAY} DO DELETE FROM t.bills WHERE v = 'ä'",
    f"CREATE EVENT t.made_off {_EACH_DAY} DISABLE COMMENT 'ENABLE' DO DELETE FROM t.bills",
    f"CREATE EVENT t.made_for_others {_EACH_DAY} DISABLE ON SLAVE DO DELETE FROM t.bills",
    f"CREATE EVENT t.gone {_EACH_DAY} DO DELETE FROM t.bills",
    "DROP EVENT t.gone",
    "DROP EVENT t.once",
    "ALTER EVENT t.changed RENAME TO t.renamed COMMENT 'changed'",
    "ALTER EVENT t.changed_off COMMENT 'changed'",
    "ALTER EVENT t.turned_on ENABLE",
    "ALTER EVENT t.turned_off DISABLE",
    "CREATE TRIGGER t.writes BEFORE INSERT ON t.bills FOR EACH ROW SET NEW.v = CONCAT(NEW.v, '!')",
    "CREATE VIEW t.seen AS SELECT v FROM t.bills",
    "CREATE PROCEDURE t.bill(text_ TEXT) MODIFIES SQL DATA INSERT INTO t.bills (v) VALUES (text_)",
    "CREATE FUNCTION t.doubled(n INT) RETURNS INT DETERMINISTIC NO SQL RETURN 2 * n",
    "CREATE ROLE clerks",
    "GRANT SELECT, INSERT ON t.bills TO clerks",
    "CREATE USER 'cleo'@'localhost' IDENTIFIED BY 'something'",
    "GRANT clerks TO 'cleo'@'localhost'",
    "GRANT EXECUTE ON PROCEDURE t.bill TO 'cleo'@'localhost'",
    "CALL t.bill('by a procedure, with a trigger')",
    "UPDATE t.bills SET id = t.doubled(id)",
)
_SHOWN = {
    "TRIGGER t.writes": "SQL Original Statement",
    "VIEW t.seen": "Create View",
    "PROCEDURE t.bill": "Create Procedure",
    "FUNCTION t.doubled": "Create Function",
}
_EVENTS = (
    "SELECT EVENT_NAME, DEFINER, STATUS, ORIGINATOR, EVENT_DEFINITION, EVENT_COMMENT, SQL_MODE, TIME_ZONE,"
    " CHARACTER_SET_CLIENT, COLLATION_CONNECTION, DATABASE_COLLATION, STARTS FROM information_schema.EVENTS"
    " WHERE EVENT_SCHEMA = 't' ORDER BY EVENT_NAME"
)


def made_before(root: Session) -> None:
    """Of the backup."""
    for statement in _BEFORE:
        root.execute(statement)


def made_later(root: Session) -> None:
    """Of the log alone; some of it changes what was there."""
    for statement in _LATER:
        root.execute(statement)


def objects_of(root: Session, flavour: Flavour) -> Mapping[str, object]:
    """All of it, and the rows of the table, as the server tells them."""
    role = "clerks" if flavour is Flavour.MARIADB else "clerks@'%'"
    return {
        **{what: (root.one(f"SHOW CREATE {what}") or {})[column] for what, column in _SHOWN.items()},
        "events": root.query(_EVENTS),
        "seen": root.query("SELECT * FROM t.seen"),
        "ids": root.query("SELECT id FROM t.bills"),
        "role": root.query(f"SHOW GRANTS FOR {role}"),
        "user": root.query("SHOW GRANTS FOR 'cleo'@'localhost'"),
    }


def statuses_of(root: Session) -> Mapping[str, str]:
    """Whether the server would run its events."""
    return {str(row["EVENT_NAME"]): str(row["STATUS"]) for row in root.query(_EVENTS)}
