"""Moments of MySQL that another server leads to, or another time zone: a failover, and statements that mean times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.session import Session
from backupd.policy import gtid
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.servers import Flavour
from tests.archive_site import Moment, Site, rows_of
from tests.contract.mariadb import PASSWORD, MariadbServer, wait_until
from tests.contract.test_binlog_archive import gaps, stored
from tests.docker.conftest import answering
from tests.docker.programs_here import copied, fresh, started_on
from tests.servers.ports import free_port

KIND = "mysql-9"


@pytest.fixture(scope="module")
def programs(start: Callable[..., None], docker_compose_project_name: str, servers: Path) -> Iterator[Path]:
    start(KIND)
    with copied(answering(KIND, KIND, docker_compose_project_name, servers)) as folder:
        yield folder


def executed(session: Session) -> str:
    return session.value("SELECT @@GLOBAL.gtid_executed") or ""


def caught_up(source: MariadbServer, replica: MariadbServer) -> None:
    """The replica has executed what the source has."""
    with source.session() as here, replica.session() as there:
        found = executed(here)
        assert there.value("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", found) == "0"


@contextmanager
def following(programs: Path) -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """A source and its replica, whose log is the shorter one, so that places of what follows are in both logs."""
    port = free_port()
    with (
        fresh(programs, "--skip-networking=0", f"--port={port}", "--bind-address=127.0.0.1") as source,
        fresh(programs, "--server-id=8", "--binlog-transaction-compression=ON") as replica,
    ):
        with source.session() as root, replica.session() as other:
            root.execute(f"CREATE USER 'replica'@'%' IDENTIFIED BY '{PASSWORD}'")
            root.execute("GRANT REPLICATION SLAVE ON *.* TO 'replica'@'%'")
            root.execute("CREATE TABLE t.orders (id INT PRIMARY KEY AUTO_INCREMENT, v MEDIUMTEXT)")
            for _ in range(10):
                root.execute("INSERT INTO t.orders (v) VALUES (REPEAT('x', 5000))")
            other.execute("DROP DATABASE t")
            other.execute("RESET BINARY LOGS AND GTIDS")
            other.execute(
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port},"
                f" SOURCE_USER = 'replica', SOURCE_PASSWORD = '{PASSWORD}', SOURCE_AUTO_POSITION = 1,"
                " SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1"
            )
            other.execute("START REPLICA")
            caught_up(source, replica)
        yield source, replica


def site_behind(link: Path, source: MariadbServer, programs: Path) -> Site:
    """Whoever the link leads to is asked: the source, at first."""
    site = Site(link.parent, source, programs=programs)
    link.symlink_to(source.socket)
    site.configuration.write_text(site.configuration.read_text().replace(str(source.socket), str(link)))
    return site


def fail_over(site: Site, link: Path, source: MariadbServer, replica: MariadbServer) -> None:
    """The replica has all, and takes the place of its source; the archive has connected to it."""
    caught_up(source, replica)
    begun = site.connections()
    source.stop()
    with replica.session() as root:
        root.execute("STOP REPLICA")
        root.execute("RESET REPLICA ALL")
    link.unlink()
    link.symlink_to(replica.socket)
    site.server = replica
    wait_until(lambda: site.connections() > begun)


def write(site: Site, size: int) -> Moment:
    """A row more, and what the server has then, once that is stored."""
    with site.server.session() as root:
        root.execute("SET SESSION binlog_transaction_compression = OFF")
        root.execute(f"INSERT INTO t.orders (v) VALUES (REPEAT('y', {size}))")
    moment = site.moment()
    wait_until(lambda: site.stored(moment.gtid))
    return moment


def test_the_archive_goes_on_with_the_replica_that_takes_the_place_of_its_source(
    programs: Path, tmp_path: Path
) -> None:
    with following(programs) as (source, replica):
        link = tmp_path / "s"
        site = site_behind(link, source, programs)
        site.back_up()
        with site.archiving():
            moments = [write(site, 100)]
            fail_over(site, link, source, replica)
            moments += [write(site, 100_000), write(site, 100)]
    segments = [segment for segment, _ in stored(site)]
    assert gaps(site) == []
    assert {segment.chain for segment in segments} == {segments[0].chain}
    assert [segment.origin.server_id for segment in segments] == sorted(
        segment.origin.server_id for segment in segments
    )
    assert {segment.origin.server_id for segment in segments} == {7, 8}
    asked = [
        ("--to-time", moments[0].at.isoformat()),
        ("--to-gtid", last_of(moments[1], segments[-1].origin.uuid)),
        ("--to-latest",),
    ]
    for number, (words, moment) in enumerate(zip(asked, moments, strict=True)):
        reached(site, programs, tmp_path / f"to-{number}", moment, *words)
    [last_of_source] = [one for one in segments if one.origin.server_id == 7][-1:]
    place = f"{last_of_source.file}:{last_of_source.end}"
    refused = site.run(*("restore", "--to", str(tmp_path / "twice"), "--to-position", place), expect=ExitStatus.USAGE)
    assert f"{place} occurs twice in the archive" in refused.stderr


def test_a_server_that_was_seeded_by_gtid_purged_is_archived_without_a_gap_over_rotations_and_a_failover(
    programs: Path, tmp_path: Path
) -> None:
    """As every clone is, and what a dump was loaded into: what it was given is in none of its files."""
    given = "00000000-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-5"
    with following(programs) as (source, replica):
        for server in (source, replica):
            with server.session() as root:
                root.execute(f"SET GLOBAL gtid_purged = '+{given}'")
        link = tmp_path / "s"
        site = site_behind(link, source, programs)
        site.back_up()
        with site.archiving():
            for _ in range(2):
                write(site, 100)
                with source.session() as root:
                    root.execute("FLUSH BINARY LOGS")
            write(site, 100)
            fail_over(site, link, source, replica)
            with replica.session() as root:
                root.execute("FLUSH BINARY LOGS")
            last = write(site, 100)
    assert gaps(site) == []
    assert gtid.is_within(given, last.gtid)
    reached(site, programs, tmp_path / "to", last, "--to-latest")


def last_of(moment: Moment, uuid: str) -> str:
    """The last transaction of this server that the moment has."""
    return f"{uuid}:{gtid.members(moment.gtid)[uuid][-1][1]}"


def reached(site: Site, programs: Path, to: Path, moment: Moment, *words: str) -> None:
    """A restore leads to exactly this moment."""
    site.run("restore", "--to", str(to), *words)
    with started_on(to, programs, Flavour.MYSQL) as server, server.session() as root:
        assert (rows_of(root), binlog_source(root).gtid) == (moment.rows, moment.gtid)


def test_statements_are_applied_in_the_time_zone_of_the_server_that_wrote_them(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    with fresh(programs) as source:
        monkeypatch.delenv("TZ")
        site = Site(tmp_path, source, programs=programs)
        with source.session() as root:
            root.execute("CREATE TABLE t.hours (id INT PRIMARY KEY AUTO_INCREMENT, at TIMESTAMP NULL)")
            root.execute("INSERT INTO t.hours (at) VALUES (NOW())")
        site.back_up()
        with site.archiving():
            with source.session() as root:
                root.execute("ALTER TABLE t.hours MODIFY at DATETIME")
            moment = site.moment()
            wait_until(lambda: site.stored(moment.gtid))
        reached(site, programs, tmp_path / "to", moment, "--to-latest")
