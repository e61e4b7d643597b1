"""A schema of a running server in which tables are loaded, and the new one in which they are seen once they are whole.

Knows: what the account needs for it, and that nothing that the server had is touched: the one schema has a random name
and is made by a CREATE DATABASE that fails where it exists; so is the other, at the very end, into which the tables go
by one RENAME TABLE. Whoever finds tables there finds whole ones. What is removed is named in the holding: a schema with
anything else in it stays.
"""

import json
import logging
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pymysql.constants import ER

from backupd.mysql.facts import flavour_of, is_replica, version_number
from backupd.mysql.positions import binlog_status
from backupd.mysql.same_server import has_identity, identity, on_another
from backupd.mysql.session import Connect, Session, StatementError
from backupd.mysql.sqltext import quoted
from backupd.mysql.table_shape import TableShape
from backupd.mysql.tablefiles import Table
from backupd.mysql.tablespace_loading import datadir_here, remove_files
from backupd.vocabulary.errors import Refused, ServerError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.servers import Flavour

log = logging.getLogger(__name__)

LOADING = "backupd_loading_"
LOAD_SECONDS = 86400.0  # a batch waits for the server's disks, CHECKSUM TABLE reads a whole table
REMOVE_SECONDS = 600.0  # the last statement may still be under way: `recover` tries again

_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_-]{0,63}")
# ALLOW_INVALID_DATES and no strict mode: rows are as they are. The others keep what was asked for from becoming
# something else: the number 0 a new number, a missing engine another one, a folder of the old host one of this host.
_MODE = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,NO_DIR_IN_CREATE"
_TABLES = "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = %s"
_MADE = "SELECT engine AS engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_FOREIGN_KEYS = """
    SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE constraint_schema = %s AND constraint_type = 'FOREIGN KEY'
