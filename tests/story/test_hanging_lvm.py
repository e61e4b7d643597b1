"""LVM that does not end what it began, as where udev hangs: the snapshot exists, and somebody watches it meanwhile."""

import os
import signal

import pytest

from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled, SnapshotVoid
from backupd.vocabulary.records import RunStatus
from tests.fakes.server import SETTINGS
from tests.story.world import World

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def world(world: World) -> World:
    """A replica whose appliers stand still for the snapshot, and which writes its dirty pages before."""
    world.with_applier = world.with_preflush = True
    world.database.become_replica({"": True})
    world.host.shell_hangs = True
    return world


def test_the_server_is_as_before_while_it_hangs(world: World) -> None:
    seen = []

    def look() -> None:
        seen.append((world.database.appliers(), world.database.settings))
        world.host.shell_hangs = False

    world.at["host.settle"] = look
    assert world.back_up().status is RunStatus.SUCCESS
    assert seen == [({"": True}, SETTINGS)]
    assert world.left() == []


def test_a_snapshot_that_overflows_while_it_hangs_ends_the_run(world: World) -> None:
    world.at["host.settle"] = lambda: world.host.write(1 << 40)
    assert isinstance(world.try_to_back_up(), SnapshotVoid)
    assert world.left() == []


def test_a_run_is_cancelled_while_it_hangs(world: World) -> None:
    world.at["host.settle"] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    assert world.left() == []
