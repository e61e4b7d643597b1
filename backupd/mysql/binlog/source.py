"""What the archive asks a server about its binlog before it receives it.

Knows: which statements tell it, and which privilege sending a binlog takes. Refuses to judge: what is a fault and what
a warning is for its callers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from backupd.mysql.facts import ENCRYPTION_HEADER, binlog_limit, expire_seconds, flavour_of
from backupd.mysql.positions import binlog_status, replica_status
from backupd.mysql.recorded import is_binlog
from backupd.mysql.session import Row, Session, StatementError
from backupd.mysql.system_zone import system_zone
from backupd.policy.binlog_chain import file_number
from backupd.vocabulary.binlogs import BinlogPlace, SegmentOrigin
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.servers import Flavour

RECEIVING = "REPLICATION SLAVE"  # the privilege, by the name that both flavours take
_STATEMENT = "STATEMENT"
_LOG_FILTERS = ("Binlog_Do_DB", "Binlog_Ignore_DB")  # as the statement that tells the log's end names them
_ENCRYPTED = ("encrypt_binlog", "binlog_encryption")  # MariaDB's, MySQL's
_GRANTED = re.compile(rf"\b(?:ALL PRIVILEGES|{RECEIVING}(?! ADMIN))\b.* ON \*\.\* TO ")


@dataclass(frozen=True, slots=True)
class ServerBinlog:
    """A binlog file that the server has."""

    name: str
    size: int  # bytes, as positions count them


@dataclass(frozen=True, slots=True)
class LogState:
    """Where a server's log ends, as it is now."""

    place: BinlogPlace
    left_out: str  # as of a `BinlogSource`


@dataclass(frozen=True, slots=True)
class BinlogSource:
    """A server's binlog as it is now."""

    origin: SegmentOrigin
    format: str  # ROW, MIXED or STATEMENT
    end: BinlogPlace | None  # None: the binlog is off
    gtid: str  # what had been executed at `end`, on one line; empty: nothing, or the server gives no GTIDs
    gtid_state: str  # of MariaDB's each domain's every server's last transaction, at `end` or later
    files: tuple[ServerBinlog, ...]  # oldest first
    expire_seconds: int | None  # None: for ever
    encrypted: bool  # on the server's disk; it sends them decrypted
    own_writes: bool  # a replica's: what it applies is in its binlog too
    purged: str = ""  # MySQL's `gtid_purged`: executed, and in none of its files; some of it never was in one
    left_out: str = ""  # why it lacks a part of what changes the data, and how that is set; empty: it has all
    applied: str = ""  # MariaDB's `gtid_slave_pos`: the last that each domain was sent by another server
    most_bytes: int = 0  # of all its files, beyond which the oldest go; 0: no limit

    @property
    def may_replay_otherwise(self) -> bool:
        """Statements are logged as such, and some give a different result when applied again."""
        return self.format == _STATEMENT

    def length(self, file: str) -> int | None:
        """Of that file, in bytes; None where it is not there."""
        return next((each.size for each in self.files if each.name == file), None)

    def has(self, place: BinlogPlace) -> bool:
        """Whether that file is there, and reaches so far."""
        return any(file.name == place.file and place.offset <= file.size for file in self.files)


def binlog_source(session: Session) -> BinlogSource:
    """All of it, by asking.

    Raises:
        ServerError: the server cannot be asked, or names a binlog as no binlog is named.
    """
    variables = session.variables()
    flavour = flavour_of(session)
    # The variable stays ON where a server could not write its log, and turned it off until its next start.
    on = variables.get("log_bin") == "ON" and binlog_status(session) is not None
    end, gtid = _end_and_gtid(session, flavour) if on else (None, "")
    own_writes = "ON" in (variables.get("log_slave_updates"), variables.get("log_replica_updates"))
    return BinlogSource(
        origin=SegmentOrigin(
            flavour=flavour,
            version=variables["version"],
            server_id=int(variables["server_id"]),
            uuid=variables.get("server_uuid", "") if flavour is Flavour.MYSQL else "",
            zone=system_zone(session),
        ),
        format=variables.get("binlog_format", "ROW"),  # MySQL is to lose the variable, and with it the other formats
        end=end,
        gtid=gtid,
        gtid_state=_state(session) if on and flavour is Flavour.MARIADB else "",
        files=sizes_of_log(session) if on else (),
        expire_seconds=expire_seconds(variables),
        encrypted=any(variables.get(name) == "ON" for name in _ENCRYPTED),
        own_writes=own_writes,
        purged="".join(variables.get("gtid_purged", "").split()),
        left_out=_left_out(session, own_writes=own_writes) if on else "",
        applied=_applied(session) if flavour is Flavour.MARIADB else "",
        most_bytes=binlog_limit(variables),
    )


