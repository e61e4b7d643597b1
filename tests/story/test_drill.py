"""A drill that fails leaves no staging folder behind; what it finds before a server starts is an answer too."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from backupd.archive.frames import Reading
from backupd.archive.unpack import Unpacking
from backupd.config import DrillCheckConfig
from backupd.host.filesystem import share_that_stays_free
from backupd.host.signals import cancellable
from backupd.mysql.refusals import StatementError
from backupd.mysql.scratch import ScratchServer
from backupd.operations.restore.drill import drill
from backupd.operations.restore.into_folder import unpacked_bytes
from backupd.targets import BackupSource
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    CleanupIncomplete,
    HostExhausted,
    KeyUnreadable,
    ServerError,
    TargetError,
    Undecided,
    UsageError,
)
from backupd.vocabulary.records import Check
from tests.fakes.target import BELIEVED
from tests.story.stored import damaged
from tests.story.world import World


@pytest.fixture
def backed_up(world: World) -> World:
    """The run `r1` has a backup of this world: of files that no server would start on."""
    world.back_up()
    return world


def copies(world: World) -> list[BackupSource]:
    return [BackupSource(world.target, "nightly", "r1", BELIEVED)]


def test_damage_on_the_target_is_a_failed_drill(backed_up: World) -> None:
    stored = backed_up.backups / "r1" / "data-1.tar.zst"
    stored.write_bytes(damaged(stored.read_bytes()))
    result = drill(copies(backed_up), backed_up.tools)
    assert not result.ok
    assert [(check.name, check.ok) for check in result.checks] == [("restore", False)]
    assert "data-1.tar.zst" in result.checks[0].found
    assert backed_up.left() == []


def test_a_drill_leaves_the_file_system_of_the_staging_folder_the_share_that_others_need(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the catalogue is beside it, and no backup is taken without room for that."""
    needed, usage = unpacked_bytes(backed_up.target.manifest("nightly", "r1")), shutil.disk_usage("/")
    stays = share_that_stays_free(usage.total)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=needed + stays - 1))
    with pytest.raises(UsageError, match="must stay free"):
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=needed + stays))
    assert drill(copies(backed_up), backed_up.tools).checks[0].ok


def test_an_unreadable_target_ends_the_drill_and_leaves_no_staging_folder(backed_up: World) -> None:
    (backed_up.backups / "r1" / "binlog.tar.zst").unlink()
    with pytest.raises(TargetError):
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []


def test_a_cancelled_drill_leaves_no_staging_folder(backed_up: World) -> None:
    there: list[bool] = []

    def stop() -> None:
        there.append(any(backed_up.places.staging.iterdir()))
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)

    backed_up.at["target.reading"] = stop
    with pytest.raises(Cancelled), cancellable():
        drill(copies(backed_up), backed_up.tools)
    assert set(there) == {True}
    assert backed_up.left() == []


def test_a_stop_signal_while_the_server_is_asked_is_no_failed_check(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopped(self: object) -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    monkeypatch.setattr("backupd.operations.restore.drill.ScratchServer.running", stopped)
    with pytest.raises(Cancelled), cancellable():
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []


@pytest.mark.parametrize(
    "limit",
    [
        Undecided("the server on the restored files did not answer within 1800 s"),
        HostExhausted("no program can be started: too many open files"),
    ],
    ids=["time", "descriptors"],
)
def test_a_limit_of_the_drill_s_own_is_no_answer(
    backed_up: World, monkeypatch: pytest.MonkeyPatch, limit: BackupdError
) -> None:
    @contextmanager
    def at_its_end(self: object) -> Iterator[None]:
        raise limit
        yield

    monkeypatch.setattr("backupd.operations.restore.drill.ScratchServer.running", at_its_end)
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed) == (False, False)
    assert result.undecided == limit.message
    assert [(check.name, check.ok) for check in result.checks] == [("restore", True)]
    assert backed_up.left() == []


def test_a_host_without_memory_to_unpack_is_no_answer(backed_up: World) -> None:
    def exhausted() -> None:
        raise HostExhausted("there is not enough memory to expand data-1.tar.zst")

    backed_up.at["target.reading"] = exhausted
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed, result.checks) == (False, False, ())
    assert "not enough memory" in result.undecided
    assert backed_up.left() == []


