"""A backup copied from one target to another: whole and known, or nothing of it; nothing there is ever overwritten."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from backupd.catalogue import tables
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, RetentionConfig, TargetRetentionConfig
from backupd.host.signals import cancellable
from backupd.operations.ownership import ownership_of
from backupd.operations.restore.into_volume import restore_into_volume
from backupd.operations.restore.proofs import leave_proof, proofs_of
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.additional_copy import AdditionalCopy, CopyRoute, clean_up, copy_run
from backupd.operations.upkeep.audit import check_trail
from backupd.operations.upkeep.lacking import missing
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.recovery import Recovery
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.targets.listing import unknown_beside
from backupd.vocabulary.errors import (
    Busy,
    Cancelled,
    CatalogueUnavailable,
    NoRoom,
    NotOurs,
    Refused,
    TargetError,
    Unreadable,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.records import Check, Drill, HoldingKind, RunStatus
from tests.fakes.blank_volumes import FakeBlankVolumes
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.test_recover import recover, wait_until_dead
from tests.story.world import ToldTarget, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host with one backup, `r1`, in its vault."""
    world = World(tmp_path)
    world.make_orders_large()
    world.back_up()
    return world


def copy(
    world: World,
    run_id: str = "r1",
    *,
    plain: bool = True,
    to: DirectoryTarget | MemoryTarget | None = None,
    copied: Callable[[int, int], None] = lambda _done, _total: None,
) -> AdditionalCopy | None:
    with world.catalogue() as catalogue:
        route = route_of(world, catalogue, plain=plain, to=to)
        clean_up(route)
        return copy_run(route, run_id, copied=copied)


def route_of(
    world: World, catalogue: Catalogue, *, plain: bool = True, to: DirectoryTarget | MemoryTarget | None = None
) -> CopyRoute:
    ownership = ownership_of(catalogue, world.tools)
    return CopyRoute(world.target, to or world.others[0], ownership, world.tools, lambda _job: None, plain)


def is_whole(target: DirectoryTarget, run_id: str = "r1") -> bool:
    return verify_backup(BackupSource(target, "nightly", run_id, BELIEVED)).whole


def lying(target: DirectoryTarget) -> set[str]:
    """All that is there but the owner records."""
    folder = target.folder / target.machine
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "owner" not in str(path.relative_to(folder))}


def damage(world: World) -> None:
    """One byte in the middle of the first object."""
    file = world.backups / "r1" / "data-1.tar.zst"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


# --- a good copy -----------------------------------------------------------------------------------------------------


def test_the_copy_is_the_same_byte_for_byte_and_the_catalogue_knows_it(world: World, offsite: ToldTarget) -> None:
    before = world.row()
    told: list[tuple[int, int]] = []
    done = copy(world, copied=lambda now, total: told.append((now, total)))
    there = offsite.folder / world.name / "nightly" / "r1"
    assert done is not None
    assert (done.run_id, done.location, done.attentions) == ("r1", str(there), ())
    for path in (world.backups / "r1").iterdir():
        assert (there / path.name).read_bytes() == path.read_bytes()
    assert lying(offsite) == lying(world.vault_target)
    after = world.row()
    ours, copied = after.backups
    assert (replace(after, backups=(ours,)), copied.target) == (before, "offsite")
    assert copied == replace(ours, target="offsite", location=str(there), verified_at=copied.verified_at)
    assert told[-1] == (2 * ours.bytes_stored, 2 * ours.bytes_stored)
    assert world.left() == []


def test_the_audit_chain_tells_of_it_and_holds(world: World, offsite: ToldTarget) -> None:
    copy(world)
    with world.catalogue() as catalogue:
        newest = catalogue.audit_entries(limit=1)[0]
        assert (newest.event, newest.subject) == ("copied", "r1")
        assert (newest.detail["source"], newest.detail["target"]) == ("vault", "offsite")
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


def test_a_run_that_is_there_already_is_left_as_it_is(world: World, offsite: ToldTarget) -> None:
    copy(world)
    folder = offsite.folder / world.name
    before = (world.row(), {name: (folder / name).stat() for name in lying(offsite)})
    assert copy(world) is None
    assert (world.row(), {name: (folder / name).stat() for name in lying(offsite)}) == before


