"""A table from yesterday: `restore --tables … --into HOST --as NAME`, typed, with real servers on both sides.

What is fetched from the target stands in for the files of a real image; all else is as a person has it.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backupd.mysql.loading_schema import remove_left_loading
from backupd.operations.restore import into_server, table_loading, tables_into_folder
from backupd.operations.restore.unfinished import Filling, resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.vocabulary.errors import Cancelled, ExitStatus
from backupd.vocabulary.records import HoldingKind
from backupd.vocabulary.storage import Manifest
from tests.cli.terminal import Terminal
from tests.contract.mariadb import MariadbServer, mariadb, mysql_server
from tests.contract.test_loading import TOLD, before
from tests.contract.test_scratch import Image
from tests.story.world import World

pytestmark = pytest.mark.thorough

__all__ = ["before", "mysql_server"]

LOAD = ("restore", "latest-good", "--tables", "live.child", "--into", "running", "--as", "restored_1121")


@pytest.fixture
def typing(
    terminal: Terminal, world: World, mysql_server: MariadbServer, before: Image, monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """`backupd` on a host whose run `r1` has a backup of the running server."""
    world.back_up("r1")

    def fetched(_sources: Any, *, to: Path, **_how: object) -> Any:
        shutil.copytree(before.folder, to)
        return before.manifest

    @contextmanager
    def filled(_sources: Any, to: Path, *_given: Any, **_how: Any) -> Iterator[tuple[Manifest, Filling]]:
        with resumable(to, Unfinished("nightly", "r1", "its content")) as folder:
            shutil.copytree(before.folder, to, dirs_exist_ok=True)
            yield before.manifest, folder

    monkeypatch.setattr(into_server, "restore", fetched)
    monkeypatch.setattr(tables_into_folder, "filled", filled)
    with terminal.configuration.open("a") as file:
        file.write(f'\n[hosts.running]\nsocket = "{mysql_server.socket}"\nuser = "root"\n')
    return terminal


def test_a_table_from_yesterday_is_back_in_the_running_server(
    typing: Terminal, world: World, mysql_server: MariadbServer
) -> None:
    with mysql_server.session() as root:
        root.execute("SET SESSION foreign_key_checks = 0")
        root.execute("DELETE FROM live.child WHERE a BETWEEN 11 AND 30")
        ended = typing.run(*LOAD)
        assert ended.status == ExitStatus.OK, ended.stderr
        for line in (
            "(the files of the tables) into running as schema restored_1121, by rows: they go through its binary log,",
            "live.child is loaded without its foreign keys: CONSTRAINT `up` FOREIGN KEY (`p`) REFERENCES",
            "live.child is loaded without its triggers: told",
        ):
            assert line in ended.stderr
        told = ended.stdout.splitlines()
        assert told[0].startswith("loaded live.child of run r1 into running as restored_1121.child: 5,000 rows (")
        assert told[0].endswith(" as in the backup")
        assert told[1] == (
            "  compared with the live table by its key (a, b): 20 rows only in the backup, 0 only in the live table,"
            " 0 in both and changed"
        )
        statements = [line for line in told if not line.startswith(("--", " ", "loaded"))]
        assert [line.split()[0] for line in statements] == ["SET", "INSERT", "RENAME", "ALTER", "DROP", "ALTER"]
        assert "-- CREATE DEFINER=`root`@`localhost` TRIGGER live.told BEFORE INSERT ON" in ended.stdout
        assert "\n-- \tSET NEW.b = 'trigger';\n" in ended.stdout
        root.execute("DROP TRIGGER live.told")
        root.execute(statements[1])
        assert root.value("SELECT COUNT(*) FROM live.child") == "5000"
        again = typing.run(*LOAD)
        assert again.status == ExitStatus.REFUSED
        assert "schema restored_1121 exists on running" in again.stderr
        root.execute("DROP DATABASE restored_1121")
        root.execute(TOLD)
    assert list(world.places.staging.glob("*")) == []
    with world.catalogue() as catalogue:
        refused, _, good, began = catalogue.audit_entries(limit=4)
        assert list(catalogue.holdings()) == []
    assert (began.event, began.detail["tables"]) == ("restore-started", ["live.child"])
    assert (good.detail["to"], good.detail["outcome"]) == ("server running, schema restored_1121", "success")
    assert refused.detail["outcome"] == "refused"


def test_a_dry_run_ends_after_having_told_and_leaves_nothing(
    typing: Terminal, world: World, mysql_server: MariadbServer
) -> None:
    with mysql_server.session() as root:
        where, schemas = root.one("SHOW MASTER STATUS"), root.query("SHOW DATABASES")
        ended = typing.run(*LOAD, "--dry-run")
        assert ended.status == ExitStatus.OK, ended.stderr
        assert "into running as schema restored_1121, by rows: they go through its binary log" in ended.stderr
        assert "live.child is loaded without its triggers: told" in ended.stderr
        assert ended.stdout == "dry run: nothing of run r1 was loaded into running, and nothing was left behind\n"
        [table] = typing.run(*LOAD, "--dry-run", "--json").document["tables"]
        assert (table["table"], table["by"], table["triggers_left_out"]) == ("live.child", "rows", ["told"])
        assert table["bytes"] > 65536
        assert table["reason"].startswith("the server's binary log is on")
        assert root.one("SHOW MASTER STATUS") == where
        assert root.query("SHOW DATABASES") == schemas
        root.execute("CREATE DATABASE restored_1121")
        try:
            assert typing.run(*LOAD, "--dry-run").status == ExitStatus.REFUSED
        finally:
            root.execute("DROP DATABASE restored_1121")
    assert list(world.places.staging.glob("*")) == []
    with world.catalogue() as catalogue:
        assert list(catalogue.holdings()) == []
        assert not [entry for entry in catalogue.audit_entries(limit=9) if entry.event.startswith("restore")]


def test_columns_that_the_live_table_has_otherwise_by_now_are_named_and_left_out(
    typing: Terminal, mysql_server: MariadbServer
) -> None:
    with mysql_server.session() as root:
        root.execute("ALTER TABLE live.parted ADD COLUMN more INT, MODIFY n BIGINT")
        try:
            ended = typing.run(*LOAD[:3], "live.parted", *LOAD[4:])
        finally:
            root.execute("ALTER TABLE live.parted DROP COLUMN more, MODIFY n INT")
            root.execute("DROP DATABASE restored_1121")
    assert ended.status == ExitStatus.OK, ended.stderr
    assert "  not compared with the live table: they have no primary key in common" in ended.stdout
    assert "  columns that are not alike in both, and were not compared: n, more" in ended.stdout
    assert "INSERT INTO `live`.`parted` (`t`) SELECT `t` FROM `restored_1121`.`parted`;" in ended.stdout


def test_another_server_receives_it_too_and_a_filter_of_its_binary_log_is_an_attention(typing: Terminal) -> None:
    with mariadb("--binlog-ignore-db=elsewhere") as other:
        with typing.configuration.open("a") as file:
            file.write(f'\n[hosts.other]\nsocket = "{other.socket}"\nuser = "root"\n')
        ended = typing.run(*LOAD[:-3], "other", *LOAD[-2:])
        assert ended.status == ExitStatus.ATTENTION, ended.stderr
        with other.session() as root:
            assert root.value("SELECT COUNT(*) FROM restored_1121.child") == "5000"
    assert (
        "attention: the binary log of other is filtered (binlog_ignore_db = elsewhere): replicas may not receive schema"
        " restored_1121, and a RENAME TABLE out of it would stop them" in ended.stderr
    )
    assert "there is no live live.child, or the account may not read it" in ended.stdout
    assert "RENAME TABLE `restored_1121`.`child` TO `live`.`child`;" in ended.stdout


def test_stopped_in_the_middle_it_leaves_nothing(
    typing: Terminal, world: World, mysql_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_what: object, **_how: object) -> None:
        raise Cancelled("stopped by SIGTERM", hint="")

    monkeypatch.setattr(table_loading, "load_rows", stop)
    assert typing.run(*LOAD).status == ExitStatus.CANCELLED
    with mysql_server.session() as root:
        assert root.query("SHOW DATABASES LIKE 'backupd%'") == root.query("SHOW DATABASES LIKE 'restored%'") == []
    assert list(world.places.staging.glob("*")) == []
    with world.catalogue() as catalogue:
        assert list(catalogue.holdings()) == []


def test_killed_in_the_middle_its_remains_are_gone_after_recover(
    typing: Terminal, world: World, mysql_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_what: object, **_how: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(table_loading, "load_rows", killed)
            typing.run(*LOAD)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (folder,) = world.places.staging.glob("*")
    world.also_released = {
        HoldingKind.LOADING_SCHEMA: lambda holding: remove_left_loading(mysql_server.connect(), holding),
    }
    with mysql_server.session() as root:
        ((left,),) = [tuple(row.values()) for row in root.query("SHOW DATABASES LIKE 'backupd%'")]
        recovered = typing.run("recover")
        assert recovered.status == ExitStatus.OK, recovered.stderr
        assert f"loading-schema {left}" in recovered.stdout + recovered.stderr
        assert root.query("SHOW DATABASES LIKE 'backupd%'") == []
    assert not folder.exists()


def test_a_server_without_a_binary_log_imports_it_as_a_tablespace(typing: Terminal) -> None:
    with mariadb("--skip-log-bin") as other:
        with typing.configuration.open("a") as file:
            file.write(f'\n[hosts.other]\nsocket = "{other.socket}"\nuser = "root"\n')
        ended = typing.run(*LOAD[:-3], "other", *LOAD[-2:])
        assert ended.status == ExitStatus.OK, ended.stderr
        assert "as schema restored_1121, by tablespace: its binary log is off, so no replica" in ended.stderr
        with other.session() as root:
            assert root.value("SELECT COUNT(*) FROM restored_1121.child") == "5000"
    assert "restored_1121.child: 5,000 rows (" in ended.stdout
    assert "RENAME TABLE `restored_1121`.`child` TO `live`.`child`;" in ended.stdout


def test_what_its_binary_log_lacks_is_said_in_the_statements(typing: Terminal, mysql_server: MariadbServer) -> None:
    ended = typing.run(*LOAD, "--by", "tablespace")
    try:
        assert ended.status == ExitStatus.OK, ended.stderr
        told = ended.stdout.splitlines()
        statements = [line for line in told if not line.startswith(("--", " ", "loaded"))]
        assert [line.split()[0] for line in statements] == ["SET", "SET", "INSERT"]
        assert told[-2:] == [
            "-- replicas lack the new schema: a RENAME TABLE out of it, or a DROP DATABASE, stops them",
            "-- when it is no longer needed: SET SESSION sql_log_bin = 0; DROP DATABASE `restored_1121`;",
        ]
    finally:
        with mysql_server.session() as root:
            root.execute("DROP DATABASE IF EXISTS restored_1121")


def test_a_dry_run_belongs_to_a_server_and_its_document_to_it(typing: Terminal, tmp_path: Path) -> None:
    for given in (("restore", "r1", "--to", str(tmp_path / "x"), "--dry-run"), (*LOAD, "--json")):
        ended = typing.run(*given)
        assert ended.status == ExitStatus.USAGE
        assert "--dry-run belongs to --into, and --json to --dry-run" in ended.stderr


def test_a_way_belongs_to_a_server(typing: Terminal, tmp_path: Path) -> None:
    ended = typing.run("restore", "latest-good", "--tables", "live.child", "--to", str(tmp_path / "x"), "--by", "rows")
    assert ended.status == ExitStatus.USAGE
    assert "--by belongs to --into" in ended.stderr


def test_a_table_whose_files_cannot_be_imported_is_an_attention_that_says_what_can_be_done(
    typing: Terminal, tmp_path: Path
) -> None:
    ended = typing.run("restore", "latest-good", "--tables", "live.parted,live.child", "--to", str(tmp_path / "x"))
    assert ended.status == ExitStatus.ATTENTION, ended.stderr
    assert "attention: MariaDB cannot import a table with partitions: load live.parted into a running" in ended.stderr
    assert "to import live.child: follow" in ended.stdout
    assert "to import live.parted" not in ended.stdout