def test_what_a_drill_could_not_clean_up_is_no_answer_of_the_backup(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def kept(self: object) -> Iterator[None]:
        raise CleanupIncomplete("files in /staging still belong to user 61001: Input/output error")
        yield

    monkeypatch.setattr("backupd.operations.restore.drill.ScratchServer.running", kept)
    with pytest.raises(CleanupIncomplete, match="still belong to user 61001"):
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []


def test_a_staging_folder_that_cannot_hold_what_is_kept_beside_the_bytes_is_no_answer(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(backed_up, monkeypatch, lambda folder: (folder / "ibdata1").chmod(0o600))
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed, result.checks) == (False, False, ())
    assert "the staging folder cannot store the backup as recorded" in result.undecided
    assert "ibdata1: mode 0600 instead of" in result.undecided
    assert backed_up.left() == []


def test_a_restored_file_that_holds_something_else_fails_the_drill_in_its_own_words(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(backed_up, monkeypatch, lambda folder: (folder / "ibdata1").write_bytes(b""))
    check, *others = drill(copies(backed_up), backed_up.tools).checks
    assert (check.name, check.ok, check.expected, others) == ("restore", False, "every file as recorded", [])
    assert "ibdata1: 0 bytes instead of" in check.found


def changed(world: World, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]) -> None:
    """So is what was unpacked into the staging folder, whether or not the object was the right one."""
    run = Unpacking.run

    def told(unpacking: Unpacking, reading: Reading) -> None:
        run(unpacking, reading)
        with suppress(FileNotFoundError):
            change(world.places.drill_folder("r1"))

    monkeypatch.setattr(Unpacking, "run", told)


def test_what_an_earlier_drill_left_is_not_in_the_way(backed_up: World) -> None:
    left = backed_up.places.staging / "drill-r1"
    left.mkdir()
    (left / "half").write_text("of a drill that was killed")
    stored = backed_up.backups / "r1" / "data-1.tar.zst"
    stored.write_bytes(b"damaged")
    assert not drill(copies(backed_up), backed_up.tools).ok
    assert backed_up.left() == []


def test_two_drills_of_one_run_do_not_share_a_folder(backed_up: World) -> None:
    with backed_up.tools.claims.run("drill-r1"), pytest.raises(Busy):
        drill(copies(backed_up), backed_up.tools)


class Answering:
    """A server on the copy that has an answer to each statement, or an error; and all its sessions."""

    error_log = ""

    def __init__(self, answers: dict[str, list[tuple[str | None, ...]] | StatementError]) -> None:
        self.answers = answers
        self.said: list[str] = []
        self.connection_id = 1
        self.ends: Undecided | None = None  # what keeps it from its end

    def another_session(self, **how: object) -> "Answering":
        return self

    def within_limits(self) -> AbstractContextManager[None]:
        return nullcontext()

    def execute(self, statement: str, *values: object) -> None:
        self.said.append(statement)

    def last(self, statement: str, *, most: int) -> list[tuple[str | None, ...]]:
        self.said.append(statement)
        answer = self.answers[statement]
        if isinstance(answer, StatementError):
            raise answer
        return answer[:most]

    def shut_down(self) -> Check:
        self.said.append("SHUTDOWN")
        if self.ends is not None:
            raise self.ends
        return Check("clean shutdown", ok=True, expected="status 0", found="status 0")

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """What starts on the restored files, all of which every drill's own checks find sound."""
    server = Answering({})

    @contextmanager
    def running(self: object) -> Iterator[Answering]:
        yield server

    monkeypatch.setattr("backupd.operations.restore.drill.ScratchServer.running", running)
    sound = (Check("tables", ok=True, expected="3", found="3"),)
    monkeypatch.setattr("backupd.operations.restore.drill.prove", lambda server, manifest, **found: sound)
    return server


@pytest.mark.parametrize("sound", [True, False])
def test_a_limit_that_the_server_ran_into_as_it_ended_hides_nothing_that_was_found_wrong(
    backed_up: World, answering: Answering, monkeypatch: pytest.MonkeyPatch, sound: bool
) -> None:
    limit = Undecided("the server on the restored files was killed (out of memory?)")
    answering.ends = limit
    asked = (Check("tables", ok=sound, expected="3 tables OK", found="3 tables OK" if sound else "a.t: Corrupt"),)
    monkeypatch.setattr("backupd.operations.restore.drill.prove", lambda server, manifest, **found: asked)
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed, result.undecided) == (False, not sound, limit.message if sound else "")
    assert [check.name for check in result.checks if not check.ok] == ([] if sound else ["tables"])
    assert answering.said[-1] == "SHUTDOWN"


@pytest.mark.parametrize("sound", [True, False])
def test_a_limit_that_a_later_check_ran_into_hides_nothing_that_was_found_wrong(
    backed_up: World, answering: Answering, monkeypatch: pytest.MonkeyPatch, sound: bool
) -> None:
    limit = Undecided("the server ran out of resources while it checked shop.b: Out of memory")

    def asked(server: object, manifest: object, **found: object) -> Iterator[Check]:
        yield Check("gtid", ok=sound, expected="0-1-7", found="0-1-7" if sound else "0-1-6")
        raise limit

    monkeypatch.setattr("backupd.operations.restore.drill.prove", asked)
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed, result.undecided) == (False, not sound, limit.message if sound else "")
    assert [check.name for check in result.checks if not check.ok] == ([] if sound else ["gtid"])


