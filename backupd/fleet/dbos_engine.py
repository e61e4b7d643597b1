"""The engine on DBOS Transact: PostgreSQL, or SQLite for a try, holds each story's log, and stories go on from it.

Knows: DBOS, its queues, its traps. Two levels of queues: `fleet:cluster`, in which each cluster has one at a time, and
`fleet:target:NAME`, which has as many at a time as the target has slots. A try is a workflow in the queue of its first
target; one that holds a slot enqueues another in the queue of the next target, and the innermost is the try itself. A
story that has to wait ends its workflow, which frees its cluster; the next one is in the queue from when it goes on.

DBOS puts what a killed process had running back into its queue, where something more urgent could overtake it while
its run still goes on at the host. Before it is launched, those therefore get a priority that nothing else has.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import URL, Engine, Integer, Text, column, inspect, table, update
from sqlalchemy.exc import SQLAlchemyError

from backupd.fleet import Later, Stories, StorySteps
from backupd.fleet.database import address, engine_for, explained
from backupd.fleet.leadership import LEASE_SECONDS, Leadership, Lost, leading
from backupd.fleet.owed_json import from_document, to_document
from backupd.vocabulary.errors import FleetDatabaseAway, UsageError, missing_package
from backupd.vocabulary.fleet import PROTOCOLS, OwedBackup, try_id

try:
    from dbos import DBOS, DBOSClient, EnqueueOptions, SetEnqueueOptions, SetWorkflowID
    from dbos._error import DBOSException
    from dbos._serialization import Serializer
except ModuleNotFoundError as missing:
    raise UsageError("the engine of a fleet, DBOS, is not installed", hint=missing_package("fleet")) from missing

log = logging.getLogger(__name__)

_APPLICATION: Final = "backupd-fleet"
_VERSION: Final = f"protocol-{PROTOCOLS[-1]}"  # left to itself it is of the code: an upgrade would strand a night
_EXECUTOR: Final = "control"  # the same on every control host: what one leaves, the next takes up
_CLUSTERS: Final = "fleet:cluster"
_FIRST: Final = 0  # the priority of what was running
_NEXT: Final = 1  # of what has one of its slots
_LAST: Final = 2**31 - 1
_LIVE: Final = ["PENDING", "ENQUEUED", "DELAYED"]
_STORIES: Final = ["fleet.backup", "fleet.part"]  # an older backupd, which has no parts, can only leave these alone
_PART: Final = "#"  # in no id of a backup; the number of each part of its story but the first is behind it


class DbosEngine:
    """Carries stories; see `backupd.fleet.Engine`. A process has one that serves."""

    def __init__(
        self,
        url: str,
        slots: Mapping[str, int],
        lost: Lost,
        *,
        poll_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """With so many slots of each target; `lost` is told why when another may act: it ends this process.

        Raises:
            UsageError: the address is none.
        """
        self._url = address(url)
        self._slots = slots
        self._lost = lost
        self.poll_seconds = poll_seconds
        self._lease_seconds = lease_seconds
        self._known: set[str] = set()
        self._client: DBOSClient | None = None
        self._ended: dict[str, threading.Event] = {}
        self._stories: Stories | None = None
        self._leadership: Leadership | None = None

    def submit(self, owed: Sequence[OwedBackup]) -> None:
        """Each is carried out once; one that was submitted before is left as it is.

        Raises:
            FleetDatabaseAway: the database does not answer; some may be submitted.
        """
        with explained():
            for one in owed:
                self._at_database().enqueue(self._options(one), to_document(one))

    def _options(self, owed: OwedBackup) -> EnqueueOptions:
        options: EnqueueOptions = {
            "workflow_name": "fleet.backup",
            "queue_name": _CLUSTERS,
            "workflow_id": owed.id,
            "queue_partition_key": owed.cluster,
            "priority": _priority(owed),
            "app_version": _VERSION,
        }
        wait = (owed.not_before - datetime.now(UTC)).total_seconds()
        if wait > self.poll_seconds:
            options["delay_seconds"] = wait  # until then it takes no thread
        return options

    def going(self) -> Sequence[str]:
        """The ids of what has not ended.

        Raises:
            FleetDatabaseAway: the database does not answer.
        """
        with explained():
            found = self._at_database().list_workflows(status=_LIVE, name=_STORIES, load_input=False)
        return list(dict.fromkeys(one.workflow_id.partition(_PART)[0] for one in found))

    def broken(self) -> Mapping[str, str]:
        """What ended by an error of ours rather than by its story's end, and which one it was."""
        with explained():
            found = self._at_database().list_workflows(
                status=["ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED", "CANCELLED"], name=_STORIES, load_input=False
            )
        return {one.workflow_id.partition(_PART)[0]: str(one.error) for one in found}

    @contextmanager
    def serving(self, stories: Stories) -> Iterator[None]:
        """Within the block stories go on.

        Raises:
            Busy: another control host is active.
            FleetDatabaseAway: the database does not answer.
        """
        global _serving  # noqa: PLW0603 - DBOS's workflows are a process's
        with ExitStack() as stack:
            self._leadership = stack.enter_context(leading(self._url, self._lost, lease_seconds=self._lease_seconds))
            self._stories = stories
            _serving = self
            _put_first(self._url)
            stack.callback(_end)
            with explained():
                self._launch()
            yield

    def _launch(self) -> None:
        logging.getLogger("dbos").setLevel(logging.WARNING)
        DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._address,
                "application_version": _VERSION,
                "executor_id": _EXECUTOR,
                "log_level": "WARNING",
                "serializer": _Json(),
                "sys_db_pool_size": 8,
                "scheduler_polling_interval_sec": 3600.0,
            }
        )
        DBOS.launch()
        DBOS.register_queue(
            _CLUSTERS, partition_concurrency=1, polling_interval_sec=self.poll_seconds, on_conflict="always_update"
        )
        for target in self._slots:
            self._know(target)

    def _know(self, target: str) -> None:
        """The target's queue is there; a target that the fleet does not name has one slot."""
        if target not in self._known:
            DBOS.register_queue(
                _queue(target),
                global_concurrency=self._slots.get(target, 1),
                polling_interval_sec=self.poll_seconds,
                on_conflict="always_update",
            )
            self._known.add(target)

    def _at_database(self) -> DBOSClient:
        if self._client is None:
            self._make_tables()
            self._client = DBOSClient(
                system_database_url=self._address,
                serializer=_Json(),
                system_database_pool_size=2,
                application_name=_APPLICATION,
                retry_connection_errors=False,
            )
        return self._client

    def _make_tables(self) -> None:
        """What is owed may be submitted before any control host has served."""
        engine = engine_for(self._url, connections=1)
        try:
            if not inspect(engine).has_table("workflow_status", schema=_schema(engine)):
                DBOS.migrate(self._address)
        finally:
            engine.dispose()

    @property
    def _address(self) -> str:
        return self._url.render_as_string(hide_password=False)

    # What workflows call.

    @property
    def stories(self) -> Stories:
        """Those that are carried."""
        assert self._stories is not None
        return self._stories

    def carry_backup(self, owed: OwedBackup, so_far: object, part: int) -> None:
        """The story of a backup, in its cluster's turn, to its end or until it has to wait."""
        later = self.stories.backup(owed, so_far, _DbosSteps(self, owed))
        if later is not None:
            self._put_off(owed, later, part + 1)

    def _put_off(self, owed: OwedBackup, later: Later, part: int) -> None:
        """This part of its story comes then; where that was said before a kill, it is not said again."""
        options = SetEnqueueOptions(
            priority=_priority(owed),
            queue_partition_key=owed.cluster,
            delay_seconds=max((later.at - datetime.now(UTC)).total_seconds(), 0.0),
        )
        with SetWorkflowID(f"{owed.id}{_PART}{part}"), options:
            DBOS.enqueue_workflow(_CLUSTERS, _part, to_document(owed), later.so_far, part)

    def carry_slot(self, owed: OwedBackup, host: str, number: int, turn: int, level: int) -> object:
        """What is done with a slot of the target of this number: the next target's is taken, or the try is made."""
        try:
            if level + 1 < len(owed.targets):
                return self.with_slot(owed, host, number, turn, level + 1)
            return self.stories.attempt(owed, host, number, _DbosSteps(self, owed))
        finally:
            self._ended.setdefault(_slot_id(owed, number, turn, level), threading.Event()).set()

    def with_slot(self, owed: OwedBackup, host: str, number: int, turn: int, level: int) -> object:
        """The try's answer, once it had a slot of the target of this number, and of those after it."""
        target = sorted(owed.targets)[level]
        self._know(target)
        child = _slot_id(owed, number, turn, level)
        # Who has a slot already goes before whoever has none, so that none is held for long by one that waits.
        with SetWorkflowID(child), SetEnqueueOptions(priority=_NEXT if level else _priority(owed)):
            handle = DBOS.enqueue_workflow(_queue(target), _slot, to_document(owed), host, number, turn, level)
        self._wait_for(child)
        return handle.get_result(polling_interval_sec=min(1.0, self.poll_seconds))

    def _wait_for(self, child: str) -> None:
        """It has ended, or is about to: asking the database for hundreds that wait would cost more than the rest."""
        event = self._ended.setdefault(child, threading.Event())
        while self._is_live(child) and not event.wait(60):
            pass
        self._ended.pop(child, None)

    def _is_live(self, workflow_id: str) -> bool:
        found = self.patiently(
            lambda: self._at_database().list_workflows(workflow_ids=[workflow_id], load_input=False, load_output=False)
        )
        return not found or str(found[0].status) in _LIVE

    def acting(self, act: Callable[[], object]) -> object:
        """Do it as the one that may."""
        assert self._leadership is not None
        self._leadership.require()
        return self.patiently(act)

    def patiently(self, act: Callable[[], Any]) -> Any:
        """Do it as soon as the database answers. Usually the lock is lost with it, and then this process ends."""
        wait = 0.5
        while True:
            try:
                with explained():
                    return act()
            except FleetDatabaseAway as error:
                log.warning("%s; trying again in %.0f s", error, wait)
                time.sleep(wait)
                wait = min(wait * 2, 30.0)

    def guarded(self, carry: Callable[[], object]) -> object:
        """A fault of the database is no end of a story: this process makes way, and the story goes on from its log."""
        try:
            return carry()
        except (SQLAlchemyError, FleetDatabaseAway) as error:
            assert self._leadership is not None
            self._leadership.step_down(f"the fleet's database failed: {' '.join(str(error).split())}")
            raise


