"""Machines that share a target: nothing of another one is ever removed, and a clone is told from its original."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from backupd.operations.backup.phases import BackupTelling
from backupd.operations.ownership import Ownership, ownership_of
from backupd.operations.upkeep.prune import Pruning, prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.operations.upkeep.recovery import Recovery
from backupd.policy.owner_record import OwnerRecord
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import ExitStatus, NotOurs, Refused, TargetAway, TargetError
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import HoldingKind, RunStatus
from backupd.vocabulary.storage import StoredBackup
from tests.story.test_recover import die_at
from tests.story.world import ToldTarget, World


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], World]:
    """Hosts that have nothing in common but the folder to which they back up."""

    def make(name: str) -> World:
        world = World(tmp_path / name, machine=Machine(name, {"machine-id": name}, boot_id=f"{name}'s first boot"))
        shared = tmp_path / "shared"
        shared.mkdir(exist_ok=True)
        world.vault.rmdir()
        world.vault.symlink_to(shared)
        return world

    return make


def clone(world: World, base: Path) -> World:
    """A virtual machine with a copy of the disk, and with the ids of the original."""
    on_its_own_disk = (HoldingKind.CHILD, HoldingKind.MOUNT, HoldingKind.PROBE_FILES)
    its_own = dict.fromkeys(on_its_own_disk, lambda _holding: None)  # nothing of the original's is there
    other = World(base, machine=replace(world.machine, boot_id="the clone's boot"), also_released=its_own)
    shutil.copy(world.places.catalogue, other.places.catalogue)
    for suffix in ("-wal", "-shm"):
        beside = world.places.catalogue.with_name(world.places.catalogue.name + suffix)
        if beside.exists():
            shutil.copy(beside, other.places.catalogue.with_name(other.places.catalogue.name + suffix))
    other.vault.rmdir()
    other.vault.symlink_to(world.vault)
    return other


def recover(world: World) -> Recovery:
    with world.catalogue() as catalogue:
        return clean_up_dead_runs(catalogue, world.tools)


def prune_job(world: World) -> Pruning:
    with world.catalogue() as catalogue:
        ownership = ownership_of(catalogue, world.tools)
        return prune(world.job(), (world.target,), catalogue, ownership=ownership)


def backups_of(world: World) -> set[str]:
    return {one.backup_id for one in world.target.backups("nightly")}


def test_a_job_of_the_same_name_on_another_host_is_another_one(host: Callable[[str], World]) -> None:
    """1a: B's pruning and rebuilding never removes what is A's."""
    a, b = host("a"), host("b")
    for number in range(3):
        a.back_up(f"a{number}")
    b.back_up("b0")
    with b.catalogue() as catalogue:
        assert rebuild(b.target, catalogue, catalogue.trust(b.target.machine)).known == ("b0",)
    assert {fate.decision.backup_id for fate in prune_job(b).fates} == {"b0"}
    assert backups_of(a) == {"a0", "a1", "a2"}
    with b.catalogue() as catalogue, pytest.raises(NotOurs, match="are not this machine's"):
        ownership_of(catalogue, b.tools).take(b.target.of_machine(a.target.machine))


@pytest.mark.parametrize("act", [recover, prune_job, World.back_up])
def test_a_clone_with_other_ids_changes_nothing(world: World, tmp_path: Path, act: Callable[[World], object]) -> None:
    """1b, where the hypervisor has given the clone an id of its own."""
    die_at(world, "target.writing")
    other = clone(world, tmp_path / "clone")
    other.machine = replace(other.machine, marks={"machine-id": "the clone's"})
    before = world.stored()
    with pytest.raises(Refused, match="was the catalogue copied, or this machine cloned") as told:
        act(other)
    assert told.value.exit_status is ExitStatus.REFUSED
    assert world.stored() == before


@pytest.mark.parametrize("at", ["host.mount", "target.writing"])
def test_a_live_snapshot_of_another_host_on_a_shared_volume_group_stays(host: Callable[[str], World], at: str) -> None:
    """1e: by its tag alone it would be a dead run's, since no lock of that host's can be seen here."""
    a, b = host("a"), host("b")
    b.host = a.host
    seen: list[Recovery] = []
    a.at[at] = lambda: seen.append(recover(b))
    assert a.back_up().status is RunStatus.SUCCESS
    assert set(seen) == {Recovery((), (), ())}


def test_a_clone_with_the_same_ids_stops_once_the_original_has_written(world: World, tmp_path: Path) -> None:
    """1b, where nothing but the owner record tells them apart."""
    world.back_up("r1")
    other = clone(world, tmp_path / "clone")
    world.back_up("r2")
    (failure,) = prune_job(other).failures
    assert "another machine uses this identity" in failure[1].message
    assert "by host db1; was this one cloned?" in failure[1].message
    assert "`backupd identity new`" in failure[1].hint
    error = other.try_to_back_up("r3")
    assert isinstance(error, Refused)
    assert "another machine uses this identity" in error.message
    assert backups_of(world) == {"r1", "r2"}


def test_a_clone_that_was_booted_in_mid_copy_removes_nothing_of_the_live_run(world: World, tmp_path: Path) -> None:
    """1c: it recovers before the original has written again; what it cannot know to be dead stays."""
    world.make_orders_large()
    seen: list[Recovery] = []

    def boot(_done: int, _total: int) -> None:
        if not seen:
            seen.append(recover(clone(world, tmp_path / "clone")))
            assert any("r1" in name for name in world.stored())

    with pytest.raises(NotOurs, match="another machine uses this identity"):
        world.back_up(telling=BackupTelling(copied=boot))
    (recovery,) = seen
    assert [holding.name for holding, _ in recovery.kept] == ["vault/nightly/r1"]
    assert world.row().status in (RunStatus.FAILED, RunStatus.REFUSED)
    assert world.left() == ["row of partial-objects vault/nightly/r1"]
    with world.catalogue() as catalogue:
        ownership_of(catalogue, world.tools).adopt(world.target)
    recover(world)
    assert (world.stored(), world.left()) == ([], [])


def test_a_machine_that_was_set_back_in_mid_copy_removes_no_backup_that_it_had_finished_before(
    world: World, tmp_path: Path
) -> None:
    """Set back with its memory, to an instant of a run that has ended well since: the same run goes on from there."""

    def ends_well() -> None:
        del world.at["target.begun"]
        first = clone(world, tmp_path / "first")
        with first.catalogue() as catalogue:
            ownership_of(catalogue, first.tools).take(world.target)
        (world.backups / "r1" / "manifest.json").write_text("as it was published the first time")

    world.at["target.begun"] = ends_well
    with pytest.raises(TargetError, match="already has a finished backup"):
        world.back_up()
    assert "nightly/r1/manifest.json" in world.stored()
    assert world.left() == ["row of partial-objects vault/nightly/r1"]


def test_a_clone_that_comes_after_a_renewal_is_refused_and_the_original_ends_well(world: World, tmp_path: Path) -> None:
    """1c, the other way about: the original's next record is there before the clone looks."""
    world.make_orders_large()
    seen: list[Recovery] = []

    def boot(_done: int, _total: int) -> None:
        if not seen:
            other = clone(world, tmp_path / "clone")
            with world.catalogue() as catalogue:
                ownership_of(catalogue, world.tools).take(world.target)
            seen.append(recover(other))

    assert world.back_up(telling=BackupTelling(copied=boot)).backup is not None
    (recovery,) = seen
    (why,) = [why for holding, why in recovery.left if holding.kind is HoldingKind.PARTIAL]
    assert "another machine uses this identity" in why


