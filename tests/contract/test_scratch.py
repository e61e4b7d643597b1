"""A restored copy starts, recovers to exactly the recorded position, and reaches nothing of the original server."""

import errno
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.config import LockConfig
from backupd.host import apparmor
from backupd.mysql import scratch, scratch_account
from backupd.mysql.binlogs import committed_end, listed
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.derivation import derive
from backupd.mysql.locks import AUTO, ServerLock
from backupd.mysql.proof import prove
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation
from backupd.mysql.replica_files import option_file, scrubbed_option_file
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.seeding import Following, ReplicaWish
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Login, StatementError
from backupd.mysql.tablefiles import Table, TableFiles
from backupd.mysql.unlocked import NoLock
from backupd.policy.manifest import to_text
from backupd.vocabulary.errors import LockLost, ServerError, Undecided, UsageError
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import LockReceipt, Position
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.volumes import Layout
from tests.contract.mariadb import MariadbServer, lock_sessions, mariadb, mysql_server, wait_until
from tests.fakes.target import MACHINE
from tests.unconfinable import without

pytestmark = pytest.mark.exhaustive

__all__ = ["mysql_server"]

RUN = "run-drill"
START = """
import sys
from pathlib import Path
from backupd.policy.manifest import from_text
from backupd.mysql.scratch import ScratchServer
with ScratchServer(Path(sys.argv[1]), from_text(Path(sys.argv[2]).read_text())).running():
    print("started")
"""
LIMITS = LockConfig(wait_timeout_seconds=20, hold_budget_seconds=20, tries=1)


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

    def copied(self, to: Path) -> "Image":
        """For a server that is killed: MariaDB 10.11 may not start again on its files ("Missing FILE_CREATE")."""
        subprocess.run(["cp", "--archive", str(self.folder), str(to)], check=True)
        return replace(self, folder=to)


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


def taken(mariadb: MariadbServer, folder: Path, *, strategy: str = AUTO) -> Image:
    """Of the server as it is, under the lock."""
    with ServerLock(mariadb.connect(), LIMITS, strategy=strategy).held(mariadb.datadir) as held:
        copied(mariadb, folder / "data")
    image = Image(folder, manifest(mariadb, held.position, held.receipt))
    cut(image)
    return image


def keep_only(tables: Sequence[Table], image: Image) -> None:
    """Of the image are left these tables, what a server needs, and schemas: as a restore of single tables leaves it."""
    paths = sorted(image.datadir.rglob("*"), reverse=True)
    names = [str(path.relative_to(image.folder)) for path in paths]
    files = TableFiles(names, datadir="data", lower_case=False)
    for path, wanted in zip(paths, files.selected(names, tables), strict=True):
        if not wanted and path.is_dir():
            path.rmdir() if path.parent != image.datadir else None
        elif not wanted:
            path.unlink()


