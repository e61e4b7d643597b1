"""A job with several targets: one read, a copy on each; what fails on one is told, and costs the others nothing."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from backupd.catalogue import store
from backupd.catalogue.store import RunRecord
from backupd.operations.backup import preflight
from backupd.operations.backup.contents import run_section
from backupd.operations.backup.phases import BackupTelling
from backupd.operations.backup.run import run_backup
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import CatalogueError, ExitStatus, Refused, TargetError
from backupd.vocabulary.records import HoldingKind, Level, Phase, RunStatus
from backupd.vocabulary.storage import Backup
from tests.fakes.target import MemoryTarget
from tests.story.test_every_failure import assert_failed_and_clean
from tests.story.world import World

OBJECTS = {"data-1.tar.zst", "binlog.tar.zst", "index.jsonl.zst", "manifest.json"}


@pytest.fixture
def other(world: World) -> MemoryTarget:
    """The job's second target."""
    world.others = [MemoryTarget(name="offsite")]
    return world.others[0]


def on(target: MemoryTarget) -> set[str]:
    assert target.writing_now == set()
    return {name for _, _, name in target.stored}


def test_each_target_has_the_same_backup(world: World, other: MemoryTarget) -> None:
    row = world.back_up()
    assert (row.status, row.attention) == (RunStatus.SUCCESS, ())
    assert [backup.target for backup in row.backups] == ["vault", "offsite"]
    assert [backup.verified_at is not None for backup in row.backups] == [True, True]
    assert row.backups[0] == replace(
        row.backups[1], target="vault", location=row.backups[0].location, verified_at=row.backups[0].verified_at
    )
    assert world.target.manifest("nightly", "r1") == other.manifest("nightly", "r1")
    for name in OBJECTS:
        assert (world.backups / "r1" / name).read_bytes() == other.stored["nightly", "r1", name]
    assert world.left() == []


def test_the_snapshot_is_read_once(world: World, other: MemoryTarget) -> None:
    done: list[int] = []
    row = world.back_up(telling=BackupTelling(copied=lambda now, _total: done.append(now)))
    assert {stage.stage: stage.bytes for stage in row.throughput if stage.stage.startswith("write:")} == {
        f"write:{backup.target}": backup.bytes_stored for backup in row.backups
    }
    assert max(done) <= row.backups[0].bytes_read
    assert on(other) == OBJECTS


@pytest.mark.exhaustive
def test_a_target_that_fails_at_any_call_leaves_one_good_copy_and_is_told(world: World) -> None:
    """From the first byte to the manifest that is read back: the other target has a backup, and this one nothing."""
    told = set()
    for n in range(1, 100):
        world.memory, world.others = MemoryTarget(name="vault"), [MemoryTarget(name="offsite", fail_at_call=n)]
        row = world.back_up(f"r{n}")
        if world.others[0].calls < n:
            break
        if len(row.backups) == 2:  # older owner records may stay
            continue
        assert row.status is RunStatus.ATTENTION
        assert [backup.target for backup in row.backups] == ["vault"]
        assert row.attention[0].startswith("target offsite has no copy of this run: ")
        assert row.attention[0].endswith("; the backup is on vault")
        assert world.target.manifest("nightly", f"r{n}").run_id == f"r{n}"
        assert (on(world.others[0]), world.left()) == (set(), [])
        told.add(row.attention[0])
    assert n > 10
    assert len(told) > 10
    assert (row.status, len(row.backups)) == (RunStatus.SUCCESS, 2)


@pytest.mark.exhaustive
def test_targets_that_fail_at_any_call_leave_nothing_and_no_success(world: World) -> None:
    """The second one outlives the first by a few calls: every fourth run is enough to fail at each of them."""
    spared = []
    for n in range(1, 100, 4):
        world.memory = MemoryTarget(name="vault", fail_at_call=n)
        world.others = [MemoryTarget(name="offsite", fail_at_call=n + 3)]
        error = world.try_to_back_up(f"r{n}")
        row = world.row(f"r{n}")
        if world.others[0].calls < n + 3:
            break
        if error is None:  # an older owner record that stays is nobody's failure
            assert len(row.backups) == 1
            spared.append(n)
            continue
        assert (row.status, row.backups) in {(RunStatus.FAILED, ()), (RunStatus.REFUSED, ())}
        assert (world.stored(), world.left()) == ([], [])
    assert n > 10
    assert len(spared) <= 1
    assert row.status in {RunStatus.SUCCESS, RunStatus.ATTENTION}


