"""What becomes of backups after their run, and the audit chain that tells of it."""

import itertools
import multiprocessing
import sqlite3
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.penalty import Sample, Throughput
from backupd.vocabulary.records import (
    DEATH,
    DIED,
    Check,
    Drill,
    Holding,
    HoldingKind,
    Phase,
    RunDetails,
    RunError,
    RunStatus,
    SnapshotFacts,
)
from backupd.vocabulary.servers import LockReceipt, Position
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
HERE = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32, verified_at=NOW)
THERE = replace(HERE, target="vault", location="s3://vault/nightly/r1")


def finished(catalogue: Catalogue, run_id: str, job: str = "nightly", backups: tuple[Backup, ...] = (HERE,)) -> None:
    with catalogue.open_run(job, "db1", run_id=run_id) as run:
        run.complete(backups)


def drilled(catalogue: Catalogue, run_id: str, at: datetime, *, ok: bool = True) -> None:
    catalogue.record_drill(Drill(run_id, ok, (Check("tables", ok, "3", "3"),), 2.0, at))


def on(run: RunDetails, target: str) -> Backup:
    return next(backup for backup in run.backups if backup.target == target)


def events(path: Path) -> list[tuple[str, str]]:
    with direct(path, busy_timeout_seconds=1) as connection:
        return connection.execute("SELECT event, subject FROM audit ORDER BY number").fetchall()


# --- what becomes of backups -----------------------------------------------------------------------------------------