class _DbosSteps:
    """What a story may do."""

    def __init__(self, engine: DbosEngine, owed: OwedBackup) -> None:
        self._engine = engine
        self._owed = owed

    def step(self, name: str, act: Callable[[], object]) -> object:
        """See `backupd.fleet.StorySteps`."""
        return DBOS.run_step({"name": name}, lambda: self._engine.acting(act))

    def attempt(self, host: str, number: int, turn: int) -> object:
        """See `backupd.fleet.StorySteps`."""
        if not self._owed.targets:
            return self._engine.stories.attempt(self._owed, host, number, self)
        return self._engine.with_slot(self._owed, host, number, turn, 0)


_serving: DbosEngine | None = None


def _served() -> DbosEngine:
    assert _serving is not None
    return _serving


def _end() -> None:
    global _serving  # noqa: PLW0603
    DBOS.destroy()
    _serving = None


# DBOS gives up what it has recovered a hundred times, unless it is told not to.
@DBOS.workflow(name="fleet.backup", max_recovery_attempts=None)
def _backup(owed: object) -> None:
    _carry(owed, None, 1)


@DBOS.workflow(name="fleet.part", max_recovery_attempts=None)
def _part(owed: object, so_far: object, part: int) -> None:
    _carry(owed, so_far, part)


