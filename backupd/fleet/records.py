"""The fleet's records: what each night owed and what became of it, hosts last seen, pauses, wishes to cancel.

Knows: which question is answered from which index, so that none grows with the years. Whatever is written may be
written twice: a control host that was killed in the middle does it again.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    Text,
    and_,
    cast,
    delete,
    or_,
    select,
    type_coerce,
    update,
    values,
)

from backupd.fleet import tables
from backupd.fleet.cluster_summaries import summary
from backupd.fleet.columns import ToldJson
from backupd.fleet.database import added, address, engine_for, explained, insert_into, reading
from backupd.fleet.machines import ToldMachines, is_older, with_machines
from backupd.fleet.owed_notices import OwedNotices
from backupd.fleet.rows import backup_of, row_of, seen_of
from backupd.fleet.schema import prepare, require
from backupd.policy.cluster_status import WatchedCluster
from backupd.vocabulary.errors import FleetDatabaseError, UsageError
from backupd.vocabulary.fleet import (
    OVER,
    ClusterSummary,
    Control,
    FleetBackup,
    FleetPause,
    FleetState,
    PauseScope,
    SeenHost,
)
from backupd.vocabulary.records import RunDetails

_BACKUPS = tables.backups.c
_CANCELS_LAST = timedelta(days=7)
_UNDECIDED = (FleetState.WAITING, FleetState.RUNNING, FleetState.CANCELLED)  # they say nothing of how it stands
# Of one night by when they changed: their ids do not tell which of them a person asked for before the others ended.
_NEWEST = (_BACKUPS.night.desc(), _BACKUPS.changed_at.desc().nulls_last(), _BACKUPS.id.desc())


class Records:
    """What a control host remembers, in a database that it may share with others."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.notices = OwedNotices(engine)

    @classmethod
    def open(cls, url: str) -> "Records":
        """Those at this address, with the schema that this backupd knows.

        Raises:
            UsageError, FleetDatabaseError: see `database.address` and `schema.prepare`.
        """
        engine = engine_for(address(url))
        prepare(engine)
        return cls(engine)

    @classmethod
    def look(cls, url: str, *, connections: int = 5) -> "Records":
        """The same for whoever only looks: nothing can be written, and the schema stays as it is.

        Raises:
            UsageError, FleetDatabaseError: see `database.address` and `schema.require`.
        """
        engine = engine_for(address(url), connections=connections, read_only=True)
        require(engine)
        return cls(engine)

    def require_own_schema(self) -> None:
        """Raises FleetDatabaseError: another backupd has upgraded the database, or something has replaced it, since
        it was opened.
        """
        require(self.engine)

    # Backups.

    def owe(self, backups: Iterable[FleetBackup]) -> None:
        """Each has its row; one that had one keeps it as it is."""
        rows = [row_of(backup) for backup in backups]
        if rows:
            with self._writing() as connection:
                connection.execute(insert_into(connection, tables.backups).on_conflict_do_nothing(), rows)

    def owe_one(self, backup: FleetBackup) -> bool:
        """It has its row; False where another has its id."""
        with self._writing() as connection:
            return added(connection, tables.backups, row_of(backup))

    def keep(self, backup: FleetBackup) -> None:
        """It is remembered as it is now."""
        self._replace(tables.backups, row_of(backup))

    def backup(self, backup_id: str) -> FleetBackup | None:
        """The one of this id."""
        return next(iter(self._backups(select(tables.backups).where(_BACKUPS.id == backup_id))), None)

    def night(self, night: date) -> list[FleetBackup]:
        """All that a night owed, by id."""
        return self._backups(select(tables.backups).where(_BACKUPS.night == night).order_by(_BACKUPS.id))

    def calendar(self, first: date, last: date, *, clusters: Collection[str] | None = None) -> list[FleetBackup]:
        """What the nights from `first` to `last` owed, those of some clusters or of all; by night and id."""
        query = select(tables.backups).where(_BACKUPS.night >= first, _BACKUPS.night <= last)
        if clusters is not None:
            query = query.where(_BACKUPS.cluster.in_(clusters))
        return self._backups(query.order_by(_BACKUPS.night, _BACKUPS.id))

    def outcomes(self, first: date, last: date) -> list[tuple[date, str, str, FleetState]]:
        """The night, cluster, id and state of each backup of these nights: what a calendar shows."""
        columns = (_BACKUPS.night, _BACKUPS.cluster, _BACKUPS.id, _BACKUPS.state)
        query = select(*columns).where(_BACKUPS.night >= first, _BACKUPS.night <= last)
        return [tuple(row) for row in self._read(query.order_by(_BACKUPS.night, _BACKUPS.id))]

    def history(
        self,
        *,
        cluster: str | None = None,
        host: str | None = None,
        state: FleetState | None = None,
        since: date | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[FleetBackup]:
        """The newest first; those after the backup `before`, where one is named. Page 1,000 costs what page 1 does.

        Raises:
            UsageError: there is no backup `before`.
        """
        query = select(tables.backups)
        for column, wanted in ((_BACKUPS.cluster, cluster), (_BACKUPS.host, host), (_BACKUPS.state, state)):
            if wanted is not None:
                query = query.where(column == wanted)
        if since is not None:
            query = query.where(_BACKUPS.night >= since)
        if before is not None:
            query = query.where(self._after(before))
        return self._backups(query.order_by(_BACKUPS.night.desc(), _BACKUPS.id.desc()).limit(limit))

    def going(self) -> list[FleetBackup]:
        """What waits or runs, by night and id."""
        query = select(tables.backups).where(_BACKUPS.state.in_((FleetState.WAITING, FleetState.RUNNING)))
        return self._backups(query.order_by(_BACKUPS.night, _BACKUPS.id))

    def going_ids(self) -> list[str]:
        """The ids of what waits or runs, the most urgent nights first."""
        query = select(_BACKUPS.id).where(_BACKUPS.state.in_((FleetState.WAITING, FleetState.RUNNING)))
        return [row.id for row in self._read(query.order_by(_BACKUPS.night, _BACKUPS.id))]

    def summaries(self, terms: Sequence[WatchedCluster], *, at: datetime, night: date) -> dict[str, ClusterSummary]:
        """What each of these clusters has come to by this instant, in this night, by the worst of what it owes; its
        proofs are those that its hosts told of when they were seen. What lies ahead, a wrong clock has left.
        """
        wanted = [(one.cluster, *what) for one in terms for what in one.owes]
        until_now = _BACKUPS.night <= night
        newest = self._one_of_each(wanted, _NEWEST, until_now)
        # `in_` would draw planners to the index of states.
        ended = self._one_of_each(wanted, _NEWEST, until_now, _BACKUPS.state.not_in(_UNDECIDED))
        good = self._one_of_each(wanted, (_BACKUPS.good_at.desc(),), _BACKUPS.good_at <= at)
        told = {(seen.host, job.job): job for seen in self.seen() if seen.described for job in seen.described.jobs}
        return {one.cluster: summary(one, newest=newest, ended=ended, good=good, told=told) for one in terms}

    def _one_of_each(
        self, wanted: Sequence[tuple[str, str, str]], order: Sequence[ColumnElement[Any]], *which: ColumnElement[bool]
    ) -> dict[tuple[str, str, str], FleetBackup]:
        """The first of each cluster, job and member in this order, of these: a seek in an index for each."""
        found: dict[tuple[str, str, str], FleetBackup] = {}
        for of_one in (False, True):  # apart: for both in one, PostgreSQL reads all that a cluster has
            those = [one for one in wanted if bool(one[2]) is of_one]
            for some in (those[first : first + 500] for first in range(0, len(those), 500)):
                found |= self._first_of(some, order, which, of_one=of_one)
        return found

    def _first_of(
        self,
        some: Sequence[tuple[str, str, str]],
        order: Sequence[ColumnElement[Any]],
        which: Sequence[ColumnElement[bool]],
        *,
        of_one: bool,
    ) -> dict[tuple[str, str, str], FleetBackup]:
        columns = (Column("cluster", Text), Column("job", Text), Column("member", Text))
        wanted = values(*columns, name="listed").data(list(some)).cte("wanted")
        seek = (
            select(_BACKUPS.id)
            .where(_BACKUPS.cluster == wanted.c.cluster, _BACKUPS.job == wanted.c.job)
            .where(*((_BACKUPS.member == wanted.c.member,) if of_one else ()))
            .where(*which)
            .order_by(*order)
            .limit(1)
            .correlate(wanted)
            .scalar_subquery()
        )
        sought = self._read(select(wanted.c.cluster, wanted.c.job, wanted.c.member, seek).select_from(wanted))
        ids = {found: (cluster, job, member) for cluster, job, member, found in map(tuple, sought) if found is not None}
        backups = self._backups(select(tables.backups).where(_BACKUPS.id.in_(list(ids))))
        return {ids[backup.owed.id]: backup for backup in backups}

    def _after(self, backup_id: str) -> ColumnElement[bool]:
        night = next(iter(self._read(select(_BACKUPS.night).where(_BACKUPS.id == backup_id))), None)
        if night is None:
            raise UsageError(f"no backup {backup_id} to continue after", hint="start at the first page")
        return and_(_BACKUPS.night <= night[0], or_(_BACKUPS.night < night[0], _BACKUPS.id < backup_id))

    # Results.

    def keep_result(self, cluster: str, host: str, details: RunDetails) -> None:
        """What the host's catalogue has of a run, but for its samples and paces, which stay there."""
        small = replace(details, samples=(), pace=(), throughput=())
        row = {"run_id": details.run_id, "cluster": cluster, "host": host, "ended_at": details.ended_at}
        self._replace(tables.results, {**row, "details": small})

    def result(self, run_id: str) -> RunDetails | None:
        """Of the run; None where it was never fetched."""
        query = select(tables.results.c.details).where(tables.results.c.run_id == run_id)
        return next((row[0] for row in self._read(query)), None)

    def without_result(self, *, since: date) -> list[FleetBackup]:
        """Those of the nights from this one on that have ended, were tried, and whose last run has no result here."""
        ended = self._backups(select(tables.backups).where(_BACKUPS.night >= since, _BACKUPS.state.in_(OVER)))
        last = {backup.tries[-1].run_id: backup for backup in ended if backup.tries}
        run_ids = list(last)
        for some in (run_ids[first : first + 500] for first in range(0, len(run_ids), 500)):
            for row in self._read(select(tables.results.c.run_id).where(tables.results.c.run_id.in_(some))):
                del last[row.run_id]
        return list(last.values())

    # Hosts.

    def saw(self, seen: SeenHost) -> SeenHost:
        """The host was asked, and is returned with what the records know besides: since when it has been this machine,
        and which it was before. One that did not answer keeps what it told last; of two answers the newer one counts,
        whichever comes here first.
        """
        told = type_coerce(tables.hosts.c.described, ToldJson(ToldMachines)).label("told")
        query = select(tables.hosts, told).where(tables.hosts.c.host == seen.host)
        with self._writing() as connection:
            now, row = with_machines(seen, None, None), connection.execute(query).one_or_none()
            if row is not None:
                if is_older(seen, before := seen_of(row), datetime.now(UTC)):
                    return before
                earlier = None if isinstance(row.told, FleetDatabaseError) else row.told
                now = with_machines(seen, earlier, row.answered_at)
            values = {name: getattr(now, name) for name in ("host", "answered_at", "described", "problem")}
            _replace(connection, tables.hosts, values, only=("problem",) if now.described is None else None)
        return now

    def seen(self, machines: Collection[str] | None = None) -> list[SeenHost]:
        """All hosts that were ever asked, by name, or those that are or were one of these machines, by what is kept.

        One whose fact cannot be read has that as its problem.
        """
        query, told = select(tables.hosts).order_by(tables.hosts.c.host), cast(tables.hosts.c.described, Text)
        named = or_(False, *(told.contains(json.dumps(one), autoescape=True) for one in machines or ()))
        return [seen_of(row) for row in self._read(query if machines is None else query.where(named))]

    # What people want.

    def pause(self, scope: PauseScope, name: str, note: str) -> None:
        """Nothing of it begins; an earlier pause is replaced."""
        self._replace(tables.pauses, {"scope": scope, "name": name, "note": note, "at": datetime.now(UTC)})

    def resume(self, scope: PauseScope, name: str) -> bool:
        """It goes on; False where it was not paused."""
        wanted = (tables.pauses.c.scope == scope, tables.pauses.c.name == name)
        with self._writing() as connection:
            return bool(connection.execute(delete(tables.pauses).where(*wanted)).rowcount)

    def pauses(self) -> list[FleetPause]:
        """All that stand."""
        query = select(tables.pauses).order_by(tables.pauses.c.scope, tables.pauses.c.name)
        return [FleetPause(row.scope, row.name, row.note, row.at) for row in self._read(query)]

    def ask_to_cancel(self, backup_id: str, note: str) -> None:
        """Whoever carries the backup ends it, and its run; nothing else may do that."""
        self._replace(tables.cancels, {"id": backup_id, "note": note, "at": datetime.now(UTC)})

    def cancels(self) -> dict[str, str]:
        """By id, why somebody wants it to end; of those whose story may still go on."""
        going = _BACKUPS.state.in_((FleetState.WAITING, FleetState.RUNNING))
        recent = and_(_BACKUPS.state == FleetState.CANCELLED, tables.cancels.c.at > datetime.now(UTC) - _CANCELS_LAST)
        query = (
            select(tables.cancels.c.id, tables.cancels.c.note)
            .join_from(tables.cancels, tables.backups, tables.cancels.c.id == _BACKUPS.id)
            .where(or_(going, recent))
        )
        return {row.id: row.note for row in self._read(query)}

    def cancel_waiting(self, now: datetime) -> None:
        """What somebody wants to end and has not begun counts as cancelled at once: its story may wait for hours."""
        note = select(tables.cancels.c.note).where(tables.cancels.c.id == _BACKUPS.id).scalar_subquery()
        ended = {"state": FleetState.CANCELLED, "changed_at": now, "said": note}
        wanted = (_BACKUPS.state == FleetState.WAITING, _BACKUPS.id.in_(select(tables.cancels.c.id)))
        with self._writing() as connection:
            connection.execute(update(tables.backups).where(*wanted).values(ended))

    def miss_waiting(self, backup_id: str, said: str, now: datetime) -> bool:
        """What waits counts as missed though its story has not come to that; False where it no longer waits."""
        missed = {"state": FleetState.MISSED, "changed_at": now, "said": said}
        wanted = (_BACKUPS.id == backup_id, _BACKUPS.state == FleetState.WAITING)
        with self._writing() as connection:
            return bool(connection.execute(update(tables.backups).where(*wanted).values(missed)).rowcount)

    # The control host.

    def plan_night(self, night: date, backups: Sequence[FleetBackup]) -> bool:
        """The night is planned with these, in one transaction; False where it was planned before: nothing changes."""
        row = {"night": night, "planned_at": datetime.now(UTC)}
        with self._writing() as connection:
            first = added(connection, tables.nights, row)
            if first and backups:
                rows = [row_of(backup) for backup in backups]
                connection.execute(insert_into(connection, tables.backups).on_conflict_do_nothing(), rows)
            return first

    def planned_nights(self, *, since: date) -> list[date]:
        """Those that were planned, from this one on."""
        query = select(tables.nights.c.night).where(tables.nights.c.night >= since)
        return [row[0] for row in self._read(query.order_by(tables.nights.c.night))]

    def at_work(self, control: Control) -> None:
        """This control host says that it is at work."""
        values = {"host": control.host, "pid": control.pid, "since": control.since, "seen_at": control.seen_at}
        self._replace(tables.control, {"id": 1, **values})

    def control(self) -> Control | None:
        """The control host that is at work, or was last."""
        rows = self._read(select(tables.control))
        return next((Control(row.host, row.pid, row.since, row.seen_at) for row in rows), None)

    # How.

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with explained(), self.engine.begin() as connection:
            yield connection

    def _read(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with explained(), reading(self.engine).connect() as connection:
            return connection.execute(query).all()

    def _backups(self, query: Select[Any]) -> list[FleetBackup]:
        return [backup_of(row) for row in self._read(query)]

    def _replace(self, table: Table, row: Mapping[str, Any]) -> None:
        with self._writing() as connection:
            _replace(connection, table, row)


def _replace(
    connection: Connection, table: Table, row: Mapping[str, Any], *, only: Collection[str] | None = None
) -> None:
    """The row of this key is this one; of one that there was, `only` these columns change, where they are named."""
    keys = [column.name for column in table.primary_key]
    add = insert_into(connection, table).values(dict(row))
    changed = {name: add.excluded[name] for name in only or row if name not in keys}
    connection.execute(add.on_conflict_do_update(index_elements=keys, set_=changed))
