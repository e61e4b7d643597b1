"""A backup without a lock: refused while a table needs one, and then good, with a position that the drill finds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab.inside.host import GATE_OFF, Changes, Host, tool

UNLOCKED: Changes = {**GATE_OFF, "jobs.nightly.lock.strategy": "none"}
REFUSED = 5


def other_engines(host: Host) -> list[str]:
    """Everybody's tables that are not InnoDB's."""
    rows = host.sql(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND engine NOT IN ('InnoDB', 'MEMORY') AND table_schema NOT IN"
        " ('mysql', 'sys', 'information_schema', 'performance_schema')"
    )
    return [row[0] for row in rows]


@contextmanager
def myisam(host: Host) -> Iterator[None]:
    host.sql("CREATE TABLE IF NOT EXISTS sbtest.torn (n INT) ENGINE = MyISAM")
    try:
        yield
    finally:
        host.sql("DROP TABLE sbtest.torn")


@pytest.fixture(scope="module")
def innodb_only(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The lab's own tables of other engines are gone, and who writes to them is told so by the server."""
    host = Host(tmp_path_factory.mktemp("unlocked"))
    for table in other_engines(host):
        host.sql(f"DROP TABLE {table}")
    host.backupd("identity", "adopt", "--yes")  # the refusals led the target elsewhere, where it was written last
    return host


def test_it_is_refused_while_a_table_is_not_innodbs(innodb_only: Host) -> None:
    with myisam(innodb_only):
        document = innodb_only.fails(UNLOCKED, status=REFUSED, says="may be inconsistent: sbtest/torn (MyISAM)")
    assert "ENGINE = InnoDB" in document["error"]["hint"]
    innodb_only.nothing_left()


def test_nobody_waits_and_the_drill_finds_where_the_server_stood(innodb_only: Host) -> None:
    host = innodb_only
    run = host.backupd("run", "nightly", "--json", changes=UNLOCKED).document
    assert (run["lock"]["strategy"], run["phases"]["lock_wait"], run["phases"]["lock_hold"]) == ("none", 0.0, 0.0)
    assert run["position"]["binlog_offset"] is None
    host.nothing_left()
    drill = host.backupd("drill", run["run_id"], "--json").document
    assert [check for check in drill["checks"] if not check["ok"]] == []
    assert {"binlog position", "gtid", "redo log", "canary", "tables"} <= {check["name"] for check in drill["checks"]}
    found = host.backupd("show", run["run_id"], "--json").document["position"]
    assert found == {**drill["position"], "derived": True}
    assert found["binlog_file"] == run["position"]["binlog_file"]
    assert_the_binlog_agrees(host, found)
    assert "(found by the drill)" in host.backupd("show", run["run_id"]).stdout


def assert_the_binlog_agrees(host: Host, found: dict[str, Any]) -> None:
    """The live server's binlog has that GTID at that offset, and an event begins there."""
    file, offset = found["binlog_file"], found["binlog_offset"]
    [[gtid]] = host.sql(f"SELECT BINLOG_GTID_POS({json.dumps(file)}, {offset})")
    assert gtid == found["gtid"]
    folder = host.sql("SELECT @@log_bin_basename")[0][0].rpartition("/")[0]
    told = tool("mariadb-binlog", f"--start-position={offset}", f"--stop-position={offset + 1}", f"{folder}/{file}")
    assert "ERROR" not in told
