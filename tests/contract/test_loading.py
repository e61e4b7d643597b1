"""Tables of a backup, loaded into the running server: the same in every bit, seen whole or not at all."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.mysql import loading_schema
from backupd.mysql.facts import version_number
from backupd.mysql.loading_schema import LOADING, new_place, remove_left_loading
from backupd.mysql.row_differences import TableDifference, difference
from backupd.mysql.session import Connect, Session
from backupd.mysql.table_shape import TableShape, shape_of
from backupd.mysql.tablefiles import Table
from backupd.operations.restore import table_loading as operation
from backupd.operations.restore.into_server import into_server, load_recovered
from backupd.operations.restore.table_loading import LoadedTables
from backupd.operations.run_holdings import RunHoldings
from backupd.vocabulary.errors import Cancelled, Refused, ServerError, UsageError, VerificationError
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import MariadbServer, mariadb, mysql_server
from tests.contract.test_scratch import RUN, Image, keep_only, taken

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

AWKWARD, CHILD, PARTED, WIDE, SQUEEZED, VIEW, VERSIONED, FLEETING = TABLES = tuple(
    Table("live", name) for name in ("awkward", "child", "parted", "wide", "squeezed", "view", "versioned", "fleeting")
)
TEXTS = ", ".join(f"t{number} TEXT" for number in range(8))  # of a row that half a page of 16 KiB takes, and none of 4
UP = "CONSTRAINT `up` FOREIGN KEY (`p`) REFERENCES `elsewhere`.`parent` (`id`) ON DELETE CASCADE"
TOLD = """
    CREATE TRIGGER live.told BEFORE INSERT ON live.child FOR EACH ROW BEGIN
        -- it's a stranger's //
	SET NEW.b = 'trigger';
    END
