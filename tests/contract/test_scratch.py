"""A restored copy starts, recovers to exactly the recorded position, and reaches nothing of the original server."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.errors import LockLost, ServerError
from backupd.model import Layout, LockReceipt, Manifest, Position
from backupd.mysql.binlogs import committed_end, listed
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.derivation import derive
from backupd.mysql.locks import LockLimits, ServerLock
from backupd.mysql.proof import prove
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import StatementError
from backupd.mysql.unlocked import NoLock
from backupd.run_section import RunSection
from tests.contract.mariadb import MariadbServer, lock_sessions, mysql_server
from tests.fakes.target import MACHINE

pytestmark = pytest.mark.exhaustive

__all__ = ["mysql_server"]

RUN = "run-drill"
LIMITS = LockLimits(wait_seconds=20, hold_seconds=20, tries=1)


@dataclass
class Image:
    """An atomic image of a server's datadir, and what was recorded with it."""

    folder: Path
    manifest: Manifest

    @property
    def datadir(self) -> Path:
        return self.folder / self.manifest.datadir

    def scratch(self) -> ScratchServer:
        return ScratchServer(self.folder, self.manifest, start_seconds=50)


@contextmanager
def load(mariadb: MariadbServer, *tables: str) -> Iterator[None]:
    """Somebody writes to every engine, or to these tables, as fast as it goes, for the length of the block."""
    over = threading.Event()

    def write(table: str) -> None:
        with mariadb.session() as session:
            while not over.is_set():
                session.execute(f"INSERT INTO t.{table} (v) VALUES (REPEAT('x', 100))")
                session.execute(f"UPDATE t.{table} SET v = CONCAT('y', v) ORDER BY id DESC LIMIT 1")

    writers = [
        threading.Thread(target=write, args=(table,)) for table in tables or ("innodb", "innodb", "myisam", "aria")
    ]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        over.set()
        for writer in writers:
            writer.join()


def copied(mariadb: MariadbServer, to: Path) -> None:
    with mariadb.frozen():
        shutil.copytree(mariadb.datadir, to)


def manifest(mariadb: MariadbServer, position: Position, receipt: LockReceipt) -> Manifest:
    return Manifest(
        run_id=RUN,
        job="nightly",
        host="db1",
        machine=MACHINE,
        created_at=datetime.now(UTC),
        objects=(),
        server=MysqlServer(mariadb.connect()).facts(),
        position=position,
        lsn=receipt.lsn,
        layout=Layout.LINEAR,
        volume="vg/data",
        datadir="data",
        run=RunSection(started_at=datetime.now(UTC)),
        binlog=f"data/{position.binlog_file}",
        canary="backupd_canary.canary",
    )


def cut(image: Image) -> None:
    """As a backup stores it: the recorded binlog up to the recorded offset, and no other."""
    position = image.manifest.position
    for path in image.datadir.glob("bin.*"):
        if path.name != position.binlog_file:
            path.unlink()
    os.truncate(image.datadir / str(position.binlog_file), position.binlog_offset or 0)


