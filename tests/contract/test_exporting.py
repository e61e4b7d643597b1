"""A partial copy of a running server is recovered, and its tables can be imported by another server."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.mysql import recovery
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.session import Session
from backupd.mysql.table_attachments import triggers_of
from backupd.mysql.table_sequences import sequence_of
from backupd.mysql.table_shape import shape_of
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.table_export import Exported, export
from backupd.vocabulary.errors import ServerError, UsageError, VerificationError
from tests.contract.mariadb import PASSWORD, MariadbServer, mysql_server
from tests.contract.test_loading import AWKWARD, CHILD, FLEETING, PARTED, before, definition
from tests.contract.test_scratch import Image, keep_only, load, taken
from tests.docs.places import PAGES

pytestmark = pytest.mark.thorough

__all__ = ["before", "mysql_server"]

INNODB, MYISAM = Table("t", "innodb"), Table("t", "myisam")


@pytest.fixture
def partial(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """An image in which only two tables are left, though the redo log speaks of others too."""
    with mysql_server.session() as session, load(mysql_server):
        session.execute("DROP DATABASE IF EXISTS other")
        session.execute("CREATE DATABASE other")
        session.execute("CREATE TABLE other.gone (id INT PRIMARY KEY) ENGINE=InnoDB")
        session.execute("INSERT INTO other.gone SELECT seq FROM other.seq_1_to_5000")
        image = taken(mysql_server, tmp_path)
    keep_only([INNODB, MYISAM], image)
    assert not [*(image.datadir / "other").iterdir()]
    return image


def test_without_its_other_tables_it_starts_only_as_a_partial_copy(partial: Image) -> None:
    """Nor without the folder in which recovery would make them anew."""
    (partial.datadir / "other").rmdir()
    with pytest.raises(ServerError, match="did not start"), partial.scratch().running():
        pass
    with ScratchServer(partial.folder, partial.manifest, start_seconds=50, partial=True).running() as server:
        assert int(server.session.value("SELECT COUNT(*) FROM t.innodb") or 0) > 0


def test_an_exported_table_can_be_imported(partial: Image, mysql_server: MariadbServer) -> None:
    innodb, myisam = export(partial.folder, partial.manifest, [INNODB, MYISAM])
    assert {path.suffix for path in innodb.files} >= {".ibd", ".cfg"}
    assert {path.suffix for path in myisam.files} >= {".MYD", ".MYI"}
    assert innodb.statements == partial.folder / "tables" / "t" / "innodb.sql"
    fresh = schema_of(innodb)
    imported(innodb, mysql_server)
    with mysql_server.session() as session:
        assert [row["Msg_text"] for row in session.query(f"CHECK TABLE {fresh}.innodb")] == ["OK"]
        assert int(session.value(f"SELECT COUNT(*) FROM {fresh}.innodb") or 0) > 0
        source(mysql_server, innodb.statements.read_text(), "--force")  # all of it once more
        assert int(session.value(f"SELECT COUNT(*) FROM {fresh}.innodb") or 0) > 0
        session.execute(f"DROP DATABASE {fresh}")


@pytest.mark.parametrize("options", [[], ["--force"]], ids=["stops", "goes on"])
def test_statements_refuse_where_their_table_exists_whatever_it_holds(
    partial: Image, mysql_server: MariadbServer, options: list[str]
) -> None:
    """Even one without rows, which no look at it could tell from one that was just made."""
    [innodb] = export(partial.folder, partial.manifest, [INNODB])
    text, fresh = innodb.statements.read_text(), schema_of(innodb)
    with mysql_server.session() as session:
        session.execute(f"CREATE DATABASE {fresh}")
        session.execute(f"CREATE TABLE {fresh}.innodb (id INT PRIMARY KEY, mine INT)")
        mysql_server.account("plain", "GRANT ALL ON *.* TO 'plain'@'localhost'")
        told = logged(session)
        for user in ("root", "plain"):
            for rows in (0, 1):
                for given in (text, f"USE {fresh};\nsource {innodb.statements}\n"):
                    assert "ERROR 1050" in source(mysql_server, given, *options, user=user)
                    assert session.value(f"SELECT COUNT(mine) FROM {fresh}.innodb") == str(rows)
                session.execute(f"REPLACE INTO {fresh}.innodb VALUES (1, 1)")
            session.execute(f"DELETE FROM {fresh}.innodb")
        assert logged(session) == told
        session.execute(f"DROP DATABASE {fresh}")


def test_several_tables_of_one_restore_are_imported_one_after_the_other(
    partial: Image, mysql_server: MariadbServer
) -> None:
    innodb, myisam = export(partial.folder, partial.manifest, [INNODB, MYISAM])
    with mysql_server.session() as session:
        for exported in (myisam, innodb):
            before, _, _ = exported.statements.read_text().partition("-- now copy")
            assert source(mysql_server, before) == ""
        session.execute(f"DROP DATABASE {schema_of(innodb)}")


def test_tables_stay_where_their_server_does_not_end_in_time(partial: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = Session.execute

    def hanging(session: Session, statement: str) -> None:
        execute(session, statement)
        if statement == "SHUTDOWN" and session.peer is not None:
            os.kill(session.peer, signal.SIGSTOP)

    monkeypatch.setattr(Session, "execute", hanging)
    monkeypatch.setattr(recovery, "LEAST_STOP_SECONDS", 0.0)
    monkeypatch.setattr(recovery, "SLOWEST_FLUSH", 1 << 50)
    for exported in export(partial.folder, partial.manifest, [INNODB, MYISAM]):
        assert all(path.stat().st_size for path in (*exported.files, exported.statements))


def schema_of(exported: Exported) -> str:
    """The new one that its statements make."""
    found = re.search("CREATE DATABASE (?:IF NOT EXISTS )?`(backupd_[0-9a-f]{8})`", exported.statements.read_text())
    assert found is not None
    return found[1]


def source(server: MariadbServer, text: str, *options: str, user: str = "root") -> str:
    """What the client says to these statements. It ends at the first error, unless `--force` has it go on."""
    password = "" if user == "root" else f"--password={PASSWORD}"
    argv = ["mariadb", "--no-defaults", f"--socket={server.socket}", f"--user={user}", *filter(None, [password])]
    ended = subprocess.run([*argv, *options], input=text, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def imported(exported: Exported, server: MariadbServer) -> None:
    """As a person does it: the statements, the files, the rest of the statements."""
    before, _, after = exported.statements.read_text().partition("-- now copy")
    source(server, before)
    there = server.datadir / schema_of(exported)
    for path in exported.files:
        if path.suffix != ".frm":
            os.chown(shutil.copy(path, there), there.stat().st_uid, there.stat().st_gid)
    source(server, after.partition("\n")[2])


def logged(session: Session) -> list[str]:
    """What the server's replicas are told of tablespaces."""
    logs = [str(log["Log_name"]) for log in session.query("SHOW BINARY LOGS")]
    events = [str(event["Info"]) for log in logs for event in session.query(f"SHOW BINLOG EVENTS IN '{log}'")]
    return [event for event in events if "TABLESPACE" in event]


