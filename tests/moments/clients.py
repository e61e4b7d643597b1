"""Clients that load a server at a rate, and note of every transaction what it changes and how it was acknowledged.

Knows: how each flavour tells a session the GTID of its own last commit. Refuses to know what becomes of a transaction
that was not acknowledged, for the server was killed or refused it: the log tells that.
"""

import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pymysql

from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import MariadbServer, wait_until
from tests.moments.tables import Add, Change, Delete, Insert

CLIENTS = 4
_SESSION_TRACK = 1 << 23  # a capability: the server tells changes of the session's state with each OK
_OWN_GTID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+")


@dataclass
class Attempt:
    """A transaction as its client knows it. The first of its changes inserts the row of its token."""

    token: int
    changes: Sequence[Change]
    begun: datetime
    gtid: str = ""  # as it was acknowledged; empty: it was not
    acknowledged: datetime | None = None


@dataclass
class Load:
    """What all clients together have done, and how fast they are to be."""

    server: MariadbServer
    flavour: Flavour
    seed: int
    per_second: float = 20
    attempts: list[Attempt] = field(default_factory=list)
    tokens: "count[int]" = field(default_factory=lambda: count(1000, 10))  # a transaction may insert ten rows
    over: threading.Event = field(default_factory=threading.Event)
    threads: Sequence[threading.Thread] = ()

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the length of the block; a server that is away is waited for."""
        self.threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """What was begun has ended."""
        self.over.set()
        for thread in self.threads:
            thread.join()

    def go_on(self, transactions: int) -> None:
        """So many more are acknowledged."""
        wanted = self._acknowledged() + transactions
        wait_until(lambda: self._acknowledged() >= wanted)

    def run(self, change: Change, *, token: int | None = None) -> str:
        """One transaction more, of nobody among the clients; its GTID. DDL needs no token."""
        with Witnessed(self.server, self.flavour) as session:
            return session.commit(self.noted(next(self.tokens) if token is None else token, [change]))

    def noted(self, token: int, changes: Sequence[Change]) -> Attempt:
        attempt = Attempt(token, changes, datetime.now(UTC))
        self.attempts.append(attempt)
        return attempt

    def _acknowledged(self) -> int:
        return sum(1 for attempt in self.attempts if attempt.gtid)

    def _client(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        due = time.monotonic()
        while not self.over.is_set():
            with suppress(pymysql.MySQLError), Witnessed(self.server, self.flavour) as session:
                while not self.over.wait(max(0.0, due - time.monotonic())):
                    due = max(due + CLIENTS / self.per_second, time.monotonic() - 1)
                    token = next(self.tokens)
                    session.commit(self.noted(token, _changes(chance, number, token)))
            self.over.wait(0.02)  # it is refused, or away: another session


class Witnessed:
    """A session that is told the GTID of what it has committed."""

    def __init__(self, server: MariadbServer, flavour: Flavour) -> None:
        self._mysql = flavour is Flavour.MYSQL
        self._connection: Any = pymysql.connect(
            unix_socket=str(server.socket),
            user="root",
            autocommit=True,
            client_flag=_SESSION_TRACK if self._mysql else 0,
            ssl_disabled=True,
        )
        self._ask(f"SET SESSION {'session_track_gtids = OWN_GTID' if self._mysql else 'binlog_format = ROW'}")

    def __enter__(self) -> "Witnessed":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(pymysql.MySQLError, OSError):
            self._connection.close()

    def commit(self, attempt: Attempt) -> str:
        """It is done, and its GTID is noted.

        Raises:
            pymysql.MySQLError: the server refused it, or is gone.
        """
        statements = [change.sql for change in attempt.changes]
        if len(statements) > 1:
            statements = ["BEGIN", *statements, "COMMIT"]
        for statement in statements:
            told = self._ask(statement)
        acknowledged = datetime.now(UTC)
        gtid = told if self._mysql else self._ask("SELECT @@last_gtid")
        attempt.acknowledged, attempt.gtid = acknowledged, gtid
        return gtid

    def _ask(self, statement: str) -> str:
        """The only value of a row; of what gives none, the GTID that came with the answer."""
        cursor = self._connection.cursor()
        cursor.execute(statement)
        if cursor.description is not None:
            return str(cursor.fetchone()[0])
        found = _OWN_GTID.search(self._connection._result.message or b"")  # pymysql offers no public way
        return found[0].decode() if found else ""


def _changes(chance: random.Random, number: int, token: int) -> Sequence[Change]:
    """Of a client's own table, of the one that all have in common, or of one without transactions."""
    text = f"{chance.getrandbits(64):016x}" * chance.randrange(1, 9)
    earlier = token - 10 * chance.randrange(1, 60)
    match chance.randrange(10):
        case 0:
            return [Insert("flat", token, text)]
        case 1 | 2 | 3:
            return [Insert("common", token, text)]
        case 4 | 5:
            return [Insert("common", token, text), Add("common", earlier, chance.randrange(1, 50))]
        case 6:
            return [Insert(f"own{number}", token, text), Delete("common", earlier)]
        case _:
            return [Insert(f"own{number}", token, text, 3), Add(f"own{number}", earlier, 5)]
