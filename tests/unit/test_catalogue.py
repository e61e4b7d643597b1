"""What the catalogue promises to the stories: what was told is there, however the run ended."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue import RunJournal
from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue, RunRecord
from backupd.host.process import start_time
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    CatalogueError,
    CleanupIncomplete,
    LockNotGranted,
    Refused,
    TargetError,
    Terminated,
    UsageError,
)
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Sample, SnapshotLife, Verdict
from backupd.vocabulary.records import (
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
from backupd.vocabulary.servers import LockReceipt, Position, Preflush, PreflushEnd, ReplicaPosition
from backupd.vocabulary.storage import Backup, LastCopy
from backupd.vocabulary.volumes import Layout
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
SNAPSHOT = SnapshotFacts("bk_r1", "labvg/data", Layout.STRIPED, 3, 65536, 4096, 1 << 30)
POSITION = Position("binlog.000007", 4242, "0-1-99", (ReplicaPosition("", "source.000001", 17, "0-2-3"),))
LOCK = LockReceipt("backup-stage", 2, 0.5, 0.031, "metadata-locks", 1 << 40, 0.001, 0.002, 0.003, 0.004, stalled=4)
BILL = Bill(50.5, 12.25, 1 << 20, 3, 30.5, 7.5)
PREFLUSH = Preflush(4000, 90, 12.5, PreflushEnd.STEADY)
LOSSES = Losses(Counted.LOGGED, 50.5, 110.0, None, 4000, 60.5)
VERDICT = Verdict(GateOutcome.START, Reason.SETTLED, "3 windows within 10 %", 61.5)
MOUNT = Holding(HoldingKind.MOUNT, "/run/backupd/mount/r1", {"run": "r1"})
LV = Holding(HoldingKind.SNAPSHOT, "labvg/bk_r1", {"run": "r1"})
DIED = RunError("died", "the run's process died without reporting an error", "start it again", 1)


def finished(catalogue: Catalogue, run_id: str, job: str = "nightly", copy_seconds: float = 1.0) -> None:
    with catalogue.open_run(job, "db1", run_id=run_id) as run:
        run.took(Phase.COPY, copy_seconds)
        run.complete((BACKUP,))


def failed(
    catalogue: Catalogue, run_id: str, error: Exception, tell: Callable[[RunRecord], None] = lambda run: run.hold(LV)
) -> RunDetails:
    def attempt() -> None:
        with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
            tell(run)
            raise error

    with pytest.raises(type(error)):
        attempt()
    return catalogue.run(run_id)


def tell_everything(run: RunRecord) -> None:
    run.took(Phase.LOCK_HOLD, 0.031)
    run.verdict(VERDICT)
    run.position(POSITION)
    run.preflush(PREFLUSH)
    run.lock(LOCK)
    run.snapshot(SNAPSHOT)
    run.cow_peak(700)
    run.cow_peak(300)
    run.bill(BILL)
    run.losses(LOSSES)
    run.losses(replace(LOSSES, rate_after=104.0))
    run.samples([Sample(-1.0, "baseline", iops=900.0)])
    run.samples([Sample(2.0, "settle", 300.0, 3.0, 12.5, 4096, 1 << 20, 55.5, 0.5, 7.25), Sample(3.0, "copy")])
    run.complete((BACKUP,))


# --- what a run tells ------------------------------------------------------------------------------------------------


def test_everything_that_a_run_told_is_read_back(path: Path) -> None:
    with Catalogue.open(path) as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
        tell_everything(run)
    with Catalogue.open(path) as catalogue:
        found = catalogue.run("r1")
    assert found.ended_at is not None
    assert found == RunDetails(
        run_id="r1",
        job="nightly",
        host="db1",
        machine=found.machine,
        status=RunStatus.SUCCESS,
        started_at=found.started_at,
        ended_at=found.ended_at,
        pid=os.getpid(),
        phases={Phase.LOCK_HOLD: 0.031},
        verdict=VERDICT,
        position=POSITION,
        lock=LOCK,
        snapshot=replace(SNAPSHOT, cow_used_peak=700),
        samples=(
            Sample(-1.0, "baseline", iops=900.0),
            Sample(2.0, "settle", 300.0, 3.0, 12.5, 4096, 1 << 20, 55.5, 0.5, 7.25),
            Sample(3.0, "copy"),
        ),
        backups=(BACKUP,),
        bill=BILL,
        losses=replace(LOSSES, rate_after=104.0),
        preflush=PREFLUSH,
    )


def test_words_come_back_as_the_words_of_the_model(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        tell_everything(run)
    found = catalogue.run("r1")
    assert found.verdict is not None
    assert found.snapshot is not None
    assert (found.status, found.verdict.reason, found.snapshot.layout) == (
        RunStatus.SUCCESS, Reason.SETTLED, Layout.STRIPED
    )  # fmt: skip
    assert isinstance(found.verdict.reason, Reason)
    assert isinstance(found.snapshot.layout, Layout)
    assert isinstance(next(iter(found.phases)), Phase)


def test_instants_are_in_utc_and_now(catalogue: Catalogue) -> None:
    before = datetime.now(UTC)
    finished(catalogue, "r1")
    found = catalogue.run("r1")
    assert found.ended_at is not None
    assert found.started_at.utcoffset() == timedelta(0)
    assert before <= found.started_at <= found.ended_at <= datetime.now(UTC)


def test_a_run_is_running_and_knows_its_process_before_its_block_begins(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        assert [(known.run_id, known.status, known.pid) for known in map(catalogue.run, catalogue.unfinished())] == [
            ("r1", RunStatus.RUNNING, os.getpid())
        ]
        assert catalogue.process_of("r1") == (os.getpid(), start_time(os.getpid()))
        run.complete((BACKUP,))
    assert catalogue.unfinished() == []


def test_a_phase_is_recorded_also_when_its_block_raises(catalogue: Catalogue) -> None:
    with pytest.raises(TargetError), catalogue.open_run("nightly", "db1", run_id="r1") as run, run.phase(Phase.COPY):
        raise TargetError("no room")
    assert catalogue.run("r1").phases[Phase.COPY] >= 0


def test_seconds_of_one_phase_add_up_and_a_measured_length_takes_their_place(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.took(Phase.RELEASE, 100.0)
        with run.phase(Phase.RELEASE):
            pass
        assert 100.0 < catalogue.run("r1").phases[Phase.RELEASE] < 110.0
        run.took(Phase.RELEASE, 2.0)
        run.took(Phase.BASELINE, 1.0)
        run.complete((BACKUP,))
    assert list(catalogue.run("r1").phases.items()) == [(Phase.BASELINE, 1.0), (Phase.RELEASE, 2.0)]


def test_ten_thousand_samples_are_kept_in_order_and_left_out_of_a_listing(catalogue: Catalogue) -> None:
    samples = [Sample(float(number), "settle", iops=number * 1.5) for number in range(10_000)]
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.samples(samples)
        run.samples([])
        run.complete((BACKUP,))
    assert catalogue.run("r1").samples == tuple(samples)
    assert catalogue.runs()[0] == replace(catalogue.run("r1"), samples=())


def test_threads_of_a_run_may_tell_at_once(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:

        def tell(name: str) -> None:
            for number in range(20):
                run.hold(Holding(HoldingKind.STAGING, f"{name}{number}"))

        threads = [threading.Thread(target=tell, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({holding.name for _, holding in catalogue.holdings("r1")}) == 60
        run.complete((BACKUP,))


def test_a_record_is_a_journal_as_the_stories_know_it(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        journal: RunJournal = run
        journal.complete((BACKUP,))
    assert journal.run_id == "r1"


# --- how a run ends --------------------------------------------------------------------------------------------------


def test_attention_makes_a_good_run_one_that_wants_it(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="before") as run:
        run.attention("max-wait passed")
        run.complete((BACKUP,))
    with catalogue.open_run("nightly", "db1", run_id="after") as run:
        run.complete((BACKUP,))
        assert catalogue.run("after").status is RunStatus.SUCCESS
        run.attention("one")
        run.attention("two")
    assert (catalogue.run("before").status, catalogue.run("before").attention) == (
        RunStatus.ATTENTION, ("max-wait passed",)
    )  # fmt: skip
    assert (catalogue.run("after").status, catalogue.run("after").attention) == (RunStatus.ATTENTION, ("one", "two"))


def test_attention_does_not_make_a_failed_run_good(catalogue: Catalogue) -> None:
    found = failed(catalogue, "r1", TargetError("no room"), lambda run: run.attention("no probe"))
    assert (found.status, found.attention) == (RunStatus.FAILED, ("no probe",))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("the volume is merging", hint="wait"), RunStatus.REFUSED),
        (Busy("run r0 is alive"), RunStatus.BUSY),
        (Cancelled("cancelled by SIGINT", hint="start it again"), RunStatus.CANCELLED),
        (Terminated("terminated by SIGTERM", hint="start it again"), RunStatus.CANCELLED),
        (LockNotGranted("not within 3 tries"), RunStatus.FAILED),
        (BackupdError("something"), RunStatus.FAILED),
    ],
)
def test_a_failed_run_keeps_its_error(catalogue: Catalogue, error: BackupdError, status: RunStatus) -> None:
    found = failed(catalogue, "r1", error)
    assert found.status is status
    assert found.error == RunError(error.code, error.message, error.hint, error.exit_status)
    assert found.ended_at is not None
    assert [holding for _, holding in catalogue.holdings()] == [LV]


def test_an_unforeseen_error_is_internal(catalogue: Catalogue) -> None:
    found = failed(catalogue, "r1", ZeroDivisionError("division by zero"))
    assert found.status is RunStatus.FAILED
    assert found.error is not None
    assert (found.error.code, found.error.message) == ("internal", "ZeroDivisionError: division by zero")


def test_notes_on_an_error_are_kept_with_it(catalogue: Catalogue) -> None:
    error = TargetError("no room")
    error.add_note("clean-up incomplete: the mount is busy")
    found = failed(catalogue, "r1", error)
    assert found.error is not None
    assert found.error.message == "no room\nclean-up incomplete: the mount is busy"


def test_an_error_that_names_an_undecodable_file_is_kept(catalogue: Catalogue) -> None:
    found = failed(catalogue, "r1", TargetError("cannot read " + os.fsdecode(b"caf\xe9")))
    assert found.error is not None
    assert found.error.message == r"cannot read caf\udce9"


def test_a_run_that_ends_without_a_backup_and_without_an_error_is_an_internal_error(catalogue: Catalogue) -> None:
    with pytest.raises(RuntimeError), catalogue.open_run("nightly", "db1", run_id="r1"):
        pass
    found = catalogue.run("r1")
    assert found.error is not None
    assert (found.status, found.error.code) == (RunStatus.FAILED, "internal")


def test_an_error_after_the_backup_was_complete_does_not_unmake_it(catalogue: Catalogue) -> None:
    found = failed(catalogue, "r1", CleanupIncomplete("the mount is busy"), lambda run: run.complete((BACKUP,)))
    assert (found.status, found.backup, found.error) == (RunStatus.ATTENTION, BACKUP, None)
    assert found.attention == ("after the backup was complete: the mount is busy",)


def test_a_second_run_of_the_same_id_is_refused_and_changes_nothing(catalogue: Catalogue) -> None:
    finished(catalogue, "r1")
    before = catalogue.run("r1")
    with pytest.raises(UsageError, match="there is a run r1 already"), catalogue.open_run("other", "db2", run_id="r1"):
        pytest.fail("the block must not begin")
    assert catalogue.runs() == [replace(before, samples=())]


def test_a_dead_run_is_failed_once_and_an_ended_run_stays_as_it_is(path: Path, catalogue: Catalogue) -> None:
    script = (
        "import os, sys; from pathlib import Path; from backupd.catalogue.store import Catalogue\n"
        "with Catalogue.open(Path(sys.argv[1])) as c, c.open_run('nightly', 'db1', run_id='dead'): os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=Path(__file__).parents[2])
    finished(catalogue, "good")
    assert catalogue.unfinished() == ["dead"]
    for run_id in ("dead", "good"):
        catalogue.end_dead_run(run_id, DIED)
    ended = catalogue.run("dead")
    catalogue.end_dead_run("dead", replace(DIED, message="again"))
    assert (ended.status, ended.error) == (RunStatus.FAILED, DIED)
    assert catalogue.run("dead") == ended
    assert (catalogue.run("good").status, catalogue.run("good").error) == (RunStatus.SUCCESS, None)


# --- holdings --------------------------------------------------------------------------------------------------------


def test_holdings_are_listed_in_the_order_to_give_them_back_in(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.hold(LV)
        run.hold(MOUNT)
        assert catalogue.holdings() == [("r1", MOUNT), ("r1", LV)]
        run.released(MOUNT)
        run.released(MOUNT)
        assert catalogue.holdings("r1") == [("r1", LV)]
        assert catalogue.holdings("r2") == []
        run.complete((BACKUP,))
    catalogue.released("r1", replace(LV, detail={"uuid": "learnt later"}))
    catalogue.released("r1", LV)
    assert catalogue.holdings() == []


def test_a_release_frees_only_the_holding_of_its_own_run(catalogue: Catalogue) -> None:
    for run_id in ("r1", "r2"):
        failed(catalogue, run_id, TargetError("no room"))
    catalogue.released("r1", LV)
    assert catalogue.holdings() == [("r2", LV)]


def test_a_child_is_a_holding_from_its_start_to_its_end(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.started(4711, 123456, "tar", must_finish=False)
        child = Holding(HoldingKind.CHILD, "4711", {"start_time": "123456", "program": "tar", "must_finish": "no"})
        assert catalogue.holdings("r1") == [("r1", child)]
        run.ended(4711, 123456)
        assert catalogue.holdings("r1") == []
        run.complete((BACKUP,))


# --- a quiet time ----------------------------------------------------------------------------------------------------


def on_disk(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Asked from outside: a process that closes a file of its own loses every POSIX lock on it, SQLite's too."""
    found = {}
    for file in sorted(path.parent.glob(f"{path.name}*")):
        told = file.stat()
        digest = subprocess.run(["sha256sum", file], stdout=subprocess.PIPE, check=True).stdout
        found[file.name] = (told.st_size, told.st_mtime_ns, told.st_ino, digest)
    return found


