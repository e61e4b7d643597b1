"""Tables of every engine come back as they were; those that a copy would share with the live server are refused.

The lab's server is of either kind: `LAB_SERVER` says which.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.loading_schema import LOADING
from backupd.mysql.scratch import ScratchServer
from backupd.policy import manifest
from tests.lab.inside.host import GATE_OFF, SITE, Changes, Host

REFUSED, UNPROVEN = 5, 9
MYSQL = os.environ.get("LAB_SERVER", "mariadb-10.11").startswith("mysql")

_ENDLESS = "SELECT BENCHMARK(4000000000, SHA2('nothing', 512))"
_EVERYWHERE = """
CREATE TABLE engines.innodb (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE = InnoDB;
CREATE TABLE engines.compressed (id INT PRIMARY KEY, v TEXT) ENGINE = InnoDB ROW_FORMAT = COMPRESSED;
CREATE TABLE engines.myisam (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE = MyISAM;
CREATE TABLE engines.csv (id INT NOT NULL, v VARCHAR(100) NOT NULL) ENGINE = CSV;
CREATE TABLE engines.parts (id INT PRIMARY KEY, v TEXT) ENGINE = InnoDB PARTITION BY HASH (id) PARTITIONS 3;
CREATE TABLE engines.`odd #name/x` (id INT PRIMARY KEY, v TEXT) ENGINE = InnoDB;
"""
_OF_MARIADB = """
CREATE TABLE engines.aria (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE = Aria TRANSACTIONAL = 1;
CREATE TABLE engines.aria_plain (id INT PRIMARY KEY, v TEXT) ENGINE = Aria TRANSACTIONAL = 0;
CREATE TABLE engines.myisam_parts (id INT PRIMARY KEY, v TEXT) ENGINE = MyISAM PARTITION BY HASH (id) PARTITIONS 3;
"""
_OF_MYSQL = """
CREATE TABLESPACE engines_general ADD DATAFILE 'engines_general.ibd';
CREATE TABLE engines.general (id INT PRIMARY KEY, v TEXT) TABLESPACE engines_general;
"""
OWN_CHECKS: Changes = {
    "jobs.nightly.drill.checks.rows": {"sql": "SELECT COUNT(*) FROM engines.innodb", "equals": "1000"},
    "jobs.nightly.drill.checks.ids": {"sql": "SELECT MAX(id) FROM engines.myisam", "at_least": 999, "at_most": 999},
    "jobs.nightly.drill.checks.clock": {"sql": "SELECT MAX(at) FROM backupd_canary.canary", "newer_than": "1h"},
}
WRONG_CHECKS: Changes = {
    "jobs.nightly.drill.checks.few": {"sql": "SELECT COUNT(*) FROM engines.innodb", "at_most": 999},
    "jobs.nightly.drill.checks.slow": {"sql": _ENDLESS, "equals": "0", "timeout": "2s"},
    "jobs.nightly.drill.checks.writes": {"sql": "DELETE FROM engines.innodb", "equals": "0"},
}


@pytest.fixture
def engines(host: Host) -> Iterator[list[str]]:
    """A schema with a table of each engine, a thousand rows in each; their names."""
    digits = "SELECT 0 AS d" + "".join(f" UNION SELECT {digit}" for digit in range(1, 10))
    host.sql(f"CREATE DATABASE engines; {_EVERYWHERE} {_OF_MYSQL if MYSQL else _OF_MARIADB}")
    try:
        tables = [name for (name,) in host.sql("SHOW TABLES FROM engines")]
        number = "100 * a.d + 10 * b.d + c.d"
        for table in tables:
            rows = f"SELECT {number}, SHA2({number}, 256) FROM ({digits}) a, ({digits}) b, ({digits}) c"
            host.sql(f"USE engines; INSERT INTO `{table}` {rows}")  # MySQL wants one for derived tables
        yield tables
    finally:
        host.sql("DROP DATABASE engines" + ("; DROP TABLESPACE engines_general" if MYSQL else ""))


def test_the_tables_of_every_engine_come_back_and_are_proved(host: Host, engines: list[str]) -> None:
    run = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document
    drilled = host.backupd("drill", run["run_id"], "--json", changes=OWN_CHECKS).document
    assert [check for check in drilled["checks"] if not check["ok"]] == []
    assert {f"checks.{name}" for name in ("rows", "ids", "clock")} < {check["name"] for check in drilled["checks"]}
    checksums = f"CHECKSUM TABLE {', '.join(f'engines.`{name}`' for name in engines)}"
    live = dict(host.sql(checksums))
    assert len(set(live)) == len(engines) >= 7
    assert "0" not in live.values()
    restored = SITE.state / "engines"  # the machine's /tmp is memory
    host.backupd("restore", run["run_id"], "--to", str(restored))
    try:
        stored = manifest.from_text((Path(run["backup"]["location"]) / "manifest.json").read_text())
        with ScratchServer(restored, stored).running() as server:
            found = {row["Table"]: row["Checksum"] for row in server.session.query(checksums)}
    finally:
        shutil.rmtree(restored)
    assert found == live


def test_tables_of_a_backup_are_loaded_into_the_running_server_under_a_new_schema(
    host: Host, engines: list[str]
) -> None:
    names = ["csv", "innodb", "myisam", *(["compressed", "odd #name/x", "parts"] if MYSQL else ["aria"])]
    (account,) = host.sql("SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE user = 'backupd'")[0]
    grants = {
        f"`{LOADING}%`".replace("_", r"\_"): "SELECT, INSERT, CREATE, ALTER, DROP",
        "restored": "SELECT, INSERT, CREATE",
        "engines": "SELECT",
    }
    run = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
    wanted = [word for name in names for word in ("--tables", f"engines.`{name}`")]
    into = ("restore", run, *wanted, "--into", "lab", "--as", "restored")
    assert "it lacks SELECT, INSERT, CREATE, ALTER, DROP ON" in host.backupd(*into, expect=REFUSED).stderr
    host.sql("; ".join(f"GRANT {privileges} ON {schema}.* TO {account}" for schema, privileges in grants.items()))
    changed = ("innodb", "myisam")
    for name in changed:
        host.sql(f"DELETE FROM engines.{name} WHERE id = 7; UPDATE engines.{name} SET v = 'another' WHERE id < 5")
    try:
        told = host.backupd(*into).stdout
        live, loaded = (
            {name: host.sql(f"CHECKSUM TABLE {schema}.`{name}`")[0][1] for name in names}
            for schema in ("engines", "restored")
        )
        assert {name for name in names if loaded[name] != live[name]} == {*changed}
        assert host.sql(f"SHOW DATABASES LIKE '{LOADING}%'") == []
        host.sql("DROP DATABASE restored")
    finally:
        host.sql(
            "; ".join(f"REVOKE {privileges} ON {schema}.* FROM {account}" for schema, privileges in grants.items())
        )
    assert "its key (id): 1 rows only in the backup, 0 only in the live table, 5 in both and changed" in told
    assert "INSERT INTO `engines`.`innodb`" in told
    assert "clients that write to the live table (MyISAM) would have to wait for it" in told


def test_a_jobs_own_checks_fail_alone_and_in_time(host: Host, engines: list[str]) -> None:
    run = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
    ended = host.backupd("drill", run, "--json", changes=WRONG_CHECKS, expect=UNPROVEN)
    wrong = {check["name"]: check["found"] for check in ended.document["checks"] if not check["ok"]}
    assert set(wrong) == {"checks.few", "checks.slow", "checks.writes"}
    assert (wrong["checks.few"], wrong["checks.slow"]) == ("1000", "no answer within 2s")
    assert "READ ONLY" in wrong["checks.writes"].upper().replace("-", " ")


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """A folder of the server's, for the length of the block."""
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


if MYSQL:

    def test_a_table_in_a_folder_that_was_not_given_to_the_server_cannot_be_made(host: Host) -> None:
        with folder(SITE.state / "elsewhere") as elsewhere, pytest.raises(AssertionError, match="must be in a known"):
            host.sql(f"CREATE TABLE sbtest.elsewhere (id INT PRIMARY KEY) DATA DIRECTORY = '{elsewhere}'")

else:

    @pytest.mark.parametrize(
        ("engine", "parent", "finding"),
        [
            ("InnoDB", SITE.state, "one volume: not on the volume of"),
            ("InnoDB", SITE.mount_point, "data directory: tables with their own DATA DIRECTORY"),
            ("MyISAM", SITE.state, "one volume: not on the volume of"),
            ("MyISAM", SITE.mount_point, "links: absolute symlinks"),
        ],
    )
    def test_a_table_outside_of_the_datadir_is_refused(host: Host, engine: str, parent: Path, finding: str) -> None:
        with folder(parent / "elsewhere") as elsewhere:
            host.sql(
                f"CREATE TABLE sbtest.elsewhere (id INT PRIMARY KEY) ENGINE = {engine} DATA DIRECTORY = '{elsewhere}'"
            )
            try:
                host.fails({}, status=REFUSED, says=finding)
            finally:
                host.sql("DROP TABLE sbtest.elsewhere")