def test_a_backup_that_was_found_broken_is_not_there_until_it_is_verified_again(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", backups=(HERE, THERE))
    catalogue.found_broken("r1", "disk", "frame 7 of data-1.tar.zst differs")
    found = catalogue.run("r1")
    assert (on(found, "disk").is_there, on(found, "disk").broken) == (False, "frame 7 of data-1.tar.zst differs")
    assert found.backup == THERE
    later = NOW + timedelta(days=3)
    catalogue.verified("r1", "disk", later)
    assert catalogue.run("r1").backups == (replace(HERE, verified_at=later), THERE)


def test_what_was_found_of_a_copy_while_its_run_went_on_with_another_outlives_the_run(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        for ordinal, copy in enumerate((HERE, THERE)):
            run.published(copy, Holding(HoldingKind.PARTIAL, f"{copy.target}/nightly/r1"), ordinal=ordinal)
            catalogue.found_broken("r1", "disk", "frame 7 differs")
        run.complete((HERE, THERE))
    found = catalogue.run("r1")
    assert found.backups == (replace(HERE, broken="frame 7 differs"), THERE)
    assert (found.status, found.backup) == (RunStatus.SUCCESS, THERE)  # as if it had been found after the run


def test_the_row_of_a_removed_backup_stays_with_the_reason_and_is_not_touched_again(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", backups=(HERE, THERE))
    catalogue.removed("r1", "disk", because="expired: not among the last 7")
    gone = on(catalogue.run("r1"), "disk")
    assert gone.removed_at is not None
    catalogue.removed("r1", "disk", because="again")
    catalogue.verified("r1", "disk", NOW + timedelta(days=1))
    catalogue.found_broken("r1", "disk", "it is not there")
    assert on(catalogue.run("r1"), "disk") == gone
    assert gone.removed_because == "expired: not among the last 7"
    assert catalogue.run("r1").backup == THERE


def test_what_the_catalogue_does_not_have_changes_nothing_and_tells_nothing(catalogue: Catalogue, path: Path) -> None:
    finished(catalogue, "r1")
    before = (catalogue.run("r1"), events(path))
    catalogue.verified("r1", "elsewhere", NOW)
    catalogue.found_broken("r2", "disk", "flipped")
    catalogue.removed("r2", "disk", because="expired")
    catalogue.unpin("r1")
    assert (catalogue.run("r1"), events(path)) == before


def test_a_pin_is_kept_with_its_note_until_it_is_taken_off(catalogue: Catalogue) -> None:
    finished(catalogue, "r1")
    catalogue.pin("r1", "before the upgrade")
    catalogue.pin("r1", "before the upgrade to 11.8")
    pin = catalogue.runs()[0].pin
    assert pin is not None
    assert (pin.note, pin.at.utcoffset()) == ("before the upgrade to 11.8", timedelta(0))
    catalogue.unpin("r1")
    assert catalogue.run("r1").pin is None


def test_the_history_has_in_figures_what_the_whole_record_says_of_a_run(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", backups=(HERE, THERE))
    finished(catalogue, "r2")
    catalogue.found_broken("r1", "disk", "frame 7 differs")
    catalogue.pin("r1", "before the upgrade")
    for ok in (True, False):
        drilled(catalogue, "r1", NOW, ok=ok)
    catalogue.record_drill(Drill("r1", False, (), 2.0, NOW, undecided="it took too long"))
    newest, told = catalogue.costs()
    assert (told.copies, told.copies_broken, told.bytes_stored, told.verified_at) == (1, 1, 400, NOW)
    assert told.drill_moment is None
    assert (told.drills, told.drill_ok, told.pinned) == (3, False, "before the upgrade")
    assert (newest.copies, newest.copies_broken, newest.drills, newest.drill_ok, newest.pinned) == (1, 0, 0, None, None)
    assert catalogue.run("r1").doubted


def test_how_long_a_run_took_is_told_where_anybody_knows(catalogue: Catalogue, path: Path) -> None:
    """Of one that died the end is when it was found: after a weekend, perhaps."""
    finished(catalogue, "r1")
    finished(catalogue, "of a clock that was set back")
    graves = [ExitStack() for _ in range(3)]  # kept, or else the runs' blocks would end after all
    for grave, run_id in zip(graves, ("dead", "finished", "running"), strict=True):
        grave.enter_context(catalogue.open_run("nightly", "db1", run_id=run_id))
    for run_id in ("dead", "finished"):
        catalogue.end_dead_run(run_id, RunError(DIED, "the run's process died", "start it again", 1))
    partial = Holding(HoldingKind.PARTIAL, "disk/nightly/finished")
    catalogue.finish_dead_run("finished", HERE, partial, f"{DEATH}; it was whole")
    with direct(path, busy_timeout_seconds=1) as connection:
        began, later, earlier = (InstantColumn.text(NOW + timedelta(seconds=one)) for one in (0, 5, -5))
        connection.execute("UPDATE runs SET started_at = ?, ended_at = iif(ended_at IS NULL, NULL, ?)", (began, later))
        connection.execute("UPDATE runs SET ended_at = ? WHERE run_id LIKE 'of a clock%'", (earlier,))
    known = {"r1": 5.0, "of a clock that was set back": None, "dead": None, "finished": None, "running": None}
    assert {run.run_id: run.seconds for run in catalogue.runs()} == known
    assert {cost.run_id: cost.seconds for cost in catalogue.costs()} == known


def test_what_is_used_of_a_thin_pool_is_no_cost_of_a_run(catalogue: Catalogue) -> None:
    own = SnapshotFacts("bk", "vg/data", Layout.LINEAR, 1, None, 64 << 10, 8 << 30, 1 << 30)
    for run_id, snapshot in (
        ("r1", own),
        ("r2", replace(own, cow_size=600 << 30, cow_used_peak=480 << 30, pool="vg/p")),
    ):
        with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
            run.snapshot(snapshot)
            run.complete((HERE,))
    told = {cost.run_id: (cost.cow_size, cost.cow_used_peak) for cost in catalogue.costs()}
    assert told == {"r1": (8 << 30, 1 << 30), "r2": (None, None)}


def test_the_newest_unproven_backup_comes_first_and_then_the_one_whose_proof_is_oldest(catalogue: Catalogue) -> None:
    for run_id in ("r1", "r2", "r3", "r4", "r5", "r6"):
        finished(catalogue, run_id)
    finished(catalogue, "other", job="weekly")
    drilled(catalogue, "r2", NOW)
    drilled(catalogue, "r1", NOW + timedelta(days=1))
    drilled(catalogue, "r3", NOW, ok=False)
    catalogue.removed("r6", "disk", because="expired")
    catalogue.found_broken("r5", "disk", "flipped")
    assert [run.run_id for run in catalogue.newest_unproven("nightly")] == ["r4", "r3", "r2", "r1"]
    assert [run.run_id for run in catalogue.newest_unproven()] == ["other", "r4", "r3", "r2", "r1"]
    assert catalogue.newest_unproven("monthly") == []


def test_the_runs_with_a_backup_are_those_of_which_a_sound_one_is_left_or_also_a_broken_one(
    catalogue: Catalogue,
) -> None:
    for run_id in ("r1", "r2", "r3"):
        finished(catalogue, run_id, backups=(HERE, THERE))
    finished(catalogue, "other", job="weekly")
    for target in ("disk", "vault"):
        catalogue.removed("r1", target, because="expired")
        catalogue.found_broken("r2", target, "flipped")
    catalogue.removed("r3", "vault", because="expired")

    def told(job: str | None = "nightly", **wanted: Any) -> list[str]:
        return [run.run_id for run in catalogue.runs_with_backup(job, **wanted)]

    assert (told(), told(broken_too=True), told(None)) == (["r3"], ["r3", "r2"], ["other", "r3"])
    assert (told(targets=("vault",)), told(targets=("vault",), broken_too=True)) == ([], ["r2"])
    assert catalogue.runs_with_backup("nightly") == [catalogue.run("r3")]


def test_what_a_target_has_of_a_job_is_told_without_the_runs_of_which_nothing_is_left(catalogue: Catalogue) -> None:
    for run_id in ("r1", "r2", "r3"):
        finished(catalogue, run_id, backups=(HERE, THERE))
    finished(catalogue, "other", job="weekly")
    for run_id in ("failed", "named"):
        with pytest.raises(TargetError), catalogue.open_run("nightly", "db1", run_id=run_id):
            raise TargetError("no room")
    catalogue.found_broken("r2", "disk", "flipped")
    catalogue.removed("r3", "disk", because="expired")
    found = catalogue.on_target("nightly", "disk", ("named", "other", "unknown"))
    assert found == {run_id: catalogue.run(run_id) for run_id in ("named", "r2", "r1")}


# --- what a manifest keeps of a run ----------------------------------------------------------------------------------


def test_a_run_knows_what_it_has_told_so_far_but_for_its_samples(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.took(Phase.COPY, 2.5)
        run.position(Position("binlog.000007", 4242, "0-1-99", ()))
        run.samples([Sample(1.0, "settle", iops=5.0)])
        so_far = run.so_far()
        assert so_far == replace(catalogue.run("r1"), samples=())
        assert (so_far.status, so_far.phases, so_far.backups) == (RunStatus.RUNNING, {Phase.COPY: 2.5}, ())
        assert run.audit_head() == catalogue.audit_head() != ""
        run.complete((HERE,))


# --- runs that were found on a target --------------------------------------------------------------------------------


def test_an_imported_run_is_the_run_that_was_told(catalogue: Catalogue, tmp_path: Path) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.took(Phase.COPY, 2.5)
        run.position(Position("binlog.000007", 4242, "0-1-99", ()))
        run.lock(LockReceipt("ftwrl", 1, 0.5, 0.03, "session and position"))
        run.throughput((Throughput("read", 1000, 0.5), Throughput("compress", 1000, 1.5)))
        run.attention("max-wait passed")
        run.complete((THERE, HERE))
    told = replace(catalogue.run("r1"), pid=None)
    with Catalogue.open(tmp_path / "new.db") as another:
        assert another.import_run(told) is True
        assert another.run("r1") == told
        assert another.import_run(replace(told, host="elsewhere", backups=(HERE,))) is False
        assert another.run("r1") == told
    assert events(tmp_path / "new.db") == [("imported", "r1")]


def test_a_known_run_gets_the_backup_of_a_target_that_it_was_not_known_on(catalogue: Catalogue) -> None:
    finished(catalogue, "r1")
    before = catalogue.run("r1")
    assert catalogue.import_run(replace(before, host="elsewhere", backups=(replace(HERE, files=99), THERE))) is True
    assert catalogue.run("r1") == replace(before, backups=(HERE, THERE))


def test_a_backup_that_was_taken_for_removed_and_is_found_again_is_there_again(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", backups=(HERE, THERE))
    before = catalogue.run("r1")
    catalogue.removed("r1", "disk", because="no longer on the target")
    assert catalogue.import_run(replace(before, backups=(HERE,))) is True
    assert catalogue.run("r1") == replace(before, backups=(THERE, HERE))


def test_a_run_that_is_at_work_or_has_failed_is_not_made_a_good_one_by_an_import(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        living = catalogue.run("r1")
        assert catalogue.import_run(replace(living, status=RunStatus.SUCCESS, backups=(HERE,))) is False
        assert catalogue.run("r1") == living
        run.complete((HERE,))
    with pytest.raises(TargetError), catalogue.open_run("nightly", "db1", run_id="r2"):
        raise TargetError("no room")
    assert catalogue.import_run(replace(catalogue.run("r1"), run_id="r2")) is False
    assert catalogue.run("r2").backups == ()


# --- the audit chain -------------------------------------------------------------------------------------------------


@pytest.fixture
def chained(catalogue: Catalogue, path: Path) -> Path:
    """A catalogue whose chain has one row of each event."""
    finished(catalogue, "r1")
    with pytest.raises(TargetError), catalogue.open_run("nightly", "db1", run_id="r2"):
        raise TargetError("no room")
    drilled(catalogue, "r1", NOW)
    catalogue.verified("r1", "disk", NOW)
    catalogue.found_broken("r1", "disk", "flipped")
    catalogue.pin("r1", "note")
    catalogue.unpin("r1")
    catalogue.removed("r1", "disk", because="expired")
    catalogue.import_run(replace(catalogue.run("r1"), run_id="r3"))
    return path


def test_the_chain_tells_all_that_became_of_a_backup_and_holds_together(catalogue: Catalogue, chained: Path) -> None:
    assert events(chained) == [
        ("run-started", "r1"), ("run-ended", "r1"), ("run-started", "r2"), ("run-ended", "r2"), ("drilled", "r1"),
        ("verified", "r1"), ("found-broken", "r1"), ("pinned", "r1"), ("unpinned", "r1"), ("removed", "r1"),
        ("imported", "r3"),
    ]  # fmt: skip
    assert catalogue.audit_trail().chain.first_fault is None


def test_an_empty_chain_holds_together_and_has_no_head(catalogue: Catalogue) -> None:
    assert (catalogue.audit_trail().chain.first_fault, catalogue.audit_head()) == (None, "")


def test_a_dead_run_that_another_process_ends_is_in_the_chain(catalogue: Catalogue, path: Path) -> None:
    died = RunError("died", "the run's process died without reporting an error", "start it again", 1)
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        catalogue.end_dead_run("r1", died)
        assert events(path) == [("run-started", "r1"), ("run-ended", "r1")]
        run.complete((HERE,))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET detail = '{}'",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE number = 11",
        "INSERT OR REPLACE INTO audit SELECT 4, at, event, subject, detail, previous, digest FROM audit LIMIT 1",
        "INSERT INTO audit SELECT 99, at, event, subject, detail, previous, digest FROM audit LIMIT 1",
    ],
)
def test_the_chain_can_only_be_appended_to(catalogue: Catalogue, chained: Path, statement: str) -> None:
    before = events(chained)
    with direct(chained, busy_timeout_seconds=1) as connection, pytest.raises(sqlite3.IntegrityError, match="appended"):
        connection.execute(statement)
    assert events(chained) == before
    assert catalogue.audit_trail().chain.first_fault is None


def forced(path: Path, statement: str) -> None:
    """As somebody does who can write the file and takes the triggers out first."""
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for name in ("no_update", "no_delete", "next_number"):
            connection.execute(f"DROP TRIGGER IF EXISTS audit_{name}")
        assert connection.execute(statement).rowcount != 0


@pytest.mark.parametrize(
    "change", ["{} || ' '", "CAST({} || char(0) AS BLOB)", "substr({0}, 1, 3) || '_' || substr({0}, 5)"]
)
def test_a_change_of_any_column_of_a_row_is_found(catalogue: Catalogue, chained: Path, change: str) -> None:
    columns = ("at", "event", "subject", "detail", "previous", "digest")
    for number, column in itertools.product((2, 7, 11), columns):
        forced(chained, f"CREATE TABLE kept AS SELECT * FROM audit WHERE number = {number}")
        forced(chained, f"UPDATE audit SET {column} = {change.format(column)} WHERE number = {number}")
        assert catalogue.audit_trail().chain.first_fault == number
        forced(chained, "INSERT OR REPLACE INTO audit SELECT * FROM kept")
        forced(chained, "DROP TABLE kept")
    assert catalogue.audit_trail().chain.first_fault is None


def test_a_row_that_was_taken_out_or_put_elsewhere_is_found(catalogue: Catalogue, chained: Path) -> None:
    forced(chained, "UPDATE audit SET number = 12 WHERE number = 5")
    assert catalogue.audit_trail().chain.first_fault == 5
    forced(chained, "DELETE FROM audit WHERE number = 1")
    assert catalogue.audit_trail().chain.first_fault == 1


def test_what_was_cut_off_the_end_is_told_by_a_head_that_was_kept_elsewhere(
    catalogue: Catalogue, chained: Path
) -> None:
    head = catalogue.audit_head()
    forced(chained, "DELETE FROM audit WHERE number > 9")
    assert catalogue.audit_trail().chain.first_fault is None
    assert catalogue.audit_head() != head


def append_many(path: Path, name: str) -> None:
    with Catalogue.open(path) as catalogue:
        for number in range(20):
            catalogue.pin("r1", f"{name} {number}")


def test_two_processes_append_to_one_chain(catalogue: Catalogue, path: Path) -> None:
    finished(catalogue, "r1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["backupd.catalogue.store"])
    other = context.Process(target=append_many, args=(path, "other"))
    other.start()
    append_many(path, "this")
    other.join()
    assert other.exitcode == 0
    assert len(events(path)) == 42
    assert catalogue.audit_trail().chain.first_fault is None