def leave_drill(world: World) -> Drill:
    """The result of a drill lies beside the run's backup."""
    drill = Drill("r1", ok=True, checks=(Check("starts", True, "yes", "yes"),), seconds=1.0, at=world.row().started_at)
    with world.catalogue() as catalogue:
        source = BackupSource(world.target, "nightly", "r1", catalogue.trust(world.name))
        source.was_read.set()
        leave_proof([source], drill, ownership_of(catalogue, world.tools), host="db1")
    return drill


def test_the_results_of_drills_come_along(world: World, offsite: ToldTarget) -> None:
    drill = leave_drill(world)
    copy(world)
    with world.catalogue() as catalogue:
        assert proofs_of(BackupSource(offsite, "nightly", "r1", catalogue.trust(world.name))) == (drill,)


def test_while_it_is_copied_it_cannot_be_pruned(world: World, offsite: ToldTarget) -> None:
    refused: list[type] = []

    def try_to_remove() -> None:
        with pytest.raises(Busy) as busy, world.tools.claims.removing("r1"):
            pass
        refused.append(busy.type)

    world.at["offsite.writing"] = try_to_remove
    copy(world)
    assert refused[:1] == [Busy]


def test_a_backup_of_before_there_were_signatures_is_copied_and_read(world: World, offsite: ToldTarget) -> None:
    """Nothing signs it now: what was not proven then is not proven by a copy."""
    old = replace(world.target.manifest("nightly", "r1"), signature=None)
    (world.backups / "r1" / "manifest.json").write_text(manifests.to_text(old))
    with world.catalogue() as catalogue:
        catalogue._write(update(tables.backups).values(manifest_digest=""))
    copy(world)
    with world.catalogue() as catalogue:
        known = catalogue.run("r1").backups[1]
        assert (known.target, known.manifest_digest) == ("offsite", "")
        source = BackupSource(offsite, "nightly", "r1", catalogue.trust(world.name, known))
        assert verify_backup(source).whole
    assert offsite.manifest("nightly", "r1").signature is None


# --- all that is missing ---------------------------------------------------------------------------------------------


def test_missing_is_what_the_one_has_and_the_other_never_had_the_newest_first(
    world: World, offsite: ToldTarget
) -> None:
    world.others = []
    for run_id in ("r2", "r3", "r4", "r5", "r6"):
        world.back_up(run_id)
    world.others = [offsite]  # type: ignore[list-item]
    copy(world, "r2")
    copy(world, "r3")
    copy(world, "r4")
    with world.catalogue() as catalogue:
        catalogue.found_broken("r5", "vault", "a test has said so")
        catalogue.removed("r3", "offsite", because="expired: not among the last 2")
        catalogue.removed("r4", "offsite", because="no longer on the target")
        route = route_of(world, catalogue)
        assert [run.run_id for run in missing(route, [world.job()])] == ["r6", "r4", "r1"]
        assert missing(route, [world.job(name="weekly")]) == []


def test_what_went_because_it_was_broken_is_missing_only_where_the_rule_there_would_keep_it(
    world: World, offsite: ToldTarget
) -> None:
    for run_id in ("r2", "r3", "r4"):
        world.others = [offsite]  # type: ignore[list-item]
        world.back_up(run_id, job=world.job(targets=("vault", "offsite")))
    copy(world)
    with world.catalogue() as catalogue:
        for run_id in ("r1", "r2", "r3"):
            catalogue.found_broken(run_id, "offsite", "a test has said so")
            catalogue.removed(run_id, "offsite", because="expired: broken, and there is a newer good one")
        route = route_of(world, catalogue)
        job = world.job(targets=("vault", "offsite"), retention=RetentionConfig(keep_last=3))
        assert [run.run_id for run in missing(route, [job])] == ["r3", "r2"]
        assert [run.run_id for run in missing(route, [world.job()])] == ["r3", "r2", "r1"], "it has no rule there"


# --- nothing falsely good --------------------------------------------------------------------------------------------


def test_what_is_broken_on_the_way_leaves_nothing_and_is_known_from_now_on(world: World, offsite: ToldTarget) -> None:
    damage(world)
    with pytest.raises(VerificationError, match=r"copy of run r1 on target vault is broken: data-1\.tar\.zst, frame 1"):
        copy(world)
    assert lying(offsite) == set()
    (backup,) = world.row().backups
    assert "expected stored sha256" in backup.broken
    assert world.left() == []
    with pytest.raises(Refused, match="copy of run r1 on target vault is broken"):
        copy(world)


