"""The command line of a scratch server shows it the copy and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from backupd.errors import ServerError
from backupd.model import Flavour
from backupd.mysql.relocation import Relocation
from backupd.mysql.scratch import first_error
from backupd.mysql.startup import ScratchPlaces, matching_program, server_argv
from tests.fakes.server import FACTS

PLACES = ScratchPlaces(Path("/run/scratch"))
MOVED = Relocation(Path("/restored"), "mysql", Path("/srv/data/mysql"))


def options(settings: dict[str, str], binlog: Path | None = None) -> dict[str, str]:
    argv = server_argv("mariadbd", MOVED, replace(FACTS, settings=settings), PLACES, binlog)
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
    with pytest.raises(ServerError, match=r"no mysql 10\.11 server is installed here; found: none") as refused:
        matching_program(replace(FACTS, flavour=Flavour.MYSQL))
    assert "install" in refused.value.hint


def test_the_first_error_is_what_a_person_needs() -> None:
    assert first_error("a [Note] x\nb [ERROR] InnoDB: torn\nc [ERROR] Aborting\n") == "b [ERROR] InnoDB: torn"
    assert first_error("one\ntwo\n\n") == "two"
    assert first_error("") == "it wrote nothing"
