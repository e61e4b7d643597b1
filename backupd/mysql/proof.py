"""What a restored server says of itself, compared with what was recorded while the original stood still.

Knows: which recovered values must equal which recorded ones, and the check of every table; that what was found wrong is
an answer, whatever limit the server runs into later. Refuses to start a server.

Tried on MariaDB 10.11.19 and MySQL 9.7.4 with InnoDB, MyISAM and Aria written to at full speed, and a copy that is an
atomic image of the locked server, its binlog cut at the recorded offset:
- The GTIDs after recovery equal the recorded ones exactly; so does the size of the recorded binlog. The server goes on
  in a new binlog of its own, which is not compared. MariaDB reads `gtid_binlog_pos` back from the binlog; MySQL's
  `gtid_executed` is the binlog's and InnoDB's together, so a commit from after the lock shows in it.
- They are asked for before any table is opened: MySQL writes an emptied MEMORY table into the binlog when it is.
- MariaDB's InnoDB knows the binlog position of its own last commit and writes it to the error log. It equals the
  recorded one only if the last write was InnoDB's; it is beyond it never, for that would be data from after the lock.
  MySQL's says nothing of the kind.
- The end of the recovered redo log is at or after the LSN that was read under the lock, else commits are missing.
  (After, because InnoDB's background threads do not stand still.) MySQL tells how far it scanned, several times, and
  the checkpoint it began at.
- No lock holds the server's log tables still (`log_output = TABLE`): the image of a CSV file may end anywhere, and
  CHECK TABLE calls that corrupt; the server repairs it when it opens it as its log. So they are not checked.
- The status counter of the LSN does not help here: a server that starts writes redo of its own.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from backupd.mysql.canary import canary_check, moments
from backupd.mysql.facts import binlog_header
from backupd.mysql.long_values import ANOTHER, page_size_of, unreadable
from backupd.mysql.own_limits import ran_out
from backupd.mysql.scratch import RunningServer
from backupd.mysql.seeding import lacks_what_it_received
from backupd.mysql.session import Row, Session
from backupd.mysql.tablefiles import Table
from backupd.policy import gtid
from backupd.vocabulary.errors import ServerError, Undecided, VerificationError
from backupd.vocabulary.escaping import some
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour, Position, ServerFacts
from backupd.vocabulary.storage import Manifest

log = logging.getLogger(__name__)

NO_POSITION = "no position"

_TABLES_AT_ONCE = 50
_MORE = "nothing was learned about the table: try again with more memory or disk space"
_SHOWN = 5  # damaged tables that a check names

# The last error of any check that came to none: it has no reason of its own, but for 28, which is ENOSPC.
_VERDICT = re.compile(r"Corrupt|Unknown - internal error (?!28 )-?[0-9]+ during operation")

# ER_TABLE_NEEDS_UPGRADE, ER_TABLE_NEEDS_REBUILD
_OUTDATED = re.compile(r"(table )?(upgrade|rebuild) required\. please do ", re.IGNORECASE)
_INNODB_BINLOG = re.compile(r"InnoDB: Last binlog file '([^']*)', position (\d+)")
_GTIDS = {
    Flavour.MARIADB: "SELECT @@global.gtid_binlog_pos",
    Flavour.MYSQL: "SELECT @@global.gtid_executed",
}
_LSN = {  # the first pattern that is found, at its last place
    Flavour.MARIADB: (
        re.compile(r"InnoDB: End of log at LSN=(\d+)"),
        re.compile(r"InnoDB: (?:\S+ started; )?log sequence number (\d+)"),  # with its version: 10.5 and 10.6
    ),
    Flavour.MYSQL: (
        re.compile(r"\[InnoDB\] Doing recovery: scanned up to log sequence number (\d+)"),
        re.compile(r"\[InnoDB\] The latest found checkpoint is at lsn = (\d+)"),
    ),
}

_TABLES = """
    SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS name, ENGINE AS engine FROM information_schema.TABLES
    WHERE TABLE_TYPE NOT LIKE '%VIEW' AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema')
    AND NOT (TABLE_SCHEMA = 'mysql' AND TABLE_NAME IN ('general_log', 'slow_log'))
    ORDER BY TABLE_SCHEMA, TABLE_NAME
