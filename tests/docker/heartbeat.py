"""What a client of the server notices of a lock: the longest of its writes, less what everybody was late by meanwhile.

Knows: one row at a time, 50 times a second, and another client, who sleeps, and asks of the server and of its disk only
what no lock keeps waiting: what that one is late by is the host's, its processors', its disk's. Refuses to know why a
write took long.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError
from tests.contract.mariadb import MariadbServer

PERIOD_SECONDS = 0.02
NAP_SECONDS = 0.01
LATE_SECONDS = 0.005  # what any timer may be late by on a quiet host
TABLE = "t.heartbeat"

_Span = tuple[float, float]  # of the monotonic clock


@dataclass(frozen=True, slots=True)
class Stall:
    """One write that took long, and each of the times for which the host stood still meanwhile; in seconds."""

    took: float
    host_stood_still: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """What is left for whoever held it up."""
        return self.took - sum(self.host_stood_still)


class Heartbeat:
    """A client that writes and one that sleeps, until `stop`; whose server has gone comes back with it."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server
        self._over = threading.Event()
        self._writes: list[_Span] = []
        self._late: list[_Span] = []
        self._beside = (server.folder / "heartbeat").open("ab", buffering=0)  # on the disk of the server's files
        beats = (self._write_to, self._nap_beside)
        self._threads = [threading.Thread(target=self._go_on, args=(beat,)) for beat in beats]
        for thread in self._threads:
            thread.start()

    @property
    def count(self) -> int:
        """Writes that have ended, well or not."""
        return len(self._writes)

    def stop(self) -> None:
        """Nothing is written any more."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._beside.close()

    def longest_stall(self) -> Stall:
        """The longest write. What the sleeper was late by meanwhile does not count: that was the host's."""
        return max(
            (Stall(end - begin, self._host_stood_still(begin, end)) for begin, end in self._writes),
            key=lambda stall: stall.seconds,
        )

    def _host_stood_still(self, begin: float, end: float) -> tuple[float, ...]:
        overlaps = (min(end, until) - max(begin, since) for since, until in self._late)
        return tuple(overlap for overlap in overlaps if overlap > 0)

    def _go_on(self, beat: Callable[[Session], None]) -> None:
        while not self._over.is_set():
            try:
                with self._server.session() as session:
                    while not self._over.is_set():
                        beat(session)
            except ServerError:
                self._over.wait(PERIOD_SECONDS)

    def _write_to(self, session: Session) -> None:
        begin = time.monotonic()
        try:
            session.execute(f"INSERT INTO {TABLE} (v) VALUES (1)")
        finally:
            self._writes.append((begin, time.monotonic()))
        self._over.wait(max(0.0, begin + PERIOD_SECONDS - time.monotonic()))

    def _nap_beside(self, session: Session) -> None:
        due = time.monotonic() + NAP_SECONDS
        time.sleep(NAP_SECONDS)
        session.execute("DO 1")
        self._beside.write(b".")
        now = time.monotonic()
        if now - due > LATE_SECONDS:
            self._late.append((due, now))


@contextmanager
def beating(server: MariadbServer) -> Iterator[Heartbeat]:
    """A heartbeat for the length of the block, on a table of its own. It has begun when the block does."""
    with server.session() as session:
        session.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    heartbeat = Heartbeat(server)
    try:
        awaited(heartbeat, 3)
        yield heartbeat
    finally:
        heartbeat.stop()


def awaited(heartbeat: Heartbeat, writes: int) -> None:
    """So many more writes have ended."""
    wanted = heartbeat.count + writes
    deadline = time.monotonic() + 30
    while heartbeat.count < wanted:
        assert time.monotonic() < deadline, "nothing is written any more"
        time.sleep(PERIOD_SECONDS)