@pytest.fixture
def set_back(world: World, tmp_path: Path) -> World:
    """The machine as it was in mid-copy of a run that has ended well since: without an owner record in between."""
    world.make_orders_large()
    copied: list[World] = []

    def copy(_done: int, _total: int) -> None:
        if not copied:
            copied.append(clone(world, tmp_path / "clone"))

    assert world.back_up(telling=BackupTelling(copied=copy)).backup is not None
    return copied[0]


def test_a_clone_does_not_remove_what_the_original_has_published_since(world: World, set_back: World) -> None:
    before = world.stored()
    recover(set_back)  # notes that nobody else has written in its boot
    set_back.renewal_seconds = 0.0  # as if the time to wait were over
    recovery = recover(set_back)
    assert (recovery.left, recovery.kept) == ((), ())
    assert world.stored() == before


def test_what_a_machine_had_published_before_it_was_set_back_is_a_backup_again(world: World, set_back: World) -> None:
    """With its memory: it is still the same boot. Somebody has adopted its name."""
    set_back.machine = world.machine
    before = world.stored()
    with set_back.catalogue() as catalogue:
        ownership_of(catalogue, set_back.tools).adopt(set_back.target)
    recovery = recover(set_back)
    assert [holding.name for holding in recovery.finished] == ["vault/nightly/r1"]
    assert recovery.left == ()
    row = set_back.row()
    assert (row.status, [backup.target for backup in row.backups]) == (RunStatus.ATTENTION, ["vault"])
    assert row.attention == (
        "its process died; the copy on vault is complete, and `backupd recover` added it to the catalogue",
    )
    assert world.stored() == before


