"""Where the server stands: its binlog, its GTIDs, its replication channels, InnoDB's log sequence number.

Knows: which statement each server answers, found by asking it rather than by its version.

MySQL's `performance_schema.log_status` tells binlog, GTIDs and LSN at once. Tried on MySQL 9.7.4, under FLUSH TABLES
WITH READ LOCK: 0.07 ms, the three statements that it stands for 0.25 ms; it needs BACKUP_ADMIN and SELECT on the
performance schema, neither is enough alone. Of a replication channel it has the *relay log's* position only, not the
source's, so channels are asked for as everywhere. Its LSN is that of InnoDB's memory: who wants it on disk flushes the
engine logs afterwards.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from backupd.mysql.recorded import is_binlog
from backupd.mysql.session import Row, Session, StatementError
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Position, ReplicaPosition

_BINLOG_STATEMENTS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")  # MySQL from 8.2 (only it from 8.4); the others
_REPLICA_STATEMENTS = ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
_GTID_VARIABLES = ("gtid_binlog_pos", "gtid_executed")  # MariaDB; MySQL
_LOG_STATUS = "SELECT LOCAL AS here, STORAGE_ENGINES AS engines FROM performance_schema.log_status"
_LSN_COUNTERS = ("Innodb_lsn_flushed", "Innodb_redo_log_flushed_to_disk_lsn")  # MariaDB; MySQL from 8.0.30


@dataclass(frozen=True, slots=True)
class PositionReader:
    """The statements that this server answers, chosen before the lock so that nothing is tried out under it."""

    binlog: str
    gtid: str | None
    replicas: str | None  # None: it has no channel, and asking under the lock would only cost time
    lsn: str | None
    log_status: bool = False  # `binlog` is answered by one row that has GTIDs and LSN too

    @property
    def statements(self) -> tuple[str, ...]:
        """What to send, in order; the rows of each go to `position` in the same order."""
        return tuple(statement for statement in (self.binlog, self.gtid, self.replicas) if statement)

    def position(self, answers: Sequence[list[Row]]) -> Position:
        """The answers to `statements` as a position. A binlog that is off has none.

        Raises:
            ServerError: the server answered something else.
        """
        remaining = iter(answers)
        binlog = next(iter(next(remaining)), None)
        gtid = next(iter(next(remaining)), {}) if self.gtid else {}
        channels = next(remaining) if self.replicas else []
        try:
            if self.log_status and binlog is not None:
                binlog, gtid = _local(binlog)
            return Position(
                binlog_file=binlog["File"] if binlog else None,
                binlog_offset=int(binlog["Position"] or "") if binlog else None,
                gtid=_one_line(gtid.get("gtid")) if binlog else None,
                replicas=tuple(_channel(row) for row in channels),
            )
        except (KeyError, ValueError) as error:
            raise ServerError(
                f"the server reported an implausible position: {binlog!r}", hint="is it a MariaDB or MySQL server?"
            ) from error

    def lsn_beside(self, answers: Sequence[list[Row]]) -> int | None:
        """InnoDB's log sequence number where the answers to `statements` hold it.

        Raises:
            ServerError: the server answered something else.
        """
        if not self.log_status:
            return None
        try:
            return int(json.loads(answers[0][0]["engines"] or "")["InnoDB"]["LSN"])
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ServerError(f"the server reported an implausible log status: {answers[0]!r}") from error


def position_reader(session: Session) -> PositionReader:
    """How this server tells its position.

    Raises:
        ServerError: it cannot be asked: a privilege is missing, or the session is over; or its binlog has no offsets.
    """
    replicas, channels = _first_answered(session, _REPLICA_STATEMENTS)
    asked = replicas if channels else None
    if _tells_log_status(session):
        return PositionReader(binlog=_LOG_STATUS, gtid=None, replicas=asked, lsn=None, log_status=True)
    binlog, log = _first_answered(session, _BINLOG_STATEMENTS)
    _require_offsets(log)
    gtid = _first_known(session, [f"SELECT @@global.{variable} AS gtid" for variable in _GTID_VARIABLES])
    return PositionReader(binlog=binlog, gtid=gtid and gtid[0], replicas=asked, lsn=lsn_statement(session))


def _require_offsets(log: Sequence[Row]) -> None:
    """Offsets in the binlog's files count. In InnoDB's own (`.ibb`, MariaDB from 12.3) they do not, by its manual.

    Raises:
        ServerError: they do not.
    """
    for file in (row.get("File") or "" for row in log):
        if not is_binlog(file):
            raise ServerError(
                f"the server's binlog {file!r:.200} has no offsets that a position could name",
                hint="MariaDB from 12.3: remove binlog_storage_engine from the server's option file, and restart it",
            )


def binlog_status(session: Session) -> Row | None:
    """Where the binlog ends, as the server tells it; None where it is off.

    Raises:
        ServerError: it does not tell.
    """
    return next(iter(_first_answered(session, _BINLOG_STATEMENTS)[1]), None)


def replica_status(session: Session) -> list[Row]:
    """Every replication channel, as the server tells them.

    Raises:
        ServerError: it does not tell.
    """
    return _first_answered(session, _REPLICA_STATEMENTS)[1]


def lsn_statement(session: Session) -> str | None:
    """The cheapest statement for InnoDB's log sequence number; None where there is none.

    What is on disk, not what is in memory: the engine logs were flushed just before, so every commit is in it, and
    what background threads have added since is nobody's data. A status counter, because SHOW ENGINE INNODB STATUS
    walks the lock system of a busy server. MySQL's may tell a little less than is on disk (9.7.4 sets it now and then).
    """
    for counter in _LSN_COUNTERS:
        if session.status(counter) is not None:
            return f"SHOW GLOBAL STATUS LIKE '{counter}'"
    return None


def lag_seconds(channels: Sequence[Row]) -> float | None:
    """The largest lag of all channels; None where there is none, or where any is unknown (its threads stand still)."""
    lags = [row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master")) for row in channels]
    known = [float(lag) for lag in lags if lag is not None]
    return max(known) if known and len(known) == len(lags) else None


def _tells_log_status(session: Session) -> bool:
    """MySQL from 8.0.11, unless the performance schema is off or we may not read it."""
    try:
        return bool(session.query(_LOG_STATUS))
    except StatementError as error:
        if not error.number:
            raise
        return False


def _local(row: Row) -> tuple[Row | None, Row]:
    """The server's own part of its log status, as the other statements would tell it; a binlog that is off is ""."""
    told = json.loads(row["here"] or "{}")
    file = told.get("binary_log_file")
    binlog = {"File": file, "Position": str(told["binary_log_position"])} if file else None
    return binlog, {"gtid": told.get("gtid_executed")}


