"""A binlog on another volume than the data: what is stored is what was there under the lock, whatever becomes of it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import CopyConfig, LockConfig, LockStrategy
from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ExitStatus, SnapshotError
from backupd.vocabulary.servers import DataPath, Flavour
from tests.fakes.target import BELIEVED
from tests.story.test_every_failure import assert_failed_and_clean
from tests.story.test_good_run import unpacked
from tests.story.world import World

FOLDER = ".backupd-binlog"


@pytest.fixture
def apart(world: World) -> World:
    """Three binlogs beside the volume, the newest of which is written to."""
    logs = folder(world)
    logs.mkdir()
    for number in (1, 2, 3):
        (logs / f"bin.00000{number}").write_bytes(f"{number}".encode() * 20_000)
    (logs / "bin.index").write_text("".join(f"./bin.00000{number}\n" for number in (1, 2, 3)))
    world.database.facts = replace(world.database.facts, binlog_basename=logs / "bin")
    world.database.binlog_number = 3
    world.database.paths = (*world.database.paths[:2], DataPath("binlog", logs, must_share=False))
    return world


def folder(world: World) -> Path:
    return world.base / "logs"


def stored(world: World) -> dict[str, bytes]:
    return unpacked(next(world.vault.rglob("binlog.tar.zst")))


def purged(world: World) -> None:
    """The server has gone on, and keeps none of those that it had."""
    for file in folder(world).iterdir():
        file.unlink()


def reset(world: World) -> None:
    """RESET MASTER TO 3, or all the work again: another file has the name now."""
    purged(world)
    (folder(world) / "bin.000003").write_bytes(b"another" * 20_000)
    (folder(world) / "bin.index").write_text("./bin.000003\n")


@pytest.mark.parametrize("change", [purged, reset])
def test_a_binlog_that_goes_during_the_copy_is_stored_all_the_same(
    apart: World, change: Callable[[World], None]
) -> None:
    apart.at["target.writing"] = lambda: change(apart) if "bin.000001" in names(apart) else None
    row = apart.back_up()
    assert (row.error, row.attention) == (None, ())
    assert stored(apart) == {f"{FOLDER}/bin.000003": b"3" * 1100, f"{FOLDER}/bin.index": b"./bin.000003\n"}
    assert apart.left() == []


def names(world: World) -> set[str]:
    return {file.name for file in folder(world).iterdir()}


def test_another_file_of_the_name_by_the_end_of_the_lock_ends_the_run_before_the_copy(apart: World) -> None:
    apart.at["lock.ended"] = lambda: reset(apart)
    error = apart.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert "bin.000003 was removed or recreated" in error.message
    assert "RESET MASTER" in error.hint
    assert_failed_and_clean(apart, apart.row(), error, ExitStatus.SNAPSHOT)
    assert apart.stored() == []


def test_a_reset_before_the_lock_ends_the_run_too_for_another_one_may_have_followed(apart: World) -> None:
    def start_over() -> None:
        purged(apart)
        apart.database.binlog_number = 1
        (folder(apart) / "bin.000001").write_bytes(b"anew" * 20_000)

    apart.at["lock.asked"] = start_over
    error = apart.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert "bin.000003 was removed or recreated" in error.message
    assert apart.stored() == []


def test_a_binlog_that_the_server_went_on_to_before_the_lock_is_opened_after_it(apart: World) -> None:
    def go_on() -> None:
        apart.database.binlog_number = 4
        (folder(apart) / "bin.000004").write_bytes(b"4" * 20_000)

    apart.at["lock.asked"] = go_on
    assert apart.back_up().error is None
    assert stored(apart)[f"{FOLDER}/bin.000004"] == b"4" * 1100


def test_a_binlog_that_is_gone_by_the_end_of_the_lock_ends_the_run_at_once_and_says_so(apart: World) -> None:
    apart.at["lock.asked"] = lambda: setattr(apart.database, "binlog_number", 4)
    error = apart.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert "bin.000004 could not be opened" in error.message
    assert apart.stored() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("plant", "said", "hint"),
    [
        (os.mkfifo, "could not be opened", "was it purged"),
        (
            lambda path: path.symlink_to(path.with_name("bin.000002")),
            "is a symbolic link",
            "put the whole folder behind",
        ),
    ],
)
def test_what_is_no_file_is_not_opened_as_the_live_binlog(
    apart: World, plant: Callable[[Path], object], said: str, hint: str
) -> None:
    """Whoever owns the folder could have root wait for ever, or store another file."""
    (folder(apart) / "bin.000003").unlink()
    plant(folder(apart) / "bin.000003")
    error = apart.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert f"bin.000003 {said}" in error.message
    assert hint in error.hint
    assert_failed_and_clean(apart, apart.row(), error, ExitStatus.SNAPSHOT)


def test_a_folder_of_live_binlogs_may_be_behind_a_link(apart: World) -> None:
    folder(apart).rename(apart.base / "large")
    folder(apart).symlink_to("large")
    assert apart.back_up().error is None
    assert stored(apart) == {f"{FOLDER}/bin.000003": b"3" * 1100, f"{FOLDER}/bin.index": b"./bin.000003\n"}


def test_earlier_binlogs_from_elsewhere_are_stored_whole_and_listed_when_asked_for(apart: World) -> None:
    apart.at["target.writing"] = lambda: purged(apart)
    assert apart.back_up(job=apart.job(copy=CopyConfig(include_binlogs=True))).error is None
    assert stored(apart) == {
        f"{FOLDER}/bin.000001": b"1" * 20_000,
        f"{FOLDER}/bin.000002": b"2" * 20_000,
        f"{FOLDER}/bin.000003": b"3" * 1100,
        f"{FOLDER}/bin.index": b"./bin.000001\n./bin.000002\n./bin.000003\n",
    }


def test_earlier_binlogs_before_a_gap_are_not_stored_and_that_is_told(apart: World) -> None:
    """The first is there still, but what lies between is not: a replay over the gap would be wrong."""
    (folder(apart) / "bin.000002").unlink()
    row = apart.back_up(job=apart.job(copy=CopyConfig(include_binlogs=True)))
    assert stored(apart) == {f"{FOLDER}/bin.000003": b"3" * 1100, f"{FOLDER}/bin.index": b"./bin.000003\n"}
    assert row.attention == ("2 binlogs before bin.000003 are not stored: bin.000002 could not be opened",)


def test_earlier_binlogs_up_to_one_behind_a_link_are_not_stored_and_that_is_told(apart: World) -> None:
    (folder(apart) / "bin.000002").rename(apart.base / "moved")
    (folder(apart) / "bin.000002").symlink_to("../moved")
    row = apart.back_up(job=apart.job(copy=CopyConfig(include_binlogs=True)))
    assert row.attention == ("2 binlogs before bin.000003 are not stored: bin.000002 is a symbolic link",)


@pytest.mark.parametrize("numbers", [(1, 2), range(1, 9)], ids=["fewer", "more"])
def test_binlogs_of_an_earlier_log_bin_are_not_stored_and_that_is_told(apart: World, numbers: Iterable[int]) -> None:
    """The index has both: those of the old folder have the same names."""
    old = apart.base / "old"
    old.mkdir()
    before = [old / f"bin.00000{number}" for number in numbers]
    for file in before:
        file.write_bytes(b"old")
    index = folder(apart) / "bin.index"
    index.write_text("".join(f"{file}\n" for file in before) + index.read_text())
    row = apart.back_up(job=apart.job(copy=CopyConfig(include_binlogs=True)))
    found = stored(apart)
    assert found[f"{FOLDER}/bin.000001"] == b"1" * 20_000
    assert found[f"{FOLDER}/bin.index"] == b"./bin.000001\n./bin.000002\n./bin.000003\n"
    assert row.attention == (
        f"{len(before)} binlogs before bin.000003 are not stored: {before[-1]} is in another folder than bin.000003",
    )


def test_the_restored_folder_of_a_binlog_is_like_the_datadir(apart: World) -> None:
    apart.datadir.chmod(0o2750)
    apart.back_up()
    to = apart.base / "to"
    restore([BackupSource(apart.target, "nightly", "r1", BELIEVED)], to=to)
    assert (to / FOLDER).stat().st_mode & 0o7777 == 0o2750


def restored(world: World) -> World:
    """A server that was restored and lives on with the log_bin that was printed."""
    logs = world.datadir / FOLDER
    folder(world).rename(logs)
    world.database.facts = replace(world.database.facts, binlog_basename=logs / "bin")
    world.database.paths = (*world.database.paths[:2], DataPath("binlog", logs, must_share=False))
    return world


def test_the_binlogs_of_a_restored_server_are_stored_like_any_other_s(apart: World) -> None:
    row = restored(apart).back_up(job=apart.job(copy=CopyConfig(include_binlogs=True)))
    assert (row.error, row.attention) == (None, ())
    to = apart.base / "to"
    restore([BackupSource(apart.target, "nightly", "r1", BELIEVED)], to=to)
    assert {path.name: path.stat().st_size for path in (to / FOLDER).iterdir()} == {
        "bin.000001": 20_000, "bin.000002": 20_000, "bin.000003": 1100, "bin.index": 39
    }  # fmt: skip


def test_a_restored_binlog_that_the_server_left_behind_is_not_stored(apart: World) -> None:
    (apart.datadir / FOLDER).mkdir()
    (apart.datadir / FOLDER / "bin.index").write_text("of before")
    assert apart.back_up().error is None
    restore([BackupSource(apart.target, "nightly", "r1", BELIEVED)], to=apart.base / "to")
    assert (apart.base / "to" / FOLDER / "bin.index").read_text() == "./bin.000003\n"


def test_an_image_without_a_binlog_that_its_recovery_needs_is_no_backup(
    apart: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored(apart).lock.strategy = "none"
    (apart.datadir / FOLDER / "bin.000002").unlink()
    monkeypatch.setattr("backupd.operations.backup.contents.needed_by_recovery", lambda _folder, names: names)
    monkeypatch.setattr(apart.database, "facts", replace(apart.database.facts, flavour=Flavour.MARIADB))
    error = apart.try_to_back_up(job=apart.job(lock=LockConfig(strategy=LockStrategy.NONE)))
    assert isinstance(error, SnapshotError)
    assert "the snapshot has no binlog bin.000002" in error.message
    assert apart.stored() == []


def test_more_earlier_binlogs_than_can_be_held_are_told(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.backup.live_binlogs._MOST_EARLIER", 1)
    row = apart.back_up(job=apart.job(copy=CopyConfig(include_binlogs=True)))
    assert stored(apart)[f"{FOLDER}/bin.index"] == b"./bin.000002\n./bin.000003\n"
    assert row.attention == ("1 binlogs before bin.000003 are not stored: only 1 are taken from outside the snapshot",)
