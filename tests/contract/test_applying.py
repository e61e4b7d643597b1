"""What a server logged after a backup, applied to the backup's files: they are what the server had at that moment."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from backupd.mysql.binlog.applying import Applied, AppliedPosition, ApplyingProgress, apply, stop
from backupd.mysql.binlog.relay_logs import LogPiece, RelayLogs, laid_down
from backupd.mysql.relocation import Relocation, require_self_contained
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.seeding import Following, ReplicaWish, seed
from backupd.mysql.session import Session
from backupd.mysql.startup import RELAY_FOLDER
from backupd.vocabulary.errors import Cancelled, ServerError, VerificationError
from backupd.vocabulary.servers import Flavour, LockReceipt, Position
from backupd.vocabulary.storage import Manifest
from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_proof_host import anybodys
from tests.contract.test_scratch import manifest, taken

__all__ = ["anybodys"]

Rows = Mapping[str, str | None]


@dataclass
class Witness:
    """A copy of a server's files, what the server logged since, and what it had at moments on the way."""

    folder: Path
    manifest: Manifest
    binlogs: Path = Path()
    moments: dict[str, tuple[Position, Rows]] = field(default_factory=dict)

    @property
    def start(self) -> Position:
        return self.manifest.position

    def restored(self, to: Path) -> Relocation:
        shutil.copytree(self.folder / "data", to / "data")
        return Relocation(to, "data", self.manifest.server.datadir)

    def pieces(self, end: Position, *, start: Position | None = None, at_once: int = 1000) -> Iterator[LogPiece]:
        begin = start or self.start
        for path in sorted(self.binlogs.glob("bin.0*")):
            if str(begin.binlog_file) <= path.name <= str(end.binlog_file):
                text = path.read_bytes()
                first = begin.binlog_offset if path.name == begin.binlog_file else 4
                last = end.binlog_offset if path.name == end.binlog_file else len(text)
                format_ = text[4 : 4 + int.from_bytes(text[13:17], "little")]
                events = [text[at : min(at + at_once, last or 0)] for at in range(first or 0, last or 0, at_once)]
                yield LogPiece(path.name, first or 0, format_, events, Flavour.MARIADB)


def rows_of(session: Session) -> Rows:
    """The checksum of the rows of every table that a person has made, and its definition."""
    named = session.query("SELECT TABLE_NAME AS n FROM information_schema.TABLES WHERE TABLE_SCHEMA = 't' ORDER BY 1")
    found: dict[str, str | None] = {}
    for name in (row["n"] for row in named):
        found[f"{name}"] = (session.one(f"CHECKSUM TABLE t.`{name}`") or {})["Checksum"]
        definition = (session.one(f"SHOW CREATE TABLE t.`{name}`") or {})["Create Table"] or ""
        found[f"{name} is"] = definition.partition(") ENGINE")[0]
    for name in ("global_priv", "db", "roles_mapping"):
        found[f"mysql.{name}"] = (session.one(f"CHECKSUM TABLE mysql.{name}") or {})["Checksum"]
    return found


def place(session: Session) -> Position:
    status = session.one("SHOW MASTER STATUS") or {}
    gtid = session.value("SELECT @@global.gtid_binlog_pos")
    return Position(status["File"], int(status["Position"] or 0), gtid)


def writers(server: MariadbServer) -> None:
    """Four clients, two of which write to the same rows."""

    def write(number: int) -> None:
        with server.session() as session:
            for turn in range(25):
                session.execute("BEGIN")
                session.execute(f"INSERT INTO t.innodb (v) VALUES ('{number}-{turn}')")
                session.execute(f"UPDATE t.counter SET n = n + {turn} WHERE id = {number % 2}")
                session.execute("COMMIT")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))


def all_engines(server: MariadbServer) -> None:
    with server.session() as session:
        for statement in (
            "INSERT INTO t.myisam (v) SELECT v FROM t.innodb LIMIT 50",
            "UPDATE t.aria SET v = CONCAT(v, 'x')",
            "INSERT INTO t.aria (v) VALUES (UUID())",
            "DELETE FROM t.myisam WHERE id % 3 = 0",
        ):
            session.execute(statement)