def test_statements_given_to_the_live_server_touch_neither_its_table_nor_its_replicas(
    partial: Image, mysql_server: MariadbServer
) -> None:
    [innodb] = export(partial.folder, partial.manifest, [INNODB])
    text, file = innodb.statements.read_text(), f"USE t;\nsource {innodb.statements}\n"
    mysql_server.account("plain", "GRANT ALL ON *.* TO 'plain'@'localhost'")
    with mysql_server.session() as session:
        session.execute("REVOKE SUPER, BINLOG ADMIN ON *.* FROM 'plain'@'localhost'")
        rows, told = session.value("SELECT COUNT(*) FROM t.innodb"), logged(session)
        assert int(rows or 0) > 0
        for user in ("root", "plain"):
            for given, options in ((text, []), (text, ["--force", "--database=t"]), (file, ["--force"])):
                assert "ERROR" in source(mysql_server, given, *options, user=user)
                assert session.value("SELECT COUNT(*) FROM t.innodb") == rows
                assert logged(session) == told
                session.execute(f"DROP DATABASE IF EXISTS {schema_of(innodb)}")


def test_what_was_not_committed_is_in_no_export(mysql_server: MariadbServer, tmp_path: Path) -> None:
    """Recovery rolls it back in the background, and an import takes all that it finds in a file for committed."""
    ledger, dealt = Table("t", "ledger"), Table("t", "dealt")
    with mysql_server.session() as root, mysql_server.session() as batch, mysql_server.session() as dealer:
        root.execute("CREATE TABLE t.ledger (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB")
        root.execute("CREATE TABLE t.dealt (id INT PRIMARY KEY) ENGINE=InnoDB")
        root.execute("INSERT INTO t.ledger SELECT seq, 'committed' FROM t.seq_1_to_50000")
        batch.execute("BEGIN")
        batch.execute("DELETE FROM t.ledger WHERE id <= 25000")
        batch.execute("INSERT INTO t.ledger SELECT seq, 'not' FROM t.seq_50001_to_100000")
        for statement in ("START 'x'", "END 'x'", "PREPARE 'x'"):
            dealer.execute(f"XA {statement}")
            if statement.startswith("START"):
                dealer.execute("INSERT INTO t.dealt VALUES (1)")
        image = taken(mysql_server, tmp_path)
        batch.execute("ROLLBACK")
        dealer.execute("XA ROLLBACK 'x'")
    keep_only([ledger, dealt], image)
    [exported] = export(image.folder, image.manifest, [ledger])
    imported(exported, mysql_server)
    with mysql_server.session() as root:
        rows = root.one(f"SELECT COUNT(*) AS n, MIN(id) AS first, MAX(v) AS v FROM {schema_of(exported)}.ledger")
        assert rows == {"n": "50000", "first": "1", "v": "committed"}
        root.execute(f"DROP DATABASE {schema_of(exported)}")
        root.execute("DROP TABLE t.ledger, t.dealt")
    shutil.rmtree(image.folder / "tables")
    with pytest.raises(ServerError, match="dealt has changes of a prepared XA transaction"):
        export(image.folder, image.manifest, [dealt])


