"""What the catalogue promises about benches: all that was found is there, and nothing takes one for a backup."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given, settings

from backupd.catalogue import RunJournal
from backupd.catalogue.database import direct
from backupd.catalogue.details import Filter
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.benches import BenchRecord, LayoutBench
from backupd.vocabulary.errors import BackupdError, Cancelled, CatalogueError, CleanupIncomplete, ProbeError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunError, RunKind, RunStatus
from backupd.vocabulary.scratch_layouts import LayoutKind, Medium, Operation
from backupd.vocabulary.storage import Backup, LastCopy
from tests.any_values import values
from tests.fakes.benched import a_bench
from tests.fakes.measured import measurement
from tests.share import examples
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
VOLUME = Holding(HoldingKind.SCRATCH_VOLUME, "labvg/bk_bench", {"run": "bench"})
TABLES = ("benches", "bench_cells", "bench_samples", "bench_snapshots")


def benched(catalogue: Catalogue, run_id: str, bench: LayoutBench | None = None) -> BenchRecord:
    with catalogue.open_run("", "", run_id=run_id, kind=RunKind.BENCH) as run:
        run.benched(bench or a_bench())
    return catalogue.bench(run_id)


def benched_with_probes(catalogue: Catalogue, run_id: str, probes: int = 3) -> None:
    """As a bench does it: a probe of each layout, each a run of its own, while the bench goes on."""
    with catalogue.open_run("", "", run_id=run_id, kind=RunKind.BENCH) as run:
        for number in range(1, probes + 1):
            probed(catalogue, f"{run_id}-{number}")
        run.benched(a_bench())


def probed(catalogue: Catalogue, run_id: str) -> None:
    with catalogue.open_run("", "", run_id=run_id, kind=RunKind.PROBE) as run:
        run.measured(measurement())


def backed_up(catalogue: Catalogue, run_id: str) -> None:
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.took(Phase.COPY, 10.0)
        run.copied(50, of_bytes=100, used_bytes=200)
        run.complete((BACKUP,))


def failed(catalogue: Catalogue, run_id: str, error: BackupdError, *, measured: bool = False) -> BenchRecord:
    def attempt() -> None:
        with catalogue.open_run("", "", run_id=run_id, kind=RunKind.BENCH) as run:
            if measured:
                run.benched(a_bench())
            raise error

    with pytest.raises(type(error)):
        attempt()
    return catalogue.bench(run_id)


def rows_kept(path: Path) -> dict[str, int]:
    with direct(path, busy_timeout_seconds=1) as connection:
        counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    return {table: count for table, count in counts.items() if count}


# --- what was found --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [a_bench(raw=True), a_bench(arrays=True)], ids=["volumes", "arrays"])
def test_everything_that_was_found_is_read_back(path: Path, bench: LayoutBench) -> None:
    with Catalogue.open(path) as catalogue:
        benched(catalogue, "b1", bench)
    with Catalogue.open(path) as catalogue:
        found = catalogue.bench("b1")
    assert found.ended_at is not None
    assert found.started_at <= found.ended_at <= datetime.now(UTC)
    assert found == BenchRecord("b1", RunStatus.SUCCESS, found.started_at, found.ended_at, bench=bench)


def test_words_come_back_as_the_words_of_the_vocabulary(catalogue: Catalogue) -> None:
    bench = benched(catalogue, "b1").bench
    assert bench is not None
    words: list[object] = [bench.cells[0].operation, bench.cells[0].medium, bench.layouts[1].kind]
    assert [type(word) for word in words] == [Operation, Medium, LayoutKind]
    assert bench.layouts[1].name == "striped-2x64k"
    assert bench.find("striped-2x64k", bench.cells[0].cell) is not None


@settings(max_examples=examples(30), deadline=None)
@given(bench=values(LayoutBench))
def test_any_bench_comes_back_from_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, bench: LayoutBench
) -> None:
    path = tmp_path_factory.mktemp("any") / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        assert benched(catalogue, "b1", bench).bench == bench


def test_a_person_with_sqlite_can_read_the_figures_and_what_each_disk_did(path: Path, catalogue: Catalogue) -> None:
    benched(catalogue, "b1")
    figures = (
        "SELECT vg, filesystem, layout, operation, record, threads, round(iops) FROM bench_cells JOIN benches "
        "USING (run_id) WHERE operation = 'write' AND record = 1048576 AND threads = 1 ORDER BY id"
    )
    disks = (
        "SELECT layout, key, max(value) FROM bench_samples, json_each(written) "
        "WHERE value > 0 GROUP BY layout, key ORDER BY layout, key LIMIT 2"
    )
    with direct(path, busy_timeout_seconds=1) as connection:
        assert connection.execute(figures).fetchall() == [
            ("labvg", "xfs", layout, "write", 1 << 20, 1, iops)
            for layout, iops in (("linear", 38.0), ("striped-2x64k", 76.0), ("striped-3x64k", 114.0))
        ]
        assert connection.execute(disks).fetchall() == [
            ("linear", "/dev/nbd0", 38.0 * (1 << 20)),
            ("striped-2x64k", "/dev/nbd0", 38.0 * (1 << 20)),
        ]


# --- how a bench ends ------------------------------------------------------------------------------------------------


def test_a_bench_is_running_and_without_figures_until_it_is_measured(path: Path, catalogue: Catalogue) -> None:
    with catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as run:
        journal: RunJournal = run
        found = catalogue.bench("b1")
        assert (found.status, found.ended_at, found.bench) == (RunStatus.RUNNING, None, None)
        assert rows_kept(path) == {}
        journal.benched(a_bench())
        assert catalogue.bench("b1").status is RunStatus.SUCCESS


def test_attention_makes_a_good_bench_one_that_wants_it(catalogue: Catalogue) -> None:
    with catalogue.open_run("", "", run_id="before", kind=RunKind.BENCH) as run:
        run.attention("somebody else used the disks")
        run.benched(a_bench())
    with catalogue.open_run("", "", run_id="after", kind=RunKind.BENCH) as run:
        run.benched(a_bench())
        run.attention("somebody else used the disks")
    assert [catalogue.bench(run_id).status for run_id in ("before", "after")] == [RunStatus.ATTENTION] * 2


def test_a_bench_that_failed_keeps_its_error_and_has_no_figures(path: Path, catalogue: Catalogue) -> None:
    ended = failed(catalogue, "b1", ProbeError("sysbench failed", hint="see the kernel's log"))
    assert (ended.status, ended.error, ended.bench) == (
        RunStatus.FAILED, RunError("probe-error", "sysbench failed", "see the kernel's log", 12), None
    )  # fmt: skip
    assert failed(catalogue, "b2", Cancelled("cancelled by SIGINT")).status is RunStatus.CANCELLED
    assert rows_kept(path) == {}


def test_an_error_after_a_bench_was_measured_does_not_unmake_it(catalogue: Catalogue) -> None:
    found = failed(catalogue, "b1", CleanupIncomplete("the scratch volume is busy"), measured=True)
    assert (found.status, found.bench, found.error) == (RunStatus.ATTENTION, a_bench(), None)
    assert catalogue.run("b1").attention == ("after the bench was complete: the scratch volume is busy",)


CELL, SAMPLE = a_bench().cells[0], a_bench().samples[0]
NO_NUMBERS = {
    "bench_cells.iops": replace(a_bench(), cells=(CELL, replace(CELL, iops=nan))),
    "bench_samples.system": replace(a_bench(), samples=(SAMPLE, replace(SAMPLE, system=nan))),
    "nan for sdb among the shares of linear": replace(a_bench(), cells=(CELL, replace(CELL, shares={"sdb": nan}))),
    "inf for sdb among the rates of linear": replace(a_bench(), samples=(replace(SAMPLE, read={"sdb": inf}),)),
    "nan for sdb among the rates of linear": replace(a_bench(), samples=(replace(SAMPLE, written={"sdb": nan}),)),
}


@pytest.mark.parametrize("named", NO_NUMBERS)
def test_a_bench_that_cannot_be_kept_whole_is_not_kept_at_all(path: Path, catalogue: Catalogue, named: str) -> None:
    with pytest.raises(CatalogueError) as raised:
        benched(catalogue, "b1", NO_NUMBERS[named])
    assert named in raised.value.message
    found = catalogue.bench("b1")
    assert (found.status, found.bench) == (RunStatus.FAILED, None)
    assert rows_kept(path) == {}


def test_a_bench_that_died_is_found_with_what_it_held_and_can_be_ended(path: Path, catalogue: Catalogue) -> None:
    with pytest.raises(RuntimeError), catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as run:
        run.hold(VOLUME)
        assert [(known.run_id, known.kind) for known in map(catalogue.run, catalogue.unfinished())] == [
            ("b1", RunKind.BENCH)
        ]
        assert catalogue.holdings() == [("b1", VOLUME)]
        assert catalogue.process_of("b1") is not None
        catalogue.end_dead_run(
            "b1", RunError("died", "its process died without reporting an error", "start it again", 1)
        )
        assert catalogue.unfinished() == []
        found = catalogue.bench("b1")
        assert found.error is not None
        assert (found.status, found.error.code, found.bench) == (RunStatus.FAILED, "died", None)
    assert rows_kept(path) == {}


def test_the_audit_chain_tells_of_a_bench_and_is_whole(catalogue: Catalogue) -> None:
    benched(catalogue, "b1")
    ended, started = catalogue.audit_entries()
    assert (started.event, started.subject, started.detail["kind"]) == ("run-started", "b1", "bench")
    assert (ended.event, ended.subject, ended.detail) == ("run-ended", "b1", {"status": "success", "backups": {}})
    assert catalogue.audit_trail().chain.first_fault is None


# --- backups, probes and benches -------------------------------------------------------------------------------------


def test_benches_are_listed_among_themselves_only(catalogue: Catalogue) -> None:
    backed_up(catalogue, "r1")
    benched_with_probes(catalogue, "b1")
    assert [run.run_id for run in catalogue.runs()] == ["r1"]
    assert [cost.run_id for cost in catalogue.costs()] == ["r1"]
    assert [cost.run_id for cost in catalogue.costs_over_time(Filter())] == ["r1"]
    assert [probe.run_id for probe in catalogue.probes()] == ["b1-3", "b1-2", "b1-1"]
    assert [bench.run_id for bench in catalogue.benches()] == ["b1"]


def test_benches_are_listed_newest_first_within_what_was_asked_for_and_without_their_samples(
    catalogue: Catalogue,
) -> None:
    for number in range(3):
        benched(catalogue, f"b{number}")
    failed(catalogue, "b3", ProbeError("sysbench failed"))
    assert [bench.run_id for bench in catalogue.benches()] == ["b3", "b2", "b1", "b0"]
    assert [bench.run_id for bench in catalogue.benches(limit=2)] == ["b3", "b2"]
    assert [bench.run_id for bench in catalogue.benches(statuses=[RunStatus.FAILED])] == ["b3"]
    began = catalogue.bench("b1").started_at
    assert [bench.run_id for bench in catalogue.benches(since=began, until=began + timedelta(microseconds=1))] == ["b1"]
    assert catalogue.benches(since=datetime.now(UTC)) == []
    (whole,), (short,) = (
        catalogue.benches(since=began, until=began + timedelta(microseconds=1), samples=samples)
        for samples in (True, False)
    )
    assert whole == catalogue.bench("b1")
    assert short == replace(whole, bench=replace(a_bench(), samples=()))


def test_a_bench_is_no_backup_of_any_job(catalogue: Catalogue) -> None:
    """Nor are its probes: not of a job that has a backup, nor of the one without a name that both have."""
    benched_with_probes(catalogue, "b0")
    backed_up(catalogue, "r1")
    with catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as run:
        run.took(Phase.COPY, 99.0)
        run.benched(a_bench())
    failed(catalogue, "b2", ProbeError("sysbench failed"))
    assert catalogue.run("latest").run_id == "r1"
    newest = catalogue.run("latest-good")
    assert newest is not None
    assert newest.run_id == "r1"
    assert [run.run_id for run in catalogue.newest_unproven()] == ["r1"]
    assert (catalogue.last_copy("nightly"), catalogue.last_copy("")) == (LastCopy(50, 100, 200, 10.0), None)
    assert catalogue.last_stored_bytes("") is None
    assert catalogue.run_counts() == {"nightly": {RunStatus.SUCCESS: 1}}
    assert {one.job for one in catalogue.stored()} == {"nightly"}
    standing = catalogue.records(["nightly", ""], at=datetime.now(UTC))
    assert standing["nightly"].last_run == standing["nightly"].last_good == catalogue.run("r1")
    assert (standing[""].first_at, standing[""].last_run, standing[""].last_good) == (None, None, None)


def test_the_latest_is_of_the_kind_that_was_asked_for(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="no bench yet"):
        catalogue.bench("latest")
    benched_with_probes(catalogue, "b1")
    backed_up(catalogue, "r1")
    found = catalogue.run("latest").run_id, catalogue.probe("latest").run_id, catalogue.bench("latest").run_id
    assert found == ("r1", "b1-3", "b1")


def test_the_id_of_a_bench_is_the_bench_although_its_probes_begin_with_it(catalogue: Catalogue) -> None:
    benched_with_probes(catalogue, "b1")
    assert catalogue.run("b1").kind is RunKind.BENCH
    assert catalogue.bench("b1").run_id == "b1"
    assert catalogue.run("b1-2").kind is RunKind.PROBE
    assert catalogue.probe("b1-2").run_id == "b1-2"


@pytest.mark.parametrize("probes", [1, 3])
def test_the_id_of_a_bench_is_none_of_its_probes(catalogue: Catalogue, probes: int) -> None:
    benched_with_probes(catalogue, "b1", probes)
    with pytest.raises(UsageError, match=r"^run b1 is a bench, not a probe$"):
        catalogue.probe("b1")
    with pytest.raises(UsageError, match=r"^run b1-1 is a probe, not a bench$"):
        catalogue.bench("b1-1")


@pytest.mark.parametrize("probes", [0, 1, 3, 12])
def test_the_beginning_of_a_bench_means_it_rather_than_its_probes(catalogue: Catalogue, probes: int) -> None:
    benched_with_probes(catalogue, "20261120-0300-aa", probes)
    backed_up(catalogue, "20261121-0300-bb")
    assert catalogue.run("20261120").run_id == "20261120-0300-aa"
    assert catalogue.bench("2026").run_id == "20261120-0300-aa"


def test_a_beginning_that_a_bench_has_with_others_is_still_ambiguous(catalogue: Catalogue) -> None:
    benched_with_probes(catalogue, "b1", 1)
    probed(catalogue, "b2")
    with pytest.raises(UsageError, match="more than one run begins with b: b1, b1-1, b2"):
        catalogue.run("b")
    with pytest.raises(UsageError, match="more than one probe begins with b: b1-1, b2"):
        catalogue.probe("b")
    benched(catalogue, "b1-9")  # by a name that a person chose
    with pytest.raises(UsageError, match="more than one run begins with b1-: b1-1, b1-9"):
        catalogue.run("b1-")
    with pytest.raises(UsageError, match="more than one bench begins with b: b1, b1-9"):
        catalogue.bench("b")


def test_a_backup_is_not_meant_where_only_backups_have_a_beginning_in_common(catalogue: Catalogue) -> None:
    """Only a bench has runs of its own: two backups of such names are two."""
    backed_up(catalogue, "r1")
    backed_up(catalogue, "r1-1")
    with pytest.raises(UsageError, match="more than one run begins with r: r1, r1-1"):
        catalogue.run("r")
    assert catalogue.run("r1").run_id == "r1"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("x", "no bench x"),
        ("", "no bench ''"),
        ("b", "more than one bench begins with b: b1, b2"),
        ("latest:nightly", "no bench of job nightly yet"),
        ("r1", "run r1 is a backup, not a bench"),
        ("r", "run r1 is a backup, not a bench"),
        ("b2-", "run b2-1 is a probe, not a bench"),
    ],
)
def test_a_bench_that_is_not_there_is_said_to_be_so(catalogue: Catalogue, wanted: str, sentence: str) -> None:
    backed_up(catalogue, "r1")
    benched(catalogue, "b1")
    benched_with_probes(catalogue, "b2", 1)
    with pytest.raises(UsageError) as raised:
        catalogue.bench(wanted)
    assert (raised.value.message, raised.value.hint) == (sentence, "backupd history --benches")