def definitions(server: MariadbServer) -> None:
    with server.session() as session:
        for statement in (
            "CREATE TABLE t.made (id INT PRIMARY KEY, w VARCHAR(20))",
            "INSERT INTO t.made VALUES (1, 'one')",
            "ALTER TABLE t.made ADD COLUMN more INT DEFAULT 5",
            "UPDATE t.made SET more = 6",
            "FLUSH BINARY LOGS",
            "RENAME TABLE t.made TO t.renamed",
            "CREATE TABLE t.gone LIKE t.innodb",
            "INSERT INTO t.gone SELECT * FROM t.innodb",
            "DROP TABLE t.gone",
            "TRUNCATE t.aria",
        ):
            session.execute(statement)


def statements(server: MariadbServer) -> None:
    """As statements; a temporary table is open over a rotation."""
    loaded = server.folder / "loaded"
    loaded.write_text("".join(f"{number}\tline\n" for number in range(100, 120)))
    with server.session() as session:
        for statement in (
            "SET SESSION binlog_format = 'STATEMENT'",
            "CREATE TEMPORARY TABLE t.shortly (id INT)",
            "INSERT INTO t.shortly VALUES (1000), (1001)",
            "FLUSH BINARY LOGS",
            "INSERT INTO t.innodb (id, v) SELECT id, 'temporary' FROM t.shortly",
            f"LOAD DATA INFILE '{loaded}' INTO TABLE t.renamed (id, w)",
            "SET @v = 'a variable'",
            "INSERT INTO t.innodb (v) VALUES (@v)",
            "DROP TEMPORARY TABLE t.shortly",
        ):
            session.execute(statement)


def accounts(server: MariadbServer) -> None:
    with server.session() as session:
        for statement in (
            "CREATE USER 'somebody'@'localhost' IDENTIFIED BY 'something'",
            "CREATE ROLE readers",
            "GRANT SELECT ON t.* TO readers",
            "GRANT readers TO 'somebody'@'localhost'",
            "GRANT RELOAD ON *.* TO 'somebody'@'localhost'",
            "ALTER USER 'somebody'@'localhost' IDENTIFIED BY 'something else'",
            "CREATE USER 'gone'@'localhost'",
            "DROP USER 'gone'@'localhost'",
            "FLUSH PRIVILEGES",
            "INSERT INTO t.innodb (v) VALUES ('behind the accounts')",
        ):
            session.execute(statement)


def prepared(server: MariadbServer) -> None:
    """Committed by the client that prepared it, over another's commit."""
    with server.session() as session, server.session() as other:
        for statement in ("XA START 'x'", "INSERT INTO t.innodb (v) VALUES ('xa')", "XA END 'x'", "XA PREPARE 'x'"):
            session.execute(statement)
        other.execute("INSERT INTO t.innodb (v) VALUES ('between')")
        session.execute("XA COMMIT 'x'")


def restarted(server: MariadbServer) -> None:
    server.stop()
    server.start()
    writers(server)


STEPS: Sequence[Callable[[MariadbServer], None]] = (
    writers,
    all_engines,
    definitions,
    accounts,
    statements,
    prepared,
    restarted,
)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    with mariadb("--binlog-format=ROW", "--gtid-strict-mode=ON", "--binlog-checksum=CRC32") as server:
        with server.session() as session:
            session.execute("CREATE TABLE t.counter (id INT PRIMARY KEY, n INT) ENGINE = InnoDB")
            session.execute("INSERT INTO t.counter VALUES (0, 0), (1, 0)")
            session.execute("FLUSH BINARY LOGS")
            session.execute("INSERT INTO t.innodb (v) VALUES ('the backup has it')")
            position = place(session)
        found = Witness(
            tmp_path_factory.mktemp("witness"), manifest(server, position, LockReceipt("ftwrl", 1, 0, 0, "none"))
        )
        server.stop()
        shutil.copytree(server.datadir, found.folder / "data")
        os.truncate(found.folder / "data" / str(position.binlog_file), position.binlog_offset or 0)
        server.start()
        found.manifest = replace(found.manifest, canary=None)
        for step in STEPS:
            step(server)
            with server.session() as session:
                found.moments[step.__name__] = place(session), rows_of(session)
        server.stop()
        found.binlogs = server.datadir
        yield found


