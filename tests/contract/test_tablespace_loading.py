"""Tables of a backup, imported into the running server as files: the same in every bit, seen whole or not at all."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.store import Catalogue
from backupd.mysql import tablespace_loading
from backupd.mysql.loading_schema import LOADING, remove_left_loading
from backupd.mysql.replacing_statements import statements_for
from backupd.mysql.row_loading import checksum as checksum_of
from backupd.mysql.session import Row, Session
from backupd.mysql.tablefiles import Table
from backupd.mysql.tablespace_ids import highest, is_free, number_of
from backupd.mysql.tablespace_loading import obstacle_of_backup
from backupd.operations.restore import table_loading as operation
from backupd.operations.restore.into_server import into_server, load_recovered
from backupd.operations.restore.table_loading import LoadedTables
from backupd.operations.run_holdings import RunHoldings
from backupd.vocabulary.errors import Cancelled, Refused, ServerError, VerificationError
from backupd.vocabulary.servers import Flavour, LoadingWay
from tests.contract.mariadb import MariadbServer, mariadb, mysql_server
from tests.contract.test_loading import AWKWARD, CHILD, PARTED, before, catalogue, checksum, definition, schemas
from tests.contract.test_scratch import RUN, Image, keep_only, taken

pytestmark = pytest.mark.exhaustive

__all__ = ["before", "catalogue", "mysql_server"]

TABLESPACE, ROWS = LoadingWay.TABLESPACE, LoadingWay.ROWS
Load = Callable[..., LoadedTables]


@pytest.fixture(scope="module")
def quiet() -> Iterator[MariadbServer]:
    """A running server without a binary log."""
    with mariadb("--skip-log-bin") as server:
        yield server


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def load(quiet: MariadbServer, before: Image, catalogue: Catalogue, told: list[str]) -> Iterator[Load]:
    """Into that server; afterwards its datadir is as it was."""
    kept = files_of(quiet)

    def loaded(
        *tables: Table, by: LoadingWay | None = None, to: MariadbServer = quiet, image: Image = before
    ) -> LoadedTables:
        into = into_server("db1", to.connect(), "restored", tables, by=by)
        return load_recovered(
            image.folder, image.manifest, tables, into, RunHoldings(catalogue, RUN), telling=told.append
        )

    yield loaded
    with quiet.session() as root:
        root.execute("DROP DATABASE IF EXISTS restored")
    assert files_of(quiet) == kept
    assert list(catalogue.holdings(RUN)) == []


def files_of(server: MariadbServer) -> set[str]:
    """Every schema's folder and what is in it."""
    found = (path.relative_to(server.datadir) for path in server.datadir.glob("**/*"))
    return {str(path) for path in found if len(path.parts) > 1 or (server.datadir / path).is_dir()}


def test_a_table_of_every_type_is_the_same_in_every_bit(
    quiet: MariadbServer, mysql_server: MariadbServer, load: Load, told: list[str]
) -> None:
    awkward, child = load(AWKWARD, CHILD).tables
    with mysql_server.session() as live, quiet.session() as root:
        for table in ("awkward", "child"):
            assert checksum(root, f"restored.{table}") == checksum(live, f"live.{table}")
        assert definition(root, "restored.awkward") == definition(live, "live.awkward")
        assert root.value("SELECT COUNT(*) FROM restored.child") == str(child.rows) == "5000"
        assert {row["Msg_text"] for row in root.query("CHECK TABLE restored.awkward, restored.child")} == {"OK"}
        root.execute("INSERT INTO restored.child VALUES (9001, 'new', NULL)")
    assert awkward.checksum is not None
    assert sorted(path.name for path in (quiet.datadir / "restored").iterdir()) == [
        *("awkward.frm", "awkward.ibd", "child.frm", "child.ibd", "db.opt"),
    ]
    own = (quiet.datadir / "t" / "innodb.ibd").stat()
    new = (quiet.datadir / "restored" / "child.ibd").stat()
    assert (own.st_uid, own.st_gid, own.st_mode) == (new.st_uid, new.st_gid, new.st_mode)
    assert "importing live.child" in told
    assert any("schema restored, by tablespace: its binary log is off, so no replica" in line for line in told)


def test_what_cannot_be_imported_is_loaded_by_rows_beside_it(
    quiet: MariadbServer, mysql_server: MariadbServer, load: Load, told: list[str]
) -> None:
    load(PARTED, CHILD)
    assert any("by tablespace and by rows: its binary log is off" in line for line in told)
    assert "live.parted is loaded by rows: it has partitions, or no tablespace of its own in the datadir" in told
    with mysql_server.session() as live, quiet.session() as root:
        for table in ("parted", "child"):
            assert checksum(root, f"restored.{table}") == checksum(live, f"live.{table}")
    with quiet.session() as root:
        root.execute("DROP DATABASE restored")
    with pytest.raises(Refused, match=r"live\.parted cannot be loaded by tablespace: it has partitions"):
        load(PARTED, by=TABLESPACE)