def test_nothing_is_copied_to_the_same_storage_under_another_name(world: World) -> None:
    before = world.stored()
    with pytest.raises(TargetError, match="target again is the same storage as target vault"):
        copy(world, to=DirectoryTarget("again", world.vault, machine=world.name))
    assert (world.stored(), world.left()) == (before, [])


def test_an_object_that_is_missing_is_found_before_anything_is_written(world: World, offsite: ToldTarget) -> None:
    (world.backups / "r1" / "binlog.tar.zst").unlink()
    with pytest.raises(VerificationError, match=r"does not list what was stored: binlog\.tar\.zst is missing"):
        copy(world)
    assert list(offsite.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), "found more"),
        (lambda file: os.truncate(file, file.stat().st_size - 1), r"found \d+"),
    ],
    ids=["longer", "shorter"],
)
def test_an_object_that_changes_its_size_once_it_was_listed_is_no_copy(
    world: World, offsite: ToldTarget, harm: Callable[[Path], object], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_before_it_is_read() -> int:
        harm(world.backups / "r1" / "data-1.tar.zst")
        return room

    room = offsite.require_usable()
    monkeypatch.setattr(offsite, "require_usable", changed_before_it_is_read)
    with pytest.raises(VerificationError, match=rf"copy of run r1 on target vault is broken: data-1.*, {found}"):
        copy(world)
    assert (lying(offsite), world.left()) == (set(), [])


def test_what_lies_beside_a_copy_that_nobody_knows_is_told(world: World, offsite: ToldTarget) -> None:
    def put_a_note() -> None:
        world.at.clear()
        (Path(offsite.location("nightly", "r1")) / "Thumbs.db").write_text("a thumb")

    world.at["offsite.publish"] = put_a_note
    done = copy(world)
    assert done is not None
    assert unknown_beside(["Thumbs.db"], "offsite") in done.attentions
    assert verify_backup(BackupSource(offsite, "nightly", "r1", BELIEVED)).whole


def test_a_destination_that_loses_bytes_has_no_copy(world: World) -> None:
    world.others = [MemoryTarget("offsite", world.name, drop_bytes=1)]
    with pytest.raises(VerificationError, match=r"copy on target offsite is not what was sent: data-1\.tar") as lost:
        copy(world)
    assert "check the storage of target offsite" in (lost.value.hint or "")
    assert world.others[0].stored == {}
    assert [backup.target for backup in world.row().backups] == ["vault"]
    assert world.left() == []


def test_an_origin_that_is_away_by_then_is_not_blamed_for_what_a_destination_lost(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_what: object, **_how: object) -> AbstractContextManager[Iterator[bytes]]:
        raise TargetError("target vault cannot be reached")

    class Lossy(MemoryTarget):
        @contextmanager
        def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
            origin_lost.setattr(ToldTarget, "reading", away)
            with super().reading(job, backup_id, name, **which) as chunks:
                yield chunks

    world.others = [Lossy("offsite", world.name, drop_bytes=1)]
    with monkeypatch.context() as origin_lost, pytest.raises(VerificationError, match="copy on target offsite"):
        copy(world)
    assert "whether target vault has it as recorded is unknown: target vault cannot be reached" in caplog.text
    assert [(backup.target, backup.broken) for backup in world.row().backups] == [("vault", "")]
    assert world.others[0].stored == {}


@pytest.mark.parametrize("call", range(1, 40, 3))
def test_a_destination_that_fails_at_any_call_has_a_copy_that_is_known_or_none(world: World, call: int) -> None:
    world.others = [MemoryTarget("offsite", world.name, fail_at_call=call)]
    error = None
    try:
        copy(world)
    except TargetError as failed:
        error = failed
    recover(world)
    world.others[0].fail_at_call = None
    known = {backup.target for backup in world.row().backups}
    finished = {one.backup_id for one in world.others[0].backups("nightly") if one.finished}
    assert ("offsite" in known) == (finished == {"r1"})
    assert error is not None or "offsite" in known
    assert world.row().status is RunStatus.SUCCESS
    assert world.left() == []


def test_a_manifest_that_this_backupd_would_change_is_not_copied(
    world: World, offsite: ToldTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(manifests, "MINOR", manifests.MINOR + 1)
        world.others = []
        world.back_up("r2")
    world.others = [offsite]  # type: ignore[list-item]
    with pytest.raises(Unreadable, match="run r2 was written by a newer backupd"):
        copy(world, "r2")
    assert list(offsite.folder.iterdir()) == []


# --- what is refused -------------------------------------------------------------------------------------------------


def test_unfinished_objects_that_nobody_holds_are_not_written_over(world: World, offsite: ToldTarget) -> None:
    with offsite.writing("nightly", "r1", "data-1.tar.zst") as writer:
        writer.write(b"something")
    with pytest.raises(Refused, match="has unfinished objects of run r1"):
        copy(world)
    assert (Path(offsite.location("nightly", "r1")) / "data-1.tar.zst").read_bytes() == b"something"


def test_a_backup_there_that_the_catalogue_does_not_know_is_not_written_over(world: World, offsite: ToldTarget) -> None:
    with offsite.writing("nightly", "r1", "data-1.tar.zst") as writer:
        writer.write(b"something")
    offsite.publish(world.target.manifest("nightly", "r1"))
    with pytest.raises(Refused, match="not in the catalogue") as refused:
        copy(world)
    assert "catalogue rebuild --target offsite" in refused.value.hint
    assert len(world.row().backups) == 1


def test_a_broken_copy_there_stays(world: World, offsite: ToldTarget) -> None:
    copy(world)
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "offsite", "a test has said so")
    before = lying(offsite)
    with pytest.raises(Refused, match="has a copy of run r1 that is broken: a test has said so"):
        copy(world)
    assert lying(offsite) == before


def test_a_broken_copy_that_was_removed_by_hand_is_copied_again_at_once(world: World, offsite: ToldTarget) -> None:
    """A pruning in between could take the only whole one, where nothing says what the destination keeps."""
    copy(world)
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "offsite", "a test has said so")
    offsite.remove("nightly", "r1")
    assert copy(world) is not None
    assert is_whole(offsite)
    assert [(one.target, one.is_there) for one in world.row().backups] == [("vault", True), ("offsite", True)]


