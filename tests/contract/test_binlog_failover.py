"""The archive of a source and of the replica that takes its place: goes on by GTID, or tells why it cannot."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.mysql.binlog.promoted import promoted_server
from backupd.mysql.binlog.source import binlog_source
from backupd.operations.binlog.archive_preflight import of_log
from backupd.policy import gtid
from backupd.vocabulary.records import Level
from tests.archive_site import Moment, Site, rows_of, started_on
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.contract.test_binlog_archive import gaps, stored, write
from tests.servers.ports import free_port


@dataclass
class Pair:
    """A source, its replica, and an archive of whichever the job's socket leads to."""

    site: Site
    source: MariadbServer
    replica: MariadbServer

    def fail_over(self) -> None:
        """The job's host is the replica now."""
        self.source.stop()
        stop_following(self.replica)
        self._lead_to(self.replica)

    def _lead_to(self, server: MariadbServer) -> None:
        self.site.server = server
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(server.socket)

    @property
    def link(self) -> Path:
        return self.site.base / "s"

    def caught_up(self) -> bool:
        with self.source.session() as here, self.replica.session() as there:
            position = "SELECT @@GLOBAL.gtid_binlog_pos"
            return here.value(position) == there.value(position)


def listening(port: int) -> tuple[str, ...]:
    """Options of a server that can be followed."""
    return "--skip-networking=0", f"--port={port}", "--bind-address=127.0.0.1"


def follow(replica: MariadbServer, source: MariadbServer, port: int) -> None:
    """From where the source is now on."""
    with source.session() as root, replica.session() as other:
        root.execute("SET SESSION sql_log_bin = 0")
        root.execute("CREATE OR REPLACE USER 'replica'@'%' IDENTIFIED BY 'secret'")
        root.execute("GRANT REPLICATION SLAVE ON *.* TO 'replica'@'%'")
        position = root.value("SELECT @@GLOBAL.gtid_binlog_pos") or ""
        other.execute(f"SET GLOBAL gtid_slave_pos = '{position}'")
        other.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'replica',"
            " MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos"
        )
        other.execute("START SLAVE")


def stop_following(replica: MariadbServer) -> None:
    with replica.session() as root:
        root.execute("STOP SLAVE")
        root.execute("RESET SLAVE ALL")


@contextmanager
def pair(base: Path, *of_replica: str, of_source: Sequence[str] = ()) -> Iterator[Pair]:
    port = free_port()
    with (
        mariadb(*listening(port), "--binlog-format=ROW", *of_source) as source,
        mariadb("--server-id=8", "--log-slave-updates", "--binlog-format=ROW", *of_replica) as replica,
    ):
        with replica.session() as other:
            other.execute("RESET MASTER")
        follow(replica, source, port)
        found = Pair(Site(base, source), source, replica)
        found._lead_to(source)
        text = found.site.configuration.read_text()
        found.site.configuration.write_text(text.replace(str(source.socket), str(found.link)))
        yield found


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as found:
        yield found


@pytest.mark.matrix
def test_a_failover_under_load_leaves_no_gap_and_moments_of_both_servers_are_restored(
    servers: Pair, tmp_path: Path
) -> None:
    site = servers.site
    site.back_up()
    moments: list[Moment] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            write(servers.source, 1)

    with site.archiving():
        write(servers.source)
        moments.append(site.moment())
        loading = threading.Thread(target=load)
        loading.start()
        try:
            segments = len(stored(site))
            wait_until(lambda: len(stored(site)) > segments + 2)
        finally:
            over.set()
            loading.join()
        with servers.source.session() as root:
            root.execute("FLUSH BINARY LOGS")  # of both servers there are places of the same names
        with servers.replica.session() as root:
            root.execute("FLUSH BINARY LOGS")
        last = write(servers.source, 1)
        wait_until(servers.caught_up)
        wait_until(lambda: site.stored(last))
        begun = site.connections()
        servers.fail_over()
        wait_until(lambda: site.connections() > begun)
        for _ in range(2):
            write(servers.replica)
            moments.append(site.moment())
        wait_until(lambda: site.stored(moments[-1].gtid))
    assert gaps(site) == []
    assert {segment.chain for segment, _ in stored(site)} == {stored(site)[0][0].chain}
    assert {segment.origin.server_id for segment, _ in stored(site)} == {7, 8}
    site.run("binlog", "verify", "nightly")
    of_source, first, of_replica = moments
    asked_for: list[tuple[str, str, Moment | None]] = [
        ("--to-gtid", of_source.gtid, of_source),
        ("--before-gtid", f"0-8-{int(last.rpartition('-')[2]) + 1}", None),  # the switch itself
        ("--to-position", first.place, first),
        ("--to-gtid", of_replica.gtid, of_replica),
    ]
    for number, (option, asked, expected) in enumerate(asked_for):
        to = tmp_path / f"to-{number}"
        site.run("restore", "--to", str(to), option, asked)
        with started_on(to) as server, server.session() as root:
            assert root.value("SELECT @@GLOBAL.gtid_slave_pos") == (expected.gtid if expected else last)
            assert expected is None or rows_of(root) == expected.rows
    assert "drill to the latest moment: proven" in site.run("drill", "--job", "nightly", "--to-latest").stdout


