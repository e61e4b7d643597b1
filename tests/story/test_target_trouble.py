"""A target that loses, changes or refuses what is written to it: there is no backup then, and nothing of it either."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.policy.owner_record import OwnerRecord
from backupd.vocabulary.errors import ExitStatus, NoTargetAnswers, Refused, TargetAway, TargetError, VerificationError
from backupd.vocabulary.records import RunStatus
from tests.fakes.target import MemoryTarget
from tests.story.world import ToldTarget, World


def assert_failed_and_clean(world: World, status: ExitStatus) -> None:
    world.at.clear()
    row = world.row()
    assert row.status is RunStatus.FAILED
    assert row.error is not None
    assert row.error.exit_status == status
    assert (world.left(), world.stored()) == ([], [])


@pytest.mark.parametrize(
    "faulty",
    [MemoryTarget(name="vault", drop_bytes=1), MemoryTarget(name="vault", flip_bit=0), MemoryTarget(flip_bit=12_345)],
)
def test_what_reads_back_differently_is_no_backup(world: World, faulty: MemoryTarget) -> None:
    world.memory = faulty
    with pytest.raises(VerificationError):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.VERIFICATION)


@pytest.mark.parametrize("name", ["data-1.tar.zst", "binlog.tar.zst"])
def test_a_folder_that_lost_an_object_s_end_is_no_backup(world: World, name: str) -> None:
    def lose() -> None:
        stored = world.backups / "r1" / name
        os.truncate(stored, stored.stat().st_size // 2)

    world.at["target.reading"] = lose
    with pytest.raises(VerificationError, match=name):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.VERIFICATION)


def test_a_manifest_that_changes_on_its_way_is_no_backup(world: World) -> None:
    manifest: Path = world.backups / "r1" / "manifest.json"
    world.at["target.published"] = lambda: manifest.write_text(manifest.read_text().replace("4711", "4712"))
    with pytest.raises(VerificationError):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.VERIFICATION)


@pytest.mark.parametrize(("kind", "raised"), [(TargetAway, NoTargetAnswers), (TargetError, Refused)])
def test_the_only_target_that_fails_once_it_was_found_usable_refuses_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[TargetError], raised: type[Refused]
) -> None:
    """One that is away may be back: then the run is tried again."""

    def fail(*_: object) -> bool:
        raise kind("it cannot be written to", hint="look at it")

    monkeypatch.setattr(ToldTarget, "succeed", fail)
    error = world.try_to_back_up()
    assert type(error) is raised
    assert (error.message, error.hint) == ("target vault: it cannot be written to", "look at it")
    assert (world.row().status, world.left(), world.stored()) == (RunStatus.REFUSED, [], [])


def test_a_machine_that_is_faster_by_a_moment_keeps_its_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked, and found the folder theirs: the storage gives the next record to one of them."""
    really = ToldTarget.succeed

    def overtaken(target: ToldTarget, record: OwnerRecord) -> bool:
        really(target, replace(record, incarnation="f" * 32, host="its clone"))
        return really(target, record)

    monkeypatch.setattr(ToldTarget, "succeed", overtaken)
    error = world.try_to_back_up()
    assert isinstance(error, Refused)
    assert "another machine uses this identity" in error.message
    assert error.message.endswith("by host its clone; was this one cloned?")
    assert (world.left(), world.stored()) == ([], [])


def test_a_target_that_fills_up_in_mid_copy_ends_the_run(world: World) -> None:
    world.memory = MemoryTarget(name="vault")
    world.at["host.mount"] = lambda: setattr(world.memory, "free_bytes", 100)
    with pytest.raises(TargetError, match="no space left"):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.TARGET)


def test_an_object_that_vanished_before_the_verification_ends_the_run(world: World) -> None:
    world.at["target.reading"] = (world.backups / "r1" / "data-1.tar.zst").unlink
    with pytest.raises(TargetError):
        world.back_up()
    assert_failed_and_clean(world, ExitStatus.TARGET)


def test_a_failed_run_touches_no_other_backup(world: World) -> None:
    world.back_up("good")
    before = {path: path.read_bytes() for path in world.backups.rglob("*") if path.is_file()}
    world.at["target.publish"] = (world.backups / "bad" / "data-1.tar.zst").unlink
    world.at["target.published"] = lambda: os.truncate(world.backups / "bad" / "manifest.json", 10)
    assert isinstance(world.try_to_back_up("bad"), VerificationError)
    assert {path: path.read_bytes() for path in world.backups.rglob("*") if path.is_file()} == before