@pytest.mark.parametrize("is_seen", [True, False], ids=["something is missing", "only reading tells"])
def test_what_the_hint_of_a_broken_copy_says_leads_to_a_whole_one(
    world: World, offsite: ToldTarget, is_seen: bool
) -> None:
    """A pruning of both targets leaves the whole one, also where its target would not keep the run."""
    copy(world)
    world.back_up("r2")
    copy(world, "r2")
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "offsite", "a test has said so")
    if is_seen:
        (offsite.folder / world.name / "nightly" / "r1" / "data-1.tar.zst").unlink()
    with pytest.raises(Refused) as refused:
        copy(world)
    assert "remove it by hand; then copy that run again" in refused.value.hint
    retention = RetentionConfig(keep_last=1, targets={"offsite": TargetRetentionConfig(keep_last=9)})
    job = JobConfig(name="nightly", host="db1", targets=("offsite", "vault"), retention=retention)
    with world.catalogue() as catalogue:
        route = route_of(world, catalogue)
        for number in range(4):
            prune(job, [route.destination, route.origin], catalogue, ownership=route.ownership).require_complete()
            if number == 1 and not is_seen:
                assert is_whole(offsite), "what a test has said is not so"
                offsite.remove("nightly", "r1")
    assert [(one.target, one.is_there) for one in world.row("r1").backups] == [("vault", True), ("offsite", False)]
    assert copy(world) is not None
    assert is_whole(offsite)


def test_one_whose_removal_broke_off_is_neither_missing_nor_there(world: World, offsite: ToldTarget) -> None:
    """`prune` finishes what retention has begun; until then nothing is written over what is left."""
    copy(world)
    (offsite.folder / world.name / "nightly" / "r1" / "manifest.json").unlink()
    with world.catalogue() as catalogue:
        catalogue.removing("r1", "offsite", because="expired: not among the last 2")
        assert missing(route_of(world, catalogue), [world.job()]) == []
    before = lying(offsite)
    with pytest.raises(Refused, match="run r1 is being removed from target offsite: expired") as refused:
        copy(world)
    assert "backupd prune" in refused.value.hint
    assert lying(offsite) == before


