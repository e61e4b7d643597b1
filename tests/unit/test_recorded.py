"""What a manifest says of a server is what a server has, or goes nowhere."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backupd.mysql.next_steps import next_steps
from backupd.mysql.recorded import judged, judged_position, libraries
from backupd.mysql.relocation import Relocation
from backupd.mysql.replica_files import option_file, statements_file
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.seeding import Following, ReplicationSource, ReplicaWish, Seeded, Words, statements
from backupd.mysql.sqltext import comment, literal, quoted, require_definition
from backupd.policy.log_modes import MISFITS, ONLY_OF_MOMENTS
from backupd.vocabulary.errors import BackupdError, ServerError, Unreadable
from backupd.vocabulary.servers import Flavour, Position, ReplicaPosition
from backupd.vocabulary.storage import Manifest
from tests.unit.test_seeding import MARIADB, MYSQL

U = "ce07eaf4-e5b7-11f1-9501-02fc00000001"

OF_MARIADB = {
    "aria_log_dir_path": "/var/lib/mysql/",
    "aria_log_file_size": "1073741824",
    "aria_page_checksum": "ON",
    "automatic_sp_privileges": "ON",
    "character_set_server": "utf8mb4",
    "collation_server": "utf8mb4_uca1400_ai_ci",
    "default_storage_engine": "InnoDB",
    "default_regex_flags": "DOTALL,MULTILINE",
    "div_precision_increment": "8",
    "enforce_storage_engine": "InnoDB",
    "ft_boolean_syntax": ' +-><()~*:""&|',
    "ft_stopword_file": "(built-in)",
    "innodb_checksum_algorithm": "full_crc32",
    "innodb_compression_default": "OFF",
    "innodb_data_file_path": "ibdata1:12M:autoextend",
    "innodb_data_home_dir": "",
    "encrypt_binlog": "OFF",
    "innodb_default_encryption_key_id": "1",
    "innodb_default_row_format": "dynamic",
    "innodb_encrypt_log": "ON",
    "innodb_encrypt_tables": "FORCE",
    "innodb_file_per_table": "ON",
    "innodb_flush_log_at_timeout": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_log_file_size": "100663296",
    "innodb_log_group_home_dir": "./",
    "innodb_page_size": "16384",
    "innodb_undo_directory": "./",
    "innodb_undo_tablespaces": "3",
    "file_key_management_encryption_algorithm": "aes_cbc",
    "file_key_management_filekey": "FILE:/etc/mysql/encryption/keyfile.key",
    "file_key_management_filename": "/etc/mysql/encryption/keyfile.enc",
    "gtid_domain_id": "0",
    "system_time_zone": "EST",
    "system_zone": "America/New_York",
    "time_zone": "SYSTEM",
    "log_bin_basename": "/var/log/mysql/mysql-bin",
    "log_bin_index": "/var/log/mysql/mysql-bin.index",
    "lower_case_table_names": "0",
    "max_allowed_packet": "16777216",
    "max_sort_length": "1024",
    "mhnsw_default_distance": "euclidean",
    "mhnsw_default_m": "6",
    "mysql56_temporal_format": "ON",
    "old_passwords": "OFF",
    "old_mode": "NO_PROGRESS_INFO,UTF8_IS_UTF8MB3",
    "plugin_dir": "/usr/lib/mysql/plugin/",
    "plugin_libraries": "file_key_management.so,ha_archive.so,provider_lzma.so",
    "relay_log_basename": "",
    "server_id": "1",
    "standard_compliant_cte": "ON",
    "sync_binlog": "1",
    "thread_stack": "299008",
    "version": "10.11.19-MariaDB-0+deb12u1-log",
    "version_comment": "Debian 12",
}
OF_MYSQL = {
    "binlog_encryption": "ON",
    "block_encryption_mode": "aes-256-cbc",
    "character_set_server": "utf8mb4",
    "collation_server": "utf8mb4_0900_ai_ci",
    "default_storage_engine": "InnoDB",
    "disabled_storage_engines": "MyISAM, BLACKHOLE",  # as in the option file
    "enforce_gtid_consistency": "WARN",
    "external_tablespaces": "/srv/my tables/one.ibd\n/srv/bulk/über.ibd",
    "gtid_mode": "ON_PERMISSIVE",
    "innodb_checksum_algorithm": "crc32",
    "innodb_data_file_path": "/srv/one/ibdata1:12M;/srv/two/ibdata2:1G:autoextend:max:50G",
    "innodb_directories": "/srv/bulk;/srv/my tables",
    "innodb_doublewrite_dir": "",
    "innodb_ft_server_stopword_table": "shop/stop words",
    "innodb_log_files_in_group": "2",
    "innodb_redo_log_capacity": "104857600",
    "innodb_redo_log_encrypt": "MASTER_KEY",  # of Percona Server
    "keyring_component": "component_keyring_file",
    "keyring_file_data": "/var/lib/mysql-keyring/component_keyring_file",
    "max_points_in_geometry": "65536",
    "old_passwords": "2",  # of MySQL 5.7
    "partial_revokes": "ON",
    "plugin_libraries": "ha_mock.so",
    "regexp_stack_limit": "8000000",
    "regexp_time_limit": "32",
    "server_uuid": U,
    "version": "9.7.4-2",
    "version_comment": "MySQL Community Server - GPL",
}


def of(settings: dict[str, str], manifest: Manifest = MARIADB) -> Manifest:
    return replace(manifest, server=replace(manifest.server, settings=settings))


@pytest.mark.parametrize(("manifest", "settings"), [(MARIADB, OF_MARIADB), (MYSQL, OF_MYSQL)], ids=["mariadb", "mysql"])
def test_what_servers_have_is_taken(manifest: Manifest, settings: dict[str, str]) -> None:
    found = judged(of(settings, manifest))
    assert found.server.settings == {name: value for name, value in settings.items() if name != "plugin_dir"}
    assert libraries(found.server) == tuple(settings["plugin_libraries"].split(","))
    assert replace(found, server=manifest.server) == manifest


def test_what_is_not_known_here_goes_nowhere() -> None:
    """Neither a newer backupd's, nor what no option may be made of."""
    added = {"of_next_year": "\n", "plugin_dir": "/srv/planted", "init_file": "/srv/planted.sql"}
    assert judged(of({**OF_MARIADB, **added})).server.settings.keys() == OF_MARIADB.keys() - {"plugin_dir"}


