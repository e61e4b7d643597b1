"""What the catalogue promises about probes: all that was measured is there, and backups are not mixed up with them."""

from dataclasses import replace
from datetime import UTC, datetime
from math import nan
from pathlib import Path

import pytest
from hypothesis import given, settings

from backupd.catalogue import RunJournal
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    CatalogueError,
    CleanupIncomplete,
    SnapshotVoid,
    UsageError,
)
from backupd.vocabulary.gauges import CurvePoint, Mode, Stage, TunedCell, Tuning, VolumeLayout
from backupd.vocabulary.penalty import Reason
from backupd.vocabulary.probes import (
    Curve,
    Measurement,
    PhysicalCost,
    ProbedVolume,
    ProbeRecord,
    ProbeRow,
    ProbeSettings,
)
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunError, RunKind, RunStatus
from backupd.vocabulary.storage import Backup, LastCopy
from backupd.vocabulary.volumes import Layout
from tests.any_values import values
from tests.share import examples
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
VOLUME = ProbedVolume(
    "labvg/data",
    8 << 30,
    Layout.STRIPED,
    3,
    65536,
    ("/dev/vda", "/dev/vdb"),
    "xfs",
    False,
    "6.1.0",
    "2.03.16",
    "1.0.20",
)
SETTINGS = ProbeSettings(5.0, 3, 16384, 256 << 20, 8 << 20, 0.8, 4096, ("/dev/vdc",), 1 << 30, 1.25)
COST = PhysicalCost(1.0, 2.5, 300.0, {"/dev/vda": 0.75, "/dev/vdb": 0.25})
BASELINE = ProbeRow(Mode.DIRECT, 1, 16384, None, (), 0, Stage.BASELINE, 900.0, 0.05, None)
FIRST = ProbeRow(Mode.DIRECT, 1, 16384, 4096, ("/dev/vdc",), 1, Stage.FIRST, 90.0, 0.1, 10.0, 3, 1474560.0, 40.5, COST)
CURVE = Curve(
    Mode.REWRITE, 1, 4096, ("/dev/vdc",), 1, 2, Reason.SETTLED,
    (CurvePoint(5.0, 90.0, 10.0, 1 << 20, 11.5), CurvePoint(10.0, 880.0, 1.02)),
)  # fmt: skip
MEASUREMENT = Measurement(VOLUME, SETTINGS, (BASELINE, FIRST), (CURVE, replace(CURVE, repeat=3)), ("load 0.2", "ok"))
LV = Holding(HoldingKind.SNAPSHOT, "labvg/bk_p1", {"run": "p1"})


def probed(
    catalogue: Catalogue, run_id: str, measurement: Measurement = MEASUREMENT, job: str = "nightly"
) -> ProbeRecord:
    with catalogue.open_run(job, "db1" if job else "", run_id=run_id, kind=RunKind.PROBE) as run:
        run.measured(measurement)
    return catalogue.probe(run_id)


def backed_up(catalogue: Catalogue, run_id: str, job: str = "nightly") -> None:
    with catalogue.open_run(job, "db1", run_id=run_id) as run:
        run.took(Phase.COPY, 10.0)
        run.copied(50, of_bytes=100, used_bytes=200)
        run.complete((BACKUP,))


def failed(catalogue: Catalogue, run_id: str, error: BackupdError, *, measured: bool = False) -> ProbeRecord:
    def attempt() -> None:
        with catalogue.open_run("nightly", "db1", run_id=run_id, kind=RunKind.PROBE) as run:
            if measured:
                run.measured(MEASUREMENT)
            raise error

    with pytest.raises(type(error)):
        attempt()
    return catalogue.probe(run_id)


# --- what was measured -----------------------------------------------------------------------------------------------


def test_everything_that_was_measured_is_read_back(path: Path) -> None:
    with Catalogue.open(path) as catalogue:
        probed(catalogue, "p1")
    with Catalogue.open(path) as catalogue:
        found = catalogue.probe("p1")
    assert found.ended_at is not None
    assert found.started_at <= found.ended_at <= datetime.now(UTC)
    assert found == ProbeRecord(
        "p1", "nightly", RunStatus.SUCCESS, found.started_at, found.ended_at, measurement=MEASUREMENT
    )


def test_words_come_back_as_the_words_of_the_vocabulary(catalogue: Catalogue) -> None:
    measurement = probed(catalogue, "p1").measurement
    assert measurement is not None
    row, curve = measurement.rows[1], measurement.curves[0]
    words: list[object] = [row.mode, row.phase, curve.reason, measurement.volume.layout, measurement.volume.thin]
    assert [type(word) for word in words] == [Mode, Stage, Reason, Layout, bool]


@settings(max_examples=examples(30), deadline=None)
@given(measurement=values(Measurement))
def test_any_measurement_comes_back_from_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, measurement: Measurement
) -> None:
    path = tmp_path_factory.mktemp("any") / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        assert probed(catalogue, "p1", measurement).measurement == measurement


