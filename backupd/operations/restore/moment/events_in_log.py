"""Scheduled events at a moment: as the server had them in whose log the moment is.

Knows: that the log's statements have to tell, because the server that applies them leaves every event that they name
disabled; and that it has to be made ready to make any. So they are noted while the log is fetched, and what they come
to is told to that server in the end. What only the backup has stays as it is. Where a statement was not understood, its
event stays disabled.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.changes import statement_of
from backupd.mysql.binlog.event_statements import EventStatement, EventStatus, EventStatuses, event_statement
from backupd.mysql.binlog.events import ImpossibleEvent, has_checksums
from backupd.mysql.binlog.sifting import BinlogBytes
from backupd.mysql.scheduled_events import EventName, event_statuses, put_back, ready
from backupd.mysql.session import Session
from backupd.policy.binlog_chain import order
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, ChangeKind
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.servers import Position

_NAMES_EVENTS = re.compile(r"\bEVENT\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Noted:
    statement: EventStatement
    end: BinlogPlace
    server_id: int  # of the server that executed it first


class EventsInLog:
    """What the statements of a part of the log do to scheduled events; of no concern to a replica, which runs none."""

    def __init__(self, *, passed_by: bool = False) -> None:
        """Where they are `passed_by`, they are made, and left as whoever applies the log leaves them."""
        self._passed_by = passed_by
        self._noted: list[_Noted] = []
        self._any = False  # also where none was understood
        self._server_id = 0  # of the server whose log comes last
        self._before: Mapping[EventName, EventStatus] = {}
        self._folds_schemas = False

    def look(self, segment: BinlogSegment, start: int, content: bytes) -> None:
        """This part of the segment is applied: whole events from that offset of its file on.

        Raises:
            VerificationError: they are none.
        """
        self._server_id = segment.origin.server_id
        if segment.all_changes and not any(_may_be_of_events(change.kind) for change in segment.changes):
            return
        piece = BinlogBytes(content, start, has_checksums(base64.b64decode(segment.format)))
        try:
            for event in piece.events(0, len(content)):
                if event.kind in (layout.QUERY, layout.QUERY_COMPRESSED):
                    text, schema = statement_of(event)
                    statement = event_statement(text, schema)
                    self._any = self._any or statement is not None or bool(_NAMES_EVENTS.search(text))
                    if statement is not None:
                        self._noted.append(_Noted(statement, BinlogPlace(segment.file, event.end), event.server_id))
        except ImpossibleEvent as error:
            raise VerificationError(f"segment {segment.name} has no events: {error}") from error

    def begin(self, session: Session) -> None:
        """This server is about to apply it. It is told and asked nothing where the log cannot say anything of events.

        Raises:
            ServerError: it cannot make events, or does not tell which it has.
        """
        if self._any:
            ready(session)
            self._before = event_statuses(session)
            self._folds_schemas = (
                session.value("SELECT @@lower_case_table_names") != "0"
            )  # the source's, as any copy has

    def put_back(self, session: Session, reached: Position | None = None) -> list[EventName]:
        """The server that has applied it, all or up to there, has its events as the log's own server had them.

        Returns those that stay disabled because the log told it of them by what was not understood.

        Raises:
            ServerError: it refused that.
        """
        if self._passed_by or not self._any:
            return []
        end = None if reached is None else order(BinlogPlace(reached.binlog_file or "", reached.binlog_offset or 0))
        done = [one for one in self._noted if end is None or order(one.end) <= end]
        statuses = EventStatuses(self._before, folds_schemas=self._folds_schemas)
        for noted in done:
            statuses.follow(noted.statement, own=noted.server_id == self._server_id)
        put_back(session, statuses.of, server_id=self._server_id)
        left = [name for name, status in event_statuses(session).items() if status is EventStatus.ELSEWHERE]
        return [name for name in left if self._before.get(name) is not EventStatus.ELSEWHERE and not statuses.of(name)]


def _may_be_of_events(kind: ChangeKind) -> bool:
    """They are made by statements of which no table is understood, and end with their schema."""
    return kind in (ChangeKind.OTHER, ChangeKind.DROP)