def _first_answered(session: Session, statements: Sequence[str]) -> tuple[str, list[Row]]:
    known = _first_known(session, statements)
    if known is None:
        raise ServerError(
            (f"the server supports none of: {', '.join(statements)}"), hint="is it a MariaDB or MySQL server?"
        )
    return known


def _first_known(session: Session, statements: Sequence[str]) -> tuple[str, list[Row]] | None:
    """The first that this server has, and its answer; what it refuses for another reason is an error."""
    for statement in statements:
        try:
            return statement, session.query(statement)
        except StatementError as error:
            if not error.unknown_here:
                raise
    return None


def _channel(row: Row) -> ReplicaPosition:
    """Exec_*, not Read_*: what was applied, because that is what the data shows.

    A channel of MySQL's that goes by GTIDs alone (GTID_ONLY) has INVALID for its file while its applier stands still,
    and of the binlog that InnoDB keeps (MariaDB from 12.3) no place can be named: there the GTID tells.
    """
    file = row.get("Relay_Source_Log_File") or row.get("Relay_Master_Log_File") or ""
    named = is_binlog(file)
    offset = int(row.get("Exec_Source_Log_Pos") or row.get("Exec_Master_Log_Pos") or 0)
    return ReplicaPosition(
        channel=row.get("Connection_name") or row.get("Channel_Name") or "",
        source_log_file=file if named else "",
        source_log_offset=offset if named else 0,
        gtid=_one_line(row.get("Gtid_Slave_Pos") or row.get("Executed_Gtid_Set")),
    )


def _one_line(gtid: str | None) -> str:
    return "".join((gtid or "").split())  # MySQL breaks a long set into lines