def test_one_lying_listing_costs_a_published_copy_no_place_in_the_catalogue(
    world: World, set_back: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_back.machine = world.machine
    with set_back.catalogue() as catalogue:
        ownership_of(catalogue, set_back.tools).adopt(set_back.target)
    with monkeypatch.context() as lying:
        lying.setattr(ToldTarget, "objects", lambda *_asked: {})
        recovery = recover(set_back)
    assert [holding.name for holding, _ in recovery.left] == ["vault/nightly/r1"]
    assert [holding.name for holding in recover(set_back).finished] == ["vault/nightly/r1"]


@pytest.mark.parametrize("times", [1, 9])
@pytest.mark.parametrize("lie", ["without its manifest", "not at all"])
def test_a_published_copy_is_no_remains_on_the_word_of_a_listing(
    world: World, set_back: World, monkeypatch: pytest.MonkeyPatch, lie: str, times: int
) -> None:
    set_back.machine = world.machine
    with set_back.catalogue() as catalogue:
        ownership_of(catalogue, set_back.tools).adopt(set_back.target)
    before, listed, lies = world.stored(), ToldTarget.backups, iter(range(times))

    def lying(target: ToldTarget, job: str | None = None) -> list[StoredBackup]:
        found = [*listed(target, job)]
        if next(lies, None) is None:
            return found
        return [replace(one, finished=False) for one in found] if lie == "without its manifest" else []

    monkeypatch.setattr(ToldTarget, "backups", lying)
    recovery = recover(set_back)
    assert world.stored() == before
    assert (recovery.left, [holding.name for holding in recovery.finished]) == ((), ["vault/nightly/r1"])


def test_nothing_is_remains_on_a_target_that_cannot_be_asked_again(
    world: World, set_back: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_back.machine = world.machine
    with set_back.catalogue() as catalogue:
        ownership_of(catalogue, set_back.tools).adopt(set_back.target)
    before = world.stored()

    def away(*_which: object, **_part: object) -> NoReturn:
        raise TargetAway("the server does not answer", hint="is it up?")

    monkeypatch.setattr(ToldTarget, "backups", lambda *_asked: [])
    monkeypatch.setattr(ToldTarget, "reading", away)
    recovery = recover(set_back)
    assert world.stored() == before
    assert [(holding.name, why) for holding, why in recovery.left] == [
        ("vault/nightly/r1", "the server does not answer")
    ]


def test_what_was_published_before_and_is_not_whole_stays_and_is_no_backup(world: World, set_back: World) -> None:
    set_back.machine = world.machine
    (world.backups / "r1" / "data-1.tar.zst").unlink()
    before = world.stored()
    recover(set_back)
    assert (set_back.row().backups, world.stored()) == ((), before)


def test_remains_of_before_the_boot_go_once_nobody_else_can_be_at_work_on_them(world: World) -> None:
    die_at(world, "target.begun")
    world.machine = replace(world.machine, boot_id="second boot")
    assert [holding.name for holding, _ in recover(world).kept] == ["vault/nightly/r1"]
    assert world.row().status is RunStatus.FAILED
    assert world.stored() != []
    world.renewal_seconds = 0.0  # as if its time were over
    assert recover(world).kept == ()
    assert (world.stored(), world.left()) == ([], [])


@pytest.mark.parametrize("garbage", ["", "{}", "not JSON", '{"number": "1"}'])
def test_a_garbled_owner_record_is_refused_with_a_way_out(world: World, garbage: str) -> None:
    world.back_up("r1")
    record = max((world.vault / world.name / "owner").glob("*.json"))
    record.write_text(garbage)
    error = world.try_to_back_up("r2")
    assert isinstance(error, Refused)
    assert "the owner of this folder is unknown" in error.message
    assert "`backupd identity adopt`" in error.hint
    assert backups_of(world) == {"r1"}
    with world.catalogue() as catalogue:
        ownership_of(catalogue, world.tools).adopt(world.target)
    assert world.back_up("r3").status is RunStatus.SUCCESS


def test_a_process_that_died_before_its_record_was_known_to_be_there_is_no_stranger_to_itself(world: World) -> None:
    class DiedError(Exception):
        """In the middle of `succeed`."""

    class Dying(DirectoryTarget):
        def succeed(self, record: object) -> bool:
            super().succeed(record)  # type: ignore[arg-type]
            raise DiedError

    with world.catalogue() as catalogue:
        ownership = Ownership(catalogue, world.machine, world.tools.claims, 60.0)
        ownership.take(world.target)
        with pytest.raises(DiedError):
            ownership.take(Dying("vault", world.vault, machine=world.name))
        ownership.take(world.target)
        assert world.target.owner().number == 3  # type: ignore[union-attr]


def test_a_disk_that_is_new_is_told_and_taken(world: World) -> None:
    world.back_up("r1")
    shutil.rmtree(world.vault)
    world.vault.mkdir()
    with world.catalogue() as catalogue:
        assert ownership_of(catalogue, world.tools).take(world.target)
    assert world.row("r1").backup is not None, "its row stays"


def led_to(world: World, folder: Path, *, name: str = "vault") -> None:
    """The configuration calls this folder so from now on."""
    folder.mkdir(exist_ok=True)
    world.vault_target = ToldTarget(name, folder, world.happened, machine=world.name)


def test_a_target_that_is_led_elsewhere_and_back_goes_on_with_the_chain_of_each_place(world: World) -> None:
    places = (world.vault, world.base / "elsewhere")
    for run in range(6):
        led_to(world, places[run % 2])
        assert world.back_up(f"r{run}").status is RunStatus.SUCCESS


def test_a_target_s_other_name_goes_on_with_its_chain(world: World) -> None:
    """Renamed, or two names for one place."""
    for run, name in enumerate(("vault", "offsite", "vault", "offsite")):
        led_to(world, world.vault, name=name)
        assert world.back_up(f"r{run}").status is RunStatus.SUCCESS
    assert backups_of(world) == {"r0", "r1", "r2", "r3"}
    with world.catalogue() as catalogue:
        assert not ownership_of(catalogue, world.tools).was_emptied(world.target)


def test_a_run_that_is_refused_has_written_no_owner_record(world: World) -> None:
    world.database.facts = replace(world.database.facts, redo_logging=False)
    assert isinstance(world.try_to_back_up(), Refused)
    assert world.target.owner() is None


def test_a_target_that_another_machine_takes_just_before_the_run_writes_is_left_out(world: World) -> None:
    class TakenOnceLookedAt(DirectoryTarget):
        def owner(self) -> OwnerRecord | None:
            found = super().owner()
            self.succeed(OwnerRecord(world.name, 1, "f" * 32, "clone", datetime.now(UTC)))
            return found

    (world.base / "offsite").mkdir()
    world.others = [TakenOnceLookedAt("offsite", world.base / "offsite", machine=world.name)]  # type: ignore[list-item]
    row = world.back_up()
    assert [backup.target for backup in row.backups] == ["vault"]
    assert any("offsite has no copy of this run: another machine uses this identity" in told for told in row.attention)