def test_cells_that_an_earlier_backupd_kept_were_linear(path: Path) -> None:
    cells = (TunedCell(64 << 10, ("/dev/sde",), (1.0,) * 3), TunedCell(64 << 10, ("/dev/sdd", "/dev/sde"), (2.0,), 2))
    layout = VolumeLayout("volume", "group", ("/dev/sdb",), 1, None, {"/dev/sdb": "one"})
    tuning = Tuning(datetime(2026, 11, 20, tzinfo=UTC), layout, cells)
    with Catalogue.open(path) as catalogue:
        probed(catalogue, "p1", replace(MEASUREMENT, tuning=tuning))
        assert catalogue.tunings() == {"volume": tuning}
    earlier = '[{"chunk_size": 65536, "cow_pvs": ["/dev/sde"], "speeds": [1.0, 1.0, 1.0]}]'
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE tunings SET cells = ?", (earlier,))
        connection.commit()
    with Catalogue.open(path) as catalogue:
        assert catalogue.tunings()["volume"].cells == cells[:1]
        assert cells[0].stripes == 1


def test_a_person_with_sqlite_can_read_the_table_and_the_curves(path: Path, catalogue: Catalogue) -> None:
    probed(catalogue, "p1")
    table = (
        "SELECT volume, volume_size, layout, stripes, kernel, mode, phase, iops, penalty, reads_per_write "
        "FROM probe_rows JOIN probes USING (run_id) ORDER BY id"
    )
    decay = (
        "SELECT repeat, reason, json_extract(value, '$.at_seconds'), json_extract(value, '$.penalty') "
        "FROM probe_curves, json_each(points) WHERE repeat = 2"
    )
    with direct(path, busy_timeout_seconds=1) as connection:
        volume = ("labvg/data", 8 << 30, "striped", 3, "6.1.0")
        assert connection.execute(table).fetchall() == [
            (*volume, "direct", "baseline", 900.0, None, None),
            (*volume, "direct", "first", 90.0, 10.0, 1.0),
        ]
        assert connection.execute(decay).fetchall() == [(2, "settled", 5.0, 10.0), (2, "settled", 10.0, 1.02)]


def test_a_probe_of_a_volume_that_was_named_has_no_job(catalogue: Catalogue) -> None:
    assert probed(catalogue, "p1", job="").job is None


# --- how a probe ends ------------------------------------------------------------------------------------------------


def test_a_probe_is_running_and_without_figures_until_it_is_measured(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="p1", kind=RunKind.PROBE) as run:
        journal: RunJournal = run
        found = catalogue.probe("p1")
        assert (found.status, found.ended_at, found.measurement) == (RunStatus.RUNNING, None, None)
        journal.measured(MEASUREMENT)
        assert catalogue.probe("p1").status is RunStatus.SUCCESS


def test_attention_makes_a_good_probe_one_that_wants_it(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="before", kind=RunKind.PROBE) as run:
        run.attention("the server was busy")
        run.measured(MEASUREMENT)
    with catalogue.open_run("nightly", "db1", run_id="after", kind=RunKind.PROBE) as run:
        run.measured(MEASUREMENT)
        run.attention("the server was busy")
    assert [catalogue.probe(run_id).status for run_id in ("before", "after")] == [RunStatus.ATTENTION] * 2


def test_a_probe_that_failed_keeps_its_error_and_has_no_figures(catalogue: Catalogue) -> None:
    void = failed(catalogue, "p1", SnapshotVoid("it overflowed", hint="more room"))
    assert (void.status, void.error, void.measurement) == (
        RunStatus.FAILED, RunError("snapshot-void", "it overflowed", "more room", 7), None
    )  # fmt: skip
    assert failed(catalogue, "p2", Cancelled("cancelled by SIGINT")).status is RunStatus.CANCELLED


def test_an_error_after_a_probe_was_measured_does_not_unmake_it(catalogue: Catalogue) -> None:
    found = failed(catalogue, "p1", CleanupIncomplete("the snapshot is busy"), measured=True)
    assert (found.status, found.measurement, found.error) == (RunStatus.ATTENTION, MEASUREMENT, None)
    assert catalogue.run("p1").attention == ("after the probe was complete: the snapshot is busy",)


def test_a_measurement_that_cannot_be_kept_whole_is_not_kept_at_all(path: Path, catalogue: Catalogue) -> None:
    broken = replace(MEASUREMENT, rows=(BASELINE, replace(FIRST, iops=nan)))
    with pytest.raises(CatalogueError, match=r"probe_rows\.iops"):
        probed(catalogue, "p1", broken)
    found = catalogue.probe("p1")
    assert (found.status, found.measurement) == (RunStatus.FAILED, None)
    with direct(path, busy_timeout_seconds=1) as connection:
        assert connection.execute("SELECT count(*) FROM probe_rows").fetchone() == (0,)


