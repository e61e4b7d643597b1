"""The audit chain: one row for everything that became of a run or of a backup, each bound to the one before it.

Knows: how a row is bound, and how a chain is followed. A row's digest is the SHA-256 of its other columns as they are
stored, of which the digest before is one: whoever changes or takes out a row must write all later ones anew, and then
the head is no longer the one that manifests on the targets were given. Rows that were cut off the end are told by
such a head only.

A row is written in the transaction of the thing that it tells. Every transaction that writes has the file's write lock
from its beginning, so that two processes cannot append to the same head.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Executable, RowMapping, Select, func, insert, select

from backupd.catalogue import tables
from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.database import Write
from backupd.host.operator_name import operator

Step = Executable | Write | Callable[[Connection], None]  # one of the things that a transaction does, in their order

UNREADABLE = datetime.min.replace(tzinfo=UTC)  # the instant of a row that somebody changed
_COVERED = ("number", "at", "event", "subject", "detail", "previous")


class Event(StrEnum):
    """What can become of a run or of its backups."""

    RUN_STARTED = "run-started"
    RUN_ENDED = "run-ended"
    DRILLED = "drilled"
    VERIFIED = "verified"
    FOUND_BROKEN = "found-broken"
    REMOVED = "removed"
    SEGMENTS_REMOVED = "segments-removed"  # of a binlog archive, or found to be gone; the subject is a job
    PINNED = "pinned"
    UNPINNED = "unpinned"
    IMPORTED = "imported"
    COPIED = "copied"  # from one target to another
    RESTORE_STARTED = "restore-started"
    RESTORE_ENDED = "restore-ended"
    CLONE_STARTED = "clone-started"
    CLONE_ENDED = "clone-ended"
    MISSED = "missed"  # of these five the subject is a job
    PAUSED = "paused"
    RESUMED = "resumed"
    SCHEDULED = "scheduled"  # the daemon goes by this timetable from now on
    UNSCHEDULED = "unscheduled"
    IDENTITY_NEW = "identity-new"  # of these two the subject is a machine's name
    IDENTITY_ADOPTED = "identity-adopted"
    KEY_KNOWN = "key-known"  # the subject is the machine whose backups it may sign


_BY_HAND = frozenset(  # what a person may have done: these rows name who did it
    (
        *(Event.RUN_STARTED, Event.DRILLED, Event.VERIFIED, Event.FOUND_BROKEN, Event.COPIED),
        *(Event.RESTORE_STARTED, Event.RESTORE_ENDED, Event.CLONE_STARTED, Event.CLONE_ENDED),
    )
)

_DEEDS = frozenset((Event.RESTORE_STARTED, Event.RESTORE_ENDED, Event.CLONE_STARTED, Event.CLONE_ENDED))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the chain, as it was told."""

    number: int
    at: datetime  # UNREADABLE: what the row says cannot be parsed
    event: str  # an `Event`; of a row that somebody changed anything
    subject: str
    detail: Mapping[str, Any]


@dataclass(slots=True)
class KeptRows:
    """Of the rows that it is given, the oldest first, those that may tell of a time, from `since` on, or of some runs.

    A restore or a clone may have ended in that time though the catalogue has no such run any more; what cannot be
    parsed may be anything. The first row that can be parsed is kept as well: before it nothing is known.
    """

    since: datetime
    run_ids: Collection[str]
    kept: list[AuditEntry] = field(default_factory=list)
    _begun: bool = False

    def look_at(self, row: AuditEntry) -> None:
        """Keep it, or not."""
        begins = not self._begun and row.at != UNREADABLE
        of_time = row.at >= self.since or row.at == UNREADABLE
        if begins or of_time or row.subject in self.run_ids or row.event in _DEEDS:
            self.kept.append(row)
        self._begun = self._begun or begins


