"""What a real server counts of its own work: what stands for a transaction, and what does not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from backupd.mysql.counting import ServerCounters
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError
from tests.contract.mariadb import MariadbServer, mysql_server

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

INSERT, UPDATE = "INSERT INTO t.innodb (v) VALUES ('w')", "UPDATE t.innodb SET v = CONCAT(v, 'x') WHERE id = 1"
WORK: dict[str, tuple[tuple[str, ...], int]] = {  # statements, and the transactions that they are
    "autocommit": ((INSERT,), 1),
    "autocommit, not transactional": (("INSERT INTO t.myisam (v) VALUES ('w')",), 1),
    "explicit": (("BEGIN", INSERT, UPDATE, UPDATE, "COMMIT"), 1),
    "without autocommit": (("SET autocommit = 0", INSERT, "COMMIT", UPDATE, "COMMIT", "SET autocommit = 1"), 2),
    "prepared": (("PREPARE s FROM 'DELETE FROM t.innodb ORDER BY id DESC LIMIT 1'", "EXECUTE s"), 1),
    "read": (("SELECT * FROM t.innodb",), 0),
    "read, explicit": (("BEGIN", "SELECT * FROM t.innodb", "COMMIT"), 0),
}


@contextmanager
def counters(server: MariadbServer) -> Iterator[ServerCounters]:
    found = ServerCounters(server.connect())
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize(("statements", "transactions"), WORK.values(), ids=WORK)
def test_what_the_binlog_s_books_count_is_what_a_client_calls_a_transaction(
    mysql_server: MariadbServer, statements: tuple[str, ...], transactions: int
) -> None:
    def work(session: Session) -> None:
        for statement in statements:
            session.execute(statement)

    with mysql_server.session() as session, counters(mysql_server) as looking:
        before = looking.look()
        for _ in range(5):
            work(session)
        after = looking.look()
    assert after.logged - before.logged == 5 * transactions
    assert after.at > before.at
    assert after.uptime_seconds >= before.uptime_seconds


def test_commits_and_writing_statements_are_counted_beside(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as session, counters(mysql_server) as looking:
        before = looking.look()
        for statement in ("BEGIN", INSERT, UPDATE, "COMMIT"):
            session.execute(statement)
        after = looking.look()
    assert (after.commits - before.commits, after.statements - before.statements) == (1, 2)


def test_a_look_at_a_server_that_stands_still_waits_for_nothing(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as holder, counters(mysql_server) as looking:
        before = looking.look()
        holder.execute("FLUSH TABLES WITH READ LOCK")
        assert looking.look().logged == before.logged


def test_a_session_that_was_ended_is_opened_anew_at_the_next_look(mysql_server: MariadbServer) -> None:
    opened: list[Session] = []
    connect = mysql_server.connect()

    def noted(*, answer_seconds: float = 1.0) -> Session:
        opened.append(connect(answer_seconds=answer_seconds))
        return opened[-1]

    looking = ServerCounters(noted)
    looking.look()
    looking.look()
    (first,) = opened
    with mysql_server.session() as session:
        session.kill(first.connection_id)
    with pytest.raises(ServerError):
        looking.look()
    assert looking.look().logged > 0
    looking.close()
    assert len(opened) == 2