def _carry(owed: object, so_far: object, part: int) -> None:
    engine = _served()
    engine.guarded(lambda: engine.carry_backup(from_document(owed), so_far, part))


@DBOS.workflow(name="fleet.slot", max_recovery_attempts=None)
def _slot(owed: object, host: str, number: int, turn: int, level: int) -> object:
    engine = _served()
    return engine.guarded(lambda: engine.carry_slot(from_document(owed), host, number, turn, level))


def _put_first(url: URL) -> None:
    """What a killed process had running is dequeued before all else: its runs go on at their hosts."""
    engine = engine_for(url, connections=1)
    log = table(
        "workflow_status",
        *(column("status", Text), column("queue_name", Text), column("priority", Integer)),
        schema=_schema(engine),
    )
    try:
        with explained(), engine.begin() as connection:
            if inspect(connection).has_table(log.name, schema=log.schema):
                ours = (log.c.status == "PENDING", log.c.queue_name.like("fleet:%"))
                connection.execute(update(log).where(*ours).values(priority=_FIRST))
    finally:
        engine.dispose()


def _schema(engine: Engine) -> str | None:
    """In which DBOS's tables are."""
    return None if engine.dialect.name == "sqlite" else "dbos"


def _queue(target: str) -> str:
    return f"fleet:target:{target}"


def _slot_id(owed: OwedBackup, number: int, turn: int, level: int) -> str:
    return f"{try_id(owed, number)}@{sorted(owed.targets)[level]}#{turn}"


def _priority(owed: OwedBackup) -> int:
    return min(max(owed.priority, 0) + _NEXT + 1, _LAST)


class _Failed(DBOSException):
    """What an error has become in the log: its words."""


class _Json(Serializer):
    """The log is JSON, which a person reads and nobody can hide a program in, as in DBOS's own pickles."""

    def serialize(self, data: Any) -> str:
        """The JSON text; an error becomes its words."""
        return json.dumps(data, default=_words)

    def deserialize(self, serialized_data: str) -> Any:
        """The value."""
        value = json.loads(serialized_data)
        return _Failed(value["raised"]) if isinstance(value, dict) and value.keys() == {"raised"} else value

    def name(self) -> str:
        """In the log."""
        return "json"


def _words(value: object) -> object:
    if isinstance(value, BaseException):
        return {"raised": f"{type(value).__name__}: {value}"}
    raise TypeError(f"the log of the engine cannot have a {type(value).__name__}")


_: type[StorySteps] = _DbosSteps
