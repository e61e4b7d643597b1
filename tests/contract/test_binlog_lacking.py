"""A log that lacked changes for a while: the chain ends, durably, and no backup is rolled forward over that."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.session import StatementError
from tests.archive_site import Site, rows_of, started_on
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.contract.test_binlog_archive import gaps, stored, write
from tests.contract.test_binlog_failover import Pair, follow, listening, pair, stop_following
from tests.servers.ports import free_port

NOT_LOGGED = "changes were not logged: "


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with mariadb() as server:
        yield Site(tmp_path, server)


@dataclass
class Switched:
    """A pair of which the source logs only what it does not get from others, and the port of the replica."""

    pair: Pair
    port: int

    def back(self) -> None:
        """It has got what the other wrote, and is the source again."""
        write(self.pair.replica)
        wait_until(lambda: position(self.pair.source, "slave") == position(self.pair.replica, "binlog"))
        stop_following(self.pair.source)

    def over(self) -> None:
        """What the source was is a replica of its replica."""
        wait_until(self.pair.caught_up)
        stop_following(self.pair.replica)
        follow(self.pair.source, self.pair.replica, self.port)


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[Switched]:
    port = free_port()
    with pair(tmp_path, *listening(port), of_source=["--skip-log-slave-updates"]) as found:
        yield Switched(found, port)


def position(server: MariadbServer, which: str) -> str:
    with server.session() as root:
        return root.value(f"SELECT @@GLOBAL.gtid_{which}_pos") or ""


def restarted(server: MariadbServer, *options: str) -> None:
    server.stop()
    server.start(*options)


def write_unseen(server: MariadbServer) -> None:
    with server.session() as root:
        root.execute("USE t")
        root.execute("INSERT INTO innodb (v) VALUES ('not logged')")


def require_not_for_what_was(site: Site, folder: Path) -> None:
    """What is archived now belongs to no backup from before."""
    last = write(site.server)
    wait_until(lambda: site.stored(last))
    refused = site.run("restore", "--to", str(folder / "no"), "--to-gtid", last, expect=2)
    assert "cannot be restored" in refused.stderr


def require_anew(site: Site, folder: Path) -> None:
    """What is archived now belongs to no backup from before, and to the next one."""
    require_not_for_what_was(site, folder)
    site.back_up("r2")
    last = write(site.server)
    wait_until(lambda: site.stored(last))
    site.run("restore", "--to", str(folder / "yes"), "--to-gtid", last)
    with started_on(folder / "yes") as server, server.session() as root, site.server.session() as there:
        assert rows_of(root) == rows_of(there)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--skip-log-bin",), "the server's binlog is off"),
        pytest.param(("--binlog-ignore-db=t",), "Binlog_Ignore_DB is set", marks=pytest.mark.matrix),
    ],
)
def test_what_a_server_did_not_log_for_a_while_is_a_gap(
    site: Site, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    site.back_up()
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        restarted(site.server, *options)
        wait_until(lambda: bool(gaps(site)))
    write_unseen(site.server)
    restarted(site.server)
    with site.archiving():
        require_anew(site, tmp_path)
    assert [gap[: len(NOT_LOGGED + reason)] for gap in gaps(site)] == [NOT_LOGGED + reason]
    assert len({segment.chain for segment, _ in stored(site)}) == 2
    assert "archived again from" in site.run("binlog", "list", "nightly").stdout


def test_before_anything_was_archived_too_a_log_that_lacked_changes_is_remembered(site: Site, tmp_path: Path) -> None:
    site.back_up()
    restarted(site.server, "--binlog-ignore-db=t")
    with site.archiving(refused=True):
        wait_until(lambda: bool(gaps(site)))
    write_unseen(site.server)
    restarted(site.server)
    with site.archiving():
        require_not_for_what_was(site, tmp_path)
    assert len(gaps(site)) == 1


def test_a_server_that_turned_its_log_off_by_itself_is_a_gap(tmp_path: Path) -> None:
    with mariadb() as server:
        elsewhere = server.folder / "logs"
        elsewhere.mkdir()
        restarted(server, f"--log-bin={elsewhere}/bin")
        site = Site(tmp_path, server)
        with site.archiving():
            last = write(server)
            wait_until(lambda: site.stored(last))
            shutil.move(elsewhere, server.folder / "gone")  # the next file cannot be made, as on a full disk
            with server.session() as root, pytest.raises(StatementError):
                root.execute("FLUSH BINARY LOGS")
            with server.session() as root:
                assert binlog_source(root).end is None
            wait_until(lambda: bool(gaps(site)))
        assert gaps(site) == [f"{NOT_LOGGED}the server's binlog is off"]


def test_events_that_a_server_could_not_log_are_a_gap(site: Site, tmp_path: Path) -> None:
    site.back_up()
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        with site.server.session() as root:
            root.execute("SET GLOBAL max_binlog_stmt_cache_size = 4096")
        with site.server.session() as root, pytest.raises(StatementError):
            root.execute("SET SESSION binlog_format = 'ROW'")
            root.execute("INSERT INTO t.myisam (v) SELECT REPEAT('x', 1000) FROM t.seq_1_to_100")
        wait_until(lambda: site.connections() > 1)
        require_not_for_what_was(site, tmp_path)
    [reason] = gaps(site)
    assert reason.startswith(f"{NOT_LOGGED}the server lost events, as it noted at bin.")


def test_a_switchover_to_another_server_and_back_is_a_gap_where_nobody_was_disconnected(
    switched: Switched, tmp_path: Path
) -> None:
    site = switched.pair.site
    site.back_up()
    with site.archiving():
        last = write(switched.pair.source)
        wait_until(lambda: site.stored(last))
        begun = site.connections()
        switched.over()
        wait_until(lambda: bool(gaps(site)))
        switched.back()
        wait_until(lambda: site.connections() > begun)
        require_anew(site, tmp_path)
    assert len(gaps(site)) == 1
    assert gaps(site)[0].startswith(f"{NOT_LOGGED}the server is a replica and log_slave_updates is off")


def test_what_a_server_was_sent_while_nobody_received_is_told_by_its_gtids(switched: Switched, tmp_path: Path) -> None:
    site = switched.pair.site
    site.back_up()
    with site.archiving():
        last = write(switched.pair.source)
        wait_until(lambda: site.stored(last))
    switched.over()
    switched.back()
    with site.archiving():
        wait_until(lambda: bool(gaps(site)))
        require_not_for_what_was(site, tmp_path)
    begun = site.connections()
    with site.archiving():
        wait_until(lambda: site.connections() > begun)
        last = write(switched.pair.source)
        wait_until(lambda: site.stored(last))
    assert len(gaps(site)) == 1
    assert "0-8-" in gaps(site)[0]
