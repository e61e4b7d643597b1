"""Single tables that a server recovers in the folder: until it has ended, the folder is marked, and worth nothing."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from backupd.cli.exported_tables import tell_restored
from backupd.host import process as programs
from backupd.host.sandbox import NOT_CONFINED
from backupd.host.sandbox_program import REFUSAL
from backupd.host.signals import cancellable
from backupd.mysql import scratch
from backupd.mysql.scratch_account import Account, account_for
from backupd.mysql.server_programs import ServerProgram
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.tablefiles import Table, tables_in
from backupd.operations.restore import into_folder, tables_into_folder
from backupd.operations.restore.table_export import FOLDER, Exported
from backupd.operations.restore.tables_into_folder import RestoredTables, restore_tables
from backupd.vocabulary.errors import (
    BackupdError,
    HostExhausted,
    KeyUnreadable,
    NeverStarted,
    ServerError,
    Undecided,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.storage import MARKER, Manifest
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
        self, folder: Path, manifest: Manifest, tables: Sequence[Table], *, trace: ServerTrace, **_more: Any
    ) -> tuple[Exported, ...]:
        trace.child = trace.server = True
        (folder / "shop" / "small.ibd").write_bytes(b"half")
        (folder / "undo002").write_bytes(b"a server's own")
        (folder / FOLDER).mkdir()
        shutil.copytree(folder, self._killed)
        if self._ends_with is not None:
            (folder / FOLDER).rmdir()
            raise self._ends_with
        (folder / "shop" / "small.ibd").write_bytes(SMALL)
        return tuple(Exported(table, (), folder) for table in tables)


def raising(error: Exception) -> Callable[..., NoReturn]:
    def refused(*_asked: object, **_more: object) -> NoReturn:
        raise error

    return refused


def restored(vault: Path, to: Path) -> RestoredTables:
    return restore_tables([source(Failing(vault))], to=to, tables=TABLES)


def test_what_was_killed_while_a_server_worked_in_it_is_marked_and_restored_anew(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_into_folder, "export", Recovering(tmp_path / "killed"))
    restored(vault, to)
    assert not (to / MARKER).exists()
    assert (tmp_path / "killed" / MARKER).exists(), "whoever finds the folder takes it for whole"
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
    monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram("/bin/false"))
    monkeypatch.setattr(scratch, step, raising(error))
    assert restored(vault, to).not_recovered is error
    assert files_in(to) == SMALL_ALONE


def test_where_the_server_program_cannot_even_be_executed_the_files_stay(
    vault: Path, to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram(str(tmp_path / "none")))
    with pytest.raises(NeverStarted, match="the server program was never started"):
        raise restored(vault, to).not_recovered or AssertionError
    assert files_in(to) == SMALL_ALONE


def test_what_is_killed_while_the_files_are_lent_but_no_server_is_there_is_restored_by_the_same_command(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_asked: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(scratch, "matching_program", lambda *_asked: ServerProgram("/bin/false"))
            monkeypatch.setattr(scratch.ScratchServer, "_view", killed)
            restored(vault, to)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    monkeypatch.setattr(scratch, "matching_program", raising(ServerError("no matching server is here")))
    assert restored(vault, to).not_recovered is not None
    assert files_in(to) == SMALL_ALONE


class NotConfined:
    """A kernel that offers nothing, as the sandbox says it."""

    def __init__(self, **_asked: object) -> None:
        """Whatever the bounds should be."""

    def prefix(self) -> list[str]:
        return ["sh", "-c", f"echo '{REFUSAL}no Landlock here' >&2; exit {NOT_CONFINED}"]


def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has none left from when the server's account is chosen on."""

    def refused(*_asked: object, **_more: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def choose(owner: int, *, with_keys: bool) -> Account:
        monkeypatch.setattr(programs, "_Child", refused)
        return account_for(owner, with_keys=with_keys)

    monkeypatch.setattr(scratch, "account_for", choose)


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp."""
    monkeypatch.setattr(scratch, "private_folder", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))


def no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "Bounds", NotConfined)


@pytest.mark.parametrize(
    ("lacking", "ends_with", "said"),
    [
        (no_process, HostExhausted, "cannot be started: resource temporarily unavailable"),
        (no_room, Undecided, "no server could be started on the restored files: No space left"),
        (no_bounds, UsageError, "cannot be confined on this host: no Landlock here"),
    ],
)
def test_what_keeps_the_server_from_its_start_and_may_pass_costs_nothing_that_was_fetched(
    vault: Path,
    to: Path,
    lacking: Callable[[pytest.MonkeyPatch], None],
    ends_with: type[BackupdError],
    said: str,
) -> None:
    with pytest.MonkeyPatch.context() as now:
        now.setattr(scratch, "matching_program", lambda *_asked: ServerProgram("/bin/false"))
        lacking(now)
        with pytest.raises(ends_with, match=said) as ended, cancellable():
            restored(vault, to)
    (kept,) = ended.value.__notes__
    assert kept.startswith(f"{to} keeps what was restored so far: run the same command to continue")
    assert not (to / FOLDER).exists()
    again = Failing(vault)
    with pytest.MonkeyPatch.context() as now:
        now.setattr(scratch, "matching_program", raising(ServerError("no matching server is here")))
        restore_tables([source(again)], to=to, tables=TABLES)
    assert not [name for name in again.read if name.startswith("data-")]
    assert files_in(to) == SMALL_ALONE


def test_what_helps_where_no_server_here_can_recover_them_is_told(
    vault: Path, to: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = ServerError("no matching server is here", hint="install mariadb-server")
    why.add_note("files in it still belong to user 61001; chown -R")
    with pytest.MonkeyPatch.context() as now:
        now.setattr(scratch, "matching_program", raising(why))
        told = tell_restored(to, restored(vault, to), TABLES)
    assert told == ("shop.small could not be recovered here: no matching server is here",)
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == ["note: files in it still belong to user 61001; chown -R", "hint: install mariadb-server"]


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
