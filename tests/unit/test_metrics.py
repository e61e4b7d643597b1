"""What Prometheus is told, read back as Prometheus reads it, of a real catalogue."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter
from typer.testing import CliRunner

from backupd.catalogue.store import Catalogue
from backupd.cli.main import app
from backupd.cli.metrics import left_for_node_exporter
from backupd.config import Configuration, DirectoryConfig
from backupd.service.machine_view import own_eyes
from backupd.service.metrics import Metrics
from backupd.service.site import Site
from backupd.service.target_rooms import LookTimes, SeenTarget, TargetRooms
from backupd.service.textfile import write_textfile
from backupd.vocabulary.errors import Cancelled, TargetError, UsageError
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Sample, Verdict
from backupd.vocabulary.records import (
    DEATH,
    DIED,
    Check,
    Drill,
    DrilledMoment,
    Holding,
    HoldingKind,
    Phase,
    RunError,
    RunKind,
    SnapshotFacts,
)
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.servers import LockReceipt
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout
from tests.many_runs import NEWEST, catalogue_of_years

SNAPSHOT = SnapshotFacts("bk_r1", "labvg/data", Layout.STRIPED, 3, 65536, 4096, 1000, cow_used_peak=850)
NIGHTLY = {"backup_job": "nightly"}


@pytest.fixture
def catalogue(path_in_memory: Path) -> Iterator[Catalogue]:
    with Catalogue.open(path_in_memory / "catalogue.sqlite") as opened:
        yield opened


def configured(folder: Path, **tables: Any) -> Configuration:
    """One host, a job `nightly` and a target `vault` in the folder, unless told otherwise."""
    whole = {
        "catalogue": {"path": folder / "catalogue.sqlite"},
        "paths": {"run": folder},
        "hosts": {"db1": {}},
        "targets": {"vault": {"type": "directory", "path": folder}},
        "jobs": {"nightly": {"host": "db1", "targets": ("vault",), "every_seconds": 86400.0}},
        **tables,
    }
    return TypeAdapter(Configuration).validate_python(whole)


def told(exposition: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series and its value; a series that is told twice is a fault."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(exposition.decode()):
        for sample in family.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in found
            found[series] = sample.value
    return found


def value(exposition: bytes, name: str, **labels: str) -> float | None:
    """Of one series; None where it is not told."""
    return told(exposition).get((f"backupd_{name}", frozenset(labels.items())))


def good(catalogue: Catalogue, run_id: str = "r1") -> None:
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.took(Phase.LOCK_HOLD, 0.04)
        run.took(Phase.COPY, 10.0)
        run.lock(LockReceipt("ftwrl", 1, 0.5, 0.04, "metadata-locks", stalled=4))
        run.snapshot(replace(SNAPSHOT, cow_used_peak=None))
        run.cow_peak(850)
        run.bill(Bill(50.0, 12.5, copied_on_write=4096, disks=3, disk_seconds=30.5, disk_read_seconds=20.25))
        run.losses(Losses(Counted.LOGGED, 50.0, 110.0, None, 4000, 60.0))
        run.samples([Sample(-1.0, "baseline", iops=900.0)])
        run.samples([Sample(at, "settle", iops=iops) for at, iops in enumerate((300.0, 600.0, 600.0, 600.0))])
        run.verdict(Verdict(GateOutcome.START, Reason.SETTLED, "", 61.5))
        run.complete((Backup("vault", "/v", 5000, 400, 12, "ab" * 32),))


def failed(catalogue: Catalogue, error: Exception, run_id: str = "r2") -> None:
    with pytest.raises(type(error)), catalogue.open_run("nightly", "db1", run_id=run_id):
        raise error


def metrics_of(site: Site) -> Metrics:
    seen = own_eyes(site.configuration)
    return Metrics(site, live=seen.live, rooms=seen.rooms)


def exposition(catalogue: Catalogue, folder: Path, later: timedelta = timedelta(), **tables: Any) -> bytes:
    now = datetime.now(UTC) + later
    return metrics_of(Site(configured(folder, **tables), catalogue, lambda: now)).exposition()


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_catalogue_that_cannot_be_read_is_told_and_hides_nothing_else(catalogue: Catalogue, tmp_path: Path) -> None:
    path = tmp_path / "torn.sqlite"
    with Catalogue.open(path) as torn:
        good(torn)
        metrics = metrics_of(Site(configured(tmp_path), torn))
        assert value(metrics.exposition(), "catalogue_up") == 1
        path.write_bytes(b"\xff" * path.stat().st_size)
        path.with_name("torn.sqlite-wal").write_bytes(b"")
        torn.close()
        answer = metrics.exposition()
    assert value(answer, "catalogue_up") == 0
    assert value(answer, "target_up", target="vault") == 1
    assert value(answer, "last_success_timestamp_seconds", **NIGHTLY) is None


def test_a_good_backup_is_told_with_what_it_cost(catalogue: Catalogue, tmp_path: Path) -> None:
    good(catalogue)
    answer, run = exposition(catalogue, tmp_path), catalogue.run("r1")
    expected = {
        "last_success_timestamp_seconds": run.started_at.timestamp(),
        "last_run_timestamp_seconds": run.started_at.timestamp(),
        "overdue_timestamp_seconds": (run.started_at + timedelta(hours=36)).timestamp(),
        "running": 0,
        "lock_wait_seconds": 0.5,
        "lock_hold_seconds": 0.04,
        "lock_hold_budget_seconds": 10,
        "settle_seconds": 61.5,
        "copy_bytes_per_second": 500,
        "snapshot_cow_peak_ratio": 0.85,
        "lock_stalled_statements": 4,
        "transactions_expected": 5500,
        "transactions_lost": 1500,
        "write_penalty_seconds": 12.5,
        "copied_on_write_bytes": 4096,
        "disk_busy_seconds": 30.5,
        "disk_read_seconds": 20.25,
        "job_interval_seconds": 86400,
    }
    assert {name: value(answer, name, **NIGHTLY) for name in expected} == pytest.approx(expected)
    assert value(answer, "write_penalty_ratio", **NIGHTLY, when="first") == 3
    assert value(answer, "write_penalty_ratio", **NIGHTLY, when="settled") == 1.5
    assert value(answer, "stored_bytes", **NIGHTLY, target="vault") == 400
    assert value(answer, "phase_seconds", **NIGHTLY, phase="copy") == 10


def test_how_large_a_backup_is_on_a_target_is_told_whatever_became_of_it(catalogue: Catalogue, tmp_path: Path) -> None:
    """An alert asks by it whether the next one has room."""
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.complete(tuple(Backup(name, "/v", 5000, 400, 12, "ab" * 32) for name in ("vault", "s3", "tape")))
    catalogue.vanished(("r1",), "s3", because="no longer on the target", told_with=None)
    catalogue.found_broken("r1", "tape", "a digest differs")
    answer = exposition(catalogue, tmp_path)
    stored = [value(answer, "stored_bytes", **NIGHTLY, target=name) for name in ("vault", "s3", "tape")]
    assert stored == [400, 400, 400]


def test_what_was_not_measured_is_not_told(catalogue: Catalogue, tmp_path: Path) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.complete((Backup("vault", "/v", 0, 0, 0, "ab" * 32),))
    answer = exposition(catalogue, tmp_path)
    names = {name for name, labels in told(answer) if ("backup_job", "nightly") in labels}
    assert "backupd_last_success_timestamp_seconds" in names
    assert not names & {
        "backupd_lock_hold_seconds",
        "backupd_write_penalty_ratio",
        "backupd_snapshot_cow_peak_ratio",
        "backupd_copy_bytes_per_second",
        "backupd_settle_seconds",
        "backupd_transactions_lost",
        "backupd_write_penalty_seconds",
        "backupd_copied_on_write_bytes",
        "backupd_disk_busy_seconds",
        "backupd_disk_read_seconds",
    }


def test_a_newer_backup_takes_the_older_ones_place(catalogue: Catalogue, tmp_path: Path) -> None:
    good(catalogue)
    metrics = metrics_of(Site(configured(tmp_path), catalogue))
    assert value(metrics.exposition(), "write_penalty_ratio", **NIGHTLY, when="first") == 3
    with catalogue.open_run("nightly", "db1", run_id="r2") as run:
        run.samples([Sample(-1.0, "baseline", iops=800.0), Sample(0.0, "settle", iops=200.0)])
        run.complete((Backup("vault", "/v", 5000, 500, 12, "ab" * 32),))
    answer = metrics.exposition()
    assert value(answer, "write_penalty_ratio", **NIGHTLY, when="first") == 4
    assert value(answer, "stored_bytes", **NIGHTLY, target="vault") == 500


def test_runs_are_counted_by_what_became_of_them_and_attention_is_good(catalogue: Catalogue, tmp_path: Path) -> None:
    good(catalogue)
    before = exposition(catalogue, tmp_path)
    catalogue.attention("r1", "an unmount failed")
    failed(catalogue, TargetError("no room"), "r2")
    failed(catalogue, Cancelled("by SIGTERM"), "r3")
    with catalogue.open_run("nightly", "db1", run_id="p1", kind=RunKind.PROBE) as probe, suppress(TargetError):
        after = exposition(catalogue, tmp_path)
        probe.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
    results = ("good", "failed", "refused", "busy", "cancelled")
    assert [value(before, "runs_total", **NIGHTLY, result=result) for result in results] == [1, 0, 0, 0, 0]
    assert [value(after, "runs_total", **NIGHTLY, result=result) for result in results] == [1, 1, 0, 0, 1]
    assert value(after, "running", **NIGHTLY) == 0
    assert value(after, "alarms", **NIGHTLY, kind="attention") == 1


def test_a_run_that_has_died_stays_counted_as_failed_when_its_copy_was_whole(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """What falls is a reset to Prometheus: all that was counted before would count once more."""
    grave = ExitStack()  # kept, or else the run's block would end after all
    grave.enter_context(catalogue.open_run("nightly", "db1", run_id="r1"))
    catalogue.end_dead_run("r1", RunError(DIED, "the run's process died", "start it again", 1))
    before = exposition(catalogue, tmp_path)
    copy = Backup("vault", "/v", 1, 1, 1, "ab" * 32)
    catalogue.finish_dead_run("r1", copy, Holding(HoldingKind.PARTIAL, "vault/nightly/r1"), f"{DEATH}; it was whole")
    catalogue.attention("r1", f"{DEATH}; and is told of twice")
    after = exposition(catalogue, tmp_path)
    for answer, found in ((before, 0), (after, 1)):
        assert value(answer, "runs_total", **NIGHTLY, result="failed") == 1
        assert value(answer, "runs_total", **NIGHTLY, result="good") == found
        assert value(answer, "failed_run_seconds", **NIGHTLY) is None  # it was found dead, perhaps days later
        assert value(answer, "last_duration_seconds", **NIGHTLY) is None


def test_a_run_that_is_going_on_is_told_with_its_beginning(catalogue: Catalogue, tmp_path: Path) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        answer = exposition(catalogue, tmp_path)
        run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
    assert value(answer, "running", **NIGHTLY) == 1
    assert value(answer, "running_since_timestamp_seconds", **NIGHTLY) == catalogue.run("r1").started_at.timestamp()


def test_what_is_due_and_what_was_missed_is_told_for_each_schedule(catalogue: Catalogue, tmp_path: Path) -> None:
    schedules = {"backup": {"cron": "30 2 * * *", "zone": "UTC"}, "drill": {"cron": "0 5 * * 6", "zone": "UTC"}}
    jobs = {"nightly": {"host": "db1", "targets": ("vault",), "schedules": schedules}}
    due = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
    catalogue.take_slot(Slot("nightly", Activity.BACKUP, due, SlotState.MISSED, due, reason="the machine was off"))
    catalogue.pause("nightly", "a migration")
    answer = exposition(catalogue, tmp_path, jobs=jobs)
    next_run = value(answer, "next_run_timestamp_seconds", **NIGHTLY, activity="backup")
    assert next_run is not None
    assert datetime.fromtimestamp(next_run, UTC).strftime("%H:%M") == "02:30"
    assert value(answer, "schedule_missed_total", **NIGHTLY, activity="backup") == 1
    assert value(answer, "schedule_missed_total", **NIGHTLY, activity="drill") == 0
    assert value(answer, "schedule_missed_total", **NIGHTLY, activity="probe") is None
    assert value(answer, "paused", **NIGHTLY) == 1


def test_the_newest_copy_is_one_that_can_be_restored_and_of_no_time_to_come(
    catalogue: Catalogue, tmp_path: Path, path_in_memory: Path
) -> None:
    for run_id in ("r1", "r2", "r3"):
        good(catalogue, run_id)
    catalogue.found_broken("r2", "vault", "sha256 differs")
    now = datetime.now(UTC).replace(microsecond=0)
    began = {run_id: now + timedelta(days=days) for run_id, days in (("r1", -2), ("r2", -1), ("r3", 365))}
    with closing(sqlite3.connect(path_in_memory / "catalogue.sqlite")) as file, file:
        for run_id, at in began.items():
            file.execute("UPDATE runs SET started_at = ? WHERE run_id = ?", [at.isoformat(), run_id])
            file.execute("UPDATE backups SET verified_at = ? WHERE run_id = ?", [at.isoformat(), run_id])
    answer = exposition(catalogue, tmp_path)
    copied, read = (
        value(answer, f"{name}_timestamp_seconds", **NIGHTLY, target="vault")
        for name in ("newest_copy", "last_verification")
    )
    assert (copied, read) == (began["r1"].timestamp(), began["r2"].timestamp())


def test_the_newest_proof_is_told(catalogue: Catalogue, tmp_path: Path) -> None:
    good(catalogue)
    at = datetime.now(UTC)
    catalogue.record_drill(Drill("r1", True, (Check("tables", True, "1", "1"),), 9.0, at))
    catalogue.record_drill(Drill("r1", False, (), 1.0, at + timedelta(microseconds=1), undecided="stopped"))
    answer = exposition(catalogue, tmp_path)
    assert value(answer, "last_proof_timestamp_seconds", **NIGHTLY) == pytest.approx(at.timestamp())
    assert [value(answer, f"last_drill_{what}", **NIGHTLY) for what in ("good", "seconds")] == [1, 9]


def test_the_newest_proof_of_a_moment_is_told_where_the_binlog_is_archived(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    good(catalogue)
    at = datetime.now(UTC)
    moment = DrilledMoment("2026-11-20 03:12:44 UTC", at - timedelta(hours=3))
    catalogue.record_drill(Drill("r1", True, (), 9.0, at, moment=moment))
    job = {"host": "db1", "targets": ("vault",)}
    answer = exposition(catalogue, tmp_path, jobs={"nightly": {**job, "binlog": {}}})
    proof, proven = at.timestamp(), (at - timedelta(hours=3)).timestamp()
    assert value(answer, "moment_proof_timestamp_seconds", **NIGHTLY) == pytest.approx(proof)
    assert value(answer, "last_proven_moment_timestamp_seconds", **NIGHTLY) == pytest.approx(proven)
    assert value(answer, "last_moment_drill_good", **NIGHTLY) == 1
    assert value(exposition(catalogue, tmp_path), "last_moment_drill_good", **NIGHTLY) is None


def test_no_label_tells_one_run_from_another(catalogue: Catalogue, tmp_path: Path) -> None:
    good(catalogue, "20260301-run")
    failed(catalogue, TargetError("no room"), "20260302-run")
    assert b"-run" not in exposition(catalogue, tmp_path)
    names = {name for _, labels in told(exposition(catalogue, tmp_path)) for name, _ in labels}
    assert names == {"backup_job", "version", "result", "kind", "phase", "when", "target"}


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_a_hundred_thousand_runs_are_told_sooner_than_they_are_counted(tmp_path: Path, shared_folder: Path) -> None:
    """A quarter of it, where nothing else runs (25 ms): what an answer costs does not depend on the machine's pace."""
    jobs = {name: {"host": "db1", "targets": ("vault",)} for name in ("nightly", "shop", "archive")}
    path = catalogue_of_years(shared_folder)
    with Catalogue.open(path) as years, closing(sqlite3.connect(path)) as plain:
        metrics = metrics_of(Site(configured(tmp_path, jobs=jobs), years, lambda: NEWEST))
        told_seconds, counted_seconds = [], []
        for _ in range(5):
            began = time.thread_time()
            answer = metrics.exposition()
            told_seconds.append(time.thread_time() - began)
            began = time.thread_time()
            counted = plain.execute(
                "SELECT job, host, COUNT(*), MAX(started_at) FROM runs GROUP BY job, host"
            ).fetchall()
            counted_seconds.append(time.thread_time() - began)
    assert sum(runs for _, _, runs, _ in counted) == 100_000
    assert value(answer, "runs_total", **NIGHTLY, result="good") == pytest.approx(32_000, rel=0.02)
    assert min(told_seconds) < min(counted_seconds)


