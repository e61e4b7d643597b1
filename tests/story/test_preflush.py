"""A server that writes its dirty pages before the lock has its settings back afterwards, whatever happens."""

import os
import signal
from dataclasses import replace

import pytest

from backupd.config import LockConfig
from backupd.host.signals import cancellable
from backupd.mysql.flushing import LOW_WATER_MARK, MAX_DIRTY
from backupd.mysql.same_server import DATADIR, UPTIME
from backupd.operations.backup import preflight
from backupd.vocabulary.errors import Cancelled, CleanupIncomplete, ExitStatus, ServerError, SnapshotError
from backupd.vocabulary.records import HoldingKind, Level, Phase, RunStatus
from backupd.vocabulary.servers import Preflush, PreflushEnd
from tests.fakes.server import SETTINGS, FakeFlusher
from tests.story.test_recover import die_at, recover
from tests.story.world import World

SET_FIRST, SET_LAST = f"flusher.set {MAX_DIRTY}", f"flusher.set {LOW_WATER_MARK}"
MOMENTS = [
    SET_FIRST,
    "flusher.flushed",
    "lock.asked",
    "lock.granted",
    "host.create",
    "lock.ended",
    "flusher.put_back",
    SET_LAST,
    "host.usage",
]


@pytest.fixture
def world(world: World) -> World:
    """A job with `lock.preflush`."""
    world.with_preflush = True
    return world


def flushing(world: World) -> bool:
    return float(world.database.settings[MAX_DIRTY]) == 0


def test_it_writes_them_before_the_lock_and_until_the_snapshot_exists(world: World) -> None:
    seen: dict[str, bool] = {}
    moments = ["probe.prepare", "host.prepared", "sync", "lock.asked", "host.create", "lock.ended", "host.usage"]
    for moment in moments:
        world.at[moment] = lambda moment=moment: seen.setdefault(moment, flushing(world))  # type: ignore[misc]
    row = world.back_up()
    assert row.status is RunStatus.SUCCESS
    assert {moment for moment, so in seen.items() if not so} == {"probe.prepare", "host.usage"}
    assert row.preflush == Preflush(5000, 100, 4.0, PreflushEnd.FEW)
    assert list(row.phases).index(Phase.PREFLUSH) < list(row.phases).index(Phase.LOCK_WAIT)
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_nothing_is_touched_under_the_lock(world: World) -> None:
    locked: list[bool] = []
    for event in ("flusher.flushed", SET_FIRST, SET_LAST, "flusher.put_back"):
        world.at[event] = lambda: locked.append(world.database.locked)
    assert world.back_up().status is RunStatus.SUCCESS
    assert set(locked) == {False}


def test_without_the_setting_it_is_never_touched(world: World) -> None:
    world.with_preflush = False
    touched: list[str] = []
    world.at = dict.fromkeys((SET_FIRST, SET_LAST, "flusher.put_back"), lambda: touched.append("touched"))
    row = world.back_up()
    assert (row.status, row.preflush, touched) == (RunStatus.SUCCESS, None, [])
    assert Phase.PREFLUSH not in row.phases


def test_a_replica_writes_them_while_it_still_applies(world: World) -> None:
    world.with_applier = True
    world.database.become_replica({"": True})
    seen = []
    world.at["flusher.flushed"] = lambda: seen.append(world.database.appliers())
    assert world.back_up().status is RunStatus.SUCCESS
    assert (seen, world.database.appliers(), world.database.settings) == ([{"": True}], {"": True}, SETTINGS)


def test_a_server_that_refuses_to_write_them_costs_no_backup(world: World) -> None:
    world.database.refuses_settings = True
    row = world.back_up()
    assert (row.status, row.preflush) == (RunStatus.ATTENTION, None)
    assert "dirty pages were not flushed before the lock: the server refused" in row.attention[0]
    assert row.backup is not None
    assert (world.database.settings, world.left()) == (SETTINGS, [])


@pytest.mark.parametrize(
    ("verb", "after_effect"), [("prepared", True), ("create", False), ("create", True), ("mount", False)]
)
def test_they_are_put_back_when_a_volume_verb_fails(world: World, verb: str, after_effect: bool) -> None:
    world.host.fail(verb, after_effect=after_effect)
    assert isinstance(world.try_to_back_up(), SnapshotError)
    assert (world.database.settings, world.left()) == (SETTINGS, [])


