"""A server on restored files applies what its source logged after the backup, up to an exact place, and stands there.

Knows: the statements, how far it is, and what its errors mean. The server's own appliers read the log, from relay logs
that `relay_logs` has laid down. Nothing of ours and no client program reads a stranger's events, and what the log
says about schemas, variables and transactions is done as on any replica.

Relay logs and not a client's session: `make bench-apply` prints both. On two busy processors 40,000 small transactions
took 4.9 s at best in one session (5.4 s with a binlog, without which MariaDB would know no GTID afterwards), 1.1 s from
relay logs, and 1.5 and 1.9 s with 2 and 4 appliers side by side: so there are none by default. And a session needs a
client program, which interprets what a stranger wrote outside of the server's bounds.

Tried on MariaDB 10.11.19, and the same log of InnoDB, MyISAM, MEMORY, DDL, LOAD DATA and XA on MySQL 9.7.4 with and
without `gtid_mode`:
- CHANGE MASTER with a relay log and without the source's file and offset is accepted. Parallel appliers then crash the
  server (`compare_log_names`), for they compare the name of that file with the next one's. Hence both are always given.
- MASTER_USE_GTID has the server remove all relay logs as appliers start; without it `gtid_slave_pos` is kept, too.
- MariaDB's executed place is not moved by a file's Stop event. Hence each relay log ends with a rotation to its end.
- What the log puts into a folder of its own (DATA DIRECTORY) is made in the copy by MariaDB with `skip-symbolic-links`.
  MySQL refuses folders that are not in `innodb_directories` (3121) from 8.0.21 on. Before it is told NO_DIR_IN_CREATE,
  which no event has; a server keeps that mode in each routine, trigger and event that the applier makes.
- MySQL writes what it finds emptied, MEMORY tables, into its own binlog: with the source's server_uuid that would be
  the source's next GTID, which would then not be applied.
- A server that was started with `--skip-grant-tables` refuses what the log says of accounts (error 1290), until it has
  loaded the copy's accounts. Sessions that are open keep their rights then, and nobody else gets in as they did: hence
  `stop` has one of its own, which was opened before.
- MySQL forgets when it shuts down that it has executed an XA PREPARE, which has a GTID of its own. So it is told in the
  end what has been executed, and keeps that.
- An applier that is stopped while it still has work queued leaves it undone. So it is stopped at the end only, and what
  says that it has come to the end is the executed place, not that it waits for more.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import inf

from backupd.mysql.binlog.memory_tables import NO_SUCH_ROW, require_rows
from backupd.mysql.binlog.relay_logs import RelayLogs, relay_log_name
from backupd.mysql.facts import flavour_of
from backupd.mysql.own_limits import ran_out
from backupd.mysql.rolling_back import await_recovery
from backupd.mysql.scratch import RunningServer
from backupd.mysql.seeding import Words, gtids_kept, source_word, start_statement, words_of
from backupd.mysql.session import Row, Session
from backupd.mysql.sqltext import literal
from backupd.policy import gtid
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import ServerError, Undecided, VerificationError
from backupd.vocabulary.servers import Flavour, Position

NOBODY = "nobody.invalid"  # the source's host: the part of the replica that would connect to it is never started

_POLL_SECONDS = 0.1
_MEMORY_TABLES = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE engine = 'MEMORY'"
    " AND table_schema NOT IN ('information_schema', 'performance_schema', 'sys')"
)
_GTIDS = {Flavour.MARIADB: "SELECT @@global.gtid_slave_pos", Flavour.MYSQL: "SELECT @@global.gtid_executed"}
LOST_AT_A_SHUTDOWN = (
    "the server was in the middle of a transaction, or had prepared ones (XA) or tables in memory, which end with it"
)
_SAID_BY_WORKER = (
    "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker"
    " WHERE LAST_ERROR_NUMBER = %s LIMIT 1"
)
_RELAY_LOG = re.compile(r".*\.([0-9]{6,10})")
_LONGEST_ERROR = 500
_OTHERWISE = (
    "restore from another backup (name RUN) or target (--target), or a moment before it; `backupd binlog verify JOB`"
    " tells whether the archive is damaged"
)
_FIRST_EVENT = 4  # where it begins in a relay log
_READ_ALL = "has read all relay log"  # said by the one that reads, which without others also applies
_NO_SUCH_TABLE = 1146  # ER_NO_SUCH_TABLE
_ELSEWHERE = 3121  # ER_WRONG_FILE_NAME: MySQL's of DATA DIRECTORY and ADD DATAFILE outside of its folders
_NO_SUCH_PLUGIN = 1524  # ER_PLUGIN_IS_NOT_LOADED
_CREATE_LOADED = (
    r"CREATE\s+(OR\s+REPLACE\s+)?(AGGREGATE\s+)?FUNCTION\s+(IF\s+NOT\s+EXISTS\s+)?\S+\s+RETURNS\s+\w+\s+SONAME"
)
_NO_FUNCTION = {  # by its number, what stands in an error that is of a function
    1123: re.compile(""),  # ER_CANT_INITIALIZE_UDF, of CREATE FUNCTION … SONAME alone here
    1305: re.compile("Error 'FUNCTION "),  # ER_SP_DOES_NOT_EXIST
    # What MariaDB says of loadable ones after `--skip-grant-tables`; else memory has run out.
    1041: re.compile(rf"Query: '\s*({_CREATE_LOADED}|DROP\s+FUNCTION)\b", re.IGNORECASE),
}
_UNREADABLE = {1594, 1610, 13121, 13117}  # ER_SLAVE_RELAY_LOG_READ_FAILURE, …_CORRUPT_EVENT; as MySQL 8 numbers them
_NO_ROOM = {3, 28, 1021, 1026, 1037, 1041, 1114, 1135}  # of disks, memory, threads; also as the system's own errors


@dataclass(frozen=True, slots=True)
class ApplyingProgress:
    """How far it is."""

    done: int  # bytes of log
    of: int
    logged_at: datetime | None  # when the source had logged what is done; None while nothing tells


@dataclass(frozen=True, slots=True)
class Applied:
    """Where the server stands: a replica can be seeded from there."""

    position: Position
    seconds: float


@dataclass
class AppliedPosition:
    """Where a server stands that is no replica: one that `apply` has made none yet, and one of which it has made none
    any more, say the same of themselves.
    """

    at: Position | None = None  # None: it may be one, and tells


def apply(
    server: RunningServer,
    logs: RelayLogs,
    *,
    start: Position,
    end: Position,
    applied: AppliedPosition | None = None,
    appliers: int = 0,
    telling: Callable[[ApplyingProgress], None] = lambda _progress: None,
    waiting: Callable[[str], None] = lambda _for: None,
) -> Applied:
    """The server, which stood at `start`, stands at `end`, is not a replica, and has forgotten the logs.

    What recovery rolls back in the background is waited for, which `waiting` is told: the log may have it again, and an
    applier gives up a row that is locked, after ten tries of 50 s by default. With `appliers` so many work side by
    side, and commit in the log's order; `make bench-apply` compares them.
    It was started with `applying` after the logs had been `laid_down`. If it fails, its copy is of no moment and must
    not be used; if it is interrupted, `stop` says where it is, by what `applied` has been told.

    Raises:
        VerificationError: the logs are not from `start` to `end`, do not fit the data, or led to another GTID.
        Undecided: the server ran out of memory or room.
        ServerError: it is gone, refused a statement, or cannot read an event.
    """
    began = time.monotonic()
    session, applied = server.session, applied or AppliedPosition()
    _require_fit(session, logs, start, end)
    words = words_of(session)
    if words is Words.MARIADB:
        session.execute(f"SET GLOBAL gtid_slave_pos = {literal(start.gtid or '')}")
    applied.at = start
    if logs.sizes:
        await_recovery(session, within_seconds=inf, telling=waiting)
        server.keep_a_spare_session()
        session.execute("FLUSH LOCAL PRIVILEGES")
        applied.at = None
        for statement in _statements(words, start, appliers):
            session.execute(statement)
        word = _replica_word(words)
        _wait(session, f"SHOW {word} STATUS", logs, appliers, telling)
        applied.at = end
        for statement in (f"STOP {word}", f"RESET {word} ALL"):
            session.execute(statement)
    _require_gtid(session, end)
    if logs.sizes:
        _kept(session, words, end)
    return Applied(end, time.monotonic() - began)


def stop(server: RunningServer, applied: AppliedPosition) -> Position | None:
    """Where the server stands, whose `apply` was interrupted: between two transactions, following nobody.

    None where it cannot go on from there once it is shut down: MEMORY tables and temporary ones would be empty then, a
    transaction that XA has prepared would be unknown to its XA COMMIT, and an error says that one was not done whole.
    At the end there is nothing to go on with that could miss them.

    Raises:
        VerificationError: it has executed something else than led there.
        ServerError: it is gone, or refused a statement.
    """
    server.renew_session()
    session = server.session
    words = words_of(session)
    word = _replica_word(words)
    if session.one(f"SHOW {word} STATUS") is not None:
        session.execute(f"STOP {word}")
    row = session.one(f"SHOW {word} STATUS")
    reached = applied.at or _stopped_at(session, row or {})
    if reached is None:
        return None
    if row is not None:
        session.execute(f"RESET {word} ALL")
    _require_gtid(session, reached)
    return _kept(session, words, reached)


def _stopped_at(session: Session, row: Row) -> Position | None:
    """A replica's place between two transactions, with which a shutdown takes nothing away."""
    reached = _reached(row)
    if int(row.get("Last_SQL_Errno") or 0) or reached is None or _holds_what_a_shutdown_loses(session):
        return None
    return Position(reached.file, reached.offset, executed_gtids(session))