def _left_out(session: Session, *, own_writes: bool) -> str:
    if (name := log_filter(session)) != "":
        return f"{name} is set: the server's log lacks the changes of some schemas"
    if not own_writes and replica_status(session):
        return "the server is a replica and log_slave_updates is off: its log lacks what it gets from its source"
    return ""


def log_filter(session: Session) -> str:
    """The setting by which some schemas are not logged; empty where there is none."""
    log = binlog_status(session) or {}
    return next((name for name in _LOG_FILTERS if log.get(name)), "")


def lacks_receiving(session: Session) -> bool:
    """Whether the account may not receive the binlog.

    MySQL has a statement that takes this privilege (9.7.4), and that is asked. MariaDB (10.11.19) has no such one;
    what it grants an account, and the role that this has, it tells as statements.

    Raises:
        ServerError: the session is over.
    """
    if flavour_of(session) is Flavour.MYSQL:
        try:
            session.query("SHOW BINLOG EVENTS LIMIT 0")
        except StatementError as error:
            return error.denied
        return False
    granted = (statement for row in session.query("SHOW GRANTS") for statement in row.values())
    return not any(_GRANTED.search(statement or "") for statement in granted)


def _end_and_gtid(session: Session, flavour: Flavour) -> tuple[BinlogPlace, str]:
    """Both of one moment: MySQL tells them in one row, and MariaDB what had been executed at any place of its log."""
    row = binlog_status(session) or {}
    end = BinlogPlace(_name(row.get("File")), int(row.get("Position") or 0))
    if flavour is Flavour.MYSQL:
        return end, "".join((row.get("Executed_Gtid_Set") or "").split())
    found = session.one("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", end.file, end.offset) or {}
    return end, found.get("gtid") or ""


def _state(session: Session) -> str:
    return "".join((session.value("SELECT @@GLOBAL.gtid_binlog_state") or "").split())


def _applied(session: Session) -> str:
    return "".join((session.value("SELECT @@GLOBAL.gtid_slave_pos") or "").split())


def server_of(session: Session) -> tuple[int, str]:
    """The server's id, and MySQL's uuid of it."""
    uuid = ", @@GLOBAL.server_uuid AS uuid" if flavour_of(session) is Flavour.MYSQL else ""
    row = session.one(f"SELECT @@GLOBAL.server_id AS id{uuid}") or {}
    return int(row.get("id") or 0), row.get("uuid") or ""


def end_of_log(session: Session, *, of: BinlogSource) -> LogState:
    """Behind the last event that the server has written, and whether it leaves something out by now.

    Where one has received more than that of this file, the log is another: a server whose log is RESET tells a
    receiver nothing until the new file of the same name is longer than the old one was (seen on MariaDB 10.11.19).

    Raises:
        ServerError: the binlog is off, the session is over, or it is another server that answers by now.
    """
    if server_of(session) != (of.origin.server_id, of.origin.uuid):
        raise ServerError("another server answers than the one whose binlog is received")
    row = binlog_status(session)
    if row is None:
        raise ServerError("the server's binlog is off", hint="set log_bin, and restart the server")
    place = BinlogPlace(_name(row.get("File")), int(row.get("Position") or 0))
    return LogState(place, _left_out(session, own_writes=of.own_writes))


def sizes_of_log(session: Session) -> tuple[ServerBinlog, ...]:
    """The binlogs that the server has, the oldest first; it looks at each file.

    Raises:
        ServerError: the session is over, or it names a binlog as no binlog is named.
    """
    return tuple(_file(row) for row in session.query("SHOW BINARY LOGS"))


def bytes_behind(files: Iterable[ServerBinlog], archived: BinlogPlace, end: BinlogPlace) -> int:
    """How much of the log lies between these two places of it; 0 where none does."""
    between = range(file_number(archived.file), file_number(end.file))
    whole = sum(file.size for file in files if file_number(file.name) in between)
    return max(0, whole + end.offset - archived.offset)


def _file(row: Row) -> ServerBinlog:
    """MySQL tells which of its files are encrypted, whose header no position counts."""
    header = ENCRYPTION_HEADER if row.get("Encrypted") == "Yes" else 0
    return ServerBinlog(_name(row.get("Log_name")), int(row.get("File_size") or 0) - header)


def _name(text: str | None) -> str:
    if text is None or not is_binlog(text):
        raise ServerError(f"the server reported an invalid binlog name: {on_one_line(text or '')!r:.200}")
    return text