"""
_DUMPING = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
_SETTINGS = "SELECT @@version AS version, @@log_bin AS logs, @@global.read_only AS closed, @@max_allowed_packet AS most"
_PROBES = {  # of a table that is not there: refused without the privilege, and an unknown table or schema with it
    "SELECT": "SELECT 1 FROM {0}.backupd_probe LIMIT 0",
    "INSERT": "INSERT INTO {0}.backupd_probe VALUES ()",
    "CREATE": "CREATE TABLE {0}.backupd_probe LIKE {0}.backupd_none",
    "ALTER": "ALTER TABLE {0}.backupd_probe COMMENT ''",
    "DROP": "DROP TABLE {0}.backupd_probe",
}
_TO_LOAD = ("SELECT", "INSERT", "CREATE", "ALTER", "DROP")
_TO_PUBLISH = ("SELECT", "INSERT", "CREATE")
_NOT_THERE = (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.BAD_TABLE_ERROR)


@dataclass(frozen=True, slots=True)
class LoadingServer:
    """The server that tables are loaded into, as it was before."""

    host: str  # as the configuration calls it
    flavour: Flavour
    version_number: tuple[int, int, int]
    largest_statement: int  # bytes
    logs: bool  # to a binary log
    replicas: int  # that were connected; 0 too where the account may not see them
    left_out: str  # filters of its binary log, in words; empty: none is known
    is_replica: bool
    identity: Mapping[str, str]  # what tells it from another


@dataclass(frozen=True, slots=True)
class LoadingPlace:
    """Where tables are loaded, and where they are to be seen."""

    host: str
    loading: str
    schema: str
    logged: bool = True  # what is done there goes into the server's binary log, where it has one

    def holding(self, tables: Sequence[Table], server: LoadingServer) -> Holding:
        """What `remove_loading` removes."""
        detail = {"host": self.host, "tables": json.dumps([table.name for table in tables]), **server.identity}
        return Holding(HoldingKind.LOADING_SCHEMA, self.loading, detail | ({} if self.logged else {"logged": "no"}))


def new_place(host: str, schema: str) -> LoadingPlace:
    """A loading schema that no server has.

    Raises:
        UsageError: `schema` is not a name for a new one.
    """
    if _NAME.fullmatch(schema) is None or schema.lower().startswith(LOADING):
        raise UsageError(
            f"{schema!r} is not a name for a new schema",
            hint="letters, digits, _ and -, for example --as restored_1121",
        )
    return LoadingPlace(host, f"{LOADING}{secrets.token_hex(8)}", schema)


def require_takes(session: Session, place: LoadingPlace) -> LoadingServer:
    """What the server is, once nothing speaks against loading tables there. Nothing was changed.

    Raises:
        Refused: the schema exists, the account lacks a privilege, the server is read-only, or it is a replica that
            would stop replicating.
        ServerError: it cannot be asked.
    """
    lacking = {schema: _missing(session, schema, needed) for schema, needed in _needed(place)}
    if any(lacking.values()):
        raise Refused(
            f"the account may not load tables into {place.host}: it lacks "
            + "; ".join(f"{', '.join(names)} ON {schema}.*" for schema, names in lacking.items() if names),
            hint=_grants(place),
        )
    if _exists(session, place.schema):
        raise Refused(
            f"schema {place.schema} exists on {place.host}",
            hint="nothing is loaded into an existing one: choose another",
        )
    told = session.one(_SETTINGS) or {}
    if told["logs"] == "1" and not place.logged:
        _stop_logging(session)
    if told.get("closed") not in ("0", "OFF"):
        raise Refused(
            f"the server {place.host} is read-only (a replica?)",
            hint="load into its source: its replicas receive the rows from there",
        )
    flavour, replica = flavour_of(session), is_replica(session)
    if replica and place.logged and told["logs"] == "1" and flavour is Flavour.MARIADB:
        _require_lax(session, place)
    return LoadingServer(
        place.host,
        flavour=flavour,
        version_number=version_number(told["version"] or ""),
        largest_statement=int(told["most"] or 0),
        logs=told["logs"] == "1",
        replicas=int(session.value(_DUMPING) or 0),
        left_out=_left_out(session) if told["logs"] == "1" else "",
        is_replica=replica,
        identity=identity(session, session.variables()),
    )


def prepare(session: Session, flavour: Flavour, *, logged: bool = True) -> None:
    """What this session writes is stored as it is; unless `logged`, in no binary log.

    Raises:
        Refused: the account may not keep it out of the log.
        ServerError: the session is over.
    """
    if not logged:
        _stop_logging(session)
    session.execute(f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', foreign_key_checks = 0")
    session.execute(f"SET SESSION wait_timeout = {LOAD_SECONDS:.0f}")
    if flavour is Flavour.MARIADB:
        session.execute("SET SESSION check_constraint_checks = 0")  # a row may be older than its table's constraint


def make(session: Session, place: LoadingPlace, shapes: Sequence[TableShape]) -> None:
    """The loading schema is there, with every table in it, empty.

    Raises:
        ServerError: the server refused: it has no such engine, collation or page size.
    """
    session.execute(f"CREATE DATABASE {quoted(place.loading)}")
    for shape in shapes:
        _make_table(session, place, shape)


def make_again(session: Session, place: LoadingPlace, shape: TableShape) -> None:
    """A table of the loading schema, whatever became of it, is there and empty.

    Raises:
        ServerError: the server refused.
    """
    session.execute(f"DROP TABLE IF EXISTS {quoted(place.loading)}.{quoted(shape.table.name)}")
    _make_table(session, place, shape)


def _make_table(session: Session, place: LoadingPlace, shape: TableShape) -> None:
    try:
        session.execute(shape.created_in(place.loading))
    except StatementError as error:
        error.hint = error.hint or "the running server cannot have this table: restore it into a folder, with --to DIR"
        raise
    made = session.value(_MADE, place.loading, shape.table.name)
    if made != shape.engine or int(session.value(_FOREIGN_KEYS, place.loading) or 0):
        raise ServerError(
            f"{place.host} made {shape.table} as another table than the backup has (engine {made})",
            hint="nothing was loaded: restore it into a folder, with --to DIR",
        )


def publish(session: Session, place: LoadingPlace, tables: Sequence[Table]) -> None:
    """The tables are in the new schema, all at once. Where it fails, that schema is not there, or empty.

    Raises:
        Refused: somebody has made a schema of this name since.
        ServerError: the server refused or failed.
    """
    try:
        session.execute(f"CREATE DATABASE {quoted(place.schema)}")
    except StatementError as error:
        if error.number == ER.DB_CREATE_EXISTS:
            raise Refused(
                f"schema {place.schema} was created on {place.host} meanwhile", hint="load again, as another one"
            ) from error
        raise
    moved = (
        f"{quoted(place.loading)}.{quoted(table.name)} TO {quoted(place.schema)}.{quoted(table.name)}"
        for table in tables
    )
    session.execute(f"RENAME TABLE {', '.join(moved)}")


def remove_loading(connect: Connect, holding: Holding) -> None:
    """The loading schema is gone with the tables that were made in it. Again is no error, nor where it was not made.

    Whichever server answers: behind one address there may be several of a cluster, and each session be with another.

    Raises:
        ServerError: something else is in it, or the server failed.
    """
    with _removing(connect, holding) as session:
        _remove(session, holding)


def remove_left_loading(connect: Connect, holding: Holding) -> None:
    """The same of what a dead run has left, perhaps long ago.

    Where another server answers that has it too, as the source's replica that took over, it is removed there. Where
    that does not have it, the one that it was made on is given up after a week, with a warning.

    Raises:
        ServerError: something else is in it, the server failed, or another one answers that does not have it.
    """
    with _removing(connect, holding) as session:
        if has_identity(holding.detail) and (words := _left_on_another(session, holding)):
            log.warning("%s", words)
        else:
            _remove(session, holding)


@contextmanager
def _removing(connect: Connect, holding: Holding) -> Iterator[Session]:
    """A session in which it is removed, and logged as it was made."""
    if not holding.name.startswith(LOADING):
        raise ServerError(f"{holding.name!r:.80} is not a loading schema", hint="was the catalogue changed?")
    with connect(answer_seconds=REMOVE_SECONDS) as session:
        if holding.detail.get("logged") == "no":
            _stop_logging(session)
        yield session


def _remove(session: Session, holding: Holding) -> None:
    ours = {name.lower() for name in json.loads(holding.detail["tables"])}
    there = [str(row["name"]) for row in session.query(_TABLES, holding.name)]
    others = [name for name in there if name.lower() not in ours]
    if others:
        raise ServerError(
            f"schema {holding.name} has tables that backupd did not load: {', '.join(others)}",
            hint=f"move them elsewhere, then `backupd recover`; or DROP DATABASE {quoted(holding.name)} by hand",
        )
    for name in there:
        session.execute(f"DROP TABLE IF EXISTS {quoted(holding.name)}.{quoted(name)}")
    if (datadir := datadir_here(session)) is not None:
        remove_files(datadir, holding.name)
    session.execute(f"DROP DATABASE IF EXISTS {quoted(holding.name)}")


def _left_on_another(session: Session, holding: Holding) -> str:
    """A sentence where the schema is not here, and this is not the server that it was made on."""
    if _exists(session, holding.name):
        return ""
    changed, remedy = f"schema {holding.name} was made", f"DROP DATABASE {quoted(holding.name)} there"
    return on_another(holding.detail, identity(session, session.variables()), changed=changed, remedy=remedy)


def _stop_logging(session: Session) -> None:
    try:
        session.execute("SET SESSION sql_log_bin = 0")
    except StatementError as error:
        if error.denied:
            raise Refused(
                "the account may not keep the tables out of the binary log, where no server could repeat an import",
                hint="GRANT BINLOG ADMIN ON *.* (MySQL: SYSTEM_VARIABLES_ADMIN) TO its account, or load with --by rows",
            ) from error
        raise


def _require_lax(session: Session, place: LoadingPlace) -> None:
    """What is logged here takes the number of the source's next transaction, which a strict log then refuses.

    Raises:
        Refused: this replica has such a log.
    """
    if session.value("SELECT @@GLOBAL.gtid_strict_mode AND @@GLOBAL.log_slave_updates") == "1":
        raise Refused(
            f"{place.host} is a replica with gtid_strict_mode, which would stop replicating (error 1950) once it has"
            " logged rows of its own",
            hint="load into its source, or with --by tablespace, which is not logged",
        )


def _needed(place: LoadingPlace) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ((quoted(place.loading), _TO_LOAD), (quoted(place.schema), _TO_PUBLISH))


def _missing(session: Session, schema: str, needed: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in needed if not _may(session, _PROBES[name].format(schema)))


def _may(session: Session, probe: str) -> bool:
    try:
        session.execute(probe)
    except StatementError as error:
        if error.denied:
            return False
        if error.number not in _NOT_THERE:
            raise
    return True


def _grants(place: LoadingPlace) -> str:
    """For a loading schema of any name, and for the one that is asked for."""
    pattern = f"{LOADING}%".replace("_", r"\_")
    schema = place.schema.replace("_", r"\_")
    return (
        f"GRANT {', '.join(_TO_LOAD)} ON `{pattern}`.* TO its account; GRANT {', '.join(_TO_PUBLISH)} ON `{schema}`.*"
        " TO it; or name a host of the configuration whose user has them"
    )


def _exists(session: Session, schema: str) -> bool:
    try:
        session.query(f"SHOW CREATE DATABASE {quoted(schema)}")
    except StatementError as error:
        if error.number == ER.BAD_DB_ERROR:
            return False
        raise
    return True


def _left_out(session: Session) -> str:
    """Empty, too, where the account may not ask: it is not needed to load."""
    try:
        row = binlog_status(session) or {}
    except StatementError as error:
        if error.denied:
            return ""
        raise
    named = (("binlog_do_db", row.get("Binlog_Do_DB")), ("binlog_ignore_db", row.get("Binlog_Ignore_DB")))
    return ", ".join(f"{name} = {value}" for name, value in named if value)