def test_by_rows_can_be_asked_for(load: Load, told: list[str]) -> None:
    load(CHILD, by=ROWS)
    assert "loading live.child" in told


def test_a_server_with_a_binary_log_gets_rows_unless_the_operator_says_otherwise(
    mysql_server: MariadbServer, load: Load, told: list[str]
) -> None:
    with mysql_server.session() as root:
        try:
            load(CHILD, to=mysql_server)
            assert any(
                line.startswith("not by tablespace: the server's binary log is on: its replicas") for line in told
            )
            root.execute("DROP DATABASE restored")
            where = logged(root)
            loaded = load(CHILD, by=TABLESPACE, to=mysql_server)
            assert logged(root) == where
            assert any(
                "they do not go through its binary log, so neither its replicas (0 connected) nor a recovery" in line
                for line in told
            )
            [child] = loaded.tables
            assert checksum(root, "restored.child") == checksum(root, "live.child")
            assert not loaded.logged
            assert child.difference is not None
            said = statements_for(child.shape, "restored", child.difference, logged=False)
            assert said[:2] == (
                *(
                    "-- the binary log lacks schema `restored`: replicas must be sent rows",
                    "SET SESSION binlog_format = ROW;",
                ),
            )
            assert not [line for line in said if line.startswith("RENAME")]
        finally:
            root.execute("DROP DATABASE IF EXISTS restored")


def logged(root: Session) -> Mapping[str, str | None] | None:
    return root.one("SHOW MASTER STATUS")


def test_without_the_privilege_to_keep_it_out_of_the_log_nothing_is_made(
    mysql_server: MariadbServer, before: Image, catalogue: Catalogue
) -> None:
    for grants, sentence in (
        ("SELECT, INSERT, CREATE, ALTER, DROP, BINLOG ADMIN", r"may not see the numbers of its tablespaces"),
        ("SELECT, INSERT, CREATE, ALTER, DROP, PROCESS", "may not keep the tables out of the binary log"),
    ):
        restorer = mysql_server.account("restorer", f"GRANT {grants} ON *.* TO 'restorer'@'localhost'")
        into = into_server("db1", restorer, "restored", [CHILD], by=TABLESPACE)
        with pytest.raises(Refused, match=sentence) as refused:
            load_recovered(before.folder, before.manifest, [CHILD], into, RunHoldings(catalogue, RUN))
    assert "GRANT BINLOG ADMIN" in refused.value.hint
    with mysql_server.session() as root:
        assert schemas(root) == {"elsewhere", "live", "t"}


def test_a_server_that_keeps_tables_elsewhere_gets_rows_and_is_refused_a_tablespace(
    load: Load, told: list[str], mysql_server: MariadbServer
) -> None:
    sentence = "it keeps tables in its system tablespace"
    with mariadb("--skip-log-bin", "--innodb-file-per-table=0") as other:
        load(CHILD, to=other)
        assert any(line.startswith(f"not by tablespace: {sentence}") for line in told)
        with mysql_server.session() as live, other.session() as root:
            assert checksum(root, "restored.child") == checksum(live, "live.child")
            root.execute("DROP DATABASE restored")
        with pytest.raises(Refused, match=f"db1 cannot import a tablespace of this backup: {sentence}"):
            load(CHILD, by=TABLESPACE, to=other)


@pytest.mark.parametrize(
    ("changed", "recovered_by", "sentence"),
    [
        ({}, "10.11.0", None),
        ({}, "10.11.99", "older than the server that recovers the files (10.11.99)"),
        ({"page_size": 8192}, "10.11.0", "its pages are of 16384 bytes, those of the backup of 8192"),
        ({"version_number": (10, 6, 1)}, "10.6.1", "and the backup is of mariadb"),
        ({"flavour": Flavour.MYSQL}, "10.11.0", "and the backup is of mysql"),
        ({"settings": {"innodb_encrypt_tables": "ON"}}, "10.11.0", "that was backed up had keys for encryption"),
    ],
)
def test_what_speaks_against_a_tablespace_is_said(
    quiet: MariadbServer, before: Image, changed: Mapping[str, Any], recovered_by: str, sentence: str | None
) -> None:
    manifest = replace(before.manifest, server=replace(before.manifest.server, **changed))
    with quiet.session() as session:
        found = obstacle_of_backup(session, manifest, recovered_by)
    assert found is None if sentence is None else sentence in (found or "")


