"""What a server logs as statements means times of its own zone: it is applied in that one, wherever that is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.server import MysqlServer
from backupd.vocabulary.errors import ExitStatus
from tests.archive_site import Rows, Site, rows_of, started_on
from tests.contract.mariadb import MariadbServer, mariadb, wait_until

pytestmark = pytest.mark.thorough


@contextmanager
def server_in(zone: str) -> Iterator[MariadbServer]:
    """One whose process goes by that zone, while we go by that of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        with mariadb("--binlog-format=MIXED") as server:
            patch.delenv("TZ")
            yield server


def written(site: Site) -> Rows:
    """What the server has, after a backup and statements that mean times of its zone: all of it is archived.

    DDL is logged as a statement in every format; on 2026-11-01 New York's clocks are put back at 06:00 UTC.
    """
    with site.server.session() as root:
        root.execute("CREATE TABLE t.hours (id INT PRIMARY KEY AUTO_INCREMENT, at TIMESTAMP NULL)")
        root.execute("CREATE TABLE t.days (id INT PRIMARY KEY AUTO_INCREMENT, at DATETIME)")
        for hour in range(3, 9):
            root.execute(f"SET SESSION timestamp = {1793491200 + hour * 3600}")  # 2026-11-01 00:00 UTC and later
            root.execute("INSERT INTO t.hours (at) VALUES (NOW())")
    site.back_up()
    with site.archiving():
        with site.server.session() as root:
            root.execute("INSERT INTO t.days (at) VALUES (NOW())")
            root.execute("INSERT INTO t.days (at) SELECT at FROM t.hours")
            root.execute("ALTER TABLE t.hours MODIFY at DATETIME")
            executed, rows = binlog_source(root).gtid, rows_of(root)
        wait_until(lambda: site.stored(executed))
    return rows


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", pytest.param("America/New_York", marks=pytest.mark.matrix)])
def test_a_moment_has_the_times_of_the_server_where_the_host_goes_by_another_zone(tmp_path: Path, zone: str) -> None:
    with server_in(zone) as server:
        site = Site(tmp_path, server)
        rows = written(site)
        done = site.run("restore", "--to", str(tmp_path / "to"), "--to-latest")
        assert "time zone" not in done.stderr
        with started_on(tmp_path / "to") as restored, restored.session() as root:
            assert rows_of(root) == rows
        assert "proven" in site.run("drill", "--to-latest").stdout


def test_a_zone_that_has_no_name_is_told_and_nothing_is_proven_until_somebody_names_it(tmp_path: Path) -> None:
    rule = "EST5EDT,M3.2.0,M11.1.0"  # for all years: so it is in no zone's history
    with server_in(rule) as server:
        site = Site(tmp_path, server)
        rows = written(site)
        told = "the time zone of the server that wrote the log is not known"
        guessed = ("restore", "--to", str(tmp_path / "guessed"), "--to-latest")
        assert told in site.run(*guessed, expect=ExitStatus.ATTENTION).stderr
        scrub = tmp_path / "scrub.sql"
        scrub.write_text("DELETE FROM t.days;\n")
        clone = ("clone", "--to", str(tmp_path / "clone"), "--scrub", str(scrub), "--to-latest")
        assert told in site.run(*clone, expect=ExitStatus.ATTENTION).stderr
        undecided = site.run("drill", "--to-latest", expect=ExitStatus.UNDECIDED).stderr
        assert told in undecided
        assert "name that time zone by TZ=ZONE" in undecided
        assert told not in site.run("restore", "--to", str(tmp_path / "to"), "--to-latest", TZ=rule).stderr
        with started_on(tmp_path / "to") as restored, restored.session() as root:
            assert rows_of(root) == rows


@pytest.mark.parametrize("how", ["by name", "a copied file"])
def test_the_zone_of_a_server_is_recorded_however_it_was_told(tmp_path: Path, how: str) -> None:
    rules = Path("/usr/share/zoneinfo/America/New_York")
    copied = tmp_path / "localtime"
    copied.write_bytes(rules.read_bytes())
    with server_in("America/New_York" if how == "by name" else f":{copied}") as server:
        settings = MysqlServer(server.connect()).facts().settings
        assert (settings["system_zone"], settings["time_zone"]) == ("America/New_York", "SYSTEM")
        with server.session() as root:
            root.execute("SET GLOBAL time_zone = '+05:30'")
            assert binlog_source(root).origin.zone == "America/New_York"
