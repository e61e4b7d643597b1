"""A person's SQL on the data of a copy, in its own server, before others get the copy; and what is known of that.

Knows: a session for each file, whose statements run in their order; one limit of time for all of them; what counts as
run to its end. Refuses to know what the statements are for: whether they scrub what they should, they alone can tell.

The files are the operator's, and the server is bound as that of a drill is: it has no network, writes in the copy
alone, and reads no file of the host by LOAD DATA INFILE. The server's words about a statement may have values of rows
in them, so they are in an error's hint, which a person reads, and not in its sentence, which the audit chain keeps.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pymysql.constants import ER

from backupd.mysql.histograms import COLUMN_STATISTICS, drop_histograms
from backupd.mysql.refusals import StatementError
from backupd.mysql.rolling_back import await_recovery
from backupd.mysql.scratch import RunningServer
from backupd.mysql.seeding import without_channels, words_of
from backupd.mysql.session import Session
from backupd.mysql.sql_file import SqlFile, Statement
from backupd.mysql.sqltext import quoted
from backupd.mysql.watchdog import Watchdog
from backupd.vocabulary.errors import ScrubFailed, Undecided
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.units import format_duration

_GRACE_SECONDS = 5.0  # that the server has to answer a KILL
_ENDED = (0, ER.SERVER_SHUTDOWN, ER.QUERY_INTERRUPTED, 1927)  # 1927: ER_CONNECTION_KILLED, MariaDB's
_LONGEST_WORDS = 300  # of a server, in a hint
_AGAIN = "; nothing was handed over: correct the file and clone again"

# Tables in which a server keeps values of rows: in statements that it logged, also when they were rotated
# (`general_log_backup`), and as statistics of columns, which MariaDB has.
_WITH_VALUES = (
    "SELECT TABLE_NAME AS name FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = 'mysql' AND TABLE_TYPE = 'BASE TABLE'"
    " AND (TABLE_NAME REGEXP '^(general|slow)_log' OR TABLE_NAME = 'column_stats')"
)


@dataclass(frozen=True, slots=True)
class ScrubbedBy:
    """One file that was run to its end."""

    file: str
    sha256: str
    statements: int
    rows_affected: int  # as the server counts, which counts those that an ALTER TABLE copies, too
    seconds: float


@dataclass(frozen=True, slots=True)
class Scrub:
    """What was run on a copy."""

    files: tuple[ScrubbedBy, ...]
    server_version: str
    seconds: float  # of the statements, and of what they waited for

    @property
    def totals(self) -> dict[str, Any]:
        """Of all files together, and where, as plain values."""
        return {
            "statements": sum(each.statements for each in self.files),
            "rows_affected": sum(each.rows_affected for each in self.files),
            "server_version": self.server_version,
            "seconds": round(self.seconds, 3),
        }

    @property
    def document(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {"files": [asdict(each) for each in self.files], **self.totals}


def scrub(
    server: RunningServer,
    files: Sequence[SqlFile],
    *,
    flavour: Flavour,
    within_seconds: float,
    telling: Callable[[str], None] = lambda _step: None,
) -> Scrub:
    """Every statement of every file has run, and what they left open is committed; the server has ended cleanly.

    Before it ends, it forgets whom it followed and what it logged in tables, and purges what no transaction needs.

    Raises:
        ScrubFailed: a statement failed or the time was over; the server ended, or was ended; transactions are prepared.
        ServerError: the server does not answer any more.
    """
    session = server.session
    version = session.value("SELECT VERSION()") or ""
    _overwrite_what_is_freed(session)
    began = time.monotonic()
    await_recovery(session, within_seconds=within_seconds, telling=telling)
    done = []
    for file in files:
        telling(f"running {file.name}")
        done.append(_run(server, file, began + within_seconds, within_seconds))
    seconds = time.monotonic() - began
    telling("shutting its server down, after a full purge")
    _end(server, flavour, within_seconds)
    return Scrub(tuple(done), version, seconds)


def _run(server: RunningServer, file: SqlFile, deadline: float, within_seconds: float) -> ScrubbedBy:
    """In a session of its own, as a client that is given one file; but what it leaves open is committed."""
    began, rows = time.monotonic(), 0
    left = max(0.0, deadline - began)
    with (
        server.another_session(answer_seconds=_GRACE_SECONDS) as killer,
        server.another_session(answer_seconds=left + 2 * _GRACE_SECONDS, one_statement=True) as session,
        Watchdog(session, killer) as watchdog,
    ):
        session.execute("SET SESSION sql_log_bin = 0")
        watchdog.allow(left)
        for number, statement in enumerate((*file.statements, _LAST), 1):
            try:
                rows += session.affected_rows(statement.text)
            except StatementError as error:
                which = _which(file, number, statement)
                if watchdog.fired:
                    raise _late(which, within_seconds) from error
                raise _failed(which, error) from error
            if time.monotonic() > deadline:  # BENCHMARK() that is killed may return a value
                raise _late(_which(file, number, statement), within_seconds)
    return ScrubbedBy(file.name, file.sha256, len(file.statements), rows, time.monotonic() - began)


_LAST = Statement("COMMIT", 0)  # of ours: a file may turn autocommit off


def _which(file: SqlFile, number: int, statement: Statement) -> str:
    if statement is _LAST:
        return f"the COMMIT after {file.name}"
    return f"statement {number} of {file.name} (line {statement.line})"


def _late(which: str, within_seconds: float) -> ScrubFailed:
    return ScrubFailed(
        f"the scrub did not end within {format_duration(within_seconds)}: {which} was under way",
        hint="raise --scrub-within, or make the statement faster (does it lack an index?); nothing was handed over",
    )


def _failed(which: str, error: StatementError) -> ScrubFailed:
    if error.number in _ENDED:
        return ScrubFailed(
            f"the server or its session ended during {which}",
            hint=f"does the file have a SHUTDOWN or a KILL? did the host run out of memory?{_AGAIN}",
        )
    said = error.said if len(error.said) <= _LONGEST_WORDS else f"{error.said[:_LONGEST_WORDS]}…"
    return ScrubFailed(f"{which} failed with the server's error {error.number}", hint=f"{said}{_AGAIN}")


def _overwrite_what_is_freed(session: Session) -> None:
    """MariaDB fills deleted records and freed pages with zeros from now on; MySQL has no such thing."""
    try:
        session.execute("SET GLOBAL innodb_immediate_scrub_data_uncompressed = ON")
    except StatementError as error:
        if not error.unknown_here:
            raise


def _require_nothing_prepared(session: Session) -> None:
    """An XA transaction that waits for its end has rows of its own, which no statement saw."""
    if prepared := len(session.query("XA RECOVER")):
        raise ScrubFailed(
            f"the copy has prepared transactions, whose rows were not scrubbed: {prepared}",
            hint="begin the file with an XA ROLLBACK of each (XA RECOVER lists them); nothing was handed over",
        )


def _forget(session: Session, flavour: Flavour) -> None:
    session.execute("SET SESSION sql_log_bin = 0")
    for statement in without_channels(words_of(session)):
        session.execute(statement)
    for row in session.query(_WITH_VALUES):
        session.execute(f"TRUNCATE TABLE mysql.{quoted(row['name'] or '')}")
    if flavour is Flavour.MYSQL and (left := drop_histograms(session)):
        raise ScrubFailed(
            f"histograms, which have values of columns, could not be dropped: {left}",
            hint=f"end the file with ANALYZE TABLE … DROP HISTOGRAM ON … for each of {COLUMN_STATISTICS}{_AGAIN}",
        )


def _end(server: RunningServer, flavour: Flavour, within_seconds: float) -> None:
    try:
        _require_nothing_prepared(server.session)
        _forget(server.session, flavour)
        server.session.execute("SET GLOBAL innodb_fast_shutdown = 0")
    except StatementError as error:
        raise _failed("the preparation of the shutdown", error) from error
    try:
        ended = server.shut_down(within_seconds=within_seconds)
    except Undecided as error:
        raise ScrubFailed(
            error.message, hint="give it more memory or room, or raise --scrub-within, which bounds this too"
        ) from error
    if not ended.ok:
        raise ScrubFailed(
            f"the server did not shut down cleanly after the scrub: {ended.found}",
            hint=f"does the file have a SHUTDOWN or a KILL?{_AGAIN}",
        )