def test_a_server_with_another_row_format_refuses_the_import_and_gets_rows(
    quiet: MariadbServer, mysql_server: MariadbServer, load: Load, told: list[str]
) -> None:
    with quiet.session() as root, mysql_server.session() as live:
        root.execute("SET GLOBAL innodb_default_row_format = compact")
        try:
            load(CHILD, AWKWARD)
            assert checksum(root, "restored.child") == checksum(live, "live.child")
            root.execute("DROP DATABASE restored")
            assert any(line.startswith("live.child is loaded by rows after all: Schema mismatch") for line in told)
            with pytest.raises(ServerError, match="Schema mismatch"):
                load(CHILD, by=TABLESPACE)
        finally:
            root.execute("SET GLOBAL innodb_default_row_format = DEFAULT")


def test_a_datadir_that_is_not_seen_is_no_place_to_write(
    load: Load, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablespace_loading, "datadir_here", lambda _session: None)
    load(CHILD)
    assert any(line.startswith("not by tablespace: its datadir is not known to be on this host") for line in told)


def test_a_folder_that_is_not_the_servers_own_gets_nothing(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(operation, "datadir_here", lambda _session: tmp_path)
    with pytest.raises(ServerError, match="cannot be opened, in which the server should keep the new tables"):
        load(CHILD)
    assert not list(tmp_path.glob("**/*.ibd"))


def test_a_file_system_that_would_run_full_is_refused_before_anything_is_made(
    load: Load, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "room", lambda _path: (1 << 20, 100 << 20, False))
    with pytest.raises(Refused, match=r"the file system of the datadir of db1 has 1\.0 MiB free: with these tables"):
        load(CHILD)
    assert "importing live.child" not in told


def test_a_file_system_that_runs_full_in_the_middle_leaves_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablespace_loading, "CHUNK_BYTES", 16384)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(ServerError, match=r"child\.ibd could not be copied into the server's datadir: No space left"):
        load(CHILD)


def test_what_was_not_committed_is_not_imported(mysql_server: MariadbServer, load: Load, tmp_path: Path) -> None:
    """Recovery rolls it back in the background, and an import takes all that it finds in a file for committed."""
    ledger = Table("t", "ledger")
    with mysql_server.session() as root, mysql_server.session() as batch:
        for _ in range(200):  # its number is beyond those of the other server: it need not be rebuilt for another one
            root.execute("CREATE OR REPLACE TABLE t.ledger (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB")
        root.execute("INSERT INTO t.ledger SELECT seq, 'committed' FROM t.seq_1_to_50000")
        batch.execute("BEGIN")
        batch.execute("DELETE FROM t.ledger WHERE id <= 25000")
        batch.execute("INSERT INTO t.ledger SELECT seq, 'not' FROM t.seq_50001_to_100000")
        image = taken(mysql_server, tmp_path)
        batch.execute("ROLLBACK")
        root.execute("DROP TABLE t.ledger")
    keep_only([ledger], image)
    assert load(ledger, by=TABLESPACE, image=image).tables[0].rows == 50000


def test_pages_that_were_damaged_on_the_way_are_refused_and_nothing_is_kept(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda page: page[:200] + b"x" * 100 + page[300:])
    with pytest.raises(ServerError, match=r"Data structure corruption|corrupt"):
        load(CHILD, by=TABLESPACE)


def spoil(monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]) -> None:
    """A page of the file, once it is in the datadir."""
    change_of = Session.execute

    def execute(session: Session, statement: str, *values: object) -> None:
        if "IMPORT" in statement:
            schema = statement.split("`")[1]
            datadir = Path(session.value("SELECT @@datadir") or "")
            with (datadir / schema / "child.ibd").open("r+b") as file:
                file.seek(16384 * 4)
                page = file.read(16384)
                file.seek(16384 * 4)
                file.write(change(page))
        change_of(session, statement, *values)

    monkeypatch.setattr(Session, "execute", execute)


def test_an_import_that_the_server_finds_damaged_afterwards_is_undone_and_rows_are_loaded(
    load: Load, monkeypatch: pytest.MonkeyPatch, told: list[str], quiet: MariadbServer, mysql_server: MariadbServer
) -> None:
    """As MySQL 9.7.4 does with an index on a virtual column of a table that was changed by ALGORITHM=INSTANT."""
    query = Session.query

    def damaged(session: Session, statement: str, *values: object) -> list[Row]:
        found = query(session, statement, *values)
        if statement.startswith("CHECK TABLE") and LOADING in statement:
            return [{**row, "Msg_type": "error", "Msg_text": "Corrupt"} for row in found]
        return found

    monkeypatch.setattr(Session, "query", damaged)
    with pytest.raises(VerificationError, match=r"live\.child, once imported, is damaged: error: Corrupt"):
        load(CHILD, by=TABLESPACE)
    load(CHILD)
    assert "live.child is loaded by rows after all: live.child, once imported, is damaged: error: Corrupt" in told
    with quiet.session() as root, mysql_server.session() as live:
        assert checksum(root, "restored.child") == checksum(live, "live.child")


