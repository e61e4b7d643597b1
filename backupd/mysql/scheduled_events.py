"""The scheduled events of a server on restored files: whether it would run them, and how it is told to.

Looked up in the sources of both servers (`Event_parse_data::check_originator_id`): what an applier is told of an event
leaves it to the server that it comes from, SLAVESIDE_DISABLED or REPLICA_SIDE_DISABLED, whether it was enabled there or
not. And of MariaDB's (`Events::init`, `Events::fill_schema_events`): with `--skip-grant-tables` it knows no events and
refuses to make any (error 1577), until `event_scheduler` is set. Tried on MariaDB 10.11.19 and MySQL 9.7.4.
"""

from collections.abc import Callable, Iterator

from backupd.mysql.binlog.event_statements import EventStatus
from backupd.mysql.facts import flavour_of
from backupd.mysql.session import Row, Session
from backupd.mysql.sqltext import literal, quoted
from backupd.vocabulary.servers import Flavour

_EVENTS = (
    "SELECT EVENT_SCHEMA AS `schema`, EVENT_NAME AS name, DEFINER AS definer, STATUS AS status,"
    " CHARACTER_SET_CLIENT AS client, COLLATION_CONNECTION AS collation, SQL_MODE AS mode"
    " FROM information_schema.EVENTS"
)
_OF_MARIADB = "SELECT db AS `schema`, name, status FROM mysql.event"  # information_schema has none yet
_VERBS = {EventStatus.ENABLED: "ENABLE", EventStatus.DISABLED: "DISABLE"}  # what was left to another server, and is not

EventName = tuple[str, str]  # schema and name


def ready(session: Session) -> None:
    """The server can make and change events. It runs none.

    Raises:
        ServerError: it refused that.
    """
    if flavour_of(session) is Flavour.MARIADB:
        session.execute("SET GLOBAL event_scheduler = OFF")


def event_statuses(session: Session) -> dict[EventName, EventStatus]:
    """Of all events of the server.

    Raises:
        ServerError: it does not tell.
    """
    return {_name(row): _status(row) for row in _rows(session)}


def put_back(session: Session, wanted: Callable[[EventName], EventStatus | None], *, server_id: int) -> None:
    """What was left to another server is enabled or disabled where that is `wanted`, as events of the server that has
    this id. Nothing is written to a binlog.

    Raises:
        ServerError: the server refused it.
    """
    left = [row for row in _rows(session) if _status(row) is EventStatus.ELSEWHERE]
    changed = [(row, status) for row in left if (status := wanted(_name(row))) in _VERBS]
    if not changed:
        return
    session.execute("SET SESSION sql_log_bin = 0")
    if flavour_of(session) is Flavour.MARIADB:
        for row, status in changed:
            # ALTER EVENT would change more of it: MariaDB keeps it in a table
            session.execute("UPDATE mysql.event SET status = %s WHERE db = %s AND name = %s", status, *_name(row))
        return
    session.execute(f"SET GLOBAL server_id = {server_id:d}")  # whose events they are then
    for row, status in changed:
        for statement in _statements(row, _VERBS[status]):
            session.execute(statement)


def leave_to_the_source(session: Session, *, called: str) -> None:
    """No event that is enabled runs on a copy that becomes a replica: its source runs it, and sends what it changes.

    They are as an applier leaves what it is told of an event. `called` is what the server's statements call a replica:
    REPLICA or SLAVE. Nothing is written to a binlog.

    Raises:
        ServerError: the server refused it.
    """
    enabled = [row for row in _rows(session) if _status(row) is EventStatus.ENABLED]
    if not enabled:
        return
    session.execute("SET SESSION sql_log_bin = 0")
    if flavour_of(session) is Flavour.MARIADB:  # as in `put_back`
        session.execute("UPDATE mysql.event SET status = 'SLAVESIDE_DISABLED' WHERE status = 'ENABLED'")
        return
    for row in enabled:
        for statement in _statements(row, f"DISABLE ON {called}"):
            session.execute(statement)


def _statements(row: Row, verb: str) -> Iterator[str]:
    """What an ALTER EVENT does not name becomes the session's own: who it runs as, the character set of its words, and
    the SQL mode that they are read in.
    """
    user, _, host = (row["definer"] or "").rpartition("@")
    schema, name = _name(row)
    definer, event = f"{quoted(user)}@{quoted(host)}", f"{quoted(schema)}.{quoted(name)}"
    yield f"SET SESSION sql_mode = {literal(row['mode'] or '')}"
    if f"{definer}{event}".isascii():
        yield f"SET SESSION character_set_client = {row['client']}, collation_connection = {row['collation']}"
    yield f"ALTER DEFINER = {definer} EVENT {event} {verb}"


def _rows(session: Session) -> list[Row]:
    return session.query(_OF_MARIADB if flavour_of(session) is Flavour.MARIADB else _EVENTS)


def _name(row: Row) -> EventName:
    return row["schema"] or "", row["name"] or ""


def _status(row: Row) -> EventStatus:
    try:
        return EventStatus(row["status"] or "")
    except ValueError:
        return EventStatus.ELSEWHERE
