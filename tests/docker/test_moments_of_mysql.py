"""MySQL's binlog is archived by MySQL's own program, and a restore and a clone lead to moments of it.

The server is in its container; what receives its binlog and what applies it are the programs of its image, here.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from backupd.cli.moments import AskedMoment, found_moment
from backupd.host.signals import cancellable
from backupd.mysql.binlog.source import BinlogSource, binlog_source
from backupd.mysql.session import Session
from backupd.mysql.sql_file import read_sql_file
from backupd.operations import context
from backupd.operations.restore.moment.to_moment import restore_to_moment
from backupd.policy import gtid
from backupd.policy.moments import Moment, ToGtid
from backupd.vocabulary.errors import Cancelled
from backupd.vocabulary.servers import Flavour
from tests.archive_site import Rows, Site, rows_of
from tests.contract.mariadb import PASSWORD, MariadbServer, wait_until
from tests.docker.conftest import answering
from tests.docker.containers import ServerContainer
from tests.docker.programs_here import copied, fresh, started_on
from tests.moments import unlocked
from tests.replayed_objects import made_before, made_later, objects_of
from tests.servers.ports import ADDRESS

KIND = "mysql-9"


@pytest.fixture(scope="module")
def container(start: Callable[..., None], docker_compose_project_name: str, servers: Path) -> ServerContainer:
    start(KIND)
    return answering(KIND, KIND, docker_compose_project_name, servers)


@pytest.fixture(scope="module")
def programs(container: ServerContainer) -> Iterator[Path]:
    with copied(container) as folder:
        yield folder


def now(server: MariadbServer) -> tuple[BinlogSource, Rows]:
    with server.session() as root:
        return binlog_source(root), rows_of(root)


def last_of(source: BinlogSource) -> str:
    """Of the server's own transactions the last: of `uuid:1-5` it is `uuid:5`."""
    _, last = gtid.members(source.gtid)[source.origin.uuid][-1]
    return f"{source.origin.uuid}:{last}"