# --- targets ---------------------------------------------------------------------------------------------------------


def test_a_folder_without_its_sentinel_is_not_there_and_has_no_room(tmp_path: Path) -> None:
    target = {"type": "directory", "path": tmp_path, "sentinel": "mounted"}
    rooms = TargetRooms(configured(tmp_path, targets={"vault": target}), pace=LookTimes(apart_seconds=0))
    assert rooms.seen(within_seconds=5) == {"vault": SeenTarget(up=False)}
    (tmp_path / "mounted").touch()
    seen, room = rooms.seen(within_seconds=5)["vault"], os.statvfs(tmp_path)
    assert (seen.up, seen.size) == (True, room.f_blocks * room.f_frsize)


def test_only_folders_are_looked_at(tmp_path: Path) -> None:
    bucket = {"type": "s3", "bucket": "b", "endpoint": "http://127.0.0.1:1", "accept_unencrypted": True}
    assert TargetRooms(configured(tmp_path, targets={"vault": bucket})).seen(within_seconds=5) == {}


@pytest.fixture
def release() -> Iterator[Event]:
    """When it is set, whatever hangs ends."""
    event = Event()
    yield event
    event.set()


def test_a_target_that_hangs_holds_up_no_answer_and_is_not_asked_again(tmp_path: Path, release: Event) -> None:
    asked: list[str] = []
    begun = Semaphore(0)

    def hanging(target: DirectoryConfig) -> SeenTarget:
        asked.append(target.name)
        begun.release()
        release.wait()
        return SeenTarget(up=True)

    patient = TargetRooms(configured(tmp_path), look=hanging, pace=LookTimes(apart_seconds=0, patience_seconds=1000))
    assert [patient.seen(within_seconds=0.01) for _ in range(3)] == [{}, {}, {}]
    assert begun.acquire(timeout=60)
    assert asked == ["vault"]
    hasty = TargetRooms(configured(tmp_path), look=hanging, pace=LookTimes(apart_seconds=0, patience_seconds=0))
    assert [hasty.seen(within_seconds=0.01) for _ in range(3)] == [{"vault": SeenTarget(up=False)}] * 3
    assert begun.acquire(timeout=60)
    assert asked == ["vault"] * 2
    assert not release.is_set()