"""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a server stands that was started on a copy."""

    binlog_size: int | None  # of the recorded binlog file, as positions count; None where the server lists no such file
    gtid: str | None
    innodb_binlog: tuple[str, int] | None  # file name and offset of InnoDB's last commit; None: it told none
    lsn: int | None  # end of the redo log that was recovered
    prepared: int  # XA transactions that wait for their client


@dataclass(frozen=True, slots=True)
class TableResult:
    """What CHECK TABLE said of one table."""

    table: str
    ok: bool
    text: str
    unchecked: bool = False  # its engine has no check, or an earlier server made it, which wants it rebuilt first


def prove(server: RunningServer, manifest: Manifest, *, found: "Recovered | None" = None) -> Iterator[Check]:
    """Every comparison but the clean shutdown, in the order in which a person would ask.

    `found` is what the server says of itself, where it has been asked already.

    Raises:
        Undecided: while iterating: the server had no memory or no room to check a table.
        ServerError: while iterating: the server failed meanwhile.
    """
    if found is None:
        found = recovered(server.session, manifest.position, server.error_log, facts=manifest.server)
    yield from position_checks(manifest, found)
    if manifest.canary:
        yield canary_check(moments(server.session, manifest.run_id))
    yield tables_check(check_tables(server))


def with_its_end(server: RunningServer, checks: Iterable[Check]) -> tuple[Check, ...]:
    """These, one after the other, and the one of the shutdown.

    What was found wrong is an answer, whatever limit the server ran into after that, and however else it failed.

    Raises:
        Undecided: the server ran into a limit of its own, and nothing was wrong before.
        ServerError: it failed in another way before its end, and nothing was wrong before.
    """
    found: list[Check] = []
    try:
        with server.within_limits():
            for check in checks:
                found.append(check)
        found.append(server.shut_down())
    except Undecided as error:
        if all(check.ok for check in found):
            raise
        log.warning("%s", error.message)
    except ServerError as error:
        if all(check.ok for check in found):
            raise
        found.append(Check("server", ok=False, expected="answers to the end", found=error.message))
    return tuple(found)


def recovered(session: Session, recorded: Position, error_log: str, *, facts: ServerFacts) -> Recovered:
    """What the restored server and its error log say.

    Raises:
        ServerError: the session is over.
    """
    return Recovered(
        binlog_size=_binlog_size(session, recorded, header=binlog_header(facts)),
        gtid=session.value(_GTIDS[facts.flavour]) if recorded.binlog_file else None,
        innodb_binlog=_innodb_binlog(error_log),
        lsn=_recovered_lsn(error_log, facts.flavour),
        prepared=len(session.query("XA RECOVER")),
    )


def position_checks(manifest: Manifest, found: Recovered) -> tuple[Check, ...]:
    """The recovered position against the recorded one, and the redo log's end against that under the lock."""
    return (*_binlog_checks(manifest, found), *_lsn_checks(manifest.lsn, found.lsn), _prepared_check(found.prepared))