def test_one_that_is_gone_from_there_is_copied_again(world: World, offsite: ToldTarget) -> None:
    copy(world)
    offsite.remove("nightly", "r1")
    with world.catalogue() as catalogue:
        catalogue.removed("r1", "offsite", because="no longer on the target")
    assert copy(world) is not None
    assert [(backup.target, backup.removed_at) for backup in world.row().backups] == [
        ("vault", None),
        ("offsite", None),
    ]


def test_a_run_that_is_not_on_the_origin_is_told_where_it_is(world: World, offsite: ToldTarget) -> None:
    copy(world)
    with world.catalogue() as catalogue:
        catalogue.removed("r1", "vault", because="a test has said so")
        route = replace(route_of(world, catalogue), destination=MemoryTarget("third", world.name))
        with pytest.raises(UsageError, match="run r1 has no copy on target vault") as refused:
            copy_run(route, "r1")
    assert refused.value.hint == "it has one on offsite"


def test_a_run_that_died_is_recovered_before_it_is_copied(world: World, offsite: ToldTarget) -> None:
    """What `recover` makes of its copies, nobody knows yet."""
    with world.catalogue() as catalogue:
        catalogue._write(update(tables.runs).values(status=RunStatus.RUNNING))
    with pytest.raises(Refused, match="run r1 did not finish") as refused:
        copy(world)
    assert refused.value.hint == "run `backupd recover` first"
    assert list(offsite.folder.iterdir()) == []


def test_another_machines_backup_is_left_to_it(world: World, offsite: ToldTarget) -> None:
    with world.catalogue() as catalogue:
        catalogue.import_run(replace(world.row(), run_id="x1", machine="db9-0123abcd"))
    with pytest.raises(Refused, match="run x1 belongs to machine db9-0123abcd; this"):
        copy(world, "x1")
    assert list(offsite.folder.iterdir()) == []


def test_no_room_is_found_before_anything_is_written(world: World) -> None:
    world.others = [MemoryTarget("offsite", world.name, free_bytes=100)]
    with pytest.raises(NoRoom, match="target offsite has 100 B free, and run r1 needs"):
        copy(world)
    assert (world.others[0].stored, world.others[0].records) == ({}, {})


def test_what_is_not_encrypted_stays_on_this_machine_unless_the_target_may_have_it(
    world: World, offsite: ToldTarget
) -> None:
    with pytest.raises(Refused, match="run r1 is not encrypted") as refused:
        copy(world, plain=False)
    assert "accept_unencrypted = true in [targets.offsite]" in refused.value.hint
    assert list(offsite.folder.iterdir()) == []


def test_a_folder_that_another_machine_writes_into_is_left_alone(world: World, offsite: ToldTarget) -> None:
    other = World(world.base / "other")
    with other.catalogue() as catalogue:
        ownership_of(catalogue, other.tools).take(offsite)
    with pytest.raises(NotOurs, match="another machine uses this identity"):
        copy(world)
    assert lying(offsite) == set()


def test_two_at_once_are_one(world: World, offsite: ToldTarget) -> None:
    with world.tools.claims.run("r1"), pytest.raises(Busy, match="run r1 is held by"):
        copy(world)


def test_a_backup_is_restored_into_a_volume_while_it_is_copied(world: World, offsite: ToldTarget) -> None:
    """A copy of the newest one may take hours, and that is the one to restore."""
    blanks, filled = FakeBlankVolumes(), list[Path]()
    world.also_released = {HoldingKind.MOUNT: lambda holding: blanks.unmount(Path(holding.name))}
    manifest = world.target.manifest("nightly", "r1")

    def restored() -> None:
        with world.catalogue() as catalogue:
            restore_into_volume(manifest, "labvg/data", world.tools, blanks, catalogue, fill=filled.append)
        assert recover(world).runs == (), "the copy is still at work"

    world.at["offsite.publish"] = restored
    assert copy(world) is not None
    assert (len(filled), is_whole(offsite)) == (1, True)


# --- interrupted -----------------------------------------------------------------------------------------------------