def test_a_table_younger_than_the_last_checkpoint_is_exported_though_another_one_is_missing(
    mysql_server: MariadbServer, tmp_path: Path
) -> None:
    """Of both, only the redo log has the first page, and recovery does not go on behind one that it cannot make."""
    young = Table("t", "young")
    with mysql_server.session() as session:
        session.execute("CREATE DATABASE aside")
        session.execute("CREATE TABLE aside.missing (id INT PRIMARY KEY) ENGINE=InnoDB")
        session.execute("INSERT INTO aside.missing SELECT seq FROM t.seq_1_to_5000")
        session.execute("CREATE TABLE t.young (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB")
        session.execute("INSERT INTO t.young SELECT seq, 'new' FROM t.seq_1_to_5000")
        image = taken(mysql_server, tmp_path)
        session.execute("DROP DATABASE aside")
        session.execute("DROP TABLE t.young")
    keep_only([young], image)
    assert not [*(image.datadir / "aside").iterdir()]
    [exported] = export(image.folder, image.manifest, [young])
    imported(exported, mysql_server)
    with mysql_server.session() as session:
        assert session.value(f"SELECT COUNT(*) FROM {schema_of(exported)}.young WHERE v = 'new'") == "5000"
        session.execute(f"DROP DATABASE {schema_of(exported)}")


