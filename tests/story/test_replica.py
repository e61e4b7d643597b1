"""A replica whose applier stands still for the snapshot: it runs again, whatever happens, and only if it ran before."""

import errno
import os
import signal
import threading
from dataclasses import replace

import pytest

from backupd.host.signals import cancellable
from backupd.mysql.same_server import AT, DATADIR, HOSTNAME, SERVER_ID, UPTIME
from backupd.policy.owner_record import OwnerRecord
from backupd.vocabulary.errors import Cancelled, CleanupIncomplete, ExitStatus, SnapshotError
from backupd.vocabulary.records import HoldingKind, RunStatus
from tests.story.test_recover import die_at, recover
from tests.story.world import World

APPLIERS = {"": True, "west": True, "stopped long ago": False}
STANDING = dict.fromkeys(APPLIERS, False)


@pytest.fixture
def world(world: World) -> World:
    """A job with `stop_applier` on a replica with three channels, one of which does not apply."""
    world.with_applier = True
    world.database.become_replica(APPLIERS)
    return world


def test_the_applier_stands_still_for_the_snapshot_and_runs_before_anything_is_waited_for(world: World) -> None:
    seen: dict[str, dict[str, bool]] = {}
    moments = ["probe.prepare", "host.prepared", "sync", "lock.asked", "host.create", "lock.ended", "host.usage"]
    for moment in moments:
        world.at[moment] = lambda moment=moment: seen.setdefault(moment, world.database.appliers())  # type: ignore[misc]
    assert world.back_up().status is RunStatus.SUCCESS
    standing = {moment for moment, appliers in seen.items() if appliers == STANDING}
    assert standing == {"lock.asked", "host.create", "lock.ended"}
    assert all(seen[moment] == APPLIERS for moment in {*moments} - standing)
    assert world.left() == []


def test_what_it_has_written_is_synced_before_it_stands_still_and_the_rest_once_it_does(world: World) -> None:
    synced: list[bool] = []
    world.at["sync"] = lambda: synced.append(world.database.appliers() == STANDING)
    assert world.back_up().status is RunStatus.SUCCESS
    assert synced == [False, True]


def test_it_does_not_stand_still_for_an_owner_record(world: World) -> None:
    """A target that does not answer is waited for before it is stopped, and asked again when it runs."""
    world.renewal_seconds = 0.001
    renewed, during = threading.Event(), []
    succeed = world.vault_target.succeed

    def renews(record: OwnerRecord) -> bool:
        renewed.set()
        return succeed(record)

    def look() -> None:
        renewed.clear()
        during.append(renewed.wait(0.2))

    world.vault_target.succeed = renews  # type: ignore[method-assign]
    world.at["applier.stopped"] = look
    assert world.back_up().status is RunStatus.SUCCESS
    assert during == [False]


def test_without_the_setting_it_is_never_touched(world: World) -> None:
    world.with_applier = False
    seen = []
    world.at["host.create"] = lambda: seen.append(world.database.appliers())
    assert world.back_up().status is RunStatus.SUCCESS
    assert seen == [APPLIERS]


@pytest.mark.parametrize("appliers", [{}, {"": False}])
def test_where_nothing_runs_nothing_is_stopped_and_nothing_is_started(world: World, appliers: dict[str, bool]) -> None:
    touched: list[str] = []
    world.database.become_replica(appliers)
    world.at = {"applier.stop": lambda: touched.append("stop"), "applier.start": lambda: touched.append("start")}
    assert world.back_up().status is RunStatus.SUCCESS
    assert (touched, world.database.appliers()) == ([], appliers)


def fail_sync() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("verb", "after_effect"), [("prepared", True), ("create", False), ("create", True), ("mount", False)]
)
def test_it_runs_again_when_a_volume_verb_fails(world: World, verb: str, after_effect: bool) -> None:
    world.host.fail(verb, after_effect=after_effect)
    assert isinstance(world.try_to_back_up(), SnapshotError)
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


def test_it_runs_again_when_the_volume_cannot_be_synced(world: World) -> None:
    world.at["sync"] = fail_sync
    assert isinstance(world.try_to_back_up(), SnapshotError)
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


@pytest.mark.parametrize("trouble", ["refuses_lock", "loses_lock"])
def test_it_runs_again_when_the_lock_is_not_granted_or_lost(world: World, trouble: str) -> None:
    setattr(world.database, trouble, True)
    error = world.try_to_back_up()
    assert error is not None
    assert error.exit_status is ExitStatus.SERVER
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


@pytest.mark.parametrize("event", ["applier.stop", "applier.stopped", "lock.granted", "host.create", "applier.start"])
def test_it_runs_again_after_a_stop_signal(world: World, event: str) -> None:
    world.at[event] = stop
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


@pytest.mark.parametrize("event", ["applier.stop", "applier.stopped", "lock.granted", "applier.start", "host.usage"])
def test_recovery_starts_it_again_after_a_run_that_was_killed(world: World, event: str) -> None:
    die_at(world, event)
    recover(world).require_complete()
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


@pytest.mark.parametrize("other", [{DATADIR: "/srv/other/"}, {SERVER_ID: "2"}])
def test_another_server_at_its_address_is_let_be_and_the_row_stays(world: World, other: dict[str, str]) -> None:
    die_at(world, "lock.granted")
    settings, world.database.settings = world.database.settings, {**world.database.settings, **other, UPTIME: "9000"}
    with pytest.raises(CleanupIncomplete, match="replica-applier db1 is left: another server answers"):
        recover(world).require_complete()
    assert world.database.appliers() == STANDING
    assert world.left() == ["row of replica-applier db1"]
    world.database.settings = settings
    recover(world).require_complete()
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


def test_another_server_at_its_address_for_a_week_is_let_be_and_the_one_that_was_changed_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    die_at(world, "lock.granted")
    world.database.settings |= {HOSTNAME: "db2", UPTIME: "9000000", AT: str(1000 + 8 * 86_400)}
    recover(world).require_complete()
    assert (world.database.appliers(), world.left()) == (STANDING, [])
    assert "another server answers: its hostname is db2" in caplog.text


def test_one_that_does_not_start_takes_nothing_from_the_backup_and_is_named_until_it_runs(world: World) -> None:
    world.database.refuses_start = True
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert "could not be restarted" in row.attention[0]
    assert row.backup is not None
    assert world.left() == ["row of replica-applier db1"]
    with pytest.raises(CleanupIncomplete, match="replica-applier db1 is left"):
        recover(world).require_complete()
    world.database.refuses_start = False
    assert HoldingKind.APPLIER in {holding.kind for holding in recover(world).given_back}
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


def test_temporary_tables_that_stay_open_end_the_run_before_the_lock_is_asked_for(world: World) -> None:
    asked: list[str] = []
    world.at["lock.asked"] = lambda: asked.append("asked")
    world.database.replication = replace(world.database.replication, open_temporary_tables=1)
    error = world.try_to_back_up()
    assert error is not None
    assert (error.exit_status, asked) == (ExitStatus.SERVER, [])
    assert (world.database.appliers(), world.left()) == (APPLIERS, [])


@pytest.mark.exhaustive
def test_a_server_that_dies_at_any_call_keeps_no_applier_from_running_once_it_is_back(world: World) -> None:
    for n in range(1, 30):
        world.database.calls, world.database.fails_at = 0, n
        error = world.try_to_back_up(f"r{n}")
        if world.database.calls < n:
            break
        world.database.fails_at = None
        recover(world).require_complete()
        assert (world.database.appliers(), world.left()) == (APPLIERS, [])
    assert error is None
    assert n > 10
