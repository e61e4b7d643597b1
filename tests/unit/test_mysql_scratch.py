"""The command line of a scratch server shows it the copy and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.errors import ServerError
from backupd.model import Flavour, ServerFacts
from backupd.mysql.keyring import keyring_options
from backupd.mysql.relocation import Relocation
from backupd.mysql.scratch import first_error
from backupd.mysql.startup import (
    ScratchPlaces,
    matching_program,
    require_keys,
    require_no_live_tablespace,
    require_tablespaces,
    server_argv,
)
from tests.fakes.server import FACTS

DATA = Path(__file__).parents[1] / "data" / "mysql"
PLACES = ScratchPlaces(Path("/run/scratch"))
MOVED = Relocation(Path("/restored"), "mysql", Path("/srv/data/mysql"))


MYSQL = replace(FACTS, flavour=Flavour.MYSQL, version="9.7.4-2", version_number=(9, 7, 4))


def options(settings: dict[str, str], binlog: Path | None = None, *, facts: ServerFacts = FACTS) -> dict[str, str]:
    argv = server_argv("mariadbd", MOVED, replace(facts, settings=settings), PLACES, binlog)
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
    argv = server_argv("mariadbd", MOVED, FACTS, PLACES, None)
    assert argv[:2] == ["mariadbd", "--no-defaults"]
    assert {"--skip-networking", "--skip-slave-start", "--event-scheduler=OFF", "--skip-grant-tables"} <= set(argv)


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
    argv = server_argv("mysqld", Relocation(tmp_path, "mysql", Path("/srv/data/mysql")), facts, PLACES, None)
    assert f"--innodb-directories={tmp_path}/general" in argv


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
    with pytest.raises(ServerError, match=r"opened /srv/else/gout\.ibd, which is not of them"):
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
    key.touch()
    require_keys(facts)


def test_a_password_in_place_of_a_key_file_is_no_file() -> None:
    require_keys(replace(FACTS, settings={"file_key_management_filekey": "secret", "keyring_file_data": ""}))


def keyring_facts(component: str, file: Path) -> ServerFacts:
    settings = {"keyring_component": component, "keyring_file_data": str(file), "plugin_dir": "/usr/lib/mysql/plugin/"}
    return replace(MYSQL, settings={**settings, "plugin_libraries": "ha_mock.so"})


def test_a_scratch_server_writes_a_keyring_of_its_own(tmp_path: Path) -> None:
    live, folder = tmp_path / "keyring", tmp_path / "scratch"
    live.write_text("the keys")
    folder.mkdir()
    (option,) = keyring_options(keyring_facts("component_keyring_file", live), folder)
    plugins = Path(option.removeprefix("--plugin-dir="))
    mine = Path(json.loads((plugins / "component_keyring_file.cnf").read_text())["path"])
    assert mine.is_relative_to(folder)
    assert mine.read_text() == "the keys"
    assert mine.stat().st_mode & 0o077 == 0
    for library in ("component_keyring_file.so", "ha_mock.so"):
        assert (plugins / library).readlink() == Path("/usr/lib/mysql/plugin") / library


def test_a_server_without_a_keyring_component_needs_none(tmp_path: Path) -> None:
    assert keyring_options(MYSQL, tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_keyring_that_only_one_server_can_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="kept by component_keyring_oci"):
        keyring_options(keyring_facts("component_keyring_oci", tmp_path / "none"), tmp_path)


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
    argv = server_argv("m", MOVED, replace(FACTS, settings={"plugin_libraries": "a.so,b.so"}), PLACES, None)
    assert [option for option in argv if "plugin" in option] == ["--plugin-load-add=a.so", "--plugin-load-add=b.so"]


def test_a_flavour_that_no_program_here_serves_is_refused() -> None:
    with pytest.raises(ServerError, match=r"no mysql 10\.11 server is installed here; found: ") as refused:
        matching_program(replace(FACTS, flavour=Flavour.MYSQL))
    assert "install" in refused.value.hint


def test_the_first_error_is_what_a_person_needs() -> None:
    assert first_error("a [Note] x\nb [ERROR] InnoDB: torn\nc [ERROR] Aborting\n") == "b [ERROR] InnoDB: torn"
    assert first_error("one\ntwo\n\n") == "two"
    assert first_error("") == "it wrote nothing"
