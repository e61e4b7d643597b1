"""A backup copied for other readers: they alone open it, to the same bytes; in between these are in memory alone."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.archive.encryption import Identities, read_identities
from backupd.config import EncryptionConfig
from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.additional_copy import AdditionalCopy, clean_up, copy_run
from backupd.operations.upkeep.audit import check_trail
from backupd.operations.upkeep.lacking import for_others, missing
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource, Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import NoKey, Refused, TargetError, UsageError, VerificationError
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.storage import Manifest
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.signers import signer
from tests.story.test_additional_copy import lying, route_of
from tests.story.test_recover import recover, wait_until_dead
from tests.story.world import ToldTarget, World

CONTENT = os.urandom(3 << 20)  # of a table: zstd keeps what it cannot compress as it is


def identities_at(path: Path) -> Identities:
    import pyrage

    path.touch(mode=0o600)
    path.write_text(f"{pyrage.x25519.Identity.generate()}\n")
    return read_identities(path)


@pytest.fixture
def old(tmp_path: Path) -> Identities:
    return identities_at(tmp_path / "old.key")


@pytest.fixture
def new(tmp_path: Path) -> Identities:
    return identities_at(tmp_path / "new.key")


@pytest.fixture
def world(tmp_path: Path, old: Identities) -> World:
    """A host with an encrypted backup, `r1`, and one that is not, `r2`."""
    world = World(tmp_path / "host")
    (world.datadir / "shop" / "orders.ibd").write_bytes(CONTENT)
    world.back_up(job=world.job(encryption=EncryptionConfig(recipients=old.recipients)))
    world.back_up("r2")
    return world


def copy(
    world: World,
    run_id: str,
    readers: Identities,
    opens: Identities | None,
    *,
    to: DirectoryTarget | MemoryTarget | None = None,
) -> AdditionalCopy | None:
    with world.catalogue() as catalogue:
        route = replace(route_of(world, catalogue, plain=False, to=to), recipients=readers.recipients, identities=opens)
        clean_up(route)
        return copy_run(route, run_id)


def restored(world: World, target: Target, to: Path, identities: Identities | None, run_id: str = "r1") -> bytes:
    """The table, as it comes back from there."""
    with world.catalogue() as catalogue:
        trust = catalogue.trust(world.name, catalogue.run(run_id).backup_on(target.name))
    restore([BackupSource(target, "nightly", run_id, trust)], to=to, identities=identities)
    return next(to.rglob("orders.ibd")).read_bytes()


def same_but_for_readers(one: Manifest, other: Manifest) -> bool:
    def bare(manifest: Manifest) -> Manifest:
        told = tuple(
            replace(each, name=each.plain_name, stored_bytes=0, stored_sha256="", frames=())
            for each in manifest.objects
        )
        return replace(manifest, objects=told, recipients=(), signature=None)

    return bare(one) == bare(other)


# --- a good copy -----------------------------------------------------------------------------------------------------


def test_the_new_readers_alone_open_it_to_the_same(
    world: World, offsite: ToldTarget, old: Identities, new: Identities, tmp_path: Path
) -> None:
    done = copy(world, "r1", new, old)
    was, found = world.target.manifest("nightly", "r1"), offsite.manifest("nightly", "r1")
    assert done is not None
    assert (done.recipients, done.attentions) == (new.recipients, ())
    assert (found.recipients, same_but_for_readers(was, found)) == (new.recipients, True)
    assert found.signature is not None
    assert found.signature.key == world.public_key
    assert not {each.stored_sha256 for each in was.objects} & {each.stored_sha256 for each in found.objects}
    assert restored(world, offsite, tmp_path / "out", new) == CONTENT
    with pytest.raises(NoKey, match="none of the identities"):
        restored(world, offsite, tmp_path / "not", old)
    assert restored(world, world.target, tmp_path / "still", old) == CONTENT
    assert world.left() == []


def test_the_catalogue_and_the_audit_chain_tell_the_copies_apart(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    copy(world, "r1", new, old)
    ours, theirs = world.row().backups
    assert (ours.recipients, theirs.recipients) == (old.recipients, new.recipients)
    assert theirs.manifest_digest == offsite.manifest("nightly", "r1").digest != ours.manifest_digest
    assert theirs.bytes_read == ours.bytes_read
    with world.catalogue() as catalogue:
        for target, backup in ((world.target, ours), (offsite, theirs)):
            assert verify_backup(BackupSource(target, "nightly", "r1", catalogue.trust(world.name, backup))).whole
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


def test_what_was_plain_is_encrypted_without_a_key(
    world: World, offsite: ToldTarget, new: Identities, tmp_path: Path
) -> None:
    assert copy(world, "r2", new, None) is not None
    found = offsite.manifest("nightly", "r2")
    assert (found.recipients, all(stored.encrypted for stored in found.objects)) == (new.recipients, True)
    assert same_but_for_readers(world.target.manifest("nightly", "r2"), found)
    assert restored(world, offsite, tmp_path / "out", new, "r2") == CONTENT


def test_what_is_for_these_readers_already_is_copied_as_it_is_without_a_key(
    world: World, offsite: ToldTarget, old: Identities
) -> None:
    done = copy(world, "r1", old, None)
    assert done is not None
    assert done.recipients == ()
    for path in (world.backups / "r1").iterdir():
        assert (offsite.folder / world.name / "nightly" / "r1" / path.name).read_bytes() == path.read_bytes()


def test_an_unsigned_backup_is_not_signed_by_a_copy(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    """What was not proven then is not proven by a copy."""
    from sqlalchemy import update

    from backupd.catalogue import tables

    unsigned = replace(world.target.manifest("nightly", "r1"), signature=None)
    (world.backups / "r1" / "manifest.json").write_text(manifests.to_text(unsigned))
    with world.catalogue() as catalogue:
        catalogue._write(update(tables.backups).values(manifest_digest=""))
    assert copy(world, "r1", new, old) is not None
    assert offsite.manifest("nightly", "r1").signature is None
    assert copy(world, "r1", new, old) is None


def test_copies_where_retention_had_removed_the_original_leave_the_chain_sound(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    world.back_up("r3", job=world.job(encryption=EncryptionConfig(recipients=old.recipients)))
    offsite.remove("nightly", "r3")
    with world.catalogue() as catalogue:
        assert {backup.target for backup in catalogue.run("r3").backups} == {"vault", "offsite"}
        catalogue.removed("r3", "offsite", because="expired")
    copy(world, "r3", new, old)
    with world.catalogue() as catalogue:
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


# --- in memory alone -------------------------------------------------------------------------------------------------


def test_the_plain_bytes_touch_no_disk(
    world: World, offsite: ToldTarget, old: Identities, new: Identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that the process opens for writing is told by the interpreter; what is written is looked into before
    and after it is published.
    """
    scratch, told = tmp_path / "scratch", tmp_path / "told"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    mark = CONTENT[1 << 20 : (1 << 20) + 64]

    def plain_in(*folders: Path) -> list[str]:
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return [f"plain: {path}" for path in files if mark in path.read_bytes()]

    def work() -> None:
        found: set[str] = set()

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            path, flags = (arguments[0], arguments[2]) if event == "open" else (None, None)
            if isinstance(path, str | Path) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
                opened = Path(path)
                found.add(f"written: {opened.parent.resolve() / opened.name}")

        sys.addaudithook(hook)
        world.at["offsite.reading"] = lambda: found.update(plain_in(offsite.folder, scratch))
        assert copy(world, "r1", new, old) is not None
        told.write_text("\n".join(sorted(found)))

    assert in_a_child(work) == 0
    allowed = (f"written: {offsite.folder}/", f"written: {world.places.run}/")
    assert [line for line in told.read_text().splitlines() if not line.startswith(allowed)] == []
    assert allowed[0] in told.read_text()
    assert list(scratch.iterdir()) == []
    assert plain_in(world.backups / "r1", offsite.folder, world.places.run, world.places.staging) == []
    assert plain_in(world.backups / "r2") != []  # where nothing is encrypted, it is found