def test_a_quiet_time_writes_nothing_until_it_ends(path: Path, catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.hold(LV)
        before = on_disk(path)
        with run.quiet():
            with run.phase(Phase.LOCK_HOLD), run.quiet():
                run.lock(LOCK)
                run.snapshot(SNAPSHOT)
                run.cow_peak(5)
            run.hold(MOUNT)
            teller = threading.Thread(target=run.attention, args=("from another thread",))
            teller.start()
            teller.join()
            assert on_disk(path) == before
            assert catalogue.run("r1").lock is None
        found = catalogue.run("r1")
        assert on_disk(path) != before
        assert (found.lock, found.snapshot) == (LOCK, replace(SNAPSHOT, cow_used_peak=5))
        assert found.attention == ("from another thread",)
        assert Phase.LOCK_HOLD in found.phases
        assert catalogue.holdings("r1") == [("r1", MOUNT), ("r1", LV)]
        run.complete((BACKUP,))


def test_what_was_told_in_a_quiet_time_is_written_when_it_ends_with_an_error(catalogue: Catalogue) -> None:
    def lock_in_vain(run: RunRecord) -> None:
        with run.quiet():
            run.hold(LV)
            raise LockNotGranted("not within 3 tries")

    found = failed(catalogue, "r1", LockNotGranted("not within 3 tries"), lock_in_vain)
    assert catalogue.holdings() == [("r1", LV)]
    assert found.status is RunStatus.FAILED


def test_what_a_quiet_time_could_not_write_is_written_with_the_next_verb(path: Path) -> None:
    with Catalogue.open(path, busy_timeout_seconds=0.05) as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="r1") as run:
            with write_lock(path):
                with pytest.raises(CatalogueError, match="locked by another process"), run.quiet():
                    run.lock(LOCK)
                with pytest.raises(ZeroDivisionError) as raised, run.quiet():
                    _ = 1 / 0
            assert "locked by another process" in raised.value.__notes__[0]
            run.complete((BACKUP,))
        assert catalogue.run("r1").lock == LOCK


