"""What `--json` promises: these keys at least, sizes in bytes, times in seconds, ratios baseline ÷ window."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backupd.cli.documents import check_document, drill_document, history_document, run_document
from backupd.config import SettleConfig
from backupd.model import Check, Drill, Finding, Level, Phase, RunDetails, RunError, RunStatus, Sample
from backupd.mysql.grants import grant_script
from tests.cli.terminal import Terminal
from tests.story.world import World

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BARE = RunDetails("r1", "nightly", "db1", RunStatus.FAILED, NOON)

PROMISED = {  # of `run --json`, from its description
    "": "run_id job status verdict phases position snapshot penalty backup error",
    "verdict": "outcome reason",
    "phases": "preflight baseline lock_wait lock_hold snapshot settle copy verify release",
    "position": "binlog_file binlog_offset gtid",
    "snapshot": "layout stripes stripe_size chunk_size cow_size cow_used_peak",
    "penalty": "baseline_iops initial_iops settled_iops initial_ratio settled_ratio samples",
    "backup": "location bytes_read bytes_stored files sha256",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)


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
    assert all(seconds >= 0 for seconds in document["phases"].values())
    assert document["snapshot"]["layout"] == "striped"
    assert (document["snapshot"]["stripes"], document["snapshot"]["stripe_size"]) == (3, 65536)
    assert document["penalty"]["initial_ratio"] == pytest.approx(1.0)
    assert {type(sample["at_seconds"]) for sample in document["penalty"]["samples"]} <= {float, int}
    assert document["backup"]["bytes_read"] > 200_000


def test_an_error_has_code_message_and_hint() -> None:
    error = RunError("lock-not-granted", "not granted", "wait", 6)
    found = run_document(RunDetails("r1", "nightly", "db1", RunStatus.FAILED, NOON, error=error))["error"]
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
    document = run_document(RunDetails("r1", "nightly", "db1", RunStatus.RUNNING, NOON, samples=(unmeasured,)))
    assert ratios(run_document(BARE)) == [None, None]
    assert ratios(document) == [None, None, None]
    off = world.back_up(job=world.job(settle=SettleConfig(enabled=False)))
    assert set(ratios(run_document(off))) == {None}


def test_a_ratio_above_one_is_slower() -> None:
    samples = (Sample(0.0, "baseline", iops=1000.0), Sample(1.0, "settle", iops=250.0, ratio=4.0))
    penalty = run_document(RunDetails("r1", "nightly", "db1", RunStatus.RUNNING, NOON, samples=samples))["penalty"]
    assert (penalty["baseline_iops"], penalty["initial_iops"], penalty["initial_ratio"]) == (1000.0, 250.0, 4.0)


def test_what_a_run_never_came_to_is_null_and_every_phase_is_there() -> None:
    document = run_document(BARE)
    assert {key for key, value in document.items() if value is None} == {
        *("ended_at", "verdict", "lock", "position", "snapshot", "backup", "error")
    }
    assert document["phases"] == dict.fromkeys(Phase)
    assert (document["attention"], document["drills"]) == ([], [])


def test_history_leaves_the_samples_out() -> None:
    runs = history_document([BARE, BARE])["runs"]
    assert [set(run["penalty"]) & {"samples"} for run in runs] == [set(), set()]
    assert "samples" in run_document(BARE)["penalty"]


def test_a_drill_has_every_key_that_is_promised() -> None:
    checks = (Check("position", ok=True, expected="a", found="a"), Check("tables", ok=False, expected="0", found="1"))
    document = drill_document(Drill("r1", ok=False, checks=checks, seconds=2.5, at=NOON))
    assert set(document) >= {"run_id", "status", "checks", "seconds"}
    assert (document["status"], document["seconds"]) == ("failed", 2.5)
    assert document["checks"][1] == {"name": "tables", "ok": False, "expected": "0", "found": "1"}
    assert drill_document(Drill("r1", ok=True, checks=(), seconds=1, at=NOON))["status"] == "proven"


def test_a_check_has_every_key_that_is_promised() -> None:
    finding = Finding("target", Level.REFUSED, "full", "free some room")
    assert check_document("nightly", (finding,)) == {
        "job": "nightly",
        "findings": [{"name": "target", "level": "refused", "detail": "full", "hint": "free some room"}],
    }


def test_instants_say_their_zone() -> None:
    assert run_document(BARE)["started_at"] == "2026-03-01T12:00:00+00:00"


def test_readme_asks_for_exactly_the_grants_that_are_tested() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert re.findall(r"^GRANT .*;$", readme, re.MULTILINE) == grant_script("backupd").splitlines()