def _replica_word(words: Words) -> str:
    return "REPLICA" if source_word(words) == "SOURCE" else "SLAVE"


def _kept(session: Session, words: Words, position: Position) -> Position:
    """A MySQL server still knows what it has executed once it was shut down and its binlogs are gone."""
    if words is not Words.MARIADB and position.gtid and session.value("SELECT @@global.gtid_mode") != "OFF":
        for statement in gtids_kept(words, position.gtid):
            session.execute(statement)
    return position


def _holds_what_a_shutdown_loses(session: Session) -> bool:
    """And what later events may need. MySQL 9.7 did not know a transaction again that its applier had prepared."""
    if session.query("XA RECOVER"):
        return True
    temporary = session.query("SHOW GLOBAL STATUS LIKE '%open_temp_tables'")
    return session.value(_MEMORY_TABLES) != "0" or not temporary or any(row["Value"] != "0" for row in temporary)


def _require_fit(session: Session, logs: RelayLogs, start: Position, end: Position) -> None:
    """The logs lead from where the server stands to where it shall stand."""
    wanted = tuple(
        BinlogPlace(each.binlog_file, each.binlog_offset)
        for each in (start, end)
        if each.binlog_file is not None and each.binlog_offset is not None
    )
    held = (logs.start, logs.end) if logs.sizes else wanted[:1] * 2  # without logs it stays where it is
    if len(wanted) != 2 or held != wanted:
        raise VerificationError(
            f"the log goes from {_words(logs.start)} to {_words(logs.end)}, not from {start.binlog_file}:"
            f"{start.binlog_offset} to {end.binlog_file}:{end.binlog_offset}",
            hint="the archive has another beginning or end than was asked for",
        )
    own = session.value("SELECT @@global.server_uuid") if flavour_of(session) is Flavour.MYSQL else None
    if own is not None and any(source.startswith(own) for source in gtid.members(end.gtid)):
        raise ServerError(
            f"the server on the restored files has the source's server_uuid {own}",
            hint="its own GTIDs would be the source's next ones: remove auto.cnf before it starts",
        )


