"""A catalogue that was lost is rebuilt from what lies on the targets."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import DrillCheckConfig
from backupd.config.rules import MOST_CHECKS
from backupd.host.claims import Claims
from backupd.mysql.own_checks import judged
from backupd.operations.backup.contents import run_section
from backupd.operations.ownership import Ownership
from backupd.operations.recorded_copy import copy_on
from backupd.operations.restore.proofs import leave_proof, proofs_of
from backupd.operations.upkeep.audit import check_trail
from backupd.operations.upkeep.dead_run_journal import died
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy import manifest as manifests
from backupd.policy.owner_record import OwnerRecord
from backupd.policy.trust import Trust
from backupd.targets import BackupSource
from backupd.vocabulary.errors import TargetError, VerificationError
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Sample, Throughput, Verdict
from backupd.vocabulary.records import Check, Drill, DrilledMoment, Phase, RunDetails, RunKind, RunStatus, SnapshotFacts
from backupd.vocabulary.run_section import SnapshotSection, VerdictSection
from backupd.vocabulary.servers import LockReceipt, Position, ReplicaPosition
from backupd.vocabulary.volumes import Layout
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.world import World

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
GONE_OBJECT = ("nightly", "r1", "data-1.tar.zst")
TABLES = Check("tables", True, "3", "3")


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(tmp_path / "catalogue.db", machine=lambda: Machine("db1")) as opened:
        yield opened


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Catalogue]:
    """The catalogue of a host that knows nothing."""
    with Catalogue.open(tmp_path / "empty.db") as opened:
        yield opened


def store(target: MemoryTarget, run_id: str, *, run: RunDetails | None = None, at: datetime = NOW) -> None:
    target.now = at
    with target.writing("nightly", run_id, "data-1.tar.zst") as writer:
        writer.write(b"12345")
    manifest = replace(MANIFEST, run_id=run_id)
    if run is not None:
        manifest = replace(manifest, run=run_section(run), position=run.position or Position())
    target.publish(manifest)


def back_up(catalogue: Catalogue, run_id: str, *targets: MemoryTarget, attention: str = "") -> None:
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.took(Phase.COPY, 2.5)
        run.verdict(Verdict(GateOutcome.START, Reason.SETTLED, "3 windows within 10 %", 61.5))
        run.position(Position("binlog.000007", 4242, "0-1-99", (ReplicaPosition("", "source.000001", 17, "0-2-3"),)))
        run.lock(LockReceipt("backup-stage", 2, 0.5, 0.031, "metadata-locks", lsn=1 << 40))
        run.snapshot(SnapshotFacts("bk_r1", "labvg/data", Layout.STRIPED, 3, 65536, 4096, 1 << 30, 700, taken_at=NOW))
        run.bill(Bill(50.5, 12.25, 1 << 20, 3, 30.5, 7.5))
        run.losses(Losses(Counted.LOGGED, 50.5, 110.5, None, 4000, 60.5))
        run.samples([Sample(1.0, "settle", iops=5.0)])
        run.throughput((Throughput("read", 1000, 0.5), Throughput("compress", 1000, 1.5)))
        if attention:
            run.attention(attention)
        so_far = run.so_far()
        for target in targets:
            store(target, run_id, run=so_far)
        run.complete([copy_on(target, target.manifest("nightly", run_id)) for target in targets])


def comparable(run: RunDetails) -> RunDetails:
    """Without what no manifest can know: the process, its samples, and the instant after the manifest was written."""
    return replace(run, pid=None, samples=(), ended_at=None)


def test_the_rows_of_a_lost_catalogue_come_back_from_its_targets(catalogue: Catalogue, empty: Catalogue) -> None:
    here, there = MemoryTarget("here"), MemoryTarget("there")
    back_up(catalogue, "r1", here, there)
    back_up(catalogue, "r2", here, attention="target there has no copy of this run")
    for target in (here, there):
        rebuild(target, empty, BELIEVED).require_complete()
    assert [comparable(run) for run in empty.runs()] == [comparable(run) for run in catalogue.runs()]
    assert [run.status for run in empty.runs()] == [RunStatus.ATTENTION, RunStatus.SUCCESS]
    assert all(run.ended_at == MANIFEST.created_at for run in empty.runs())
    assert empty.audit_trail().chain.first_fault is None


def test_what_drills_proved_comes_back_with_the_backup(catalogue: Catalogue, empty: Catalogue, tmp_path: Path) -> None:
    here, ownership = owned(catalogue, tmp_path)
    back_up(catalogue, "r1", here)
    for hours, ok in ((1, True), (2, False)):
        own = Check("checks.orders", ok, "at least 1", "0\n\x1b", asked="SELECT 'é'\n  -- why")
        drill = Drill("r1", ok, (Check("tables", ok, "3", "3"), own), 7.5, NOW + timedelta(hours=hours))
        catalogue.record_drill(drill)
        assert leave_proof([was_read(here)], drill, ownership, host="db1") == ()
    for hours, moment in ((3, DrilledMoment("GTID 0-1-7", NOW)), (4, DrilledMoment("the latest moment"))):
        drill = Drill("r1", True, (TABLES,), 7.5, NOW + timedelta(hours=hours), moment=moment)
        catalogue.record_drill(drill)
        assert leave_proof([was_read(here)], drill, ownership, host="db1") == ()
    here.stored["nightly", "r1", "proof-20200101T000000Z.json"] = b'{"run_id": "r1", "ok": true}'
    here.stored["nightly", "r1", "proof-20200102T000000Z.json"] = b"[" * 100_000
    rebuild(here, empty, BELIEVED).require_complete()
    assert empty.run("r1").drills == catalogue.run("r1").drills
    assert empty.run("r1").doubted


def test_a_proof_that_has_checked_nothing_counts_for_nothing(catalogue: Catalogue, tmp_path: Path) -> None:
    here, ownership = owned(catalogue, tmp_path)
    back_up(catalogue, "r1", here)
    proof_beside(here, Drill("r1", True, (), 7.5, NOW), ownership)
    assert proofs_of(was_read(here)) == ()


def signed_by(ownership: Ownership) -> Trust:
    """What is not signed is believed, and of what is, what this machine has signed."""
    return replace(BELIEVED, keys=frozenset({ownership.signer().public}))


def proof_beside(target: MemoryTarget, drill: Drill, ownership: Ownership) -> None:
    assert leave_proof([was_read(target)], drill, ownership, host="db1") == ()


@pytest.mark.parametrize("first", ["here", "there"])
def test_a_proof_that_lies_beside_one_copy_comes_back_whichever_target_is_read_first(
    catalogue: Catalogue, empty: Catalogue, tmp_path: Path, first: str
) -> None:
    here, ownership = owned(catalogue, tmp_path)
    there = MemoryTarget("there")
    back_up(catalogue, "r1", here, there)
    drill = Drill("r1", True, (Check("tables", True, "3", "3"),), 7.5, NOW + timedelta(hours=1))
    proof_beside(here, drill, ownership)
    for target in sorted((here, there), key=lambda target: target.name != first):
        assert rebuild(target, empty, signed_by(ownership)).imported == ("r1",)
    assert empty.run("r1").drills == (drill,)
    assert [rebuild(target, empty, signed_by(ownership)).known for target in (here, there)] == [("r1",), ("r1",)]
    assert check_trail(empty.audit_trail(), [], []).all_flaws == ()


def test_a_catalogue_that_was_set_back_learns_of_the_drills_since(catalogue: Catalogue, tmp_path: Path) -> None:
    here, ownership = owned(catalogue, tmp_path)
    back_up(catalogue, "r1", here)
    catalogue.pin("r1", "note")
    kept = Drill("r1", True, (Check("tables", True, "3", "3"),), 7.5, NOW + timedelta(hours=1))
    catalogue.record_drill(kept)
    proof_beside(here, replace(kept, seconds=99.0), ownership)
    failed = Drill("r1", False, (Check("tables", False, "3", "2"),), 7.5, NOW + timedelta(hours=2))
    proof_beside(here, failed, ownership)
    before = catalogue.run("r1")
    assert rebuild(here, catalogue, signed_by(ownership)).imported == ("r1",)
    assert catalogue.run("r1") == replace(before, drills=(kept, failed))
    assert catalogue.run("r1").doubted
    told = catalogue.audit_entries(limit=1)[0]
    assert (told.event, told.detail["ok"], told.detail["target"]) == ("drilled", False, "here")
    assert (told.detail["proof"], told.detail["by"]) == ("proof-20261121T060000Z.json", here.machine)
    assert check_trail(catalogue.audit_trail(), [], []).all_flaws == ()


def test_a_proof_that_could_not_be_read_is_added_the_next_time_with_the_position_that_it_found(
    catalogue: Catalogue, empty: Catalogue, tmp_path: Path
) -> None:
    here, ownership = owned(catalogue, tmp_path)
    store(here, "r1")
    unlocked = replace(here.manifest("nightly", "r1"), locked=False)
    here.stored["nightly", "r1", "manifest.json"] = manifests.to_text(unlocked).encode()
    position = Position("binlog.000009", 77, "0-1-120", ())
    drill = Drill("r1", True, (TABLES,), 7.5, NOW + timedelta(hours=1), position=position)
    proof_beside(here, drill, ownership)
    ((key, content),) = ((key, value) for key, value in here.stored.items() if key[2].startswith("proof-"))
    here.stored[key] = content[:-9]
    assert rebuild(here, empty, BELIEVED).imported == ("r1",)
    assert (empty.run("r1").drills, empty.run("r1").position) == ((), None)
    here.stored[key] = content
    assert rebuild(here, empty, signed_by(ownership)).imported == ("r1",)
    run = empty.run("r1")
    assert (run.drills, run.position, run.derived) == ((drill,), position, True)


def test_a_proof_has_room_for_all_the_checks_that_a_job_can_have(catalogue: Catalogue, tmp_path: Path) -> None:
    here, ownership = owned(catalogue, tmp_path)
    back_up(catalogue, "r1", here)
    widest = "\U0001d518" * 5000  # twelve bytes each in the document
    own = DrillCheckConfig(name="a" * 41, sql=widest, equals=widest)
    checks = (judged(own, [(f"{widest}?",)], taken_at=NOW),) * MOST_CHECKS
    drill = Drill("r1", False, checks, 7.5, NOW)
    source = was_read(here)
    assert leave_proof([source], drill, ownership, host="db1") == ()
    assert proofs_of(source) == (drill,)


@pytest.mark.parametrize("whose", ["nobody answers", "another has written there"])
def test_a_proof_that_cannot_be_left_is_told(catalogue: Catalogue, tmp_path: Path, whose: str) -> None:
    here, ownership = owned(catalogue, tmp_path)
    back_up(catalogue, "r1", here)
    if whose == "nobody answers":
        here.calls, here.fail_at_call = 0, 1
    else:
        assert here.succeed(OwnerRecord(here.machine, 2, "e" * 32, "a-clone", NOW))
    (told,) = leave_proof([was_read(here)], Drill("r1", True, (), 1.0, NOW), ownership, host="db1")
    assert "could not be stored on target here; a rebuilt catalogue will not have it" in told


def test_no_proof_is_left_beside_another_machines_backup(catalogue: Catalogue, tmp_path: Path) -> None:
    here, ownership = owned(catalogue, tmp_path)
    theirs = here.of_machine("db2-0a1b2c3e")
    before = dict(here.stored)
    drill = Drill("r1", True, (), 1.0, NOW)
    assert leave_proof([was_read(theirs)], drill, ownership, host="db2") == ()
    assert here.stored == before


def was_read(target: MemoryTarget) -> BackupSource:
    """The run's backup there, as it is once a drill has read it."""
    source = BackupSource(target, "nightly", "r1", BELIEVED)
    source.was_read.set()
    return source


