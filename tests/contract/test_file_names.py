"""Files are called here as a server calls them, of whatever letters a name is."""

from pathlib import Path

from backupd.mysql.file_names import file_name, sql_name
from backupd.mysql.sqltext import quoted
from tests.contract.mariadb import MariadbServer, mysql_server

__all__ = ["mysql_server"]

LETTERS = [chr(number) for number in range(1, 0x10000) if not 0xD800 <= number < 0xE000]
ODD = [
    "bücher",
    "ñandú",
    "É",
    "e\u0301",
    "ẞ",
    "Ж",
    "日本",
    "Ⓐb",
    "con",
    "Com1",
    "com10",
    "a-b.c",
    "clock$",
    "@1o",
    "x@@@",
]


def test_every_letter_is_coded_as_the_server_codes_it(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as session:
        coded = session.value("SELECT HEX(CONVERT(_utf8mb4 %s USING filename))", "".join(LETTERS))
    assert bytes.fromhex(coded or "").decode("ascii") == "".join(map(file_name, LETTERS))
    assert [sql_name(file_name(letter)) for letter in LETTERS] == LETTERS


def test_tables_lie_in_files_of_these_names(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as session:
        for schema in ("aux", "Straße-é"):
            session.execute(f"CREATE DATABASE {quoted(schema)}")
            for table in ODD:
                session.execute(f"CREATE TABLE {quoted(schema)}.{quoted(table)} (a INT) ENGINE=InnoDB")
            folder = mysql_server.datadir / file_name(schema)
            assert named(folder) == {file_name(table) for table in ODD}
            assert {sql_name(name) for name in named(folder)} == set(ODD)
            session.execute(f"DROP DATABASE {quoted(schema)}")


def test_what_no_server_has_named_is_called_as_the_server_calls_it(mysql_server: MariadbServer) -> None:
    names = ["a-b", "@1O@", "caf@00e9s", "@00E9", "con", "@0061", "a@", "@", "@zz"]
    for name in names:
        (mysql_server.datadir / name).mkdir()
    with mysql_server.session() as session:
        schemas = {str(row["Database"]) for row in session.query("SHOW DATABASES")}
    for name in names:
        (mysql_server.datadir / name).rmdir()
    assert {sql_name(name) for name in names} == {f"#mysql50#{name}" for name in names}
    assert "#mysql50#a-b" in schemas
    assert {name for name in schemas if name.startswith("#mysql50#")} <= {sql_name(name) for name in names}
    assert all(file_name(sql_name(name)) == name for name in names)


def named(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.ibd")}
