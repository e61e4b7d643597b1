"""A person's SQL on a server on a restored copy: what runs to its end, what fails, and what it can reach."""

import os
import shutil
import time
from pathlib import Path

import pytest

from backupd.mysql.scratch import RunningServer
from backupd.mysql.scrubbing import Scrub, scrub
from backupd.mysql.sql_file import SqlFile, read_sql_file
from backupd.vocabulary.errors import BackupdError, ScrubFailed
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import MariadbServer, mysql_server, wait_until
from tests.contract.test_own_checks import another, shared, spare
from tests.contract.test_scratch import Image, taken

pytestmark = pytest.mark.thorough

__all__ = ["another", "mysql_server", "shared"]

MARKER = "alice@example.org"


@pytest.fixture(scope="module")
def image(mysql_server: MariadbServer, tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    with mysql_server.session() as session:
        session.execute("CREATE OR REPLACE TABLE t.people (id INT PRIMARY KEY, email VARCHAR(99) UNIQUE) ENGINE=InnoDB")
        session.execute(f"INSERT INTO t.people VALUES (1, '{MARKER}'), (2, 'bob@example.org')")
        image = taken(mysql_server, folder)
    shutil.copytree(image.datadir, spare(folder))
    return image


def sql(folder: Path, text: str, name: str = "scrub.sql") -> SqlFile:
    (folder / name).write_text(text)
    return read_sql_file(folder / name)


def scrubbed(server: RunningServer, *files: SqlFile, within_seconds: float = 60) -> Scrub:
    return scrub(server, files, flavour=Flavour.MARIADB, within_seconds=within_seconds)


def refused(server: RunningServer, file: SqlFile, *, within_seconds: float = 60) -> ScrubFailed:
    with pytest.raises(ScrubFailed) as raised:
        scrubbed(server, file, within_seconds=within_seconds)
    return raised.value


def test_each_statement_runs_and_is_counted(another: Image, tmp_path: Path) -> None:
    first = sql(
        tmp_path,
        """-- procedures need another delimiter
        DELIMITER //
        CREATE PROCEDURE t.wash() BEGIN
            SELECT COUNT(*) FROM t.people;  -- an answer on the way
            UPDATE t.people SET email = CONCAT('user', id, '; x@example.org');
        END//
        DELIMITER ;
        CALL t.wash();
        DROP PROCEDURE t.wash; # done
        SET autocommit = 0; DELETE FROM t.people WHERE id = 2
        """,
        "first.sql",
    )
    second = sql(tmp_path, "/*!40101 INSERT INTO t.people VALUES (3, 'new') */;\nSELECT * FROM t.seq_1_to_100000", "2")
    with another.scratch().running() as server:
        done = scrubbed(server, first, second)
    assert [(each.statements, each.rows_affected) for each in done.files] == [(5, 3), (2, 1)]
    assert [each.sha256 for each in done.files] == [first.sha256, second.sha256]
    assert done.server_version.startswith("10.11.")
    with another.scratch().running() as server:
        rows = server.session.query("SELECT id, email FROM t.people ORDER BY id")
        assert [(row["id"], row["email"]) for row in rows] == [("1", "user1; x@example.org"), ("3", "new")]
        assert server.session.value("SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA='t'") == "0"


@pytest.mark.parametrize(
    ("text", "which", "number", "words"),
    [
        (
            "SELECT 1;\n\nUPDATE t.gone SET a = 1;\nSELECT 2",
            "statement 2 of {} (line 3)",
            1146,
            "'t.gone' doesn't exist",
        ),
        ("SELEKT 1", "statement 1 of {} (line 1)", 1064, "SELEKT"),
        ("UPDATE t.people SET email = 'same'", "statement 1 of {} (line 1)", 1062, "Duplicate entry 'same'"),
        (
            "SELECT 1 FROM t.people; SELECT * FROM t.people WHERE id = (SELECT id FROM t.people)",
            "statement 2",
            1242,
            "",
        ),
        ("KILL CONNECTION_ID()", "the server or its session ended during statement 1 of {} (line 1)", 0, "a KILL?"),
        ("CALL sys.nothing()", "statement 1", 0, ""),
    ],
)
def test_the_first_statement_that_fails_ends_it_and_is_named(
    shared: RunningServer, tmp_path: Path, text: str, which: str, number: int, words: str
) -> None:
    file = sql(tmp_path, text)
    error = refused(shared, file)
    assert error.message.startswith(which.format(file.name))
    assert not number or error.message.endswith(f"failed with the server's error {number}")
    assert words in error.hint
    assert "nothing was handed over" in error.hint


def test_no_value_of_a_row_is_in_the_sentence_that_is_recorded(shared: RunningServer, tmp_path: Path) -> None:
    error = refused(shared, sql(tmp_path, "INSERT INTO t.people SELECT 9, email FROM t.people"))
    assert MARKER in error.hint
    assert MARKER not in error.message


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SLEEP(600)",
        "SELECT BENCHMARK(4000000000, SHA2(RAND(), 512))",
        "SELECT COUNT(*) FROM t.seq_1_to_1000000 a, t.seq_1_to_1000000 b",
        "DELIMITER $\nBEGIN NOT ATOMIC LOOP SET @a = 1; END LOOP; END$",
        "SELECT 1; " * 100_000,
    ],
    ids=["sleep", "benchmark", "join", "loop", "many"],
)
def test_what_runs_for_ever_is_ended(shared: RunningServer, tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    error = refused(shared, sql(tmp_path, text), within_seconds=0.5)
    assert time.monotonic() - began < 60
    assert error.message.startswith("the scrub did not end within 500ms: statement ")
    wait_until(lambda: shared.session.value("SELECT COUNT(*) FROM information_schema.PROCESSLIST") == "1")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("LOAD DATA INFILE '{outside}/host' INTO TABLE t.people (email)", 1290),
        ("LOAD DATA LOCAL INFILE '{outside}/host' INTO TABLE t.people (email)", 4166),
        ("SELECT 1 INTO OUTFILE '{outside}/made'", 1290),
        ("SELECT 1 INTO DUMPFILE '{outside}/made'", 1290),
        ("CREATE TABLE t.there (a INT) ENGINE=MyISAM DATA DIRECTORY = '{outside}'", 1),
        ("SET GLOBAL general_log_file = '{outside}/made', GLOBAL general_log = ON", 1231),
        ("INSTALL SONAME '../{outside}/host'", 1124),
        ("CREATE FUNCTION f RETURNS INT SONAME 'host.so'", 1123),
        ("\\! touch {outside}/made", 1064),
        ("system touch {outside}/made", 1064),
        ("source {outside}/host", 1064),
        ("\\. {outside}/host", 1064),
        ("tee {outside}/made", 1064),
        ("\\T {outside}/made", 1064),
        ("pager cat > {outside}/made", 1064),
        ("edit", 1064),
        ("SELECT 1\\! touch {outside}/made", 1064),
    ],
)
def test_nothing_on_the_host_is_touched(shared: RunningServer, tmp_path: Path, text: str, number: int) -> None:
    """By the server, or by a command that the client program would obey: none is here."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (outside / "host").write_text("DROP TABLE t.people;\n")
    error = refused(shared, sql(tmp_path, text.format(outside=outside)))
    assert error.message.endswith(f"error {number}")
    assert [path.name for path in outside.iterdir()] == ["host"]
    assert shared.session.value("SELECT COUNT(*) FROM t.people") == "2"


def test_no_file_of_the_host_is_read(shared: RunningServer) -> None:
    assert os.path.exists("/etc/passwd")  # noqa: PTH110
    assert shared.session.value("SELECT LOAD_FILE('/etc/passwd')") is None


def test_no_statement_waits_for_what_recovery_rolls_back(mysql_server: MariadbServer, tmp_path: Path) -> None:
    """In the background, for as long as the transaction had run; a statement waits for a lock 50 seconds at most."""
    with mysql_server.session() as root, mysql_server.session() as batch:
        root.execute("CREATE TABLE t.batch (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB")
        batch.execute("BEGIN")
        batch.execute(f"INSERT INTO t.batch SELECT seq, '{MARKER}' FROM t.seq_1_to_100000")
        image = taken(mysql_server, tmp_path / "image")
        batch.execute("ROLLBACK")
        root.execute("DROP TABLE t.batch")
    with image.scratch().running() as server:
        scrubbed(server, sql(tmp_path, "SET SESSION innodb_lock_wait_timeout = 0; UPDATE t.batch SET v = 'x'"))


def test_a_transaction_that_is_prepared_is_refused(another: Image, tmp_path: Path) -> None:
    """As it is where the backup has one, whose rows no statement saw."""
    with another.scratch().running() as server:
        with server.another_session(answer_seconds=10) as client:
            for statement in (
                "XA START 'x'",
                "INSERT INTO t.people VALUES (8, 'carol')",
                "XA END 'x'",
                "XA PREPARE 'x'",
            ):
                client.execute(statement)
        error = refused(server, sql(tmp_path, "DO 1"))
        assert error.message == "the copy has prepared transactions, whose rows were not scrubbed: 1"
        scrubbed(server, sql(tmp_path, "XA ROLLBACK 'x'"))


@pytest.mark.parametrize("text", ["SHUTDOWN", "SHUTDOWN; UPDATE t.people SET email = id", "KILL 3; SELECT SLEEP(0.2)"])
def test_a_file_that_ends_the_server_or_our_session_is_no_scrub(another: Image, tmp_path: Path, text: str) -> None:
    with pytest.raises(BackupdError) as raised, another.scratch().running() as server:
        text = text.replace("KILL 3", f"KILL {server.session.connection_id}")
        scrubbed(server, sql(tmp_path, text))
    assert "SHUTDOWN or a KILL" in raised.value.hint