def owned(catalogue: Catalogue, folder: Path) -> tuple[MemoryTarget, Ownership]:
    """A target on which the catalogue's machine has written last."""
    target = MemoryTarget("here")
    ownership = Ownership(catalogue, Machine("db1"), Claims(folder / "run"), renewal_seconds=60.0)
    ownership.take(target)
    return target, ownership


def test_what_a_run_left_on_its_targets_is_enough_to_know_it_by(world: World, empty: Catalogue) -> None:
    """Its real manifests: all but its process, its samples, its very last instant, and its copies' reading back."""
    world.others = [MemoryTarget("other")]
    row = world.back_up(job=world.job(targets=("vault", "other")))
    for target in world.tools.targets:
        rebuild(target, empty, BELIEVED).require_complete()
    before = replace(
        row,
        phases={phase: seconds for phase, seconds in row.phases.items() if phase is not Phase.VERIFY},
        throughput=tuple(stage for stage in row.throughput if stage.of_copy),
        backups=tuple(copy_on(target, target.manifest("nightly", "r1")) for target in world.tools.targets),
    )
    assert comparable(empty.run("r1")) == comparable(before)


def test_rows_that_are_there_stay_as_they_are(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    back_up(catalogue, "r1", here)
    catalogue.pin("r1", "note")
    before = catalogue.runs()
    rebuilding = rebuild(here, catalogue, BELIEVED)
    assert (rebuilding.imported, rebuilding.known) == ((), ("r1",))
    assert catalogue.runs() == before


def test_words_that_only_a_newer_backupd_says_are_left_out_and_the_run_is_known(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    snapshot = SnapshotSection("bk_r1", "labvg/data", "zoned", 1, None, 4096, 1 << 30, None, None, "", 0, "")
    verdict = VerdictSection("negotiate", "settled", "", 1.0)
    section = replace(
        MANIFEST.run, phases={"copy": 2.5, "siesta": 1.0}, verdict=verdict, snapshot=snapshot, attention=("look",)
    )
    here.now = NOW
    with here.writing("nightly", "r1", "data-1.tar.zst") as writer:
        writer.write(b"12345")
    here.publish(replace(MANIFEST, run_id="r1", run=section, layout="zoned"))
    assert rebuild(here, empty, BELIEVED).imported == ("r1",)
    run = empty.run("r1")
    assert (run.job, run.status, run.started_at, run.ended_at) == (
        "nightly", RunStatus.ATTENTION, section.started_at, MANIFEST.created_at
    )  # fmt: skip
    assert (run.phases, run.verdict, run.snapshot, run.attention) == ({Phase.COPY: 2.5}, None, None, ("look",))
    assert run.backup == copy_on(here, here.manifest("nightly", "r1"))


def test_backups_are_imported_oldest_first_and_of_one_job_where_it_is_named(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id, days in (("r2", 1), ("r3", 0), ("r1", 2)):
        store(here, run_id, at=NOW - timedelta(days=days))
    assert rebuild(here, empty, BELIEVED, job="weekly").imported == ()
    assert rebuild(here, empty, BELIEVED, job="nightly").imported == ("r1", "r2", "r3")


def test_an_unfinished_backup_is_none(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    with here.writing("nightly", "r1", "data-1.tar.zst") as writer:
        writer.write(b"12345")
    rebuilding = rebuild(here, empty, BELIEVED)
    assert (rebuilding.imported, rebuilding.unfinished) == ((), ("r1",))
    assert empty.runs() == []


def test_a_broken_manifest_is_told_and_keeps_no_other_from_being_imported(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id in ("r1", "r2", "r3", "r4"):
        store(here, run_id)
    broken, copied = ("nightly", "r2", "manifest.json"), ("nightly", "r3", "manifest.json")
    here.stored[broken] = here.stored[broken].replace(b'"db1"', b'"db2"')
    here.stored[copied] = here.stored["nightly", "r1", "manifest.json"]
    rebuilding = rebuild(here, empty, BELIEVED)
    assert rebuilding.imported == ("r1", "r4")
    with pytest.raises(
        VerificationError, match=r"r2: the manifest was changed .*r3: the manifest of run r3 .* is that of run r1"
    ):
        rebuilding.require_complete()


def test_a_manifest_that_cannot_be_read_is_the_targets_fault(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id in ("r1", "r2"):
        store(here, run_id)
    here.calls, here.fail_at_call = 0, 2
    rebuilding = rebuild(here, empty, BELIEVED)
    assert rebuilding.imported == ("r2",)
    with pytest.raises(TargetError, match="not all backups could be added as good ones: r1"):
        rebuilding.require_complete()


def test_a_run_that_died_by_a_catalogue_of_an_earlier_hour_has_its_backup(catalogue: Catalogue) -> None:
    """The host was set back to an image that had been made while the run was at work: nothing tells of its copy."""
    here, grave = MemoryTarget("here"), ExitStack()  # kept, or else the run's block would end after all
    grave.enter_context(catalogue.open_run("nightly", "db1", run_id="r1"))
    catalogue.end_dead_run("r1", died(RunKind.BACKUP, whole=True, pending=()))
    failed = catalogue.run("r1")
    position = Position("binlog.000007", 4242, "0-1-99", ())
    whole = replace(failed, phases={Phase.COPY: 2.5}, position=position, attention=("look",))
    store(here, "r1", run=whole)
    assert rebuild(here, catalogue, BELIEVED).imported == ("r1",)
    found = catalogue.run("r1")
    assert found == replace(
        whole,
        status=RunStatus.ATTENTION,
        error=None,
        ended_at=MANIFEST.created_at,
        backups=(copy_on(here, here.manifest("nightly", "r1")),),
        attention=("look", "its process died; the copy on here is complete, and `backupd catalogue rebuild` added it"),
    )
    assert catalogue.audit_trail().chain.statuses == {"r1": "attention"}
    assert rebuild(here, catalogue, BELIEVED).known == ("r1",)
    assert catalogue.run("r1") == found


def test_of_a_run_that_died_a_copy_of_which_objects_are_missing_is_not_told_as_complete(catalogue: Catalogue) -> None:
    here, grave = MemoryTarget("here"), ExitStack()
    grave.enter_context(catalogue.open_run("nightly", "db1", run_id="r1"))
    catalogue.end_dead_run("r1", died(RunKind.BACKUP, whole=True, pending=()))
    store(here, "r1")
    del here.stored[GONE_OBJECT]
    assert [run_id for run_id, _ in rebuild(here, catalogue, BELIEVED).failures] == ["r1"]
    found = catalogue.run("r1")
    assert found.backup is None
    assert found.attention == (
        "its process died; the copy on here is broken, and `backupd catalogue rebuild` added it",
    )


def test_what_lies_beside_a_run_that_failed_is_not_looked_at_more_closely(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    with pytest.raises(TargetError), catalogue.open_run("nightly", "db1", run_id="r1"):
        raise TargetError("no room")
    store(here, "r1")
    del here.stored[GONE_OBJECT]
    rebuilding = rebuild(here, catalogue, BELIEVED)
    assert (rebuilding.known, rebuilding.failures) == (("r1",), ())
    assert catalogue.run("r1").backups == ()


def test_a_run_that_is_still_at_work_is_left_alone(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        store(here, "r1", run=run.so_far())
        assert rebuild(here, catalogue, BELIEVED).imported == ()
        run.complete((copy_on(here, replace(MANIFEST, run_id="r1")),))
    assert len(catalogue.run("r1").backups) == 1


def test_a_backup_of_which_objects_are_missing_is_entered_as_a_broken_one_and_told(empty: Catalogue) -> None:
    """It fills no place among the good ones, and retention can remove it: else nobody could ever strike it."""
    here = MemoryTarget("here")
    for run_id in ("r1", "r2", "r3"):
        store(here, run_id)
    del here.stored[GONE_OBJECT]
    here.stored["nightly", "r2", "data-1.tar.zst"] += b"more"
    rebuilding = rebuild(here, empty, BELIEVED)
    assert (rebuilding.imported, [run_id for run_id, _ in rebuilding.failures]) == (("r3",), ["r1", "r2"])
    with pytest.raises(VerificationError, match=r"r1: target here does not list .*data-1.tar.zst is missing; r2: "):
        rebuilding.require_complete()
    assert [run.run_id for run in empty.runs() if run.backup is not None] == ["r3"]
    (lost,) = empty.run("r1").backups
    assert (lost.removed_at, "data-1.tar.zst is missing" in lost.broken) == (None, True)
    found = [(entry.event, entry.subject) for entry in reversed(empty.audit_entries())]
    assert found == [
        ("imported", "r1"), ("found-broken", "r1"), ("imported", "r2"), ("found-broken", "r2"), ("imported", "r3"),
    ]  # fmt: skip
    again = rebuild(here, empty, BELIEVED)
    assert (again.known, again.failures) == (("r1", "r2", "r3"), ())


def test_a_target_that_cannot_say_what_it_has_breaks_no_backup(
    empty: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = MemoryTarget("here")
    store(here, "r1")
    monkeypatch.setattr(here, "objects", lambda _job, _run_id: {})  # and it returns what it does not list
    rebuilding = rebuild(here, empty, BELIEVED)
    ((_, error),) = rebuilding.failures
    assert type(error) is TargetError
    assert empty.runs() == []


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "looks whole"])
def test_what_was_broken_before_its_disk_was_out_is_so_when_it_is_back(catalogue: Catalogue, *, is_gone: bool) -> None:
    here = MemoryTarget("here")
    for run_id in ("r1", "r2"):
        back_up(catalogue, run_id, here)
    catalogue.verified("r1", "here", NOW)
    catalogue.found_broken("r1", "here", "data-1.tar.zst is damaged")
    if is_gone:
        del here.stored[GONE_OBJECT]
    catalogue.vanished(["r1"], "here", because="no longer on the target", told_with="r2")
    rebuilding = rebuild(here, catalogue, BELIEVED)
    assert rebuilding.known == ("r2",)
    ((told, error),) = rebuilding.failures
    assert (rebuilding.imported, told) == ((), "r1")
    if not is_gone:
        assert error.message == "it was found broken before it was missing on target here: data-1.tar.zst is damaged"
        assert error.hint == "`backupd verify r1` reads it again"
    (back,) = catalogue.run("r1").backups
    assert (back.removed_at, back.verified_at) == (None, NOW)
    assert ("is missing" if is_gone else "data-1.tar.zst is damaged") in back.broken
    assert [run.run_id for run in catalogue.runs_with_backup("nightly")] == ["r2"]
    again = rebuild(here, catalogue, BELIEVED)
    assert (again.known, again.failures) == (("r1", "r2"), ())


def test_what_is_there_in_place_of_a_broken_one_has_not_its_fault(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    back_up(catalogue, "r1", here)
    catalogue.found_broken("r1", "here", "data-1.tar.zst is damaged")
    catalogue.removed("r1", "here", because="expired")
    run = catalogue.run("r1")
    (anew,) = (replace(backup, manifest_digest="f" * 64, broken="", removed_at=None) for backup in run.backups)
    assert catalogue.import_run(replace(run, backups=(anew,)))
    assert catalogue.run("r1").backups[0].broken == ""