def test_a_signal_leaves_nothing(world: World, offsite: ToldTarget) -> None:
    world.at["offsite.reading"] = lambda: os.kill(os.getpid(), signal.SIGTERM)  # while it is read back
    with pytest.raises(Cancelled), cancellable():
        copy(world)
    assert lying(offsite) == set()
    assert world.left() == []
    del world.at["offsite.reading"]
    assert copy(world) is not None


def die_at(world: World, event: str) -> None:
    child = os.fork()
    if child == 0:
        world.at[event] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        try:
            copy(world)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    wait_until_dead(world, "r1")


@pytest.mark.parametrize("event", ["offsite.writing", "offsite.begun", "offsite.reading", "offsite.publish"])
def test_whenever_it_is_killed_the_next_copy_starts_again(world: World, offsite: ToldTarget, event: str) -> None:
    die_at(world, event)
    assert copy(world) is not None
    assert is_whole(offsite)
    row = world.row()
    assert (row.status, row.attention, [one.target for one in row.backups]) == (
        RunStatus.SUCCESS, (), ["vault", "offsite"]
    )  # fmt: skip
    assert world.left() == []


def test_killed_after_it_was_published_it_is_a_backup_of_a_run_that_has_not_changed(
    world: World, offsite: ToldTarget
) -> None:
    before = world.row()
    die_at(world, "offsite.published")
    recovery = recover(world)
    assert [holding.name for holding in recovery.finished] == ["offsite/nightly/r1"]
    after = world.row()
    assert replace(after, backups=after.backups[:1]) == before
    assert [one.target for one in after.backups] == ["vault", "offsite"]
    with world.catalogue() as catalogue:
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


@pytest.mark.parametrize("finish", [recover, copy], ids=["recover", "the next copy"])
def test_one_that_cannot_be_recorded_stays_and_is_a_backup_later(
    world: World, offsite: ToldTarget, monkeypatch: pytest.MonkeyPatch, finish: Callable[[World], object]
) -> None:
    def full(*_what: object, **_how: object) -> None:
        raise CatalogueUnavailable("the catalogue cannot be written: no space left", hint="free some space")

    before = world.row()
    with monkeypatch.context() as patch, pytest.raises(CatalogueUnavailable) as caught:
        patch.setattr(Catalogue, "copied", full)
        copy(world)
    assert caught.value.message.startswith("the copy on offsite could not be recorded: ")
    assert caught.value.hint.startswith("free some space; then `backupd recover`")
    assert world.row() == before
    assert is_whole(offsite)
    finish(world)
    assert is_whole(offsite)
    after = world.row()
    assert replace(after, backups=after.backups[:1]) == before
    assert [one.target for one in after.backups] == ["vault", "offsite"]
    assert world.left() == []
    with world.catalogue() as catalogue:
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


def test_recover_removes_what_a_killed_copy_left_and_nothing_else(world: World, offsite: ToldTarget) -> None:
    before = lying(world.vault_target)
    die_at(world, "offsite.publish")
    assert lying(offsite) != set()
    recover(world).require_complete()
    assert (lying(offsite), lying(world.vault_target)) == (set(), before)
    assert recover(world) == Recovery((), (), ())


def test_killed_once_more_where_retention_had_removed_it_nothing_stays_behind(
    world: World, offsite: ToldTarget
) -> None:
    copy(world)
    offsite.remove("nightly", "r1")
    with world.catalogue() as catalogue:
        catalogue.removed("r1", "offsite", because="expired")
    die_at(world, "offsite.reading")
    recover(world).require_complete()
    assert lying(offsite) == set()


def test_prune_lets_a_live_copy_be(world: World, offsite: ToldTarget) -> None:
    job = JobConfig(name="nightly", host="db1", targets=("offsite",), retention=RetentionConfig(keep_last=1))
    reasons: list[str] = []

    def prune_now() -> None:
        with world.catalogue() as catalogue:
            ownership = ownership_of(catalogue, world.tools)
            now = world.row().started_at + timedelta(days=1)
            done = prune(job, [offsite], catalogue, ownership=ownership, now=now)
            reasons.extend(fate.decision.reason for fate in done.fates)

    world.at["offsite.publish"] = prune_now
    assert copy(world) is not None
    assert reasons == ["unfinished: its run is alive"]
    assert is_whole(offsite)