@pytest.fixture(params=["ftwrl", "backup-stage"])
def image(request: pytest.FixtureRequest, mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Taken under the lock while the load waits."""
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as session, load(mysql_server):
        session.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before(RUN)
        image = taken(mysql_server, tmp_path, strategy=request.param)
        canary.after(RUN)
    return image


@pytest.fixture
def late_image(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Taken after the unlock, as if the lock had been lost: the data is ahead of the recorded position."""
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as session:
        session.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before(RUN)
        with ServerLock(mysql_server.connect(), LIMITS).held(mysql_server.datadir) as held:
            pass
        canary.after(RUN)
        session.execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")  # else the late commit may be lost, as in a power cut
        copied(mysql_server, tmp_path / "data")
    image = Image(tmp_path, manifest(mysql_server, held.position, held.receipt))
    cut(image)
    return image


def process_of(server: RunningServer) -> int:
    return int(Path(server.session.value("SELECT @@pid_file") or "").read_text())


def status_of(server: RunningServer) -> dict[str, str]:
    """What the kernel says of the process."""
    lines = Path(f"/proc/{process_of(server)}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def is_nobody(uid: int) -> bool:
    """No account has it, nor `nobody`."""
    return uid not in {0, 65534, *(entry.pw_uid for entry in pwd.getpwall())}


def own(server: RunningServer, variable: str) -> Path:
    """Where one of its paths leads in its own view of the file systems."""
    return Path(f"/proc/{process_of(server)}/root{server.session.value(f'SELECT @@{variable}')}")


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
    with redo_in_memory(mysql_server, seconds=1), mysql_server.session() as session:
        session.execute(f"INSERT INTO t.innodb (v) VALUES {', '.join(['(UUID())'] * 20)}")
        image = taken(mysql_server, tmp_path, strategy=strategy)
    image = replace(image, manifest=replace(image.manifest, canary=None))
    checksums = "CHECKSUM TABLE t.innodb"
    with image.scratch().running() as server, mysql_server.session() as live:
        assert server.session.query(checksums) == live.query(checksums)
        assert [check for check in prove(server, image.manifest) if not check.ok] == []


def test_a_log_that_is_not_written_within_the_budget_loses_the_lock_and_asks_for_no_other(
    mysql_server: MariadbServer,
) -> None:
    limits = replace(LIMITS, hold_budget_seconds=0.2, tries=9)
    with redo_in_memory(mysql_server, seconds=60), mysql_server.session() as session:
        session.execute("INSERT INTO t.innodb (v) VALUES ('in memory')")
        with (
            pytest.raises(LockLost, match=r"longer than 0\.2 s, and the watchdog killed it while InnoDB wrote its log"),
            ServerLock(mysql_server.connect(), limits).held(mysql_server.datadir),
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
        with NoLock(mysql_server.connect()).held(mysql_server.datadir) as held:
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
        checks = tuple(prove(server, replace(manifest, position=derived.position), found=derived.found))
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


def test_a_damaged_table_is_named_and_a_log_that_no_lock_holds_still_is_none(late_image: Image) -> None:
    data = late_image.datadir / "t" / "myisam.MYD"
    os.truncate(data, data.stat().st_size // 2)
    for log in ("general_log", "slow_log"):
        (late_image.datadir / "mysql" / f"{log}.CSV").write_text('"torn\n')
    with late_image.scratch().running() as server:
        (tables,) = (check for check in prove(server, late_image.manifest) if check.name == "tables")
    assert not tables.ok
    assert "t.myisam" in tables.found
    assert "_log" not in tables.found


def test_what_apparmor_keeps_from_the_server_says_nothing_of_the_backup(
    late_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the mode denies it what a profile would."""
    (late_image.datadir / "aria_log_control").chmod(0)
    with pytest.raises(ServerError) as suspect, late_image.scratch().running():
        pass
    monkeypatch.setattr(apparmor, "PROFILES", tmp_path / "profiles")
    apparmor.PROFILES.write_text("".join(f"{program} (enforce)\n" for program in ("mariadbd", "mysqld")))
    with pytest.raises(Undecided, match="AppArmor's profile m") as undecided, late_image.scratch().running():
        pass
    assert not isinstance(suspect.value, Undecided)
    assert "apparmor_parser -r /etc/apparmor.d/usr.sbin.m" in undecided.value.hint
    assert f'"{late_image.folder}/**" rwk,' in undecided.value.hint
    assert '/backupd-drill-*/**" rwk,' in undecided.value.hint


def test_the_original_servers_files_are_not_touched(late_image: Image, mysql_server: MariadbServer) -> None:
    index = late_image.datadir / "bin.index"
    index.write_text(f"{mysql_server.datadir}/{late_image.manifest.position.binlog_file}\n")
    with mysql_server.session() as session:
        before = session.query("SHOW BINARY LOGS"), (mysql_server.datadir / "bin.index").read_text()
        with late_image.scratch().running() as server:
            server.session.execute("FLUSH BINARY LOGS")
            assert own(server, "datadir").samefile(late_image.datadir)
        assert (session.query("SHOW BINARY LOGS"), (mysql_server.datadir / "bin.index").read_text()) == before


def test_nobody_else_can_reach_it_and_it_is_gone_afterwards(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        socket = Path(server.session.value("SELECT @@socket") or "")
        assert server.session.value("SELECT @@skip_networking") == "1"
        assert socket.parent.stat().st_mode & 0o077 == 0
        pid = process_of(server)
    assert not socket.parent.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="others run it as themselves")
def test_only_a_copy_that_needs_keys_is_served_as_its_owner(late_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of this host's server has that server's files, processes and socket as well."""
    servers = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534) and entry.pw_gid)
    monkeypatch.setattr(scratch_account, "_ITS_ACCOUNTS", {servers.pw_name})
    for path in (late_image.datadir, *late_image.datadir.rglob("*")):
        os.chown(path, servers.pw_uid, servers.pw_gid)
    with late_image.scratch().running() as server:
        assert is_nobody(int(status_of(server)["Uid"].split()[0]))
        assert server.shut_down().ok
    assert late_image.datadir.stat().st_uid == servers.pw_uid
    assert scratch_account.account_for(servers.pw_uid, with_keys=True).ids == (servers.pw_uid, servers.pw_gid)


@pytest.mark.skipif(os.geteuid() != 0, reason="others run it as themselves")
def test_nothing_that_it_has_started_outlives_it(late_image: Image) -> None:
    """Root then works in the copy, where whoever lived on could put links in its way."""
    with late_image.scratch().running() as server:
        uid = status_of(server)["Uid"].split()[0]
        argv = ["setpriv", f"--reuid={uid}", "--clear-groups", "sleep", "infinity"]
        stray = subprocess.Popen(argv, start_new_session=True)
        wait_until(lambda: Path(f"/proc/{stray.pid}").stat().st_uid == int(uid))
        assert server.shut_down().ok
    assert stray.wait(60) == -signal.SIGKILL


def test_another_server_that_answers_in_its_place_is_asked_nothing(
    late_image: Image, mysql_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would be told by root is to forget its binlogs, to follow another source, to shut down."""
    live = Login("root", socket=mysql_server.socket)
    monkeypatch.setattr(scratch, "Login", lambda _user, socket: replace(live, socket=_led_to(live, socket)))
    with pytest.raises(ServerError, match="answers at the socket of the server"), late_image.scratch().running():
        raise AssertionError("asked")
    with mysql_server.session() as session:
        assert session.peer == int(Path(session.value("SELECT @@pid_file") or "").read_text())


def _led_to(live: Login, socket: Path) -> Path:
    """A link at the place of the scratch server's own socket."""
    link = socket.with_name("link")
    link.unlink(missing_ok=True)
    assert live.socket is not None
    link.symlink_to(live.socket)
    return link


def test_it_knows_nothing_of_what_our_environment_has(late_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a secret")
    with late_image.scratch().running() as server:
        environment = Path(f"/proc/{server._process.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"AZURE_STORAGE_KEY" not in environment


def test_it_is_never_root_has_no_rights_and_no_network(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        told, pid = status_of(server), process_of(server)
        namespaces = [Path(f"/proc/{each}/ns/net").readlink() for each in (pid, "self")]
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    (uid,) = {int(each) for each in told["Uid"].split()}
    assert is_nobody(uid) if os.geteuid() == 0 else uid == os.geteuid()
    assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == 0
    assert told["NoNewPrivs"] == "1"
    assert namespaces[0] != namespaces[1]
    assert [line.partition(":")[0].strip() for line in lines[2:]] == ["lo"]


def test_it_can_write_its_copy_and_nothing_else_however_open_that_is(
    late_image: Image, mysql_server: MariadbServer
) -> None:
    for folder in (mysql_server.folder, mysql_server.datadir):
        folder.chmod(0o777)
    late_image.folder.parent.chmod(0o700)  # another test may have opened it: then the copy is seen where it is
    outside = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), mysql_server.datadir]
    name = f"backupd-was-here-{os.getpid()}"
    with late_image.scratch().running() as server:
        for folder in outside:
            with pytest.raises(StatementError):
                server.session.execute(f"SELECT 'x' INTO OUTFILE '{folder}/{name}'")
            assert not (folder / name).exists()
        server.session.execute(f"SELECT 'x' INTO OUTFILE '{server.session.value('SELECT @@datadir')}{name}'")
        assert (late_image.datadir / name).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_copy_is_its_owners_again_afterwards_with_all_that_was_made_in_it(late_image: Image) -> None:
    def owners() -> set[tuple[int, int]]:
        found = [path.lstat() for path in (late_image.folder, *late_image.folder.rglob("*"))]
        return {(each.st_uid, each.st_gid) for each in found}

    assert owners() == {(0, 0)}
    with late_image.scratch().running() as server:
        server.session.execute("CREATE DATABASE made_meanwhile")
        (uid,) = {uid for uid, gid in owners() if gid == 0 and uid != 0}
        assert is_nobody(uid)
        assert server.shut_down().ok
    assert (late_image.datadir / "made_meanwhile").is_dir()
    assert owners() == {(0, 0)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_host_that_has_no_room_for_what_a_server_needs_tells_nothing_of_the_copy(
    late_image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/tmp` was full: a traceback was all that was told."""
    index, write_text = "binlog.index", Path.write_text

    def full(path: Path, *words: object, **named: object) -> object:
        if path.name == index:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_text(path, *words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    owner = late_image.datadir.stat().st_uid
    with pytest.raises(Undecided, match=f"files: .*{index}: No space left") as told, late_image.scratch().running():
        pass
    assert "check the free space" in told.value.hint
    assert late_image.datadir.stat().st_uid == owner


def test_an_archive_does_not_choose_whom_of_this_host_it_runs_as(late_image: Image) -> None:
    somebody = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534) and entry.pw_name != "mysql")
    for path in (late_image.datadir, *late_image.datadir.rglob("*")):
        os.chown(path, somebody.pw_uid, somebody.pw_gid)
    with late_image.scratch().running() as server:
        assert is_nobody(int(status_of(server)["Uid"].split()[0]))
        assert status_of(server)["Groups"].split() == []


def test_where_nothing_can_keep_it_within_its_bounds_it_does_not_start(late_image: Image) -> None:
    manifest = late_image.folder / "manifest"
    manifest.write_text(to_text(late_image.manifest))
    argv = [sys.executable, "-c", START, str(late_image.folder), str(manifest)]
    done = subprocess.run(
        [*without(["unshare", "landlock_create_ruleset"]), *argv], capture_output=True, text=True, check=False
    )
    assert "UsageError: the server on the restored files cannot be confined on this host" in done.stderr
    assert "started" not in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="others run it as themselves")
def test_an_unconfined_one_is_not_root_either(late_image: Image) -> None:
    unconfined = ScratchServer(late_image.folder, late_image.manifest, start_seconds=50, confined=False)
    late_image.folder.parent.chmod(0o700)
    with pytest.raises(UsageError, match="only root can enter"), unconfined.running():
        raise AssertionError("started")
    for folder in (late_image.folder, *late_image.folder.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)
    with unconfined.running() as server:
        assert is_nobody(int(status_of(server)["Uid"].split()[0]))
        assert int(status_of(server)["CapEff"], 16) == 0


def test_the_log_of_a_server_is_not_read_through_a_link(late_image: Image) -> None:
    with late_image.scratch().running() as server:
        log = Path(server.session.value("SELECT @@log_error") or "")
        assert "ready for connections" in server.error_log
        log.unlink()
        log.symlink_to("/etc/passwd")
        with pytest.raises(ServerError, match="cannot read the error log"):
            _ = server.error_log


def test_every_setting_of_this_server_is_taken(late_image: Image) -> None:
    recorded = late_image.manifest
    assert recorded.server.settings.keys() - judged(recorded).server.settings.keys() == {
        "plugin_dir",
        "storage_engines",
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--aria-block-size=16384",),
        ("--aria-block-size=32768", "--innodb-page-size=64k", "--innodb-checksum-algorithm=strict_full_crc32"),
        (
            *("--innodb-page-size=32k", "--innodb-undo-tablespaces=4", "--lower-case-table-names=1"),
            *("--innodb-data-file-path=first:12M;second:12M:autoextend", "--aria-log-file-size=16M"),
        ),
    ],
    ids=["Aria's pages", "large pages", "InnoDB's files"],
)
def test_a_copy_of_files_that_are_otherwise_than_by_default_starts(options: Sequence[str], tmp_path: Path) -> None:
    with mariadb(*options) as server:
        image = taken(server, tmp_path)
    with image.scratch().running() as copy:
        for engine in ("innodb", "aria"):
            assert copy.session.value(f"SELECT COUNT(*) FROM t.{engine}") == "2"
    size = next((option.partition("=")[2] for option in options if option.startswith("--aria-block-size=")), "8192")
    relocation = Relocation(image.folder, image.manifest.datadir, image.manifest.server.datadir)
    for written in (
        option_file(image.manifest, relocation, ReplicaWish(8, Following.GTID, None)),
        scrubbed_option_file(image.manifest, relocation),
    ):
        assert f"aria_block_size = {size}" in written.splitlines()


def test_no_session_ends_because_it_waits_for_another_one(late_image: Image) -> None:
    """The server ends a silent one after eight hours by default; rows of a large table take longer."""
    with late_image.scratch().running() as server, server.another_session(answer_seconds=10) as other:
        for session in (server.session, other):
            assert int(session.value("SELECT @@session.wait_timeout") or 0) == 365 * 24 * 60 * 60


def test_an_answer_that_takes_too_long_says_nothing_of_the_backup(late_image: Image) -> None:
    with late_image.scratch().running() as server, server.another_session(answer_seconds=1) as impatient:
        with pytest.raises(Undecided, match="took too long"), server.within_limits():
            impatient.query("SELECT SLEEP(30)")
        assert server.session.value("SELECT 1") == "1"


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
    with pytest.raises(ServerError, match=f"{name} points outside"), late_image.scratch().running():
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
