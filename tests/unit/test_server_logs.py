"""What a server's logs are called, and which files of a copy are none."""

from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from backupd.mysql.relocation import Relocation
from backupd.mysql.server_logs import log_of, logs_doubt
from backupd.operations.restore.scrubbed_clone import _logs
from backupd.vocabulary.servers import ServerFacts
from tests.fakes.server import FACTS

RECORDED = {
    "general_log_file": "/var/log/mysql/queries",
    "slow_query_log_file": "./slow.queries.txt",
    "log_error": "/srv/log/said",
    "server_audit_file_path": "audit/",
    "audit_log_file": "",
    "audit_log_filter.file": "/",
    "sql_error_log_filename": "customers.ibd",
    "innodb_data_file_path": "ibdata1:12M;/srv/system.log:12M;said.2:12M:autoextend",
}
OF_OTHERS = (
    *("customers.ibd", "general", "queries.ibd", "queries.frm", "queriesx", "said@002d1.MYD"),
    *("ibdata1", "ib_logfile0", "ib_buffer_pool", "undo_001", "auto.cnf", "relay-log.info", "aria_log_control"),
    *("slow.queries", "slow", "saidold", "log.csv", "error.csm"),
    *("app.log.ibd", "App.ERR.IBD", "undo.log.ibu", "old.log.MYD", "old.err.csv", "system.log", "said.2"),
    *("ibtmp1", "#ib_redo7", "#ib_redo8_tmp", "aria_log.00000001"),
)


def facts(settings: dict[str, str]) -> ServerFacts:
    return replace(FACTS, settings=settings)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "db1.log",
            "db1-slow.LOG",
            "db1.err",
            "db1.err.00.json",
            "db1-slow.log-20261127.xz",
            "db1.err-old",
            "db1.log~",
        ),
        *("queries.1.zip", "queries.Z", "queries.prev", "queries-1.backup", "queries.tar.lzma"),
        *("queries", "queries.1", "queries.2.gz", "queries-20261130", "queries-2026-11-30_00:00:01.xz", "queries.old"),
        *("slow.queries.txt", "slow.queries-20261130.txt.gz", "slow.queries.txt-20261130-1795910400.gz"),
        *("said", "said.00.json", "said~", "audit", "audit.20261130T101112-1.gz.enc"),
    ],
)
def test_a_log_is_known_by_its_name_also_once_it_was_rotated(name: str) -> None:
    assert log_of(facts(RECORDED))(name, False)


@pytest.mark.parametrize("name", OF_OTHERS)
def test_what_is_called_otherwise_is_no_log(name: str) -> None:
    assert not log_of(facts(RECORDED))(name, False)


IN_THE_DATADIR = ("queries.csv", "QUERIES-20261130.CSV", "core", "core.4711", "core.mysqld.77", "innodb_status.4711")
ANYWHERE = ("queries.csv.1", "queries.csv-20261130.gz", "queries.1.csv")
KEPT = ("spooled.ibd", "spooled.1.ibd", "undo_001", "core.ibd", "core.ibu", "core.1")


def test_a_log_that_is_called_as_a_table_s_file_goes_where_no_table_can_be_and_is_told() -> None:
    named = {"general_log_file": "queries.csv", "slow_query_log_file": "./spooled.ibd", "log_error": "undo_001"}
    recorded = facts({**named, "innodb_data_file_path": "ibdata1:12M;core.1:12M"})
    is_log = log_of(recorded)
    for in_datadir in (True, False):
        told = {name for name in (*IN_THE_DATADIR, *ANYWHERE, *KEPT) if is_log(name, in_datadir)}
        assert told == {*ANYWHERE, *(IN_THE_DATADIR if in_datadir else ())}
    assert "'queries.csv', 'spooled.ibd', 'undo_001'; any that may be such a file is left" in logs_doubt(recorded)


def test_no_name_takes_long() -> None:
    is_log, began = log_of(facts({"log_error": "a" * 60 + ".a", "general_log_file": "a" * 60})), monotonic()
    for part in ("-1", ".1", "_0", "-old", ".gz", ".z", ".zip", "a"):
        assert not is_log("a" * 60 + part * 60 + "!", True)
    assert monotonic() - began < 1


def test_a_backup_that_does_not_tell_their_names_leaves_a_doubt() -> None:
    assert "were not recorded" in logs_doubt(facts({}))
    assert logs_doubt(facts({"general_log_file": "", "log_error": "/var/log/mysql/db1.err"})) == ""


def test_logs_are_found_anywhere_in_the_copy_and_nowhere_else(tmp_path: Path) -> None:
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    logs = {
        "data/logs/slow.log",
        "log/mysqld.err",
        "log/queries-20261130.gz",
        "data/shop/said",
        "data/core",
        "data/core.mysqld.77",
        "queries",
    }
    others = {
        *(f"data/shop/{name}" for name in OF_OTHERS),
        *("data/#rocksdb/000012.log", "data/own/000013.log", "data/.rocksdb/000014.log", "data/shop/core"),
    }
    for path in (*(copy / name for name in logs | others), elsewhere / "queries", elsewhere / "host.log"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SELECT")
    (copy / "data" / "linked").symlink_to(elsewhere)
    (copy / "data" / "host.log").symlink_to(elsewhere / "host.log")
    relocation = Relocation(copy, "data", Path("/srv/mysql/data"))
    found = set(_logs(relocation, relocation.datadir, facts(RECORDED | {"rocksdb_datadir": "./own"})))
    assert {str(path.relative_to(copy)) for path in found} == logs | {"data/host.log"}
    for path in found:
        path.unlink()
    assert {path.name for path in elsewhere.iterdir()} == {"queries", "host.log"}


@pytest.mark.parametrize("rocksdb", [".", "/srv/mysql", "/srv/mysql/data/"])
def test_no_setting_leaves_the_datadir_out(tmp_path: Path, rocksdb: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "host.log").touch()
    relocation = Relocation(tmp_path, "data", Path("/srv/mysql/data"))
    assert list(_logs(relocation, relocation.datadir, facts({"rocksdb_datadir": rocksdb})))
