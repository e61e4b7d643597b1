"""What dead runs left: given back by catalogue or tag, whatever the moment of death; nothing else is touched.

The runs here die for real: a forked child runs the story and kills itself with SIGKILL, so that its rows, lock files,
probe files, objects and children are those of a killed process. What a kernel would keep of its volumes and mounts the
child writes down first, because the host is a fake, and what a server would keep of its appliers and settings.
"""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backupd.config import CopyConfig, JobConfig
from backupd.host.claims import Claims
from backupd.host.holdings import Releases
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.process import start_time
from backupd.host.signals import cancellable
from backupd.lvm import Snapshots
from backupd.operations.backup.phases import BackupTelling
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.operations.upkeep.recovery import Recovery
from backupd.targets import Target
from backupd.vocabulary.errors import Busy, Cancelled, CleanupIncomplete, ExitStatus, NoRoom, SnapshotError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunStatus
from backupd.vocabulary.storage import Backup
from tests.fakes.lvm_host import FakeSnapshots
from tests.story.world import ToldTarget, World

EVENTS = [
    "host.volume_at",
    "probe.window",
    "host.prepared",
    "lock.granted",
    "lock.ended",
    "host.usage",
    "host.mount",
    "target.writing",
    "in mid-copy",
    "host.require_intact",
    "host.unmount",
    "host.remove",
]  # what died later had its bytes complete: see `test_finishing`


def die_at(world: World, event: str, run_id: str = "r1", *, job: JobConfig | None = None) -> None:
    """A run of the job is killed when the event is about to happen."""
    kernel = world.base / "kernel"
    child = os.fork()
    if child == 0:

        def die() -> None:
            database = world.database
            kept = (world.host.lvs, world.host.mounted, database.replication, database.settings)
            kernel.write_bytes(pickle.dumps(kept))
            os.kill(os.getpid(), signal.SIGKILL)

        world.at[event] = die
        telling = BackupTelling(copied=lambda done, total: world.happened("in mid-copy"))
        try:
            world.back_up(run_id, job=job, telling=telling)
        finally:
            os._exit(1)  # it should not live to get here
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    world.host.lvs, world.host.mounted, *kept = pickle.loads(kernel.read_bytes())
    world.database.replication, world.database.settings = kept
    wait_until_dead(world, run_id)


def wait_until_dead(world: World, run_id: str) -> None:
    """A child that was being started when the run was killed has the run's lock until its exec has closed it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            with world.tools.claims.run(run_id):
                return
        except Busy:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def recover(world: World) -> Recovery:
    with world.catalogue() as catalogue:
        return clean_up_dead_runs(catalogue, world.tools, finishing=world.finishing)


@pytest.mark.exhaustive
@pytest.mark.parametrize("event", EVENTS)
def test_a_run_that_was_killed_at_any_moment_is_cleaned_up_after(world: World, event: str) -> None:
    die_at(world, event)
    assert world.row().status is RunStatus.RUNNING
    recovery = recover(world)
    recovery.require_complete()
    assert recovery.runs == ("r1",)
    assert (world.left(), world.stored()) == ([], [])
    row = world.row()
    assert row.status is RunStatus.FAILED
    assert row.error is not None
    assert (row.error.code, row.error.exit_status) == ("died", ExitStatus.INTERNAL)


@pytest.mark.parametrize("event", ["probe.window", "in mid-copy", "host.unmount", "host.remove", "target.writing"])
def test_what_a_killed_run_had_spooled_is_removed(world: World, event: str) -> None:
    die_at(world, event, job=world.job(copy=CopyConfig(spool=world.spool)))
    assert [*world.spool.iterdir()] == [world.places.spool_folder(world.spool, world.name, "r1")]
    assert bool(world.host.lvs) is (event not in ("probe.window", "target.writing"))
    recover(world).require_complete()
    assert (world.left(), world.stored()) == ([], [])
    assert world.row().status is RunStatus.FAILED


def test_recovery_is_idempotent(world: World) -> None:
    die_at(world, "target.writing")
    first = recover(world)
    error = world.row().error
    assert error is not None
    assert error.hint == "everything that it held was released; start the job again when convenient"
    assert {holding.kind for holding in first.given_back} >= {HoldingKind.SNAPSHOT, HoldingKind.MOUNT}
    before = world.row()
    assert recover(world) == Recovery((), (), ())
    assert world.row() == before


def test_the_next_run_cleans_up_after_a_dead_one_and_is_a_good_one(world: World) -> None:
    die_at(world, "target.writing")
    assert world.back_up("r2").status is RunStatus.SUCCESS
    assert world.row("r1").status is RunStatus.FAILED
    assert world.left() == []
    assert {path.name for path in (world.backups).iterdir()} == {"r2"}


def test_tags_alone_are_enough_for_what_burdens_the_host(world: World) -> None:
    die_at(world, "target.writing")
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    recovery = recover(world)
    recovery.require_complete()
    kinds = {holding.kind for holding in recovery.given_back}
    assert kinds == {HoldingKind.SNAPSHOT, HoldingKind.MOUNT, HoldingKind.PROBE_FILES}
    assert (world.host.lvs, world.host.mounted) == ({}, {})
    assert world.left() == []


def test_what_else_of_ours_lies_at_the_root_of_a_file_system_is_no_probe_s(world: World) -> None:
    """A datadir, or a target's folder, may be a mount point: a restored binlog is there, a trial, a marker."""
    binlog = world.mount_root / ".backupd-binlog"
    binlog.mkdir()
    kept = [binlog / "bin.000007", world.mount_root / ".backupd-incomplete"]
    kept.append(world.mount_root / f".backupd-writable-{world.name}-0123abcd")
    for path in kept:
        path.write_text("a person's")
    assert recover(world) == Recovery((), (), ())
    assert [path.read_text() for path in kept] == ["a person's"] * len(kept)