def test_a_table_that_is_not_the_same_is_not_published(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        operation,
        "checksum",
        lambda session, schema, name: "1" if LOADING in schema else checksum_of(session, schema, name),
    )
    with pytest.raises(VerificationError, match=r"live\.child is not on db1 as it is in the backup: checksum 1"):
        load(CHILD)


@pytest.mark.parametrize("error", [Cancelled("stopped by SIGTERM"), ServerError("the session ended")])
def test_an_interrupted_copy_leaves_nothing(load: Load, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fdatasync", stop)
    with pytest.raises(type(error)):
        load(CHILD, AWKWARD)


@pytest.mark.parametrize("moment", ["EXPORT", "IMPORT", "RENAME"])
def test_a_server_that_is_killed_together_with_the_load_starts_again_and_recover_removes_what_is_left(
    mysql_server: MariadbServer,
    load: Load,
    before: Image,
    catalogue: Catalogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """Before the file is copied, imported, seen. The server has another tablespace of the number that it had."""
    execute = Session.execute
    own = before.copied(tmp_path / "image")

    def killed(session: Session, statement: str, *values: object) -> None:
        if moment in statement:
            os.kill(os.getpid(), signal.SIGKILL)
        execute(session, statement, *values)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(Session, "execute", killed)
            load(CHILD, by=TABLESPACE, to=mysql_server, image=own)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    mysql_server.stop(signal.SIGKILL)
    mysql_server.start()
    with mysql_server.session() as root:
        where = logged(root)
        (left,) = {schema for schema in schemas(root) if schema.startswith(LOADING)}
        found = sorted(path.name for path in (mysql_server.datadir / left).iterdir())
        assert ("child.cfg" in found) == (moment == "IMPORT")
        ((_, holding),) = catalogue.holdings(RUN)
        assert holding.name == left
        remove_left_loading(mysql_server.connect(), holding)
        catalogue.released(RUN, holding)
        assert not (mysql_server.datadir / left).exists()
        assert logged(root) == where
        assert root.value("SELECT COUNT(*) FROM live.child") == "5000"
        assert {row["Msg_text"] for row in root.query("CHECK TABLE live.child")} == {"OK"}
        assert root.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'restored'") == []
        root.execute("DROP DATABASE IF EXISTS restored")


def test_a_table_whose_number_is_free_keeps_it(
    mysql_server: MariadbServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a table that was dropped: nothing has to be rebuilt."""

    def rebuilt(*_: object, **_how: object) -> None:
        raise AssertionError

    with mysql_server.session() as root:
        root.execute("CREATE TABLE live.kept LIKE live.child")
        root.execute("INSERT INTO live.kept SELECT * FROM live.child")
        root.execute("DROP TABLE live.child")
        try:
            monkeypatch.setattr(tablespace_loading, "renumber", rebuilt)
            load(CHILD, by=TABLESPACE, to=mysql_server)
            assert checksum(root, "restored.child") == checksum(root, "live.kept")
        finally:
            root.execute("DROP DATABASE IF EXISTS restored")
            root.execute("RENAME TABLE live.kept TO live.child")


def test_numbers_of_tablespaces(mysql_server: MariadbServer, before: Image) -> None:
    file = mysql_server.datadir / "live" / "child.ibd"
    with mysql_server.session() as root:
        root.execute("FLUSH TABLES live.child FOR EXPORT")
        root.execute("UNLOCK TABLES")
        number = number_of(file, mysql_server.datadir)
        books = "SELECT SPACE FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME = 'live/child'"
        assert number == int(root.value(books) or 0)
        assert not is_free(root, number)
        assert not is_free(root, 0)
        top = highest(root) or 0
        assert not is_free(root, top + 1)
        assert is_free(root, top + 1000)
        with mysql_server.account("nobody")() as nobody:
            assert highest(nobody) is None
            assert not is_free(nobody, top + 1000)


def test_a_server_that_is_killed_during_the_load_leaves_what_recover_removes(
    quiet: MariadbServer, load: Load, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        quiet.stop(signal.SIGKILL)

    monkeypatch.setattr(os, "fdatasync", killed)
    with pytest.raises(ServerError, match=r"ended during|cannot connect") as failed:
        load(CHILD)
    assert any("clean-up incomplete" in note for note in failed.value.__notes__)
    quiet.start()
    ((_, holding),) = catalogue.holdings(RUN)
    remove_left_loading(quiet.connect(), holding)
    catalogue.released(RUN, holding)