def test_a_probe_that_died_is_found_with_what_it_held_and_can_be_ended(catalogue: Catalogue) -> None:
    with pytest.raises(RuntimeError), catalogue.open_run("", "", run_id="p1", kind=RunKind.PROBE) as run:
        run.hold(LV)
        assert [(known.run_id, known.kind) for known in map(catalogue.run, catalogue.unfinished())] == [
            ("p1", RunKind.PROBE)
        ]
        assert catalogue.holdings() == [("p1", LV)]
        assert catalogue.process_of("p1") is not None
        catalogue.end_dead_run(
            "p1", RunError("died", "its process died without reporting an error", "start it again", 1)
        )
        assert catalogue.unfinished() == []
        found = catalogue.probe("p1")
        assert found.error is not None
        assert (found.status, found.error.code) == (RunStatus.FAILED, "died")


# --- backups and probes ----------------------------------------------------------------------------------------------


def test_probes_are_not_listed_among_backups_nor_backups_among_probes(catalogue: Catalogue) -> None:
    backed_up(catalogue, "b1")
    probed(catalogue, "p1")
    assert [run.run_id for run in catalogue.runs()] == ["b1"]
    assert [run.run_id for run in catalogue.runs(job="nightly")] == ["b1"]
    assert [probe.run_id for probe in catalogue.probes()] == ["p1"]


def test_the_latest_run_is_a_backup_and_the_latest_probe_a_probe(catalogue: Catalogue) -> None:
    backed_up(catalogue, "b1")
    probed(catalogue, "p1")
    backed_up(catalogue, "b2", "weekly")
    probed(catalogue, "p2", job="weekly")
    assert [catalogue.run(wanted).run_id for wanted in ("latest:weekly", "latest:nightly")] == ["b2", "b1"]
    assert [catalogue.probe(wanted).run_id for wanted in ("latest", "latest:nightly")] == ["p2", "p1"]


def test_a_probe_tells_nothing_of_how_long_a_copy_takes(catalogue: Catalogue) -> None:
    backed_up(catalogue, "b1")
    with catalogue.open_run("nightly", "db1", run_id="p1", kind=RunKind.PROBE) as run:
        run.took(Phase.COPY, 99.0)
        run.measured(MEASUREMENT)
    assert catalogue.last_copy("nightly") == LastCopy(50, 100, 200, 10.0)
    assert catalogue.last_stored_bytes("nightly") == BACKUP.bytes_stored


def test_a_run_is_found_by_its_id_whatever_it_is_for(catalogue: Catalogue) -> None:
    probed(catalogue, "20261121-0100-aa")
    backed_up(catalogue, "20261121-0200-bb")
    assert catalogue.run("20261121-01").kind is RunKind.PROBE
    assert catalogue.run("20261121-02").kind is RunKind.BACKUP


def test_a_beginning_that_only_one_probe_has_means_it_whatever_backups_there_are(catalogue: Catalogue) -> None:
    backed_up(catalogue, "20261121-0200-bb")
    probed(catalogue, "20261121-0100-aa")
    assert catalogue.probe("20261121").run_id == "20261121-0100-aa"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("x", "no probe x"),
        ("", "no probe ''"),
        ("p", "more than one probe begins with p: p1, p2"),
        ("latest:other", "no probe of job other yet"),
        ("b1", "run b1 is a backup, not a probe"),
        ("b", "run b1 is a backup, not a probe"),
    ],
)
def test_a_probe_that_is_not_there_is_said_to_be_so(catalogue: Catalogue, wanted: str, sentence: str) -> None:
    backed_up(catalogue, "b1")
    probed(catalogue, "p1")
    probed(catalogue, "p2")
    with pytest.raises(UsageError) as raised:
        catalogue.probe(wanted)
    assert (raised.value.message, raised.value.hint) == (sentence, "backupd history --probes")


def test_there_is_no_latest_probe_among_backups(catalogue: Catalogue) -> None:
    backed_up(catalogue, "b1")
    with pytest.raises(UsageError, match="no probe yet"):
        catalogue.probe("latest")
    assert catalogue.probes() == []


def test_probes_are_listed_newest_first_by_job_within_the_limit_and_without_curves(catalogue: Catalogue) -> None:
    for number in range(4):
        probed(catalogue, f"p{number}", job="even" if number % 2 == 0 else "odd")
    failed(catalogue, "p4", SnapshotVoid("it overflowed"))
    assert [probe.run_id for probe in catalogue.probes()] == ["p4", "p3", "p2", "p1", "p0"]
    assert [probe.run_id for probe in catalogue.probes(job="even", limit=1)] == ["p2"]
    newest_good = catalogue.probes(limit=2)[1]
    assert newest_good == replace(catalogue.probe("p3"), measurement=replace(MEASUREMENT, curves=()))