"""
FORGIVING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'"
MEMBERS = ", ".join(f"'m{number}'" for number in range(64))
DEFINITION = rf"""
    CREATE TABLE live.awkward (
        id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, f FLOAT, f2 FLOAT(7,3), d DOUBLE, n DECIMAL(65,30),
        big BIGINT UNSIGNED, z INT(7) ZEROFILL, b BIT(13), bl LONGBLOB, bi BINARY(5), vb VARBINARY(9),
        e ENUM('a', 'B', '', 'ä'), s SET({MEMBERS}),
        u VARCHAR(50) CHARACTER SET utf8mb4, l VARCHAR(50) CHARACTER SET latin1, c CHAR(4) CHARACTER SET utf8mb4,
        w VARCHAR(20) CHARACTER SET ucs2, k TEXT CHARACTER SET sjis, j JSON, g GEOMETRY, p POINT,
        dt DATETIME(6), da DATE, ti TIME(3), ts TIMESTAMP(6) NULL, y YEAR, i6 INET6, uu UUID,
        virt INT AS (z + 1) VIRTUAL, sto INT AS (z + 2) STORED, inv INT INVISIBLE DEFAULT 7,
        `odd``na%me {{}}\x` INT, CONSTRAINT later CHECK (big <> 5)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 AUTO_INCREMENT=4711
"""
ROWS: list[dict[str, str]] = [
    {"id": "0"},  # and everything else NULL
    {"id": "-1", "f": "0.1", "f2": "1.234", "d": "0.1", "n": "12345678901234567890.123456789", "big": "5"},
    {"f": "3.4028234e38", "d": "1.7976931348623157e308", "big": "18446744073709551615", "n": "-0.5"},
    {"f": "1.17549435e-38", "d": "5e-324", "z": "42", "b": "b'1010101010101'"},
    {"f": "1/3", "d": "1/3", "b": "0"},
    {"f": "-0e0", "d": "-0e0"},
    {"bl": f"x'{(bytes(range(256)) * 8).hex()}'", "bi": "'a'", "vb": "x'00275c00'"},
    {"bl": "''", "u": "''", "l": "''", "k": "''"},
    {"e": "'no such one'", "s": "''"},
    {"e": "''", "s": "'m0,m63'"},
    {"e": "'ä'", "s": "18446744073709551615"},
    {"u": "'Ω\U0001f980 it''s \\\\ \\n \\0 %s'", "l": "x'e9ff8081'", "c": "'é '", "w": "'Ωx'", "k": "x'835c835c'"},
    {"j": """'{"a": [1, 2.50, "Ω"], "b": null}'""", "g": "ST_GeomFromText('POINT(1.5 -2)', 4326)"},
    {"g": "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(0 0),LINESTRING(0 0,1 1))')", "p": "POINT(92, 39)"},
    {"dt": "'2024-02-31 25:61:00'", "da": "'2024-02-31'", "ti": "'-838:59:59.999'", "ts": "'2024-10-27 00:30:00'"},
    {"dt": "'0000-00-00'", "da": "'2024-00-00'", "ti": "'00:00:00.001'", "ts": "'0000-00-00'", "y": "0"},
    {"dt": "'9999-12-31 23:59:59.999999'", "da": "'0000-00-00'", "ts": "'2024-10-27 01:30:00.5'", "y": "2155"},
    {"ts": "'1970-01-01 00:00:01'", "y": "1901", "i6": "'::ffff:1.2.3.4'", "uu": "UUID()", "inv": "NULL"},
]


@pytest.fixture(scope="session")
def before(mysql_server: MariadbServer, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """What a backup of these tables restores: theirs and what every server needs; the log speaks of others too.

    Made once for a server: a worker that steals tests comes back to a module that it has left.
    """
    folder = tmp_path_factory.mktemp("image")
    with mysql_server.session() as root:
        root.execute("CREATE DATABASE live")
        root.execute("CREATE DATABASE elsewhere")
        root.execute("SET GLOBAL time_zone = '+05:30'")
        root.execute(FORGIVING)
        root.execute("SET SESSION check_constraint_checks = 0")
        root.execute("CREATE TABLE elsewhere.parent (id INT PRIMARY KEY) ENGINE=InnoDB")
        has_uuids = version_number(root.value("SELECT VERSION()") or "") >= (10, 7, 0)
        root.execute(DEFINITION if has_uuids else DEFINITION.replace("uu UUID", "uu CHAR(36)"))
        root.execute(
            "CREATE TABLE live.child (a INT, b VARCHAR(9), p INT, PRIMARY KEY (a, b), KEY (p),"
            " CONSTRAINT up FOREIGN KEY (p) REFERENCES elsewhere.parent (id) ON DELETE CASCADE) ENGINE=InnoDB"
        )
        root.execute("CREATE TABLE live.parted (t TEXT, n INT) ENGINE=InnoDB PARTITION BY HASH (n) PARTITIONS 3")
        root.execute(f"CREATE TABLE live.wide (id INT PRIMARY KEY, {TEXTS}) ENGINE=InnoDB ROW_FORMAT=COMPACT")
        root.execute("CREATE TABLE live.squeezed (id INT PRIMARY KEY, t TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED")
        root.execute("CREATE TABLE live.versioned (id INT PRIMARY KEY) ENGINE=InnoDB WITH SYSTEM VERSIONING")
        root.execute("CREATE TABLE live.fleeting (id INT PRIMARY KEY) ENGINE=MEMORY")
        root.execute("CREATE VIEW live.view AS SELECT 1 AS one")
        for table in ("awkward", "child", "parted", "wide", "squeezed", "versioned"):
            root.execute(f"FLUSH TABLES live.{table} FOR EXPORT")
            root.execute("UNLOCK TABLES")
        for row in ROWS:
            root.execute(f"INSERT INTO live.awkward ({', '.join(row)}) VALUES ({', '.join(row.values())})")
        root.execute("INSERT INTO live.parted SELECT REPEAT('t', seq), seq FROM live.seq_1_to_2000")
        root.execute(f"INSERT INTO live.wide VALUES (1, {', '.join(['REPEAT(1, 700)'] * 8)})")
        root.execute("INSERT INTO live.squeezed SELECT seq, REPEAT(seq, 90) FROM live.seq_1_to_5000")
        root.execute("INSERT INTO elsewhere.parent VALUES (1)")
        root.execute("INSERT INTO live.child SELECT seq, 'x', NULL FROM live.seq_1_to_5000")
        root.execute(TOLD)
        image = taken(mysql_server, folder)
    keep_only(TABLES, image)
    return image


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(tmp_path / "catalogue.sqlite") as opened:
        with opened.open_run("nightly", "db1", run_id=RUN) as run:
            run.complete(())
        yield opened


Load = Callable[..., LoadedTables]


@pytest.fixture
def load(
    mysql_server: MariadbServer, before: Image, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    monkeypatch.setenv("TZ", "America/St_Johns")  # of the server on the restored files
    told: list[str] = []

    def loaded(
        *tables: Table, schema: str = "restored", connect: Connect | None = None, image: Image = before
    ) -> LoadedTables:
        into = into_server("db1", connect or mysql_server.connect(), schema, tables)
        journal = RunHoldings(catalogue, RUN)
        return load_recovered(image.folder, image.manifest, tables, into, journal, telling=told.append)

    yield loaded
    with mysql_server.session() as root:
        for schema in schemas(root) & {"restored"}:
            root.execute(f"DROP DATABASE {schema}")
        assert schemas(root) == {"elsewhere", "live", "t"}


def schemas(root: Session) -> set[str]:
    return {str(row["Database"]) for row in root.query("SHOW DATABASES")} - {
        *("mysql", "information_schema", "performance_schema", "sys"),
    }


def checksum(root: Session, table: str) -> str | None:
    return (root.one(f"CHECKSUM TABLE {table} EXTENDED") or {})["Checksum"]


def test_a_table_of_every_type_is_the_same_in_every_bit(mysql_server: MariadbServer, load: Load) -> None:
    [loaded] = load(AWKWARD).tables
    with mysql_server.session() as root:
        assert loaded.checksum == checksum(root, "live.awkward") == checksum(root, "restored.awkward")
        assert loaded.rows == len(ROWS) == int(root.value("SELECT COUNT(*) FROM restored.awkward") or 0)
        assert definition(root, "restored.awkward") == definition(root, "live.awkward")
        root.execute("SET SESSION time_zone = '+00:00'")
        for column in ("f * 1e0", "d", "HEX(bl)", "e + 0", "HEX(l)", "ts", "dt", "da", "virt", "inv", "HEX(s + 0)"):
            both = [
                root.query(f"SELECT {column} AS c FROM {schema}.awkward ORDER BY id") for schema in ("live", "restored")
            ]
            assert both[0] == both[1], column
    assert loaded.size > 65536
    assert loaded.difference == TableDifference(
        only_in_backup=0, only_live=0, changed=0, shared=tuple(column.name for column in loaded.shape.carried)
    )


def test_several_tables_appear_at_once_partitions_and_all(mysql_server: MariadbServer, load: Load) -> None:
    parted, child = load(PARTED, CHILD).tables
    with mysql_server.session() as root:
        assert (parted.rows, child.rows) == (2000, 5000)
        for table in ("parted", "child"):
            assert checksum(root, f"restored.{table}") == checksum(root, f"live.{table}")
        assert definition(root, "restored.parted") == definition(root, "live.parted")
    assert parted.difference is not None
    assert parted.difference.untold == "they have no primary key in common"
    assert parted.size > 2000 * 1000


def test_a_table_is_loaded_whatever_letters_its_name_has(
    mysql_server: MariadbServer, load: Load, tmp_path: Path
) -> None:
    tables = (Table("live", "bücher"), Table("live", "con"))
    with mysql_server.session() as root:
        for table in tables:
            root.execute(f"CREATE TABLE {table.in_sql} ENGINE=InnoDB SELECT 7 AS n")
        image = taken(mysql_server, tmp_path)
        for table in tables:
            root.execute(f"DROP TABLE {table.in_sql}")
        keep_only(tables, image)
        load(*tables, image=image)
        assert {root.value(f"SELECT n FROM restored.{name}") for name in ("bücher", "con")} == {"7"}


def definition(root: Session, table: str) -> str:
    told = root.one(f"SHOW CREATE TABLE {table}") or {}
    return str(told["Create Table"])


def test_a_live_table_that_does_not_answer_in_time_is_not_waited_for(
    mysql_server: MariadbServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.row_differences.COMPARE_SECONDS", 0.2)
    with mysql_server.session() as other:
        other.execute("LOCK TABLES live.child WRITE")
        [loaded] = load(CHILD).tables
    assert loaded.checksum is not None
    found = loaded.difference
    assert found is not None
    assert (found.only_in_backup, found.only_live, found.changed, found.untold) == (
        *(None, None, None, "it took more than 0 s"),
    )


def test_a_live_table_that_its_readers_lock_is_not_compared(mysql_server: MariadbServer) -> None:
    """Three counts of up to a minute each would keep every client from writing to it meanwhile."""
    with mysql_server.session() as root:
        root.execute("CREATE DATABASE restored")
        for name, lock in (("innodb", False), ("myisam", True), ("aria", True)):
            root.execute(f"CREATE TABLE restored.{name} LIKE t.{name}")
            found = difference(root, shape_of(root, Table("t", name)), "restored", Flavour.MARIADB)
            assert (found.only_live is None, "clients that write to the live table" in found.untold) == (lock, lock)
            assert found.shared == ("id", "v")
        root.execute("DROP DATABASE restored")


def test_a_limit_of_time_for_clients_does_not_end_it(
    mysql_server: MariadbServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHECKSUM TABLE of a large table takes longer than any client may."""
    limits = []

    def seen(session: Session, *rest: object) -> None:
        limits.append(session.value("SELECT @@SESSION.max_statement_time"))
        loading_schema.publish(session, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(operation, "publish", seen)
    with mysql_server.session() as root:
        root.execute("SET GLOBAL max_statement_time = 30")
        try:
            load(CHILD)
        finally:
            root.execute("SET GLOBAL max_statement_time = DEFAULT")
    assert limits == ["0.000000"]


def test_rows_that_the_binary_log_has_no_room_for_are_refused(
    before: Image, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written twice. A server whose disk is full stands still for all its clients."""
    size = sum(path.stat().st_size for path in (before.datadir / "live").glob("child.*"))
    monkeypatch.setattr(operation, "room", lambda _path: (size + size // 2, 0, False))
    with pytest.raises(Refused, match=r"datadir of db1 has .* these tables \(.*\) and their rows in its binary log"):
        load(CHILD)
    monkeypatch.setattr(operation, "room", lambda _path: (2 * size, 0, False))
    assert load(CHILD).tables[0].rows == 5000


def test_a_replica_that_its_own_transactions_would_stop_is_refused() -> None:
    with mariadb("--log-slave-updates", "--gtid-strict-mode=ON") as server, server.session() as root:
        for place in (new_place("db1", "restored"), replace(new_place("db1", "restored"), logged=False)):
            assert not loading_schema.require_takes(root, place).is_replica
        root.execute("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'")
        assert loading_schema.require_takes(root, place).is_replica
        root.execute("SET SESSION sql_log_bin = 1")
        with pytest.raises(Refused, match="db1 is a replica with gtid_strict_mode, which would stop replicating"):
            loading_schema.require_takes(root, new_place("db1", "restored"))


def test_an_existing_schema_is_refused_and_as_it_was(mysql_server: MariadbServer, load: Load) -> None:
    with mysql_server.session() as root:
        root.execute("CREATE DATABASE restored")
        root.execute("CREATE TABLE restored.mine (id INT)")
        with pytest.raises(Refused, match="schema restored exists on db1"):
            load(CHILD)
        assert list(root.query("SHOW TABLES FROM restored")) == [{"Tables_in_restored": "mine"}]


def test_a_schema_that_somebody_makes_meanwhile_stays_theirs(
    mysql_server: MariadbServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(session: Session, *rest: object) -> None:
        session.execute("CREATE DATABASE restored")
        loading_schema.publish(session, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(operation, "publish", first)
    with pytest.raises(Refused, match="schema restored was created on db1 meanwhile"):
        load(CHILD)
    with mysql_server.session() as root:
        assert root.query("SHOW TABLES FROM restored") == []


@pytest.mark.parametrize("error", [Cancelled("stopped by SIGTERM"), ServerError("the session ended")])
def test_an_interrupted_load_leaves_nothing(
    load: Load, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    interrupt(monkeypatch, lambda: raising(error))
    with pytest.raises(type(error)):
        load(CHILD)
    assert list(catalogue.holdings(RUN)) == []


def raising(error: Exception) -> None:
    raise error


def interrupt(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """After the first rows."""
    monkeypatch.setattr("backupd.mysql.row_loading.STATEMENT_BYTES", 4096)
    change = Session.change

    def changed(session: Session, statement: bytes, *, doing: str) -> int:
        taken = change(session, statement, doing=doing)
        act()
        return taken

    monkeypatch.setattr(Session, "change", changed)


def test_what_a_killed_load_leaves_looks_like_no_table_and_recover_finds_it(
    mysql_server: MariadbServer,
    load: Load,
    before: Image,
    catalogue: Catalogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = before.copied(tmp_path / "image")
    child = os.fork()
    if child == 0:
        try:
            interrupt(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
            load(CHILD, image=own)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with mysql_server.session() as root:
        (left,) = schemas(root) - {"elsewhere", "live", "t"}
        assert left.startswith(LOADING)
        ((_, holding),) = catalogue.holdings(RUN)
        assert (holding.name, holding.detail["host"]) == (left, "db1")
        root.execute(f"CREATE TABLE {left}.notes (id INT)")
        with pytest.raises(ServerError, match="has tables that backupd did not load: notes"):
            remove_left_loading(mysql_server.connect(), holding)
        assert {row[f"Tables_in_{left}"] for row in root.query(f"SHOW TABLES FROM {left}")} == {"child", "notes"}
        root.execute(f"DROP TABLE {left}.notes")
        another = replace(holding, detail={**holding.detail, "hostname": "another"})
        for one in (another, holding):  # the schema tells that it is ours: the source that took over has it too
            remove_left_loading(mysql_server.connect(), one)
        assert schemas(root) == {"elsewhere", "live", "t"}
        with pytest.raises(ServerError, match=f"another server answers: its hostname is .* schema {left} was made"):
            remove_left_loading(mysql_server.connect(), another)


def test_rows_that_arrived_changed_are_not_published(
    mysql_server: MariadbServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Session.change
    monkeypatch.setattr(
        Session, "change", lambda session, said, doing: change(session, said.replace(b"'x'", b"'y'"), doing=doing)
    )
    with pytest.raises(VerificationError, match=r"live\.child is not on db1 as it is in the backup: checksum"):
        load(CHILD)
    with mysql_server.session() as root:
        assert "restored" not in schemas(root)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (VIEW, "live.view is a view, which has no rows of its own"),
        (VERSIONED, "live.versioned keeps its history"),
        (FLEETING, "live.fleeting is of the engine MEMORY, which cannot be loaded as rows"),
        (Table("live", "nothing"), "cannot open live.nothing"),
    ],
)
def test_what_has_no_rows_to_load_is_refused(load: Load, table: Table, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        load(table)


def test_an_engine_that_the_running_server_lacks_is_no_reason_to_take_another(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(session: Session, table: Table) -> TableShape:
        found = shape_of(session, table)
        return replace(found, engine="ROCKSDB", definition=found.definition.replace("InnoDB", "ROCKSDB"))

    monkeypatch.setattr(operation, "shape_of", elsewhere)
    with pytest.raises(ServerError, match="Unknown storage engine 'ROCKSDB'") as refused:
        load(CHILD)
    assert "restore it into a folder" in refused.value.hint


def test_missing_privileges_are_named_before_anything_is_done(mysql_server: MariadbServer, load: Load) -> None:
    loading = r"`backupd\_loading\_%`.*"
    few = mysql_server.account("few", f"GRANT SELECT, INSERT, CREATE ON {loading} TO 'few'@'localhost'")
    with pytest.raises(Refused, match="it lacks") as refused:
        load(CHILD, connect=few)
    assert re.search(r"ALTER, DROP ON `backupd_loading_\w+`\.\*; SELECT, INSERT, CREATE ON `resto", str(refused.value))
    assert f"GRANT SELECT, INSERT, CREATE, ALTER, DROP ON {loading} TO its account" in refused.value.hint
    enough = mysql_server.account(
        "enough",
        f"GRANT SELECT, INSERT, CREATE, ALTER, DROP ON {loading} TO 'enough'@'localhost';"
        r"GRANT SELECT, INSERT, CREATE ON `restored%`.* TO 'enough'@'localhost'",
    )
    [loaded] = load(CHILD, connect=enough).tables
    assert loaded.checksum is not None
    assert loaded.difference is not None
    assert not loaded.difference.live  # it may not be read


def test_a_server_that_is_read_only_is_refused(mysql_server: MariadbServer, load: Load) -> None:
    with mysql_server.session() as root:
        root.execute("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(Refused, match="the server db1 is read-only"):
                load(CHILD)
        finally:
            root.execute("SET GLOBAL read_only = 0")


def test_a_row_that_the_server_cannot_take_is_refused(mysql_server: MariadbServer, load: Load) -> None:
    with mysql_server.session() as root:
        root.execute("SET GLOBAL max_allowed_packet = 1024")
        try:
            with pytest.raises(ServerError, match="bytes in a statement, and db1 takes 1024 at most"):
                load(AWKWARD)
        finally:
            root.execute("SET GLOBAL max_allowed_packet = DEFAULT")


def test_a_disk_that_fills_while_rows_are_loaded_ends_it_before_the_server_stands_still(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1 << 40]

    def made(*given: object) -> None:
        loading_schema.make(*given)  # type: ignore[arg-type]
        free[0] = 1 << 30  # somebody else writes there, or rows take more than was thought

    monkeypatch.setattr(operation, "make", made)
    monkeypatch.setattr(operation, "room", lambda _path: (free[0], 1 << 40, False))
    with pytest.raises(Refused, match=r"of the datadir of db1 has only 1\.0 GiB left"):
        load(SQUEEZED)
