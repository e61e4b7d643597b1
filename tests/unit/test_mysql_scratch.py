"""The command line of a scratch server shows it the copy and nothing else."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from typing import cast

import pytest

from backupd.host.sandbox import NOT_CONFINED
from backupd.mysql.facts import lacks_key_password, server_facts
from backupd.mysql.keyring import keyring_options
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation, require_self_contained
from backupd.mysql.scratch import RunningServer, ScratchServer, first_error
from backupd.mysql.scratch_account import Account
from backupd.mysql.scratch_places import ScratchPlaces, prepared
from backupd.mysql.server_programs import ServerProgram
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.session import Session
from backupd.mysql.startup import (
    RELAY_FOLDER,
    folders_of,
    require_keys,
    require_no_live_tablespace,
    require_tablespaces,
    server_argv,
    stopwords_doubt,
)
from backupd.vocabulary.errors import (
    CleanupIncomplete,
    CommandError,
    KeyUnreadable,
    NeverStarted,
    ServerError,
    Undecided,
    Unreadable,
    UsageError,
)
from backupd.vocabulary.servers import Flavour, ServerFacts
from backupd.vocabulary.storage import MARKER
from tests.fakes.server import FACTS
from tests.unit.test_seeding import MARIADB as MANIFEST

DATA = Path(__file__).parents[1] / "data" / "mysql"
PLACES = ScratchPlaces(Path("/run/scratch"))
MOVED = Relocation(Path("/restored"), "mysql", Path("/srv/data/mysql"))


MYSQL = replace(FACTS, flavour=Flavour.MYSQL, version="9.7.4-2", version_number=(9, 7, 4))


def options(settings: dict[str, str], binlog: Path | None = None, *, facts: ServerFacts = FACTS) -> dict[str, str]:
    argv = server_argv(ServerProgram("mariadbd"), MOVED, replace(facts, settings=settings), PLACES, binlog)
    return dict(option.partition("=")[::2] for option in argv)


@pytest.mark.parametrize(
    ("recorded", "moved"),
    [
        ("", "/restored/mysql"),
        ("./", "/restored/mysql"),
        ("undo", "/restored/mysql/undo"),
        ("/srv/data/mysql/redo", "/restored/mysql/redo"),
        ("/srv/data/redo", "/restored/redo"),
    ],
)
def test_recorded_paths_are_found_again_in_the_copy(recorded: str, moved: str) -> None:
    assert MOVED.moved(recorded) == Path(moved)


@pytest.mark.parametrize("elsewhere", ["/var/lib/redo", "/srv/database", "/"])
def test_a_path_that_was_not_backed_up_is_refused(elsewhere: str) -> None:
    with pytest.raises(ServerError, match="not in the backup"):
        MOVED.moved(elsewhere)


def test_a_datadir_behind_a_symlink_has_no_known_surroundings() -> None:
    behind = Relocation(Path("/restored"), "mysql", Path("/var/lib/database"))
    assert behind.moved("/var/lib/database/redo") == Path("/restored/mysql/redo")
    with pytest.raises(ServerError, match="not in the backup"):
        behind.moved("/srv/data/redo")


def test_no_option_file_is_read_and_nothing_starts_that_reaches_others() -> None:
    argv = server_argv(ServerProgram("mariadbd"), MOVED, FACTS, PLACES, None)
    assert argv[:2] == ["mariadbd", "--no-defaults"]
    assert {"--skip-networking", "--skip-slave-start", "--event-scheduler=OFF", "--skip-grant-tables"} <= set(argv)


@pytest.mark.parametrize("facts", [FACTS, MYSQL])
def test_one_that_applies_refuses_no_table_that_the_source_took_with_a_warning(facts: ServerFacts) -> None:
    argv = server_argv(ServerProgram("mysqld"), MOVED, facts, PLACES, None, applying=True)
    assert {"--loose-innodb-strict-mode=OFF", "--loose-restrict-fk-on-non-standard-key=OFF"} <= set(argv)


def test_one_that_applies_has_the_copys_relay_logs_and_writes_no_binlog_of_it() -> None:
    facts = replace(FACTS, settings={**FACTS.settings, "default_storage_engine": "Aria", "old_mode": ""})
    argv = server_argv(ServerProgram("mariadbd"), MOVED, facts, PLACES, None, applying=True)
    last = {option.partition("=")[0]: option.partition("=")[2] for option in argv}  # the last that is said counts
    assert last["--relay-log"] == f"{MOVED.folder}/{RELAY_FOLDER}/relay"
    assert last["--relay-log-index"] == f"{MOVED.folder}/{RELAY_FOLDER}/relay.index"
    assert last["--master-info-file"] == f"{PLACES.folder}/master.info"
    assert last["--loose-log-slave-updates"] == last["--loose-log-replica-updates"] == "OFF"
    assert last["--default-storage-engine"] == "Aria"
    assert last["--loose-old-mode"] == ""
    assert "--skip-slave-start" in argv


@pytest.mark.parametrize("flavour", Flavour)
def test_what_is_written_into_a_copy_is_encrypted_as_its_server_s_own_files_were(flavour: Flavour) -> None:
    encrypting = {
        Flavour.MARIADB: {
            **dict.fromkeys(
                ("aria_encrypt_tables", "encrypt_binlog", "encrypt_tmp_disk_tables", "encrypt_tmp_files"), "ON"
            ),
            **dict.fromkeys(("innodb_encrypt_log", "innodb_encrypt_temporary_tables"), "ON"),
            "innodb_encrypt_tables": "FORCE",
            "innodb_default_encryption_key_id": "7",
        },
        Flavour.MYSQL: dict.fromkeys(("innodb_redo_log_encrypt", "innodb_undo_log_encrypt"), "ON"),
    }[flavour]
    recorded = server_facts(cast(Session, Answering(encrypting))).settings
    facts = judged(replace(MANIFEST, server=replace(FACTS, flavour=flavour, settings=recorded))).server
    told = server_argv(ServerProgram("mysqld"), MOVED, facts, PLACES, None)
    assert {f"--loose-{name.replace('_', '-')}={value}" for name, value in encrypting.items()} <= set(told)


@pytest.mark.parametrize(
    ("control", "told"),
    [
        (b"\xfe\xfe\x0c\x01" + bytes(16) + b"\x1e\x00\x16\x00\x00\x40", "16384"),
        (b"\xfe\xfe\x0c\x01" + bytes(16) + b"\x1e\x00\x16\x00\x00\x80", "32768"),
        (b"\xfe\xfe\x0c\x01" + bytes(16) + b"\x1e\x00\x16\x00\x01\x40", None),  # no power of two
        (b"\xfe\xfe\x0c\x01" + bytes(16) + b"\x1e\x00\x16\x00\x00\x02", None),  # 512
        (b"\xfe\xfe\x0d\x01" + bytes(16) + b"\x1e\x00\x16\x00\x00\x40", None),  # another kind of file
        (b"\xfe\xfe\x0c\x01", None),
        (b"", None),
        (None, None),
    ],
)
@pytest.mark.parametrize("is_link", [False, True])
def test_the_pages_of_aria_have_the_size_that_the_copys_control_file_tells(
    tmp_path: Path, control: bytes | None, told: str | None, is_link: bool
) -> None:
    control_file = tmp_path / "copy" / "aria" / "aria_log_control"
    control_file.parent.mkdir(parents=True)
    if control is not None:
        file = tmp_path / "elsewhere" if is_link else control_file
        file.write_bytes(control)
    if is_link:
        control_file.symlink_to(tmp_path / "elsewhere")
    facts = replace(FACTS, settings={"aria_log_dir_path": "/srv/data/aria"})
    copy = Relocation(tmp_path / "copy", "mysql", Path("/srv/data/mysql"))
    seen = replace(copy, folder=Path("/run/scratch/copy"), here=tmp_path / "copy")
    for relocation in (copy, seen):
        argv = server_argv(ServerProgram("mariadbd"), relocation, facts, PLACES, None)
        found = [option for option in argv if option.startswith("--aria-block-size=")]
        assert found == ([f"--aria-block-size={told}"] if told and not is_link else [])


def test_every_path_lies_in_the_copy_or_in_the_servers_own_folder() -> None:
    settings = {"innodb_log_group_home_dir": "/srv/data/redo", "innodb_undo_directory": "./", "aria_log_dir_path": ""}
    paths = [value for value in options(settings, Path("/restored/mysql/bin.000007")).values() if "/" in value]
    assert len(paths) > 10
    assert [path for path in paths if not path.startswith(("/restored", "/run/scratch"))] == []


def test_mysql_is_given_every_path_too_and_none_of_mariadbs_options() -> None:
    settings = {"innodb_log_group_home_dir": "/srv/data/redo", "innodb_doublewrite_dir": "", "innodb_directories": ""}
    found = options(settings, Path("/restored/mysql/bin.000007"), facts=MYSQL)
    assert [value for value in found.values() if "/" in value and not value.startswith(("/restored", "/run/"))] == []
    assert found["--innodb-log-group-home-dir"] == "/restored/redo"
    assert found["--innodb-doublewrite-dir"] == "/restored/mysql"
    assert found["--innodb-directories"] == ""
    assert not {name for name in found if "--aria" in name or "wsrep" in name or "master-info" in name}


def test_nothing_that_mysql_keeps_in_the_copy_makes_it_reach_others() -> None:
    found = options({}, facts=MYSQL)
    assert {"--skip-networking", "--loose-skip-replica-start", "--loose-skip-slave-start"} <= set(found)
    assert (found["--persisted-globals-load"], found["--mysqlx"], found["--event-scheduler"]) == (
        "OFF",
        "OFF",
        "DISABLED",
    )


def test_a_parser_of_fulltext_finds_its_dictionary() -> None:
    """MySQL 9.7.4 opens no table with the parser of libpluginmecab.so without it."""
    recorded = {"optional_libraries": "libpluginmecab.so", "mecab_rc_file": "/etc/mecabrc"}
    manifest = judged(replace(MANIFEST, server=replace(MYSQL, settings=recorded)))
    argv = server_argv(ServerProgram("mysqld"), MOVED, manifest.server, PLACES, None)
    assert {"--loose-mecab-rc-file=/etc/mecabrc", "--plugin-load-add=libpluginmecab.so"} <= set(argv)


def test_a_log_may_make_accounts_with_the_password_of_mysql_8_0() -> None:
    """8.4 refuses that unless it is told; 9 has no such option, and passes by one that is loose."""
    assert options({}, facts=MYSQL)["--loose-mysql-native-password"] == "ON"


def test_mysqls_tablespaces_outside_of_the_datadir_are_looked_for_in_the_copy_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "mysql").mkdir()
    (tmp_path / "general").mkdir()
    facts = replace(
        MYSQL,
        settings={
            "external_tablespaces": "/srv/data/general/one.ibd",
            "innodb_directories": "/srv/data/gone;/mnt/bulk",
        },
    )
    copy = Relocation(tmp_path, "mysql", Path("/srv/data/mysql"))
    assert f"--innodb-directories={tmp_path}/general" in server_argv(ServerProgram("mysqld"), copy, facts, PLACES, None)
    seen = replace(copy, folder=Path("/run/scratch/copy"), here=tmp_path)  # by a server that may not enter `tmp_path`
    assert "--innodb-directories=/run/scratch/copy/general" in server_argv(
        ServerProgram("mysqld"), seen, facts, PLACES, None
    )


def test_a_mysql_tablespace_that_was_not_backed_up_is_refused() -> None:
    with pytest.raises(ServerError, match=r"/mnt/bulk/one\.ibd, which is not in the backup"):
        options({"external_tablespaces": "/mnt/bulk/one.ibd"}, facts=MYSQL)


def test_a_mysql_tablespace_that_is_here_but_not_in_the_copy_is_refused_before_the_start(tmp_path: Path) -> None:
    live = tmp_path / "srv" / "one.ibd"
    live.parent.mkdir()
    live.touch()
    moved = Relocation(tmp_path / "restored", "mysql", tmp_path / "srv" / "mysql")
    facts = replace(MYSQL, settings={"external_tablespaces": str(live)})
    with pytest.raises(ServerError, match="not in the restored copy, and the live one is here"):
        require_tablespaces(moved, facts)
    live.unlink()  # dropped since it was recorded
    require_tablespaces(moved, facts)


def test_a_mysql_that_went_by_a_path_of_its_dictionary_is_no_scratch_server() -> None:
    warning = (
        "1 [Warning] [MY-012177] [InnoDB] The datafile '/srv/else/gout.ibd' for tablespace gout is in an unprotected"
        " location. This file cannot be recovered after a crash until this location is added to innodb_directories."
    )
    with pytest.raises(ServerError, match=r"opened /srv/else/gout\.ibd, which is not one of them"):
        require_no_live_tablespace(warning)
    require_no_live_tablespace((DATA / "recovery-9.7.4.log").read_text())


@pytest.mark.parametrize(
    "setting", ["file_key_management_filename", "file_key_management_filekey", "keyring_file_data"]
)
def test_a_missing_key_file_is_named_before_the_server_has_to_guess(tmp_path: Path, setting: str) -> None:
    key = tmp_path / "keys"
    facts = replace(FACTS, settings={setting: f"FILE:{key}" if setting.endswith("filekey") else str(key)})
    with pytest.raises(ServerError, match=f"the key file {key} is not here"):
        require_keys(facts)
    key.touch(mode=0o600)
    require_keys(facts)
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ("false",)
    with pytest.raises(KeyUnreadable, match="cannot be read as the owner of the restored files"):
        require_keys(facts, other)


def test_a_password_in_place_of_a_key_file_is_no_file() -> None:
    require_keys(replace(FACTS, settings={"file_key_management_filekey": "secret", "keyring_file_data": ""}))


@dataclass
class Answering:
    """A MariaDB with these variables, which has nothing else to tell."""

    named: Mapping[str, str]
    peer: int | None = None

    def variables(self) -> Mapping[str, str]:
        usual = {"aria_block_size": "8192", "version": "10.11.19-MariaDB", "datadir": "/d", "innodb_page_size": "16384"}
        return {**usual, **self.named}

    def status(self, name: str) -> None:
        """No counters."""

    def query(self, statement: str) -> list[Mapping[str, str | None]]:
        return []

    def value(self, statement: str) -> None:
        """No rows."""

    one = value


@pytest.mark.parametrize("filekey", ["FILE:/etc/keys.password", ""])
def test_where_the_password_of_a_key_file_lies_is_recorded(filekey: str) -> None:
    facts = server_facts(cast(Session, Answering({"file_key_management_filekey": filekey})))
    assert facts.settings["file_key_management_filekey"] == filekey
    assert not lacks_key_password(facts)


def test_the_password_of_a_key_file_is_not_recorded_and_a_drill_says_what_it_lacks() -> None:
    facts = server_facts(cast(Session, Answering({"file_key_management_filekey": "c4n4ry"})))
    assert "c4n4ry" not in repr(facts)
    with pytest.raises(ServerError, match="password of the server's key file is not in the backup"):
        require_keys(facts)


def keyring_facts(component: str, file: Path) -> ServerFacts:
    settings = {"keyring_component": component, "keyring_file_data": str(file), "plugin_dir": "/srv/planted/"}
    return replace(MYSQL, settings={**settings, "plugin_libraries": "ha_mock.so"})


@pytest.fixture
def program(tmp_path: Path) -> str:
    """What a server program says of its plugins, and no server."""
    said = "Variables (--variable-name=value)\nplugin-dir                 /usr/lib/mysql/plugin/\nplugin-load    (No)"
    path = tmp_path / "mysqld"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    path.chmod(0o755)
    return str(path)


def test_a_scratch_server_writes_a_keyring_of_its_own(tmp_path: Path, program: str) -> None:
    live, folder = tmp_path / "keyring", tmp_path / "scratch"
    live.write_text("the keys")
    folder.mkdir()
    (option,) = keyring_options(keyring_facts("component_keyring_file", live), folder, ServerProgram(program), ())
    plugins = Path(option.removeprefix("--plugin-dir="))
    mine = Path(json.loads((plugins / "component_keyring_file.cnf").read_text())["path"])
    assert mine.is_relative_to(folder)
    assert mine.read_text() == "the keys"
    assert mine.stat().st_mode & 0o077 == 0
    for library in ("component_keyring_file.so", "ha_mock.so"):
        assert (plugins / library).readlink() == Path("/usr/lib/mysql/plugin") / library


def test_a_keyring_is_read_as_the_copys_owner_and_by_nobody_else(tmp_path: Path, program: str) -> None:
    """What the manifest calls a keyring may be any file of this host."""
    secret, folder = tmp_path / "shadow", tmp_path / "scratch"
    secret.write_text("root's alone")
    secret.chmod(0o600)
    folder.mkdir()
    reader = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ("false",)
    with pytest.raises(KeyUnreadable, match="cannot be read as the owner of the restored files"):
        keyring_options(keyring_facts("component_keyring_file", secret), folder, ServerProgram(program), reader)
    assert (folder / "plugins" / "keyring").read_bytes() == b""


def test_a_server_without_a_keyring_component_needs_none(tmp_path: Path) -> None:
    assert keyring_options(MYSQL, tmp_path, ServerProgram("mysqld"), ()) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_keyring_that_only_one_server_can_use_is_refused(tmp_path: Path) -> None:
    facts = keyring_facts("component_keyring_oci", tmp_path / "none")
    with pytest.raises(ServerError, match="kept by component_keyring_oci"):
        keyring_options(facts, tmp_path, ServerProgram("mysqld"), ())
    with pytest.raises(ServerError, match="kept by component_keyring_oci"):
        ScratchServer(tmp_path, replace(MANIFEST, server=facts))


def test_a_keyring_without_a_file_is_refused(tmp_path: Path) -> None:
    facts = replace(MYSQL, settings={"keyring_component": "component_keyring_file"})
    with pytest.raises(ServerError, match="its file is not recorded"):
        ScratchServer(tmp_path, replace(MANIFEST, server=facts))


def test_what_the_files_depend_on_is_carried_over() -> None:
    found = options({"innodb_page_size": "65536", "lower_case_table_names": "1", "innodb_buffer_pool_size": "99G"})
    assert found["--loose-innodb-page-size"] == "65536"
    assert found["--loose-lower-case-table-names"] == "1"
    assert "99G" not in found.values()


def test_a_system_tablespace_of_several_files_with_full_paths_is_moved() -> None:
    files = "/srv/data/one/ibdata1:12M;/srv/data/mysql/ibdata2:10M:autoextend"
    found = options({"innodb_data_home_dir": "", "innodb_data_file_path": files})
    assert found["--innodb-data-home-dir"] == ""
    assert found["--innodb-data-file-path"] == "/restored/one/ibdata1:12M;/restored/mysql/ibdata2:10M:autoextend"


def test_the_restored_binlog_is_used_through_an_index_of_our_own() -> None:
    found = options({}, Path("/restored/mysql/db1-bin.000007"))
    assert found["--log-bin"] == "/restored/mysql/db1-bin"
    assert found["--log-bin-index"] == "/run/scratch/binlog.index"
    assert "--skip-log-bin" in options({})


def test_plugins_with_tables_or_keys_are_loaded() -> None:
    recorded = {"plugin_libraries": "ha_rocksdb.so,provider_lz4.so,handlersocket.so", "plugin_dir": "/srv/planted"}
    argv = server_argv(ServerProgram("m"), MOVED, replace(FACTS, settings=recorded), PLACES, None)
    loaded = ["--plugin-load-add=ha_rocksdb.so", "--plugin-load-add=provider_lz4.so"]
    assert [option for option in argv if "plugin" in option] == loaded  # no folder: the program's own is searched


@pytest.mark.parametrize("library", ["ha_evil.so", "../../srv/data/mysql/ha_archive.so", "x=y.so", "a.so;b.so"])
def test_a_library_that_no_server_comes_with_is_not_loaded(tmp_path: Path, library: str) -> None:
    hostile = replace(FACTS, settings={"plugin_libraries": f"ha_archive.so,{library}"})
    with pytest.raises(ServerError, match="the manifest names a plugin library that is not part of any server"):
        server_argv(ServerProgram("m"), MOVED, hostile, PLACES, None)
    with pytest.raises((ServerError, Unreadable), match="plugin"):
        ScratchServer(tmp_path, replace(MANIFEST, server=hostile))


@pytest.mark.parametrize(
    ("recorded", "moved"),
    [
        ("../redo", "/restored/redo"),
        ("/srv/data/mysql/../redo", "/restored/redo"),
        ("a/../../mysql/b", "/restored/mysql/b"),
    ],
)
def test_a_path_with_dots_is_found_where_it_leads(recorded: str, moved: str) -> None:
    assert MOVED.moved(recorded) == Path(moved)


@pytest.mark.parametrize("outside", ["../../../etc", "/srv/data/mysql/../../../var/lib/mysql", "../../elsewhere"])
def test_no_path_leads_out_of_the_copy_by_its_dots(outside: str) -> None:
    with pytest.raises(ServerError, match="not in the backup"):
        MOVED.moved(outside)


def planted(folder: Path) -> Relocation:
    (folder / "copy" / "mysql").mkdir(parents=True)
    return Relocation(folder / "copy", "mysql", Path("/srv/data/mysql"))


def test_a_datadir_that_is_a_link_to_the_live_one_is_refused(tmp_path: Path) -> None:
    copy = planted(tmp_path)
    copy.datadir.rmdir()
    (tmp_path / "live").mkdir()
    copy.datadir.symlink_to("../live")
    with pytest.raises(ServerError, match="mysql points outside the restored copy"):
        require_self_contained(copy)


def test_a_redo_folder_beside_the_datadir_leads_nowhere_either(tmp_path: Path) -> None:
    copy = planted(tmp_path)
    (copy.folder / "redo").symlink_to("/var/lib")
    facts = replace(FACTS, settings={"innodb_log_group_home_dir": "/srv/data/redo"})
    require_self_contained(copy)
    with pytest.raises(ServerError, match="redo points outside the restored copy"):
        require_self_contained(copy, *folders_of(copy, facts))


def test_an_isl_file_is_read_if_it_is_a_small_plain_one(tmp_path: Path) -> None:
    copy = planted(tmp_path)
    isl = copy.datadir / "t.isl"
    isl.write_text(f"{copy.folder}/else/../t.ibd\n")
    require_self_contained(copy)
    isl.write_text(f"{copy.folder}/../t.ibd\n")
    with pytest.raises(ServerError, match=r"t\.isl points outside"):
        require_self_contained(copy)
    isl.write_text("x" * 10_000)
    with pytest.raises(ServerError, match="more than 4096 bytes"):
        require_self_contained(copy)
    isl.unlink()
    os.mkfifo(isl)
    require_self_contained(copy)  # and nobody waits for somebody to write into it


def test_a_schema_behind_a_link_of_the_copy_leads_nowhere_either(tmp_path: Path) -> None:
    copy = planted(tmp_path)
    large = copy.folder / "large"
    large.mkdir()
    (copy.datadir / "shop").symlink_to("../large")
    (large / "round").symlink_to("../large")
    (large / "all").symlink_to("..")
    require_self_contained(copy)
    (large / "t.isl").write_text("/srv/live/t.ibd")
    with pytest.raises(ServerError, match=r"^large/t\.isl points outside the restored copy, to /srv/live/t\.ibd"):
        require_self_contained(copy)


def log_of(folder: Path) -> RunningServer:
    return RunningServer(cast("Popen[bytes]", None), cast(Session, None), ScratchPlaces(folder))


def test_a_log_is_read_as_far_as_it_is_the_servers_own(tmp_path: Path) -> None:
    log, secret = tmp_path / "own" / "log.err", tmp_path / "shadow"
    log.parent.mkdir()
    assert log_of(log.parent).error_log == ""
    log.write_text("ready\n")
    assert log_of(log.parent).error_log == "ready\n"
    log.unlink()
    secret.write_text("root's alone")
    log.symlink_to(secret)
    with pytest.raises(ServerError, match="cannot read the error log"):
        _ = log_of(log.parent).error_log
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(ServerError, match="cannot read the error log"):
        _ = log_of(log.parent).error_log
    log.unlink()
    with log.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ServerError, match="it has more than"):
        _ = log_of(log.parent).error_log


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("failed", [False, True])
def test_files_that_cannot_be_given_back_are_told_with_the_command_that_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, failed: bool
) -> None:
    copy, its, owner = tmp_path / "copy", 61001, 61002
    (copy / "data").mkdir(parents=True)
    os.chown(copy / "data", owner, owner)
    left = f"files in {copy} still belong to user {its}: No space left on device"
    does_it = f"chown -R --from={its} {owner} {copy}; chown -R --from=:{its} :{owner} {copy}"

    def refused(*_words: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        pytest.raises(Unreadable if failed else CleanupIncomplete) as told,
        Account((its, its)).lent(Relocation(copy, "data", Path("/srv/data")), ServerTrace(child=True)),
    ):
        monkeypatch.setattr(os, "chown", refused)
        if failed:
            raise Unreadable("the server ended")
    if failed:
        assert told.value.__notes__ == [f"{left}; {does_it}"]
    else:
        assert (str(told.value), told.value.hint) == (left, does_it)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_cannot_be_ended_keeps_nobody_from_hearing_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_words: object, **_named: object) -> None:
        raise CommandError("pkill did not end within 30 s")

    (tmp_path / "data").mkdir()
    os.chown(tmp_path / "data", 61002, 61002)
    monkeypatch.setattr("backupd.host.process.run", refused)
    relocation = Relocation(tmp_path, "data", Path("/srv/data"))
    trace = ServerTrace(child=True)
    with pytest.raises(Unreadable) as told, Account((61001, 61001), alone=True).lent(relocation, trace):
        raise Unreadable("the server ended")
    assert "still belong to user 61001: pkill did not end within 30 s; chown -R" in told.value.__notes__[0]
    assert trace.server, "files that were not given back are not what they were, though no server was there"


@pytest.mark.parametrize("error", [NeverStarted("it was not executed"), UsageError("it was not confined")])
@pytest.mark.parametrize("answered", [False, True])
def test_a_server_that_has_answered_was_there_whatever_its_end_looks_like(error: Exception, answered: bool) -> None:
    """A loader without memory ends its program with 127 as well, and a server may choose how it ends."""
    trace = ServerTrace()
    child = Popen(["sh", "-c", f"exit {NOT_CONFINED}"])
    with pytest.raises(type(error)), trace.left_by(child):
        child.wait()
        trace.answered = answered
        raise error
    assert (trace.child, trace.server) == (True, answered)


def test_a_folder_that_no_descriptor_was_free_to_list_is_named_by_no_number() -> None:
    """`os.fwalk` knows a folder by its descriptor, and so does its error."""
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), 4)
    error.add_note("files still belong to user 61001")
    with pytest.raises(Undecided, match="on the restored files: Too many open files") as told, prepared():
        raise error
    assert told.value.__notes__ == ["files still belong to user 61001"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_is_given_back_though_the_server_has_put_a_link_in_its_place(tmp_path: Path) -> None:
    copy, outside, its, owner = tmp_path / "copy", tmp_path / "outside", 61001, 61002
    (outside / "inner").mkdir(parents=True)
    (copy / "outer" / "inner" / "data").mkdir(parents=True)
    os.chown(copy / "outer" / "inner", owner, owner)
    for folder in (copy, copy / "outer", copy / "outer" / "inner"):
        folder.chmod(0o700)
    with Account((its, its)).lent(Relocation(copy, "outer/inner/data", Path("/srv/data")), ServerTrace(child=True)):
        assert (copy / "outer" / "inner").stat().st_uid == its
        (copy / "outer").rename(copy / "away")
        (copy / "outer").symlink_to(outside)
    assert (outside / "inner").stat().st_uid == 0
    assert (copy / "away" / "inner").stat().st_uid == owner


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_that_was_lent_is_as_closed_as_before_whatever_the_server_made_of_it(tmp_path: Path) -> None:
    copy, its, owner = tmp_path / "copy", 61001, 61002
    (copy / "mysql").mkdir(parents=True)
    os.chown(copy / "mysql", owner, owner)
    copy.chmod(0o700)
    with Account((its, its)).lent(Relocation(copy, "", Path("/srv/data")), ServerTrace(child=True)):
        assert copy.stat().st_uid == its
        os.chown(copy, its, its)
        copy.chmod(0o777)
    found = copy.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_our_mark_in_the_folder_is_lent_to_no_server_though_all_in_it_is_roots(tmp_path: Path) -> None:
    """Who is killed meanwhile believes no other; and none that the server has put there becomes ours."""
    its, mark, forged = 61001, tmp_path / MARKER, tmp_path / "forged"
    for path in (mark, tmp_path / "ibdata1"):
        path.touch()
    with Account((its, its)).lent(Relocation(tmp_path, "", Path("/srv/data")), ServerTrace(child=True)):
        assert (mark.stat().st_uid, (tmp_path / "ibdata1").stat().st_uid) == (0, its)
        forged.touch()
        os.chown(forged, its, its)
        forged.rename(mark)
    assert (mark.stat().st_uid, (tmp_path / "ibdata1").stat().st_uid) == (its, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_are_lent_where_the_restored_folder_is_named_by_a_link(tmp_path: Path) -> None:
    """As /var/lib/mysql is, once a datadir has moved to a larger disk. A link within it is followed nowhere."""
    copy, its, owner = tmp_path / "copy", 61001, 61002
    (copy / "data").mkdir(parents=True)
    (copy / "data" / "ibdata1").touch()
    (tmp_path / "outside").touch()
    (copy / "data" / "link").symlink_to(tmp_path / "outside")
    for path in (copy / "data", copy / "data" / "ibdata1", tmp_path / "outside"):
        os.chown(path, owner, owner)
    (tmp_path / "linked").symlink_to(copy)
    with Account((its, its)).lent(Relocation(tmp_path / "linked", "data", Path("/srv/data")), ServerTrace(child=True)):
        assert {path.stat().st_uid for path in (copy / "data", copy / "data" / "ibdata1")} == {its}
    assert {path.stat().st_uid for path in (copy / "data", copy / "data" / "ibdata1", tmp_path / "outside")} == {owner}


def test_a_hard_link_to_somebody_elses_file_is_no_log(tmp_path: Path) -> None:
    log, secret = tmp_path / "own" / "log.err", tmp_path / "shadow"
    log.parent.mkdir()
    secret.write_text("root's alone")
    os.chown(log.parent, 65534, 65534)
    log.hardlink_to(secret)
    with pytest.raises(ServerError, match="not the file that should be there"):
        _ = log_of(log.parent).error_log


def test_the_first_error_is_what_a_person_needs() -> None:
    assert first_error("a [Note] x\nb [ERROR] InnoDB: torn\nc [ERROR] Aborting\n") == "b [ERROR] InnoDB: torn"
    assert first_error("one\ntwo\n\n") == "two"
    assert first_error("") == "it wrote nothing"


def test_rocksdb_finds_its_files_and_its_log_where_the_server_had_them() -> None:
    settings = {"rocksdb_datadir": "./#rocksdb", "rocksdb_wal_dir": "/srv/data/wal"}
    found = options(dict(judged(replace(MANIFEST, server=replace(FACTS, settings=settings))).server.settings))
    assert found["--loose-rocksdb-datadir"] == "/restored/mysql/#rocksdb"
    assert found["--loose-rocksdb-wal-dir"] == "/restored/wal"
    assert not any("rocksdb" in option for option in options({}))


def test_words_are_indexed_as_the_server_indexed_them() -> None:
    settings = {"ft_min_word_len": "3", "innodb_ft_min_token_size": "2", "innodb_ft_enable_stopword": "OFF"}
    known = judged(replace(MANIFEST, server=replace(MANIFEST.server, settings=settings))).server.settings
    found = options(dict(known))
    assert found["--loose-ft-min-word-len"] == "3"
    assert found["--loose-innodb-ft-min-token-size"] == "2"
    assert found["--loose-innodb-ft-enable-stopword"] == "OFF"


@pytest.mark.parametrize(
    ("recorded", "given"),
    [
        ("stopwords", "/restored/mysql/stopwords"),
        ("/srv/data/mysql/stopwords", "/restored/mysql/stopwords"),
        ("/etc/mysql/stopwords", "/etc/mysql/stopwords"),
        ("", ""),
        ("(built-in)", None),
        (None, None),
    ],
)
def test_stopwords_are_those_of_the_servers_file(recorded: str | None, given: str | None) -> None:
    settings = {} if recorded is None else {"ft_stopword_file": recorded}
    assert options(settings).get("--ft-stopword-file") == given


def test_a_file_of_stopwords_that_is_not_here_is_told(tmp_path: Path) -> None:
    here = tmp_path / "stopwords"
    told = {
        named: stopwords_doubt(replace(FACTS, settings={"ft_stopword_file": named}))
        for named in (str(here), "stopwords", f"{FACTS.datadir}/stopwords", "", "(built-in)")
    }
    assert [named for named, doubt in told.items() if doubt] == [str(here)]
    assert str(here) in told[str(here)]
    here.touch()
    assert stopwords_doubt(replace(FACTS, settings={"ft_stopword_file": str(here)})) == ""
    assert stopwords_doubt(replace(FACTS, settings={})) == ""


def test_the_keyring_of_a_plugin_is_given_to_a_scratch_server_early_and_as_a_copy(tmp_path: Path) -> None:
    live, folder = tmp_path / "keyring", tmp_path / "scratch"
    live.write_text("the keys")
    folder.mkdir()
    facts = replace(MYSQL, settings={"keyring_file_data": str(live)})
    early, data = keyring_options(facts, folder, ServerProgram("mysqld"), ())
    assert early == "--early-plugin-load=keyring_file.so"
    mine = Path(data.removeprefix("--keyring-file-data="))
    assert (mine.parent, mine.read_text(), mine.stat().st_mode & 0o077) == (folder, "the keys", 0)


@pytest.mark.parametrize(
    ("told", "closed"), [("OFF", False), ("ON", True), ("NO_LOCK", True), ("NO_LOCK_NO_ADMIN", True)]
)
def test_a_server_that_takes_no_writes_is_known_by_any_of_its_words(told: str, closed: bool) -> None:
    assert server_facts(cast(Session, Answering({"read_only": told}))).read_only is closed