@pytest.mark.parametrize("trouble", ["refuses_lock", "loses_lock"])
def test_they_are_put_back_when_the_lock_is_not_granted_or_lost(world: World, trouble: str) -> None:
    setattr(world.database, trouble, True)
    error = world.try_to_back_up()
    assert error is not None
    assert error.exit_status is ExitStatus.SERVER
    assert (world.database.settings, world.left()) == (SETTINGS, [])


@pytest.mark.parametrize("event", MOMENTS)
def test_they_are_put_back_after_a_stop_signal(world: World, event: str) -> None:
    world.at[event] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    assert (world.database.settings, world.left()) == (SETTINGS, [])


@pytest.mark.parametrize("event", MOMENTS)
def test_recovery_puts_them_back_after_a_run_that_was_killed(world: World, event: str) -> None:
    die_at(world, event)
    recover(world).require_complete()
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_the_next_run_puts_them_back_before_it_reads_them(world: World) -> None:
    die_at(world, "host.create")
    assert flushing(world)
    assert world.back_up("r2").status is RunStatus.SUCCESS
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_what_a_dba_has_set_meanwhile_is_left(world: World) -> None:
    changed = {**SETTINGS, MAX_DIRTY: "75.000000"}
    world.at["lock.ended"] = lambda: world.database.settings.update({MAX_DIRTY: "75.000000"})
    assert world.back_up().status is RunStatus.SUCCESS
    assert (world.database.settings, world.left()) == (changed, [])


def test_a_server_that_was_restarted_meanwhile_is_let_be(world: World) -> None:
    die_at(world, "lock.granted")
    restarted = {**SETTINGS, MAX_DIRTY: "60.000000", LOW_WATER_MARK: "0.000000", UPTIME: "5"}
    world.database.settings = dict(restarted)
    recover(world).require_complete()
    assert (world.database.settings, world.left()) == (restarted, [])


def test_another_server_on_the_same_socket_is_let_be_and_the_row_stays(world: World) -> None:
    die_at(world, "lock.granted")
    other = {**world.database.settings, DATADIR: "/srv/other/", UPTIME: "9000"}
    changed, world.database.settings = world.database.settings, dict(other)
    with pytest.raises(CleanupIncomplete, match="flush-settings db1 is left: another server answers"):
        recover(world).require_complete()
    assert world.database.settings == other
    world.database.settings = changed
    assert HoldingKind.FLUSH_SETTINGS in {holding.kind for holding in recover(world).given_back}
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_settings_that_cannot_be_put_back_take_nothing_from_the_backup_and_are_named_until_they_are(
    world: World,
) -> None:
    world.at["lock.ended"] = lambda: setattr(world.database, "refuses_settings", True)
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert "clean-up incomplete" in row.attention[0]
    assert row.backup is not None
    assert world.left() == ["row of flush-settings db1"]
    world.database.refuses_settings = False
    recover(world).require_complete()
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_settings_that_cannot_be_read_are_refused_by_the_preflight(world: World) -> None:
    class Mute(FakeFlusher):
        def settings(self) -> dict[str, str]:
            raise ServerError("the server does not report innodb_max_dirty_pages_pct", hint="set lock.preflush = false")

    tools = replace(world.tools, flusher=Mute(world.database))
    job = world.job(lock=LockConfig(preflush=True))
    found = {one.name: one for one in preflight.examine(job, tools, last_stored_bytes=None).findings}
    assert found["preflush"].level is Level.REFUSED
    assert "lock.preflush = false" in found["preflush"].hint


@pytest.mark.exhaustive
def test_a_server_that_dies_at_any_call_has_its_settings_back_once_it_answers(world: World) -> None:
    for n in range(1, 30):
        world.database.calls, world.database.fails_at = 0, n
        error = world.try_to_back_up(f"r{n}")
        if world.database.calls < n:
            break
        world.database.fails_at = None
        recover(world).require_complete()
        assert (world.database.settings, world.left()) == (SETTINGS, [])
    assert error is None
    assert n > 10