@pytest.mark.parametrize("trouble", [{"flip_bit": 12_345}, {"drop_bytes": 1}])
def test_a_copy_that_reads_back_differently_is_no_copy(world: World, trouble: dict[str, int]) -> None:
    world.others = [MemoryTarget(name="offsite", **trouble)]  # type: ignore[arg-type]
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert "target offsite has no copy of this run: " in " ".join(row.attention)
    assert (on(world.others[0]), world.left()) == (set(), [])


def test_the_first_target_may_be_the_one_that_fails(world: World, other: MemoryTarget) -> None:
    world.memory = MemoryTarget(name="vault", fail_at_call=5)
    row = world.back_up()
    assert row.backup is not None
    assert (row.status, row.backup.target) == (RunStatus.ATTENTION, "offsite")
    assert (on(world.memory), on(other)) == (set(), OBJECTS)


def test_when_every_target_fails_the_run_has_failed_with_the_first_error(world: World) -> None:
    vault = world.memory = MemoryTarget(name="vault")
    world.others = [MemoryTarget(name="offsite")]
    world.at["host.mount"] = lambda: setattr(vault, "fail_at_call", vault.calls + 1)
    world.at["host.require_intact"] = lambda: setattr(world.others[0], "fail_at_call", world.others[0].calls + 1)
    error = world.try_to_back_up()
    assert isinstance(error, TargetError)
    assert error.message == f"target vault failed at call {vault.fail_at_call}"
    row = world.row()
    assert row.error is not None
    assert "target offsite: target offsite failed at call" in row.error.message
    assert_failed_and_clean(world, row, error, ExitStatus.TARGET)
    assert world.stored() == []


def test_a_target_that_is_unusable_before_the_run_is_left_out_and_told(world: World) -> None:
    world.others = [MemoryTarget(name="offsite", fail_at_call=1)]
    found = {
        finding.name: finding
        for finding in preflight.examine(world.job(), world.tools, last_stored_bytes=None).findings
    }
    assert found["target offsite"].level is Level.WARNING
    assert "the run would continue without it" in found["target offsite"].detail
    world.others = [MemoryTarget(name="offsite", fail_at_call=1)]
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert row.attention == (
        "target offsite has no copy of this run: target offsite failed at call 1; the backup is on vault",
    )
    assert world.others[0].calls == 1