def applied(
    witness: Witness,
    to: Path,
    end: Position,
    look: Callable[[RunningServer, Applied], None] = lambda _server, _applied: None,
    *,
    start: Position | None = None,
    pieces: Sequence[LogPiece] | None = None,
    appliers: int = 0,
    told: list[ApplyingProgress] | None = None,
    confined: bool = True,
) -> RelayLogs:
    """A copy of the witness's files is brought to `end`, and asked."""
    copy = witness.restored(to)
    scratch = ScratchServer(to, witness.manifest, start_seconds=50, applying=True, confined=confined)
    begin = start or witness.start
    with (
        laid_down(witness.pieces(end, start=begin) if pieces is None else pieces, copy) as logs,
        scratch.running() as server,
    ):
        telling = told.append if told is not None else lambda _progress: None
        look(server, apply(server, logs, start=begin, end=end, appliers=appliers, telling=telling))
        assert server.shut_down().ok
    assert not (to / RELAY_FOLDER).exists()
    return logs


@pytest.mark.parametrize("step", [step.__name__ for step in STEPS])
def test_it_stands_exactly_where_the_source_stood(witness: Witness, tmp_path: Path, step: str) -> None:
    end, rows = witness.moments[step]
    found: list[Rows] = []

    def look(server: RunningServer, done: Applied) -> None:
        found.append(rows_of(server.session))
        assert done.position == end
        assert server.session.value("SELECT @@global.gtid_slave_pos") == end.gtid
        assert server.session.query("SHOW ALL SLAVES STATUS") == []

    applied(witness, tmp_path, end, look)
    assert found == [rows]


def cancel(_progress: ApplyingProgress) -> None:
    raise Cancelled("cancelled")


def test_rows_that_a_shutdown_would_lose_are_not_gone_on_from(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]  # behind it are prepared transactions, within which the applier may stop
    copy = witness.restored(tmp_path)
    scratch = ScratchServer(tmp_path, witness.manifest, start_seconds=50, applying=True)
    so_far = AppliedPosition()

    with laid_down(witness.pieces(end), copy) as logs, scratch.running() as server:
        server.session.execute("CREATE TABLE t.memory (id INT) ENGINE = MEMORY")
        with pytest.raises(Cancelled):
            apply(server, logs, start=witness.start, end=end, applied=so_far, telling=cancel)
        assert stop(server, so_far) is None
        server.session.execute("DROP TABLE t.memory")
        reached = stop(server, so_far)
        assert reached is not None
        assert (reached.binlog_file or "", reached.binlog_offset or 0) <= (
            end.binlog_file or "",
            end.binlog_offset or 0,
        )
        assert server.session.query("SHOW ALL SLAVES STATUS") == []


@pytest.mark.parametrize(
    "own",
    [
        "JSON_OBJECT('plugin', 'mysql_native_password', 'authentication_string', PASSWORD('of the source'))",
        "JSON_OBJECT('plugin', 'not_loaded_here')",
    ],
)
def test_it_is_stopped_although_the_copy_s_own_root_has_a_password(witness: Witness, tmp_path: Path, own: str) -> None:
    """Once the copy's accounts count, nobody can log in without it, or where a plugin is not there at all."""
    end, _ = witness.moments["writers"]
    copy = witness.restored(tmp_path)
    scratch = ScratchServer(tmp_path, witness.manifest, start_seconds=50, applying=True)
    so_far = AppliedPosition()

    with laid_down(witness.pieces(end), copy) as logs, scratch.running() as server:
        server.session.execute("SET SESSION sql_log_bin = 0")
        server.session.execute(f"UPDATE mysql.global_priv SET Priv = {own} WHERE User = 'root'")
        with pytest.raises(Cancelled):
            apply(server, logs, start=witness.start, end=end, applied=so_far, telling=cancel)
        with pytest.raises(ServerError):
            server.another_session(answer_seconds=10)
        assert stop(server, so_far) is not None
        assert server.shut_down().ok


