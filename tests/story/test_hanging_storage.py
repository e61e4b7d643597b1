"""Storage that answers nobody, as a dead NFS server does: a run ends all the same, and the server is as before."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backupd.config import CopyConfig
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled, SnapshotError
from backupd.vocabulary.records import HoldingKind, RunStatus
from tests.fakes.server import SETTINGS
from tests.story.world import World

pytestmark = pytest.mark.timeout(30)  # what is tested is that nothing waits for ever

PATIENCE_SECONDS = 10.0


class Storage:
    """A verb of the target's, from some moment on, answers nobody until it is let go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stood, self._answers = threading.Event(), threading.Event()

    def hang(self, verb: str) -> None:
        verb_of_target = getattr(self._world.vault_target, verb)

        def hangs(*given: Any, **named: Any) -> Any:
            self.stand()
            return verb_of_target(*given, **named)

        setattr(self._world.vault_target, verb, hangs)

    def stand(self, *_given: Any) -> None:
        self._stood.set()
        self._answers.wait()

    def until_somebody_stands(self) -> None:
        assert self._stood.wait(PATIENCE_SECONDS)

    def let_go(self) -> None:
        self._answers.set()


@pytest.fixture(autouse=True)
def _nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.ownership._UNDER_WAY_SECONDS", 0.2)
    monkeypatch.setattr("backupd.host.claims._AWAITED_SECONDS", 0.2)
    monkeypatch.setattr("backupd.host.holdings._STORAGE_SECONDS", 0.2)


@pytest.fixture
def storage(world: World) -> Iterator[Storage]:
    """That of the world's only target."""
    storage = Storage(world)
    yield storage
    storage.let_go()
    for thread in threading.enumerate():
        if thread.name.startswith("backupd "):
            thread.join(PATIENCE_SECONDS)  # the next test looks for such threads


def left(world: World) -> list[str]:
    """But for threads that stand in a call: they end with their process."""
    return [each for each in world.left() if not each.startswith("thread backupd ")]


def test_a_run_is_cancelled_although_an_owner_record_is_being_written_to_a_target_that_hangs(
    world: World, storage: Storage
) -> None:
    world.renewal_seconds = 0.001

    def cancel() -> None:
        storage.hang("owner")
        storage.until_somebody_stands()
        os.kill(os.getpid(), signal.SIGTERM)

    world.at["host.mount"] = cancel
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    assert left(world) == ["row of partial-objects vault/nightly/r1"]
    assert world.tools.claims.holder_of_job("nightly") is None


def test_a_run_that_fails_ends_although_the_target_hangs_that_its_objects_are_to_be_removed_from(
    world: World, storage: Storage
) -> None:
    world.at["host.mount"] = lambda: storage.hang("owner")
    world.host.fail("mount")
    with pytest.raises(SnapshotError) as caught:
        world.back_up()
    assert "clean-up incomplete: target vault does not answer" in "".join(caught.value.__notes__)
    assert world.row().status is RunStatus.FAILED
    assert left(world) == ["row of partial-objects vault/nightly/r1"]


def test_the_lock_is_asked_for_beside_a_target_that_hangs(
    world: World, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.renewal_seconds, world.with_preflush = 0.001, True

    def hang() -> None:
        storage.hang("owner")
        storage.until_somebody_stands()

    def let_go() -> None:
        monkeypatch.setattr("backupd.operations.ownership._UNDER_WAY_SECONDS", 10.0)  # nothing hangs any more
        storage.let_go()

    world.at["flusher.flushed"] = hang
    world.at["host.mount"] = let_go
    assert world.back_up().status is RunStatus.SUCCESS
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_a_run_ends_although_the_disk_of_its_spool_hangs(world: World, storage: Storage) -> None:
    world.also_released = {HoldingKind.SPOOL: storage.stand}
    row = world.back_up(job=world.job(copy=CopyConfig(spool=world.spool)))
    assert row.status is RunStatus.ATTENTION
    assert f"the spool {world.spool} does not answer" in row.attention[0]
    assert row.backup is not None
    assert [each.partition(" /")[0] for each in left(world)] == ["row of spool", "spooled"]


def test_the_server_is_as_before_although_the_catalogue_s_disk_hangs_when_the_lock_ends(world: World) -> None:
    world.with_applier = world.with_preflush = True
    world.database.become_replica({"": True})
    seen: list[bool] = []

    def is_as_before() -> bool:
        return (world.database.appliers(), world.database.settings) == ({"": True}, SETTINGS)

    def hang() -> None:
        holder = sqlite3.connect(world.places.catalogue, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN IMMEDIATE")

        def let_go() -> None:
            deadline = time.monotonic() + 10
            while not is_as_before() and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(is_as_before())
            holder.close()

        threading.Thread(target=let_go).start()

    world.at["lock.ended"] = hang
    assert world.back_up().status is RunStatus.SUCCESS
    assert seen == [True]
    assert world.left() == []