@pytest.mark.parametrize("event", ["before the run", "while it is read back"])
def test_a_target_on_which_another_process_waits_for_its_owner_record_costs_the_others_nothing(
    world: World, other: MemoryTarget, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """It does not answer that process, a run of another job for example; nor would it answer us."""
    monkeypatch.setattr("backupd.host.claims._AWAITED_SECONDS", 0.0)
    with ExitStack() as waiting:
        if event == "while it is read back":
            read = other.reading

            def waits(*asked: str, **which: Any) -> AbstractContextManager[Iterator[bytes]]:
                other.reading = read  # type: ignore[method-assign]
                waiting.enter_context(world.tools.claims.owning("offsite"))
                return read(*asked, **which)

            other.reading = waits  # type: ignore[assignment,method-assign]
        else:
            waiting.enter_context(world.tools.claims.owning("offsite"))
        row = world.back_up()
    assert [backup.target for backup in row.backups] == ["vault"]
    assert "target offsite does not answer" in " ".join(row.attention)


def test_of_two_names_of_one_storage_one_has_the_backup_and_the_other_is_told(world: World) -> None:
    """From the first run on, before which nothing there tells them apart."""
    offsite = world.base / "offsite"
    offsite.symlink_to(world.vault)
    world.others = [DirectoryTarget("offsite", offsite, machine=world.name)]  # type: ignore[list-item]
    for run_id in ("r1", "r2"):
        row = world.back_up(run_id)
        assert (row.status, [backup.target for backup in row.backups]) == (RunStatus.ATTENTION, ["vault"])
        assert "target offsite is the same storage as target vault" in " ".join(row.attention)
        assert world.target.manifest("nightly", run_id).run_id == run_id
    found = preflight.examine(world.job(), world.tools, last_stored_bytes=None).findings
    told = next(finding for finding in found if finding.name == "target offsite")
    assert (told.level, told.attention) == (Level.WARNING, True)
    assert "target offsite is the same storage as target vault" in told.detail


def test_what_becomes_one_storage_while_a_run_lives_costs_it_no_backup(world: World) -> None:
    offsite = world.base / "offsite"
    offsite.mkdir()
    world.others = [DirectoryTarget("offsite", offsite, machine=world.name)]  # type: ignore[list-item]

    def mounted_over() -> None:
        shutil.rmtree(offsite)
        offsite.symlink_to(world.vault)

    world.at["host.mount"] = mounted_over
    row = world.back_up()
    assert len(row.backups) == 1
    assert {path.name for path in (world.backups / "r1").iterdir()} == OBJECTS
    assert "is the same storage as target" in " ".join(row.attention)


def test_a_run_without_a_usable_target_is_refused_and_names_them_all(world: World) -> None:
    world.memory, world.others = MemoryTarget(name="vault", free_bytes=9), [MemoryTarget(name="offsite", free_bytes=9)]
    with pytest.raises(Refused, match=r"target vault: .*target offsite: "):
        world.back_up()
    assert world.left() == []


def test_a_copy_that_cannot_be_removed_is_named_and_left_to_recover(world: World, other: MemoryTarget) -> None:
    def fail(job: str, backup_id: str) -> None:
        raise TargetError("removing is denied")

    remove = other.remove
    world.at["host.mount"] = lambda: setattr(other, "fail_at_call", other.calls + 1)
    other.remove = fail  # type: ignore[method-assign]
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert any("clean-up incomplete: removing is denied" in text for text in row.attention)
    other.remove = remove  # type: ignore[method-assign]
    with world.catalogue() as catalogue:
        recovery = clean_up_dead_runs(catalogue, world.tools)
    assert HoldingKind.PARTIAL in {holding.kind for holding in recovery.given_back}
    assert (on(other), world.left()) == (set(), [])
    assert world.target.manifest("nightly", "r1").run_id == "r1"  # the good copy is no remains


def test_a_catalogue_that_fails_once_a_run_is_complete_costs_no_copy_of_it(
    world: World, other: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row says that the backups are there: only that they are still held cannot be struck."""
    with closing(sqlite3.connect(world.places.catalogue, check_same_thread=False)) as another:

        class FullAfterwards(RunRecord):
            def complete(self, backups: Sequence[Backup]) -> None:
                super().complete(backups)
                another.execute("BEGIN IMMEDIATE")

        monkeypatch.setattr(store, "RunRecord", FullAfterwards)
        with (
            world.catalogue(busy_timeout_seconds=0.01) as catalogue,
            pytest.raises(CatalogueError) as caught,
        ):
            run_backup(world.job(), world.tools, catalogue, run_id="r1")
    assert "is locked" in caught.value.message
    monkeypatch.undo()
    row = world.row()
    assert (row.status, [backup.target for backup in row.backups]) == (RunStatus.SUCCESS, ["vault", "offsite"])
    assert world.target.manifest("nightly", "r1") == other.manifest("nightly", "r1")
    with world.catalogue() as catalogue:
        clean_up_dead_runs(catalogue, world.tools).require_complete()
    assert world.left() == []
    assert world.target.manifest("nightly", "r1") == other.manifest("nightly", "r1")


def test_the_manifest_tells_the_run(world: World) -> None:
    row = world.back_up()
    manifest = world.target.manifest("nightly", "r1")
    assert (manifest.run_id, manifest.position, manifest.filesystem) == ("r1", row.position, "xfs")
    before = replace(  # its copies were read back
        row,
        phases={phase: seconds for phase, seconds in row.phases.items() if phase is not Phase.VERIFY},
        throughput=tuple(stage for stage in row.throughput if stage.of_copy),
    )
    assert manifest.run == run_section(before)
    assert len(manifest.audit_head) == 64