def _words(place: BinlogPlace | None) -> str:
    return f"{place.file}:{place.offset}" if place else "nowhere"


def _statements(words: Words, start: Position, appliers: int) -> Iterator[str]:
    """What makes the server apply the logs, and nothing else, in the order in which the source committed."""
    if words is Words.MARIADB:
        yield f"SET GLOBAL slave_parallel_threads = {appliers:d}"
        yield "SET GLOBAL slave_parallel_mode = 'optimistic'"
    else:
        name = "slave" if words is Words.OLD_MYSQL else "replica"
        yield f"SET GLOBAL {name}_preserve_commit_order = ON"
        yield f"SET GLOBAL {name}_parallel_workers = {appliers:d}"
    if words is Words.OLD_MYSQL:
        yield "SET GLOBAL sql_mode = CONCAT(@@global.sql_mode, ',NO_DIR_IN_CREATE')"
    word = source_word(words)
    what = "REPLICATION SOURCE" if word == "SOURCE" else word
    by_file = f"{word}_USE_GTID = no" if words is Words.MARIADB else f"{word}_AUTO_POSITION = 0"
    at = f"{word}_LOG_FILE = {literal(start.binlog_file or '')}, {word}_LOG_POS = {start.binlog_offset or 0:d}"
    relay = f"RELAY_LOG_FILE = {literal(relay_log_name(1))}, RELAY_LOG_POS = 4"
    yield f"CHANGE {what} TO {word}_HOST = {literal(NOBODY)}, {by_file}, {at}, {relay}"
    yield f"{start_statement(words)} SQL_THREAD"