def test_a_folder_that_any_user_can_make_at_the_root_of_a_file_system_is_no_probe_s(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/tmp` is one: a name of any bytes, a file, a link; and a name as ours, by somebody who is neither we nor the
    root's owner."""
    *folders, file, link, named_as_ours = (
        world.places.probe_folder(world.mount_root, os.fsdecode(name))
        for name in (b"\xff", b"a b", b"x" * 200, b"", b"file", b"link", b"theirs")
    )
    for folder in folders:
        folder.mkdir()
    file.write_text("")
    link.symlink_to("/")
    assert recover(world) == Recovery((), (), ())
    named_as_ours.mkdir()
    monkeypatch.setattr("backupd.operations.tools._owner", lambda entry: 65534)
    assert recover(world) == Recovery((), (), ())
    assert all(map(os.path.lexists, (*folders, file, link, named_as_ours)))


def test_a_backup_is_not_kept_waiting_by_folders_that_no_row_tells_of(world: World) -> None:
    theirs = [world.places.probe_folder(world.mount_root, f"20261122-0227{number:05d}") for number in range(3)]
    for folder in theirs:
        folder.mkdir()
    assert world.back_up().status is RunStatus.SUCCESS
    assert all(folder.is_dir() for folder in theirs)
    assert set(recover(world).runs) == {folder.name.removeprefix(".backupd-probe-") for folder in theirs}


@dataclass(frozen=True)
class WithoutTagSearch(FakeSnapshots):
    """A host that finds nothing by tag."""

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        return ()


def test_the_catalogue_alone_is_enough(world: World) -> None:
    die_at(world, "target.writing")
    snapshots: Snapshots = WithoutTagSearch(world.host, world.name)
    with world.catalogue() as catalogue:
        clean_up_dead_runs(catalogue, replace(world.tools, snapshots=snapshots)).require_complete()
    assert (world.left(), world.stored()) == ([], [])


def test_a_backup_reads_no_disk_for_marks_of_a_bench(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs, and is none of the job's, would keep it waiting. `recover` reads them all."""
    asked = []

    def look() -> tuple[tuple[Holding, str], ...]:
        asked.append("look")
        return ()

    monkeypatch.setattr(world.scratch_disks, "ours", look)
    world.back_up()
    assert asked == []
    recover(world)
    assert asked == ["look"]


def test_what_bears_no_tag_of_ours_is_never_touched(world: World) -> None:
    die_at(world, "target.writing")
    world.host.add_foreign_snapshot("somebody-elses")
    recover(world).require_complete()
    assert set(world.host.lvs) == {"somebody-elses"}


def test_a_volume_of_our_name_without_our_tag_is_named_and_left(world: World) -> None:
    die_at(world, "lock.ended")
    world.host.lvs["backupd-r1"].tags = frozenset()
    recovery = recover(world)
    with pytest.raises(CleanupIncomplete, match=r"snapshot labvg/backupd-r1 is left: .* has no tag") as refused:
        recovery.require_complete()
    assert refused.value.exit_status is ExitStatus.CLEANUP
    assert set(world.host.lvs) == {"backupd-r1"}


def test_a_live_run_is_left_alone(world: World) -> None:
    die_at(world, "target.writing", "dead")
    with Claims(world.places.run).run("dead"):  # as if its process lived
        before = world.left()
        assert recover(world) == Recovery((), (), ())
        assert world.left() == before
    assert recover(world).runs == ("dead",)


def test_how_a_dead_run_got_on_is_forgotten_and_a_live_one_s_is_not(world: World) -> None:
    live = LiveRuns(world.places.run)
    for run_id in ("r1", "r2", "ended and killed before it forgot"):
        live.tell(run_id, Progress(Phase.COPY, 1.0, 2.0))
    (world.places.run / "live" / "r1.4711").write_text("half of what it wanted to tell")
    with Claims(world.places.run).run("r2"):
        recover(world)
        assert live.told() == ("r2",)


def test_a_thing_that_resists_is_named_and_the_rest_is_given_back(world: World) -> None:
    die_at(world, "target.writing")
    world.host.fail("unmount")
    recovery = recover(world)
    with pytest.raises(CleanupIncomplete, match=r"mount .*/mnt/r1 is left"):
        recovery.require_complete()
    error = world.row().error
    assert error is not None
    assert error.hint == (
        "something that it held is left: `backupd recover` cleans it up; start the job again when convenient"
    )
    assert HoldingKind.PROBE_FILES in {holding.kind for holding in recovery.given_back}
    assert {holding.kind for holding, _ in recovery.left} == {HoldingKind.MOUNT, HoldingKind.SNAPSHOT}
    recover(world).require_complete()
    assert world.left() == []


def test_what_is_left_is_told_with_what_to_do_about_it(world: World) -> None:
    world.make_orders_large()
    die_at(world, "in mid-copy")

    def gone(holding: Holding) -> Target:
        raise UsageError(f"no target {holding.detail['target']!r} any more", hint="put it back")

    world.target_of = gone  # type: ignore[method-assign]
    with pytest.raises(CleanupIncomplete, match="is left: no target 'vault' any more") as refused:
        recover(world).require_complete()
    assert refused.value.hint == "put it back"


def test_a_stop_signal_while_a_target_is_asked_is_nothing_that_resists(world: World) -> None:
    world.make_orders_large()
    die_at(world, "in mid-copy")
    world.target_of = lambda _holding: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore
    with pytest.raises(Cancelled), cancellable():
        recover(world)


def test_a_backup_that_was_complete_is_never_removed(world: World) -> None:
    """Killed between the row's `success` and the moment when its objects were no longer partial."""
    world.back_up()
    with world.catalogue() as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="r2") as run:
            run.hold(
                Holding(HoldingKind.PARTIAL, "vault/nightly/r2", {"target": "vault", "job": "nightly", "backup": "r2"})
            )
            shutil.copytree(world.backups / "r1", world.backups / "r2")
            run.complete((Backup("vault", str(world.vault), 1, 1, 1, "0" * 64),))
        clean_up_dead_runs(catalogue, world.tools).require_complete()
        assert catalogue.holdings() == []
        assert catalogue.run("r2").status is RunStatus.SUCCESS
    assert (world.backups / "r2" / "manifest.json").exists()


def test_an_upload_of_a_dead_run_s_is_given_back_by_its_target(world: World) -> None:
    given_back: list[str] = []
    world.also_released = {HoldingKind.UPLOAD: lambda holding: given_back.append(holding.name)}
    die_at(world, "target.writing")
    whose = {"target": "vault", "machine": world.name, "job": "nightly", "backup": "r1", "name": "data-1.tar.zst"}
    with world.catalogue() as catalogue:
        catalogue.hold("r1", Holding(HoldingKind.UPLOAD, "an upload's id", whose))
    recover(world).require_complete()
    assert (given_back, world.left()) == (["an upload's id"], [])


def test_a_stray_child_of_a_dead_run_is_ended(world: World) -> None:
    stray = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.started(stray.pid, start_time(stray.pid) or 0, "sleep", must_finish=False)
        clean_up_dead_runs(catalogue, world.tools).require_complete()
        assert catalogue.holdings() == []
        run.complete((Backup("vault", str(world.vault), 1, 1, 1, "0" * 64),))
    assert stray.wait(60) < 0


def test_a_file_system_that_is_still_being_made_is_left_until_its_program_has_ended(world: World) -> None:
    """It bears no mark but its uuid: struck before mkfs has written that, it would be there for good."""
    names: list[str] = []

    def at_work(holding: Holding) -> None:
        raise SnapshotError(f"process {holding.name} (mkfs.xfs) did not end within 60 s", hint="see dmesg")

    wipe: Releases = {HoldingKind.FILESYSTEM: lambda holding: names.append(holding.name)}
    world.also_released = {**wipe, HoldingKind.CHILD: at_work}
    with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.hold(Holding(HoldingKind.FILESYSTEM, "labvg/restored", {"uuid": "0b5f"}))
        run.started(4711, 1, "mkfs.xfs", must_finish=True)
        with pytest.raises(CleanupIncomplete, match=r"file-system labvg/restored is left: process 4711 \(mkfs"):
            clean_up_dead_runs(catalogue, world.tools).require_complete()
        assert (names, len(catalogue.holdings("r1"))) == ([], 2)
        world.also_released = {**wipe, HoldingKind.CHILD: lambda _holding: None}
        clean_up_dead_runs(catalogue, world.tools).require_complete()
        assert (names, catalogue.holdings("r1")) == (["labvg/restored"], [])
        run.complete((Backup("vault", str(world.vault), 1, 1, 1, "0" * 64),))


def test_the_folder_of_a_dead_drill_is_removed_and_that_of_a_live_one_is_not(world: World) -> None:
    dead, alive = world.places.drill_folder("r1"), world.places.drill_folder("r2")
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "ibdata1").touch()
    with Claims(world.places.run).run(alive.name):
        recovery = recover(world)
    assert [holding.name for holding in recovery.given_back] == [str(dead)]
    assert [folder.name for folder in world.places.staging.iterdir()] == [alive.name]


def test_temporary_folders_of_killed_processes_go_with_recover_and_keep_no_backup_waiting(world: World) -> None:
    """Any user can fill one of such a name, in /tmp."""
    folder, asked = world.base / "backupd-drill-x", []

    def remove() -> tuple[Path, ...]:
        asked.append(folder)
        return (folder,)

    world.remove_abandoned = remove
    world.back_up()
    assert asked == []
    recovery = recover(world)
    assert [holding.name for holding in recovery.given_back] == [str(folder)]
    assert recovery.runs == ()


def test_a_temporary_folder_that_cannot_be_searched_keeps_no_recovery_from_its_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> tuple[Path, ...]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    die_at(world, "host.mount")
    world.remove_abandoned = fail
    recovery = recover(world)
    recovery.require_complete()
    assert (recovery.runs, world.left()) == (("r1",), [])
    assert "could not be searched for leftovers of dead processes: Input/output error" in caplog.text


def test_a_staging_folder_on_a_disk_that_fails_costs_no_backup_and_no_recovery(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only drills need it."""
    really = Path.stat

    def fail(path: Path, **how: Any) -> os.stat_result:
        if path.is_relative_to(world.places.staging):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(path, **how)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "stat", fail)
        assert world.back_up().backups != ()
        recover(world).require_complete()
    assert f"{world.places.staging} could not be searched for leftovers of dead drills: Input/output" in caplog.text
    assert world.left() == []


def test_a_drill_folder_that_resists_is_named_and_keeps_no_run_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.places.drill_folder("r1").mkdir(parents=True)

    def resist(folder: os.PathLike[str], **_how: object) -> None:
        raise PermissionError("not permitted")

    ours = SimpleNamespace(rmtree=resist, disk_usage=shutil.disk_usage)  # others remove folders meanwhile
    monkeypatch.setattr("backupd.host.filesystem.shutil", ours)
    recovery = recover(world)
    assert [holding.kind for holding, _ in recovery.left] == [HoldingKind.STAGING]
    with pytest.raises(CleanupIncomplete, match="drill-r1"):
        recovery.require_complete()
    monkeypatch.undo()
    assert world.back_up("r2").status is RunStatus.SUCCESS
    assert world.left() == []


def test_what_fills_a_target_is_given_back_although_no_owner_record_has_room_beside_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make_orders_large()
    die_at(world, "in mid-copy")

    def full(*_: object) -> bool:
        raise NoRoom("no space left on target vault")

    monkeypatch.setattr(ToldTarget, "succeed", full)
    recover(world).require_complete()
    assert world.left() == world.stored() == []