@dataclass(frozen=True, slots=True)
class AuditChain:
    """The whole chain at one instant, as far as others can be compared with it."""

    rows: int = 0
    began_at: datetime | None = None  # when its first row was written
    first_fault: int | None = None  # the number of the first row that is missing or is not as it was written
    head: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)  # of the row with this digest
    started: Mapping[str, int] = field(default_factory=dict)  # by run: the row that tells of its beginning
    ended: Mapping[str, int] = field(default_factory=dict)  # and of its end
    statuses: Mapping[str, str] = field(default_factory=dict)  # by run: what the last row of its end says
    drilled: Mapping[tuple[str, bool], int] = field(default_factory=dict)  # by run and result: how many drills
    imported: Mapping[str, int] = field(default_factory=dict)  # by run: the row where it was entered from a manifest
    stored: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by run and target: the backup's digest
    told: Mapping[tuple[str, str], int] = field(default_factory=dict)  # and the row that has it: of the newest copy
    manifests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # and its manifest's, where that was kept


@dataclass(frozen=True, slots=True)
class Trail:
    """The chain, and what else the catalogue says that the chain tells of."""

    chain: AuditChain
    runs: Mapping[str, str]  # that have a row, and their status
    backups: Mapping[tuple[str, str], str]  # by run and target: the digest in its row, removed or not
    manifests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # and its manifest's; empty: not kept
    drills: Mapping[tuple[str, bool], int] = field(default_factory=dict)  # by run and result: how many


def carry_out(connection: Connection, steps: Sequence[Step]) -> None:
    """All of them, in their order, within the connection's transaction."""
    for step in steps:
        if isinstance(step, tuple):
            statement, rows = step
            connection.execute(statement, rows or None)
        elif isinstance(step, Executable):
            connection.execute(step)
        else:
            step(connection)


def audit_step(event: Event, subject: str, **detail: Any) -> Callable[[Connection], None]:
    """The step that appends this event to the chain; `detail` is what JSON can hold.

    What a person may have done is told with `operator` and `uid`: the daemon's account, where the daemon did it.
    """
    if event in _BY_HAND:
        who = operator()
        detail = {**detail, "operator": who.name, "uid": who.uid}

    def append(connection: Connection) -> None:
        newest = select(tables.audit).order_by(tables.audit.c.number.desc()).limit(1)
        last = connection.execute(newest).mappings().first()
        row = {
            "number": 1 if last is None else last["number"] + 1,
            "at": InstantColumn.text(datetime.now(UTC)),
            "event": event.value,
            "subject": subject,
            "detail": json.dumps(detail, sort_keys=True, separators=(",", ":")),
            "previous": "" if last is None else last["digest"],
        }
        connection.execute(insert(tables.audit).values({**row, "digest": digest(row)}))

    return append


def run_ended(run_id: str) -> Callable[[Connection], None]:
    """The step that tells how a run ended, as its row says by now, and which backups it has."""

    def append(connection: Connection) -> None:
        runs, backups = tables.runs, tables.backups
        status = connection.execute(select(runs.c.status).where(runs.c.run_id == run_id)).scalar_one()
        rows = connection.execute(select(backups).where(backups.c.run_id == run_id).order_by(backups.c.ordinal)).all()
        told = copies_told(rows) if rows else {"backups": {}}
        audit_step(Event.RUN_ENDED, run_id, status=status.value, **told)(connection)

    return append


def copies_told(backups: Sequence[Any]) -> dict[str, Any]:
    """What a row of the chain tells of these copies of one run, for the same readers; they are rows or `Backup`s."""
    return {
        "backups": {backup.target: backup.sha256 for backup in backups},
        "manifests": {backup.target: backup.manifest_digest for backup in backups},
        "recipients": list(backups[0].recipients),
    }


def head(connection: Connection) -> str:
    """The digest of the newest row; empty where there is none."""
    newest = select(tables.audit.c.digest).order_by(tables.audit.c.number.desc()).limit(1)
    return connection.execute(newest).scalar() or ""


def entries(since: datetime | None, limit: int | None) -> Select[Any]:
    """The newest rows, the newest first; told at this instant or later."""
    query = select(tables.audit).order_by(tables.audit.c.number.desc()).limit(limit)
    return query if since is None else query.where(tables.audit.c.at >= InstantColumn.text(since))