def in_a_child(work: Callable[[], None]) -> int:
    """The wait status of a process of its own that has done it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_without_the_key_nothing_is_written(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    for opens, said in ((None, "run r1 is encrypted for"), (new, "none of the identities")):
        with pytest.raises(UsageError, match=said):
            copy(world, "r1", new, opens)
    assert list(offsite.folder.iterdir()) == []
    assert (world.row().backups[0].broken, world.left()) == ("", [])


def test_a_copy_for_others_that_is_there_is_told_and_stays(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    copy(world, "r1", old, None)
    before = lying(offsite)
    with pytest.raises(Refused, match=f"run r1 is on target offsite already, encrypted for {old.recipients[0]}"):
        copy(world, "r1", new, old)
    assert lying(offsite) == before
    with world.catalogue() as catalogue:
        route = replace(route_of(world, catalogue), recipients=new.recipients)
        assert [run.run_id for run in for_others(route, ["nightly"])] == ["r1"]
        assert [run.run_id for run in missing(route, [world.job()])] == ["r2"]
        assert for_others(replace(route, recipients=()), ["nightly"]) == []


# --- nothing falsely good --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [100, 1 << 20, -1])
def test_what_is_damaged_leaves_nothing_and_is_known(
    world: World, offsite: ToldTarget, old: Identities, new: Identities, at: int
) -> None:
    file = world.backups / "r1" / "data-1.tar.zst.age"
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(VerificationError, match=r"copy of run r1 on target vault is broken: data-1\.tar\.zst\.age"):
        copy(world, "r1", new, old)
    assert lying(offsite) == set()
    (backup,) = world.row().backups
    assert "data-1.tar.zst.age" in backup.broken
    assert world.left() == []


@pytest.mark.parametrize("call", range(1, 40, 5))
def test_a_destination_that_fails_at_any_call_has_a_copy_that_is_known_or_none(
    world: World, old: Identities, new: Identities, call: int
) -> None:
    target = MemoryTarget("offsite", world.name, fail_at_call=call)
    world.others = [target]
    error = None
    try:
        copy(world, "r1", new, old)
    except TargetError as failed:
        error = failed
    recover(world)
    known = {backup.target for backup in world.row().backups}
    assert ("offsite" in known) == ({one.backup_id for one in target.backups("nightly") if one.finished} == {"r1"})
    assert error is not None or "offsite" in known
    assert world.left() == []


def test_a_destination_that_loses_bytes_has_no_copy_and_the_origin_is_not_blamed(
    world: World, old: Identities, new: Identities
) -> None:
    world.others = [MemoryTarget("offsite", world.name, drop_bytes=1)]
    with pytest.raises(VerificationError, match="copy on target offsite is not what was sent"):
        copy(world, "r1", new, old)
    assert world.others[0].stored == {}
    assert [(backup.target, backup.broken) for backup in world.row().backups] == [("vault", "")]


@pytest.mark.parametrize("event", ["offsite.begun", "offsite.reading", "offsite.publish", "offsite.published"])
def test_whenever_it_is_killed_the_next_copy_is_whole(
    world: World, offsite: ToldTarget, old: Identities, new: Identities, event: str
) -> None:
    def die() -> None:
        world.at[event] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        copy(world, "r1", new, old)

    assert os.WIFSIGNALED(in_a_child(die))
    wait_until_dead(world, "r1")
    copy(world, "r1", new, old)
    assert verify_backup(BackupSource(offsite, "nightly", "r1", BELIEVED)).whole
    row = world.row()
    assert (row.status, [one.recipients for one in row.backups]) == (
        RunStatus.SUCCESS,
        [old.recipients, new.recipients],
    )
    assert world.left() == []


# --- where the catalogue does not know it ----------------------------------------------------------------------------


def test_an_older_catalogue_learns_of_the_copy_by_the_machines_own_word(
    world: World, offsite: ToldTarget, old: Identities, new: Identities
) -> None:
    before = world.places.catalogue.read_bytes()
    copy(world, "r1", new, old)
    for path in world.places.catalogue.parent.glob(f"{world.places.catalogue.name}*"):
        path.unlink()
    world.places.catalogue.write_bytes(before)
    with world.catalogue() as catalogue:
        done = rebuild(offsite, catalogue, catalogue.trust(world.name))
        assert (done.imported, done.failures) == (("r1",), ())
        assert [backup.recipients for backup in catalogue.run("r1").backups] == [old.recipients, new.recipients]
        assert rebuild(world.target, catalogue, catalogue.trust(world.name)).failures == ()
        check_trail(catalogue.audit_trail(), [world.target, offsite], ["nightly"]).require_sound()


@pytest.mark.parametrize("how", ["unsigned", "signed by somebody", "of another size"])
def test_what_somebody_else_has_put_in_its_place_is_not_believed(
    world: World, offsite: ToldTarget, old: Identities, new: Identities, how: str
) -> None:
    copy(world, "r1", new, old)
    manifest = offsite.manifest("nightly", "r1")
    with world.catalogue() as catalogue:
        trust = catalogue.trust(world.name)
        catalogue.removed("r1", "offsite", because="no longer on the target")
        forged = replace(manifest, host="elsewhere", signature=None)
        if how == "signed by somebody":
            forged = manifests.signed(forged, signer())
        if how == "of another size":  # an older one of the machine's own, given this one's name
            from backupd.policy.signing import signer_at

            first, *others = forged.objects
            smaller = replace(first, files=first.files + 1)
            forged = manifests.signed(replace(forged, objects=(smaller, *others)), signer_at(catalogue.key_file))
        (offsite.folder / world.name / "nightly" / "r1" / "manifest.json").write_text(manifests.to_text(forged))
        for believed in (trust, replace(trust, unsigned=True)):
            done = rebuild(offsite, catalogue, believed)
            assert (done.imported, [run_id for run_id, _ in done.failures]) == ((), ["r1"])
