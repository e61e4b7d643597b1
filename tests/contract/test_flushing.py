"""A real server writes its dirty pages when it is told to, and has its settings back afterwards."""

import logging
from collections.abc import Iterator, Mapping

import pytest

from backupd.mysql.flushing import LOW_WATER_MARK, MAX_DIRTY, PageFlusher
from backupd.mysql.grants import grant_script
from backupd.mysql.server import MysqlServer
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import PreflushEnd
from tests.contract.mariadb import MariadbServer, mysql_server, wait_until

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

USUAL = {MAX_DIRTY: 80.5, LOW_WATER_MARK: 70.0}
DIRTY = 300  # pages, at least


def settings(server: MariadbServer) -> dict[str, float]:
    with server.session() as root:
        return {name: float(root.value(f"SELECT @@global.{name}") or "nan") for name in USUAL}


def put(server: MariadbServer, values: Mapping[str, float]) -> None:
    with server.session() as root:
        for name, value in values.items():
            root.execute(f"SET GLOBAL {name} = %s", value)


@pytest.fixture(scope="module")
def _redo_log(mysql_server: MariadbServer) -> Iterator[None]:
    """Long enough for all of `make_dirty`: with one of 16 MiB it is full then, and the server writes to make room."""
    put(mysql_server, {"innodb_log_file_size": 96 << 20})
    yield
    put(mysql_server, {"innodb_log_file_size": 16 << 20})


@pytest.fixture
def flusher(mysql_server: MariadbServer, _redo_log: None) -> Iterator[PageFlusher]:
    """Of the documented account, on a server with settings of its own that are not the usual ones."""
    put(mysql_server, {"innodb_io_capacity_max": 20000, "innodb_io_capacity": 10000, **USUAL})
    yield PageFlusher(mysql_server.account("flushing", grant_script("flushing", preflush=True)), wait_seconds=30)
    put(mysql_server, {"innodb_io_capacity": 200, "innodb_io_capacity_max": 2000, MAX_DIRTY: 90.0, LOW_WATER_MARK: 0.0})
    with mysql_server.session() as root:
        root.execute("SET GLOBAL innodb_adaptive_flushing_lwm = 10")
        root.execute("DROP TABLE IF EXISTS t.big")


def make_dirty(server: MariadbServer) -> None:
    """More pages than `DIRTY`, which stay so: MariaDB 10.11 writes of its own accord when it is idle above a low water
    mark, or when the pages hold much of the redo log (`buf_flush_page_cleaner`, `af_needed_for_redo`)."""
    with server.session() as root:

        def is_dirty() -> bool:
            root.execute("CREATE OR REPLACE TABLE t.big (id INT PRIMARY KEY, v CHAR(200)) ENGINE = InnoDB")
            root.execute("INSERT INTO t.big SELECT seq, REPEAT('x', 200) FROM t.seq_1_to_50000")
            return int(root.status("Innodb_buffer_pool_pages_dirty") or 0) > 2 * DIRTY

        root.execute(f"SET GLOBAL {LOW_WATER_MARK} = 0")
        root.execute("SET GLOBAL innodb_adaptive_flushing_lwm = 70")
        wait_until(is_dirty)


def test_what_was_dirty_is_written_and_the_settings_are_what_they_were(
    mysql_server: MariadbServer, flusher: PageFlusher
) -> None:
    make_dirty(mysql_server)
    before = settings(mysql_server)
    saved = flusher.settings()
    done = flusher.flush()
    assert settings(mysql_server) == dict.fromkeys(USUAL, 0.0)
    assert done.pages_before > DIRTY
    assert done.pages_after <= 100
    assert done.ended is PreflushEnd.FEW
    flusher.put_back(saved)
    assert settings(mysql_server) == before
    flusher.put_back(saved)  # as `recover` may
    assert settings(mysql_server) == before


def test_it_waits_no_longer_than_it_may(mysql_server: MariadbServer, flusher: PageFlusher) -> None:
    make_dirty(mysql_server)
    before = settings(mysql_server)
    saved = flusher.settings()
    done = PageFlusher(mysql_server.connect(), wait_seconds=0).flush()
    assert done.ended is PreflushEnd.LIMIT
    flusher.put_back(saved)
    assert settings(mysql_server) == before


def test_what_somebody_has_set_meanwhile_is_left_and_told(
    mysql_server: MariadbServer, flusher: PageFlusher, caplog: pytest.LogCaptureFixture
) -> None:
    saved = flusher.settings()
    flusher.flush()
    put(mysql_server, {MAX_DIRTY: 75.0})
    with caplog.at_level(logging.WARNING):
        flusher.put_back(saved)
    assert settings(mysql_server) == {**USUAL, MAX_DIRTY: 75.0}
    assert "was changed to 75 by somebody else" in caplog.text


def test_a_read_only_server_does_it_too(mysql_server: MariadbServer, flusher: PageFlusher) -> None:
    with mysql_server.session() as root:
        root.execute("SET GLOBAL read_only = 1")
    try:
        saved = flusher.settings()
        flusher.flush()
        flusher.put_back(saved)
    finally:
        with mysql_server.session() as root:
            root.execute("SET GLOBAL read_only = 0")
    assert settings(mysql_server) == USUAL


def test_it_takes_one_privilege_more_and_without_it_nothing_is_changed(
    mysql_server: MariadbServer, flusher: PageFlusher
) -> None:
    account = mysql_server.account("modest", grant_script("modest"))
    assert MysqlServer(account).missing_grants("ftwrl") == ()
    assert MysqlServer(account).missing_grants("ftwrl", preflush=True) == ("SUPER",)
    with pytest.raises(ServerError, match="the server refused: SET GLOBAL innodb_max_dirty_pages_pct"):
        PageFlusher(account, wait_seconds=30).flush()
    more = mysql_server.account("more", grant_script("more", preflush=True))
    assert MysqlServer(more).missing_grants("ftwrl", preflush=True) == ()
    assert settings(mysql_server) == USUAL