HOSTILE = [
    "\n[mariadbd]\nplugin-load-add=x.so",
    "x\r\n\\! touch /tmp/owned\n",
    "\x1b]0;title\x07",
    "\x00",
    "\u2028SELECT 1",
    "\u202egnp.exe",
    "\x85",
    "x" * 5000,
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", sorted({*OF_MARIADB, *OF_MYSQL} - {"plugin_dir", *ONLY_OF_MOMENTS}))
def test_no_setting_has_more_than_a_line(name: str, value: str) -> None:
    settings = {**OF_MARIADB, **OF_MYSQL}
    for hostile in (value, f"{settings[name]}{value}", f"{value}{settings[name]}"):
        with pytest.raises(Unreadable, match=rf"settings\.{name} has an invalid value") as refused:
            judged(of({**settings, name: hostile}))
        assert refused.value.message.isprintable()


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", ONLY_OF_MOMENTS)
def test_a_setting_that_only_moments_need_goes_nowhere_where_it_does_not_fit_and_keeps_nobody_from_a_restore(
    name: str, value: str
) -> None:
    once = judged(of({**OF_MARIADB, name: value}))
    others = {other: fits for other, fits in OF_MARIADB.items() if other not in (name, "plugin_dir")}
    assert once.server.settings == others | {MISFITS: name}
    assert judged(once) == once


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("innodb_page_size", "16384 --plugin-dir=/srv"),
        ("innodb_page_size", "١٦٣٨٤"),
        ("innodb_log_file_size", "-1"),
        ("innodb_log_file_size", "9" * 21),
        ("gtid_mode", "ON;"),
        ("innodb_encrypt_tables", "maybe"),
        ("character_set_server", "utf8mb4 x"),
        ("collation_server", "../../utf8"),
        ("innodb_checksum_algorithm", "crc32=x"),
        ("innodb_data_file_path", "/dev/sda:10Gnewraw"),
        ("innodb_data_file_path", "ibdata1:12M:autoextend:max"),
        ("innodb_data_file_path", "ibdata1"),
        ("server_uuid", f"{U}0"),
        ("server_id", "1; DROP TABLE t"),
        ("plugin_libraries", "../evil.so"),
        ("plugin_libraries", "/srv/evil.so"),
        ("plugin_libraries", "x=evil.so"),
        ("plugin_libraries", "evil"),
        ("keyring_component", "file:///srv/evil"),
        ("keyring_component", "../evil"),
        ("system_zone", "../../etc/passwd"),
        ("system_zone", ":Europe/Berlin"),
        ("external_tablespaces", "relative.ibd"),
        ("lower_case_table_names", "ON"),
    ],
)
def test_a_setting_is_of_its_kind(name: str, value: str) -> None:
    with pytest.raises(Unreadable, match=rf"settings\.{name} has an invalid value"):
        judged(of({name: value}))


def test_a_library_that_no_server_comes_with_is_named() -> None:
    with pytest.raises(ServerError, match=r"names a plugin library that is not part of any server: 'ha_evil\.so'"):
        libraries(judged(of({"plugin_libraries": "ha_archive.so,ha_evil.so"})).server)


