"""The engine without DBOS: threads, and a log of steps in the fleet's own database.

It keeps the same contract, which shows that the other one can be replaced. Each backup that waits costs a thread.
"""

import heapq
import itertools
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from sqlalchemy import Column, Engine, Integer, MetaData, Row, Table, Text, delete, insert, select, update

from backupd.fleet import Later, Stories
from backupd.fleet.database import address, engine_for, explained, reading
from backupd.fleet.leadership import LEASE_SECONDS, Leadership, Lost, leading
from backupd.fleet.owed_json import from_document, to_document
from backupd.vocabulary.errors import BackupdError, FleetDatabaseAway
from backupd.vocabulary.fleet import OwedBackup, try_id

log = logging.getLogger(__name__)

_CLUSTER: Final = "cluster:"
_LOOK_SECONDS: Final = 0.2  # for what was submitted

_metadata = MetaData()
_carried = Table(
    "fleet_local_backups",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("owed", Text, nullable=False),
    Column("ended", Integer, nullable=False),  # 1: it has
    Column("error", Text, nullable=False),
)
_steps = Table(
    "fleet_local_steps",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("answer", Text, nullable=False),
)
_held = Table(  # the clusters and slots that somebody has: they outlive a kill, as the runs do
    "fleet_local_held",
    _metadata,
    Column("key", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
)


class LocalEngine:
    """Carries stories; see `backupd.fleet.Engine`."""

    def __init__(self, url: str, slots: Mapping[str, int], lost: Lost, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._url = address(url)
        self._slots = slots
        self._lost = lost
        self._lease_seconds = lease_seconds
        self._turn = threading.Condition()
        self._holders: defaultdict[str, set[str]] = defaultdict(set)
        self._waiting: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self._numbers = itertools.count()

    @cached_property
    def _database(self) -> Engine:
        """With its tables, as soon as it answers."""
        engine = engine_for(self._url)
        _metadata.create_all(engine)
        return engine

    def submit(self, owed: Sequence[OwedBackup]) -> None:
        """See `Engine`."""
        with explained(), self._database.begin() as connection:
            known = set(connection.execute(select(_carried.c.id)).scalars())
            for one in owed:
                if one.id not in known:
                    row = {"id": one.id, "owed": json.dumps(to_document(one)), "ended": 0, "error": ""}
                    connection.execute(insert(_carried).values(row))

    def going(self) -> Sequence[str]:
        """See `Engine`."""
        return [row.id for row in self._rows(_carried) if not row.ended]

    def broken(self) -> Mapping[str, str]:
        """See `Engine`."""
        return {row.id: row.error for row in self._rows(_carried) if row.error}

    @contextmanager
    def serving(self, stories: Stories) -> Iterator[None]:
        """See `Engine`."""
        with leading(self._url, self._lost, lease_seconds=self._lease_seconds) as leadership:
            for row in self._rows(_held):
                self._holders[row.key].add(row.holder)
            looker = threading.Thread(target=self._look, args=(stories, leadership), daemon=True)
            looker.start()
            yield

    def _look(self, stories: Stories, leadership: Leadership) -> None:
        """Whatever is submitted has a thread."""
        begun: set[str] = set()
        while not leadership.ended.wait(_LOOK_SECONDS):
            try:
                rows = [row for row in self._rows(_carried) if not row.ended and row.id not in begun]
            except FleetDatabaseAway as error:
                log.warning("%s", error)
                continue
            for owed in sorted((from_document(json.loads(row.owed)) for row in rows), key=lambda one: one.priority):
                begun.add(owed.id)
                carry = _Carrying(self, stories, owed, leadership)
                threading.Thread(target=carry.to_its_end, daemon=True).start()

    def _rows(self, table: Table) -> Sequence[Row[tuple[str, ...]]]:
        with explained(), reading(self._database).connect() as connection:
            return connection.execute(select(table)).all()

    def _write(self, *statements: object) -> None:
        with explained(), self._database.begin() as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    @contextmanager
    def holding(self, key: str, holder: str, priority: int) -> Iterator[None]:
        """The cluster, or a slot, is the holder's; one that had it when it was killed has it still."""
        with self._turn:
            heapq.heappush(self._waiting[key], (priority, next(self._numbers), holder))
            most = 1 if key.startswith(_CLUSTER) else self._slots.get(key, 1)
            while holder not in self._holders[key]:
                if len(self._holders[key]) < most and self._waiting[key][0][2] == holder:
                    self._write(insert(_held).values(key=key, holder=holder))
                    self._holders[key].add(holder)
                else:
                    self._turn.wait()
            self._waiting[key] = [one for one in self._waiting[key] if one[2] != holder]
            heapq.heapify(self._waiting[key])
            self._turn.notify_all()
        try:
            yield
        finally:
            with self._turn:
                self._write(delete(_held).where(_held.c.key == key, _held.c.holder == holder))
                self._holders[key].discard(holder)
                self._turn.notify_all()


class _Carrying:
    """One backup's thread, and the steps of its story."""

    def __init__(self, engine: LocalEngine, stories: Stories, owed: OwedBackup, leadership: Leadership) -> None:
        self._engine, self._stories, self._owed, self._leadership = engine, stories, owed, leadership
        rows = [row for row in engine._rows(_steps) if row.id == owed.id]
        self._known = {row.name: json.loads(row.answer) for row in rows}
        self._prefix = ""

    def to_its_end(self) -> None:
        """It has ended, or broke off by an error of ours."""
        later: Later | None = None
        try:
            while (later := self._until_it_waits(later)) is not None:
                self._leadership.ended.wait(max((later.at - datetime.now(UTC)).total_seconds(), 0.0))
        except FleetDatabaseAway as away:
            self._leadership.step_down(away.message)

    def _until_it_waits(self, before: Later | None) -> Later | None:
        """Its next part, in its cluster's turn. After a kill the log tells the parts that were."""
        with self._engine.holding(f"{_CLUSTER}{self._owed.cluster}", self._owed.id, self._owed.priority):
            error = ""
            try:
                later = self._stories.backup(self._owed, before.so_far if before else None, self)
                if later is not None:
                    return later
            except (BackupdError, ValueError, KeyError) as broken:
                error = str(broken) or type(broken).__name__
            ended = update(_carried).where(_carried.c.id == self._owed.id).values(ended=1, error=error)
            self._engine._write(ended)
            return None

    def step(self, name: str, act: Callable[[], object]) -> object:
        """See `StorySteps`."""
        key = f"{self._prefix}{name}"
        if key not in self._known:
            self._leadership.require()
            try:
                answer = act()
                row = {"id": self._owed.id, "name": key, "answer": json.dumps(answer)}
                self._engine._write(insert(_steps).values(row))
            except FleetDatabaseAway as error:
                self._leadership.step_down(error.message)
                raise
            self._known[key] = answer
        return self._known[key]

    def attempt(self, host: str, number: int, turn: int) -> object:
        """See `StorySteps`."""
        self._prefix = f"{try_id(self._owed, number)}#{turn} "
        if "ended" not in {name.removeprefix(self._prefix) for name in self._known}:
            self.step("ended", lambda: self._in_slots(sorted(self._owed.targets), host, number))
        answer = self._known[f"{self._prefix}ended"]
        self._prefix = ""
        return answer

    def _in_slots(self, targets: Sequence[str], host: str, number: int) -> object:
        if not targets:
            return self._stories.attempt(self._owed, host, number, self)
        first = targets[0] == min(self._owed.targets)
        with self._engine.holding(targets[0], self._owed.id, self._owed.priority if first else -1):
            return self._in_slots(targets[1:], host, number)
