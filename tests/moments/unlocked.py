"""From a backup without a lock, an image as of a power cut in the middle of transactions, to a moment behind it.

What the image's files hold already may not be applied again: each transaction counts, so that one that is done twice or
not at all is another number.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from backupd.mysql.binlog.applying import executed_gtids
from backupd.mysql.binlog.source import BinlogSource, binlog_source
from backupd.mysql.session import Session
from backupd.policy import gtid
from tests.archive_site import Site, rows_of
from tests.contract.mariadb import MariadbServer, wait_until
from tests.hostile.backups import RUN

_WRITERS = 3
_AT_LEAST = 20  # transactions before the image is taken, while it is, and behind it


def is_reached(
    site: Site,
    started_on: Callable[[Path], AbstractContextManager[MariadbServer]],
    last_of: Callable[[BinlogSource], str],
    to: Path,
) -> None:
    """It is refused until a drill has found where the server stood, and then it is exactly that moment."""
    with site.server.session() as root:
        root.execute("CREATE TABLE t.counted (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB")
        root.execute("CREATE TABLE t.log (id INT PRIMARY KEY AUTO_INCREMENT, writer INT) ENGINE = InnoDB")
        root.execute("INSERT INTO t.counted VALUES (0, 0), (1, 0), (2, 0)")
    with site.archiving():
        with writing(site.server):
            _more(site.server)
            site.back_up(locked=False)
            _more(site.server)
        with site.server.session() as root:
            rows, before = rows_of(root), binlog_source(root)
            root.execute("DROP TABLE t.log")
            dropped = binlog_source(root)
        wait_until(lambda: site.stored(dropped.gtid))
    moment = ("--before-gtid", last_of(dropped))
    refused = site.run("restore", "--to", str(to), *moment, expect=2)
    assert "a backup that was taken without a lock gets its place by `backupd drill RUN`" in refused.stderr
    site.run("drill", RUN)
    site.run("restore", "--to", str(to), *moment)
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == rows
        assert gtid.same(executed_gtids(root), before.gtid)


def _more(server: MariadbServer) -> None:
    """The writers have gone on for some transactions."""
    with server.session() as root:
        before = _written(root)
        wait_until(lambda: _written(root) >= before + _AT_LEAST)


def _written(session: Session) -> int:
    return int(session.value("SELECT COUNT(*) FROM t.log") or 0)


@contextmanager
def writing(server: MariadbServer) -> Iterator[None]:
    """Clients that each commit one row and one count after the other, for the length of the block."""
    ended = threading.Event()

    def write(writer: int) -> None:
        with server.session() as session:
            while not ended.is_set():
                session.execute("BEGIN")
                session.execute(f"INSERT INTO t.log (writer) VALUES ({writer})")
                session.execute(f"UPDATE t.counted SET n = n + 1 WHERE id = {writer}")
                session.execute("COMMIT")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