def write_lock(path: Path) -> "subprocess.Popen[str]":
    """Another process that holds the write lock until its `with` ends."""
    script = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)\n"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_a_verb_that_fails_is_not_tried_again(path: Path) -> None:
    with Catalogue.open(path, busy_timeout_seconds=0.05) as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="r1") as run:
            with write_lock(path), pytest.raises(CatalogueError):
                run.hold(LV)
            run.complete((BACKUP,))
        assert catalogue.holdings() == []


def test_the_first_error_stays_when_the_row_cannot_be_ended(path: Path) -> None:
    with Catalogue.open(path, busy_timeout_seconds=0.05) as catalogue:
        error, others = TargetError("no room"), []
        found = failed(catalogue, "r1", error, lambda _run: others.append(write_lock(path)))
        others[0].communicate()
    assert "locked by another process" in error.__notes__[0]
    assert found.status is RunStatus.RUNNING  # for `recover`


# --- finding runs ----------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_id_by_a_beginning_and_by_latest(catalogue: Catalogue) -> None:
    for run_id, job in [("20261121-0100-aa", "nightly"), ("20261121-0200-bb", "weekly"), ("20261121", "nightly")]:
        finished(catalogue, run_id, job)
    assert catalogue.run("20261121-0100-aa").run_id == "20261121-0100-aa"
    assert catalogue.run("20261121-02").run_id == "20261121-0200-bb"
    assert catalogue.run("20261121").run_id == "20261121"  # a whole id wins over a beginning
    assert catalogue.run("latest:nightly").run_id == "20261121"
    assert catalogue.run("latest:weekly").run_id == "20261121-0200-bb"


