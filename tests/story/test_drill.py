"""A drill that fails leaves no staging folder behind; what it finds before a server starts is an answer too."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from backupd.archive.frames import Reading
from backupd.archive.unpack import Unpacking
from backupd.host.signals import cancellable
from backupd.operations.restore.drill import drill
from backupd.targets import BackupSource
from backupd.vocabulary.errors import Busy, Cancelled, TargetError, Undecided
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


def test_a_limit_of_the_drill_s_own_is_no_answer(backed_up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def out_of_time(self: object) -> Iterator[None]:
        raise Undecided("the server on the restored files did not answer within 1800 s")
        yield

    monkeypatch.setattr("backupd.operations.restore.drill.ScratchServer.running", out_of_time)
    result = drill(copies(backed_up), backed_up.tools)
    assert (result.ok, result.failed) == (False, False)
    assert result.undecided == "the server on the restored files did not answer within 1800 s"
    assert [(check.name, check.ok) for check in result.checks] == [("restore", True)]
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
