"""One try at a lock, in a session of its own, and the proof that what was granted was never lost.

Knows: the order of things around and under the lock.

The session is opened for the lock, never reopened, and closed on any error: FLUSH TABLES WITH READ LOCK can report a
time-out and hold its locks all the same. Seen on MySQL 9.7.4 behind a long SELECT: error 1205, and the session held
GLOBAL and COMMIT, so that others' inserts timed out; after UNLOCK TABLES and the end of the session 0 locks were left.

But on MySQL the tables that such a request was to flush stay marked: whoever opens one of them waits until the read
that is in the way has ended, for 4 s more in that test. No statement takes the mark back, so the request is not sent
while a read is in its way: it waits for a gap between statements, as long as it would have waited for the lock. With
that, a heartbeat on the very table that is read stalled for 0.07 s instead of 6 s.

How long writers stall for a request that is sent and not granted (wait 2 s; the longest of a heartbeat's inserts, 50 a
second): MySQL 9.7.4 at most 2.04 s behind a SELECT, an UPDATE, an ALTER, LOCK TABLES; MariaDB 11.8.6 2.01 s with FLUSH
TABLES WITH READ LOCK, 0.01 s with BACKUP STAGE. Neither waits for uncommitted writes. A lock is asked for in steps,
each of which may wait as long; it is the watchdog that ends the whole at the limit.

Three things end a lock that lasts too long: the block's end, the watchdog, and the server itself, by a `wait_timeout`
of the budget in whole seconds, should this whole process be stopped.

No statement proves a lock by trying to write: if the lock were gone, the write would succeed and reach the replicas.

What took how long is told by when each answer arrives: the server sends the answer of every statement of a packet as
soon as it has it. Who waits behind the lock is counted by the last statement before the unlock: after it, writers are
gone before anybody looks. It takes 1 ms of the hold, 8 ms with a thousand sessions (MariaDB 10.11.19, 2 busy
processors). Threads_running would count MySQL's event scheduler too.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pymysql.constants import ER

from backupd.config import LockConfig
from backupd.mysql import redo
from backupd.mysql.activity import blockers, is_read
from backupd.mysql.facts import flavour_of
from backupd.mysql.layout import require_server_of
from backupd.mysql.positions import PositionReader, position_reader
from backupd.mysql.session import Connect, Row, Session, StatementError, whole_seconds
from backupd.mysql.statement_limit import TIMED_OUT
from backupd.mysql.watchdog import Watchdog
from backupd.vocabulary.errors import LockLost, ServerError
from backupd.vocabulary.servers import Blocker, Flavour, Position

FLUSH_ENGINE_LOGS = "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS"

_MARGIN_SECONDS = 0.05  # for an answer on its way: between the server's own time-out and the watchdog
_GAP_AGE_SECONDS = 0.1  # statements younger than this end soon, most of them
_GAP_LOOK_SECONDS = 0.05
_PREPARING_SECONDS = 30.0  # what the statements before the lock may take
_WATCHDOG_SECONDS = 5.0  # how long a KILL may take to be answered, before the socket is broken instead
_SESSION = "SELECT CONNECTION_ID() AS id"
_UNDER_WAY = """
    SELECT LEFT(INFO, 4096) AS statement FROM information_schema.PROCESSLIST
    WHERE COMMAND IN ('Query', 'Execute') AND ID <> CONNECTION_ID()
"""
_NOT_GRANTED = frozenset({ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, *TIMED_OUT})

# MariaDB shows one BACKUP lock (of the type it had before the last upgrade), MySQL a GLOBAL and a COMMIT one.
_METADATA_LOCKS = """
    SELECT COUNT(*) AS locks FROM performance_schema.metadata_locks
    WHERE OBJECT_TYPE IN ('BACKUP', 'GLOBAL', 'COMMIT') AND LOCK_DURATION = 'EXPLICIT' AND LOCK_STATUS = 'GRANTED'
    AND OWNER_THREAD_ID = (SELECT THREAD_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID())