def check_tables(server: RunningServer) -> Iterator[TableResult]:
    """CHECK TABLE … MEDIUM for every table but the server's own logs: it reads all rows and all indexes, but no value
    that InnoDB keeps outside of its row. These are read besides.

    There may be hundreds of thousands: 200,031 are named in 3 to 4 s, and empty ones checked at 5,500 a second
    (MariaDB 10.11.19), so nothing is kept of them but their names.

    Raises:
        Undecided: the server had no memory or no room to check one.
        ServerError: the session is over.
    """
    session = server.session
    tables = [
        (Table(schema or "", name or ""), (engine or "").lower() == "innodb")
        for schema, name, engine in session.rows(_TABLES)
    ]
    page_size = page_size_of(server)
    for start in range(0, len(tables), _TABLES_AT_ONCE):
        batch = tables[start : start + _TABLES_AT_ONCE]
        rows = session.query(f"CHECK TABLE {', '.join(table.in_sql for table, _ in batch)} MEDIUM")
        results = list(table_results(rows))
        yield from (one for one in results if not one.ok)  # told whatever befalls the server after it
        innodb = {str(table): table for table, is_innodb in batch if is_innodb}
        for one in results:
            if one.ok:
                table = None if one.unchecked else innodb.get(one.table)
                yield one if table is None else _with_long_values(server, one, table, page_size)


def table_results(rows: Sequence[Row]) -> Iterator[TableResult]:
    """CHECK TABLE's rows, one result for each table. "Not supported" is a note, and neither a fault of the table's nor
    a check of it.

    That a later server than its maker's wants to rebuild it is neither (tried on MariaDB 10.11.19 with a UNIQUE key of
    a BLOB from before MDEV-27653): the table is used as before, and every other backup has it so as well.

    Raises:
        Undecided: the server had no memory or no room to check one, and told no other error of it.
    """
    for table, said in groupby(rows, key=lambda row: row["Table"] or ""):
        lines = [(row["Msg_type"] or "", row["Msg_text"] or "") for row in said]
        kinds = {kind.lower() for kind, _ in lines}
        outdated = kinds == {"error"} and all(_OUTDATED.match(text) for _, text in lines)
        unchecked = outdated or kinds == {"note"}
        ok = unchecked or ("error" not in kinds and ("status", "OK") in lines)
        if not ok and (limit := _limit(lines)):
            raise Undecided(f"the server ran out of resources while it checked {table}: {limit}", hint=_MORE)
        text = "; ".join(f"{kind}: {text}" for kind, text in lines)
        yield TableResult(table, ok, text, unchecked)


def _with_long_values(server: RunningServer, result: TableResult, table: Table, page_size: int) -> TableResult:
    said = unreadable(server, table, page_size=page_size)
    return replace(result, ok=False, text=f"error: {said}") if said else result


def _limit(lines: Sequence[tuple[str, str]]) -> str:
    """That the server had no memory or no room, where all that it tells of a check is that; else empty.

    What is wrong is told by errors. Where they are verdicts only, its warnings tell it, as InnoDB's do.
    """
    errors, warnings = ([text for kind, text in lines if kind.lower() == each] for each in ("error", "warning"))
    reasons = [text for text in errors if not _VERDICT.fullmatch(text)] or warnings
    limits = [ran_out(text) for text in reasons]
    return limits[0] if limits and all(limits) else ""


def require_whole(session: Session, table: Table, called: str, *, hint: str = ANOTHER) -> None:
    """CHECK TABLE finds no damage: a server that passes over missing tables passes over damaged rows as well. Of values
    that InnoDB keeps outside of their rows it says nothing (`long_values`).

    Of one that could not be checked nobody can say; that is logged.

    Raises:
        VerificationError: one is.
        Undecided: the server had no memory or no room to check it.
    """
    for result in table_results(session.query(f"CHECK TABLE {table.in_sql} MEDIUM")):
        if not result.ok:
            raise VerificationError(f"{called} is damaged: {result.text}", hint=hint)
        if result.unchecked:
            log.warning("%s could not be checked: %s", called, result.text)


