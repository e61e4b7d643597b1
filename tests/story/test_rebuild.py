"""A catalogue that was lost is rebuilt from what lies on the targets."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.errors import TargetError, VerificationError
from backupd.model import (
    Layout,
    LockReceipt,
    Outcome,
    Phase,
    Position,
    Reason,
    ReplicaPosition,
    RunDetails,
    RunStatus,
    Sample,
    SnapshotFacts,
    Throughput,
    Verdict,
)
from backupd.rebuild import copy_on, rebuild
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import MemoryTarget
from tests.story.world import World

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(tmp_path / "catalogue.db") as opened:
        yield opened


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Catalogue]:
    """The catalogue of a host that knows nothing."""
    with Catalogue.open(tmp_path / "empty.db") as opened:
        yield opened


def store(target: MemoryTarget, run_id: str, *, run: RunDetails | None = None, at: datetime = NOW) -> None:
    target.now = at
    with target.writing("nightly", run_id, "data.tar.zst") as writer:
        writer.write(b"12345")
    target.publish(replace(MANIFEST, run_id=run_id, run=run))


def back_up(catalogue: Catalogue, run_id: str, *targets: MemoryTarget, attention: str = "") -> None:
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.took(Phase.COPY, 2.5)
        run.verdict(Verdict(Outcome.START, Reason.SETTLED, "3 windows within 10 %", 61.5))
        run.position(Position("binlog.000007", 4242, "0-1-99", (ReplicaPosition("", "source.000001", 17, "0-2-3"),)))
        run.lock(LockReceipt("backup-stage", 2, 0.5, 0.031, "metadata-locks", lsn=1 << 40))
        run.snapshot(SnapshotFacts("bk_r1", "labvg/data", Layout.STRIPED, 3, 65536, 4096, 1 << 30, 700))
        run.samples([Sample(1.0, "settle", iops=5.0)])
        run.throughput((Throughput("read", 1000, 0.5), Throughput("compress", 1000, 1.5)))
        if attention:
            run.attention(attention)
        so_far = run.so_far()
        for target in targets:
            store(target, run_id, run=so_far)
        run.complete([copy_on(target, replace(MANIFEST, run_id=run_id)) for target in targets])


def comparable(run: RunDetails) -> RunDetails:
    """Without what no manifest can know: the process, its samples, and the instant after the manifest was written."""
    return replace(run, pid=None, samples=(), ended_at=None)


def test_the_rows_of_a_lost_catalogue_come_back_from_its_targets(catalogue: Catalogue, empty: Catalogue) -> None:
    here, there = MemoryTarget("here"), MemoryTarget("there")
    back_up(catalogue, "r1", here, there)
    back_up(catalogue, "r2", here, attention="target there has no copy of this run")
    for target in (here, there):
        rebuild(target, empty).require_complete()
    assert [comparable(run) for run in empty.runs()] == [comparable(run) for run in catalogue.runs()]
    assert [run.status for run in empty.runs()] == [RunStatus.ATTENTION, RunStatus.SUCCESS]
    assert all(run.ended_at == NOW for run in empty.runs())
    assert empty.audit_trail().chain.first_fault is None


def test_what_a_run_left_on_its_targets_is_enough_to_know_it_by(world: World, empty: Catalogue) -> None:
    """Its real manifests: all but its process, its samples and its very last instant."""
    world.others = [MemoryTarget("other")]
    row = world.back_up(job=world.job(targets=("vault", "other")))
    for target in world.tools.targets:
        rebuild(target, empty).require_complete()
    assert comparable(empty.run("r1")) == comparable(row)


def test_rows_that_are_there_stay_as_they_are(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    back_up(catalogue, "r1", here)
    catalogue.pin("r1", "note")
    before = catalogue.runs()
    rebuilding = rebuild(here, catalogue)
    assert (rebuilding.imported, rebuilding.known) == ((), ("r1",))
    assert catalogue.runs() == before


def test_a_backup_of_before_manifests_told_of_their_run_is_known_as_a_success(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    store(here, "r1", at=NOW)
    assert rebuild(here, empty).imported == ("r1",)
    run = empty.run("r1")
    assert (run.job, run.host, run.status, run.started_at) == (
        "nightly", "db1", RunStatus.SUCCESS, MANIFEST.created_at
    )  # fmt: skip
    assert run.backup == copy_on(here, replace(MANIFEST, run_id="r1"))


def test_backups_are_imported_oldest_first_and_of_one_job_where_it_is_named(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id, days in (("r2", 1), ("r3", 0), ("r1", 2)):
        store(here, run_id, at=NOW - timedelta(days=days))
    assert rebuild(here, empty, job="weekly").imported == ()
    assert rebuild(here, empty, job="nightly").imported == ("r1", "r2", "r3")


def test_an_unfinished_backup_is_none(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    with here.writing("nightly", "r1", "data.tar.zst") as writer:
        writer.write(b"12345")
    rebuilding = rebuild(here, empty)
    assert (rebuilding.imported, rebuilding.unfinished) == ((), ("r1",))
    assert empty.runs() == []


def test_a_broken_manifest_is_told_and_keeps_no_other_from_being_imported(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id in ("r1", "r2", "r3", "r4"):
        store(here, run_id)
    broken, copied = ("nightly", "r2", "manifest.json"), ("nightly", "r3", "manifest.json")
    here.stored[broken] = here.stored[broken].replace(b'"db1"', b'"db2"')
    here.stored[copied] = here.stored["nightly", "r1", "manifest.json"]
    rebuilding = rebuild(here, empty)
    assert rebuilding.imported == ("r1", "r4")
    with pytest.raises(VerificationError, match=r"r2: the manifest was changed .*r3: its manifest is that of run r1"):
        rebuilding.require_complete()


def test_a_manifest_that_cannot_be_read_is_the_targets_fault(empty: Catalogue) -> None:
    here = MemoryTarget("here")
    for run_id in ("r1", "r2"):
        store(here, run_id)
    here.calls, here.fail_at_call = 0, 2
    rebuilding = rebuild(here, empty)
    assert rebuilding.imported == ("r2",)
    with pytest.raises(TargetError, match="not all manifests could be read: r1"):
        rebuilding.require_complete()


def test_a_run_that_is_still_at_work_is_left_alone(catalogue: Catalogue) -> None:
    here = MemoryTarget("here")
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        store(here, "r1", run=run.so_far())
        assert rebuild(here, catalogue).imported == ()
        run.complete((copy_on(here, replace(MANIFEST, run_id="r1")),))
    assert len(catalogue.run("r1").backups) == 1
