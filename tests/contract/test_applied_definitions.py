"""What a binlog does not say of its DDL, for the server's settings did: the copy has the definitions of the source."""

from collections.abc import Sequence
from pathlib import Path

from backupd.mysql.session import Session
from tests.contract.mariadb import mariadb
from tests.contract.test_applying import Witness, applied, place, rows_of
from tests.contract.test_scratch import taken


def definitions(session: Session, tables: Sequence[str]) -> list[str | None]:
    return [(session.one(f"SHOW CREATE TABLE t.{table}") or {})["Create Table"] for table in tables]


def test_utf8_means_on_the_copy_what_it_means_on_the_source(tmp_path: Path) -> None:
    """MariaDB logs no `old_mode`: the copy would keep four bytes of a character in a column of three-byte ones."""
    smile = "CONVERT(X'F09F9880' USING utf8mb4)"
    read = "SELECT CONCAT(HEX(c), ' ', CHAR_LENGTH(c), ' ', CHARSET(c)) FROM t.x"
    with mariadb("--binlog-format=ROW", "--old-mode=") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("CREATE TABLE t.x (id INT PRIMARY KEY, c TEXT CHARACTER SET utf8)")
        root.execute(f"INSERT INTO t.x VALUES (1, {smile})")
        expected = definitions(root, ["x"]), root.value(read)
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert (definitions(session, ["x"]), session.value(read)) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


def test_what_a_setting_let_the_source_make_is_made_on_the_copy_too(tmp_path: Path) -> None:
    """No binlog tells `innodb_strict_mode`, which a session may switch off, and `log_bin_trust_function_creators`,
    without which a server with a binlog makes no stored function that says nothing of itself.
    """
    columns = ", ".join(f"c{number} VARCHAR(42) NOT NULL" for number in range(199))
    with mariadb("--binlog-format=ROW", "--log-bin-trust-function-creators=ON") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("SET SESSION innodb_strict_mode = OFF")
        root.execute(f"CREATE TABLE t.wide (id INT PRIMARY KEY, {columns}) ENGINE=InnoDB CHARSET=latin1")
        root.execute("CREATE TABLE t.block (id INT PRIMARY KEY) ENGINE=InnoDB ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8")
        root.execute("CREATE DEFINER=`root`@`localhost` FUNCTION t.three() RETURNS INT RETURN 3")
        root.execute("CREATE TABLE t.x (id INT PRIMARY KEY)")
        root.execute("INSERT INTO t.x VALUES (t.three())")
        expected = definitions(root, ["wide", "block"])
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert definitions(session, ["wide", "block"]) == expected
            assert session.value("SELECT t.three() = MAX(id) FROM t.x") == "1"

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


MAKING = {
    "aria-page-checksum": "OFF",
    "automatic-sp-privileges": "OFF",
    "innodb-compression-default": "ON",
    "innodb-default-row-format": "compact",
    "mysql56-temporal-format": "OFF",
    "standard-compliant-cte": "OFF",
}


def test_ddl_makes_on_the_copy_what_it_made_on_the_source(tmp_path: Path) -> None:
    """By settings that no event carries: formats of tables and columns, what a view may be, and what remains of rights
    to a procedure that is gone.
    """
    options = (f"--{name}={value}" for name, value in MAKING.items())
    formats = "SELECT TABLE_NAME, ENGINE, ROW_FORMAT FROM information_schema.TABLES WHERE TABLE_SCHEMA = 't' ORDER BY 1"
    tables = ("formats", "checked")
    with mariadb("--binlog-format=ROW", *options) as source, source.session() as root:
        root.execute("CREATE USER u@h")
        root.execute("CREATE PROCEDURE t.p() SELECT 1")
        root.execute("GRANT EXECUTE ON PROCEDURE t.p TO u@h")
        image = taken(source, tmp_path / "image")
        for statement in (
            "CREATE TABLE t.checked (id INT PRIMARY KEY) ENGINE=Aria",
            "CREATE TABLE t.formats (id INT PRIMARY KEY, at TIMESTAMP NULL, exactly DATETIME(3))",
            f"CREATE VIEW t.v AS {AGGREGATED}",
            "DROP PROCEDURE t.p",
        ):
            root.execute(statement)
        rights = "SELECT User, Routine_name FROM mysql.procs_priv"
        expected = definitions(root, tables), root.query(formats), root.query(rights)
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert (definitions(session, tables), session.query(formats), session.query(rights)) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


def test_ddl_of_a_session_for_which_the_source_enforced_no_engine_is_applied(tmp_path: Path) -> None:
    """No event says so, and a server that enforces one refuses another (1290)."""
    enforcing = ("--enforce-storage-engine=InnoDB", "--sql-mode=")  # else it refuses what is there at the backup
    with mariadb("--binlog-format=ROW", *enforcing) as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("CREATE TABLE t.enforced (id INT PRIMARY KEY)")
        root.execute("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', enforce_storage_engine = NULL")
        root.execute("CREATE TABLE t.free (id INT PRIMARY KEY) ENGINE=Aria")
        expected = definitions(root, ["enforced", "free"])
        assert image.manifest.server.settings["enforce_storage_engine"] == "InnoDB"  # and is told: see `log_modes`
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert definitions(session, ["enforced", "free"]) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