"""
_METADATA_INSTRUMENT = """
    SELECT ENABLED FROM performance_schema.setup_instruments
    WHERE NAME = 'wait/lock/metadata/sql/mdl' AND @@performance_schema = 1
"""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of locking: what to send, the last of which stops the commits, and what releases it."""

    name: str
    request: tuple[str, ...]
    release: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The lock is held: since when, and where the server stands."""

    at: float  # monotonic clock
    waited_seconds: float
    position: Position
    lsn: int | None
    position_seconds: float  # of the hold
    flush_seconds: float


@dataclass(frozen=True, slots=True)
class Parting:
    """How the lock was released: what that took of the hold, and how many statements had waited for it."""

    proof_seconds: float = 0.0
    unlock_seconds: float = 0.0
    stalled: int | None = None


@dataclass(frozen=True, slots=True)
class NotGranted:
    """Nothing is held, in words why, and how long the request stalled writers."""

    reason: str
    waited_seconds: float = 0.0


class LockSession:
    """A session that asks for one lock once; `opened` makes it and ends it."""

    def __init__(
        self, session: Session, watchdog: Watchdog, strategy: Strategy, limits: LockConfig, terms: "_Terms"
    ) -> None:
        self._session = session
        self._watchdog = watchdog
        self._strategy = strategy
        self._limits = limits
        self._terms = terms
        self._grant: Grant | None = None
        self._unlocked_at: float | None = None
        self.parting = Parting()
        self.reached_lsn: int | None = None

    @classmethod
    @contextmanager
    def opened(cls, connect: Connect, strategy: Strategy, limits: LockConfig, *, of: Path) -> Iterator[Self]:
        """A new session and its watchdog's, for the length of the block; after it nothing is locked.

        Raises:
            ServerError: the server cannot be reached, does not let us in, is not that of the datadir `of`, or writes no
                redo log.
        """
        answer_seconds = limits.wait_timeout_seconds + limits.hold_budget_seconds + _PREPARING_SECONDS
        with (
            connect(answer_seconds=answer_seconds) as session,
            connect(answer_seconds=_WATCHDOG_SECONDS) as guard,
            Watchdog(session, guard) as watchdog,
        ):
            guard.execute(f"SET SESSION wait_timeout = {whole_seconds(answer_seconds)}")
            require_server_of(session, of)
            redo.require_enabled(session)
            yield cls(session, watchdog, strategy, limits, _prepared(session, limits))

    @property
    def proof(self) -> str:
        """How the lock will be proven."""
        return "metadata-locks" if self._terms.metadata_locks else "session and position"

    @property
    def ended_at(self) -> float:
        """When what was held was released: now, unless it was unlocked or ended before. Monotonic clock."""
        return self._watchdog.ended_at or self._unlocked_at or time.monotonic()

    def ask(self) -> Grant | NotGranted:
        """Ask for the lock. Unless it is granted, nothing is held.

        Raises:
            LockLost: it was granted, and was held for too long before anything could be done under it.
            ServerError: the server failed, or refused for a reason that no further try changes.
        """
        in_the_way = self._in_the_way()
        if in_the_way:
            return NotGranted(_would_wait_behind(in_the_way[0]))
        self._session.execute(FLUSH_ENGINE_LOGS)  # so that the one under the lock has little left to write
        asked = time.monotonic()
        self._watchdog.allow(self._limits.wait_timeout_seconds + _MARGIN_SECONDS)
        try:
            self._grant = self._request(asked)
        except StatementError as error:
            self._let_go()
            waited = time.monotonic() - asked
            if error.number not in _NOT_GRANTED and not self._watchdog.fired:
                raise
            return NotGranted(f"the server did not grant it within {waited:.1f} s", waited)
        except BaseException:
            self._let_go()
            raise
        return self._grant

    def give_back(self) -> ServerError | None:
        """Read the proof and unlock, in one packet. Nothing is held any more; the answer is what was wrong, if it was:
        a LockLost, or that meanwhile the server writes no redo log, which is asked for once nobody waits any more.

        Returned and not raised, so that the caller reads its clock first.
        """
        proof = (_METADATA_LOCKS,) if self._terms.metadata_locks else ()
        count = (_UNDER_WAY,) if self._terms.statements else ()
        asked = (*self._terms.reader.statements, *proof, _SESSION, *count)
        after = redo.REACHED if self._terms.flavour is Flavour.MARIADB else redo.ENABLED
        began = time.monotonic()
        answers = self._session.stream((*asked, self._strategy.release, after))
        try:
            told = [next(answers) for _ in asked]
            proven = time.monotonic()
            next(answers)
        except StatementError as error:
            lost = _lost(self._why_ended())
            lost.__cause__ = error
            self._let_go()
            return lost
        except BaseException:
            self._let_go()
            raise
        self._unlocked_at = time.monotonic()
        self._watchdog.relax()
        afterwards = _last(answers)
        if self._terms.flavour is Flavour.MARIADB:
            self.reached_lsn = next((int(row["Value"] or 0) for row in afterwards), None)
        stalled = _writing(told.pop()) if count else None
        self.parting = Parting(proven - began, self._unlocked_at - proven, stalled)
        session = told.pop()
        locks = told.pop() if proof else None
        changed = self._changed(session, self._terms.reader.position(told), locks)
        if changed:
            return _lost(changed)
        return redo.disabled() if redo.is_disabled(afterwards) else None

    def give_up(self, error: BaseException) -> None:
        """Nothing is held any more. That the lock was lost meanwhile becomes a note on the error."""
        if self._watchdog.fired:
            error.add_note(f"the lock had already been lost: {self._why_ended()}")
        began = time.monotonic()
        self._let_go()
        self._unlocked_at = time.monotonic()
        self.parting = Parting(unlock_seconds=self._unlocked_at - began)

    def _in_the_way(self) -> tuple[Blocker, ...]:
        """What the request would wait behind; where a wait has consequences, after having looked for a gap.

        Where there was none, what has run since before the look began goes on for long, most likely.
        """
        limits = self._limits
        if not self._terms.marks_tables:
            return self._running_for(limits.blocker_age_seconds)
        deadline = time.monotonic() + limits.wait_timeout_seconds
        while self._running_for(_GAP_AGE_SECONDS):
            if time.monotonic() > deadline:
                return self._running_for(min(limits.wait_timeout_seconds / 2, limits.blocker_age_seconds))
            time.sleep(_GAP_LOOK_SECONDS)
        return ()

    def _running_for(self, seconds: float) -> tuple[Blocker, ...]:
        return blockers(self._session, self._terms.flavour, older_than_seconds=seconds)

    def _request(self, asked: float) -> Grant:
        """One packet: the lock, the position, the engines' logs. The clock is read when the lock's answer arrives.

        The logs come after what is read of InnoDB's memory: MySQL's log status has the LSN of that, and purging goes on
        under the lock. So what was read is on disk then. A counter of what is on disk comes after them.

        Raises:
            LockLost: it was granted, and what follows took longer than a lock may last. No further try is quicker.
        """
        lsn = (self._terms.reader.lsn,) if self._terms.reader.lsn else ()
        request = self._strategy.request
        answers = self._session.stream((*request, *self._terms.reader.statements, FLUSH_ENGINE_LOGS, *lsn))
        for _ in request:
            next(answers)
        granted = time.monotonic()
        self._watchdog.allow(self._limits.hold_budget_seconds)
        try:
            told = [next(answers) for _ in self._terms.reader.statements]
            told_at = time.monotonic()
            _flushed, *counted = answers
            number = int(counted[0][0]["Value"] or 0) if lsn else self._terms.reader.lsn_beside(told)
            if self._terms.redo_lags:
                number = redo.written(self._session)
        except StatementError as error:
            if self._watchdog.fired and time.monotonic() - granted >= self._limits.hold_budget_seconds:
                lags = " while InnoDB wrote its log" if self._terms.redo_lags else ""
                raise _lost(f"{self._why_ended()}{lags}") from error
            raise
        return Grant(
            granted,
            granted - asked,
            self._terms.reader.position(told),
            number,
            position_seconds=told_at - granted,
            flush_seconds=time.monotonic() - told_at,
        )

    def _let_go(self) -> None:
        try:
            self._session.execute(self._strategy.release)
        except StatementError:
            self._watchdog.end()  # it cannot be spoken to: the server must end it, or it keeps what it holds
        self._watchdog.relax()
        self._session.close()

    def _why_ended(self) -> str:
        if self._watchdog.fired:
            return f"it was held for longer than {self._limits.hold_budget_seconds:g} s, and the watchdog killed it"
        return "the session that held it has ended"

    def _changed(self, session: list[Row], position: Position, locks: list[Row] | None) -> str | None:
        if session[0]["id"] != str(self._session.connection_id):
            return "a different session answered"
        if locks is not None and locks[0]["locks"] == "0":
            return "the server no longer lists it"
        if self._grant is None or _standing(position) != _standing(self._grant.position):
            return f"the server's position moved from {self._grant and self._grant.position} to {position}"
        return None


@dataclass(frozen=True, slots=True)
class _Terms:
    """What was found out about the server before the lock, so that nothing is tried out under it."""

    flavour: Flavour
    reader: PositionReader
    metadata_locks: bool  # we may read who holds them
    statements: bool  # we may read what others run
    redo_lags: bool  # its redo log does not yet have what was committed, even after the engines' logs were flushed

    @property
    def marks_tables(self) -> bool:
        """A request that fails leaves tables that nobody can open for as long as the read lasts that was in its way."""
        return self.flavour is Flavour.MYSQL


def _prepared(session: Session, limits: LockConfig) -> _Terms:
    session.execute(
        f"SET SESSION lock_wait_timeout = {whole_seconds(limits.wait_timeout_seconds)},"
        f" wait_timeout = {whole_seconds(limits.hold_budget_seconds)}"
    )
    flavour = flavour_of(session)
    return _Terms(
        flavour,
        position_reader(session),
        # MariaDB's performance schema is off unless asked for.
        _answered(session, _METADATA_INSTRUMENT) == [{"ENABLED": "YES"}]
        and _answered(session, _METADATA_LOCKS) is not None,
        _answered(session, _UNDER_WAY) is not None,
        redo.lags(session, flavour),
    )


def _answered(session: Session, statement: str) -> list[Row] | None:
    """None where our user may not ask that, or this server does not know it: under the lock it would cost the lock."""
    try:
        return session.query(statement)
    except StatementError as error:
        if not error.number:
            raise
        return None


def _last(answers: Iterator[list[Row]]) -> list[Row]:
    """Nothing where the server tells nothing, or has ended: the lock is over, and nothing is taken from it."""
    try:
        return next(answers)
    except StatementError:
        return []


def _writing(running: list[Row]) -> int:
    """How many of these statements do not only read."""
    return sum(not is_read(row["statement"] or "") for row in running)


def _standing(position: Position) -> tuple[object, ...]:
    """What cannot change under the lock. A channel's file and offset can: its source may start a new binlog."""
    gtids = tuple((channel.channel, channel.gtid) for channel in position.replicas)
    return position.binlog_file, position.binlog_offset, position.gtid, gtids


def _lost(why: str) -> LockLost:
    return LockLost(
        f"the lock was lost while it was needed: {why}",
        hint="the snapshot was discarded and nothing was stored; start the run again",
    )


def _would_wait_behind(blocker: Blocker) -> str:
    return (
        f"it would be blocked by session {blocker.connection_id} of {blocker.user}, "
        f"which has run for {blocker.seconds:.0f} s: {blocker.statement}"
    )
