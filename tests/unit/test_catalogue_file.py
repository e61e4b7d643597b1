"""The catalogue's file: how it is made, what it refuses, and what two processes may do to it at once."""

import errno
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from backupd.catalogue import database, tables
from backupd.catalogue.database import _switch_to_wal, direct, engine_for, fault
from backupd.catalogue.store import Catalogue
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled, CatalogueError, CatalogueUnavailable, ExitStatus
from backupd.vocabulary.records import Holding, HoldingKind, RunStatus
from backupd.vocabulary.storage import Backup

ROOT = Path(__file__).parents[2]
BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
PREAMBLE = """
import resource, sys
from pathlib import Path
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.storage import Backup
path = Path(sys.argv[1])
backup = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.db"


def python(script: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)]


def without_root_s_rights(argv: list[str]) -> list[str]:
    """Root may read and write whatever the mode says; tests may run as root or not."""
    rights = "-dac_override,-dac_read_search,-fowner"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", "--", *argv] if os.geteuid() == 0 else argv


def elsewhere(path: Path) -> sqlite3.Connection:
    """What another process does, for a thread to do."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def refusal(path: Path) -> CatalogueError:
    with pytest.raises(CatalogueError) as raised:
        Catalogue.open(path)
    assert raised.value.exit_status is ExitStatus.CATALOGUE
    assert raised.value.hint
    return raised.value


def refusal_for_a_plain_user(path: Path) -> str:
    script = "try: Catalogue.open(path)\nexcept CatalogueError as error: print(error.message, '/', error.hint)"
    argv = without_root_s_rights(python(script, path))
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout


# --- making it -------------------------------------------------------------------------------------------------------


def test_a_new_catalogue_and_its_folder_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "backupd" / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        assert catalogue.runs() == []
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes["catalogue.db"] == 0o600
        assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["catalogue.db"]


def test_an_empty_file_becomes_a_catalogue(path: Path) -> None:
    path.touch()
    with Catalogue.open(path) as catalogue:
        assert catalogue.runs() == []


def test_a_relative_path_is_meant_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Catalogue.open(Path("catalogue.db")).close()
    assert (tmp_path / "catalogue.db").stat().st_size > 0


def test_what_is_acknowledged_survives_a_power_cut(path: Path) -> None:
    """As far as SQLite can promise: WAL with a sync at each commit, which is `synchronous` 2."""
    Catalogue.open(path).close()
    engine = engine_for(path, busy_timeout_seconds=1)
    with engine.connect() as connection:
        found = [connection.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")]
    engine.dispose()
    assert found == ["wal", 2, 1]


# --- what it refuses -------------------------------------------------------------------------------------------------


def test_a_path_below_missing_folders_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path / "missing" / "folder" / "catalogue.db")
    assert "the folder of the catalogue" in error.message
    assert "does not exist" in error.message
    assert error.hint == f"mkdir -p {tmp_path / 'missing' / 'folder'}"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path).message == f"the catalogue {tmp_path} is a folder"


def test_a_file_in_place_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "the catalogue" in refusal(tmp_path / "file" / "catalogue.db").message


def test_a_dangling_link_is_refused(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "folder" / "catalogue.db")
    assert "cannot be opened" in refusal(path).message


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("a shopping list, long enough to fill the header of a database\n" * 50)
    before = path.read_bytes()
    assert "is not a catalogue" in refusal(path).message
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    assert refusal(path).message == f"{path} is a database of something else, not a catalogue"
    assert path.read_bytes() == before


def test_a_damaged_catalogue_says_so(path: Path) -> None:
    with Catalogue.open(path) as catalogue:
        for number in range(50):
            with catalogue.open_run("nightly", "db1", run_id=f"r{number}") as run:
                run.complete((BACKUP,))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(CatalogueError, match="is damaged") as raised, Catalogue.open(path) as catalogue:
        catalogue.runs()
    assert "move the file away" in raised.value.hint
    assert "backupd catalogue rebuild" in raised.value.hint  # what is to be typed then


