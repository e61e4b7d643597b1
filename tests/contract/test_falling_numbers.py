"""Two servers write into one of MariaDB's domains, and its numbers fall: what a GTID leads to then, what does not."""

from pathlib import Path

import pytest

from backupd.mysql.binlog.source import binlog_source
from tests.archive_site import Site, rows_of, started_on
from tests.contract.mariadb import mariadb, wait_until

pytestmark = pytest.mark.thorough


def test_a_gtid_behind_a_higher_number_is_refused_with_the_reason_and_its_place_leads_there(tmp_path: Path) -> None:
    with mariadb("--gtid-strict-mode=OFF") as server:
        site = Site(tmp_path, server)
        with server.session() as root:
            root.execute("SET SESSION gtid_seq_no = 101")
            root.execute("INSERT INTO t.innodb (v) VALUES ('0-7-101')")
        site.back_up()
        with site.archiving(), server.session() as root:
            root.execute("SET SESSION server_id = 2, gtid_seq_no = 100")
            root.execute("INSERT INTO t.innodb (v) VALUES ('0-2-100')")
            there, rows = binlog_source(root), rows_of(root)
            root.execute("INSERT INTO t.innodb (v) VALUES ('0-2-102')")
            wait_until(lambda: site.stored(binlog_source(root).gtid))
        assert there.gtid == "0-2-100"
        assert there.end is not None
    refused = site.run("restore", "--to", str(tmp_path / "to"), "--to-gtid", there.gtid, expect=2)
    assert "GTID 0-2-100 cannot be restored" in refused.stderr
    assert "several servers wrote to GTID domain 0" in refused.stderr
    place = f"{there.end.file}:{there.end.offset}"
    site.run("restore", "--to", str(tmp_path / "to"), "--to-position", place)
    with started_on(tmp_path / "to") as restored, restored.session() as root:
        assert rows_of(root) == rows