@pytest.mark.parametrize("at", ["STOP SLAVE", "RESET SLAVE ALL"])
def test_who_is_stopped_once_all_is_applied_stands_at_the_end(
    witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The server has forgotten that it was a replica, as one that has not become any yet: it would begin again."""
    end, rows = witness.moments["writers"]
    copy = witness.restored(tmp_path)
    scratch = ScratchServer(tmp_path, witness.manifest, start_seconds=50, applying=True)
    execute, so_far = Session.execute, AppliedPosition()

    def interrupted(session: Session, statement: str) -> None:
        execute(session, statement)
        if statement == at:
            monkeypatch.undo()
            raise Cancelled("cancelled")

    with laid_down(witness.pieces(end), copy) as logs, scratch.running() as server:
        monkeypatch.setattr(Session, "execute", interrupted)
        with pytest.raises(Cancelled):
            apply(server, logs, start=witness.start, end=end, applied=so_far)
        assert stop(server, so_far) == end
        assert server.session.query("SHOW ALL SLAVES STATUS") == []
        assert rows_of(server.session) == rows


def test_what_recovery_rolls_back_is_waited_for(tmp_path: Path) -> None:
    """In the background, for as long as the transaction had run. The log has it again, once it was committed."""
    with mariadb("--binlog-format=ROW") as source, source.session() as root, source.session() as batch:
        root.execute("CREATE TABLE t.batch (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB")
        batch.execute("BEGIN")
        batch.execute("INSERT INTO t.batch SELECT seq, seq FROM t.seq_1_to_100000")
        image = taken(source, tmp_path / "image")
        batch.execute("COMMIT")
        witness, end = Witness(image.folder, image.manifest, source.datadir), place(root)
        copy = witness.restored(tmp_path)
        scratch = ScratchServer(tmp_path, witness.manifest, start_seconds=50, applying=True)
        with laid_down(witness.pieces(end, at_once=1 << 20), copy) as logs, scratch.running() as server:
            server.session.execute("SET GLOBAL innodb_lock_wait_timeout = 0, GLOBAL slave_transaction_retries = 0")
            apply(server, logs, start=witness.start, end=end)
            assert server.session.value("SELECT COUNT(*) FROM t.batch") == "100000"


@pytest.mark.parametrize("confined", [True, False])
def test_what_has_a_folder_of_its_own_in_the_log_is_made_in_the_copy(anybodys: Path, confined: bool) -> None:
    """By STRICT_TRANS_TABLES, too, which makes an error of what NO_DIR_IN_CREATE ignores. The folder is open to all."""
    elsewhere, to = anybodys / "elsewhere", anybodys / "to"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    there = f"DATA DIRECTORY='{elsewhere}'"
    made = {
        "in_innodb": f"ENGINE=InnoDB {there}",
        "in_myisam": f"ENGINE=MyISAM {there} INDEX DIRECTORY='{elsewhere}'",
        "in_aria": f"ENGINE=Aria {there}",
        "in_parts": f"ENGINE=InnoDB PARTITION BY RANGE(a) (PARTITION p VALUES LESS THAN (5) {there})",
    }
    found: list[Rows] = []
    with mariadb("--binlog-format=ROW", "--sql-mode=STRICT_TRANS_TABLES") as source:
        with source.session() as root:
            image = taken(source, anybodys / "image")
            for name, how in made.items():
                root.execute(f"CREATE TABLE t.{name} (a INT, KEY (a)) {how}")
                root.execute(f"INSERT INTO t.{name} VALUES (1), (2)")
            root.execute(f"ALTER TABLE t.in_parts ADD PARTITION (PARTITION q VALUES LESS THAN (9) {there})")
            root.execute("INSERT INTO t.in_parts VALUES (7)")
            witness, end, rows = Witness(image.folder, image.manifest, source.datadir), place(root), rows_of(root)
        source.stop()
        shutil.rmtree(elsewhere)  # as on another host
        elsewhere.mkdir()
        elsewhere.chmod(0o777)
        applied(witness, to, end, lambda server, _: found.append(rows_of(server.session)), confined=confined)
    assert [{name: each[name] for name in made} for each in found] == [{name: rows[name] for name in made}]
    assert list(elsewhere.iterdir()) == []
    require_self_contained(Relocation(to, "data", image.manifest.server.datadir))


def test_how_far_it_is_is_told_in_bytes_and_in_the_logs_own_time(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["restarted"]
    told: list[ApplyingProgress] = []
    logs = applied(witness, tmp_path, end, told=told)
    assert told[-1].of == logs.size
    assert 0 < told[-1].done <= logs.size
    assert all(one.done <= other.done for one, other in pairwise(told))
    assert told[-1].logged_at is not None


def test_side_by_side_it_is_the_same(witness: Witness, tmp_path: Path) -> None:
    end, rows = witness.moments["restarted"]
    found: list[Rows] = []
    applied(witness, tmp_path, end, lambda server, _: found.append(rows_of(server.session)), appliers=4)
    assert found == [rows]


def test_a_replica_is_seeded_from_there(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["definitions"]

    def look(server: RunningServer, done: Applied) -> None:
        seeded = seed(server.session, done.position, ReplicaWish(77, Following.GTID))
        assert seeded.position == end
        assert server.session.value("SELECT @@global.gtid_slave_pos") == end.gtid
        assert server.session.value("SELECT @@global.gtid_binlog_pos") == ""

    applied(witness, tmp_path, end, look)


def test_a_replica_leaves_its_sources_events_to_it(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["definitions"]

    def look(server: RunningServer, done: Applied) -> None:
        server.session.execute("SET GLOBAL event_scheduler = OFF")  # without grants it knows no events before
        server.session.execute("CREATE EVENT t.purge ON SCHEDULE EVERY 1 DAY DO DELETE FROM t.innodb")
        seed(server.session, done.position, ReplicaWish(77, Following.GTID))
        assert server.session.value("SELECT status FROM mysql.event WHERE name = 'purge'") == "SLAVESIDE_DISABLED"
        assert server.session.value("SELECT @@global.gtid_binlog_pos") == ""

    applied(witness, tmp_path, end, look)


def test_what_the_files_already_have_does_not_fit(witness: Witness, tmp_path: Path) -> None:
    """From before the backup's position: a row that is there would be written again."""
    end, _ = witness.moments["writers"]
    with pytest.raises(VerificationError, match=r"does not fit the restored data: after bin\.00000\d:\d+ error 1062"):
        applied(witness, tmp_path, end, start=replace(witness.start, binlog_offset=4))
    assert not (tmp_path / RELAY_FOLDER).exists()


def test_a_temporary_table_that_was_open_at_the_backup_is_named_as_what_no_backup_has(
    witness: Witness, tmp_path: Path
) -> None:
    end, _ = witness.moments["statements"]
    behind_its_creation = replace(witness.start, binlog_file=end.binlog_file, binlog_offset=4)
    with pytest.raises(
        VerificationError, match=r"needs a table that the restored data lacks: .*'t\.shortly'"
    ) as refused:
        applied(witness, tmp_path, end, start=behind_its_creation)
    assert "TEMPORARY table that was open" in (refused.value.hint or "")


def test_a_missing_transaction_is_noticed(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]
    with pytest.raises(VerificationError, match="not from"):
        applied(witness, tmp_path, end, pieces=list(witness.pieces(witness.moments["all_engines"][0])))


def test_another_gtid_than_was_recorded_is_noticed(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]
    with pytest.raises(VerificationError, match="has executed 0-7-"):
        applied(witness, tmp_path, replace(end, gtid="0-7-9999"))


def test_an_end_within_a_transaction_is_refused(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]
    xid = 19 + 8 + 4  # bytes of the event that commits
    within = replace(end, binlog_offset=(end.binlog_offset or 0) - xid)
    with pytest.raises(VerificationError, match="ends within a transaction"):
        applied(witness, tmp_path, within)


def test_what_is_no_row_of_whole_events_is_never_given_to_a_server(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]
    copy = witness.restored(tmp_path)
    *_, piece = witness.pieces(end, at_once=1 << 20)
    (events,) = piece.events
    for damaged in (
        replace(piece, events=[events[:-1]]),
        replace(piece, events=[events[:-5], b"\0" * 30]),
        replace(piece, events=[events, events]),
        replace(piece, start=piece.start + 1),
        replace(piece, file="../bin.000001"),
        replace(piece, format=events[:100]),
        replace(piece, format=b""),
    ):
        with pytest.raises(VerificationError), laid_down([damaged], copy):
            raise AssertionError("laid down")
        assert not (tmp_path / RELAY_FOLDER).exists()


def test_a_byte_that_flipped_stops_it(witness: Witness, tmp_path: Path) -> None:
    end, _ = witness.moments["writers"]
    *before, piece = witness.pieces(end, at_once=1 << 20)
    (events,) = piece.events
    at = events.index(b"1-20")
    flipped = replace(piece, events=[events[:at], b"9", events[at + 1 :]])
    with pytest.raises(ServerError, match="cannot read the log behind"):
        applied(witness, tmp_path, end, pieces=[*before, flipped])


def test_nothing_to_apply_is_the_backups_own_place_and_no_other(witness: Witness, tmp_path: Path) -> None:
    at: list[str | None] = []

    def look(server: RunningServer, _: Applied) -> None:
        at.append(server.session.value("SELECT @@global.gtid_slave_pos"))

    applied(witness, tmp_path / "same", witness.start, look, pieces=())
    assert at == [witness.start.gtid]
    beyond = replace(witness.start, binlog_offset=(witness.start.binlog_offset or 0) + 100)
    with pytest.raises(VerificationError, match="not from"):
        applied(witness, tmp_path / "beyond", beyond, pieces=())