def test_a_torn_table_is_not_exported_as_recovered(mysql_server: MariadbServer, tmp_path: Path) -> None:
    """A server that passes over missing tables opens it without a word, and repairs nothing. (An Aria table that is
    torn like this is whole after recovery: its log has the pages.)
    """
    with load(mysql_server):
        image = taken(mysql_server, tmp_path)
    keep_only([MYISAM], image)
    rows = image.datadir / "t" / "myisam.MYD"
    os.truncate(rows, rows.stat().st_size // 2)
    with pytest.raises(VerificationError, match=r"t\.myisam, as restored, is damaged: "):
        export(image.folder, image.manifest, [MYISAM])
    assert not (image.folder / "tables").exists()


def test_a_table_that_the_server_does_not_know_leaves_no_export(partial: Image) -> None:
    with pytest.raises(ServerError, match="gone"):
        export(partial.folder, partial.manifest, [INNODB, Table("other", "gone")])
    assert not (partial.folder / "tables").exists()


def test_a_table_with_partitions_is_not_led_into_an_import_that_mariadb_refuses(
    before: Image, mysql_server: MariadbServer
) -> None:
    parted, child = export(before.folder, before.manifest, [PARTED, CHILD])
    assert child.attention is None
    assert parted.attention is not None
    assert "MariaDB cannot import a table with partitions" in parted.attention
    assert "--tables live.parted --into HOST --as NAME" in parted.attention
    assert len([path for path in parted.files if path.suffix == ".ibd"]) == 3
    text = parted.statements.read_text()
    assert all(line.startswith("--") for line in text.splitlines())
    assert "--  PARTITION BY HASH (`n`)\n" in text
    assert "--into HOST --as NAME" in text
    with mysql_server.session() as session:
        schemas = session.query("SHOW DATABASES")
        assert source(mysql_server, text) == ""
        assert session.query("SHOW DATABASES") == schemas


def clean(before: Image, to: Path) -> Image:
    """A copy of the image in which nothing was exported yet."""
    image = before.copied(to)
    shutil.rmtree(image.folder / "tables", ignore_errors=True)
    return image


def test_a_table_without_a_file_of_its_rows_is_not_called_exported(before: Image, tmp_path: Path) -> None:
    image = clean(before, tmp_path / "copy")
    fleeting, child = export(image.folder, image.manifest, [FLEETING, CHILD])
    assert child.attention is None
    assert "the rows of live.fleeting (MEMORY) are in no file of its own" in (fleeting.attention or "")
    assert all(line.startswith("--") for line in fleeting.statements.read_text().splitlines())


def test_what_is_left_to_do_has_the_triggers_and_every_column_and_sends_replicas_rows(
    before: Image, tmp_path: Path
) -> None:
    image = clean(before, tmp_path / "copy")
    awkward, child = export(image.folder, image.manifest, [AWKWARD, CHILD])
    assert "TRIGGER live.told BEFORE INSERT ON live.child FOR EACH ROW" in child.statements.read_text()
    before_rename, _, after = awkward.statements.read_text().partition("-- RENAME TABLE ")
    assert "If no binary log is written" in before_rename.splitlines()[-1]
    logged, insert, columns = after.partition("-- INSERT INTO `live`.`awkward`")
    assert insert
    assert "-- CREATE TABLE `live`.`awkward` (" in logged
    assert "-- SET SESSION binlog_format = ROW;" in logged
    assert "NO_AUTO_VALUE_ON_ZERO" in logged
    assert "`inv`" in columns
    assert "`virt`" not in columns
    assert "SELECT *" not in columns


def alone(server: MariadbServer, folder: Path, table: Table, made: str) -> Exported:
    """A table that is made, backed up and dropped, as it is exported from what is left of that backup."""
    with server.session() as root:
        root.execute(f"CREATE TABLE {table.in_sql} {made}")
        image = taken(server, folder)
        root.execute(f"DROP TABLE {table.in_sql}")
    keep_only([table], image)
    [exported] = export(image.folder, image.manifest, [table])
    return exported


def test_a_table_with_words_is_not_led_into_an_import_that_leaves_them_out(
    mysql_server: MariadbServer, tmp_path: Path
) -> None:
    made = "(id INT PRIMARY KEY, v TEXT, FULLTEXT KEY (v)) ENGINE=InnoDB"
    exported = alone(mysql_server, tmp_path, Table("t", "words"), made)
    assert "the words of its FULLTEXT index are not in its files: load t.words into" in (exported.attention or "")
    text = exported.statements.read_text()
    assert all(line.startswith("--") for line in text.splitlines())
    assert "--   FULLTEXT KEY `v` (`v`)\n" in text


def test_a_dropped_table_is_back_by_the_page_s_line_with_its_foreign_key_and_trigger(
    mysql_server: MariadbServer,
) -> None:
    page = (PAGES / "restore.md").read_text()
    [line] = re.findall(r"If shop\.orders was dropped:\s+`([^`]+)`", page)
    dump, _, load = line.partition(" | ")
    assert load == "mariadb shop"
    with mysql_server.session() as session:
        for statement in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.customers (id INT PRIMARY KEY)",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer INT, CONSTRAINT orders_customer"
            " FOREIGN KEY (customer) REFERENCES shop.customers (id))",
            "CREATE TRIGGER shop.stamped BEFORE INSERT ON shop.orders FOR EACH ROW SET @stamped = 1",
            "INSERT INTO shop.customers VALUES (1)",
            "INSERT INTO shop.orders VALUES (1, 1)",
        ):
            session.execute(statement)
        argv = dump.replace("/tmp/restored.sock", str(mysql_server.socket)).split()
        argv[1:1] = ["--no-defaults", "--user=root"]
        dumped = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert "ERROR 1050" in source(mysql_server, dumped, "--database=shop")
        session.execute("DROP TABLE shop.orders")
        assert source(mysql_server, dumped, "--database=shop") == ""
        session.execute("INSERT INTO shop.orders VALUES (2, 1)")
        assert session.value("SELECT @stamped") == "1"
        with pytest.raises(ServerError, match="foreign key"):
            session.execute("INSERT INTO shop.orders VALUES (3, 9)")
        session.execute("DROP DATABASE shop")