def test_what_the_replica_wrote_on_its_own_before_is_a_gap_that_is_told(servers: Pair) -> None:
    servers.site.back_up()  # at a place that is one of the replica's log as well
    with servers.site.archiving():
        write(servers.source)
        wait_until(servers.caught_up)
        with servers.replica.session() as root:
            root.execute("CREATE TABLE t.errant (id INT)")
        last = write(servers.source)
        wait_until(servers.caught_up)
        wait_until(lambda: servers.site.stored(last))
        servers.fail_over()
        begun = servers.site.connections()
        wait_until(lambda: bool(gaps(servers.site)))
        wait_until(lambda: servers.site.connections() > begun + 1)  # once more to look for the place, and then anew
        last = write(servers.replica)
        wait_until(lambda: servers.site.stored(last))
    assert "another server answers: it executed 0-8-" in gaps(servers.site)[0]
    begins = next(segment for segment, _ in stored(servers.site) if segment.origin.server_id == 8)
    assert gtid.holds(begins.gtid_start, "0-7-20"), "it begins where the new server is"


def test_a_replica_that_is_behind_is_waited_for_until_it_writes_something_else(servers: Pair) -> None:
    site = servers.site
    with site.archiving():
        write(servers.source)
        wait_until(servers.caught_up)
        with servers.replica.session() as root:
            root.execute("STOP SLAVE")
        last = write(servers.source)
        wait_until(lambda: site.stored(last))
        servers.fail_over()
        wait_until(lambda: "has not executed yet what is archived" in (site.base / "receiver.log").read_text())
        assert gaps(site) == []
        write(servers.replica)
        wait_until(lambda: bool(gaps(site)))
    assert f"and {last} is archived" in gaps(site)[0]


def test_what_the_new_server_has_purged_is_a_gap_that_is_told(servers: Pair) -> None:
    site = servers.site
    with site.archiving():
        last = write(servers.source)
        wait_until(lambda: site.stored(last))
    wait_until(servers.caught_up)
    servers.fail_over()
    with servers.replica.session() as root:
        write(servers.replica)

        def all_but_the_newest_are_gone() -> bool:
            """The server keeps what it may need after a crash, until it has written a checkpoint."""
            root.execute("FLUSH BINARY LOGS")
            root.execute(f"PURGE BINARY LOGS TO '{(root.one('SHOW MASTER STATUS') or {})['File']}'")
            return len(binlog_source(root).files) == 1

        wait_until(all_but_the_newest_are_gone)
    with site.archiving():
        wait_until(lambda: bool(gaps(site)))
    assert "before each of its binlogs it had executed something that is not archived" in gaps(site)[0]


def test_a_replica_that_leaves_out_tables_is_no_continuation(servers: Pair) -> None:
    with servers.replica.session() as root:
        root.execute("STOP SLAVE")
        root.execute("SET GLOBAL replicate_ignore_table = 't.nothing'")
        root.execute("START SLAVE")
    with servers.site.archiving():
        last = write(servers.source)
        wait_until(lambda: servers.site.stored(last))
        wait_until(servers.caught_up)
        servers.fail_over()
        wait_until(lambda: bool(gaps(servers.site)))
    assert "replicate_ignore_table is set there" in gaps(servers.site)[0]


def test_a_log_that_lacks_changes_is_told_and_not_archived() -> None:
    with mariadb("--log-slave-updates=0") as server, server.session() as root:
        assert binlog_source(root).left_out == ""
        root.execute("CHANGE MASTER 'c1' TO MASTER_HOST = 'nobody.invalid', MASTER_USER = 'x'")
        root.execute("SET GLOBAL c1.replicate_ignore_table = 't.x'")
        source = binlog_source(root)
        assert "log_slave_updates is off" in source.left_out
        (told, *_) = of_log(source)
        assert (told.level, told.name) == (Level.WARNING, "binlog archive")
        assert promoted_server(root, source, source.gtid).filter == "Replicate_Ignore_Table"
    with mariadb("--binlog-ignore-db=t") as server, server.session() as root:
        assert "Binlog_Ignore_DB is set" in binlog_source(root).left_out
