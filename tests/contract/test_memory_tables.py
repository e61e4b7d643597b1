"""A MEMORY table is empty in every copy of a server: what the log does to its rows stands in no moment's way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.mysql.binlog.source import binlog_source
from backupd.vocabulary.errors import ExitStatus
from tests.archive_site import Rows, Site, rows_of, started_on
from tests.contract.mariadb import mariadb, wait_until

pytestmark = pytest.mark.thorough


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Its server has rows in a MEMORY table at the backup."""
    with mariadb("--binlog-format=ROW") as server:
        with server.session() as root:
            root.execute("CREATE TABLE t.fleeting (id INT PRIMARY KEY, v INT) ENGINE=MEMORY")
            root.execute("INSERT INTO t.fleeting VALUES (1, 1), (2, 2)")
        site = Site(tmp_path, server)
        site.back_up()
        yield site


def written(site: Site, *statements: str) -> Rows:
    """What the server has after these, all of which are archived."""
    with site.archiving():
        with site.server.session() as root:
            for statement in statements:
                root.execute(statement)
            executed, rows = binlog_source(root).gtid, rows_of(root)
        wait_until(lambda: site.stored(executed))
    return rows


def test_a_moment_is_reached_though_rows_are_changed_that_no_copy_has(site: Site, tmp_path: Path) -> None:
    rows = written(
        site,
        "UPDATE t.fleeting SET v = 5 WHERE id = 1",
        "DELETE FROM t.fleeting WHERE id = 2",
        "INSERT INTO t.fleeting VALUES (3, 3)",
        "UPDATE t.fleeting, t.innodb SET t.fleeting.v = 7, t.innodb.v = 'both'",
        "INSERT INTO t.innodb (v) VALUES ('behind them')",
    )
    done = site.run("restore", "--to", str(tmp_path / "to"), "--to-latest")
    assert "t.fleeting (MEMORY) stays empty" in done.stderr
    with started_on(tmp_path / "to") as restored, restored.session() as root:
        assert {**rows_of(root), "fleeting": None} == {**rows, "fleeting": None}
        assert root.value("SELECT COUNT(*) FROM t.fleeting") == "0"
    assert "proven" in site.run("drill", "--to-latest").stdout


@pytest.mark.parametrize(
    "other",
    [
        "CREATE TRIGGER t.trg BEFORE INSERT ON t.fleeting FOR EACH ROW SET NEW.v = 1",
        "ALTER TABLE t.fleeting ADD COLUMN w INT",
    ],
)
def test_where_rows_and_definitions_cannot_be_told_apart_the_reason_is_told(
    site: Site, tmp_path: Path, other: str
) -> None:
    written(site, other, "UPDATE t.fleeting SET v = 5 WHERE id = 1")
    done = site.run("restore", "--to", str(tmp_path / "to"), "--to-latest", expect=ExitStatus.VERIFICATION)
    assert "changes rows of t.fleeting that no copy has" in done.stderr
    assert "ENGINE = InnoDB" in done.stderr