def test_a_file_system_that_cannot_hold_it_safely_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory cannot be in WAL mode, as what is on some network file systems cannot."""
    monkeypatch.setattr(database, "direct", lambda *_path, **_how: closing(sqlite3.connect(":memory:")))
    assert "cannot hold it safely (journal mode memory)" in refusal(path).message
    assert path.read_bytes() == b""


def test_one_who_finds_it_locked_while_it_is_made_tries_until_his_time_is_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does not always wait where the journal's mode is changed: here it never does."""
    with closing(elsewhere(path)) as other, closing(sqlite3.connect(path, timeout=0)) as ours:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            _switch_to_wal(ours, deadline=time.monotonic())
        monkeypatch.setattr("backupd.catalogue.database.time.sleep", lambda _seconds: other.execute("ROLLBACK"))
        assert _switch_to_wal(ours, deadline=math.inf) == "wal"


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Catalogue.open(path).close()
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    error = refusal(path)
    assert error.message.endswith(f"written by a newer backupd: its schema is 9999, this one knows {tables.HEAD}")
    assert path.read_bytes() == before


def test_a_folder_that_may_not_be_looked_into_is_refused(tmp_path: Path) -> None:
    """As the package's own is to anybody who has forgotten `sudo`."""
    folder = tmp_path / "folder"
    folder.mkdir()
    Catalogue.open(folder / "catalogue.db").close()
    folder.chmod(0o000)
    said = refusal_for_a_plain_user(folder / "catalogue.db")
    assert said.startswith(
        f"the catalogue {folder / 'catalogue.db'} cannot be opened: Permission denied / run backupd as"
    )


@pytest.mark.thorough
def test_a_file_that_may_not_be_read_is_refused(path: Path) -> None:
    Catalogue.open(path).close()
    path.chmod(0o000)
    said = refusal_for_a_plain_user(path)
    assert f"the catalogue {path} cannot be opened (unable to open database file) / run backupd as root" in said


def test_a_file_that_may_not_be_written_is_refused(path: Path) -> None:
    Catalogue.open(path).close()
    path.chmod(0o400)
    script = (
        "try:\n with Catalogue.open(path) as c, c.open_run('nightly', 'db1', run_id='r1'): pass\n"
        "except CatalogueError as error: print(error.message, '/', error.hint)"
    )
    argv = without_root_s_rights(python(script, path))
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
    assert f"the catalogue {path} cannot be written (attempt to write a readonly database) / run backupd as" in said


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    said = refusal_for_a_plain_user(folder / "catalogue.db")
    assert said.startswith(f"the catalogue {folder / 'catalogue.db'} cannot be created: Permission denied / ")


@pytest.fixture
def read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of the catalogue's folder is, as ext4 is after an error of its disk; that of a link is not."""
    real = os.statvfs(path.parent)

    def mounted(asked: Path) -> os.statvfs_result:
        flags = real.f_flag | (os.ST_RDONLY if Path(asked) == path.parent.resolve() else 0)
        return os.statvfs_result((*tuple(real)[:8], flags, real.f_namemax))

    monkeypatch.setattr("backupd.host.filesystem.os.statvfs", mounted)


@pytest.mark.parametrize(
    ("uri", "statement", "said"),
    [
        ("{path}?mode=ro", "CREATE TABLE t (n)", "cannot be written: its file system is read-only (attempt to write a"),
        ("{path}-none?mode=ro", "SELECT 1", "cannot be opened: its file system is read-only (unable to open"),
    ],
)
def test_a_file_system_that_is_read_only_is_called_so(
    path: Path, tmp_path_factory: pytest.TempPathFactory, read_only: None, uri: str, statement: str, said: str
) -> None:
    Catalogue.open(path).close()
    link = tmp_path_factory.mktemp("elsewhere") / "catalogue.db"
    link.symlink_to(path)
    with pytest.raises(sqlite3.OperationalError) as raised, closing(sqlite3.connect(path)) as held:
        held.execute("SELECT * FROM sqlite_schema")  # without the file beside it that WAL needs nothing could be read
        with closing(sqlite3.connect(f"file:{uri.format(path=path)}", uri=True)) as connection:
            connection.execute(statement)
    for name in (path, link):
        error = fault(name, raised.value)
        assert error.message.startswith(f"the catalogue {name} {said}")
        assert "dmesg" in error.hint
        assert "as root" not in error.hint
        assert isinstance(error, CatalogueUnavailable)  # for which the daemon waits, and of which it tells