def test_what_files_do_not_need_is_not_loaded() -> None:
    facts = of({"plugin_libraries": "handlersocket.so,ha_archive.so,group_replication.so"}).server
    assert libraries(facts) == ("ha_archive.so",)


def test_of_libraries_that_are_not_needed_to_start_the_known_ones_are_loaded_and_others_are_no_reason_to_refuse() -> (
    None
):
    optional = "auth_ed25519.so,auth_of_next_year.v2.so,../../srv/planted.so,ha_mroonga.so,libpluginmecab.so"
    found = judged(of({"plugin_libraries": "ha_mroonga.so,group_replication.so", "optional_libraries": optional}))
    assert libraries(found.server) == ("ha_mroonga.so", "auth_ed25519.so", "libpluginmecab.so")


@pytest.mark.parametrize("hostile", [value for value in HOSTILE if len(value) < 100])
@pytest.mark.parametrize("name", ["run_id", "job", "host", "machine", "volume", "datadir", "binlog"])
def test_no_name_has_more_than_a_line(name: str, hostile: str) -> None:
    changed: dict[str, Any] = {name: f"{getattr(MARIADB, name)}{hostile}"}
    with pytest.raises(Unreadable, match=f"the manifest's {name} has an invalid value"):
        judged(replace(MARIADB, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "10.11.6\n\\! id"},
        {"datadir": Path("/srv/data\n/mysql")},
        {"datadir": Path("relative")},
        {"binlog_basename": Path("/srv/\x1b[2J/bin")},
        {"socket": Path("/run/\n")},
    ],
)
def test_a_server_is_told_in_lines(changed: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match=f"server.{next(iter(changed))} has an invalid value"):
        judged(replace(MARIADB, server=replace(MARIADB.server, **changed)))


def test_a_place_in_the_binlog_that_was_taken_under_a_lock_has_an_offset() -> None:
    unknown = replace(MARIADB, position=Position("bin.000001", None, f"{U}:1"))
    with pytest.raises(Unreadable, match=r"position\.binlog_offset has an invalid value"):
        judged(unknown)
    assert judged(replace(unknown, locked=False)).position.binlog_offset is None


POSITIONS = [
    Position(),
    Position("bin.000007", 4, ""),
    Position("mysql-bin.000007", 1234, "0-1-55,1-2-3"),
    Position("db1 bin.1000000", 4, f"{U}:1-5:7:blue:1-3"),
    Position(
        "bin.000007", 4, None, (ReplicaPosition("eu/west", "src.000003", 77, "0-2-9"), ReplicaPosition("", "", 0))
    ),
]


@pytest.mark.parametrize("position", POSITIONS)
def test_positions_that_servers_have_are_taken(position: Position) -> None:
    assert judged_position(position) == position


def test_a_channel_of_an_early_backup_that_went_by_gtids_alone_has_no_place() -> None:
    early = Position(replicas=(ReplicaPosition("", "INVALID", 0, f"{U}:1-5"),))
    assert judged_position(early).replicas == (ReplicaPosition("", "", 0, f"{U}:1-5"),)


def test_a_set_in_lines_is_put_on_one() -> None:
    assert judged_position(Position("bin.000007", 4, f"{U}:1-5,\n{U[:-1]}2:1")).gtid == f"{U}:1-5,{U[:-1]}2:1"


@pytest.mark.parametrize(
    "hostile",
    [
        Position("bin.000007\n\\! id", 4),
        Position("../../etc/passwd", 4),
        Position("bin'.000007", 4),
        Position("bin\\.000007", 4),
        Position("bin", 4),
        Position("bin.000007", -1),
        Position("bin.000007", 4, "0-1-55'; SELECT 1 --"),
        Position("bin.000007", 4, f"{U}:1-5\\! id"),
        Position("bin.000007", 4, "x"),
        Position(replicas=(ReplicaPosition("eu\n\\! id", "src.000003", 77),)),
        Position(replicas=(ReplicaPosition("", "src.000003\n", 77),)),
        Position(replicas=(ReplicaPosition("", "src.000003", 77, "0-1-5;"),)),
    ],
)
def test_other_positions_are_refused(hostile: Position) -> None:
    with pytest.raises(Unreadable, match=r"the manifest's position\..* has an invalid value"):
        judged_position(hostile)
    text = next_steps(replace(MARIADB, position=hostile), Path("/restored"))
    assert all(line.startswith("-- ") for line in text.splitlines())
    with pytest.raises(Unreadable):
        ScratchServer(Path("/restored"), replace(MARIADB, position=hostile))