def _wait(
    session: Session, status: str, logs: RelayLogs, appliers: int, telling: Callable[[ApplyingProgress], None]
) -> None:
    """Until everything is applied. It takes as long as it takes: what stands still says why."""
    at_the_end = False
    while True:
        row = session.one(status) or {}
        _require_well(session, row)
        reached = _reached(row)
        done = _done(row, logs)
        telling(ApplyingProgress(done, logs.size, logs.time_at(done)))
        # Places are compared in one server's log, which begins once the first event of its relay log is done.
        in_last = (_relay_log(row) or (0, 0)) > (logs.of_last_log, _FIRST_EVENT)
        if logs.end is not None and reached is not None and in_last and _is_at(reached, logs.end):
            return
        if _either(row, "Replica_SQL_Running", "Slave_SQL_Running") != "Yes":
            _require_well(session, session.one(status) or {})  # it may have stopped between its error and our question
            raise ServerError(
                f"the restored server stopped applying the log at {_words(reached)}, and does not say why"
            )
        if at_the_end:
            raise VerificationError(
                f"the log to {_words(logs.end)} ends within a transaction, which begins at {_words(reached)}",
                hint="a server can be stopped only between two transactions",
            )
        at_the_end = appliers == 0 and _READ_ALL in (
            _either(row, "Replica_SQL_Running_State", "Slave_SQL_Running_State") or ""
        )
        time.sleep(_POLL_SECONDS)


def _is_at(reached: BinlogPlace, end: BinlogPlace) -> bool:
    """Or behind it: the source's own rotation leads to the next file."""
    return (len(reached.file), reached) >= (len(end.file), end)  # bin.1000000 comes after bin.999999


def _reached(row: Row) -> BinlogPlace | None:
    file = _either(row, "Relay_Source_Log_File", "Relay_Master_Log_File")
    offset = _either(row, "Exec_Source_Log_Pos", "Exec_Master_Log_Pos")
    return BinlogPlace(file, int(offset)) if file and offset and offset.isdecimal() else None