def test_tables_lie_on_the_copy_where_they_did_on_the_source(tmp_path: Path) -> None:
    """What cannot be in the system's tablespace is of another format there, with a warning."""
    asked = "SELECT NAME, ROW_FORMAT, SPACE = 0 AS shared FROM information_schema.INNODB_SYS_TABLES WHERE NAME = 't/x'"
    with mariadb("--binlog-format=ROW", "--innodb-file-per-table=OFF") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("SET SESSION innodb_strict_mode = OFF")
        root.execute("CREATE TABLE t.x (id INT PRIMARY KEY) ENGINE=InnoDB ROW_FORMAT=COMPRESSED")
        expected = root.query(asked)
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert session.query(asked) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


NUMBERS = "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 1500) SELECT * FROM c"
AGGREGATED = "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT MAX(n) + 1 FROM c WHERE n < 3) SELECT n FROM c"
CALLS_ITSELF = "CREATE PROCEDURE t.down(n INT) BEGIN IF n > 0 THEN CALL t.down(n - 1); END IF; END"
DECIDING = {
    "default-regex-flags": "DOTALL",
    "default-week-format": "3",
    "div-precision-increment": "12",
    "ft-boolean-syntax": ' +-><()~*:""&|',  # all words are wanted
    "ft-stopword-file": "",  # none: "there" is a word as any other
    "group-concat-max-len": "5",
    "innodb-ft-server-stopword-table": "t/words",
    "max-allowed-packet": "1M",
    "max-recursive-iterations": "2000",
    "max-sort-length": "64",
    "max-sp-recursion-depth": "200",
    "old-passwords": "1",
    "thread-stack": "16M",
}


def test_statements_give_on_the_copy_what_they_gave_on_the_source(tmp_path: Path) -> None:
    """By settings that no event carries, and with the time of the event where SYSDATE() is asked for."""
    options = (f"--{name}={value}" for name, value in DECIDING.items())
    with mariadb("--binlog-format=STATEMENT", "--sysdate-is-now", *options) as source, source.session() as root:
        root.execute("SET SESSION sql_mode = ''")  # what GROUP_CONCAT() cuts off is a warning then
        root.execute("CREATE TABLE t.words (value VARCHAR(18)) ENGINE=InnoDB")
        root.execute("INSERT INTO t.words VALUES ('wonderful')")
        root.execute("CREATE TABLE t.p (id INT PRIMARY KEY, total INT, qty INT, unit DECIMAL(20,12), at DATETIME(6))")
        root.execute("INSERT INTO t.p VALUES (1, 10, 3, 0, NOW()), (2, 10, 6, 0, NOW())")
        root.execute("CREATE TABLE t.alike (id INT PRIMARY KEY, v VARCHAR(90))")
        root.execute("INSERT INTO t.alike VALUES (1, CONCAT(REPEAT('x', 70), 'b')), (2, CONCAT(REPEAT('x', 70), 'a'))")
        root.execute("CREATE TABLE t.indexed (id INT PRIMARY KEY, v TEXT, FULLTEXT (v)) ENGINE=MyISAM")
        root.execute("INSERT INTO t.indexed VALUES (1, 'there it is'), (2, 'something there'), (3, 'other')")
        image = taken(source, tmp_path / "image")
        for statement in (
            "UPDATE t.p SET unit = total / qty, at = SYSDATE(6)",
            "INSERT INTO t.innodb (v) SELECT GROUP_CONCAT(v ORDER BY v) FROM t.myisam",
            "INSERT INTO t.innodb (v) VALUES (WEEK('2000-01-01')), ('a\\nb' RLIKE 'a.b')",
            f"INSERT INTO t.innodb (v) SELECT COUNT(*) FROM ({NUMBERS}) AS numbers",
            CALLS_ITSELF,
            "CREATE TRIGGER t.deep BEFORE INSERT ON t.aria FOR EACH ROW CALL t.down(100)",
            "INSERT INTO t.aria (v) VALUES ('three')",
            "DELETE FROM t.alike ORDER BY v LIMIT 1",
            "INSERT INTO t.innodb (v) VALUES (PASSWORD('x')), (REPEAT('x', 2000000))",
            "DELETE FROM t.indexed WHERE MATCH (v) AGAINST ('something there' IN BOOLEAN MODE)",
            "UPDATE t.indexed SET v = 'something' WHERE id = 1",
            "CREATE TABLE t.later (id INT PRIMARY KEY, v TEXT, FULLTEXT (v)) ENGINE=InnoDB",
            "INSERT INTO t.later VALUES (1, 'something wonderful')",
        ):
            root.execute(statement)
        found = "SELECT id FROM t.later WHERE MATCH (v) AGAINST ('wonderful')"
        expected = rows_of(root), root.query("CHECK TABLE t.indexed"), root.query(found)
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert (rows_of(session), session.query("CHECK TABLE t.indexed"), session.query(found)) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))