def tables_check(results: Iterable[TableResult]) -> Check:
    """All of them, in one check that names the first damaged ones, and the first that could not be checked.

    Where one was damaged, it is an answer, whatever kept the server from checking the rest.

    Raises:
        ServerError: the results ended with it, and none before was damaged.
    """
    count, damaged, said, ended = 0, 0, [], ""
    unchecked: list[str] = []
    try:
        for result in results:
            count += 1
            if result.unchecked:
                unchecked.append(f"{result.table}: {result.text}")
            if not result.ok:
                damaged += 1
                said += [f"{result.table}: {result.text}"] if damaged <= _SHOWN else []
    except ServerError as error:
        if not damaged:
            raise
        ended = error.message
    if damaged > _SHOWN:
        said.append(f"and {damaged - _SHOWN} more")
    found = said or [f"{count - len(unchecked)} tables OK"]
    if unchecked:
        found.append(f"not checked: {some(unchecked, _SHOWN)}")
    if ended:
        found.append(f"not all were checked: {ended}")
    ok = count > len(unchecked) and not damaged
    return Check("tables", ok=ok, expected=f"{count} tables OK", found="; ".join(found))


def _binlog_checks(manifest: Manifest, found: Recovered) -> Iterator[Check]:
    recorded = manifest.position
    if recorded.binlog_file is None or recorded.binlog_offset is None:
        yield Check("binlog position", ok=True, expected=NO_POSITION, found=NO_POSITION)
        return
    name, offset = recorded.binlog_file, recorded.binlog_offset
    end = NO_POSITION if found.binlog_size is None else f"{name}:{found.binlog_size}"
    yield Check("binlog position", ok=found.binlog_size == offset, expected=f"{name}:{offset}", found=end)
    yield Check(
        "gtid", ok=gtid.same(found.gtid, recorded.gtid), expected=recorded.gtid or "none", found=found.gtid or "none"
    )
    if found.innodb_binlog is not None:
        file, at = found.innodb_binlog
        told = f"{file}:{at}"
        if _has_own_log(manifest, file):
            ok = (_number(file), at) <= (_number(name), offset)
        else:
            ok, told = True, f"{told}, of another log"
        yield Check("innodb's last commit", ok=ok, expected=f"not after {name}:{offset}", found=told)


def _has_own_log(manifest: Manifest, file: str) -> bool:
    """Whether InnoDB's last commit is known to be of the recorded log. A replica that logs nothing of what it receives
    may have none there: what it was made of, as a clone, has told it a place in its source's log.
    """
    same_name = file.rpartition(".")[0] == (manifest.position.binlog_file or "").rpartition(".")[0]
    return same_name and (manifest.canary is not None or not lacks_what_it_received(manifest))


def _lsn_checks(recorded: int | None, found: int | None) -> Iterator[Check]:
    if recorded is not None:
        ok = found is not None and found >= recorded
        yield Check("redo log", ok=ok, expected=f"up to LSN {recorded} or later", found=f"up to LSN {found}")


def _prepared_check(count: int) -> Check:
    """A client's own XA transaction outlives a crash by design: told, never held against the backup."""
    found = f"{count}, waiting for XA COMMIT or XA ROLLBACK" if count else "none"
    return Check("prepared transactions", ok=True, expected="none, or listed", found=found)


def _binlog_size(session: Session, recorded: Position, *, header: int) -> int | None:
    if recorded.binlog_file is None:
        return None
    listed = {row["Log_name"]: int(row["File_size"] or 0) for row in session.query("SHOW BINARY LOGS")}
    size = listed.get(recorded.binlog_file)
    return None if size is None else size - header


def _innodb_binlog(error_log: str) -> tuple[str, int] | None:
    found = _INNODB_BINLOG.search(error_log)
    return (Path(found[1]).name, int(found[2])) if found else None


def _recovered_lsn(error_log: str, flavour: Flavour) -> int | None:
    told = next(filter(None, (pattern.findall(error_log) for pattern in _LSN[flavour])), None)
    return int(told[-1]) if told else None


def _number(file: str) -> int:
    """Of `bin.000010` 10."""
    number = file.rpartition(".")[2]
    return int(number) if number.isdigit() else 0
