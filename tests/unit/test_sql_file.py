"""A file of SQL: where each statement begins and ends, and what is refused before anything is fetched."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.mysql.sql_file import MOST_BYTES, read_sql_file
from backupd.vocabulary.errors import UsageError


def found(folder: Path, text: str | bytes) -> list[tuple[int, str]]:
    path = folder / "scrub.sql"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [(statement.line, statement.text) for statement in read_sql_file(path).statements]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", [(1, "SELECT 1")]),
        ("a;b;\n\n c ;", [(1, "a"), (1, "b"), (3, "c")]),
        ("\ufeffa;", [(1, "a")]),
        ("a;\r\nb;\r\n", [(1, "a"), (2, "b")]),
        (";;a;;", [(1, "a")]),
        ("-- b;\n# c;\n/* d;\n */ a;", [(4, "a")]),
        ("a -- b;\n + 1; c # d;\n;", [(1, "a -- b;\n + 1"), (2, "c # d;")]),
        ("a--b;c", [(1, "a--b"), (1, "c")]),
        ("--\nb", [(2, "b")]),
        ("a 'x;''y;' \"z;\\\";\" `w;``;` '\\';' ; b", [(1, "a 'x;''y;' \"z;\\\";\" `w;``;` '\\';'"), (1, "b")]),
        ("/*!40101 SET a = ';' */; /*M!100100 b */;", [(1, "/*!40101 SET a = ';' */"), (1, "/*M!100100 b */")]),
        ("SELECT /*+ hint; */ 1; SELECT 2/1", [(1, "SELECT /*+ hint; */ 1"), (1, "SELECT 2/1")]),
        (
            "-- why\nDELIMITER //\nBEGIN a; b; END//\ndelimiter ;\nc;",
            [(3, "BEGIN a; b; END"), (5, "c")],
        ),
        ("DELIMITER $$\r\na; b$$\r\nDELIMITER ;\r\nc", [(2, "a; b"), (4, "c")]),
        ("DELIMITER go\na gone; b'go' go c", [(2, "a"), (2, "ne; b'go'"), (2, "c")]),
        ("SELECT 1 AS delimiter; x", [(1, "SELECT 1 AS delimiter"), (1, "x")]),
        ("\\! touch x; source y", [(1, "\\! touch x"), (1, "source y")]),
        ("é;'ü;'", [(1, "é"), (1, "'ü;'")]),
    ],
)
def test_statements_end_where_the_client_ends_them(
    tmp_path: Path, text: str, statements: list[tuple[int, str]]
) -> None:
    assert found(tmp_path, text) == statements


@given(st.lists(st.sampled_from(["'", '"', "`", ";", "\\", "--", " ", "\n", "#", "/*", "*/", "!", "a", "DELIMITER x"])))
def test_nothing_is_lost_between_statements_but_what_ends_or_explains_them(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    text = "".join(words)
    try:
        statements = found(tmp_path_factory.mktemp("sql"), text)
    except UsageError:
        return
    at = 0
    for _, statement in statements:
        assert statement.strip()
        at = text.index(statement, at) + len(statement)


@pytest.mark.parametrize("text", ["a;\nb 'c;\n d", 'a;\n"', "a;\n`b", "a;\n/* b", "a;\n b /* c", "a;\n'b\\'"])
def test_a_quote_or_comment_without_an_end_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"a quote or comment that begins on line 2 of .*scrub\.sql has no end"):
        found(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no SQL statement"),
        (b" ; -- only words\n", "has no SQL statement"),
        (b"SELECT 'M\xfcller'", "is not UTF-8: byte 10 is not"),
        (b"SELECT 1;\0", "has a zero byte"),
        (b"SELECT 1;" + b" " * MOST_BYTES, "is larger than 8 MiB"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        found(tmp_path, content)
    assert raised.value.hint


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, says in (
        (tmp_path / "absent.sql", "cannot read .*absent.sql: No such file"),
        (tmp_path, "cannot read .*: Is a directory"),
        (tmp_path / "fifo", "is not a plain file"),
        (Path("/dev/zero"), "is not a plain file"),
        (Path("/proc/self/stat"), "changed while it was read"),  # whose size says nothing of what is in it
    ):
        with pytest.raises(UsageError, match=says):
            read_sql_file(path)


def test_the_digest_is_of_the_bytes_as_they_are(tmp_path: Path) -> None:
    content = "\ufeffSELECT 1;\r\n".encode()
    (tmp_path / "a.sql").write_bytes(content)
    read = read_sql_file(tmp_path / "a.sql")
    assert (read.sha256, read.name) == (hashlib.sha256(content).hexdigest(), str(tmp_path / "a.sql"))