@pytest.fixture(params=["ftwrl", "backup-stage"])
def image(request: pytest.FixtureRequest, mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Taken under the lock while the load waits."""
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as session, load(mysql_server):
        session.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before(RUN)
        with ServerLock(mysql_server.connect(), LIMITS, strategy=request.param).held() as held:
            copied(mysql_server, tmp_path / "data")
        canary.after(RUN)
    image = Image(tmp_path, manifest(mysql_server, held.position, held.receipt))
    cut(image)
    return image


@pytest.fixture
def late_image(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Taken after the unlock, as if the lock had been lost: the data is ahead of the recorded position."""
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as session:
        session.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before(RUN)
        with ServerLock(mysql_server.connect(), LIMITS).held() as held:
            pass
        canary.after(RUN)
        session.execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")  # else the late commit may be lost, as in a power cut
        copied(mysql_server, tmp_path / "data")
    image = Image(tmp_path, manifest(mysql_server, held.position, held.receipt))
    cut(image)
    return image


def test_an_image_taken_under_the_lock_passes_every_check(image: Image) -> None:
    with image.scratch().running() as server:
        checks = (*prove(server, image.manifest), server.shut_down())
    assert [check for check in checks if not check.ok] == []
    assert {check.name for check in checks} >= {"binlog position", "gtid", "redo log", "canary", "tables"}
    recorded = image.manifest.position
    assert checks[0].found == f"{recorded.binlog_file}:{recorded.binlog_offset}"


@contextmanager
def redo_in_memory(mariadb: MariadbServer, *, seconds: int) -> Iterator[None]:
    """InnoDB's log is written every so many seconds, whatever is committed meanwhile."""
    with mariadb.session() as session:
        session.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0, innodb_flush_log_at_timeout = %s", seconds)
        try:
            yield
        finally:
            session.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1, innodb_flush_log_at_timeout = 1")


@pytest.mark.parametrize("strategy", ["ftwrl", "backup-stage"])
def test_the_image_has_every_committed_row_though_no_commit_writes_the_log(
    mysql_server: MariadbServer, tmp_path: Path, strategy: str
) -> None:
    lock = ServerLock(mysql_server.connect(), LIMITS, strategy=strategy)
    with redo_in_memory(mysql_server, seconds=1), mysql_server.session() as session:
        session.execute(f"INSERT INTO t.innodb (v) VALUES {', '.join(['(UUID())'] * 20)}")
        with lock.held() as held:
            copied(mysql_server, tmp_path / "data")
    image = Image(tmp_path, replace(manifest(mysql_server, held.position, held.receipt), canary=None))
    cut(image)
    checksums = "CHECKSUM TABLE t.innodb"
    with image.scratch().running() as server, mysql_server.session() as live:
        assert server.session.query(checksums) == live.query(checksums)
        assert [check for check in prove(server, image.manifest) if not check.ok] == []


def test_a_log_that_is_not_written_within_the_budget_loses_the_lock_and_asks_for_no_other(
    mysql_server: MariadbServer,
) -> None:
    limits = replace(LIMITS, hold_seconds=0.2, tries=9)
    with redo_in_memory(mysql_server, seconds=60), mysql_server.session() as session:
        session.execute("INSERT INTO t.innodb (v) VALUES ('in memory')")
        with (
            pytest.raises(LockLost, match=r"longer than 0\.2 s, and the watchdog ended it while InnoDB wrote its log"),
            ServerLock(mysql_server.connect(), limits).held(),
        ):
            raise AssertionError("granted")
        assert lock_sessions(mysql_server) == []
        session.execute("INSERT INTO t.innodb (v) VALUES ('not stopped')")


@pytest.fixture
def unlocked_image(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Taken in the middle of the load, with a binlog that has just begun and ends within a transaction."""
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as session, load(mysql_server, "innodb", "innodb", "innodb"):
        session.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before(RUN)
        with NoLock(mysql_server.connect()).held() as held:
            session.execute("FLUSH BINARY LOGS")
            copied(mysql_server, tmp_path / "data")
        canary.after(RUN)
    newest = listed(tmp_path / "data" / "bin.index")[-1]
    taken = replace(manifest(mysql_server, Position(binlog_file=newest), held.receipt), locked=False)
    return Image(tmp_path, taken)


def test_of_an_image_taken_without_a_lock_the_position_is_found(
    mysql_server: MariadbServer, unlocked_image: Image
) -> None:
    manifest = unlocked_image.manifest
    binlog = unlocked_image.folder / str(manifest.binlog)
    whole = committed_end(binlog)
    with binlog.open("ab") as torn, (mysql_server.datadir / binlog.name).open("rb") as live:
        live.seek(binlog.stat().st_size)
        torn.write(live.read(30))  # the beginning of what came next: less than a checkpoint, which ends by itself
    assert committed_end(binlog) == whole
    os.truncate(binlog, whole)  # as a backup has it
    with unlocked_image.scratch().running() as server, mysql_server.session() as live_server:
        derived = derive(server, manifest)
        checks = prove(server, replace(manifest, position=derived.position), found=derived.found)
        at = live_server.value("SELECT BINLOG_GTID_POS(%s, %s)", binlog.name, whole)
        replay(mysql_server, derived.position, to=server)
        rows = [one.query("CHECKSUM TABLE t.innodb") for one in (server.session, live_server)]
    assert [check for check in checks if not check.ok and check.name != "tables"] == []  # the other engines may be torn
    assert derived.position == Position(binlog.name, whole, gtid=at)
    assert rows[0] == rows[1], "what the binlog has after the position is all that is missing"


def replay(mariadb: MariadbServer, position: Position, *, to: RunningServer) -> None:
    """What was committed after the position, on a server that stands there."""
    binlog = mariadb.datadir / str(position.binlog_file)
    argv = ["mariadb-binlog", "--no-defaults", f"--start-position={position.binlog_offset}", str(binlog)]
    told = subprocess.run(argv, capture_output=True, check=True).stdout
    socket = to.session.value("SELECT @@socket")
    subprocess.run(["mariadb", "--no-defaults", f"--socket={socket}", "--user=root"], input=told, check=True)


def test_an_image_taken_after_the_unlock_fails_by_its_canary_and_by_innodbs_position(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        failed = {check.name for check in prove(server, late_image.manifest) if not check.ok}
    assert failed == {"canary", "innodb's last commit"}


def test_a_damaged_table_is_named(late_image: Image) -> None:
    index = late_image.datadir / "t" / "myisam.MYD"
    os.truncate(index, index.stat().st_size // 2)
    with late_image.scratch().running() as server:
        (tables,) = (check for check in prove(server, late_image.manifest) if check.name == "tables")
    assert not tables.ok
    assert "t.myisam" in tables.found


def test_the_original_servers_files_are_not_touched(late_image: Image, mysql_server: MariadbServer) -> None:
    index = late_image.datadir / "bin.index"
    index.write_text(f"{mysql_server.datadir}/{late_image.manifest.position.binlog_file}\n")
    with mysql_server.session() as session:
        before = session.query("SHOW BINARY LOGS"), (mysql_server.datadir / "bin.index").read_text()
        with late_image.scratch().running() as server:
            server.session.execute("FLUSH BINARY LOGS")
            assert server.session.value("SELECT @@datadir") == f"{late_image.datadir}/"
        assert (session.query("SHOW BINARY LOGS"), (mysql_server.datadir / "bin.index").read_text()) == before


def test_nobody_else_can_reach_it_and_it_is_gone_afterwards(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        socket = Path(server.session.value("SELECT @@socket") or "")
        assert server.session.value("SELECT @@skip_networking") == "1"
        assert socket.parent.stat().st_mode & 0o077 == 0
        pid = int(Path(server.session.value("SELECT @@pid_file") or "").read_text())
        assert Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    assert not socket.parent.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_it_runs_as_the_copys_owner(late_image: Image) -> None:
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    for path in (late_image.datadir, *late_image.datadir.rglob("*")):
        os.chown(path, owner, -1)
    for folder in (late_image.folder, *late_image.folder.parents):
        if folder.stat().st_uid == os.geteuid() and folder.is_relative_to("/tmp/"):
            folder.chmod(0o755)
    with late_image.scratch().running() as server:
        pid = int(Path(server.session.value("SELECT @@pid_file") or "").read_text())
        assert Path(f"/proc/{pid}").stat().st_uid == owner
        assert server.shut_down().ok


def test_a_copy_without_its_binlog_starts_and_has_no_position(image: Image) -> None:
    without = replace(image.manifest, position=Position(), binlog=None, canary=None)
    with ScratchServer(image.folder, without, start_seconds=50).running() as server:
        checks = {check.name: check for check in prove(server, without)}
        assert server.session.value("SELECT @@log_bin") == "0"
    assert checks["binlog position"].found == "no position"
    assert "gtid" not in checks
    assert checks["redo log"].ok


def test_a_copy_that_does_not_start_says_what_the_server_said(late_image: Image) -> None:
    (late_image.datadir / "ibdata1").write_bytes(b"\0" * 4096)
    with pytest.raises(ServerError, match=r"did not start .*\[ERROR\] InnoDB"), late_image.scratch().running():
        raise AssertionError("started")


@pytest.mark.parametrize("name", ["link.MYD", "table.isl"])
def test_a_copy_that_leads_out_of_itself_is_refused(late_image: Image, name: str) -> None:
    path = late_image.datadir / "t" / name
    if path.suffix == ".isl":
        path.write_text("/srv/elsewhere/table.ibd")
    else:
        path.symlink_to("/srv/elsewhere/link.MYD")
    with pytest.raises(ServerError, match=f"{name} leads out"), late_image.scratch().running():
        raise AssertionError("started")


def test_another_series_is_refused(late_image: Image) -> None:
    older = replace(late_image.manifest, server=replace(late_image.manifest.server, version_number=(10, 1, 0)))
    with (
        pytest.raises(ServerError, match=r"no mariadb 10\.1 server is installed here; found: mariadbd 10\."),
        ScratchServer(late_image.folder, older).running(),
    ):
        raise AssertionError("started")


def test_a_session_that_ends_is_a_server_error(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        assert server.shut_down().ok
        with pytest.raises(StatementError, match=r"session .* ended"):
            server.session.execute("DO 1")
        assert "Shutdown complete" in server.error_log
