"""What a definition loses, and as what a value is written, so that a server makes the same of it again."""

from dataclasses import replace

import pytest

from backupd.mysql.replacing_statements import statements_for, triggers_for
from backupd.mysql.row_differences import TableDifference
from backupd.mysql.table_attachments import Attachments, TableTrigger
from backupd.mysql.table_shape import TableColumn, TableShape, without_foreign_keys
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.servers import Flavour

HEAD = "CREATE TABLE `t` (\n  `a` int(11) DEFAULT NULL COMMENT 'FOREIGN KEY (x)',\n  KEY `k` (`a`)"
ONE = "CONSTRAINT `one` FOREIGN KEY (`a`) REFERENCES `o`.`p` (`id`) ON DELETE CASCADE"
TWO = "CONSTRAINT `t``w,o` FOREIGN KEY (`a`, `b`) REFERENCES `p` (`id`, `n`)"
CHECK = "CONSTRAINT `c` CHECK (`a` < 5)"
TAIL = "\n) ENGINE=InnoDB"


@pytest.mark.parametrize(
    ("lines", "kept", "left"),
    [
        ([], [], ()),
        ([ONE], [], (ONE,)),
        ([ONE, TWO], [], (ONE, TWO)),
        ([ONE, CHECK, TWO], [CHECK], (ONE, TWO)),
        ([CHECK], [CHECK], ()),
    ],
)
def test_foreign_keys_are_left_out_of_a_definition_and_nothing_else(
    lines: list[str], kept: list[str], left: tuple[str, ...]
) -> None:
    told = "".join([HEAD, *(f",\n  {line}" for line in lines), TAIL])
    assert without_foreign_keys(told) == ("".join([HEAD, *(f",\n  {line}" for line in kept), TAIL]), left)


@pytest.mark.parametrize(
    ("kind", "value", "mariadb", "mysql"),
    [
        ("text", b"it's \\ \xff\0", b"_binary'it\\'s \\\\ \xff\0'", None),
        ("longblob", b"", b"_binary''", None),
        ("point", b"\0", b"_binary'\0'", None),
        ("json", b"{}", b"_binary'{}'", b"_utf8mb4'{}'"),
        ("set", b"18446744073709551615", b"18446744073709551615", None),
        ("decimal", b"-0.50", b"'-0.50'", None),
        ("uuid", b"a-b", b"'a-b'", None),
        ("text", None, b"NULL", None),
    ],
)
def test_a_value_is_written_so_that_no_character_set_changes_it(
    kind: str, value: bytes | None, mariadb: bytes, mysql: bytes | None
) -> None:
    column = TableColumn("c", kind, kind)
    assert column.writer(Flavour.MARIADB)(value) == mariadb
    assert column.writer(Flavour.MYSQL)(value) == (mariadb if mysql is None else mysql)


def test_what_is_to_be_a_number_is_one_or_nothing_is_written() -> None:
    with pytest.raises(ValueError):
        TableColumn("c", "enum", "enum('a')").writer(Flavour.MARIADB)(b"1); DROP TABLE x")


def test_every_line_of_a_strangers_trigger_is_a_comment() -> None:
    made = "CREATE TRIGGER t AFTER INSERT ON t FOR EACH ROW BEGIN\n"
    made += "\\! sh\nsystem sh\r\x1b[2J\nEND//\u2028DROP DATABASE live"
    trigger = TableTrigger("t`\nx", "INSERT,UPDATE", made, "ANSI'; x", "lat'in1\n", "utf8mb4; DROP DATABASE live")
    told = trigger.to_be_typed(Table("live", "t"))
    assert all(line.startswith("-- ") for line in told.split("\n"))
    assert "\x1b" not in told
    assert "-- CREATE TRIGGER t AFTER INSERT ON t FOR EACH ROW BEGIN\n" in told
    assert "utf8mb4; DROP" not in told


def test_a_trigger_is_sent_in_what_its_words_are_written_in_and_compares_as_before() -> None:
    made = "CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW SET @a = '{}'"
    for letter, client in (("u", "latin1"), ("ü", "utf8mb4")):
        told = TableTrigger("t", "INSERT", made.format(letter), "", "latin1", "latin1_bin").to_be_typed(
            Table("a`b", "t")
        )
        assert f", character_set_client = {client}, collation_connection = latin1_bin//" in told
        assert "-- USE `a``b`//\n" in told
        assert ("-- # it was sent in latin1" in told) == (client != "latin1")


