"""What a person is told to do with a restored folder, in the words of the server that was backed up."""

from dataclasses import replace
from pathlib import Path
from pwd import struct_passwd

import pytest

from backupd.mysql.next_steps import next_steps
from backupd.mysql.restored_owner import owner_in_words
from backupd.mysql.seeding import Words, words_for
from backupd.vocabulary.servers import Position, ReplicaPosition
from backupd.vocabulary.storage import Manifest
from tests.fakes.server import FACTS
from tests.unit.test_seeding import MARIADB, MYSQL, SET, WITHOUT_GTID

DATADIR = Path("/restored/mysql")


def of_version(manifest: Manifest, *version: int) -> Manifest:
    major, minor, patch = version
    return replace(manifest, server=replace(manifest.server, version_number=(major, minor, patch)))


def said(text: str) -> list[str]:
    """What a server would be told."""
    return [line for line in text.splitlines() if line and not line.startswith("--")]


def test_a_copy_without_a_binlog_is_promised_nothing() -> None:
    text = next_steps(replace(MARIADB, server=replace(FACTS, binlog_basename=None), position=Position()), DATADIR)
    assert said(text) == []
    assert "the binlog of db1 was off" in text
    assert "mariadb-binlog" not in text


def test_a_backup_without_a_lock_names_what_finds_its_position() -> None:
    text = next_steps(replace(MARIADB, locked=False), DATADIR)
    assert said(text) == []
    assert "backupd drill r1" in text
    assert "backupd clone r1 --as-replica" in text
    assert "1234" not in text


def test_a_position_that_a_drill_found_is_told_as_such() -> None:
    text = next_steps(replace(MARIADB, locked=False), DATADIR, found=Position("bin.000007", 999, "0-1-50"))
    assert "as its drill found it: bin.000007:999, GTID 0-1-50" in text
    assert "SET GLOBAL gtid_slave_pos = '0-1-50';" in said(text)
    assert "--start-position=999 " in text


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (
            MARIADB,
            [
                "RESET MASTER;",
                "SET GLOBAL gtid_slave_pos = '0-1-55';",
                "CHANGE MASTER TO MASTER_HOST = 'SOURCE', MASTER_PORT = 3306, MASTER_USER = 'REPLICATION_USER',"
                " MASTER_USE_GTID = slave_pos;",
                "START SLAVE;",
            ],
        ),
        (
            MYSQL,
            [
                "RESET REPLICA ALL;",
                "RESET BINARY LOGS AND GTIDS;",
                f"SET GLOBAL gtid_purged = '{SET}';",
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'SOURCE', SOURCE_PORT = 3306,"
                " SOURCE_USER = 'REPLICATION_USER', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1;",
                "START REPLICA;",
            ],
        ),
        (
            of_version(WITHOUT_GTID, 8, 0, 36),
            [
                "RESET REPLICA ALL;",
                "RESET MASTER;",
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'SOURCE', SOURCE_PORT = 3306,"
                " SOURCE_USER = 'REPLICATION_USER', SOURCE_LOG_FILE = 'bin.000007', SOURCE_LOG_POS = 1234,"
                " SOURCE_AUTO_POSITION = 0, GET_SOURCE_PUBLIC_KEY = 1;",
                "START REPLICA;",
            ],
        ),
        (
            of_version(MYSQL, 8, 0, 22),
            [
                "RESET SLAVE ALL;",
                "RESET MASTER;",
                f"SET GLOBAL gtid_purged = '{SET}';",
                "CHANGE MASTER TO MASTER_HOST = 'SOURCE', MASTER_PORT = 3306, MASTER_USER = 'REPLICATION_USER',"
                " MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1;",
                "START SLAVE;",
            ],
        ),
    ],
)
def test_a_replica_is_made_in_the_words_of_the_recorded_server(manifest: Manifest, expected: list[str]) -> None:
    assert said(next_steps(manifest, DATADIR)) == expected


