"""What an applier's error means, where it is not that the log and the data do not belong together."""

from typing import cast

import pytest

from backupd.mysql.binlog.applying import _require_well, _statements
from backupd.mysql.seeding import Words
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError, Undecided, VerificationError
from backupd.vocabulary.servers import Position

# As MariaDB 10.11.19 and MySQL 9.7.4 say it.
_NO_PLUGIN = (
    "Error 'Plugin 'ed25519' is not loaded' on query. Default database: ''. Query: 'CREATE USER somebody@localhost"
    " IDENTIFIED VIA ed25519 USING PASSWORD('something')'"
)
_COORDINATOR = (
    "Coordinator stopped because there were error(s) in the worker(s). The most recent failure being: Worker 1 failed"
    " executing transaction '127aa663-ebf3-11f1-8e02-02fc00000001:9' at source log bin.000002, end_log_pos 1761."
)
_NO_FUNCTIONS = (
    "Worker 1 failed executing transaction '127aa663-ebf3-11f1-8e02-02fc00000001:9' at source log bin.000002,"
    " end_log_pos 1761; Error 'Can't initialize function 'metaphon'; UDFs are unavailable with the --skip-grant-tables"
    " option' on query. Default database: 't'. Query: 'CREATE FUNCTION metaphon RETURNS STRING SONAME"
    " 'udf_example.so''"
)
_OUT_OF_MEMORY = "Error 'Out of memory.' on query. Default database: ''. Query: 'DROP FUNCTION fdim'"
_OUT_OF_MEMORY_TOO = (
    "Error 'Out of memory.' on query. Default database: ''. Query: 'CREATE AGGREGATE FUNCTION avgcost RETURNS REAL"
    " SONAME 'udf_example.so''"
)
_NO_FUNCTION = (
    "Error 'FUNCTION t.metaphon does not exist' on query. Default database: 't'. Query: 'DROP FUNCTION metaphon'"
)


class Worker:
    """The one of MySQL's that failed."""

    def value(self, statement: str, number: int) -> str | None:
        assert "replication_applier_status_by_worker" in statement
        return _NO_FUNCTIONS if number == 1123 else None


def refusal(number: int, said: str) -> ServerError | VerificationError:
    with pytest.raises((ServerError, VerificationError)) as told:
        _require_well(cast(Session, Worker()), {"Last_SQL_Errno": str(number), "Last_SQL_Error": said})
    return told.value  # type: ignore[return-value]


def test_a_plugin_that_is_not_here_says_nothing_of_the_archive() -> None:
    told = refusal(1524, _NO_PLUGIN)
    assert isinstance(told, Undecided)
    assert "needs a plugin that the restored server does not have" in told.message
    assert "archive" not in told.message + told.hint
    assert "install it for this host's server programs" in told.hint


def test_a_tablespace_outside_of_the_copy_is_named_as_the_reason() -> None:
    said = "Error 'The DATAFILE location must be in a known directory.' on query. Default database: ''. Query: '…'"
    told = refusal(3121, said)
    assert isinstance(told, VerificationError)
    assert "makes a table or a tablespace outside of the restored copy: Error 'The DATAFILE" in told.message
    assert "a moment before this place" in told.hint


@pytest.mark.parametrize("words", Words)
def test_an_old_mysql_which_refuses_no_folder_of_the_log_makes_none(words: Words) -> None:
    said = any("NO_DIR_IN_CREATE" in one for one in _statements(words, Position("bin.000001", 4), 0))
    assert said == (words is Words.OLD_MYSQL)


@pytest.mark.parametrize(
    ("number", "said"),
    [(1123, _COORDINATOR), (1041, _OUT_OF_MEMORY), (1041, _OUT_OF_MEMORY_TOO), (1305, _NO_FUNCTION)],
)
def test_a_function_of_a_library_is_told_as_one(number: int, said: str) -> None:
    told = refusal(number, said)
    assert isinstance(told, VerificationError)
    assert "needs a function that the restored server does not have" in told.message
    assert "CREATE FUNCTION … SONAME" in told.hint


def test_of_mysql_the_worker_is_asked_whose_error_it_was() -> None:
    """The coordinator only says that there was one, and where."""
    assert "CREATE FUNCTION metaphon RETURNS STRING SONAME" in refusal(1123, _COORDINATOR).message
    assert "Coordinator stopped" in refusal(1062, _COORDINATOR).message, "what is told is better than nothing"


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
        "CREATE DEFINER=`root`@`localhost` FUNCTION f(a INT) RETURNS INT RETURN 1",
        "CREATE VIEW v AS SELECT 'drop function' AS v",
        "DROP TABLE t /* function */",
    ],
)
def test_memory_that_ran_out_is_still_told_as_that(query: str) -> None:
    told = refusal(1041, f"Error 'Out of memory.' on query. Default database: 't'. Query: '{query}'")
    assert isinstance(told, Undecided)
    assert "ran out of resources" in told.message


def test_a_procedure_that_is_missing_is_no_function() -> None:
    said = "Error 'PROCEDURE t.p does not exist' on query. Default database: 't'. Query: 'DROP PROCEDURE p'"
    assert "needs a function" not in refusal(1305, said).message