@pytest.mark.parametrize(
    ("letter", "told_as"),
    [("", ""), ("\x85", "\\x85"), ("\u2028", "\\u2028"), ("\u200e", "\\u200e"), ("\U000e0041", "\\U000e0041")],
)
def test_what_nothing_acts_on_is_typed_as_it_is(letter: str, told_as: str) -> None:
    definition = "CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW\n\tSET @a = '10\u00a0EUR|\u200b|a  \n\n\n|%s|'"
    made = TableTrigger("t", "INSERT", definition % letter, "", "utf8mb4", "utf8mb4_bin")
    again = "\n".join(line[3:] for line in made.to_be_typed(Table("live", "t")).split("\n"))
    assert definition % told_as in again
    assert ("this is not the same text" in again) == bool(letter)


def test_lines_of_another_system_are_lines_and_that_is_told() -> None:
    told = TableTrigger("t", "INSERT", "CREATE TRIGGER t\r\nSET @a = 1").to_be_typed(Table("live", "t"))
    assert told.startswith("-- # this is not the same text: it had control characters, or lines that end with CR LF\n")
    assert "-- CREATE TRIGGER t\n-- SET @a = 1\n" in told


def test_a_trigger_whose_statement_is_not_told_is_named() -> None:
    told = TableTrigger("t", "INSERT").to_be_typed(Table("live", "t"))
    assert told == "-- # the server did not tell the statement of the trigger `t`"


@pytest.mark.parametrize("logged", [True, False])
def test_a_strangers_name_does_not_end_a_comment(logged: bool) -> None:
    evil = "t\nDROP DATABASE live;\r\u2028DROP DATABASE live; -- "
    trigger = TableTrigger(evil, "INSERT", f"CREATE TRIGGER `{evil}` BEFORE INSERT ON t FOR EACH ROW SET @a = 1")
    bad = replace(shape(A, key=("a",)), triggers=(trigger,))
    attached = Attachments(referring=((Table("live", evil), evil),))
    printed = statements_for(bad, "r", TableDifference(shared=("a",), attached=attached), logged=logged)
    lines = [line for text in (*printed, *triggers_for(bad)) for line in text.split("\n")]
    ours = "SET SESSION binlog", "SET SESSION TRANSACTION", "INSERT INTO `live`", "RENAME TABLE `live`"
    assert all(line.startswith(("--", *ours)) for line in lines)


def shape(*columns: TableColumn, key: tuple[str, ...] = (), name: str = "t") -> TableShape:
    definition = f"CREATE TABLE `{name}` ()"
    return TableShape(Table("live", name), "InnoDB", definition, columns, key, foreign_keys=(), triggers=())


A, B = TableColumn("a", "int", "int"), TableColumn("b`{}", "varchar", "varchar(9)")
G = TableColumn("g", "int", "int", generated=True)


def test_it_is_made_in_another_schema_under_its_own_name() -> None:
    assert shape(A).created_in("x`y") == "CREATE TABLE `x``y`.`t` ()"


def test_what_a_person_may_type_names_the_columns_that_take_values() -> None:
    _, put_back, rename = statements_for(shape(A, B, G, key=("a",)), "r", TableDifference(shared=("a", "b`{}")))[1::2]
    assert put_back == (
        "INSERT INTO `live`.`t` (`a`, `b``{}`) SELECT `a`, `b``{}` FROM `r`.`t` AS b"
        " WHERE NOT EXISTS (SELECT 1 FROM `live`.`t` AS l WHERE b.`a` = l.`a`);"
    )
    assert rename == "RENAME TABLE `live`.`t` TO `live`.`t_replaced`, `r`.`t` TO `live`.`t`;"


def test_without_a_key_in_common_no_row_is_said_to_be_missing() -> None:
    _, put_back, *_ = statements_for(shape(A, B), "r", TableDifference(shared=("a",)))
    assert put_back == "INSERT INTO `live`.`t` (`a`) SELECT `a` FROM `r`.`t`;"


def test_a_table_moved_aside_has_a_name_that_the_server_takes() -> None:
    *_, rename = statements_for(shape(A, name="n" * 64), "r", TableDifference(shared=("a",)))
    assert f"`{'n' * 55}_replaced`" in rename