def test_nobody_is_led_to_apply_the_log_of_a_later_series() -> None:
    """A server that was upgraded since the backup."""
    only = "-- Only while db1 is of series 10.11 or an earlier one: what a later one logs is applied without an error"
    lines = next_steps(of_version(MARIADB, 10, 11, 19), DATADIR).splitlines()
    replica, later = (at for at, line in enumerate(lines) if line.startswith(only))
    assert lines[replica + 1].startswith("-- To make it a replica of db1")
    assert lines[later + 1].startswith("-- To roll it forward instead")


@pytest.mark.parametrize(
    ("manifest", "version", "words"),
    [
        (MARIADB, (12, 3, 1), Words.MARIADB),
        (MYSQL, (8, 0, 22), Words.OLD_MYSQL),
        (MYSQL, (8, 0, 23), Words.MYSQL_8),
        (MYSQL, (8, 1, 0), Words.MYSQL_8),
        (MYSQL, (8, 2, 0), Words.MYSQL),
        (MYSQL, (9, 7, 4), Words.MYSQL),
    ],
)
def test_words_change_with_the_release_that_brought_them(
    manifest: Manifest, version: tuple[int, int, int], words: Words
) -> None:
    assert words_for(manifest.server.flavour, version) is words


@pytest.mark.parametrize(("manifest", "reader"), [(MARIADB, "mariadb-binlog"), (MYSQL, "mysqlbinlog")])
def test_a_later_moment_is_reached_from_the_recorded_offset(manifest: Manifest, reader: str) -> None:
    text = next_steps(manifest, DATADIR)
    assert f"--   {reader} --start-position=1234 --stop-datetime='YYYY-MM-DD hh:mm:ss' bin.000007 " in text


@pytest.mark.parametrize(
    ("datadir", "binlog", "folder"),
    [
        ("mysql", "mysql/bin.000007", "/restored/mysql"),
        (".", "bin.000007", "/restored/mysql"),
        ("srv/mysql", "srv/log/bin.000007", "/restored/log"),
        ("mysql", ".backupd-binlog/bin.000007", "/restored/.backupd-binlog"),
    ],
)
def test_recovery_is_shown_the_binlog_that_came_with_the_files(datadir: str, binlog: str, folder: str) -> None:
    text = next_steps(replace(MARIADB, datadir=datadir, binlog=binlog), DATADIR)
    assert f"Start it with log_bin={folder}/bin," in text


def test_the_old_servers_identity_is_removed_before_a_replica_starts() -> None:
    text = next_steps(MYSQL, Path("/with a blank/mysql"))
    assert "cd '/with a blank/mysql' && rm -f auto.cnf master.info " in text
    assert "a server_id that is not 1." in text
    assert "add SOURCE_PASSWORD" in text


def test_where_the_server_stood_as_a_replica_itself_is_told() -> None:
    channels = (
        ReplicaPosition("", "src.000003", 77, "0-2-9"),
        ReplicaPosition("eu", "eu.000001", 4),
        ReplicaPosition("us", "", 0, "0-3-5"),
    )
    text = next_steps(replace(MARIADB, position=replace(MARIADB.position, replicas=channels)), DATADIR)
    assert "-- It was a replica itself: it had applied src.000003:77 of its source, GTID 0-2-9\n" in text
    assert "-- Its own channel 'eu' had applied eu.000001:4 of its source\n" in text
    assert "-- Its own channel 'us' had applied GTID 0-3-5\n" in text


@pytest.mark.parametrize(
    ("account", "sentence"),
    [
        (None, "-- Its files belong to user 112, whom this host does not have."),
        ("ntp", "-- Its files belong to ntp on this host (user 112)."),
        ("mysql", ""),
    ],
)
def test_files_that_are_no_server_s_on_this_host_are_told_before_a_server_starts(
    monkeypatch: pytest.MonkeyPatch, account: str | None, sentence: str
) -> None:
    def getpwuid(uid: int) -> struct_passwd:
        if account is None:
            raise KeyError(uid)
        return struct_passwd((account, "x", uid, uid, "", "/", "/bin/false"))

    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    text = owner_in_words(Path("/with a blank/data"), 112)
    assert text.startswith(sentence)
    assert said(text) == []
    assert ("chown --recursive --no-dereference mysql: '/with a blank/data'" in text) is bool(sentence)
