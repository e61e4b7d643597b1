"""What a replica is told, in the words of each server, and the two files that lie beside it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.mysql.next_steps import next_steps
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation
from backupd.mysql.replica_files import option_file, statements_file
from backupd.mysql.scratch_places import ScratchPlaces
from backupd.mysql.seeding import (
    Following,
    ReplicationSource,
    ReplicaWish,
    Seeded,
    Words,
    following,
    forget_the_old_server,
    old_server_aside,
    remove_binlogs,
    require_password_fits,
    require_position,
    start_statement,
    statements,
)
from backupd.mysql.server_programs import ServerProgram
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.startup import file_options, server_argv
from backupd.vocabulary.errors import HostExhausted, UsageError
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.volumes import Layout
from tests.fakes.server import FACTS
from tests.fakes.target import MACHINE

SET = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
MARIADB = Manifest(
    run_id="r1",
    job="nightly",
    host="db1",
    machine=MACHINE,
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
    objects=(),
    server=replace(
        FACTS,
        settings={"server_id": "1", "innodb_page_size": "16384", "plugin_libraries": "ha_archive.so,ha_spider.so"},
    ),
    position=Position("bin.000007", 1234, "0-1-55"),
    lsn=None,
    layout=Layout.LINEAR,
    volume="vg/data",
    datadir="mysql",
    run=RunSection(started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    binlog="mysql/bin.000007",
)
MYSQL = replace(
    MARIADB,
    server=replace(
        FACTS,
        flavour=Flavour.MYSQL,
        version_number=(9, 7, 4),
        settings={"server_id": "1", "gtid_mode": "ON", "enforce_gtid_consistency": "ON"},
    ),
    position=Position("bin.000007", 1234, SET),
)
WITHOUT_GTID = replace(
    MYSQL, server=replace(MYSQL.server, settings={"gtid_mode": "OFF"}), position=Position("bin.000007", 1234, "")
)
SOURCE = ReplicationSource("db1", "repl", 3307, "s3cret")
BY_GTID = ReplicaWish(77, Following.GTID, SOURCE)
BY_FILE = ReplicaWish(77, Following.FILE_POSITION, SOURCE)
MOVED = Relocation(Path("/clone"), "mysql", Path("/srv/data/mysql"))


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    [
        replace(MARIADB, position=Position(), binlog=None),
        replace(MARIADB, server=replace(FACTS, binlog_basename=None), position=Position(), locked=False),
    ],
)
def test_a_backup_without_a_binlog_makes_no_replica(manifest: Manifest) -> None:
    with pytest.raises(UsageError, match="no position: the binlog of db1 was off") as refused:
        require_position(manifest)
    assert "log_bin" in refused.value.hint


def test_a_backup_without_a_lock_tells_its_position_only_once_it_is_recovered() -> None:
    require_position(replace(MARIADB, position=Position(), locked=False))
    require_position(MARIADB)


def test_gtids_that_the_source_does_not_use_cannot_be_followed() -> None:
    with pytest.raises(UsageError, match="without GTIDs") as refused:
        following(WITHOUT_GTID, Following.GTID)
    assert "--file-position" in refused.value.hint


@pytest.mark.parametrize(("flavour", "longest"), [(Flavour.MYSQL, 32), (Flavour.MARIADB, 96)])
def test_a_password_that_the_server_would_refuse_or_show_is_refused_unseen(flavour: Flavour, longest: int) -> None:
    require_password_fits(flavour, None)
    require_password_fits(flavour, "p" * longest)
    with pytest.raises(UsageError, match="too long") as refused:
        require_password_fits(flavour, "é" * (longest // 2) + "p")
    assert "é" not in refused.value.message + refused.value.hint


# --- how it follows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "asked", "expected"),
    [
        (MARIADB, None, Following.GTID),
        (replace(MARIADB, position=Position("bin.000001", 300, "")), None, Following.GTID),
        (MARIADB, Following.FILE_POSITION, Following.FILE_POSITION),
        (MYSQL, None, Following.GTID),
        (WITHOUT_GTID, None, Following.FILE_POSITION),
        (replace(WITHOUT_GTID, position=MYSQL.position), None, Following.FILE_POSITION),  # it had GTIDs once
    ],
)
def test_it_follows_by_gtid_where_the_source_has_it(
    manifest: Manifest, asked: Following | None, expected: Following
) -> None:
    assert following(manifest, asked) is expected


@pytest.mark.parametrize(
    ("words", "manifest", "wanted", "expected"),
    [
        (
            Words.MARIADB,
            MARIADB,
            BY_GTID,
            (
                "RESET MASTER",
                "SET GLOBAL gtid_slave_pos = '0-1-55'",
                "CHANGE MASTER TO MASTER_HOST = 'db1', MASTER_PORT = 3307, MASTER_USER = 'repl',"
                " MASTER_USE_GTID = slave_pos",
            ),
        ),
        (
            Words.MARIADB,
            MARIADB,
            BY_FILE,
            (
                "RESET MASTER",
                "SET GLOBAL gtid_slave_pos = '0-1-55'",
                "CHANGE MASTER TO MASTER_HOST = 'db1', MASTER_PORT = 3307, MASTER_USER = 'repl',"
                " MASTER_LOG_FILE = 'bin.000007', MASTER_LOG_POS = 1234, MASTER_USE_GTID = no",
            ),
        ),
        (
            Words.MYSQL,
            MYSQL,
            BY_GTID,
            (
                "RESET REPLICA ALL",
                "RESET BINARY LOGS AND GTIDS",
                f"SET GLOBAL gtid_purged = '{SET}'",
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'db1', SOURCE_PORT = 3307, SOURCE_USER = 'repl',"
                " SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
            ),
        ),
        (
            Words.MYSQL,
            WITHOUT_GTID,
            BY_FILE,
            (
                "RESET REPLICA ALL",
                "RESET BINARY LOGS AND GTIDS",
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'db1', SOURCE_PORT = 3307, SOURCE_USER = 'repl',"
                " SOURCE_LOG_FILE = 'bin.000007', SOURCE_LOG_POS = 1234, SOURCE_AUTO_POSITION = 0,"
                " GET_SOURCE_PUBLIC_KEY = 1",
            ),
        ),
        (
            Words.OLD_MYSQL,
            MYSQL,
            BY_GTID,
            (
                "RESET SLAVE ALL",
                "RESET MASTER",
                f"SET GLOBAL gtid_purged = '{SET}'",
                "CHANGE MASTER TO MASTER_HOST = 'db1', MASTER_PORT = 3307, MASTER_USER = 'repl',"
                " MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1",
            ),
        ),
    ],
)
def test_each_server_is_told_in_its_own_words(
    words: Words, manifest: Manifest, wanted: ReplicaWish, expected: tuple[str, ...]
) -> None:
    assert statements(words, manifest.position, wanted) == expected


def test_a_quote_in_a_name_ends_no_literal() -> None:
    *_, change = statements(Words.MARIADB, MARIADB.position, replace(BY_GTID, source=ReplicationSource("h", "o'hara")))
    assert "MASTER_USER = 'o''hara'," in change


# --- the files --------------------------------------------------------------------------------------------------------


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_options_of_the_files_are_the_scratch_servers_own() -> None:
    written = lines(option_file(MARIADB, MOVED, BY_GTID))
    assert written[0] == "[mariadbd]"
    carried = file_options(MOVED, MARIADB.server)
    assert len(carried) > 7
    for option in carried:
        name, _, value = option.removeprefix("--").partition("=")
        assert f"{name.replace('-', '_')} = {value}" in written
    assert set(carried) <= set(
        server_argv(ServerProgram("m"), MOVED, MARIADB.server, ScratchPlaces(Path("/run/s")), None)
    )


@pytest.mark.parametrize("manifest", [MARIADB, MYSQL])
def test_a_clone_has_an_identity_of_its_own_and_waits_to_be_started(manifest: Manifest) -> None:
    written = lines(option_file(manifest, MOVED, BY_GTID))
    assert {"server_id = 77", "read_only = ON", "skip_slave_start", "log_bin = bin"} <= set(written)
    assert "relay_log = replica-relay-bin" in written


def test_mysqls_persisted_settings_do_not_come_before_the_clones() -> None:
    written = lines(option_file(MYSQL, MOVED, BY_GTID))
    assert written[0] == "[mysqld]"
    assert {"persisted_globals_load = OFF", "loose_gtid_mode = ON", "loose_enforce_gtid_consistency = ON"} <= set(
        written
    )


def test_a_path_that_an_option_file_would_cut_is_quoted() -> None:
    odd = Relocation(Path('/clone #1/"x"'), "mysql", Path("/srv/data/mysql"))
    assert 'datadir = "/clone #1/\\"x\\"/mysql"' in lines(option_file(MARIADB, odd, BY_GTID))


@pytest.mark.parametrize("words", list(Words))
def test_what_was_applied_is_a_comment_and_what_is_left_is_a_statement(words: Words) -> None:
    *prepared, change = statements(words, MARIADB.position, BY_GTID)
    seeded = Seeded(words, MARIADB.position, (*prepared, change), (start_statement(words),))
    text = statements_file(MARIADB, seeded, BY_GTID)
    assert f"-- Only while {MARIADB.host} is of series 10.11 or an earlier one" in text
    assert [line for line in text.splitlines() if line and not line.startswith("-- ")] == [f"{start_statement(words)};"]
    assert f"-- {change};" in text
    assert "bin.000007:1234, GTID 0-1-55" in text
    assert "s3cret" not in text


def test_without_a_source_the_statement_that_names_it_is_left_with_a_placeholder() -> None:
    alone = replace(BY_GTID, source=None)
    *prepared, change = statements(Words.MARIADB, MARIADB.position, alone)
    seeded = Seeded(Words.MARIADB, MARIADB.position, tuple(prepared), (change, "START SLAVE"))
    text = statements_file(MARIADB, seeded, alone)
    assert "\nCHANGE MASTER TO MASTER_HOST = 'SOURCE'" in text
    assert "MASTER_PASSWORD" in text


# --- the copy ---------------------------------------------------------------------------------------------------------


def test_what_makes_it_the_old_server_is_gone_and_its_tables_are_not(tmp_path: Path) -> None:
    old = ["auto.cnf", "master.info", "multi-master.info", "master-eu.info", "relay-log-eu.info", "relay-log.info"]
    kept = ["ibdata1", "mysqld-auto.cnf", "mysql.ibd", "server-key.pem"]
    for name in (*old, *kept, "replica-relay-bin.000002", "replica-relay-bin.index"):
        (tmp_path / name).write_text("x")
    forget_the_old_server(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("there", [True, False])
def test_what_makes_it_the_old_server_is_back_where_no_server_was_there_after_all(tmp_path: Path, there: bool) -> None:
    datadir, aside, trace = tmp_path / "data", tmp_path / "aside", ServerTrace()
    for folder in (datadir, aside):
        folder.mkdir()
    for name in ("auto.cnf", "replica-relay-bin.index", "ibdata1"):
        (datadir / name).write_text(name)
    with pytest.raises(HostExhausted), old_server_aside(datadir, aside, trace):
        assert [path.name for path in datadir.iterdir()] == ["ibdata1"]
        trace.server = there
        raise HostExhausted("sh cannot be started: cannot allocate memory")
    back = set() if there else {"auto.cnf", "replica-relay-bin.index"}
    assert {path.name: path.read_text() for path in datadir.iterdir()} == {name: name for name in {"ibdata1", *back}}


def test_only_files_of_the_binlog_are_removed(tmp_path: Path) -> None:
    binlogs = ["bin.000007", "bin.000008", "bin.000008.idx", "bin.index", "bin.state", "bin.1000000"]
    kept = ["bin.frm", "binary.000001", "bin.cnf", "ibdata1"]
    for name in (*binlogs, *kept):
        (tmp_path / name).write_text("x")
    remove_binlogs(tmp_path / "bin.000007")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_what_of_the_old_server_resists_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "auto.cnf").mkdir()
    (tmp_path / "bin.index").mkdir()
    with pytest.raises(UsageError, match=r"/auto\.cnf could not be removed from the restored files: Is a dir") as told:
        forget_the_old_server(tmp_path)
    assert "restore into another folder" in told.value.hint
    with pytest.raises(UsageError, match=r"/bin\.index could not be removed from the restored files: Is a dir"):
        remove_binlogs(tmp_path / "bin.000007")


def test_only_a_server_that_seeds_writes_about_replication_into_the_copy() -> None:
    places = ScratchPlaces(Path("/run/scratch"))
    drill = server_argv(ServerProgram("m"), MOVED, MARIADB.server, places, None)
    seeding = server_argv(ServerProgram("m"), MOVED, MARIADB.server, places, None, seeding=True)
    assert "--master-info-file=/run/scratch/master.info" in drill
    assert [option for option in seeding if "master-info" in option or "relay-log-info" in option] == []
    assert "--relay-log=replica-relay-bin" in seeding
    assert "--skip-slave-start" in seeding


@pytest.mark.parametrize("manifest", [MARIADB, WITHOUT_GTID])
def test_a_replica_that_does_not_log_what_it_receives_has_no_replica(manifest: Manifest) -> None:
    settings = {**manifest.server.settings, "log_slave_updates": "OFF"}
    received = replace(manifest, server=replace(manifest.server, is_replica=True, settings=settings))
    with pytest.raises(UsageError, match="lacks what it gets from its source"):
        require_position(judged(received))  # as a manifest is read: the setting is known
    assert "-- Cannot become a replica or be rolled forward" in next_steps(received, Path("/to"))
    require_position(replace(received, server=replace(received.server, is_replica=False)))
    require_position(replace(MYSQL, server=replace(MYSQL.server, is_replica=True)))
