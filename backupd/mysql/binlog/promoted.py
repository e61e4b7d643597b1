"""What the archive asks a server that has taken the place of the one that it archived.

Knows: how a server tells what was executed before each of its binlogs, and whether it leaves out what it is sent.
Refuses to judge whether its log continues another's: `failover` does, and whoever reads it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from backupd.mysql.binlog.source import BinlogSource, ServerBinlog
from backupd.mysql.positions import replica_status
from backupd.mysql.session import Row, Session
from backupd.mysql.sqltext import literal
from backupd.policy import gtid
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.escaping import on_one_line

_FILTERS = "replicate_"  # as names of variables, of MariaDB's, and of a replica's status begin
_NO_FILTERS = frozenset(("replicate_annotate_row_events", "replicate_events_marked_for_skip"))
_HEAD = 5  # events of a binlog, among which it tells what was executed before it
_TELLING = ("Gtid_list", "Previous_gtids")


@dataclass(frozen=True, slots=True)
class PromotedServer:
    """What one needs to know of a server to go on with its log."""

    file: str | None  # its newest binlog before which nothing was executed that is not archived; None: there is none
    filter: str  # the setting by which it leaves out transactions of its source's; empty: none


def promoted_server(session: Session, source: BinlogSource, archived: str) -> PromotedServer:
    """The server that `source` tells of, of which transactions up to these GTIDs are archived.

    Raises:
        ServerError: it cannot be asked.
    """
    return PromotedServer(_file_within(session, source.files, archived), _filter(session))


def _file_within(session: Session, files: Iterable[ServerBinlog], archived: str) -> str | None:
    """From the newest on: who fails over does so soon."""
    for file in sorted(files, key=lambda each: (len(each.name), each.name), reverse=True):
        before = _executed_before(session, file.name)
        if before is not None and gtid.is_within(before, archived):
            return file.name
    return None


def _executed_before(session: Session, file: str) -> str | None:
    for row in session.query(f"SHOW BINLOG EVENTS IN {literal(file)} LIMIT {_HEAD}"):
        if row.get("Event_type") in _TELLING:
            told = "".join((row.get("Info") or "").split()).strip("[]")
            if not gtid.is_set(told):
                raise ServerError(f"the server names no valid set of GTIDs for {file}: {on_one_line(told)!r:.200}")
            return told
    return None


def _filter(session: Session) -> str:
    """Of what it replicates: a filter of its own log is told as `BinlogSource.left_out` before."""
    told = (session.variables(), *replica_status(session))
    return next((name for each in told for name in _set_filters(each)), "")


def _set_filters(told: Row) -> list[str]:
    names = [name for name in told if name.lower().startswith(_FILTERS) and name.lower() not in _NO_FILTERS]
    return [name for name in names if told[name] not in (None, "", "OFF")]
