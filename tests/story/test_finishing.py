"""A run that died when its copies were complete: `recover` makes backups of those that are whole, and loses none."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.record import RunRecord
from backupd.catalogue.store import Catalogue
from backupd.host.signals import cancellable
from backupd.operations.ownership import ownership_of
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.operations.upkeep.recovery import Recovery
from backupd.targets import BackupSource, Target
from backupd.vocabulary.errors import Cancelled, CatalogueUnavailable, ExitStatus, TargetError
from backupd.vocabulary.penalty import READ_BACK
from backupd.vocabulary.records import UNRECORDED, RunStatus
from tests.fakes.target import BELIEVED
from tests.story.test_recover import die_at, recover, wait_until_dead
from tests.story.world import ToldTarget, World

pytestmark = pytest.mark.exhaustive

STEPS = [
    f"{target}.{step}"
    for target in ("target", "offsite")
    for step in ("reading", "listed", "publish", "published", "listed again")
]


class Listed(ToldTarget):
    """Says by its own name what is about to be done to it, and what it lists."""

    def __init__(self, name: str, path: Path, world: World, prefix: str) -> None:
        super().__init__(name, path, lambda what: world.happened(what.replace("target", prefix)), machine=world.name)
        self.listings = 0

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        self.listings += 1
        self.happened("target.listed" if self.listings == 1 else "target.listed again")
        return super().objects(job, backup_id)


@pytest.fixture
def both(world: World) -> tuple[Target, Target]:
    """The job's targets, both on disk: a killed process takes what is in memory along."""
    (world.base / "offsite").mkdir()
    world.vault_target = Listed("vault", world.vault, world, "target")
    offsite = Listed("offsite", world.base / "offsite", world, "offsite")
    world.others = [offsite]  # type: ignore[list-item]
    return world.vault_target, offsite


def is_whole(target: Target, run_id: str = "r1") -> bool:
    return verify_backup(BackupSource(target, "nightly", run_id, BELIEVED)).whole


def on(target: Target) -> set[str]:
    return {backup.backup_id for backup in target.backups("nightly")}


@pytest.mark.parametrize("step", STEPS)
def test_whenever_it_was_killed_every_target_has_a_whole_backup(
    world: World, both: tuple[Target, Target], step: str
) -> None:
    die_at(world, step)
    recovery = recover(world)
    recovery.require_complete()
    assert [is_whole(target) for target in both] == [True, True]
    row = world.row()
    assert (row.status, row.error) == (RunStatus.ATTENTION, None)
    assert {backup.target for backup in row.backups} == {"vault", "offsite"}
    told = {f"its process died; `backupd recover` finished it on {copy.detail['target']}" for copy in recovery.finished}
    assert told <= set(row.attention)
    assert recover(world) == Recovery((), (), ())
    assert world.left() == []
    with world.catalogue() as catalogue:
        assert catalogue.pending_manifest("r1") is None
        assert catalogue.audit_trail().chain.first_fault is None


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda file: os.truncate(file, file.stat().st_size - 1),
        lambda file: file.write_bytes(file.read_bytes() + b"x"),
    ],
    ids=["missing", "shorter", "longer"],
)
def test_a_copy_that_is_no_longer_whole_goes_and_the_other_is_a_backup(
    world: World, both: tuple[Target, Target], harm: Callable[[Path], object]
) -> None:
    vault, offsite = both
    die_at(world, "target.published")
    harm(Path(vault.location("nightly", "r1")) / "data-1.tar.zst")
    recover(world).require_complete()
    assert (on(vault), is_whole(offsite)) == (set(), True)
    assert [backup.target for backup in world.row().backups] == ["offsite"]
    assert world.left() == []


@pytest.mark.parametrize("step", ["target.publish", "target.published"])
@pytest.mark.parametrize("told", [0, 1 / 2, 2])
def test_a_listing_that_lies_costs_a_dead_run_no_copy(
    world: World, monkeypatch: pytest.MonkeyPatch, told: float, step: str
) -> None:
    """All of its sizes are so many times what they are; none at all is told of what has 0."""
    die_at(world, step)
    true = ToldTarget.objects

    def lie(target: ToldTarget, job: str, backup_id: str) -> Mapping[str, int]:
        return {name: int(told * size) for name, size in true(target, job, backup_id).items() if told}

    with monkeypatch.context() as lying:
        lying.setattr(ToldTarget, "objects", lie)
        recovery = recover(world)
    assert [why for _, why in recovery.left] == [
        "target vault lists data-1.tar.zst differently from what it returns: it is unknown whether it is complete"
    ]
    recover(world).require_complete()
    assert (is_whole(world.target), world.row().status, world.left()) == (True, RunStatus.ATTENTION, [])


