"""What a restored server must say to be a proof, and what it may say besides."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from backupd.mysql.canary import canary_check
from backupd.mysql.proof import (
    Recovered,
    TableResult,
    position_checks,
    recovered,
    require_whole,
    table_results,
    tables_check,
)
from backupd.mysql.session import Row, Session
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import ServerError, Undecided
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour, Position
from tests.fakes.server import FACTS
from tests.unit.test_seeding import MARIADB

MYSQL = replace(FACTS, flavour=Flavour.MYSQL)
LOGS = Path(__file__).parents[1] / "data" / "mysql"

RECORDED = Position("bin.000009", 5000, "0-7-41,1-7-3")
FOUND = Recovered(binlog_size=5000, gtid="1-7-3,0-7-41", innodb_binlog=("bin.000009", 4800), lsn=900, prepared=0)


class Answers:
    """A session that answers from a table."""

    def __init__(self, answers: dict[str, list[Row]]) -> None:
        self.answers = answers

    def query(self, statement: str) -> list[Row]:
        return self.answers[statement]

    def value(self, statement: str) -> str | None:
        return next(iter(self.answers[statement][0].values()))


def checks_of(
    found: Recovered, recorded: Position = RECORDED, *, lsn: int | None = 900, **told: Any
) -> tuple[Check, ...]:
    return position_checks(replace(MARIADB, position=recorded, lsn=lsn, **told), found)


def failed(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def test_the_recorded_position_passes_whatever_the_order_of_its_gtids() -> None:
    assert failed(checks_of(FOUND, RECORDED, lsn=900)) == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"binlog_size": 4999}, "binlog position"),
        ({"binlog_size": None}, "binlog position"),
        ({"gtid": "0-7-41"}, "gtid"),
        ({"gtid": "0-7-42,1-7-3"}, "gtid"),
        ({"gtid": None}, "gtid"),
        ({"innodb_binlog": ("bin.000009", 5001)}, "innodb's last commit"),
        ({"innodb_binlog": ("bin.000010", 4)}, "innodb's last commit"),
        ({"lsn": 899}, "redo log"),
        ({"lsn": None}, "redo log"),
    ],
)
def test_each_difference_is_one_failed_check(wrong: dict[str, object], name: str) -> None:
    found = replace(FOUND, **wrong)  # type: ignore[arg-type]
    assert failed(checks_of(found, RECORDED, lsn=900)) == [name]


def test_innodbs_last_commit_in_another_log_decides_nothing() -> None:
    """As of a replica that logs nothing of its own and was made of a source; with a canary its own log has the last."""
    replica = replace(MARIADB.server, is_replica=True, settings={**MARIADB.server.settings, "log_slave_updates": "OFF"})
    ahead = replace(FOUND, innodb_binlog=("bin.000051", 5120))
    assert failed(checks_of(ahead, canary=None)) == ["innodb's last commit"]
    assert failed(checks_of(ahead, canary="backupd_canary.canary", server=replica)) == ["innodb's last commit"]
    for told, server in ((ahead, replica), (replace(FOUND, innodb_binlog=("source.000010", 4)), MARIADB.server)):
        checks = checks_of(told, canary=None, server=server)
        assert failed(checks) == []
        assert any(check.found.endswith(", of another log") for check in checks)


def test_innodbs_last_commit_may_lie_in_an_earlier_binlog_and_may_be_none() -> None:
    for earlier in (("bin.000008", 999_999), None):
        assert failed(checks_of(replace(FOUND, innodb_binlog=earlier), RECORDED, lsn=900)) == []


def test_a_server_without_binlog_leans_on_the_lsn() -> None:
    found = Recovered(None, None, None, 900, 0)
    checks = {check.name: check for check in checks_of(found, Position(), lsn=901)}
    assert checks["binlog position"].found == "no position"
    assert not checks["redo log"].ok
    assert failed(checks_of(found, Position(), lsn=None)) == []


def test_a_prepared_transaction_is_told_and_no_fault() -> None:
    (check,) = (c for c in checks_of(replace(FOUND, prepared=2), RECORDED, lsn=1) if "prepared" in c.name)
    assert check.ok
    assert check.found.startswith("2, waiting")


BINLOGS: list[Row] = [
    {"Log_name": "bin.000001", "File_size": "16170154"},
    {"Log_name": "bin.000002", "File_size": "336"},
]
MARIADB_ANSWERS: dict[str, list[Row]] = {
    "SELECT @@global.gtid_binlog_pos": [{"gtid": "0-7-60397"}],
    "SHOW BINARY LOGS": BINLOGS,
    "XA RECOVER": [],
}
MYSQL_ANSWERS: dict[str, list[Row]] = {
    "SELECT @@global.gtid_executed": [{"gtid": "ce07eaf4-e5b7-11f1-9501-02fc00000001:1-9849"}],
    "SHOW BINARY LOGS": BINLOGS,
    "XA RECOVER": [],
}


def test_mariadbs_error_log_of_a_recovery_tells_innodbs_position_and_the_end_of_its_log() -> None:
    recorded = Position("bin.000001", 16170154, "0-7-60397")
    log = (LOGS / "recovery-10.11.19.log").read_text()
    found = recovered(cast(Session, Answers(MARIADB_ANSWERS)), recorded, log, facts=FACTS)
    assert found == Recovered(16170154, "0-7-60397", ("bin.000001", 13352736), 491489061, 0)


def test_mysqls_tells_how_far_its_log_was_scanned_and_of_innodbs_position_nothing() -> None:
    recorded = Position("bin.000002", 336, "ce07eaf4-e5b7-11f1-9501-02fc00000001:1-9849")
    log = (LOGS / "recovery-9.7.4.log").read_text()
    found = recovered(cast(Session, Answers(MYSQL_ANSWERS)), recorded, log, facts=MYSQL)
    assert found == Recovered(336, "ce07eaf4-e5b7-11f1-9501-02fc00000001:1-9849", None, 38878468, 0)
    names = [check.name for check in checks_of(found, recorded, lsn=1)]
    assert names == ["binlog position", "gtid", "redo log", "prepared transactions"]


def test_the_header_of_mysqls_encrypted_binlog_is_no_part_of_its_position() -> None:
    facts = replace(MYSQL, settings={"binlog_encryption": "ON"})
    recorded = Position("bin.000001", 16170154 - 512, "ce07eaf4-e5b7-11f1-9501-02fc00000001:1-9849")
    found = recovered(cast(Session, Answers(MYSQL_ANSWERS)), recorded, "", facts=facts)
    assert found.binlog_size == recorded.binlog_offset


def test_an_idle_mysql_has_nothing_to_scan_and_tells_the_checkpoint() -> None:
    log = "[Note] [MY-013883] [InnoDB] The latest found checkpoint is at lsn = 19619402 in redo log file a.\n"
    found = recovered(cast(Session, Answers(MYSQL_ANSWERS)), Position(), log, facts=MYSQL)
    assert found.lsn == 19619402


def test_the_canary_proves_both_sides() -> None:
    assert canary_check(("before",)).ok
    assert not canary_check(("before", "after")).ok
    assert not canary_check(("after",)).ok
    assert canary_check(()).found == "no row"


def row(table: str, kind: str, text: str) -> Row:
    return {"Table": table, "Op": "check", "Msg_type": kind, "Msg_text": text}


def test_a_table_is_ok_only_when_check_table_says_so() -> None:
    results = list(
        table_results(
            [
                row("a.ok", "status", "OK"),
                row("a.warned", "warning", "1 client is using or hasn't closed the table properly"),
                row("a.warned", "status", "OK"),
                row("a.memory", "note", "The storage engine for the table doesn't support check"),
                row("a.broken", "error", "Size of datafile is: 28  Should be: 40"),
                row("a.broken", "error", "Corrupt"),
                row("a.silent", "warning", "Found row where the auto_increment column has the value 0"),
            ]
        )
    )
    assert [result.table for result in results if result.ok] == ["a.ok", "a.warned", "a.memory"]
    check = tables_check(results)
    assert not check.ok
    assert check.expected == "5 tables OK"
    assert "a.broken: error: Size of datafile" in check.found


VERDICTS = [
    ("error", "Corrupt"),
    ("error", "Unknown - internal error 5 during operation"),
    ("error", "Unknown - internal error -4 during operation"),
    ("error", "Unknown - internal error 28 during operation"),
    ("status", "Operation failed"),
]


@pytest.mark.parametrize(
    "text",
    [
        'Got error 28 "No space left on device" from storage engine InnoDB',
        "Got error 28 from storage engine",
        "Can't create/write to file '/tmp/MYfd=4' (Errcode: 28 \"No space left on device\")",
        "Out of memory; restart server and try again (needed 65552 bytes)",
    ],
)
def test_a_table_that_the_server_has_no_room_or_memory_to_check_is_not_called_damaged(text: str) -> None:
    for verdict in VERDICTS:
        for kind in ("Error", "Warning"):
            rows = [row("a.ok", "status", "OK"), row("a.large", kind, text), row("a.large", *verdict)]
            with pytest.raises(Undecided, match=r"ran out of resources while it checked a\.large: ") as undecided:
                tables_check(table_results(rows))
            assert undecided.value.hint


def test_damage_that_was_found_before_the_server_ran_out_of_memory_is_an_answer() -> None:
    gone = row("b.large", "Error", "Out of memory; restart server and try again (needed 65552 bytes)")
    check = tables_check(table_results([row("a.broken", "error", "Corrupt"), gone]))
    assert (check.ok, check.expected) == (False, "1 tables OK")
    assert check.found.startswith("a.broken: error: Corrupt; not all were checked: the server ran out of resources ")

    def dying() -> Iterator[TableResult]:
        yield TableResult("a.broken", ok=False, text="error: Corrupt")
        raise ServerError("the session with the server ended")

    assert "not all were checked: the session with the server ended" in tables_check(dying()).found


def test_a_table_of_which_an_error_tells_damage_is_damaged_whatever_limit_another_one_tells() -> None:
    told = ("Size of datafile is: 28  Should be: 40", "Got error 28 from storage engine", "Corrupt")
    (result,) = table_results([row("a.broken", "error", text) for text in told])
    assert not result.ok


def test_damage_that_innodb_tells_in_a_warning_is_damage_whatever_limit_another_one_tells() -> None:
    told = ("InnoDB: The B-tree of index PRIMARY is corrupted.", "Got error 28 from storage engine")
    warned = [row("a.broken", "Warning", text) for text in told]
    for verdict in VERDICTS[:3]:
        (result,) = table_results([*warned, row("a.broken", *verdict)])
        assert not result.ok


REBUILD = 'Table rebuild required. Please do "ALTER TABLE `u` FORCE" or dump/reload to fix it!'  # MariaDB 10.11.19
OUTDATED = [
    REBUILD,
    'Upgrade required. Please do "REPAIR TABLE `u`" or dump/reload to fix it!',
    'Table upgrade required. Please do "REPAIR TABLE `u`" or dump/reload to fix it!',  # MySQL's
]


@pytest.mark.parametrize("text", OUTDATED)
def test_a_table_that_an_earlier_server_made_is_told_as_not_checked_and_not_as_damaged(text: str) -> None:
    check = tables_check(table_results([row("a.ok", "status", "OK"), row("a.u", "error", text)]))
    assert (check.ok, check.expected) == (True, "2 tables OK")
    assert check.found == f"1 tables OK; not checked: a.u: error: {text}"


def test_what_is_wrong_with_a_table_that_an_earlier_server_made_is_damage_and_none_but_such_is_no_proof() -> None:
    outdated = row("a.u", "error", REBUILD)
    for other in (row("a.u", "warning", "Table is marked as crashed"), row("a.u", "error", "Corrupt")):
        assert not tables_check(table_results([row("a.ok", "status", "OK"), other, outdated])).ok
    assert not tables_check(table_results([outdated])).ok


def test_a_table_that_an_earlier_server_made_is_restored(caplog: pytest.LogCaptureFixture) -> None:
    class Checking:
        def query(self, statement: str) -> list[Row]:
            assert statement == "CHECK TABLE `a`.`u` MEDIUM"
            return [row("a.u", "error", REBUILD)]

    require_whole(cast(Session, Checking()), Table("a", "u"), "a.u in this backup")
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("a.u in this backup could not be checked: error: Table rebuild required.")


def test_a_table_whose_engine_has_no_check_is_told_as_not_checked() -> None:
    text = "The storage engine for the table doesn't support check"
    check = tables_check(table_results([row("a.ok", "status", "OK"), row("a.merged", "note", text)]))
    assert (check.ok, check.found) == (True, f"1 tables OK; not checked: a.merged: note: {text}")
    assert not tables_check(table_results([row("a.merged", "note", text)])).ok


def test_no_table_at_all_is_no_proof() -> None:
    assert not tables_check([]).ok


def test_many_damaged_tables_are_told_in_few_words() -> None:
    check = tables_check([TableResult(f"a.t{n}", ok=False, text="error: Corrupt") for n in range(9)])
    assert check.found.endswith("and 4 more")


def test_a_mariadb_that_does_not_tell_the_end_of_its_log_tells_it_as_it_has_started() -> None:
    log = (
        "2023-12-30 16:33:08 0 [Note] InnoDB: Starting crash recovery from checkpoint LSN=868446261,868446261\n"
        "2023-12-30 16:33:08 0 [Note] InnoDB: 10.6.12 started; log sequence number 868468759; transaction id 3268687\n"
    )
    found = recovered(cast(Session, Answers(MARIADB_ANSWERS)), Position(), log, facts=FACTS)
    assert found.lsn == 868468759
    assert failed(checks_of(found, Position(), lsn=868468700)) == []