def test_a_limit_that_one_of_the_job_s_own_checks_ran_into_hides_nothing_that_another_one_found(
    backed_up: World, answering: Answering
) -> None:
    full = StatementError("refused", number=1021, said="Disk full (/tmp/backupd-1/#sql1)")
    answering.answers = {"few": [("3",)], "large": full}
    own = [DrillCheckConfig(name=name, sql=name, at_least=4) for name in ("few", "large")]
    result = drill(copies(backed_up), backed_up.tools, checks=own)
    assert (result.failed, result.undecided) == (True, "")
    assert [check.name for check in result.checks if not check.ok] == ["checks.few"]


def test_a_statement_that_holds_the_words_for_a_limit_is_no_limit_where_it_is_quoted(
    backed_up: World, answering: Answering
) -> None:
    sql = """SELECT COUNT(*) FORM alerts WHERE kind = "disk full\""""
    said = f"You have an error in your SQL syntax; check the manual near '{sql[16:]}' at line 1"
    answering.answers = {sql: StatementError("refused", number=1064, said=said)}
    result = drill(copies(backed_up), backed_up.tools, checks=[DrillCheckConfig(name="own", sql=sql, equals="0")])
    assert (result.failed, result.undecided) == (True, "")
    assert result.checks[-2].found == f"an error: {said}"


def test_each_of_the_job_s_own_checks_is_asked_whatever_came_of_the_others(
    backed_up: World, answering: Answering
) -> None:
    taken = backed_up.target.manifest("nightly", "r1").created_at
    answering.answers = {
        "broken": StatementError("refused", number=1064, said="You have an error"),
        "few": [("3",)],
        "late": [(f"{taken - timedelta(hours=2):%Y-%m-%d %H:%M:%S}",)],
        "recent": [(f"{taken:%Y-%m-%d %H:%M:%S}",)],
    }
    own = [
        DrillCheckConfig(name="broken", sql="broken", equals="7"),
        DrillCheckConfig(name="few", sql="few", at_least=4),
        DrillCheckConfig(name="late", sql="late", newer_than_seconds=3600.0),
        DrillCheckConfig(name="recent", sql="recent", newer_than_seconds=3600.0),
    ]
    result = drill(copies(backed_up), backed_up.tools, checks=own)
    assert (result.ok, result.failed) == (False, True)
    assert [(check.name, check.ok) for check in result.checks] == [
        ("restore", True),
        ("tables", True),
        ("checks.broken", False),
        ("checks.few", False),
        ("checks.late", False),
        ("checks.recent", True),
        ("clean shutdown", True),
    ]
    assert answering.said.count("SET SESSION TRANSACTION READ ONLY") == 4
    assert answering.said[-1] == "SHUTDOWN"
    assert backed_up.left() == []


@pytest.mark.parametrize(
    "error",
    [
        StatementError("refused", number=1021, said="Disk full (/tmp/backupd-1/#sql1)"),
        StatementError("refused", number=3, said='Error writing file (Errcode: 28 "No space left on device")'),
    ],
)
def test_a_server_without_room_for_one_of_them_is_no_answer(
    backed_up: World, answering: Answering, error: StatementError
) -> None:
    answering.answers = {"large": error}
    own = [DrillCheckConfig(name="large", sql="large", equals="7")]
    result = drill(copies(backed_up), backed_up.tools, checks=own)
    assert (result.ok, result.failed) == (False, False)
    assert "ran out of resources for checks.large: " in result.undecided
    assert backed_up.left() == []


def test_a_server_that_is_gone_fails_the_drill_rather_than_the_check(backed_up: World, answering: Answering) -> None:
    answering.answers = {"last": StatementError("the session with the server ended during: last")}
    own = [DrillCheckConfig(name="last", sql="last", equals="7")]
    result = drill(copies(backed_up), backed_up.tools, checks=own)
    assert [(check.name, check.ok) for check in result.checks] == [("restore", True), ("server", False)]
    assert result.checks[1].found == "the session with the server ended during: last"


def test_a_host_without_a_server_of_the_series_says_nothing_of_the_backup(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.server_programs._programs", lambda _flavour, _folders: iter(()))
    with pytest.raises(ServerError, match="server is installed here; found: none"):
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []


def test_a_key_that_may_not_be_read_here_says_nothing_of_the_backup(
    backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the restored files is known by then only: by their number, which is another account's here."""

    def unreadable(_server: ScratchServer) -> NoReturn:
        raise KeyUnreadable("the key file /etc/mysql/keys cannot be read as the owner of the restored files")

    monkeypatch.setattr(ScratchServer, "running", unreadable)
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.failed, [check.ok for check in result.checks]) == (False, [True])
    assert "cannot be read as the owner" in result.undecided