def test_latest_shows_no_job_s_success_in_place_of_another_s_failure(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", "nightly")
    assert catalogue.run("latest").run_id == "r1"
    finished(catalogue, "r2", "weekly")
    finished(catalogue, "r3", "hourly")
    for said in ("latest", "latest-good", "as-of=2026-11-20"):
        with pytest.raises(UsageError, match=f"there are backups of several jobs: `{said}` needs a job") as raised:
            catalogue.run(said)
        assert raised.value.hint == f"say {said}:hourly or {said}:nightly or {said}:weekly"


@pytest.mark.parametrize(
    ("wanted", "sentence", "hint"),
    [
        ("x", "no run x", " lists them, and --help says how to name one"),
        ("", "no run ''", " lists them, and --help says how to name one"),
        ("R", "no run R", " lists them, and --help says how to name one"),
        ("%", "no run %", " lists them, and --help says how to name one"),
        ("r", "more than one run begins with r: r1, r2", ""),
        ("latest:other", "no run of job other yet", "; there are runs of nightly"),
    ],
)
def test_a_run_that_is_not_there_is_said_to_be_so(catalogue: Catalogue, wanted: str, sentence: str, hint: str) -> None:
    finished(catalogue, "r1")
    finished(catalogue, "r2")
    with pytest.raises(UsageError) as raised:
        catalogue.run(wanted)
    assert (raised.value.message, raised.value.hint) == (sentence, f"backupd history{hint}")


def test_there_is_no_latest_run_in_an_empty_catalogue(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="no run yet"):
        catalogue.run("latest")
    assert catalogue.runs() == []
    assert catalogue.process_of("r1") is None


def test_runs_are_listed_newest_first_by_job_and_within_the_limit(catalogue: Catalogue) -> None:
    for number in range(5):
        finished(catalogue, f"r{number}", "even" if number % 2 == 0 else "odd")
    assert [run.run_id for run in catalogue.runs()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.run_id for run in catalogue.runs(job="even", limit=2)] == ["r4", "r2"]
    assert len(catalogue.runs(limit=None)) == 5


def test_the_last_stored_bytes_are_those_of_the_newest_good_run(catalogue: Catalogue) -> None:
    assert catalogue.last_stored_bytes("nightly") is None
    finished(catalogue, "r1")
    failed(catalogue, "r2", TargetError("no room"))
    assert catalogue.last_stored_bytes("nightly") == BACKUP.bytes_stored


def copied(catalogue: Catalogue, run_id: str, seconds: float, *, job: str = "nightly", fails: bool = False) -> None:
    with suppress(TargetError), catalogue.open_run(job, "db1", run_id=run_id) as run:
        run.took(Phase.COPY, seconds)
        run.copied(50, of_bytes=100, used_bytes=200)
        if fails:
            raise TargetError("no room")
        run.complete((BACKUP,))


def test_the_last_copy_is_the_newest_one_of_the_job_that_went_on_for_long_enough_to_tell(catalogue: Catalogue) -> None:
    assert catalogue.last_copy("nightly") is None
    copied(catalogue, "r1", 5.0)
    assert catalogue.last_copy("nightly") == LastCopy(50, 100, 200, 5.0)
    copied(catalogue, "r2", 20.0, fails=True)
    copied(catalogue, "r3", 1.0, fails=True)
    copied(catalogue, "r4", 30.0, job="other")
    failed(catalogue, "r5", TargetError("no room"))
    assert catalogue.last_copy("nightly") == LastCopy(50, 100, 200, 20.0)


def test_what_past_runs_tell_is_not_for_years_what_a_clock_that_was_ahead_has_left(
    catalogue: Catalogue, path: Path
) -> None:
    filled(catalogue, "r1", SNAPSHOT, 20.0)
    with direct(path, busy_timeout_seconds=1) as connection:
        ahead = InstantColumn.text(datetime.now(UTC) + timedelta(days=365))
        connection.execute("UPDATE runs SET started_at = ?", (ahead,))
    copied(catalogue, "r2", 30.0)
    filled(catalogue, "r3", replace(SNAPSHOT, volume="labvg/moved"), 40.0)
    assert catalogue.last_copy("nightly") == LastCopy(50, 100, 200, 30.0)
    assert catalogue.last_volume("nightly") == "labvg/moved"


def test_a_forecast_that_has_cost_a_backup_is_not_made_again_before_a_copy_was_tried(catalogue: Catalogue) -> None:
    copied(catalogue, "r1", 20.0)
    with suppress(TargetError), catalogue.open_run("nightly", "db1", run_id="r2") as run:
        run.verdict(Verdict(GateOutcome.GIVE_UP, Reason.COW_SHORT, "it would fill", 12.0))
        raise TargetError("given up")
    assert catalogue.last_copy("nightly") is None
    copied(catalogue, "r3", 30.0, fails=True)
    assert catalogue.last_copy("nightly") == LastCopy(50, 100, 200, 30.0)


def filled(catalogue: Catalogue, run_id: str, facts: SnapshotFacts, seconds: float, *, fails: bool = False) -> None:
    with suppress(TargetError), catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.snapshot(facts)
        run.cow_peak(1000)
        run.took(Phase.SETTLE, 3.0)
        run.took(Phase.COPY, seconds)
        run.took(Phase.VERIFY, 99.0)
        if fails:
            raise TargetError("no room")
        run.complete((BACKUP,))


def test_what_past_snapshots_have_filled_is_told_of_those_of_the_same_volume_that_lived_long_enough(
    catalogue: Catalogue,
) -> None:
    assert catalogue.snapshot_lives("nightly") == ()
    filled(catalogue, "r1", replace(SNAPSHOT, volume="labvg/former"), 5.0)
    filled(catalogue, "r2", SNAPSHOT, 5.0)
    filled(catalogue, "r3", SNAPSHOT, 6.0, fails=True)
    filled(catalogue, "r4", replace(SNAPSHOT, chunk_size=512 << 10), 7.0, fails=True)
    failed(catalogue, "r5", TargetError("no room"))
    assert catalogue.snapshot_lives("nightly") == (SnapshotLife(512 << 10, 1000, 10.0), SnapshotLife(4096, 1000, 8.0))


def test_a_copy_is_expected_to_take_what_the_last_one_would_have_by_its_rate_and_what_is_used_now() -> None:
    assert LastCopy(50, 100, 200, 5.0).expected_seconds(200) == 10.0
    assert LastCopy(50, 100, 200, 5.0).expected_seconds(300) == 15.0
    assert LastCopy(0, 100, 200, 5.0).expected_seconds(200) is None


def test_drills_are_kept_with_their_run_oldest_first(catalogue: Catalogue) -> None:
    finished(catalogue, "r1")
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    drills = tuple(
        Drill("r1", ok, (Check("position", ok, "binlog.000007:4242", "…"),), 9.5, noon) for ok in (False, True)
    )
    for drill in drills:
        catalogue.record_drill(drill)
    assert catalogue.run("r1").drills == drills


FOUND = Position("bin.000003", 4711, "0-1-9", (ReplicaPosition("west", "far.000042", 815),))


@pytest.mark.parametrize(
    ("ok", "now", "derived"), [(True, FOUND, True), (False, Position("bin.000003"), False)], ids=["proven", "failed"]
)
def test_the_position_that_a_good_drill_found_is_the_runs(
    catalogue: Catalogue, ok: bool, now: Position, derived: bool
) -> None:
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.position(Position("bin.000003"))
        run.complete((BACKUP,))
    assert not catalogue.run("r1").derived
    catalogue.record_drill(Drill("r1", ok, (), 9.5, datetime(2026, 11, 21, 12, tzinfo=UTC), position=FOUND))
    found = catalogue.run("r1")
    assert (found.position, found.derived) == (now, derived)
    assert found.drills[0].position == FOUND


def test_a_drill_of_no_run_is_refused(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="FOREIGN KEY"):
        catalogue.record_drill(Drill("nobody", True, (), 1.0, datetime.now(UTC)))


# --- what it costs to start ------------------------------------------------------------------------------------------


def test_only_the_store_loads_sqlalchemy_and_only_an_upgrade_loads_alembic(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import backupd.catalogue; assert 'sqlalchemy' not in sys.modules\n"
        "from backupd.catalogue.store import Catalogue\n"
        "for _ in range(2): Catalogue.open(Path(sys.argv[1])).close()\n"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=Path(__file__).parents[2])
    assert path.exists()