@pytest.mark.parametrize("hostile", [value for value in HOSTILE if len(value) < 100])
@pytest.mark.parametrize("name", ["job", "host"])
def test_a_client_that_is_fed_the_next_steps_is_fed_nothing_of_a_stranger(name: str, hostile: str) -> None:
    changed: dict[str, Any] = {name: hostile}
    text = next_steps(replace(MARIADB, **changed), Path("/restored"))
    assert text.startswith("-- The next steps for this copy are not known: ")
    assert text.replace("\n", "").isprintable()
    assert all(line.startswith("-- ") for line in text.splitlines())


# --- texts -----------------------------------------------------------------------------------------------------------


def test_a_comment_has_its_dashes_on_every_line() -> None:
    assert comment("one\n\\! id\r\ntwo\x1b[2J\u2028three") == "-- one\n-- \\! id\n-- two\\x1b[2J\n-- three"


@pytest.mark.parametrize("text", ["a\nb", "\\", "it's\\", "\x00", "\u2029"])
def test_a_string_that_modes_read_in_different_ways_is_none(text: str) -> None:
    with pytest.raises(ServerError, match="this cannot be quoted safely for every server"):
        literal(text)


def test_quotes_are_doubled() -> None:
    assert (literal("it's"), quoted("a`b")) == ("'it''s'", "`a``b`")


def test_no_source_brings_a_statement_of_its_own() -> None:
    hostile = ReplicationSource(host="db1\\", user=", MASTER_PORT=1 -- ")
    with pytest.raises(ServerError, match="this cannot be quoted safely for every server"):
        statements(Words.MARIADB, Position(), ReplicaWish(7, Following.GTID, hostile))


def test_an_option_file_has_a_line_for_each_option(tmp_path: Path) -> None:
    wanted = ReplicaWish(7, Following.GTID)
    hostile = of({"innodb_checksum_algorithm": "crc32\nplugin-load-add=evil.so"})
    with pytest.raises(BackupdError, match="this cannot be written to an option file"):
        option_file(hostile, Relocation(tmp_path, "mysql", MARIADB.server.datadir), wanted)


def test_the_statements_of_a_clone_are_comments_but_for_what_is_left() -> None:
    seeded = Seeded(Words.MARIADB, Position("bin.000007", 4, "0-1-1\n\\! id"), ("SET x = 1\n\\! id",), ("START SLAVE",))
    hostile = replace(MARIADB, host="db1\n\\! id", created_at=datetime(2026, 1, 1, tzinfo=UTC))
    lines = statements_file(hostile, seeded, ReplicaWish(7, Following.GTID)).splitlines()
    assert [line for line in lines if line and not line.startswith("--")] == ["START SLAVE;"]


DEFINITIONS = [
    "CREATE TABLE `t` (\n  `id` int(11) NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB",
    "CREATE TABLE `o;\\! id` (\n  `v` text DEFAULT 'it''s; \\\\! -- # /* x' COMMENT 'a\\nb'\n) ENGINE=Aria",
    "CREATE TABLE `t` (`n` int DEFAULT (`a` - 1 * 2 / 3))\n/*!50100 PARTITION BY RANGE (`n`)\n"
    "(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB) */",
    'CREATE TABLE `t` (`a` int /*!80023 INVISIBLE */) DEFAULT CHARSET=utf8mb4 COMMENT="x"',
    "CREATE TABLE `t` (`a` text /*M!100301 COMPRESSED*/ DEFAULT NULL) ENGINE=InnoDB",
]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_tables_definition_is_taken(definition: str) -> None:
    require_definition(definition)


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE `t` (`id` int);\nDROP DATABASE mysql",
        "CREATE TABLE `t` (`id` int)\n\\! touch /tmp/owned\n",
        "CREATE TABLE `t` (`id` int DEFAULT (1 \\! id\n))",
        "CREATE TABLE `t` (`id` int COMMENT 'open)",
        "CREATE TABLE `t` (`id` int COMMENT 'x\\')",
        "CREATE TABLE `t` (`id` int) -- '\n\\! id",
        "CREATE TABLE `t` (`id` int) # '\n\\! id",
        "CREATE TABLE `t` (`id` int) /* ' */",
        "CREATE TABLE `t` (`id` int)\nDELIMITER \\\\\n",
        "CREATE TABLE `t\n(",
        "CREATE TABLE `t` (\x1b[2J)",
    ],
)
def test_what_a_client_would_obey_is_no_definition(definition: str) -> None:
    with pytest.raises(ServerError, match="the server returned a table definition that is unsafe to run"):
        require_definition(definition)


def test_an_opposite_flavours_gtids_are_still_gtids() -> None:
    """A MariaDB that was told a MySQL's position: odd, and harmless."""
    assert judged(replace(MARIADB, position=Position("bin.000001", 4, f"{U}:1"))).server.flavour is Flavour.MARIADB
