"""A run with a spool: what is read waits on other disks, the snapshot goes, and only then anything is sent."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from backupd.archive.packing import CopyManner
from backupd.config import CopyConfig, JobConfig
from backupd.operations.backup import copying, storing
from backupd.operations.backup.phases import BackupTelling
from backupd.operations.restore.verify import verify_backup
from backupd.operations.tools import FilesystemRoom
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ExitStatus, GaveUp
from backupd.vocabulary.records import HoldingKind, Phase, RunStatus
from backupd.vocabulary.schedule import Deadline
from tests.fakes.target import BELIEVED
from tests.story.test_recover import die_at
from tests.story.world import World

MIB = 1 << 20


def with_spool(world: World, **changes: object) -> JobConfig:
    return world.job(copy=CopyConfig(**{"spool": world.spool, **changes}))  # type: ignore[arg-type]


def stage(world: World, name: str) -> int:
    """The bytes that this stage of the copy took."""
    return sum(stage.bytes for stage in world.row().throughput if stage.stage == name)


def test_the_snapshot_is_gone_before_anything_is_sent_and_the_backup_is_the_same(world: World) -> None:
    world.make_orders_large()
    existing: list[object] = []
    world.at["target.writing"] = lambda: existing.append((dict(world.host.lvs), dict(world.host.mounted)))
    row = world.back_up(job=with_spool(world))
    assert existing == [({}, {})] * 4  # data, binlog, index, manifest
    assert row.status is RunStatus.SUCCESS
    assert Phase.SEND in row.phases
    assert stage(world, "spool") == stage(world, "read-spool") == stage(world, "digest") > 4 * MIB
    assert verify_backup(BackupSource(world.target, "nightly", "r1", BELIEVED)).whole
    assert world.left() == []
    world.at.clear()
    spooled = world.target.manifest("nightly", "r1").objects
    world.back_up("r2")
    streamed = world.target.manifest("nightly", "r2").objects
    assert [(each.name, each.files) for each in spooled] == [(each.name, each.files) for each in streamed]
    assert spooled[0].plain_bytes == streamed[0].plain_bytes


def test_only_the_server_s_own_user_can_read_the_spool_and_a_sent_object_leaves_it_at_once(world: World) -> None:
    world.make_orders_large()
    modes: list[int] = []
    files: list[list[str]] = []
    folder = world.places.spool_folder(world.spool, world.name, "r1")

    def look() -> None:
        if not folder.exists():  # when the manifest is written
            return
        files.append(sorted(file.name for file in folder.iterdir()))
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir()))

    world.at["target.writing"] = look
    world.back_up(job=with_spool(world))
    assert files == [["binlog.tar.zst", "data-1.tar.zst"], ["binlog.tar.zst"], []]
    assert modes == [0o700, 0o600, 0o600, 0o700, 0o600, 0o700]
    assert stat.S_IMODE(world.spool.stat().st_mode) == 0o700


def test_what_does_not_fit_streams_while_the_snapshot_exists(world: World) -> None:
    for number in range(6):
        (world.datadir / "shop" / f"t{number}.ibd").write_bytes(bytes(15 * MIB))
    existing: list[bool] = []
    world.at["target.writing"] = lambda: existing.append(bool(world.host.lvs))
    row = world.back_up(job=with_spool(world, spool_size=64 * MIB))
    assert True in existing
    assert False in existing
    assert row.status is RunStatus.SUCCESS, row.attention
    assert 0 < stage(world, "spool") <= 64 * MIB
    names = [each.name for each in world.target.manifest("nightly", "r1").objects]
    assert names == [*(f"data-{number}.tar.zst" for number in range(1, len(names) - 1)), "binlog.tar.zst", *names[-1:]]
    assert verify_backup(BackupSource(world.target, "nightly", "r1", BELIEVED)).whole
    assert world.left() == []


def test_no_server_is_so_large_that_its_manifest_has_no_room_for_its_frames_and_objects(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "MOST_FRAMES", 4)
    monkeypatch.setattr(storing, "MOST_OBJECTS", 8)
    monkeypatch.setattr(storing, "_LEAST_SPOOLED", 1)
    monkeypatch.setattr(copying, "CopyManner", partial(CopyManner, frame_bytes=1 << 16))
    for number in range(24):
        (world.datadir / "shop" / f"t{number}.ibd").write_bytes(bytes(3 * MIB))
    world.back_up(job=with_spool(world, spool_size=64 * MIB))
    *data, _, _ = world.target.manifest("nightly", "r1").objects
    assert 0 < stage(world, "spool") < 64 * MIB < stage(world, "digest")  # some is sent, some is streamed
    assert 1 < len(data) <= 8
    assert sum(len(each.frames) for each in data) <= 4 + len(data)


def test_a_file_system_without_room_spools_nothing(world: World) -> None:
    world.room = FilesystemRoom(free=MIB, total=10 << 30, read_only=False)
    world.memory = None
    existing: list[bool] = []
    world.at["target.writing"] = lambda: existing.append(bool(world.host.lvs))
    row = world.back_up(job=with_spool(world))
    # Attention, for there was no room for the probe's file either.
    assert (row.status, Phase.SEND in row.phases, existing) == (RunStatus.ATTENTION, False, [True, True, True, False])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_spool_whose_disk_fails_in_the_middle_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (world.datadir / "shop" / "orders.ibd").write_bytes(bytes(12 * MIB))
    written = os.pwrite

    def write(file: int, data: bytes, at: int) -> int:
        if at and str(world.spool) in str(Path(f"/proc/self/fd/{file}").readlink()):
            raise OSError(number, os.strerror(number))
        return written(file, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    row = world.back_up(job=with_spool(world))
    assert row.status is RunStatus.ATTENTION
    assert f"the spool could not be written: {os.strerror(number)}" in row.attention[0]
    assert verify_backup(BackupSource(world.target, "nightly", "r1", BELIEVED)).whole
    assert world.left() == []


def flip_a_byte(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(MIB)
        opened.write(b"damage")


@pytest.mark.parametrize(
    ("damage", "expected", "told"),
    [
        (flip_a_byte, ExitStatus.VERIFICATION, "differs from what was written"),
        (lambda file: os.truncate(file, MIB), ExitStatus.VERIFICATION, "differs from what was written"),
        (Path.unlink, ExitStatus.TARGET, "the spool could not be read back: No such file"),
    ],
)
def test_what_is_not_read_back_as_it_was_written_is_never_a_backup(
    world: World, damage: Callable[[Path], None], expected: ExitStatus, told: str
) -> None:
    world.make_orders_large()
    file = world.places.spool_folder(world.spool, world.name, "r1") / "data-1.tar.zst"
    world.at["host.remove"] = lambda: damage(file)
    error = world.try_to_back_up(job=with_spool(world))
    assert error is not None
    assert (error.exit_status, told in error.message, "copy.spool" in error.hint) == (expected, True, True)
    assert world.row().status is RunStatus.FAILED
    assert (world.left(), world.stored()) == ([], [])


def test_what_a_killed_run_left_in_the_spool_is_removed_by_row_or_by_its_name_alone(world: World) -> None:
    folder = world.places.spool_folder(world.spool, world.name, "r0")
    folder.mkdir()
    (folder / "data-1.tar.zst").write_bytes(b"plain")
    others = [world.spool / "backupd-db9-00000000-r0", folder.with_name(f"{folder.name}\u00e9 notes")]
    for other in others:
        other.mkdir()
    others += [folder.with_name(f"{folder.name}1"), folder.with_name(f"{folder.name}2")]
    others[2].symlink_to(others[0])
    others[3].write_text("")
    with world.catalogue() as catalogue:
        recovery = clean_up_dead_runs(catalogue, world.tools)
    assert [(holding.kind, holding.name) for holding in recovery.given_back if holding.kind is HoldingKind.SPOOL] == [
        (HoldingKind.SPOOL, str(folder))
    ]
    assert sorted(world.spool.iterdir()) == sorted(others)
    assert recovery.left == ()


@pytest.mark.parametrize("beneath", [False, True])
def test_what_a_killed_run_left_is_not_given_back_while_the_spool_s_disk_is_not_mounted(
    world: World, beneath: bool
) -> None:
    die_at(world, "target.writing", job=with_spool(world))
    away = world.spool.rename(world.base / "not mounted")
    if beneath:
        world.spool.mkdir()
    with world.catalogue() as catalogue:
        recovery = clean_up_dead_runs(catalogue, world.tools)
        assert [holding.kind for holding, _ in recovery.left] == [HoldingKind.SPOOL]
        assert "the spool's file system is not mounted" in recovery.left[0][1]
        assert f"mount it on {world.spool}, then" in recovery.hints[0]
        if beneath:
            world.spool.rmdir()
        away.rename(world.spool)
        clean_up_dead_runs(catalogue, world.tools).require_complete()
    assert world.left() == []


def test_what_a_killed_run_left_on_a_disk_that_fails_is_named_and_given_back_once_that_is_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(world, "target.writing", job=with_spool(world))
    really = Path.lstat

    def fail(path: Path) -> os.stat_result:
        if world.spool in path.parents:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(path)

    with world.catalogue() as catalogue:
        with monkeypatch.context() as failing:
            failing.setattr(Path, "lstat", fail)
            recovery = clean_up_dead_runs(catalogue, world.tools)
        folder = world.places.spool_folder(world.spool, world.name, "r1")
        assert [why for _, why in recovery.left] == [f"{folder} cannot be read: Input/output error"]
        assert recovery.hints == ("repair the spool's disk, then `backupd recover`",)
        clean_up_dead_runs(catalogue, world.tools).require_complete()
    assert world.left() == []


def test_one_job_s_dead_spool_stops_neither_another_job_nor_the_rest_of_a_recovery(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed = os.scandir

    def stale(path: Path) -> Iterator[os.DirEntry[str]]:
        if path == world.spool:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return listed(path)

    monkeypatch.setattr(os, "scandir", stale)
    assert world.back_up().status is RunStatus.SUCCESS
    assert "could not be searched" not in caplog.text
    with world.catalogue() as catalogue:
        clean_up_dead_runs(catalogue, world.tools).require_complete()
    assert f"{world.spool} could not be searched for leftovers of dead runs: Stale file handle" in caplog.text


@pytest.mark.parametrize("verb", ["mkdir", "unlink"])
def test_a_spool_s_disk_that_takes_no_changes_costs_no_backup(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    really = getattr(Path, verb)

    def refuse(path: Path, *args: object, **how: object) -> None:
        if world.spool in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        really(path, *args, **how)

    monkeypatch.setattr(Path, verb, refuse)
    row = world.back_up(job=with_spool(world))
    assert (row.status, world.left()) == (RunStatus.ATTENTION if verb == "mkdir" else RunStatus.SUCCESS, [])
    assert ("the spool could not be used: Read-only file system" in str(row.attention)) is (verb == "mkdir")
    assert verify_backup(BackupSource(world.target, "nightly", "r1", BELIEVED)).whole


def test_the_spool_is_entered_before_it_is_made_and_a_live_run_s_is_left_alone(world: World) -> None:
    held: list[set[HoldingKind]] = []
    kept: list[bool] = []

    def recover_beside() -> None:
        world.at.clear()
        with world.catalogue() as other:
            held.append({holding.kind for _, holding in other.holdings("r1")})
            clean_up_dead_runs(other, world.tools)
        kept.append(world.places.spool_folder(world.spool, world.name, "r1").exists())

    world.at["host.mount"] = recover_beside
    world.back_up(job=with_spool(world))
    assert HoldingKind.SPOOL in held[0]
    assert kept == [True]


def test_the_deadline_is_that_of_the_last_byte_sent(world: World) -> None:
    def dawdle(phase: Phase) -> None:
        if phase is Phase.SEND:
            threading.Event().wait(3.1)

    with pytest.raises(GaveUp, match="missed its deadline: 0 B of"):
        world.back_up(
            job=with_spool(world, must_finish_by=Deadline(within_seconds=3.0)), telling=BackupTelling(phase=dawdle)
        )
    assert Phase.SEND in world.row().phases
    assert (world.left(), world.stored()) == ([], [])


def somebody_else_s(spool: Path) -> None:
    os.chown(spool, 7, 7)


@pytest.mark.parametrize(
    ("make", "told", "hint"),
    [
        (Path.rmdir, "does not exist: is its file system not mounted?", "install --directory --mode 0700"),
        (lambda spool: (spool.rmdir(), spool.symlink_to(spool.parent)), "is a symbolic link", "copy.spool"),
        (lambda spool: (spool.rmdir(), spool.write_text("")), "is not a folder", "copy.spool"),
        (lambda spool: spool.chmod(0o770), "can be written by other users", "chmod 700"),
        (lambda spool: spool.chmod(0o500), "is not writable", "chmod 700"),
        (somebody_else_s, "is owned by another user (7)", "chown"),
    ],
)
def test_a_folder_that_is_not_safe_is_refused_before_anything_is_touched(
    world: World, make: Callable[[Path], object], told: str, hint: str
) -> None:
    if "chown" in hint and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    make(world.spool)
    error = world.try_to_back_up(job=with_spool(world))
    assert error is not None
    assert error.exit_status is ExitStatus.REFUSED
    assert told in error.message
    assert hint in error.hint


def test_a_spool_on_the_origin_s_own_volume_is_refused(world: World) -> None:
    own = world.mount_root / "spool"
    own.mkdir()
    error = world.try_to_back_up(job=with_spool(world, spool=own))
    assert error is not None
    assert error.exit_status is ExitStatus.REFUSED
    assert "is on the volume that is snapshotted" in error.message
