"""Single tables that a server recovers in the folder: until it has ended, the folder is marked, and worth nothing."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backupd.host.signals import cancellable
from backupd.mysql import scratch
from backupd.mysql.server_programs import ServerProgram
from backupd.mysql.tablefiles import Table, tables_in
from backupd.operations.restore import into_folder, tables_into_folder
from backupd.operations.restore.table_export import FOLDER, Exported
from backupd.operations.restore.tables_into_folder import RestoredTables, restore_tables
from backupd.operations.restore.unfinished import INCOMPLETE
from backupd.vocabulary.errors import (
    KeyUnreadable,
    ServerError,
    Undecided,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.storage import Manifest
from tests.story.stored import files_in
from tests.story.test_restore_resumed import Failing, source
from tests.story.test_restore_tables import BINLOGS, EVERYBODY_S, SMALL, to, vault

__all__ = ["to", "vault"]

SMALL_ALONE = {**EVERYBODY_S, **BINLOGS, "shop/small.ibd": SMALL}
TABLES = tables_in("shop.small")


class Usage(NamedTuple):
    free: int


class Recovering:
    """Stands for the server and the export: it changes the files, and keeps how the folder looked meanwhile."""

    def __init__(self, killed: Path, *, ends_with: Exception | None = None) -> None:
        self._killed = killed
        self._ends_with = ends_with

    def __call__(
        self, folder: Path, manifest: Manifest, tables: Sequence[Table], *, starting: Callable[[], None], **_more: Any
    ) -> tuple[Exported, ...]:
        starting()
        (folder / "shop" / "small.ibd").write_bytes(b"half")
        (folder / "undo002").write_bytes(b"a server's own")
        (folder / FOLDER).mkdir()
        shutil.copytree(folder, self._killed)
        if self._ends_with is not None:
            (folder / FOLDER).rmdir()
            raise self._ends_with
        (folder / "shop" / "small.ibd").write_bytes(SMALL)
        return tuple(Exported(table, (), folder) for table in tables)


def restored(vault: Path, to: Path) -> RestoredTables:
    return restore_tables([source(Failing(vault))], to=to, tables=TABLES)


def test_what_was_killed_while_a_server_worked_in_it_is_marked_and_restored_anew(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_into_folder, "export", Recovering(tmp_path / "killed"))
    restored(vault, to)
    assert not (to / INCOMPLETE).exists()
    assert (tmp_path / "killed" / INCOMPLETE).exists(), "whoever finds the folder takes it for whole"
    monkeypatch.setattr(tables_into_folder, "export", lambda *_asked, **_more: ())
    restored(vault, tmp_path / "killed")
    assert files_in(tmp_path / "killed") == SMALL_ALONE


def test_a_damaged_table_leaves_no_folder(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = VerificationError("shop.small is damaged", hint="")
    monkeypatch.setattr(tables_into_folder, "export", Recovering(tmp_path / "killed", ends_with=damaged))
    with pytest.raises(VerificationError, match="is damaged"), cancellable():
        restored(vault, to)
    assert not to.exists()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("matching_program", ServerError("no matching server is here")),
        ("require_self_contained", ServerError("the copy leads out of itself")),
        ("account_for", ServerError("every user id is taken")),
        ("require_keys", KeyUnreadable("the key file cannot be read as the owner of the restored files")),
    ],
)
def test_where_no_server_here_can_recover_them_the_files_stay(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: ServerError
) -> None:
    def refused(*_asked: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram("/bin/false"))
    monkeypatch.setattr(scratch, step, refused)
    assert restored(vault, to).not_recovered == error.message
    assert files_in(to) == SMALL_ALONE


def test_where_the_server_program_cannot_even_be_executed_the_files_stay(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram(str(tmp_path / "none")))
    assert restored(vault, to).not_recovered.startswith("the server program was never started")
    assert files_in(to) == SMALL_ALONE


def test_once_a_server_program_ran_nothing_is_handed_over_that_it_has_not_recovered(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram("/bin/false"))
    with pytest.raises(ServerError, match="did not start on the restored files"):
        restored(vault, to)
    assert not to.exists()


@pytest.mark.parametrize(
    "error",
    [
        Undecided("the server on the restored files was killed (out of memory?)"),
        ServerError("the server did not start on the restored files: corrupt"),
    ],
    ids=["killed", "failed"],
)
def test_files_that_a_server_has_worked_on_and_not_recovered_are_never_handed_over(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ServerError
) -> None:
    monkeypatch.setattr(tables_into_folder, "export", Recovering(tmp_path / "killed", ends_with=error))
    with pytest.raises(ServerError) as raised:
        restored(vault, to)
    assert raised.value is error
    assert not to.exists()
    monkeypatch.setattr(tables_into_folder, "export", lambda *_asked, **_more: ())
    restored(vault, to)
    assert files_in(to) == SMALL_ALONE


def test_there_must_be_room_for_the_tables_twice(vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_into_folder, "export", lambda *_asked, **_more: ())
    once = 0

    def least(_path: Path) -> Usage:
        return Usage(once)

    monkeypatch.setattr(shutil, "disk_usage", least)
    with pytest.raises(UsageError, match="the backup needs"):
        restored(vault, to)
    low, high = 0, 10 << 20
    while low < high:  # the least with which the files alone are restored
        once = (low + high) // 2
        try:
            into_folder.restore([source(Failing(vault))], to=to, tables=TABLES)
        except UsageError:
            low = once + 1
        else:
            high = once
            shutil.rmtree(to)
    once = low + len(SMALL) - 1
    with pytest.raises(UsageError, match="the backup needs"):
        restored(vault, to)
    once += 1
    restored(vault, to)