def test_a_table_with_a_history_is_not_called_whole_where_only_its_rows_are_copied(
    mysql_server: MariadbServer, tmp_path: Path
) -> None:
    made = "(id INT PRIMARY KEY) ENGINE=InnoDB WITH SYSTEM VERSIONING"
    exported = alone(mysql_server, tmp_path, Table("t", "past"), made)
    beforehand, insert, _ = exported.statements.read_text().partition("-- INSERT INTO `t`.`past`")
    assert insert
    assert "its history (SYSTEM VERSIONING) is in" in beforehand


@pytest.mark.parametrize("name", ["bücher", "Ж-日", "con"])
def test_a_table_is_exported_and_imported_whatever_letters_its_name_has(
    name: str, mysql_server: MariadbServer, tmp_path: Path
) -> None:
    exported = alone(mysql_server, tmp_path, Table("t", name), "ENGINE=InnoDB SELECT 7 AS n")
    assert exported.attention is None
    imported(exported, mysql_server)
    with mysql_server.session() as session:
        there = Table(schema_of(exported), name).in_sql
        assert session.value(f"SELECT n FROM {there}") == "7"
        session.execute(f"DROP DATABASE {schema_of(exported)}")


SEQUENCES = {  # how it is made, and used before the backup; the values that it must not give again
    "some": ("START WITH 5 CACHE 3", ["SELECT NEXTVAL(t.s)"], {5}),
    "fresh": ("START WITH 5", [], set[int]()),
    "again": ("MAXVALUE 7 CACHE 2 CYCLE", ["SELECT NEXTVAL(t.s)"] * 9, set[int]()),
    "down": ("INCREMENT BY -2 CACHE 2", ["SELECT NEXTVAL(t.s)"] * 3, {-1, -3, -5}),
    "behind": ("START WITH 50", ["ALTER SEQUENCE t.s RESTART WITH 20", "SELECT NEXTVAL(t.s)"], {20}),
}


@pytest.mark.parametrize(("options", "before_backup", "given"), SEQUENCES.values(), ids=SEQUENCES.keys())
def test_a_sequence_is_made_again_and_goes_on_where_it_was(
    options: str, before_backup: list[str], given: set[int], mysql_server: MariadbServer, tmp_path: Path
) -> None:
    sequence = Table("t", "s")
    with mysql_server.session() as root:
        root.execute(f"CREATE SEQUENCE t.s {options}")
        for statement in before_backup:
            root.execute(statement)
        image = taken(mysql_server, tmp_path)
        [state], created = root.query("SELECT * FROM t.s"), definition(root, "t.s")
    keep_only([sequence], image)
    [exported] = export(image.folder, image.manifest, [sequence])
    assert exported.attention is None
    assert exported.files == (exported.statements,)
    assert [*exported.statements.parent.iterdir()] == [exported.statements]
    text, fresh = exported.statements.read_text(), schema_of(exported)
    typed = "\n".join(
        line.removeprefix("-- ") for line in text.splitlines() if re.match("-- (CREATE|ALTER|SELECT)", line)
    )
    with mysql_server.session() as root:
        told = len(root.query("SHOW BINLOG EVENTS IN %s", str(root.query("SHOW BINARY LOGS")[-1]["Log_name"])))
        assert "ERROR" not in source(mysql_server, text)
        assert len(root.query("SHOW BINLOG EVENTS IN %s", str(root.query("SHOW BINARY LOGS")[-1]["Log_name"]))) == told
        root.execute("DROP SEQUENCE t.s")
        assert "ERROR" not in source(mysql_server, typed)
        for schema in (fresh, "t"):
            assert root.query(f"SELECT * FROM {schema}.s") == [state]
            assert definition(root, f"{schema}.s") == created
            following = int(root.value(f"SELECT NEXTVAL({schema}.s)") or 0)
            assert following == int(state["next_not_cached_value"] or 0)
            assert following not in given
        source(mysql_server, text, "--force")
        assert int(root.value(f"SELECT NEXTVAL({fresh}.s)") or 0) != following
        root.execute(f"DROP DATABASE {fresh}")
        with pytest.raises(UsageError, match="is a sequence") as refused:
            shape_of(root, sequence)
        assert "--to DIR" in refused.value.hint
        root.execute("DROP SEQUENCE t.s")


