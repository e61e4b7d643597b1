"""What a binlog does not say of its DDL, for the server's settings did: the copy has the definitions of the source."""

from collections.abc import Sequence
from pathlib import Path

from backupd.mysql.session import Session
from tests.contract.mariadb import mariadb
from tests.contract.test_applying import Witness, applied, place
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


def test_a_table_that_innodb_takes_with_a_warning_is_made_on_the_copy_too(tmp_path: Path) -> None:
    """No binlog tells `innodb_strict_mode`, which a session may switch off."""
    columns = ", ".join(f"c{number} VARCHAR(42) NOT NULL" for number in range(199))
    with mariadb("--binlog-format=ROW") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("SET SESSION innodb_strict_mode = OFF")
        root.execute(f"CREATE TABLE t.wide (id INT PRIMARY KEY, {columns}) ENGINE=InnoDB CHARSET=latin1")
        root.execute("CREATE TABLE t.block (id INT PRIMARY KEY) ENGINE=InnoDB ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8")
        expected = definitions(root, ["wide", "block"])
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert definitions(session, ["wide", "block"]) == expected

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))


def test_a_stored_function_that_says_nothing_of_itself_is_made_on_the_copy_too(tmp_path: Path) -> None:
    """A server with a binlog makes such a one only with `log_bin_trust_function_creators`, which no binlog tells."""
    with mariadb("--binlog-format=ROW", "--log-bin-trust-function-creators=ON") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute("CREATE DEFINER=`root`@`localhost` FUNCTION t.three() RETURNS INT RETURN 3")
        root.execute("CREATE TABLE t.x (id INT PRIMARY KEY)")
        root.execute("INSERT INTO t.x VALUES (t.three())")
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)

        def look(session: Session) -> None:
            assert session.value("SELECT t.three() = MAX(id) FROM t.x") == "1"

        applied(witness, tmp_path / "to", end, lambda server, _: look(server.session))
