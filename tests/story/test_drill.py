"""A drill that fails leaves no staging folder behind; what it finds before a server starts is an answer too."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from backupd.drill import drill
from backupd.errors import Busy, Cancelled, TargetError
from backupd.interruption import cancellable
from backupd.targets import Source
from tests.story.world import World


@pytest.fixture
def backed_up(world: World) -> World:
    """The run `r1` has a backup of this world: of files that no server would start on."""
    world.back_up()
    return world


def copies(world: World) -> list[Source]:
    return [Source(world.target, "nightly", "r1")]


def test_damage_on_the_target_is_a_failed_drill(backed_up: World) -> None:
    stored = backed_up.vault / "nightly" / "r1" / "data-1.tar.zst"
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    result = drill(copies(backed_up), backed_up.tools)
    assert not result.ok
    assert [(check.name, check.ok) for check in result.checks] == [("restore", False)]
    assert "data-1.tar.zst" in result.checks[0].found
    assert backed_up.left() == []


def test_an_unreadable_target_ends_the_drill_and_leaves_no_staging_folder(backed_up: World) -> None:
    (backed_up.vault / "nightly" / "r1" / "binlog.tar.zst").unlink()
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

    monkeypatch.setattr("backupd.drill.ScratchServer.running", stopped)
    with pytest.raises(Cancelled), cancellable():
        drill(copies(backed_up), backed_up.tools)
    assert backed_up.left() == []


def test_what_an_earlier_drill_left_is_not_in_the_way(backed_up: World) -> None:
    left = backed_up.places.staging / "drill-r1"
    left.mkdir()
    (left / "half").write_text("of a drill that was killed")
    stored = backed_up.vault / "nightly" / "r1" / "data-1.tar.zst"
    stored.write_bytes(b"damaged")
    assert not drill(copies(backed_up), backed_up.tools).ok
    assert backed_up.left() == []


def test_two_drills_of_one_run_do_not_share_a_folder(backed_up: World) -> None:
    with backed_up.tools.claims.run("drill-r1"), pytest.raises(Busy):
        drill(copies(backed_up), backed_up.tools)