@pytest.mark.parametrize(("step", "start"), [(-1, -9223372036854775806), (-1, None), (-10, -9223372036854775800)])
@pytest.mark.parametrize("cycle", ["NOCYCLE", "CYCLE"])
def test_a_sequence_that_has_given_the_lowest_number_gives_no_other(
    step: int, start: int | None, cycle: str, mysql_server: MariadbServer
) -> None:
    begins = "" if start is None else f"START WITH {start}"
    with mysql_server.session() as root:
        root.execute("CREATE OR REPLACE SCHEMA again")
        root.execute(
            f"CREATE OR REPLACE SEQUENCE t.s INCREMENT BY {step} MINVALUE -9223372036854775807 {begins} NOCACHE {cycle}"
        )
        if start is None:
            root.execute("SELECT SETVAL(t.s, -9223372036854775807)")
        else:
            root.query(f"SELECT NEXTVAL(t.s) FROM t.seq_1_to_{2 if step == -1 else 1}")
        for statement in sequence_of(root, Table("t", "s")).made_in("again"):
            root.execute(statement)
        assert root.query("SELECT * FROM again.s") == root.query("SELECT * FROM t.s")
        if cycle == "NOCYCLE":
            with pytest.raises(ServerError, match="has run out"):
                root.value("SELECT NEXTVAL(again.s)")
        else:
            assert root.value("SELECT NEXTVAL(again.s)") == root.value("SELECT NEXTVAL(t.s)")
        root.execute("DROP SEQUENCE t.s")
        root.execute("DROP SCHEMA again")


TRIGGERS = """
    CREATE TRIGGER t.plain BEFORE INSERT ON t.told FOR EACH ROW SET NEW.a = 'a' = 'A'//
    SET NAMES latin1 COLLATE latin1_bin//
    CREATE TRIGGER t.exact BEFORE INSERT ON t.told FOR EACH ROW SET NEW.b = 'b' = 'B'//
    CREATE TRIGGER t.umlaut BEFORE INSERT ON t.told FOR EACH ROW
    SET NEW.c = CONCAT(HEX('ü'), 'ü' = 'Ü', 'it''s \\\\\u00a0  \n\n|')//
"""


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_triggers_that_are_typed_compare_and_spell_as_they_did(
    locale: str, mysql_server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the client program, of which each locale makes another character set."""
    told, fields = Table("t", "told"), "(a INT, b INT, c VARCHAR(99))"
    with mysql_server.session() as root:
        root.execute(f"CREATE TABLE t.told {fields}")
        argv = ["mariadb", "--no-defaults", f"--socket={mysql_server.socket}", "--user=root", "--delimiter=//"]
        subprocess.run([*argv, "--default-character-set=latin1"], input=TRIGGERS.encode("latin-1"), check=True)
        image = taken(mysql_server, tmp_path)
        triggers = triggers_of(root, told)
        assert [trigger.client for trigger in triggers] == ["latin1"] * 3
        root.execute("INSERT INTO t.told () VALUES ()")
        stored = root.query("SELECT * FROM t.told")
        assert stored == [{"a": "1", "b": "0", "c": "FC0it's \\\u00a0  \n\n|"}]
        root.execute("DROP TABLE t.told")
    keep_only([told], image)
    [exported] = export(image.folder, image.manifest, [told])
    _, begins, text = exported.statements.read_text().partition("-- DELIMITER //")
    typed = "\n".join(line.removeprefix("-- ") for line in (begins + text).split("\n"))
    monkeypatch.setenv("LC_ALL", locale)
    with mysql_server.session() as root:
        root.execute(f"CREATE TABLE t.told {fields}")
        seen = "SELECT @@character_set_client, @@character_set_connection, @@collation_connection, @@sql_mode;\n"
        said = source(mysql_server, seen + typed + "\n" + seen, "--skip-column-names").splitlines()
        assert said[:1] == said[1:]
        assert triggers_of(root, told) == tuple(
            trigger if trigger.definition.isascii() else replace(trigger, client="utf8mb4") for trigger in triggers
        )
        root.execute("INSERT INTO t.told () VALUES ()")
        assert root.query("SELECT * FROM t.told") == stored
        root.execute("DROP TABLE t.told")