def _done(row: Row, logs: RelayLogs) -> int:
    at = _relay_log(row)
    return 0 if at is None else logs.done(*at)


def _relay_log(row: Row) -> tuple[int, int] | None:
    """The number of the relay log up to which all is applied, and the offset in it."""
    found = _RELAY_LOG.fullmatch(row.get("Relay_Log_File") or "")
    offset = row.get("Relay_Log_Pos") or ""
    return (int(found[1]), int(offset)) if found and offset.isdecimal() else None


def _require_well(session: Session, row: Row) -> None:
    number = int(row.get("Last_SQL_Errno") or 0)
    if not number:
        return
    said = row.get("Last_SQL_Error") or ""
    if said.startswith("Coordinator stopped"):  # MySQL: a worker knows why, even without its performance schema
        said = session.value(_SAID_BY_WORKER, number) or said
    said = said[:_LONGEST_ERROR]
    where = _words(_reached(row))
    if (function := _NO_FUNCTION.get(number)) and function.search(said):
        raise VerificationError(
            f"the log after {where} needs a function that the restored server does not have: {said}",
            hint="no server on restored files has loadable functions (CREATE FUNCTION … SONAME): restore from a backup"
            " that was taken after this statement, or a moment before it; if the function is none of these,"
            " `backupd binlog verify JOB` tells of damage",
        )
    if number in _NO_ROOM or ran_out(said):
        raise Undecided(
            f"the restored server ran out of resources while applying the log at {where}: {said}",
            hint="nothing was learned about the archive: try again with more memory or disk space",
        )
    if number == _NO_SUCH_PLUGIN:
        raise Undecided(
            f"the log after {where} needs a plugin that the restored server does not have: {said}",
            hint="install it for this host's server programs; if the server got it after the backup, restore from a"
            " later one (name RUN), or a moment before this place",
        )
    if number == _ELSEWHERE:
        raise VerificationError(
            f"the log after {where} makes a table or a tablespace outside of the restored copy: {said}",
            hint="restore from a backup that was taken after this statement (name RUN), or a moment before this place",
        )
    if number in _UNREADABLE:
        raise ServerError(
            f"the restored server cannot read the log behind {where}: {said}",
            hint="the archive is damaged there, or a server of another series wrote it",
        )
    if number == NO_SUCH_ROW:
        require_rows(session, said, where)
    if number == _NO_SUCH_TABLE:
        raise VerificationError(
            f"the log after {where} needs a table that the restored data lacks: {said}",
            hint="a TEMPORARY table that was open during the backup is in no copy of it: restore from an earlier backup"
            " (name RUN), or a moment before this place; if it was none, `backupd binlog verify JOB` tells of damage",
        )
    raise VerificationError(
        f"the log does not fit the restored data: after {where} error {number}: {said}", hint=_OTHERWISE
    )


def _require_gtid(session: Session, end: Position) -> None:
    """What it has executed is what the source had; by a source without GTIDs there is nothing to compare."""
    if flavour_of(session) is Flavour.MYSQL and not end.gtid:
        return
    found = executed_gtids(session)
    if not gtid.same(found, end.gtid):
        raise VerificationError(
            f"the restored server has executed {found or 'nothing'}, not {end.gtid or 'nothing'}", hint=_OTHERWISE
        )


def executed_gtids(session: Session) -> str:
    """What a server on restored files has executed of its source's log, but for what it wrote on its own.

    Raises:
        ServerError: the session is over.
    """
    flavour = flavour_of(session)
    found = session.value(_GTIDS[flavour]) or ""
    if flavour is Flavour.MARIADB:
        return found
    known = gtid.members(found)
    known.pop((session.value("SELECT @@global.server_uuid") or "").lower(), None)
    return gtid.text(known)


def _either(row: Row, *names: str) -> str | None:
    """MySQL from 8.0.22 has the new names, MariaDB the old ones."""
    return next((row[name] for name in names if name in row), None)
