"""What the containers themselves promise, so that a test on them can be believed."""

import shutil
import signal
from pathlib import Path

import pytest

from backupd.mysql.binlog.event_statements import EventStatus
from backupd.mysql.histograms import drop_histograms
from backupd.mysql.scheduled_events import event_statuses, leave_to_the_source
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import StatementError
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.docker.containers import Pair, ServerContainer

SERIES = {"mariadb-10.11": "10.11.", "mariadb-11": "11.", "mysql-9": "9."}


def test_the_server_is_of_the_kind_that_its_name_says(server: ServerContainer) -> None:
    with server.session() as session:
        version = session.value("SELECT VERSION()") or ""
    assert version.startswith(SERIES[server.kind])
    assert ("MariaDB" in version) is (server.flavour is Flavour.MARIADB)


def test_what_the_server_says_about_its_files_is_true_on_the_host(server: ServerContainer) -> None:
    facts = MysqlServer(server.connect()).facts()
    assert Path(facts.datadir) == server.datadir
    assert (server.datadir / "ibdata1").is_file()
    assert [path for path in MysqlServer(server.connect()).data_paths(facts) if not Path(path.path).exists()] == []


def test_an_account_has_its_grants_and_no_other(server: ServerContainer) -> None:
    with server.account("reader", "GRANT SELECT ON t.* TO 'reader'@'localhost'")() as session:
        assert session.value("SELECT COUNT(*) FROM t.innodb") is not None
        with pytest.raises(StatementError):
            session.execute("INSERT INTO t.innodb (v) VALUES ('not mine to write')")
    with server.account("reader")() as session, pytest.raises(StatementError):
        session.query("SELECT COUNT(*) FROM t.innodb")


def test_no_histogram_of_mysql_s_is_left_of_which_anybody_could_read_values(server: ServerContainer) -> None:
    if server.flavour is Flavour.MARIADB:
        return
    with server.session() as session:
        session.execute("CREATE TABLE t.`odd``na%me` (id INT PRIMARY KEY, `e``mail` VARCHAR(99))")
        session.execute("INSERT INTO t.`odd``na%me` VALUES (1, 'alice@example.org')")
        session.query("ANALYZE TABLE t.`odd``na%me` UPDATE HISTOGRAM ON `e``mail`")
        session.execute("UPDATE t.`odd``na%me` SET `e``mail` = 'x'")
        values = "SELECT COUNT(*) FROM information_schema.COLUMN_STATISTICS WHERE HISTOGRAM LIKE '%string%'"
        assert session.value(values) == "1"
        assert drop_histograms(session) == 0
        assert session.value(values) == "0"
        session.execute("DROP TABLE t.`odd``na%me`")


def test_a_server_that_becomes_a_replica_leaves_its_events_to_its_source(server: ServerContainer) -> None:
    with server.session() as session:
        modes = session.value("SELECT @@SESSION.sql_mode") or ""
        session.execute("SET SESSION sql_mode = 'ANSI_QUOTES,NO_ZERO_DATE'")  # in which its words are read
        session.execute("CREATE EVENT t.`purge it` ON SCHEDULE EVERY 1 DAY DO DELETE FROM t.innodb WHERE \"v\" = 'old'")
        session.execute("SET SESSION sql_mode = %s", modes)
        told = "SELECT CONCAT(definer, ' ', sql_mode) FROM information_schema.EVENTS WHERE event_name = 'purge it'"
        before = session.value(told)
        assert before is not None
        assert before.endswith("ANSI_QUOTES,NO_ZERO_DATE")
        leave_to_the_source(session, called="SLAVE" if server.flavour is Flavour.MARIADB else "REPLICA")
        [status] = event_statuses(session).values()
        assert status is EventStatus.ELSEWHERE
        assert session.value(told) == before
        session.execute("DROP EVENT t.`purge it`")


def test_a_killed_server_is_away_and_comes_back_with_what_was_committed(server: ServerContainer) -> None:
    with server.session() as session:
        session.execute("INSERT INTO t.innodb (v) VALUES ('before the kill')")
    server.stop(signal.SIGKILL)
    with pytest.raises(ServerError):
        server.session()
    server.start()
    with server.session() as session:
        assert session.value("SELECT COUNT(*) FROM t.innodb WHERE v = 'before the kill'") == "1"


def test_a_frozen_server_answers_nobody_and_its_copy_is_like_the_original(
    server: ServerContainer, tmp_path: Path
) -> None:
    with server.frozen():
        with pytest.raises(ServerError):
            server.connect()(answer_seconds=0.5)
        shutil.copytree(server.datadir, tmp_path / "first")
        shutil.copytree(server.datadir, tmp_path / "second")
    names = [path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file()]
    assert names
    assert [n for n in names if (tmp_path / "first" / n).read_bytes() != (tmp_path / "second" / n).read_bytes()] == []
    with server.session() as session:
        assert session.value("SELECT 1") == "1"


def test_what_is_written_on_the_source_is_read_on_the_replica(pair: Pair) -> None:
    with pair.source.session() as session:
        session.execute("INSERT INTO t.innodb (v) VALUES ('for the replica')")
    pair.caught_up()
    with pair.replica.session() as session:
        assert session.value("SELECT COUNT(*) FROM t.innodb WHERE v = 'for the replica'") == "1"


def test_nobody_but_replication_writes_on_the_replica(pair: Pair) -> None:
    grants = "GRANT SELECT, INSERT ON t.* TO 'writer'@'localhost'"
    with pair.replica.account("writer", grants)() as session, pytest.raises(StatementError, match=r"read.only"):
        session.execute("INSERT INTO t.innodb (v) VALUES ('astray')")


def test_an_account_on_the_replica_does_not_keep_it_from_following(pair: Pair) -> None:
    pair.replica.account("bystander")
    pair.replica.restart()
    with pair.source.session() as session:
        session.execute("INSERT INTO t.myisam (v) VALUES ('after the account')")
    pair.caught_up()
    with pair.replica.session() as session:
        assert session.value("SELECT COUNT(*) FROM t.myisam WHERE v = 'after the account'") == "1"