def test_no_catalogue_can_be_made_on_a_file_system_that_is_read_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def open_(name: Path, flags: int, *arguments: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(name, flags, *arguments)

    monkeypatch.setattr(os, "open", open_)
    error = refusal(path)
    assert error.message == f"the catalogue {path} cannot be created: Read-only file system"
    assert "dmesg" in error.hint


# --- failing in mid-run ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_file_that_cannot_grow_fails_the_run_and_keeps_what_was_there(path: Path) -> None:
    script = (
        "with Catalogue.open(path) as c, c.open_run('nightly', 'db1', run_id='r1') as run:\n"
        "    run.hold(Holding(HoldingKind.MOUNT, '/mnt'))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        "    try: run.samples([Sample(float(n), 'settle') for n in range(50_000)])\n"
        "    except CatalogueError as error: print(error.message, '/', error.hint)\n"
        "    run.complete((backup,))"
    )
    told = subprocess.run(python(script, path), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert (
        f"the catalogue {path} cannot be read or written: the disk failed or is full (disk I/O error) /" in told.stdout
    )
    with Catalogue.open(path) as catalogue:
        found = catalogue.run("r1")
        assert (found.status, found.samples) == (RunStatus.SUCCESS, ())
        assert len(catalogue.holdings("r1")) == 1


def test_a_full_disk_is_called_so(path: Path) -> None:
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("CREATE TABLE filler (bytes BLOB)")
        connection.execute("PRAGMA max_page_count=2")
        with pytest.raises(sqlite3.OperationalError) as raised:
            connection.execute("INSERT INTO filler VALUES (zeroblob(100000))")
    error = fault(path, raised.value)
    assert error.message == f"the catalogue {path} cannot be written: no space left (database or disk is full)"
    assert error.hint == "free space on its file system"


def test_a_stop_signal_ends_a_run_as_cancelled(path: Path) -> None:
    def run_and_be_stopped(catalogue: Catalogue) -> None:
        with cancellable(), catalogue.open_run("nightly", "db1", run_id="r1") as run:
            run.hold(Holding(HoldingKind.MOUNT, "/mnt"))
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal comes before this")

    with Catalogue.open(path) as catalogue:
        with pytest.raises(Cancelled):
            run_and_be_stopped(catalogue)
        found = catalogue.run("r1")
    assert found.error is not None
    assert (found.status, found.error.code) == (RunStatus.CANCELLED, "terminated")


# --- two processes ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_processes_that_find_no_catalogue_make_one_between_them(path: Path) -> None:
    script = (
        "print('ready', flush=True); sys.stdin.read()\n"
        "with Catalogue.open(path) as c, c.open_run('nightly', 'db1', run_id=sys.argv[2]) as run:"
        " run.complete((backup,))"
    )
    names = ["r0", "r1", "r2", "r3"]
    others = [
        subprocess.Popen(python(script, path, name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        for name in names
    ]
    for other in others:
        assert other.stdout is not None
        other.stdout.readline()
    for other in others:
        assert other.stdin is not None
        other.stdin.close()
    for other in others:
        other.wait()
        assert other.stdout is not None
        other.stdout.close()
    assert [other.returncode for other in others] == [0, 0, 0, 0]
    with Catalogue.open(path) as catalogue:
        assert {run.run_id for run in catalogue.runs()} == {"r0", "r1", "r2", "r3"}


@pytest.mark.exhaustive
def test_a_run_is_not_lost_because_others_have_written_for_longer_than_five_seconds(path: Path) -> None:
    with Catalogue.open(path) as catalogue, closing(elsewhere(path)) as others:
        with catalogue.open_run("nightly", "db1", run_id="r1") as run:
            others.execute("BEGIN IMMEDIATE")
            end = threading.Timer(6.0, others.execute, ("COMMIT",))
            end.start()
            run.complete((BACKUP,))
            end.join()
        assert catalogue.run("r1").status is RunStatus.SUCCESS


def test_a_reader_sees_a_live_run_grow_and_never_holds_it_up(path: Path) -> None:
    script = (
        "with Catalogue.open(path) as c, c.open_run('nightly', 'db1', run_id='r1') as run:\n"
        "    for number, _ in enumerate(sys.stdin):\n"
        "        run.hold(Holding(HoldingKind.STAGING, f'/staging/{number}'))\n"
        "        print(number, flush=True)\n"
        "    run.complete((backup,))"
    )
    Catalogue.open(path).close()
    writer = subprocess.Popen(python(script, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert writer.stdin is not None
    assert writer.stdout is not None

    def hold_one_more() -> str:
        assert writer.stdin is not None
        assert writer.stdout is not None
        print("go", file=writer.stdin, flush=True)
        return writer.stdout.readline()

    with Catalogue.open(path) as catalogue, direct(path, busy_timeout_seconds=0) as slow_reader:
        assert hold_one_more() == "0\n"
        slow_reader.execute("BEGIN")
        assert slow_reader.execute("SELECT count(*) FROM holdings").fetchone() == (1,)
        for number in range(1, 20):
            assert hold_one_more() == f"{number}\n"
            assert len(catalogue.holdings("r1")) == number + 1
        assert slow_reader.execute("SELECT count(*) FROM holdings").fetchone() == (1,)  # it sees one instant
        assert catalogue.run("r1").status is RunStatus.RUNNING
        writer.communicate()
        assert catalogue.run("r1").status is RunStatus.SUCCESS


def test_one_that_was_moved_away_from_under_a_process_is_not_begun_anew(path: Path) -> None:
    with Catalogue.open(path) as daemon:
        daemon.pause("nightly", "committed, and not in the file yet")
        path.rename(path.with_name("moved"))
        error = refusal(path)
        assert "a process has it open under another name" in error.message
        assert "serve --drain" in error.hint
        assert not path.exists()


def test_what_a_killed_process_left_beside_one_that_is_gone_is_kept_and_a_new_one_begun(path: Path) -> None:
    """It has the newest rows of the one that was moved."""
    with Catalogue.open(path) as killed:
        killed.pause("nightly", "committed, and not in the file yet")
        log = path.with_name(f"{path.name}-wal").read_bytes()
    path.rename(path.with_name("moved"))
    path.with_name(f"{path.name}-wal").write_bytes(log)
    with Catalogue.open(path) as anew:
        assert anew.pauses() == {}
    assert path.with_name(f"{path.name}-wal.before").read_bytes() == log


def test_what_one_that_is_gone_has_left_outlives_the_loss_of_the_next_one(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    for rows in (b"of the first", b"of the second", b"of the third"):
        log.write_bytes(rows)
        Catalogue.open(path).close()
        path.unlink()
    kept = sorted(path.parent.glob(f"{log.name}.before*"))
    assert [file.read_bytes() for file in kept] == [b"of the first", b"of the second", b"of the third"]


@pytest.mark.thorough
def test_processes_that_find_what_one_that_is_gone_has_left_begin_one_between_them(tmp_path: Path) -> None:
    """Nobody takes what another one has begun for what was left."""
    script = (
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    with Catalogue.open(Path(line.strip())) as c, c.open_run('nightly', 'db1', run_id=sys.argv[2]) as run:\n"
        "        run.complete((backup,))\n"
        "    print('done', flush=True)"
    )
    names = ["r0", "r1", "r2", "r3"]
    others = [
        subprocess.Popen(
            python(script, tmp_path, name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for name in names
    ]

    def said() -> list[str]:
        return [other.stdout.readline() for other in others if other.stdout is not None]

    assert said() == ["ready\n"] * 4
    for number in range(5):
        path = tmp_path / f"{number}.db"
        log = path.with_name(f"{path.name}-wal")
        log.write_bytes(b"of one that is gone")
        for other in others:
            print(path, file=other.stdin, flush=True)
        assert said() == ["done\n"] * 4
        assert [file.read_bytes() for file in tmp_path.glob(f"{log.name}.before*")] == [b"of one that is gone"]
        with Catalogue.open(path) as catalogue:
            assert {run.run_id for run in catalogue.runs()} == set(names)
    for other in others:
        other.communicate()
