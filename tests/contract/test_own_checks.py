"""A job's own checks on a server that was started on a restored copy: what it answers, and what it may not do."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.config import DrillCheckConfig
from backupd.mysql.own_checks import own_checks
from backupd.mysql.scratch import RunningServer
from backupd.vocabulary.errors import ServerError, Undecided
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_scratch import Image, process_of, taken

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

TAKEN = datetime(2026, 11, 20, 3, tzinfo=UTC)


def spare(folder: Path) -> Path:
    """Where a copy of that image's files lies which no server has touched."""
    return folder.with_name(f"{folder.name}-spare")


@pytest.fixture(scope="module")
def image(mysql_server: MariadbServer, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A worker that is given other modules' tests in between makes a second one, of the same server."""
    folder = tmp_path_factory.mktemp("image")
    with mysql_server.session() as session:
        session.execute(
            "CREATE OR REPLACE TABLE t.seen (at TIMESTAMP(3) NOT NULL, local DATETIME NOT NULL) ENGINE=InnoDB"
        )
        session.execute("SET SESSION time_zone = '+05:00'")
        session.execute("INSERT INTO t.seen VALUES ('2026-11-20 07:30:00.250', '2026-11-20 02:30:00')")
        session.execute("CREATE OR REPLACE PROCEDURE t.two() BEGIN SELECT 7; SELECT 8; END")
        image = taken(mysql_server, folder)
    shutil.copytree(image.datadir, spare(folder))
    return image


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[RunningServer]:
    with image.scratch().running() as server:
        yield server


@pytest.fixture
def another(image: Image, tmp_path: Path) -> Image:
    """Of which a test may end the server. Files of the shared one are of the same image, which it is at work on."""
    shutil.copytree(spare(image.folder), tmp_path / "data")
    return replace(image, folder=tmp_path)


def asked(server: RunningServer, sql: str, **how: object) -> Check:
    if not how.keys() & {"equals", "at_least", "at_most", "newer_than_seconds"}:
        how["equals"] = "7"
    check = DrillCheckConfig(name="one", sql=sql, **how)  # type: ignore[arg-type]
    (result,) = own_checks(server, [check], flavour=Flavour.MARIADB, taken_at=TAKEN)
    return result


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 7",
        "SELECT 7;",
        "\n  SELECT 7 -- why\n",
        "SELECT '7' /* ; */",
        "SELECT 7 FROM t.innodb LIMIT 1",
        "SELECT COUNT(*) + 7 FROM t.innodb WHERE v LIKE '%s%%'",
        "CALL t.two()",
        "WITH a AS (SELECT 7 AS v) SELECT v FROM a",
    ],
)
def test_one_value_is_compared(shared: RunningServer, sql: str) -> None:
    result = asked(shared, sql)
    assert (result.ok, result.found) == (True, "7")
    assert result.asked == sql.strip()


def test_times_are_in_utc(shared: RunningServer) -> None:
    for column in ("at", "local"):
        result = asked(shared, f"SELECT MAX({column}) FROM t.seen", newer_than_seconds=3600.0)
        assert (result.ok, result.found) == (True, "2026-11-20 02:30:00 UTC")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT v FROM t.innodb WHERE id = 0", "no row"),
        ("SELECT MAX(v) FROM t.innodb WHERE id = 0", "NULL"),
        ("SELECT id FROM t.innodb", "more than one row"),
        ("SELECT REPEAT('x', 100000) FROM t.seq_1_to_1000000", "more than one row"),
        ("SELECT 7, 8", "2 columns instead of one"),
        ("SELECT count(*) FROM shop.orders", "an error: Table 'shop.orders' doesn't exist"),
        ("SELEKT 7", "an error: You have an error in your SQL syntax"),
        ("SELECT 7; SELECT 7", "an error: You have an error in your SQL syntax"),
        ("SELECT 8; DROP TABLE t.innodb", "an error: You have an error in your SQL syntax"),
        ("-- nothing", "no row"),
        ("DELETE FROM t.innodb", "an error: Cannot execute statement in a READ ONLY transaction"),
        ("INSERT INTO t.myisam (v) VALUES ('x')", "an error: Cannot execute statement in a READ ONLY transaction"),
        ("DO 1", "no row"),
        ("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t.innodb", "an error: "),
    ],
)
def test_anything_but_one_value_is_a_failed_check_and_the_next_is_asked(
    shared: RunningServer, sql: str, found: str
) -> None:
    checks = [DrillCheckConfig(name=name, sql=each, equals="7") for name, each in (("bad", sql), ("good", "SELECT 7"))]
    bad, good = own_checks(shared, checks, flavour=Flavour.MARIADB, taken_at=TAKEN)
    assert (bad.ok, good.ok) == (False, True)
    assert bad.found.startswith(found)
    assert shared.session.value("SELECT COUNT(*) FROM t.innodb") == "2"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SLEEP(60)",
        "SELECT COUNT(*) FROM t.seq_1_to_1000000 a, t.seq_1_to_1000000 b",
        "SELECT * FROM (SELECT SLEEP(60)) AS later",
    ],
)
def test_a_statement_that_takes_too_long_is_ended_by_the_server(shared: RunningServer, sql: str) -> None:
    began = time.monotonic()
    result = asked(shared, sql, timeout_seconds=0.5)
    assert (result.ok, result.found) == (False, "no answer within 500ms")
    assert time.monotonic() - began < 4  # before the watchdog


def test_a_value_that_comes_too_late_counts_for_nothing(shared: RunningServer) -> None:
    """BENCHMARK() that is cut short returns 0 on both servers, and MySQL's SLEEP() returns 1."""
    result = asked(shared, "SELECT BENCHMARK(4000000000, SHA2(RAND(), 512))", equals="0", timeout_seconds=0.5)
    assert (result.ok, result.found) == (False, "no answer within 500ms")


def test_a_statement_that_the_server_does_not_end_is_killed(
    shared: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.own_checks.limit_statements", lambda *_: None)
    monkeypatch.setattr("backupd.mysql.own_checks._GRACE_SECONDS", 0.5)
    for sql in ("SELECT SLEEP(60)", "SELECT id, SLEEP(60) FROM t.innodb"):
        result = asked(shared, sql, timeout_seconds=0.5)
        assert (result.ok, result.found) == (False, "no answer within 500ms")
    deadline = time.monotonic() + 20
    while shared.session.value("SELECT COUNT(*) FROM information_schema.PROCESSLIST") != "1":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_check_that_ends_the_server_is_no_failed_check(another: Image) -> None:
    checks = [
        DrillCheckConfig(name=name, sql=sql, equals="7") for name, sql in (("end", "SHUTDOWN"), ("ask", "SELECT 7"))
    ]
    with pytest.raises(ServerError), another.scratch().running() as server:
        tuple(own_checks(server, checks, flavour=Flavour.MARIADB, taken_at=TAKEN))


def test_a_server_that_is_killed_for_its_memory_decides_nothing(another: Image) -> None:
    with pytest.raises(Undecided, match=r"was killed \(out of memory\?\)"), another.scratch().running() as server:
        os.kill(process_of(server), signal.SIGKILL)
        asked(server, "SELECT 7")
