"""What dead runs left where LVM, or a disk, cannot be asked for it: the rest is given back, and it is said."""

import errno
import os
from pathlib import Path

import pytest

from backupd.operations.tools import Places
from backupd.vocabulary.errors import CleanupIncomplete, ExitStatus, SnapshotError
from backupd.vocabulary.records import HoldingKind, RunStatus
from tests.fakes.server import SETTINGS
from tests.story.test_recover import die_at, recover
from tests.story.world import World


def hang_lvm(world: World) -> SnapshotError:
    """Each report of LVM's takes its minute, and each removal; then it is told so."""
    error = SnapshotError("LVM could not report: lvs did not end within 60 s", hint="see what LVM waits for")
    for verb in ("ours", "remove"):
        world.host.fail(verb, at_call=world.host.calls[verb] + 1, error=error)
    return error


def test_what_lvm_is_not_needed_for_is_given_back_although_it_cannot_be_asked(world: World) -> None:
    world.with_applier = world.with_preflush = True
    world.database.become_replica({"": True})
    die_at(world, "lock.granted")
    error = hang_lvm(world)
    recovery = recover(world)
    given_back = {holding.kind for holding in recovery.given_back}
    assert given_back >= {HoldingKind.APPLIER, HoldingKind.FLUSH_SETTINGS, HoldingKind.PROBE_FILES}
    assert (world.database.appliers(), world.database.settings) == ({"": True}, SETTINGS)
    with world.catalogue() as catalogue:
        assert [holding.kind for _, holding in catalogue.holdings()] == [HoldingKind.SNAPSHOT]
    with pytest.raises(CleanupIncomplete, match="volumes of dead runs could not be looked for: LVM could") as refused:
        recovery.require_complete()
    assert (refused.value.exit_status, refused.value.hint) == (ExitStatus.CLEANUP, error.hint)
    recover(world).require_complete()
    assert world.left() == []


def test_nobody_is_told_that_nothing_is_left_where_lvm_cannot_be_asked(world: World) -> None:
    hang_lvm(world)
    with pytest.raises(CleanupIncomplete, match="volumes of dead runs could not be looked for"):
        recover(world).require_complete()


def test_nor_where_a_bench_s_disks_cannot_be(world: World) -> None:
    die_at(world, "target.writing")
    world.scratch_disks.fails = "ours"
    recovery = recover(world)
    world.scratch_disks.fails = ""
    assert world.left() == []
    with pytest.raises(CleanupIncomplete, match="groups and arrays of dead runs could not be looked for: ours failed"):
        recovery.require_complete()


def test_a_run_begins_although_what_is_left_cannot_be_looked_for(world: World) -> None:
    """Where LVM still hangs, the run's own question of it ends the run, and says so."""
    world.host.fail("ours")
    assert world.back_up().status is RunStatus.SUCCESS


def test_a_file_system_that_cannot_be_read_keeps_nothing_else_from_being_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(world, "target.writing")

    def failed(_root: Path) -> tuple[str, ...]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Places, "probed_by", staticmethod(failed))
    recover(world).require_complete()
    assert world.left() == []


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_is_mounted_alone_holds_no_remains(tmp_path: Path, there: bool) -> None:
    """As a container's `/etc/hosts`; or one that was unmounted just now."""
    hosts = tmp_path / "hosts"
    if there:
        hosts.touch()
    assert Places.probed_by(hosts) == ()