def test_a_moment_in_the_binlog_of_the_backup_and_one_behind_its_rotation_are_reached_exactly(
    container: ServerContainer, programs: Path, tmp_path: Path
) -> None:
    with container.session() as root:
        root.execute("CREATE DATABASE IF NOT EXISTS t")
        root.execute("CREATE TABLE t.orders (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
        root.execute(f"CREATE USER IF NOT EXISTS 'replication'@'{ADDRESS}' IDENTIFIED BY '{PASSWORD}'")
        root.execute(f"GRANT REPLICATION SLAVE ON *.* TO 'replication'@'{ADDRESS}'")
    site = Site(tmp_path, container, programs=programs)
    site.back_up()
    with site.archiving():
        with container.session() as root:
            root.execute("INSERT INTO t.orders (v) VALUES ('one'), ('two')")
            moments = {"--to-gtid": now(container)}
            root.execute("FLUSH BINARY LOGS")
            root.execute("SET SESSION binlog_transaction_compression = ON")
            root.execute("INSERT INTO t.orders (v) SELECT REPEAT('x', 5000) FROM t.orders")
            for statement in ("START", "END", "PREPARE", "COMMIT"):
                root.execute(f"XA {statement} 'both'")
                if statement == "START":
                    root.execute("INSERT INTO t.orders (v) VALUES ('prepared')")
            root.execute("CREATE USER 'somebody'@'localhost' IDENTIFIED BY 'something'")
            root.execute("DROP USER 'somebody'@'localhost'")
            moments["--before-gtid"] = now(container)
            root.execute("DROP TABLE t.orders")
        dropped, _ = now(container)
        wait_until(lambda: site.stored(dropped.gtid))
    asked = {"--to-gtid": last_of(moments["--to-gtid"][0]), "--before-gtid": last_of(dropped)}
    before = ("--before-gtid", asked["--before-gtid"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        # Not on the way to the other: its prepared transaction, had the applier just come to it, would keep nothing.
        interrupted(site, ToGtid(asked["--to-gtid"]), tmp_path / "to-gtid")
    for option, (source, rows) in moments.items():
        to = tmp_path / option.strip("-")
        site.run("restore", "--to", str(to), option, asked[option])
        with started_on(to, programs, Flavour.MYSQL) as server:
            reached, found = now(server)
        assert (found, reached.gtid) == (rows, source.gtid)
    source, rows = moments["--before-gtid"]
    clone, password = tmp_path / "clone", tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    account = ("--source", f"{ADDRESS}:{container.port}", "--source-user", "replication")
    words = ("--as-replica", *account, "--source-password-file", str(password), "--server-id", "8")
    site.run("clone", "--to", str(clone), *words, *before)
    with started_on(clone, programs, Flavour.MYSQL, "--server-id=8", "--relay-log=replica-relay-bin") as replica:
        reached, found = now(replica)
        assert (found, reached.gtid) == (rows, source.gtid)
        with replica.session() as root:
            root.execute("START REPLICA")
            assert root.value("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", dropped.gtid) == "0"
        assert now(replica)[1] == now(container)[1]


def test_a_moment_has_what_the_log_made_beside_rows_single_tables_and_a_proof(programs: Path, tmp_path: Path) -> None:
    with fresh(programs, "--event-scheduler=OFF") as server:
        site = Site(tmp_path, server, programs=programs)
        with server.session() as root:
            made_before(root)
        site.back_up()
        with site.archiving(), server.session() as root:
            made_later(root)
            end, objects = binlog_source(root), objects_of(root, Flavour.MYSQL)
            rows = (root.one("CHECKSUM TABLE t.bills") or {})["Checksum"]
            root.execute("DROP TABLE t.bills")
            dropped = binlog_source(root)
            wait_until(lambda: site.stored(dropped.gtid))
    moment = ("--before-gtid", last_of(dropped))
    assert "proven" in site.run("drill", *moment).stdout
    done = site.run("restore", "--to", str(tmp_path / "to"), "--tables", "t.bills", *moment)
    assert "to import t.bills: follow" in done.stdout
    assert f"move {tmp_path}/to/tables away before you start a server" in done.stderr
    tables = shutil.move(tmp_path / "to" / "tables", tmp_path / "tables")
    with started_on(tmp_path / "to", programs, Flavour.MYSQL) as restored, restored.session() as root:
        assert (objects_of(root, Flavour.MYSQL), binlog_source(root).gtid) == (objects, end.gtid)
        assert imported(root, Path(tables), tmp_path / "to", "bills") == rows


def imported(root: Session, tables: Path, datadir: Path, table: str) -> str | None:
    """The checksum of the table once its statements were followed, on a server of that datadir."""
    told = tables / "t" / f"{table}.sql"
    to_copy = told.read_text().partition("-- now copy ")[0].count("\n")
    before: list[str] = []
    behind: list[str] = []
    for statement in read_sql_file(told).statements:
        (before if statement.line <= to_copy else behind).append(statement.text)
    schemas = {row["Database"] for row in root.query("SHOW DATABASES")}
    for text in before:
        root.execute(text)
    (schema,) = {row["Database"] for row in root.query("SHOW DATABASES")} - schemas
    for ending in ("ibd", "cfg"):
        shutil.copy(told.with_suffix(f".{ending}"), datadir / str(schema))
    for text in behind:
        root.execute(text)
    return (root.one(f"CHECKSUM TABLE {schema}.{table}") or {})["Checksum"]


def test_a_moment_behind_a_backup_without_a_lock_is_reached_exactly_once_a_drill_has_found_its_place(
    programs: Path, tmp_path: Path
) -> None:
    with fresh(programs) as server:
        site = Site(tmp_path, server, programs=programs)
        unlocked.is_reached(
            site, lambda datadir: started_on(datadir, programs, Flavour.MYSQL), last_of, tmp_path / "to"
        )


@pytest.mark.parametrize(
    "modes", [("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"), ("ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")]
)
def test_the_log_is_applied_whatever_became_of_the_servers_gtid_mode(
    programs: Path, tmp_path: Path, modes: Sequence[str]
) -> None:
    with fresh(programs, f"--gtid-mode={modes[0]}") as server:
        site = Site(tmp_path, server, programs=programs)
        with server.session() as root:
            root.execute("CREATE TABLE t.orders (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
            root.execute("INSERT INTO t.orders (v) VALUES ('in the backup')")
        site.back_up()
        with site.archiving(), server.session() as root:
            for mode in modes:  # one that is there already, first
                root.execute(f"SET GLOBAL gtid_mode = {mode}")
                root.execute(f"INSERT INTO t.orders (v) VALUES ('{mode}')")
                end, rows = binlog_source(root), rows_of(root)
                wait_until(lambda: site.stored_to(binlog_source(root).end))
    assert "proven" in site.run("drill", "--to-latest").stdout
    site.run("restore", "--to", str(tmp_path / "to"), "--to-latest")
    with started_on(tmp_path / "to", programs, Flavour.MYSQL, f"--gtid-mode={modes[-1]}") as restored:
        reached, found = now(restored)
        assert (found, reached.gtid) == (rows, end.gtid)


def interrupted(site: Site, moment: Moment, to: Path) -> None:
    """A restore that gets a signal once its server has begun to apply the log, and is kept for the next one."""
    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue, cancellable():
        found = found_moment(
            *(configuration, catalogue, AskedMoment(moment, run_id=None)),
            to=to,
            target=None,
            identities=None,
            applied=lambda _progress: os.kill(os.getpid(), signal.SIGTERM),
        )
        with pytest.raises(Cancelled) as cancelled:
            restore_to_moment(found.forward, found.manifest, found.sources, to=to)
    assert "run the same command to continue" in (cancelled.value.hint or "")
