"""What `--json` promises: these keys at least, sizes in bytes, times in seconds, ratios baseline ÷ window."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backupd.cli.documents import check_document, drill_document, history_document, probes_document, run_document
from backupd.config import SettleConfig
from backupd.report import probe_table
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.probes import ProbeRecord
from backupd.vocabulary.records import (
    Check,
    Drill,
    Finding,
    Level,
    Phase,
    Pin,
    RunDetails,
    RunError,
    RunKind,
    RunStatus,
)
from tests.cli.terminal import Terminal
from tests.fakes.measured import measurement, record
from tests.fakes.target import MACHINE
from tests.story.world import World

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BARE = RunDetails("r1", "nightly", "db1", MACHINE, RunStatus.FAILED, NOON)

PROMISED = {  # of `run --json`, from its description
    "": "run_id job machine status verdict phases position snapshot penalty backup error",
    "verdict": "outcome reason",
    "phases": "preflight baseline preflush lock_wait lock_hold snapshot settle copy release send verify",
    "position": "binlog_file binlog_offset gtid",
    "snapshot": "layout stripes stripe_size chunk_size cow_size cow_used_peak",
    "penalty": "baseline_iops initial_iops settled_iops initial_ratio settled_ratio samples",
    "backup": "location bytes_read bytes_stored files sha256",
}


def test_run_has_every_key_that_is_promised(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Terminal(world, monkeypatch, capsys).run("run", "nightly", "--json").document
    assert next(iter(document)) == "schema"
    for part, keys in PROMISED.items():
        assert set(keys.split()) <= set(document[part] if part else document), part
    assert (document["schema"], document["status"], document["error"]) == (1, "success", None)
    assert document["verdict"]["outcome"] == "start"
    assert set(document["phases"]) == set(Phase)
    assert (document["phases"].pop("preflush"), document["phases"].pop("send")) == (None, None)  # not asked for
    assert all(seconds >= 0 for seconds in document["phases"].values())
    assert document["snapshot"]["layout"] == "striped"
    assert (document["snapshot"]["stripes"], document["snapshot"]["stripe_size"]) == (3, 65536)
    assert document["penalty"]["initial_ratio"] == pytest.approx(1.0)
    assert {type(sample["at_seconds"]) for sample in document["penalty"]["samples"]} <= {float, int}
    assert document["backup"]["bytes_read"] > 200_000


def test_an_error_has_code_message_and_hint() -> None:
    error = RunError("lock-not-granted", "not granted", "wait", 6)
    found = run_document(RunDetails("r1", "nightly", "db1", MACHINE, RunStatus.FAILED, NOON, error=error))["error"]
    assert (found["code"], found["message"], found["hint"], found["exit_status"]) == (
        "lock-not-granted",
        "not granted",
        "wait",
        6,
    )


def ratios(document: dict[str, Any]) -> list[Any]:
    return [value for key, value in document["penalty"].items() if key.endswith("_ratio")] + [
        sample["ratio"] for sample in document["penalty"]["samples"]
    ]


def test_a_ratio_that_was_not_measured_is_null(world: World) -> None:
    unmeasured = Sample(1.0, "settle", cow_used=4096)
    document = run_document(RunDetails("r1", "nightly", "db1", MACHINE, RunStatus.RUNNING, NOON, samples=(unmeasured,)))
    assert ratios(run_document(BARE)) == [None, None]
    assert ratios(document) == [None, None, None]
    off = world.back_up(job=world.job(settle=SettleConfig(enabled=False, baseline_windows=1)))
    assert set(ratios(run_document(off))) == {None}


def test_a_ratio_above_one_is_slower() -> None:
    samples = (Sample(0.0, "baseline", iops=1000.0), Sample(1.0, "settle", iops=250.0, ratio=4.0))
    penalty = run_document(RunDetails("r1", "nightly", "db1", MACHINE, RunStatus.RUNNING, NOON, samples=samples))[
        "penalty"
    ]
    assert (penalty["baseline_iops"], penalty["initial_iops"], penalty["initial_ratio"]) == (1000.0, 250.0, 4.0)


def test_a_pin_and_the_last_proof_are_in_the_document_of_a_run() -> None:
    drills = (Drill("r1", True, (), 1.0, NOON), Drill("r1", False, (), 1.0, NOON.replace(hour=13)))
    document = run_document(replace(BARE, pin=Pin("before the merger", NOON), drills=drills))
    assert document["pin"] == {"note": "before the merger", "at": "2026-03-01T12:00:00+00:00"}
    assert document["proven_at"] == "2026-03-01T12:00:00+00:00"


def test_what_a_run_never_came_to_is_null_and_every_phase_is_there() -> None:
    document = run_document(BARE)
    assert {key for key, value in document.items() if value is None} == {
        *("ended_at", "verdict", "lock", "position", "snapshot", "backup", "pin", "proven_at", "error"),
        *("preflush", "bill", "losses", "max_rate"),
    }
    assert document["phases"] == dict.fromkeys(Phase)
    assert (document["attention"], document["drills"]) == ([], [])


def test_history_leaves_the_samples_out() -> None:
    runs = history_document([BARE, BARE], {BARE.run_id: NOON})["runs"]
    assert {run["rolls_to"] for run in runs} == {NOON.isoformat()}
    assert [set(run["penalty"]) & {"samples"} for run in runs] == [set(), set()]
    assert "samples" in run_document(BARE)["penalty"]


def test_a_drill_has_every_key_that_is_promised() -> None:
    checks = (Check("position", ok=True, expected="a", found="a"), Check("tables", ok=False, expected="0", found="1"))
    document = drill_document(Drill("r1", ok=False, checks=checks, seconds=2.5, at=NOON))
    assert set(document) >= {"run_id", "status", "checks", "seconds"}
    assert (document["status"], document["seconds"]) == ("failed", 2.5)
    assert document["checks"][1] == {"name": "tables", "ok": False, "expected": "0", "found": "1", "asked": ""}
    assert drill_document(Drill("r1", ok=True, checks=(), seconds=1, at=NOON))["status"] == "proven"


def test_a_check_has_every_key_that_is_promised() -> None:
    finding = Finding(
        "target", Level.REFUSED, "full", "free some space on the file system, or use a smaller probe file"
    )
    assert check_document("nightly", (finding,)) == {
        "job": "nightly",
        "findings": [
            {
                "name": "target",
                "level": "refused",
                "detail": "full",
                "hint": "free some space on the file system, or use a smaller probe file",
                "attention": False,
            }
        ],
    }


def test_instants_say_their_zone() -> None:
    assert run_document(BARE)["started_at"] == "2026-03-01T12:00:00+00:00"


def test_probes_leave_their_curves_out_and_name_their_job() -> None:
    failed = ProbeRecord("p2", None, RunStatus.FAILED, NOON)
    probes = probes_document([record(), failed])["probes"]
    assert [(probe["run_id"], probe["job"], "curves" in probe) for probe in probes] == [
        ("p1", "nightly", False),
        ("p2", None, False),
    ]
    assert probes[0]["rows"] == probe_table.document(record())["rows"]


def probe_nightly(world: World, run_id: str) -> None:
    """A probe of the job is in the catalogue."""
    with (
        world.catalogue() as catalogue,
        catalogue.open_run("nightly", "db1", run_id=run_id, kind=RunKind.PROBE) as run,
    ):
        run.measured(measurement())


def test_history_lists_probes_only_when_asked_and_then_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(world, monkeypatch, capsys)
    assert terminal.run("history", "--probes").stdout == "no probe yet\n"
    world.back_up(run_id="r1")
    probe_nightly(world, "p1")
    assert [run["run_id"] for run in terminal.run("history", "--json").document["runs"]] == ["r1"]
    assert [one["run_id"] for one in terminal.run("history", "--probes", "--json").document["probes"]] == ["p1"]
    _, line = terminal.run("history", "nightly", "--probes").stdout.splitlines()
    assert line.startswith("p1")
    assert line.endswith("direct 4.00x to 1.25x, rewrite 4.00x to 1.25x")


def test_show_of_a_probe_is_its_table_and_its_curve(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(world, monkeypatch, capsys)
    probe_nightly(world, "p1")
    document = terminal.run("show", "p1", "--json").document
    assert [row["phase"] for row in document["rows"][:3]] == ["baseline", "first", "settled"]
    assert len(document["curves"]) == 2
    shown = terminal.run("show", "p1").stdout
    assert "theory:" in shown
    assert "penalty of rewrite writes" in shown


def test_show_of_a_run_draws_what_the_gate_saw(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.back_up(run_id="r1")
    shown = Terminal(world, monkeypatch, capsys).run("show", "r1").stdout
    assert shown.index("phases\n") < shown.index("penalty of writes (baseline ÷ this)")
    assert "gate:" in shown