def entry(row: RowMapping) -> AuditEntry:
    """What a row tells. One that somebody changed may tell nonsense, but is no reason to end."""
    try:
        detail = json.loads(row["detail"])
        at = datetime.fromisoformat(row["at"])
    except (ValueError, TypeError, RecursionError):
        at = UNREADABLE
    if at == UNREADABLE or at.tzinfo is None:  # ours have a zone
        return AuditEntry(row["number"], UNREADABLE, str(row["event"]), str(row["subject"]), {})
    told = detail if isinstance(detail, dict) else {}
    return AuditEntry(row["number"], at, str(row["event"]), str(row["subject"]), told)


def _mapping(value: object) -> Mapping[str, Any]:
    """What a row tells by names; of a damaged one nothing: that it is damaged is told by its digest."""
    return value if isinstance(value, dict) else {}


def chain(connection: Connection, *, each: Callable[[AuditEntry], object] = lambda _: None) -> AuditChain:
    """All of it, read once; what stands behind a fault is taken as it stands there.

    `each` is given what every row tells, the oldest first.
    """
    numbers: dict[str, int] = {}
    by_event: dict[str, dict[str, int]] = {
        event.value: {} for event in (Event.RUN_STARTED, Event.RUN_ENDED, Event.IMPORTED)
    }
    statuses: dict[str, str] = {}
    drilled: Counter[tuple[str, bool]] = Counter()
    stored: dict[tuple[str, str], str] = {}
    told_by: dict[tuple[str, str], int] = {}
    manifests: dict[tuple[str, str], str] = {}
    last, fault, began_at = "", None, None
    for expected, row in enumerate(
        connection.execute(select(tables.audit).order_by(tables.audit.c.number)).mappings(), start=1
    ):
        if fault is None and (row["number"], row["previous"], row["digest"]) != (expected, last, digest(row)):
            fault = expected
        told = entry(row)
        each(told)
        began_at = began_at or told.at
        last = str(row["digest"])
        numbers[last] = row["number"]
        if row["event"] in by_event:
            by_event[row["event"]].setdefault(row["subject"], row["number"])
        if row["event"] in (Event.RUN_ENDED, Event.IMPORTED, Event.COPIED):
            written = _mapping(told.detail.get("manifests"))
            backups = {(row["subject"], target): sha for target, sha in _mapping(told.detail.get("backups")).items()}
            stored |= backups
            told_by |= dict.fromkeys(backups, row["number"])
            manifests |= {(row["subject"], target): value for target, value in written.items()}
        if row["event"] == Event.RUN_ENDED:
            statuses[row["subject"]] = str(told.detail.get("status", ""))
        if row["event"] == Event.DRILLED and isinstance(ok := told.detail.get("ok"), bool):
            drilled[row["subject"], ok] += 1
    return AuditChain(
        rows=len(numbers),
        began_at=began_at,
        first_fault=fault,
        head=last,
        numbers=numbers,
        started=by_event[Event.RUN_STARTED],
        ended=by_event[Event.RUN_ENDED],
        statuses=statuses,
        drilled=drilled,
        imported=by_event[Event.IMPORTED],
        stored=stored,
        told=told_by,
        manifests={where: value for where, value in manifests.items() if value},
    )


def trail(connection: Connection, *, each: Callable[[AuditEntry], object] = lambda _: None) -> Trail:
    """The chain, as `chain` reads it, and the rows that it must agree with."""
    runs, backups, drills = tables.runs.c, tables.backups.c, tables.drills.c
    copies = connection.execute(select(backups.run_id, backups.target, backups.sha256, backups.manifest_digest)).all()
    drilled = select(drills.run_id, drills.ok, func.count()).group_by(drills.run_id, drills.ok)
    return Trail(
        chain=chain(connection, each=each),
        runs={row.run_id: row.status for row in connection.execute(select(runs.run_id, runs.status))},
        backups={(copy.run_id, copy.target): copy.sha256 for copy in copies},
        drills={(run_id, ok): count for run_id, ok, count in connection.execute(drilled)},
        manifests={(copy.run_id, copy.target): copy.manifest_digest for copy in copies},
    )


def digest(row: dict[str, Any] | RowMapping) -> str:
    """Of what is stored; a value of a type that we never write has a digest that we never wrote."""
    covered = json.dumps([row[name] for name in _COVERED], default=repr)
    return hashlib.sha256(covered.encode()).hexdigest()