def test_bytes_that_have_changed_are_no_backup_and_the_run_has_failed(world: World) -> None:
    die_at(world, "target.reading")
    file = Path(world.target.location("nightly", "r1")) / "data-1.tar.zst"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    recover(world).require_complete()
    row = world.row()
    assert (row.status, row.backups, on(world.target)) == (RunStatus.FAILED, (), set())
    assert row.error is not None
    assert (row.error.code, world.left()) == ("died", [])
    assert row.error.hint == "everything that it held was released; start the job again when convenient"


def test_what_was_published_is_not_read_again(world: World) -> None:
    die_at(world, "target.published")
    read: list[str] = []
    world.at["target.reading"] = lambda: read.append("read")
    assert len(recover(world).finished) == 1
    assert read == []
    assert is_whole(world.target)


def test_a_target_that_cannot_be_asked_keeps_its_copy_until_it_can(world: World, both: tuple[Target, Target]) -> None:
    world.at["offsite.reading"] = threading.Event().wait  # or it might be a backup before the other one is read
    die_at(world, "target.reading")
    del world.at["offsite.reading"]

    def silent() -> None:
        raise TargetError("target offsite does not answer")

    world.at["offsite.listed"] = silent
    recovery = recover(world)
    assert [why for _, why in recovery.left] == ["target offsite does not answer"]
    assert [backup.target for backup in world.row().backups] == ["vault"]
    recover(world).require_complete()
    assert [is_whole(target) for target in both] == [True, True]
    assert world.left() == []


def test_the_next_run_does_not_wait_for_it_and_takes_nothing_from_it(world: World) -> None:
    die_at(world, "target.reading")
    world.at.clear()
    row = world.back_up("r2")
    assert row.status is RunStatus.SUCCESS
    died = world.row("r1")
    assert (died.status, died.backups) == (RunStatus.FAILED, ())
    assert died.error is not None
    assert "its copy on vault may be complete: `backupd recover` reads it back" in died.error.hint
    with world.catalogue() as catalogue:
        pruning = prune(world.job(), world.tools.targets, catalogue, ownership=ownership_of(catalogue, world.tools))
    assert pruning.removed == ()
    recover(world).require_complete()
    assert (is_whole(world.target, "r1"), world.row("r1").status) == (True, RunStatus.ATTENTION)
    assert world.left() == []


def test_who_waits_for_the_clean_up_does_not_wait_for_it(world: World) -> None:
    die_at(world, "target.reading")
    happened: list[str] = []
    world.at.clear()
    world.at["target.reading"] = lambda: happened.append("read back")
    with world.catalogue() as catalogue:
        clean_up_dead_runs(
            catalogue, world.tools, finishing=world.finishing, released=lambda: happened.append("released")
        )
    assert happened[:2] == ["released", "read back"]
    assert world.row("r1").status is RunStatus.ATTENTION


def test_another_recovery_that_is_quicker_leaves_nothing_to_do(world: World) -> None:
    die_at(world, "target.reading")
    quicker: list[Recovery] = []
    with world.catalogue() as catalogue:
        slower = clean_up_dead_runs(
            catalogue, world.tools, finishing=world.finishing, released=lambda: quicker.append(recover(world))
        )
    assert [len(one.finished) for one in (*quicker, slower)] == [1, 0]
    slower.require_complete()
    assert (is_whole(world.target), world.row().status, world.left()) == (True, RunStatus.ATTENTION, [])


def test_a_run_that_died_once_one_target_had_its_backup_says_which(world: World, both: tuple[Target, Target]) -> None:
    def die() -> None:
        while not world.row().backups:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        world.at["offsite.reading"] = die
        try:
            world.back_up()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    wait_until_dead(world, "r1")
    with world.catalogue() as catalogue:
        clean_up_dead_runs(catalogue, world.tools)
    row = world.row()
    assert row.status is RunStatus.ATTENTION
    assert "its process died before the run ended; the backup is on vault" in row.attention
    recover(world).require_complete()
    assert [is_whole(target) for target in both] == [True, True]


@pytest.mark.parametrize("moment", ["target.listed", "target.reading"])
def test_a_stop_signal_while_it_is_read_back_leaves_it_to_the_next_time(world: World, moment: str) -> None:
    die_at(world, "target.publish")
    world.vault_target = Listed("vault", world.vault, world, "target")

    def stop() -> None:
        world.at.clear()
        os.kill(os.getpid(), signal.SIGTERM)

    world.at[moment] = stop
    with pytest.raises(Cancelled), cancellable():
        recover(world)
    assert on(world.target) == {"r1"}
    recover(world).require_complete()
    assert (is_whole(world.target), world.row().status, world.left()) == (True, RunStatus.ATTENTION, [])