# --- the text file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["backupd.txt", "backupd", ".prom.tmp"])
def test_a_file_that_node_exporter_would_not_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"does not end in \.prom"):
        write_textfile(tmp_path / name, b"x 1\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist") as refused:
        write_textfile(tmp_path / "none" / "backupd.prom", b"x 1\n")
    assert "--collector.textfile.directory" in refused.value.hint


def test_anybody_may_read_the_file_whatever_the_umask_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "backupd.prom"
    before = os.umask(0o077)
    try:
        write_textfile(path, b"x 1\n")
        write_textfile(path, b"x 2\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_bytes() == b"x 2\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_left_also_when_the_work_failed(catalogue: Catalogue, path_in_memory: Path) -> None:
    path = path_in_memory / "backupd.prom"
    configuration = configured(path_in_memory, service={"textfile": path})
    with pytest.raises(TargetError), left_for_node_exporter(configuration, catalogue):
        failed(catalogue, TargetError("no room"))
        raise TargetError("no room")
    assert value(path.read_bytes(), "runs_total", **NIGHTLY, result="failed") == 1


def test_a_file_that_cannot_be_written_changes_nothing_but_the_log(
    catalogue: Catalogue, path_in_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configuration = configured(path_in_memory, service={"textfile": path_in_memory / "none" / "backupd.prom"})
    with left_for_node_exporter(configuration, catalogue):
        good(catalogue)
    assert "does not exist" in caplog.text


# --- the command -----------------------------------------------------------------------------------------------------

CONFIGURATION = """
[catalogue]
path = "{folder}/catalogue.sqlite"
[paths]
run = "{folder}"
[hosts.db1]
socket = "/run/mysqld/mysqld.sock"
user = "backup"
[targets.vault]
type = "directory"
path = "{folder}"
[jobs.nightly]
host = "db1"
targets = ["vault"]
"""


@pytest.fixture
def configuration_file(path_in_memory: Path) -> Path:
    path = path_in_memory / "backupd.toml"
    path.write_text(CONFIGURATION.format(folder=path_in_memory))
    return path


def test_the_command_prints_what_a_daemon_would_tell(configuration_file: Path) -> None:
    done = CliRunner().invoke(app, ["--config", str(configuration_file), "metrics"])
    assert done.exit_code == 0
    assert value(done.stdout.encode(), "catalogue_up") == 1
    assert value(done.stdout.encode(), "target_up", target="vault") == 1


def test_the_command_writes_a_file_instead(configuration_file: Path) -> None:
    path = configuration_file.with_name("backupd.prom")
    done = CliRunner().invoke(app, ["--config", str(configuration_file), "metrics", "--textfile", str(path)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert value(path.read_bytes(), "job_interval_seconds", **NIGHTLY) == 86400


def test_a_link_that_somebody_planted_at_the_file_s_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "backupd.prom"
    precious.write_text("root's")
    precious.chmod(0o600)
    for planted in (f".{path.name}.{os.getpid()}", f"{path.stem}.{os.getpid()}"):
        (tmp_path / planted).symlink_to(precious)
    write_textfile(path, b"x 1\n")
    assert (precious.read_text(), stat.S_IMODE(precious.stat().st_mode)) == ("root's", 0o600)
    assert path.read_bytes() == b"x 1\n"
    assert not path.is_symlink()
