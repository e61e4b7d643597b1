"""How the server is made to stand still: two strategies, tries within limits, and the block in which it stands.

Knows: which statements lock and unlock, how often to try, what the lock cost.

Between the request and the unlock nothing of ours writes a log line: they are kept, and told afterwards.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from pymysql.constants import ER

from backupd.config import LockConfig
from backupd.host.signals import shielded
from backupd.mysql import UNPROVEN, confirmed_words
from backupd.mysql.locksession import Grant, LockSession, Parting, Strategy
from backupd.mysql.session import Connect, Session, StatementError
from backupd.vocabulary.errors import LockLost, LockNotGranted
from backupd.vocabulary.servers import LockReceipt, Position

__all__ = ["AUTO", "STRATEGIES", "HeldServerLock", "ServerLock", "best_strategy"]

log = logging.getLogger(__name__)

AUTO = "auto"

STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("ftwrl", ("FLUSH TABLES WITH READ LOCK",), "UNLOCK TABLES"),
        Strategy("backup-stage", ("BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT"), "BACKUP STAGE END"),
    )
}


def best_strategy(session: Session) -> str:
    """`backup-stage` where the server knows it, because it waits for less; else `ftwrl`.

    Asked with a statement that changes nothing: in a session without a backup, BACKUP STAGE END is refused for that
    reason (or for want of RELOAD) where it is known, and as a syntax error where it is not.

    Raises:
        ServerError: the session is over.
    """
    try:
        session.execute("BACKUP STAGE END")
    except StatementError as error:
        if error.number == ER.PARSE_ERROR:
            return "ftwrl"
        if not error.number:
            raise
    return "backup-stage"


class HeldServerLock:
    """The contract's `HeldLock`: where the server stands, and what that cost so far."""

    def __init__(self, grant: Grant, receipt: LockReceipt) -> None:
        self._grant = grant
        self._receipt = receipt
        self._reached_lsn: int | None = None

    @property
    def position(self) -> Position:
        """Where it stands."""
        return self._grant.position

    @property
    def receipt(self) -> LockReceipt:
        """What the lock cost. Complete only after the lock has been released; until then its hold is 0."""
        return self._receipt

    @property
    def reached_lsn(self) -> int | None:
        """See the contract."""
        return self._reached_lsn

    def returned(self, at: float, parting: Parting, *, proven: bool, reached_lsn: int | None = None) -> None:
        """The end of the hold, by the monotonic clock, and whether it was shown that it had lasted until then."""
        self._reached_lsn = reached_lsn
        self._receipt = replace(
            self._receipt,
            hold_seconds=at - self._grant.at,
            proof=self._receipt.proof if proven else UNPROVEN,
            proof_seconds=parting.proof_seconds,
            unlock_seconds=parting.unlock_seconds,
            stalled=parting.stalled,
        )

    @property
    def words(self) -> str:
        """What it cost, for the log."""
        return f"held for {self._receipt.hold_seconds:.3f} s; {confirmed_words(self._receipt.proof)}"


class ServerLock:
    """The contract's `Lock` on a real server. `strategy` is `ftwrl`, `backup-stage`, or `auto` for the better one."""

    def __init__(
        self,
        connect: Connect,
        limits: LockConfig,
        *,
        strategy: str = AUTO,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect
        self._limits = limits
        self._wanted = strategy
        self._pause = pause
        self._strategy: Strategy | None = None

    @property
    def strategy(self) -> str:
        """`ftwrl` or `backup-stage`; for `auto` the server is asked at the first use.

        Raises:
            ServerError: it had to be asked, and could not.
        """
        return self._chosen().name

    @contextmanager
    def held(self, of: Path) -> Iterator[HeldServerLock]:
        """Hold the lock for the length of the block. See the contract, `backupd.mysql.Lock`."""
        journal: list[str] = []
        try:
            with ExitStack() as owed:
                session, held = self._granted(owed, journal, of)
                try:
                    yield held
                except BaseException as error:
                    with shielded():
                        session.give_up(error)
                        held.returned(session.ended_at, session.parting, proven=False)
                        journal.append(held.words)
                    raise
                with shielded():
                    fault = session.give_back()
                    proven = not isinstance(fault, LockLost)
                    held.returned(session.ended_at, session.parting, proven=proven, reached_lsn=session.reached_lsn)
                    journal.append(held.words)
            if fault is not None:
                raise fault
        finally:
            for line in journal:
                log.info("lock: %s", line)

    def _chosen(self) -> Strategy:
        if self._strategy is None:
            name = self._wanted
            if name == AUTO:
                with self._connect() as session:
                    name = best_strategy(session)
            self._strategy = STRATEGIES[name]
        return self._strategy

    def _granted(self, owed: ExitStack, journal: list[str], of: Path) -> tuple[LockSession, HeldServerLock]:
        """Try until it is granted. Each try has a session of its own, which is over before the next."""
        strategy, limits = self._chosen(), self._limits
        waited, refusal = 0.0, ""
        for number in range(1, limits.tries + 1):
            if number > 1:
                self._pause(limits.pause_seconds)
            with ExitStack() as mine:
                session = mine.enter_context(LockSession.opened(self._connect, strategy, limits, of=of))
                answer = session.ask()
                waited += answer.waited_seconds
                if isinstance(answer, Grant):
                    owed.push(mine.pop_all())
                    journal.append(f"{strategy.name} granted at try {number} after waiting {waited:.3f} s")
                    receipt = LockReceipt(
                        strategy.name,
                        number,
                        waited,
                        0.0,
                        session.proof,
                        answer.lsn,
                        position_seconds=answer.position_seconds,
                        flush_seconds=answer.flush_seconds,
                    )
                    return session, HeldServerLock(answer, receipt)
            refusal = answer.reason
            journal.append(f"{strategy.name} not granted at try {number}: {refusal}")
        raise LockNotGranted(
            f"{strategy.name} was not granted in {limits.tries} tries: {refusal}",
            hint="wait until the blocking statement ends, or move the job to a quieter hour; see SHOW FULL PROCESSLIST",
        )
