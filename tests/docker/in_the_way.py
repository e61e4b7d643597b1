"""What somebody else may be in the middle of, for the length of a block, when a lock is asked for."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from backupd.mysql.session import StatementError
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import wait_until
from tests.docker.containers import ServerContainer

LONG_MILLISECONDS = 200  # what has run for less may end at any moment, and is not waited out
AGE = {
    Flavour.MARIADB: "SELECT TIME_MS FROM information_schema.PROCESSLIST WHERE ID = %s AND COMMAND = 'Query'",
    Flavour.MYSQL: "SELECT TIMER_WAIT / 1e9 FROM performance_schema.events_statements_current JOIN"
    " performance_schema.threads USING (THREAD_ID) WHERE PROCESSLIST_ID = %s AND PROCESSLIST_COMMAND = 'Query'",
}
ALTER = "ALTER TABLE t.innodb ADD COLUMN n INT, ALGORITHM = COPY"


@contextmanager
def busy(server: ServerContainer, statement: str) -> Iterator[int]:
    """Somebody else is in the middle of this statement, and has been for a while, for the length of the block.

    The block is told the session's id. After it the session is gone, and what it held.
    """
    other = server.session()

    def run() -> None:
        with contextlib.suppress(StatementError):  # it is killed at the end
            other.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with server.session() as root:
            wait_until(lambda: float(root.value(AGE[server.flavour], other.connection_id) or 0) > LONG_MILLISECONDS)
            yield other.connection_id
    finally:
        with server.session() as root:
            root.kill(other.connection_id)
            thread.join()
            gone = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s"
            wait_until(lambda: root.value(gone, other.connection_id) == "0")
        other.close()


def long_read(server: ServerContainer) -> AbstractContextManager[object]:
    return busy(server, "SELECT SLEEP(50) FROM t.innodb")


def long_write(server: ServerContainer) -> AbstractContextManager[object]:
    return busy(server, "UPDATE t.myisam SET v = SLEEP(50) WHERE id = 1")


@contextmanager
def unfinished_alter(server: ServerContainer) -> Iterator[None]:
    """It waits for its last step, because a reader has not ended its transaction."""
    with server.session() as reader:
        reader.execute("START TRANSACTION")
        reader.query("SELECT * FROM t.innodb LIMIT 1")
        with busy(server, ALTER):
            yield


@contextmanager
def locked_table(server: ServerContainer) -> Iterator[None]:
    """Nobody runs anything: its owner does nothing."""
    with server.session() as other:
        other.execute("LOCK TABLES t.myisam WRITE")
        yield