def test_a_copy_whose_file_system_is_not_mounted_waits_until_it_is(world: World) -> None:
    """After a reboot `recover` may come before a mount, and a run may even take the empty folder for a new disk."""
    die_at(world, "target.reading")
    world.at.clear()
    away = world.base / "not mounted"
    world.vault.rename(away)
    world.vault.mkdir()
    for run_id in ("r2", "r3"):
        (why,) = [why for _, why in recover(world).left]
        assert "nothing of it is on target vault, which has been found empty" in why
        world.back_up(run_id)
    shutil.rmtree(world.vault)
    away.rename(world.vault)
    recover(world).require_complete()
    assert is_whole(world.target)


def test_a_manifest_that_the_catalogue_has_damaged_stops_no_other_run_and_blames_no_target(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("r1", "r2"):  # the newest comes first
        die_at(world, "target.publish", run_id)
    kept = Catalogue.pending_manifest
    monkeypatch.setattr(
        Catalogue, "pending_manifest", lambda catalogue, run_id: "{}" if run_id == "r2" else kept(catalogue, run_id)
    )
    recovery = recover(world)
    (why,) = [why for _, why in recovery.left]
    assert why.startswith("the catalogue's record of run r2 cannot be read: ")
    assert "the catalogue is damaged, not the target" in recovery.hints[0]
    assert (on(world.target), is_whole(world.target)) == ({"r1", "r2"}, True)
    assert world.row("r1").status is RunStatus.ATTENTION


def test_what_another_machine_has_taken_while_it_was_read_back_is_neither_published_nor_removed(world: World) -> None:
    die_at(world, "target.reading")

    def boots() -> None:
        world.at.clear()
        owner = world.target.owner()
        assert owner is not None
        assert world.target.succeed(replace(owner, number=owner.number + 1, incarnation="f" * 32))

    world.at["target.reading"] = boots
    before = world.stored()
    (why,) = [why for _, why in recover(world).left]
    assert "another machine uses this identity" in why
    assert world.stored() == before


# --- a run that lives, and cannot record what it has published -------------------------------------------------------


FullForAMoment = Callable[..., threading.Event]


@pytest.fixture
def full_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> FullForAMoment:
    """The disk will be full when a run tells this of that target, which is also when `then` is called.

    All else can be written. The event that is returned is set as soon as it was full.
    """

    def fill(verb: str, target: str, then: Callable[[], None] = lambda: None) -> threading.Event:
        tell, is_full = getattr(RunRecord, verb), threading.Event()

        def told(record: RunRecord, what: Any, *others: Any, **how: Any) -> None:
            if f"'{target}'" in str(what) or f"{READ_BACK}{target}" in str(what):
                is_full.set()
                then()
                raise CatalogueUnavailable("the catalogue cannot be written: no space left", hint="free some space")
            tell(record, what, *others, **how)

        monkeypatch.setattr(RunRecord, verb, told)
        return is_full

    return fill


def require_finished(world: World, targets: Sequence[Target], copies: Collection[str]) -> None:
    """`recover` makes backups of these copies; all targets have one then, and the record agrees with itself."""
    recovery = recover(world)
    recovery.require_complete()
    assert {copy.detail["target"] for copy in recovery.finished} == copies
    assert [is_whole(target) for target in targets] == [True] * len(targets)
    row = world.row()
    assert (row.status, row.error, row.seconds) == (RunStatus.ATTENTION, None, None)
    assert {backup.target for backup in row.backups} == {target.name for target in targets}
    assert {f"{UNRECORDED}; `backupd recover` finished it on {name}" for name in copies} <= set(row.attention)
    assert not any("died" in text for text in row.attention)
    assert (world.left(), recover(world)) == ([], Recovery((), (), ()))
    with world.catalogue() as catalogue:
        assert catalogue.pending_manifest("r1") is None
        assert catalogue.audit_trail().chain.first_fault is None
        assert catalogue.run_counts()["nightly"][RunStatus.FAILED] == 1


def await_(event: threading.Event) -> None:
    assert event.wait(30)


def test_a_backup_that_cannot_be_recorded_is_not_removed(world: World, full_for_a_moment: FullForAMoment) -> None:
    full_for_a_moment("published", "vault")
    error = world.try_to_back_up()
    assert error is not None
    assert error.exit_status is ExitStatus.CATALOGUE
    assert error.message.startswith("the copy on vault could not be recorded: ")
    assert error.hint.startswith("free some space; then `backupd recover`: the copy on vault stays")
    assert is_whole(world.target)
    row = world.row()
    assert (row.status, row.backups) == (RunStatus.FAILED, ())
    assert row.error is not None
    assert (row.error.message, row.error.hint) == (error.message, error.hint)
    require_finished(world, [world.target], {"vault"})


def test_the_next_run_and_retention_take_nothing_from_it(
    world: World, full_for_a_moment: FullForAMoment, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_for_a_moment("published", "vault")
    assert world.try_to_back_up() is not None
    monkeypatch.undo()
    world.back_up("r2")
    with world.catalogue() as catalogue:
        pruning = prune(world.job(), world.tools.targets, catalogue, ownership=ownership_of(catalogue, world.tools))
    assert pruning.removed == ()
    (why,) = [fate.decision.reason for fate in pruning.fates if fate.decision.backup_id == "r1"]
    assert why == "not in the catalogue: `backupd recover` adds it to the catalogue"
    assert on(world.target) == {"r1", "r2"}
    recover(world).require_complete()
    assert (is_whole(world.target), world.row("r1").status) == (True, RunStatus.ATTENTION)


@pytest.mark.parametrize(("first", "second"), [("vault", "offsite"), ("offsite", "vault")])
@pytest.mark.parametrize("verb", ["published", "throughput"])
def test_one_that_cannot_be_recorded_costs_no_other_copy(
    world: World, both: tuple[Target, Target], full_for_a_moment: FullForAMoment, verb: str, first: str, second: str
) -> None:
    """The other one is still being read back by then."""
    is_full = full_for_a_moment(verb, first)
    world.at[f"{second.replace('vault', 'target')}.reading"] = lambda: await_(is_full)
    error = world.try_to_back_up()
    assert error is not None
    assert error.exit_status is ExitStatus.CATALOGUE
    world.at.clear()
    is_known = verb == "throughput"
    row = world.row()
    assert row.status is (RunStatus.ATTENTION if is_known else RunStatus.FAILED)
    assert [backup.target for backup in row.backups] == [first] * is_known
    require_finished(world, both, {second} if is_known else {first, second})


def test_once_a_rebuild_has_added_the_other_copy_nothing_is_left_to_finish(
    world: World, both: tuple[Target, Target], full_for_a_moment: FullForAMoment
) -> None:
    leave_one_to_a_rebuild(world, both, full_for_a_moment)
    recover(world).require_complete()
    with world.catalogue() as catalogue:
        assert catalogue.pending_manifest("r1") is None
    assert (world.left(), world.row().status) == ([], RunStatus.ATTENTION)
    assert {backup.target for backup in world.row().backups} == {"vault", "offsite"}
    assert recover(world) == Recovery((), (), ())


def test_nor_is_it_where_a_recover_died_before_it_struck_the_manifest(
    world: World, both: tuple[Target, Target], full_for_a_moment: FullForAMoment, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_one_to_a_rebuild(world, both, full_for_a_moment)
    with monkeypatch.context() as patch:
        patch.setattr(Catalogue, "strike_manifest", lambda _catalogue, _run_id: None)
        recover(world)
    with world.catalogue() as catalogue:
        assert (catalogue.holdings(), catalogue.pending_manifest("r1") is None) == ([], False)
    recover(world).require_complete()
    with world.catalogue() as catalogue:
        assert catalogue.pending_manifest("r1") is None


def wait_until_recorded(world: World) -> None:
    until = time.monotonic() + 30
    while not world.row().backups and time.monotonic() < until:
        time.sleep(0.01)


def leave_one_to_a_rebuild(world: World, both: tuple[Target, Target], full_for_a_moment: FullForAMoment) -> None:
    """The run has recorded its copy on vault; the one on offsite it could not, and a rebuild does."""
    full_for_a_moment("published", "offsite")
    world.at["offsite.reading"] = lambda: wait_until_recorded(world)
    assert world.try_to_back_up() is not None
    world.at.clear()
    assert [backup.target for backup in world.row().backups] == ["vault"]
    with world.catalogue() as catalogue:
        assert rebuild(both[1], catalogue, BELIEVED).imported == ("r1",)
        assert catalogue.pending_manifest("r1") is not None


def test_a_stop_signal_that_comes_then_takes_nothing_either(world: World, full_for_a_moment: FullForAMoment) -> None:
    full_for_a_moment("published", "vault", lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    require_finished(world, [world.target], {"vault"})
